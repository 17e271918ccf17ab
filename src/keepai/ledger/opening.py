"""The one door to a ledger: everybody opens, reads, copies and checks one through here.

This module alone knows which stores there are. What it gives is the contract of `base.py`, and every error that comes
from a store is a `LedgerError` that says what to do.
"""

from __future__ import annotations

from pathlib import Path

from ..model.clock import Clock
from ..model.errors import LedgerUnusable
from .base import Ledger, OpenReader
from .checks import Check


def is_address(path: str | Path) -> bool:
    """Whether this names a PostgreSQL database, and not a file."""
    return str(path).startswith(("postgresql://", "postgres://"))


def open_ledger(path: str | Path, clock: Clock, *, accept_older: bool = False) -> Ledger:
    """A host's hold on a ledger, in a file or at an address; no second host gets one."""
    if is_address(path):
        _need_psycopg()
        from .postgres.store import PostgresLedger

        return PostgresLedger(str(path), clock)
    from .sqlite.store import SqliteLedger

    return SqliteLedger(path, clock, accept_older=accept_older)


def _need_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise LedgerUnusable(
            "A ledger in PostgreSQL needs the package psycopg. Install it: pip install 'keepai[postgres]'."
        ) from None


def open_reader(path: str | Path) -> OpenReader:
    """A look at a ledger that is there; it writes nothing, waits for nobody and holds up nobody."""
    if is_address(path):
        _need_psycopg()
        from .postgres.reader import PostgresReader

        return PostgresReader(str(path))
    from .sqlite.reader import SqliteReader

    return SqliteReader(Path(path))


def copy(path: Path, target: Path) -> None:
    """Write a ledger into the new file `target`, as it is now; neither checked nor synced."""
    from .sqlite import backups

    backups.copy(path, target)


def backup(path: Path, target: Path) -> list[Check]:
    """Put a verified copy at `target`, where nothing may be yet; gives what was checked."""
    from .sqlite import backups

    return backups.backup(path, target)


def vacuum(path: Path) -> tuple[int, int]:
    """Write a ledger that no host has anew without its gaps; gives its bytes before and after."""
    from .sqlite import backups

    return backups.vacuum(path)


def library() -> str:
    """The version of SQLite that keeps the file; `LedgerUnusable` if it can lose data."""
    from .sqlite.connection import check_library, library_version

    check_library()
    return library_version()


def schema() -> int:
    """The number of the schema that this code reads and writes."""
    from .sqlite.migrate import migrations

    return max(migrations())
