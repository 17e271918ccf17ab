"""A ledger in one SQLite file: opened, locked, migrated, owned by one host from here to `close`."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from ...model.clock import Clock, Ids, SystemClock, iso
from ...model.errors import LedgerStopped
from .. import account, mark
from ..account import Head
from ..base import Behind, Reader, Row
from ..mark import Mark
from ..queries import reading
from .connection import Statements, Transaction, close_untouched, open_file, open_reader, unusable
from .lock import HostLock
from .migrate import migrate
from .writer import PendingWrite, Writer, taken_over

T = TypeVar("T")
P = ParamSpec("P")

#: How a file that is newer is brought back.
PUT_BACK = "Put the newer file back (with its -wal)"


class SqliteLedger:
    """The host's hold on one file."""

    sharing = None

    def __init__(
        self, path: str | Path, clock: Clock | None = None, *, vfs: str | None = None, accept_older: bool = False,
    ) -> None:
        in_memory = str(path) == ":memory:"
        self.path = Path(path) if in_memory else Path(path).resolve()  # a link is the same file
        self._clock = clock or SystemClock()
        self.ids = Ids(self._clock)
        self.accepted = False
        self.behind: Behind | None = None
        self._lock = None if in_memory else HostLock(self.path)
        try:
            if self._lock and vfs is None:
                self._take_file(self._lock, accept_older)
            self._connection = open_file(self.path, vfs=vfs)
            try:
                self._begin(accept_older)
                self._reader = self._connection if in_memory else open_reader(self.path, vfs=vfs)
            except BaseException:
                close_untouched(self._connection)
                raise
        except BaseException:
            if self._lock:
                self._lock.release()
            raise
        if self._lock:
            self._lock.watch()
        self.lock_fd = self._lock.fd if self._lock else None
        self._tx = Transaction(self._connection, self.ids, self.host, self.epoch)
        self._writer = Writer(self._connection, self._tx, self._clock, self.path, self._acknowledge)
        self.reads = Looks(self._reader, self._tx, self._writer)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """For as long as a run is under way: so many may join one commit."""
        self._writer.crew += 1
        try:
            yield
        finally:
            self._writer.crew -= 1

    def write(self, verb: Callable[..., T], *args: Any, barrier: bool = False, **kwargs: Any) -> Coroutine[Any, Any, T]:
        """Run `verb(tx, …)` in one transaction."""
        return self._writer.write(PendingWrite(verb, args, kwargs, barrier, time.monotonic()))

    async def barrier(self) -> None:
        """Wait until everything committed so far is on disk."""
        await self._writer.flush()
        if self._writer.stopped:
            raise self._writer.stopped

    async def look(self, question: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer to `question(read, …)`, at once: nothing is committed while it is asked."""
        return question(self.reads, *args, **kwargs)

    async def one(self, query: str, **params: object) -> Row | None:
        """The first row of one statement, if any."""
        return self.reads.one(query, **params)

    async def all(self, query: str, **params: object) -> list[Row]:
        """Every row of one statement."""
        return self.reads.all(query, **params)

    async def kept_bytes(self, workflow_id: str) -> int:
        """How much was kept for a workflow when this host last counted in it, or is now."""
        kept = self._tx.kept.get(workflow_id)
        if kept is None:
            row = self.reads.one("workflow_bytes", workflow_id=workflow_id)
            kept = row["event_bytes"] + row["run_bytes"] + row["input_bytes"] if row else 0
        return int(kept)

    def check(self) -> None:
        """Stop, and raise `LedgerStopped`, if the file at its path is no longer ours, or another host has opened it."""
        if self._writer.stopped is None:
            try:
                self._writer.stopped = self._lost()
            except apsw.Error as error:
                self._writer.stop(error)
        if self._writer.stopped:
            raise self._writer.stopped

    def _lost(self) -> LedgerStopped | None:
        why = self._lock.lost() if self._lock else None
        if why:
            return LedgerStopped(
                f"{why} The host has stopped: it writes nothing and sends nothing any more. Put the file back, or look "
                "at the outside systems for what was sent; then start again."
            )
        newest = self.reads.one("host_newest")
        if newest is None or newest["epoch"] != self.epoch:
            return taken_over(self.reads, self.path)
        return None

    def stopped(self) -> str | None:
        """Why nothing can be written any more, if so."""
        return self._writer.stopped.message if self._writer.stopped else None

    async def close(self, *, keep_lock: bool = False) -> None:
        """Finish and let go of the file; with `keep_lock`, nobody else may have it while this process lives."""
        with ExitStack() as stack:  # every step is tried, whatever the one before raised
            if self._lock and not keep_lock:
                stack.callback(self._lock.release)
            stack.callback(self._let_go)
            if self._reader is not self._connection:
                stack.callback(self._reader.close)
            stack.callback(self._writer.close)
            try:
                await self._writer.flush()
            except LedgerStopped:
                pass  # said already to whoever wanted to write

    def _let_go(self) -> None:
        """After a failed write the file and its log stay as they are: what reached the disk is for the next opening."""
        if self._writer.stopped:
            close_untouched(self._connection)
        else:
            self._connection.close()

    def _take_file(self, lock: HostLock, accept_older: bool) -> None:
        """Lock the ledger's own file. One that has vanished is refused before a new one is made in its place."""
        refused = mark.refusal(str(self.path), lock.left(), None, PUT_BACK) if not has_content(self.path) else None
        if refused and not accept_older:
            raise refused
        lock.take_file()

    def _begin(self, accept_older: bool) -> None:
        try:
            migrate(self._connection, self.path)
            statements, now = Statements(self._connection), self._clock.now_ms()
            if self._lock:
                begun = mark.begin(str(self.path), self._lock.left(), statements, PUT_BACK, now=now,
                                   accept_older=accept_older)
                self.accepted, self.behind = begun.accepted, begun.behind
            newest = statements.one("id_newest")
            if newest and newest["id"]:
                self.ids.go_on_from(newest["id"])
            self.host = self.ids.new("hst")
            row = statements.one("host_insert", id=self.host, machine=socket.gethostname(), pid=os.getpid(), now=now)
            self._since, reached = iso(now), statements.one("ledger_reached")
            assert row is not None
            assert reached is not None
            self.epoch, self._ledger = int(row["epoch"]), reached["ledger"]
            if not self.accepted:  # that a person accepted it is on record first: the commit of that writes the mark
                self._acknowledge(account.head(statements))
        except apsw.Error as error:
            raise unusable(error, self.path) from None

    def _acknowledge(self, head: Head) -> None:
        """What is synced now, up to this entry of the account, must still be there when the file is opened again."""
        if self._lock:
            at = iso(self._clock.now_ms())
            self._lock.tell(
                self._since, Mark(self._ledger, self.host, self.epoch, head.seq, head.chain.hex(), at))


class Looks(Statements):
    """Reads what is committed: on the writer's own connection while that is at rest, because its pages are warm."""

    def __init__(self, reader: apsw.Connection, tx: Transaction, writer: Writer) -> None:
        super().__init__(reader)
        self._tx, self._writer, self._looking, self._thread = tx, writer, reading(), threading.get_ident()

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        return self._tx.all(query, **params) if self._is_warm(query) else super().all(query, **params)

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row, as far as the caller reads."""
        return self._tx.iterate(query, **params) if self._is_warm(query) else super().iterate(query, **params)

    def _is_warm(self, query: str) -> bool:
        return query in self._looking and self._writer.at_rest and threading.get_ident() == self._thread


def has_content(path: Path) -> bool:
    """Whether there is a ledger's file at all."""
    try:
        return path.stat().st_size > 0
    except OSError as error:
        return not isinstance(error, FileNotFoundError)  # opening it says what is wrong
