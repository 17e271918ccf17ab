"""A look at a ledger in PostgreSQL beside a host, or without one: it creates nothing and changes nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from ...model.errors import LedgerUnusable, NotFound
from .. import moving
from ..base import Row, SeenHost
from .connection import PostgresStatements, connect, shown, unusable
from .lease import LEASE_MS
from .mark_file import MarkFile
from .tables import lacks, needed, number, refuse_newer


class PostgresReader(PostgresStatements):
    """Reads one ledger until `close`; whatever PostgreSQL raises is a sentence that says what to do."""

    path: Path | None = None
    refused: str | None = None

    def __init__(self, url: str) -> None:
        self._url, self.name = url, shown(url)
        super().__init__(connect(url))
        try:
            self.connection.execute("set default_transaction_read_only = on")
            marks, have = MarkFile(url), number(self.connection)
            if have is None:
                raise marks.refusal(None) or NotFound(
                    f"There is no ledger at {shown(url)} yet. `keep deploy FILE` makes one.")
            refuse_newer(needed(self.connection), shown(url))
            if lacks(have):
                raise LedgerUnusable(f"{shown(url)} was written by an older Keep. A host brings it up to date.")
            why = marks.refusal(self) or moving.refusal(shown(url), self.one("moved_mark"))
            self.refused = why.message if why else None
        except psycopg.Error as error:
            self.close()
            raise unusable(error, url) from None
        except BaseException:
            self.close()
            raise

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        try:
            return super().all(query, **params)
        except psycopg.Error as error:
            raise unusable(error, self._url) from None

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row, as far as the caller reads; closing it ends the statement."""
        try:
            yield from super().iterate(query, **params)
        except psycopg.Error as error:
            raise unusable(error, self._url) from None

    def bytes(self) -> int:
        """How much room the tables and indexes take."""
        row = self.one("ledger_bytes")
        assert row is not None
        return int(row["bytes"])

    def hosts(self) -> list[SeenHost]:
        """The hosts that have not ended, the oldest first."""
        return [
            SeenHost(
                id=row["id"], machine=row["machine"], pid=row["pid"], started_at=row["started_at"],
                workflows=row["workflows"], silent_ms=row["silent_ms"], works=bool(row["works"]),
                drains=bool(row["drains"]), lives=row["lost_at"] is None and row["silent_ms"] < LEASE_MS)
            for row in self.all("heartbeat_all")
        ]

    def host_of(self, workflow_id: str) -> str | None:
        """The id of the host that was the last to take a workflow and has not given it back."""
        row = self.one("owner_host", workflow_id=workflow_id)
        return str(row["id"]) if row else None

    def without_host(self) -> frozenset[str]:
        """The workflows that no host at work runs."""
        return frozenset(str(row["workflow_id"]) for row in self.all("owner_missing", silent_ms=LEASE_MS))

    def change(self) -> int:
        """A number that changes whenever somebody commits."""
        row = self.one("ledger_change")
        assert row is not None
        return int(row["change"])

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Everything that is read inside is of one moment."""
        try:
            with super().moment():
                yield
        except psycopg.Error as error:
            raise unusable(error, self._url) from None

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()
