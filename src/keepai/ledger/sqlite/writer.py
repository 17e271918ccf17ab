"""The one writer: runs verbs in transactions, alone or as a group, and knows which commits are on disk.

No commit waits for the disk by itself. A barrier's caller goes on when the write-ahead log was synced after its commit;
any other commit becomes durable with the next barrier, at most a second later. When a single run is under way its verbs
are committed, and synced, at once. When several are, they share transactions: barriers wait until a quarter of the runs
under way has joined, or for half a millisecond per such run, the others until an eighth has, or for a millisecond.
Barriers are then synced together by another thread, while the loop goes on and may commit the next group.

After a failed write, commit or sync nothing is written any more: what reached the disk is unknown until
the file is opened again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from ...model import crash_points
from ...model.clock import Clock
from ...model.errors import Conflict, LedgerStopped
from ...model.states import IllegalMove
from .. import account
from ..account import Head
from ..base import Reader
from .connection import Transaction, unusable
from .write_ahead_log import Log

_FLUSH_S = 1.0
#: A group is complete with one of so many runs under way, or after so many seconds: barriers per run under way.
_BARRIERS, _BARRIERS_S = 4, 0.0005
_PLAIN, _PLAIN_S = 8, 0.001


@dataclass(eq=False)
class PendingWrite:
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
        self, connection: apsw.Connection, tx: Transaction, clock: Clock, path: Path, synced: Callable[[Head], None],
    ) -> None:
        self.crew = 0
        self.log_pages_max = 8000  # of the write-ahead log, before it is brought into the file
        self.stopped: LedgerStopped | None = None
        self._connection, self._tx, self._clock, self._path, self._synced = connection, tx, clock, path, synced
        self._queue: list[PendingWrite] = []
        self._due: list[PendingWrite] = []  # barriers that are committed, and wait for the next sync
        self._group: list[PendingWrite] = []  # those that wait for the one under way
        self._apart: Future[object] | None = None  # what another thread does: sync the log, or bring it into the file
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._closing = self._bringing = False
        self._head = account.head(tx)  # of the account, as it is committed
        self._commits = self._on_disk = 0  # made, and of these known to be on disk
        self._syncing = (0, self._head)  # the commits that the last sync is about, and the account's newest entry then
        self._flush: asyncio.TimerHandle | None = None
        self._log_pages = 0
        self._log = Log(connection)
        connection.set_wal_hook(self._count_pages)
        connection.execute("pragma synchronous = normal")  # the log is synced here, not inside a commit

    def stop(self, error: apsw.Error | LedgerStopped) -> None:
        """Write nothing any more; the first reason is the one that counts."""
        if self.stopped is None:
            reason = error if isinstance(error, LedgerStopped) else LedgerStopped(
                f"{unusable(error, self._path).message} Until then nothing starts and nothing is sent.")
            self.stopped = reason

    @property
    def at_rest(self) -> bool:
        """Whether the connection shows what is committed, and nobody else uses it."""
        return not self._bringing and not self._connection.in_transaction

    async def write(self, work: PendingWrite) -> Any:
        """Commit one verb and give its result."""
        if self._alone():
            self._commit([work])
            if work.barrier and work.error is None:
                self._sync_now(work)
            if self._log_is_long():
                self._guarded([], lambda _: self._bring_in())
        else:
            work.future = asyncio.get_running_loop().create_future()
            self._queue.append(work)
            self._plan(0.0)
            await work.future
        if self._dirty and self._flush is None and not self.stopped:
            self._flush = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_now)
        if work.error is not None:
            raise work.error
        return work.result

    async def flush(self) -> None:
        """Wait until everything committed so far is on disk."""
        if self._dirty and not self.stopped:
            await self.write(PendingWrite(nothing, (), {}, barrier=True, asked=time.monotonic()))

    def close(self) -> None:
        """Everything asked for before is done."""
        self._closing = True
        for timer in (self._flush, self._timer):
            if timer:
                timer.cancel()
        if self._apart is not None:
            self._done_apart(self._apart)
        batch, self._queue = self._queue, []
        self._commit_group(batch)
        self._due, due = [], self._due
        for work in due:
            self._sync_now(work)
        _deliver(due)
        if self._thread:
            self._thread.shutdown()

    # -- who commits, and when ---------------------------------------------------------------------

    def _alone(self) -> bool:
        return self.crew <= 1 and not self._queue and self._apart is None

    @property
    def _dirty(self) -> bool:
        return self._commits > self._on_disk

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
        if self._bringing or self._closing:
            return  # the queue is looked at again when that has ended
        batch, wait = self._take()
        self._commit_group(batch)
        self._go_on_apart()
        if self._queue and not self._bringing:
            self._plan(wait)

    def _commit_group(self, batch: list[PendingWrite]) -> None:
        """Commit a group. Whoever asked for no barrier is told; the others when the log is synced."""
        if not batch:
            return
        self._commit(batch)
        self._due += [work for work in batch if work.barrier and work.error is None]
        _deliver([work for work in batch if not work.barrier or work.error is not None])

    def _take(self) -> tuple[list[PendingWrite], float]:
        """The next group: everybody, if enough barriers are there, or else the others, if they are enough; and how long
        those left may wait."""
        barriers = [work for work in self._queue if work.barrier]
        plain = [work for work in self._queue if not work.barrier]
        wait = self._wait_for(barriers, _BARRIERS, self.crew * _BARRIERS_S)
        if barriers and wait <= 0:
            batch, self._queue = self._queue, []
            return batch, 0.0
        sooner = self._wait_for(plain, _PLAIN, _PLAIN_S)
        if plain and sooner > 0:
            return [], min(wait, sooner)
        self._queue = barriers
        return plain, wait

    def _wait_for(self, works: list[PendingWrite], part: int, longest: float) -> float:
        """How long these may wait for others: until there is one for so many runs under way, or as long as that."""
        if not works:
            return math.inf
        return 0.0 if len(works) * part >= self.crew else works[0].asked + longest - time.monotonic()

    # -- the disk ----------------------------------------------------------------------------------

    def _sync_now(self, work: PendingWrite) -> None:
        """Wait for the disk here."""
        def sync(batch: list[PendingWrite]) -> None:
            if self._dirty:
                self._syncing = self._commits, self._head
                self._log.sync()
            self._durable(batch)
        self._guarded([work], sync)

    def _go_on_apart(self) -> None:
        """Have another thread do what is due: bring a long log into the file, or sync it.

        In this order: those who wait for a sync must not put off the other for ever."""
        if self._apart is not None or self._closing:
            return
        if self._log_is_long():
            self._bringing = True
            self._do_apart(self._bring_in)
        elif self._due:
            self._group, self._due, self._syncing = self._due, [], (self._commits, self._head)
            self._do_apart(self._log.sync)

    def _do_apart(self, act: Callable[[], object]) -> None:
        """It waits for the disk and for nothing else: whatever of Python ran there would take the interpreter from the
        loop, several times in a row."""
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="keep-writer")
        loop = asyncio.get_running_loop()
        self._apart = self._thread.submit(act)
        self._apart.add_done_callback(lambda done: loop.call_soon_threadsafe(self._done_apart, done))

    def _done_apart(self, done: Future[object]) -> None:
        """The disk has answered: whoever waited for it is told, and the next in line has its turn."""
        if done is not self._apart:
            return  # `close` was quicker
        brought, self._bringing, self._apart = self._bringing, False, None
        group, self._group = self._group, []
        def end(batch: list[PendingWrite]) -> None:
            done.result()
            if not brought:
                self._durable(batch)
        self._guarded(group, end)
        if self.stopped:  # what was committed since is as doubtful
            group, self._due = group + self._due, []
            for work in group:
                work.error = self.stopped
        _deliver(group)
        self._go_on_apart()
        if self._queue and not self._closing and not self._bringing:
            self._plan(0.0)

    def _durable(self, batch: list[PendingWrite]) -> None:
        """What was committed before the last sync began is on disk: others may rely on it."""
        commits, head = self._syncing
        if self._on_disk < commits:
            self._on_disk = commits
            self._synced(head)
        _reach("after", batch)

    # -- committing --------------------------------------------------------------------------------

    def _commit(self, batch: list[PendingWrite]) -> None:
        """Run a group in one transaction; one verb's refusal undoes that verb alone."""
        self._guarded(batch, self._transact)

    def _guarded(self, batch: list[PendingWrite], act: Callable[[list[PendingWrite]], None]) -> None:
        """Do a part of a commit; what goes wrong is told to the group. What SQLite cannot do ends all writing."""
        if self.stopped:
            for work in batch:
                work.error = self.stopped
            return
        try:
            act(batch)
        except (apsw.Error, LedgerStopped) as error:
            self.stop(error)
            _roll_back(self._connection)
            for work in batch:
                work.error = self.stopped
        except BaseException as error:
            _roll_back(self._connection)
            if not batch or batch[0].future is None:
                raise
            for work in batch:  # whoever waits for them must not wait for ever
                work.error = error

    def _transact(self, batch: list[PendingWrite]) -> None:
        """Run the verbs and commit what they did."""
        self._begin()
        self._tx.now, before = self._clock.now_ms(), self._connection.total_changes()
        if not all(map(self._attempt, batch)) and len(batch) > 1:
            self._attempt_each(batch)  # hardly ever is one refused: only then is there a mark between them
        done = [w for w in batch if w.error is None]
        if not done:
            self._connection.execute("rollback")
            return
        head = account.append(self._tx, self._tx.draft, self._head)
        _reach("before", done)
        self._connection.execute("commit")
        self._head = head
        self._commits += self._connection.total_changes() > before
        _reach("after", [work for work in done if not work.barrier])

    def _begin(self) -> None:
        """Begin a transaction, unless another host has opened the file or anybody has written to it since our last."""
        self._connection.execute("begin immediate")
        [(epoch, last, chain)] = self._tx.values("account_head")
        if epoch != self._tx.epoch:
            raise taken_over(self._tx, self._path)
        if (last or 0, chain or b"") != (self._head.seq, self._head.chain):
            raise LedgerStopped(
                f"Something else has written to the account of {self._path}: it ends with entry {last or 0:,}, and "
                f"this host left it at {self._head.seq:,}. {_UNTIL_CHECKED}"
            )
        self._tx.draft.moves.clear()
        self._tx.entry = self._head.seq + 1

    def _count_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _log_is_long(self) -> bool:
        return self._log_pages >= self.log_pages_max and not self.stopped

    def _bring_in(self) -> None:
        """Bring a long log into the file. SQLite would do it by itself, and keep to itself that it failed."""
        self._log_pages = 0  # also if a reader is in the way: then it is tried after as many pages again
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return

    def _attempt(self, work: PendingWrite) -> bool:
        """Run one verb; False if it was refused."""
        work.error = None
        try:
            work.result = work.verb(self._tx, *work.args, **work.kwargs)
        except Exception as error:  # whatever it is, it belongs to whoever asked for this verb
            if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                raise
            work.error = _translated(error)
        return work.error is None

    def _attempt_each(self, batch: list[PendingWrite]) -> None:
        """Run the verbs of a group again from the start, each so that it can be undone alone."""
        self._connection.execute("rollback")
        self._begin()
        for work in batch:
            self._connection.execute("savepoint verb")
            told = len(self._tx.draft.moves)
            if not self._attempt(work):
                self._connection.execute("rollback to verb")
                del self._tx.draft.moves[told:]
            self._connection.execute("release verb")

    def _flush_now(self) -> None:
        self._flush = None
        if self._dirty and not self.stopped and not self._closing:
            task = asyncio.get_running_loop().create_task(self.flush())
            task.add_done_callback(lambda t: t.cancelled() or t.exception())


_UNTIL_CHECKED = "It has stopped, and sends nothing any more. `keep db check` says whether the ledger is whole."


def taken_over(read: Reader, path: Path) -> LedgerStopped:
    """Another host has opened the file."""
    other = read.one("host_newest")
    assert other is not None
    return LedgerStopped(
        f"Another host ({other['id']}, process {other['pid']} on {other['machine']}) has opened {path} while this one "
        f"worked with it: somebody removed its lock. {_UNTIL_CHECKED} Let only one host run."
    )


def _reach(side: str, batch: list[PendingWrite]) -> None:
    if crash_points.heard():
        for work in batch:
            crash_points.reach(f"{side}:{work.verb.__name__}")


def _deliver(batch: list[PendingWrite]) -> None:
    for work in batch:
        assert work.future is not None
        if not work.future.done():
            work.future.set_result(None)


def nothing(_tx: Transaction) -> None:
    """A verb for who only waits for the disk."""


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
