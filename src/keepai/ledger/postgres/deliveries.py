"""What others sent to one connector of the type webhook.inbox, in the ledger's database, where every host finds it.

The contract is that of connectors/webhook/base.py. Whoever adds a delivery has the lock of its inbox until the commit,
so numbers become visible in their order, and the commit of one that is there already waits for what was committed
before. An addition that was cut off is made once more on a new connection: one that had arrived is then known.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import psycopg

from ...model.clock import Clock
from ...model.errors import LedgerUnusable
from .. import moving
from .connection import PostgresStatements, connect, shown, unusable

T = TypeVar("T")

_WIDTH = 15  # digits of a cursor, so that cursors sort as numbers do
_NUMBER_MAX = (1 << 63) - 1


class PostgresDeliveries:
    """The deliveries of one connector. It connects when it is first used, and again when a connection was lost."""

    def __init__(self, url: str, inbox: str, most: int, clock: Clock) -> None:
        self._url, self._inbox, self._most, self._clock = url, inbox, most, clock
        self._connected: PostgresStatements | None = None
        self._turn = threading.Lock()
        self._warned: list[str] = []  # by the server, of the commit that is under way

    def check(self) -> None:
        """Raise `LedgerUnusable` if the database does not answer."""
        self.after("", 1)

    def add(self, id: str, delivery: Mapping[str, Any]) -> Literal["new", "known", "full"]:
        """Keep a delivery. When it returns, the delivery is on the disk of the server."""
        def added(statements: PostgresStatements) -> Literal["new", "known", "full"]:
            self._warned.clear()
            with statements.connection.transaction():
                found = self._added(statements, _digest(id), delivery)
            if any("synchronous replication" in each for each in self._warned):
                raise LedgerUnusable(f"{shown(self._url)} did not wait for its standby, so a delivery may be lost.")
            return found

        return self._tried(added)

    def _added(
        self, statements: PostgresStatements, digest: str, delivery: Mapping[str, Any],
    ) -> Literal["new", "known", "full"]:
        refused = moving.refusal(shown(self._url), statements.one("moved_mark"))
        if refused is not None:
            raise refused
        taken = statements.one("inbox_take", name=self._inbox, now=self._clock.now_ms())
        if statements.one("delivery_known", inbox=self._inbox, digest=digest):
            return "known"
        held = statements.one("delivery_count", inbox=self._inbox, limit=self._most)
        assert taken is not None
        assert held is not None
        if held["number"] >= self._most:
            return "full"
        self._insert(statements, taken["last"], digest, delivery)
        return "new"

    def put(self, cursor: str, delivery: Mapping[str, Any]) -> None:
        """Keep a delivery of another place under the cursor that it had there; further ones get higher numbers."""
        def copied(statements: PostgresStatements) -> None:
            with statements.connection.transaction():
                statements.one("inbox_take", name=self._inbox, now=int(cursor))
                self._insert(statements, int(cursor), _digest(delivery["id"]), delivery)

        self._tried(copied)

    def _insert(
        self, statements: PostgresStatements, number: int, digest: str, delivery: Mapping[str, Any],
    ) -> None:
        content = json.dumps({**delivery, "cursor": f"{number:0{_WIDTH}d}"}, ensure_ascii=False)
        statements.all("delivery_insert", inbox=self._inbox, number=number, digest=digest, content=content)

    def after(self, cursor: str, most: int) -> tuple[list[str], bool]:
        """The cursors of the deliveries after a cursor, oldest first, and whether more follow."""
        number = min(int(cursor or 0), _NUMBER_MAX)
        rows = self._tried(lambda statements: statements.all(
            "delivery_after", inbox=self._inbox, number=number, limit=most + 1))
        return [f"{row['number']:0{_WIDTH}d}" for row in rows[:most]], len(rows) > most

    def newest(self, most: int) -> list[str]:
        """The cursors of the newest deliveries, oldest first."""
        rows = self._tried(lambda statements: statements.all("delivery_newest", inbox=self._inbox, limit=most))
        return [f"{row['number']:0{_WIDTH}d}" for row in reversed(rows)]

    def cursor_of(self, id: str) -> str | None:
        """The cursor of the delivery with an id, if there is one."""
        row = self._tried(lambda statements: statements.one(
            "delivery_known", inbox=self._inbox, digest=_digest(id)))
        return f"{row['number']:0{_WIDTH}d}" if row else None

    def one(self, cursor: str) -> Mapping[str, Any] | None:
        """One delivery, or None if it is gone; ValueError if it is damaged."""
        if not (cursor.isascii() and cursor.isdecimal()) or int(cursor) > _NUMBER_MAX:
            return None
        row = self._tried(lambda statements: statements.one("delivery_one", inbox=self._inbox, number=int(cursor)))
        delivery: Mapping[str, Any] | None = json.loads(row["content"]) if row else None
        return delivery

    def _tried(self, asked: Callable[[PostgresStatements], T]) -> T:
        """Ask; if the connection is lost meanwhile, once more on a new one."""
        with self._turn:
            try:
                return asked(self._statements())
            except psycopg.Error:
                self._let_go()
            try:
                return asked(self._statements())
            except psycopg.Error as error:
                self._let_go()
                raise unusable(error, self._url) from None

    def _statements(self) -> PostgresStatements:
        if self._connected is None:
            connection = connect(self._url)
            connection.add_notice_handler(lambda notice: self._warned.append(notice.message_primary or ""))
            self._connected = PostgresStatements(connection)
        return self._connected

    def _let_go(self) -> None:
        if self._connected is not None:
            self._connected.connection.close()
            self._connected = None

    def close(self) -> None:
        """Let go of the connection."""
        with self._turn:
            self._let_go()


def inboxes(url: str) -> list[str]:
    """The connectors to which something was sent."""
    connection = connect(url)
    try:
        return [str(row["name"]) for row in PostgresStatements(connection).all("inbox_all")]
    except psycopg.Error as error:
        raise unusable(error, url) from None
    finally:
        connection.close()


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()[:40]
