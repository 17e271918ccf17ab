"""The one writer: runs verbs in transactions, alone or as a group, and knows which commits are on disk.

A barrier commits with synchronous=FULL, so that its caller goes on only when the write-ahead log is
synced; any other commit is NORMAL and becomes durable with the next barrier, at most a second later.
When a single run is under way its verbs are committed at once. When several are, those that ask in the same
turn of the loop share a transaction; barriers wait until a quarter of the runs under way has joined, or for half a
millisecond per such run. Verbs always run in the loop's own thread, where nobody competes for the interpreter; only a
commit that waits for the disk is left to another thread, and meanwhile the next group gathers.

After a failed write, commit or sync nothing is written any more: what reached the disk is unknown until
the file is opened again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from ...model import points
from ...model.clock import Clock
from ...model.errors import Conflict, LedgerStopped
from ...model.states import IllegalMove
from .. import account
from .connection import Transaction, unusable

_FLUSH_S = 1.0
_GATHER_S = 0.0005  # per run under way
_GATHERED = 4  # a group of barriers is complete with one of so many runs under way


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
        self._queue: list[Work] = []
        self._syncing: Future[None] | None = None  # of the commit that waits for the disk
        self._group: list[Work] = []  # whose commit that is
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._closing = False
        self._full: bool | None = None
        self._dirty = False
        self._flush: asyncio.TimerHandle | None = None
        self._log_pages = 0
        connection.set_wal_hook(self._count_pages)

    @property
    def at_rest(self) -> bool:
        """Whether the connection shows what is committed, and nobody else uses it."""
        return self._syncing is None and not self._connection.in_transaction

    async def write(self, work: Work) -> Any:
        """Commit one verb and give its result."""
        if self._alone() and self._syncing is None:
            self._commit([work])
        else:
            work.future = asyncio.get_running_loop().create_future()
            self._queue.append(work)
            self._plan(0.0)
            await work.future
        self._plan_flush()
        if work.error is not None:
            raise work.error
        return work.result

    async def flush(self) -> None:
        """Wait until everything committed so far is on disk."""
        if self._dirty and not self.stopped:
            await self.write(Work(_touch, (), {}, barrier=True, asked=time.monotonic()))

    def close(self) -> None:
        """Everything asked for before is done."""
        self._closing = True
        for timer in (self._flush, self._timer):
            if timer:
                timer.cancel()
        if self._syncing is not None:
            self._synced_by(self._syncing)
        if self._queue:
            batch, self._queue = self._queue, []
            self._commit(batch)
            _deliver(batch)
        if self._thread:
            self._thread.shutdown()

    # -- who commits, and when ---------------------------------------------------------------------

    def _alone(self) -> bool:
        return self.crew <= 1 and not self._queue

    def _plan(self, wait: float) -> None:
        """Have the queue looked at: when everybody who is ready has asked, or when the oldest has waited enough."""
        if wait <= 0 and isinstance(self._timer, asyncio.TimerHandle):
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait, self._look) if wait > 0 else loop.call_soon(self._look)

    def _look(self) -> None:
        self._timer = None
        if self._syncing is not None or self._closing:
            return  # the queue is looked at again when that has ended
        batch, wait = self._take()
        if batch and any(work.barrier for work in batch):
            self._commit_apart(batch)
        elif batch:
            self._commit(batch)
            _deliver(batch)
        if self._queue and self._syncing is None:
            self._plan(wait)

    def _take(self) -> tuple[list[Work], float]:
        """The next group, plain commits at once and barriers when complete; and how long those left may wait."""
        barriers = [work for work in self._queue if work.barrier]
        wait = self._wait_for(barriers)
        if wait <= 0:
            batch, self._queue = self._queue, []
            return batch, 0.0
        batch = [work for work in self._queue if not work.barrier]
        self._queue = barriers
        return batch, wait

    def _wait_for(self, barriers: list[Work]) -> float:
        if not barriers or len(barriers) * _GATHERED >= self.crew:
            return 0.0
        return barriers[0].asked + self.crew * _GATHER_S - time.monotonic()

    def _commit_apart(self, batch: list[Work]) -> None:
        """Run a group here, and leave the commit, which waits for the disk, to another thread."""
        if not self._guarded(batch, self._perform):
            _deliver(batch)
            return
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="keep-writer")
        loop = asyncio.get_running_loop()
        self._group, self._syncing = batch, self._thread.submit(self._end)
        self._syncing.add_done_callback(lambda done: loop.call_soon_threadsafe(self._synced_by, done))

    def _synced_by(self, done: Future[None]) -> None:
        """That commit has ended: whoever asked for it is told, and the next group's turn has come."""
        if done is not self._syncing:
            return  # `close` was quicker
        def end(batch: list[Work]) -> None:
            done.result()
            self._committed(batch)
        batch, self._group = self._group, []
        self._guarded(batch, end)
        self._syncing = None
        _deliver(batch)
        if self._queue and not self._closing:
            self._plan(0.0)

    # -- committing --------------------------------------------------------------------------------

    def _commit(self, batch: list[Work]) -> None:
        """Run a group in one transaction; one verb's refusal undoes that verb alone."""
        self._guarded(batch, self._transact)

    def _guarded(self, batch: list[Work], act: Callable[[list[Work]], bool | None]) -> bool:
        """Do a part of a commit; False if it is over for the group. What SQLite cannot do ends all writing."""
        if self.stopped:
            for work in batch:
                work.error = self.stopped
            return False
        try:
            return act(batch) is not False
        except apsw.Error as error:
            reason = unusable(error, self._path).message
            self.stopped = LedgerStopped(f"{reason} Until then nothing starts and nothing is sent.")
            _roll_back(self._connection)
            for work in batch:
                work.error = self.stopped
            return False
        except BaseException as error:
            _roll_back(self._connection)
            if batch[0].future is None:
                raise
            for work in batch:  # whoever waits for them must not wait for ever
                work.error = error
            return False

    def _transact(self, batch: list[Work]) -> None:
        if self._perform(batch):
            self._end()
            self._committed(batch)

    def _perform(self, batch: list[Work]) -> bool:
        """Run the verbs, and leave the transaction open; False if nothing is left to commit."""
        self._synchronous(any(w.barrier for w in batch))
        self._connection.execute("begin immediate")
        self._tx.now, before = self._clock.now_ms(), self._connection.total_changes()
        if not all(map(self._attempt, batch)) and len(batch) > 1:
            self._attempt_each(batch)  # hardly ever is one refused: only then is there a mark between them
        done = [w for w in batch if w.error is None]
        if not done:
            self._connection.execute("rollback")
            return False
        account.seal(self._tx)
        if self._full and self._dirty and self._connection.total_changes() == before:
            _touch(self._tx)  # a barrier that changes nothing must still sync what came before it
        for work in done:
            points.reach(f"before:{work.verb.__name__}")
        return True

    def _end(self) -> None:
        """Commit what is open. In another thread this waits for the disk and for nothing else: whatever of Python ran
        there would take the interpreter from the loop, several times in a row."""
        self._connection.execute("commit")
        self._checkpoint()

    def _committed(self, batch: list[Work]) -> None:
        """What was open is committed: others may rely on it."""
        self._dirty = not self._full
        for work in batch:
            if work.error is None:
                points.reach(f"after:{work.verb.__name__}")
        if self._full:
            self._synced()

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

    def _attempt(self, work: Work) -> bool:
        """Run one verb; False if it was refused."""
        work.error = None
        try:
            work.result = work.verb(self._tx, *work.args, **work.kwargs)
        except Exception as error:  # whatever it is, it belongs to whoever asked for this verb
            if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                raise
            work.error = _translated(error)
        return work.error is None

    def _attempt_each(self, batch: list[Work]) -> None:
        """Run the verbs of a group again from the start, each so that it can be undone alone."""
        self._connection.execute("rollback")
        self._connection.execute("begin immediate")
        for work in batch:
            self._connection.execute("savepoint verb")
            if not self._attempt(work):
                self._connection.execute("rollback to verb")
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
