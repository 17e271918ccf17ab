"""The one door to a ledger: everybody opens, reads, copies and checks one through here.

This module alone knows which stores there are. What it gives is the contract of `base.py`, and every error that comes
from a store is a `LedgerError` that says what to do.
"""

from __future__ import annotations

from pathlib import Path

from ..model.clock import Clock
from .base import Ledger, OpenReader
from .checks import Check


def open_ledger(path: str | Path, clock: Clock, *, accept_older: bool = False) -> Ledger:
    """A host's hold on a ledger; no second host gets one."""
    from .sqlite.store import SqliteLedger

    return SqliteLedger(path, clock, accept_older=accept_older)


def open_reader(path: Path) -> OpenReader:
    """A look at a ledger that is there; it writes nothing, waits for nobody and holds up nobody."""
    from .sqlite.reader import SqliteReader

    return SqliteReader(path)


def copy(path: Path, target: Path) -> None:
    """Write a ledger into the new file `target`, as it is now; neither checked nor synced."""
    from .sqlite import copies

    copies.copy(path, target)


def backup(path: Path, target: Path) -> list[Check]:
    """Put a verified copy at `target`, where nothing may be yet; gives what was checked."""
    from .sqlite import copies

    return copies.backup(path, target)


def vacuum(path: Path) -> tuple[int, int]:
    """Write a ledger that no host has anew without its gaps; gives its bytes before and after."""
    from .sqlite import copies

    return copies.vacuum(path)


def library() -> str:
    """The version of SQLite that keeps the file; `LedgerUnusable` if it can lose data."""
    from .sqlite.connection import check_library, library_version

    check_library()
    return library_version()


def schema() -> int:
    """The number of the schema that this code reads and writes."""
    from .sqlite.migrate import migrations

    return max(migrations())
