"""The one writer: runs verbs in transactions, alone or as a group, and knows which commits are on disk.

A barrier commits with synchronous=FULL, so that its caller goes on only when the write-ahead log is
synced; any other commit is NORMAL and becomes durable with the next barrier, at most a second later.
When a single run is under way its verbs are executed at once in the caller's thread, because the hop to
another thread would halve its speed. When several are, the writer thread gathers them: barriers wait
until every run under way has joined, or for two milliseconds per such run.

After a failed write, commit or sync nothing is written any more: what reached the disk is unknown until
the file is opened again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from ...model import points
from ...model.clock import Clock
from ...model.errors import Conflict, LedgerStopped
from ...model.states import IllegalMove
from .connection import Transaction, unusable

_FLUSH_S = 1.0
_GATHER_S = 0.002  # per run under way


@dataclass
class Work:
    """One verb that somebody wants committed."""

    verb: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    barrier: bool
    asked: float
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Owns the connection that writes."""

    def __init__(
        self, connection: apsw.Connection, tx: Transaction, clock: Clock, path: Path, synced: Callable[[], None],
    ) -> None:
        self.crew = 0
        self.log_pages_max = 8000  # of the write-ahead log, before it is brought into the file
        self.stopped: LedgerStopped | None = None
        self._connection, self._tx, self._clock, self._path, self._synced = connection, tx, clock, path, synced
        self._owner = threading.Lock()
        self._ready = threading.Condition()
        self._queue: list[Work] = []
        self._closing = False
        self._full: bool | None = None
        self._dirty = False
        self._flush: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._log_pages = 0
        connection.set_wal_hook(self._count_pages)

    async def write(self, work: Work) -> Any:
        """Commit one verb and give its result."""
        if self._alone() and self._owner.acquire(blocking=False):
            try:
                self._commit([work])
            finally:
                self._owner.release()
        else:
            await self._enqueue(work)
        self._plan_flush()
        if work.error is not None:
            raise work.error
        return work.result

    async def flush(self) -> None:
        """Wait until everything committed so far is on disk."""
        if self._dirty and not self.stopped:
            await self.write(Work(_touch, (), {}, barrier=True, asked=time.monotonic()))

    def close(self) -> None:
        """End the thread; everything asked for before is done."""
        if self._flush:
            self._flush.cancel()
        with self._ready:
            self._closing = True
            self._ready.notify()
        if self._thread:
            self._thread.join()

    # -- who commits -------------------------------------------------------------------------------

    def _alone(self) -> bool:
        return self.crew <= 1 and not self._queue

    async def _enqueue(self, work: Work) -> None:
        loop = asyncio.get_running_loop()
        work.future = loop.create_future()
        with self._ready:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, args=(loop,), name="keep-writer", daemon=True)
                self._thread.start()
            self._queue.append(work)
            self._ready.notify()
        await work.future

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._take():
            with self._owner:
                self._commit(batch)
            loop.call_soon_threadsafe(_deliver, batch)

    def _take(self) -> list[Work]:
        """The next group: plain commits at once, barriers when the group is complete or has waited enough."""
        with self._ready:
            while True:
                if not self._queue and self._closing:
                    return []
                barriers = [w for w in self._queue if w.barrier]
                wait = self._wait_for(barriers)
                if self._queue and (wait <= 0 or self._closing):
                    batch, self._queue = self._queue, []
                    return batch
                if len(barriers) < len(self._queue):
                    batch = [w for w in self._queue if not w.barrier]
                    self._queue = barriers
                    return batch
                self._ready.wait(wait if self._queue else None)

    def _wait_for(self, barriers: list[Work]) -> float:
        if not barriers or len(barriers) >= self.crew:
            return 0.0
        return barriers[0].asked + self.crew * _GATHER_S - time.monotonic()

    # -- committing --------------------------------------------------------------------------------

    def _commit(self, batch: list[Work]) -> None:
        """Run a group in one transaction; one verb's refusal undoes that verb alone."""
        if self.stopped:
            for work in batch:
                work.error = self.stopped
            return
        try:
            self._transact(batch)
            if self._full:
                self._synced()
            self._checkpoint()
        except apsw.Error as error:
            reason = unusable(error, self._path).message
            self.stopped = LedgerStopped(f"{reason} Until then nothing starts and nothing is sent.")
            _roll_back(self._connection)
            for work in batch:
                work.error = self.stopped
        except BaseException:
            _roll_back(self._connection)
            raise

    def _transact(self, batch: list[Work]) -> None:
        self._synchronous(any(w.barrier for w in batch))
        self._connection.execute("begin immediate")
        self._tx.now, before = self._clock.now_ms(), self._connection.total_changes()
        for work in batch:
            self._attempt(work, alone=len(batch) == 1)
        done = [w for w in batch if w.error is None]
        if not done:
            self._connection.execute("rollback")
            return
        if self._full and self._dirty and self._connection.total_changes() == before:
            _touch(self._tx)  # a barrier that changes nothing must still sync what came before it
        for work in done:
            points.reach(f"before:{work.verb.__name__}")
        self._connection.execute("commit")
        self._dirty = not self._full
        for work in done:
            points.reach(f"after:{work.verb.__name__}")

    def _count_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Bring a long log into the file. SQLite would do it by itself, and keep to itself that it failed."""
        if self._log_pages < self.log_pages_max:
            return
        self._log_pages = 0  # also if a reader is in the way: then it is tried after as many pages again
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return

    def _attempt(self, work: Work, *, alone: bool) -> None:
        if not alone:
            self._connection.execute("savepoint verb")
        try:
            work.result = work.verb(self._tx, *work.args, **work.kwargs)
        except Exception as error:  # whatever it is, it belongs to whoever asked for this verb
            if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                raise
            work.error = _translated(error)
            if not alone:
                self._connection.execute("rollback to verb")
        if not alone:
            self._connection.execute("release verb")

    def _synchronous(self, full: bool) -> None:
        if self._full is not full:
            self._connection.execute(f"pragma synchronous = {'full' if full else 'normal'}")
            self._full = full

    def _plan_flush(self) -> None:
        if self._dirty and self._flush is None and not self.stopped:
            self._flush = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_now)

    def _flush_now(self) -> None:
        self._flush = None
        if self._dirty and not self.stopped and not self._closing:
            task = asyncio.get_running_loop().create_task(self.flush())
            task.add_done_callback(lambda t: t.cancelled() or t.exception())


def _deliver(batch: list[Work]) -> None:
    for work in batch:
        assert work.future is not None
        if not work.future.done():
            work.future.set_result(None)


def _touch(tx: Transaction) -> None:
    tx.run("host_touch", epoch=tx.epoch)


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, apsw.ConstraintError):
        if "illegal" in str(error) or "never" in str(error):
            return IllegalMove(str(error))
        return Conflict(f"Nothing was changed: the ledger refused it ({error}).")
    return error


def _roll_back(connection: apsw.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("rollback")
    except apsw.Error:  # the file is given up already; the first error is the one that counts
        return
