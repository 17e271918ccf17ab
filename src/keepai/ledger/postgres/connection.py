"""Connections to a ledger in PostgreSQL: what must be true of the server, and running statements on it."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.types.numeric import Int8Dumper

from ...model.clock import Ids
from ...model.codec import sound
from ...model.errors import LedgerUnusable
from ...model.ledger_address import mistake
from ...model.ledger_address import shown as shown
from ..base import Row
from ..transaction import SharedTransaction
from .tables import Connection, settle
from .typed_statements import numbered, of_many
from .wire import ServerReply, Wire

OLDEST = 15

_FEW = 3  # rows
_FETCHED_MAX = 100  # rows that a cursor of the server is asked for at once

#: A connection that nobody answers is given up, and so is a transaction of a host that stands still: it would keep
#: every other host from the ledger. How long a commit takes is not limited.
_OPTIONS = {
    "connect_timeout": 10, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3,
    "tcp_user_timeout": 15_000, "application_name": "keep",
}
_IDLE_IN_TRANSACTION = "10s"
_IDLE = psycopg.pq.TransactionStatus.IDLE


def connect(url: str) -> Connection:
    """A connection to a server that keeps what it has acknowledged; otherwise `LedgerUnusable`."""
    wrong = mistake(url)
    if wrong:
        raise LedgerUnusable(wrong)  # PostgreSQL would say what it took for the port, which may be a password
    try:
        connection: Connection = psycopg.connect(url, autocommit=True, **_OPTIONS)  # type: ignore[arg-type]
    except psycopg.Error as error:
        raise unusable(error, url) from None
    try:
        connection.prepare_threshold = None  # after a rollback psycopg forgets what is prepared, for others too
        for name in ("bool", "numeric"):
            connection.adapters.register_loader(name, _Whole)
        connection.adapters.register_dumper(int, Int8Dumper)  # by size, each statement would be prepared several times
        connection.adapters.register_dumper(bool, _Truth)
        settle(connection)
        connection.execute(f"set idle_in_transaction_session_timeout = '{_IDLE_IN_TRANSACTION}'")
        _check(connection, url)
    except psycopg.Error as error:
        connection.close()
        raise unusable(error, url) from None
    except LedgerUnusable:
        connection.close()
        raise
    return connection


def pin_plans(connection: Connection) -> None:
    """Have every statement planned once, to go by its indexes. What a host asks all the time is written for them; with
    the statistics of an empty table the server would read it whole, long after it is full."""
    connection.execute("set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_hashjoin = off; "
                       "set enable_mergejoin = off")


class _Whole(Loader):
    """Truth values and sums as the whole numbers that SQLite gives."""

    def load(self, data: Buffer) -> int:
        text = bytes(data)
        return int(text == b"t") if text in (b"t", b"f") else int(text)


class _Truth(Dumper):
    """Truth values as the whole numbers that SQLite keeps."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


def _check(connection: Connection, url: str) -> None:
    row = connection.execute(
        "select current_setting('server_version_num')::int / 10000, pg_is_in_recovery(), "
        "current_setting('transaction_read_only'), current_setting('fsync'), current_setting('full_page_writes'), "
        "current_setting('synchronous_commit'), current_setting('server_encoding')"
    ).fetchone()
    assert row is not None
    version, standby, read_only, fsync, full_page_writes, synchronous_commit, encoding = row
    wrong = (
        f"it is PostgreSQL {version}, and Keep needs {OLDEST} or newer" if version < OLDEST else
        "it is a standby, which cannot be written to. Name the primary" if standby else
        "it is read-only (default_transaction_read_only)" if read_only == "on" else
        "fsync is off: what it has acknowledged may be lost" if fsync == "off" else
        "full_page_writes is off: a crash may damage it" if full_page_writes == "off" else
        f"synchronous_commit is {synchronous_commit}: what it has acknowledged may be lost. Set it to on"
        if synchronous_commit not in ("on", "remote_apply") else
        f"its encoding is {encoding}. Make a database with encoding UTF8" if encoding != "UTF8" else None
    )
    if wrong:
        raise LedgerUnusable(f"{shown(url)} cannot hold a ledger: {wrong}.")


def unusable(error: psycopg.Error, url: str) -> LedgerUnusable:
    """An error of PostgreSQL as a sentence that says what to do."""
    said = " ".join(str(error).split()).removeprefix("connection failed: ").rstrip(".?!") or type(error).__name__
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return LedgerUnusable(f"{shown(url)} is locked by another host or program for more than 10 s. Try again.")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return LedgerUnusable(
            f"{shown(url)} does not let this user in ({said}). Keep makes a schema `keep` of its own, and must own it.")
    if "password" in said and isinstance(error, psycopg.OperationalError):
        return LedgerUnusable(
            f"{shown(url)} does not let this user in: {said}. PostgreSQL looks for the password in PGPASSWORD and in "
            "~/.pgpass, of the user who runs this.")
    return LedgerUnusable(f"The ledger {shown(url)} failed: {said}. Look at the server, then start again.")


class PostgresStatements:
    """Runs named statements on one connection and gives rows as mappings."""

    def __init__(self, connection: Connection, wire: Wire | None = None) -> None:
        self.connection = connection
        self.wire = wire or Wire(connection)
        self._texts = numbered()
        self._iterated = itertools.count()
        self._moment_begins = False  # with what is read next

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row. No text that is kept has the character 0, so whoever looks for one that has finds nothing."""
        try:
            reply = self._ask(query, params)
        except psycopg.DataError:  # before anything was sent
            without = {name: sound(value) if isinstance(value, str) else value for name, value in params.items()}
            if without == params:
                raise
            reply = self._ask(query, without)
        return reply.rows()

    def one(self, query: str, **params: object) -> Row | None:
        """The first row, if any; statements that write are run to their end."""
        rows = self.all(query, **params)
        return rows[0] if rows else None

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row, as far as the caller reads; closing it ends the statement.

        So many rows as the server would give at once anyway are asked for without a cursor of the server, which takes
        four statements."""
        limit = params.get("limit")
        if isinstance(limit, int) and limit <= _FETCHED_MAX:
            yield from self.all(query, **params)
            return
        text, picked = self._texts[query]
        name = f"iterated_{next(self._iterated)}"
        with self.moment():
            self._begin_block()
            self.wire.give_once(f"declare {name} no scroll cursor for {text}", picked(params))
            rows: Sequence[Row] = (None,) * _FETCHED_MAX  # type: ignore[assignment]
            while len(rows) == _FETCHED_MAX:
                reply = self.wire.give_once(f"fetch {_FETCHED_MAX} from {name}")
                self._hear()
                rows = reply.rows()
                try:
                    yield from rows
                except GeneratorExit:
                    break
            self.wire.tell(f"close {name}".encode())

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Everything that is read inside is of one moment: that in which the first of it is read."""
        if self._moment_begins or self.connection.pgconn.transaction_status != _IDLE:
            yield  # of the moment, or the transaction, that is under way
            return
        self._moment_begins = True
        try:
            yield
        finally:
            self._moment_begins = False
            if not self.connection.closed and self.connection.pgconn.transaction_status != _IDLE:
                self.wire.tell(b"commit")
                self.wire.hear()

    def _begin_moment(self) -> None:
        """Many a question reads nothing; then the server is not asked to begin and end anything."""
        if self._moment_begins:
            self._moment_begins = False
            self.wire.tell(b"begin isolation level repeatable read read only")

    def _begin_block(self) -> None:
        """A cursor of the server needs a transaction that was begun."""
        self._begin_moment()

    def _give(self, query: str, params: Mapping[str, object]) -> ServerReply:
        """Have a statement done with the next that is asked."""
        self._begin_moment()
        text, picked = self._texts[query]
        return self.wire.give(query, text, picked(params))

    def _ask(self, query: str, params: Mapping[str, object]) -> ServerReply:
        """Have a statement done now."""
        reply = self._give(query, params)
        self._hear()
        return reply

    def _hear(self) -> None:
        """Wait for the answers to all that was given."""
        self.wire.hear()


class PostgresTransaction(PostgresStatements, SharedTransaction):
    """What a verb sees: statements, the moment, and who is writing."""

    def __init__(
        self, connection: Connection, ids: Ids, host: str, epoch: int, wire: Wire | None = None,
    ) -> None:
        PostgresStatements.__init__(self, connection, wire)
        SharedTransaction.__init__(self, ids, host, epoch)

    @property
    def entry(self) -> int:
        """The number of the account's entry that will tell of this transaction."""
        return int(self.row("account_next", "a number is always there")["seq"])

    def run(self, query: str, **params: object) -> None:
        """Execute a change."""
        self._ask(query, params)

    def hits(self, query: str, **params: object) -> int:
        """Execute a change, and say how many rows it hit."""
        return self._ask(query, params).hits

    def many(self, query: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a change once for each of these, in one statement if they are many."""
        self._give_many(query, rows)
        self._hear()

    def _give_many(self, query: str, rows: Sequence[Mapping[str, object]]) -> None:
        if len(rows) <= _FEW:  # lists cost both sides more than a few statements
            for row in rows:
                self._give(query, row)
        else:
            text, picked = of_many(query)
            columns = [list(column) for column in zip(*[picked(row) for row in rows], strict=True)]
            self.wire.give(f"{query} of many", text, columns)

    def values(self, query: str, **params: object) -> list[tuple[Any, ...]]:
        """Every row, as its columns in order and as they are kept: without ids."""
        return self._ask(query, params).values
