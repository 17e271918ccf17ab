"""Where the ledger of an exploration is: states are loaded into its tables, and each step is taken back.

Both have the real tables, statements and triggers. Left out is what forbids to empty and fill tables, and the history
that they keep by themselves: states are not made by moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg

from keepai.ledger.postgres import place
from keepai.ledger.postgres.connection import PostgresTransaction, connect, pin_plans
from keepai.ledger.sqlite import writer
from keepai.ledger.sqlite.connection import Transaction, settle
from keepai.ledger.sqlite.migrate import migrate
from keepai.model.clock import Ids
from tests.ledger.stores import PostgresStore, columns

#: In the order in which they may be filled; the ones that only remember are not among them.
TABLES = (
    "host", "workflow", "script", "topic", "handler_state", "grant_rule", "run", "input", "event", "event_cause",
    "reservation", "mutation", "approval", "parked",
)
EMPTIED = ("action", "trace", "account_subject", "account", "parked", "approval", "mutation", "reservation",
           "event_cause", "event", "input", "run", "grant_rule", "handler_state", "topic", "script", "workflow", "host")
#: Which hosts live and which of them runs what, where a database says it.
_OF_HOSTS = ("heartbeat", "owner")
_LEFT_OUT = ("_stays", "_first", "_born", "_moved")


class Database(Protocol):
    """An empty ledger, which belongs to the exploration alone."""

    tx: Any
    connection: Any
    tables: Sequence[str]
    emptied: Sequence[str]

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Put rows into a table."""
        ...

    def loaded(self) -> None:
        """A whole state is there; what comes now is taken back."""
        ...

    def host_begins(self, workflow_id: str) -> None:
        """The transaction's host is the one that runs the workflow from now on; every other one is known to be dead."""
        ...

    def translated(self, error: Exception) -> BaseException:
        """What a verb is told if the database refuses a row."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Sqlite:
    tables, emptied = TABLES, EMPTIED

    def __init__(self, ids: Ids) -> None:
        self.connection = apsw.Connection(":memory:", statementcachesize=500)
        settle(self.connection)
        self.connection.execute("pragma foreign_keys = on")
        migrate(self.connection, Path(":memory:"))
        for (name,) in self.connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
            if name.endswith(_LEFT_OUT):
                self.connection.execute(f"drop trigger {name}")
        self.tx = Transaction(self.connection, ids, "", 0)
        self._inserts = {table: f"insert into {table} values ({_places(self.connection, table)})" for table in TABLES}

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(self._inserts[table], rows)

    def loaded(self) -> None:
        return None

    def host_begins(self, workflow_id: str) -> None:
        return None  # every host before the newest is dead

    def translated(self, error: Exception) -> BaseException:
        return writer._translated(error)

    def close(self) -> None:
        self.connection.close()


class Postgres:
    """One connection, which commits a state that was loaded and nothing else."""

    tables, emptied = (*TABLES, *_OF_HOSTS), (*reversed(_OF_HOSTS), *EMPTIED)

    def __init__(self, ids: Ids) -> None:
        self.store = PostgresStore()
        self.store.make()
        self._server = connect(self.store.url)
        pin_plans(self._server)
        self._server.execute("set idle_in_transaction_session_timeout = 0")
        self.tx = PostgresTransaction(self._server, ids, "", 0)
        self.connection = _Spelled(self._server)
        for name, table in self._server.execute(
            "select tgname::text, tgrelid::regclass::text from pg_trigger where not tgisinternal").fetchall():
            if name.endswith(_LEFT_OUT):
                self._server.execute(f"drop trigger {name} on {table}")
        self._inserts = {table: f"insert into {table} values ({_places(self.connection, table)})"
                         for table in self.tables}
        self._server.execute("begin")

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.connection.execute(self._inserts[table], row)

    def loaded(self) -> None:
        self._server.execute("commit; begin")  # or the rows of all states before would be looked through each time

    def host_begins(self, workflow_id: str) -> None:
        self._server.execute("delete from owner")
        self._server.execute("delete from heartbeat")
        self.tx.one("heartbeat_begin", epoch=self.tx.epoch, boot="", lock="", works=1, knows=1)
        if self.tx.one("workflow_by_id", workflow_id=workflow_id):
            self.tx.run("owner_take", workflow_id=workflow_id, epoch=self.tx.epoch)

    def translated(self, error: Exception) -> BaseException:
        return place._translated(error) if isinstance(error, psycopg.IntegrityError) else error

    def close(self) -> None:
        self._server.close()


def _places(connection: Any, table: str) -> str:
    return ",".join("?" * len(columns(connection, table)))


class _Spelled:
    """Statements with `?` where values go."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, text: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(text.replace("?", "%s"), values or None)


DATABASES: dict[str, type[Sqlite] | type[Postgres]] = {"sqlite": Sqlite, "postgres": Postgres}
