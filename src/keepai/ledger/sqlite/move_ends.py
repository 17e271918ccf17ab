"""A ledger's file as the source or the target of a move (ledger/moving.py)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import apsw

from ...model.errors import LedgerUnusable
from .. import mark
from ..base import Reader
from ..moving import TableShape, Values
from .backups import sync
from .connection import Statements, close_untouched, open_file, unusable
from .lock import HostLock
from .migrate import derive, drop_triggers, migrate
from .reader import SqliteReader
from .store import PUT_BACK, has_content


class _HeldFile:
    """A file whose lock this process has."""

    read: Reader
    _connection: apsw.Connection | None = None

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.name = str(self.path)
        self._lock = HostLock(self.path)

    def _open(self) -> None:
        self._connection = open_file(self.path)
        self.read = Statements(self._connection)

    @property
    def connection(self) -> apsw.Connection:
        assert self._connection is not None, "there is something at this place"
        return self._connection

    def shapes(self) -> Mapping[str, TableShape]:
        """Its tables."""
        return shapes(self.connection)

    def rows(self, table: str, shape: TableShape) -> Iterator[Values]:
        """Every row as it is kept, in the order of the key."""
        columns, key = ", ".join(shape.columns), ", ".join(shape.key)
        try:
            yield from self.connection.cursor().execute(f"select {columns} from {table} order by {key}")
        except apsw.Error as error:
            raise unusable(error, self.path) from None

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._lock.release()


def shapes(connection: apsw.Connection) -> dict[str, TableShape]:
    """The tables of a file."""
    names = [name for (name,) in connection.execute(
        "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'")]
    found = {}
    for name in names:
        columns = list(connection.execute(f"pragma table_info({name})"))
        key = sorted((place, column) for _, column, _, _, _, place in columns if place)
        found[name] = TableShape(tuple(column for _, column, *_ in columns), tuple(column for _, column in key))
    return found


class SqliteSource(_HeldFile):
    """The file that a ledger leaves."""

    def __init__(self, path: Path) -> None:
        SqliteReader(path).close()  # says what is wrong with it, before anything is made beside it
        super().__init__(path)
        try:
            self._lock.take_file()
            self._open()
            older = mark.refusal(self.name, self._lock.left(), self.read, PUT_BACK)
            if older is not None:
                raise older
        except BaseException:
            self.close()
            raise

    def close_calls(self, now: int) -> None:
        """Every host that ever had this file is dead, with its children: this process has the lock."""
        newest = self.read.one("host_newest")
        self.read.all("mutation_close_dead", epoch=newest["epoch"] + 1 if newest else 0, now=now)

    def depart(self, mover: str, to: str, now: int) -> None:
        """Commit that the ledger went: each commit of this connection is synced."""
        try:
            self.read.all("moved_insert", mover=mover, went=1, place=to, at=now)
        except apsw.Error as error:
            raise unusable(error, self.path) from None


class SqliteTarget(_HeldFile):
    """The file that it goes to. It is made under another name, and gets its own when it is whole and on disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._part = self.path.with_name(self.path.name + ".moving")
        try:
            if has_content(self.path):
                self._open()
        except BaseException:
            self.close()
            raise

    def holds(self) -> bool:
        """Whether a ledger is there."""
        return self._connection is not None

    def prepare(self, mover: str, source: str, now: int, read: Reader) -> None:
        """Begin a file beside its place. Nothing of it counts before `commit_copy`, so nothing is synced until then."""
        older = mark.refusal(self.name, self._lock.left(), read, PUT_BACK)
        if older is not None:
            raise LedgerUnusable(
                f"{self.path} was the place of a ledger before: {older.message} Or name another file for this one.")
        with self._told():
            if self._connection is not None:  # a copy that an earlier try left: no host has ever opened it
                close_untouched(self._connection)
                self._connection = None
            _remove(self._part)
            _remove(self.path)
            os.close(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            connection = self._connection = open_file(self._part)
            migrate(connection, self._part)
            connection.execute("pragma synchronous = off; pragma foreign_keys = off; begin")  # `check` looks at them
            drop_triggers(connection)  # they refuse a row that is not new
            Statements(connection).all("moved_insert", mover=mover, went=0, place=source, at=now)

    def load(self, table: str, shape: TableShape, rows: Iterable[Values]) -> None:
        """Put rows into a table."""
        places = ", ".join("?" * len(shape.columns))
        with self._told():
            self.connection.executemany(f"insert into {table} ({', '.join(shape.columns)}) values ({places})", rows)

    def commit_copy(self) -> None:
        """Give the file its name."""
        with self._told():
            self.connection.execute("commit")
            derive(self.connection)
            self.connection.close()  # brings the log into the file
            self._connection = None
            sync(self._part)
            self._part.replace(self.path)
            sync(self.path.parent)
            self._open()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the disk or SQLite raises, as a sentence."""
        try:
            yield
        except OSError as error:
            raise LedgerUnusable(f"{self.path} cannot be written: {error.strerror}. Nothing was moved.") from None
        except apsw.Error as error:
            raise unusable(error, self._part) from None

    def close(self) -> None:
        """Let go, and throw away what was begun."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        _remove(self._part)
        super().close()

    def arrive(self, mover: str) -> None:
        """Commit that this is the ledger."""
        try:
            self.read.all("moved_forget", mover=mover)
        except apsw.Error as error:
            raise unusable(error, self.path) from None


def _remove(path: Path) -> None:
    for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        each.unlink(missing_ok=True)
