"""A ledger in PostgreSQL as the source or the target of a move (ledger/moving.py), or of a copy.

Each end of a move has one connection and one transaction, in which it has every table of Keep locked: others may read
them, and nobody else writes. What the transaction did is there when it commits, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import psycopg

from ...model.errors import LedgerUnusable
from ..base import Reader
from ..moving import TableShape, Values
from .connection import PostgresStatements, connect, shown, unusable
from .lease import refuse_if_in_use
from .mark_file import MarkFile
from .reader import PostgresReader
from .tables import SCHEMA, migrate, number

#: Deliveries are carried one by one, on a connection of their own.
DELIVERIES = ("inbox", "delivery")

_FETCHED_ROWS = 100  # at once: one row may have megabytes


class _HeldDatabase:
    """A database in which this process has every table of Keep locked."""

    read: Reader

    def __init__(self, url: str) -> None:
        self._url, self.name = url, shown(url)
        self._connection = connect(url)
        self._connection.execute("set idle_in_transaction_session_timeout = 0")  # the other end may take long
        self.read = PostgresStatements(self._connection)

    def _hold(self, but: Collection[str] = ()) -> None:
        """Begin a transaction that sees one moment, from which on nobody else writes, but into these tables."""
        names = ", ".join(name for name in self._tables() if name not in but)
        self._connection.execute("begin isolation level repeatable read read write")
        self._connection.execute(f"lock table {names} in exclusive mode")  # the moment is that of what comes next

    def _tables(self) -> list[str]:
        return [name for (name,) in self._connection.execute(
            "select tablename::text from pg_tables where schemaname = %s order by 1", [SCHEMA]).fetchall()]

    def shapes(self) -> Mapping[str, TableShape]:
        """Its tables."""
        with self._told():
            return {table: TableShape(self._columns(table), self._key(table)) for table in self._tables()}

    def _columns(self, table: str) -> tuple[str, ...]:
        found = self._connection.execute(
            "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped "
            "order by attnum", [f"{SCHEMA}.{table}"])
        return tuple(name for (name,) in found.fetchall())

    def _key(self, table: str) -> tuple[str, ...]:
        found = self._connection.execute(
            "select a.attname::text from pg_index i cross join unnest(i.indkey) with ordinality k (attnum, place) "
            "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum "
            "where i.indrelid = %s::regclass and i.indisprimary order by k.place", [f"{SCHEMA}.{table}"])
        return tuple(name for (name,) in found.fetchall())

    def rows(self, table: str, shape: TableShape) -> Iterator[Values]:
        """Every row as it is kept, in the order of the key."""
        columns, key = ", ".join(shape.columns), ", ".join(shape.key)
        with self._told(), psycopg.ServerCursor(self._connection, f"moved_{table}") as cursor:
            cursor.itersize = _FETCHED_ROWS
            yield from cursor.execute(f"select {columns} from {table} order by {key}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What PostgreSQL raises, as a sentence."""
        try:
            yield
        except psycopg.Error as error:
            raise unusable(error, self._url) from None

    def close(self) -> None:
        """Let go; what was not committed is not there."""
        self._connection.close()


class PostgresMoment(_HeldDatabase):
    """The database of a ledger that is copied as it is at one moment, while hosts go on."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        with self._told():
            self._connection.execute("begin isolation level repeatable read read only")

    def holds(self) -> bool:
        """Whether a ledger is there."""
        with self._told():
            if number(self._connection) is None:
                return False
        PostgresReader(self._url).close()  # says what is wrong with it
        return True


class PostgresSource(_HeldDatabase):
    """The database that a ledger leaves."""

    def __init__(self, url: str) -> None:
        PostgresReader(url).close()  # says what is wrong with it
        super().__init__(url)
        try:
            with self._told():
                self._hold()
                refuse_if_in_use(self.read, self.name)
                MarkFile(url).check(self.read)
        except BaseException:
            self.close()
            raise

    def close_calls(self, now: int) -> None:
        """Refuse a ledger of which a call may still be on its way: at the other place it would count as ended."""
        with self._told():
            unclosed = self.read.one("mutation_unclosed", epoch=(1 << 63) - 1)
        if unclosed is not None:
            raise LedgerUnusable(
                f"A call on record in {self.name} ({unclosed['id']}) may still be on its way, and its host is not "
                "known to be dead. Nothing was moved. Start a host there once more and let it find out what became of "
                "the call (`keep todo` asks you if it cannot). Then end it and type this again."
            )

    def depart(self, mover: str, to: str, now: int) -> None:
        """Commit that the ledger went, in the transaction that has kept everybody else from it."""
        with self._told():
            self.read.all("moved_insert", mover=mover, went=1, place=to, at=now)
            self._connection.execute("commit")


class PostgresTarget(_HeldDatabase):
    """The database that it goes to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        try:
            with self._told():
                if number(self._connection) is not None:
                    PostgresReader(url).close()  # says what is wrong with it
                    self._hold()
        except BaseException:
            self.close()
            raise

    def holds(self) -> bool:
        """Whether a ledger is there. Tables that nobody has ever used are none."""
        with self._told():
            return number(self._connection) is not None and (
                self.read.one("moved_mark") is not None or self.read.one("host_newest") is not None)

    def prepare(self, mover: str, source: str, now: int, read: Reader) -> None:
        """Begin a transaction with an empty ledger; a copy that an earlier try left was never opened by a host."""
        older = MarkFile(self._url).refusal(read)
        if older is not None:
            raise LedgerUnusable(
                f"{self.name} was the place of a ledger before: {older.message} Or name another database for this one.")
        with self._told():
            self._connection.execute("rollback")
            self._connection.execute("begin isolation level read committed read write")
            migrate(self._connection, self.name)
            self._connection.execute(f"lock table {', '.join(self._tables())} in exclusive mode")
            if self.read.one("moved_mark") is None and self.read.one("host_newest") is not None:
                raise LedgerUnusable(f"A host has just made a ledger at {self.name}. Nothing was moved.")
            moved = [table for table in self._tables() if table != "ledger"]
            self._connection.execute(f"truncate {', '.join(moved)}")
            for table in moved:  # the triggers refuse a row that is not new
                self._connection.execute(f"alter table {table} disable trigger user")
            self._references = self._without_references()
            self.read.all("moved_insert", mover=mover, went=0, place=source, at=now)

    def _without_references(self) -> list[tuple[str, str, str]]:
        """Take off what would look at each row by itself; `commit_copy` puts it back, which looks at all of them."""
        found = self._connection.execute(
            "select conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) from pg_constraint "
            "where contype = 'f' and connamespace = %s::regnamespace", [SCHEMA]).fetchall()
        for table, name, _ in found:
            self._connection.execute(f"alter table {table} drop constraint {name}")
        return found

    def load(self, table: str, shape: TableShape, rows: Iterable[Values]) -> None:
        """Put rows into a table."""
        with self._told(), self._connection.cursor() as cursor:
            try:
                with cursor.copy(f"copy {table} ({', '.join(shape.columns)}) from stdin") as copy:
                    for row in rows:
                        copy.write_row(row)
            except psycopg.DataError as error:
                raise LedgerUnusable(
                    f"PostgreSQL cannot keep a row of the table {table}: {' '.join(str(error).split())}. Nothing was "
                    "moved.") from None

    def commit_copy(self) -> None:
        """Put back what guards the tables, and commit; then keep everybody else from writing again."""
        with self._told():
            for table, name, text in self._references:
                self._connection.execute(f"alter table {table} add constraint {name} {text}")
            for table in self._tables():
                self._connection.execute(f"alter table {table} enable trigger user")
            self._set_counters()
            mark = self.read.one("moved_mark")
            self._connection.execute("commit")
            self._hold(but=DELIVERIES)
            if self.read.one("moved_mark") != mark:
                raise LedgerUnusable(f"Somebody else has used the copy in {self.name}. Nothing was moved.")

    def _set_counters(self) -> None:
        """Numbers that the database counts go on from the highest that was moved."""
        counted = self._connection.execute(
            "select c.relname::text, a.attname::text from pg_attribute a join pg_class c on c.oid = a.attrelid "
            "where c.relnamespace = %s::regnamespace and a.attidentity <> ''", [SCHEMA]).fetchall()
        for table, column in counted:
            self._connection.execute(
                f"select setval(pg_get_serial_sequence('{SCHEMA}.{table}', '{column}'), "
                f"coalesce(max({column}), 1), max({column}) is not null) from {table}")

    def arrive(self, mover: str) -> None:
        """Commit that this is the ledger."""
        with self._told():
            self.read.all("moved_forget", mover=mover)
            self._connection.execute("commit")
