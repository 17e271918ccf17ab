"""A look at a ledger file beside a host, or without one: it creates nothing and changes nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from ...model.errors import KeepError, LedgerUnusable, NotFound
from .. import mark, moving
from ..base import Row, SeenHost
from .connection import APPLICATION_ID, Statements, open_reader, unusable
from .lock import mark_beside
from .migrate import migrations
from .store import PUT_BACK


class SqliteReader(Statements):
    """Reads one file until `close`; whatever SQLite raises is a sentence that says what to do."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path
        self._file, self.name = path, str(path.resolve())
        left = mark_beside(path.resolve())
        _check_file(path, mark.refusal(str(path), left, None, PUT_BACK))
        self._connection = open_reader(path)
        try:
            super().__init__(self._connection)
            self._check_schema()
            older = mark.refusal(str(path), left, self, PUT_BACK)
            why = older or moving.refusal(str(path), self.one("moved_mark"))
            self.refused = why.message if why else None
        except BaseException:
            self.close()
            raise

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        try:
            return super().all(query, **params)
        except apsw.Error as error:
            raise unusable(error, self._file) from None

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row, as far as the caller reads; closing it ends the statement."""
        try:
            yield from super().iterate(query, **params)
        except apsw.Error as error:
            raise unusable(error, self._file) from None

    def bytes(self) -> int:
        """How much room the file takes."""
        return self._file.stat().st_size

    def hosts(self) -> list[SeenHost]:
        """A file says nothing of that: its lock does."""
        return []

    def host_of(self, workflow_id: str) -> str | None:
        """A file does not say that either: whoever has its lock runs all workflows."""
        return None

    def without_host(self) -> frozenset[str]:
        """Nor that."""
        return frozenset()

    def change(self) -> int:
        """A number that changes whenever somebody commits."""
        return self._pragma("data_version")

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Everything that is read inside is of one moment."""
        self.all("look_begin")
        try:
            yield
        finally:
            self.all("look_end")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _pragma(self, name: str) -> int:
        try:
            return int(self._connection.pragma(name))
        except apsw.Error as error:
            raise unusable(error, self._file) from None

    def _check_schema(self) -> None:
        if self._pragma("application_id") != APPLICATION_ID:
            raise LedgerUnusable(f"{self._file} is a SQLite database of some other program. Name another file.")
        have, want = self._pragma("user_version"), max(migrations())
        if have > want:
            raise LedgerUnusable(
                f"{self._file} was written by a newer Keep (schema {have}; this one knows {want}). Nothing was "
                "touched. Upgrade Keep (pip install -U keepai)."
            )
        if have < want:
            raise LedgerUnusable(
                f"{self._file} was written by an older Keep (schema {have}; this one reads {want}). `keep dev` brings "
                "it up to date, with a backup, or says why it cannot."
            )


def _check_file(path: Path, refused: KeepError | None) -> None:
    if path.is_dir():
        raise LedgerUnusable(f"{path} is a folder. Name the ledger's file with --db or in keep.toml.")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
    except OSError as error:
        raise LedgerUnusable(f"{path} cannot be opened: {error.strerror}.") from None
    if not size:
        none = NotFound(f"There is no ledger at {path} yet. `keep deploy FILE` makes one; --db names another.")
        raise refused or none
