"""The one door to a ledger: everybody opens, reads, copies and checks one through here.

This module alone knows which stores there are. What it gives is the contract of `base.py`, and every error that comes
from a store is a `LedgerError` that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.clock import Clock
from ..model.errors import KeepError, LedgerMoved, LedgerUnusable, Refused
from . import moving
from .base import Ledger, OpenReader
from .checks import Check
from .moving import Moved, MoveSource, MoveTarget, Progress, Told

if TYPE_CHECKING:
    from .postgres.deliveries import PostgresDeliveries


def is_address(path: str | Path) -> bool:
    """Whether this names a PostgreSQL database, and not a file."""
    return str(path).startswith(("postgresql://", "postgres://"))


def open_ledger(path: str | Path, clock: Clock, *, accept_older: bool = False) -> Ledger:
    """A host's hold on a ledger, in a file or at an address; no second host gets one."""
    try:
        return _opened(path, clock, accept_older)
    except LedgerMoved as refused:
        if not _has_come(path, refused):
            raise
        return _opened(path, clock, accept_older)


def _opened(path: str | Path, clock: Clock, accept_older: bool) -> Ledger:
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


def move(
    source: str | Path, target: str | Path, clock: Clock, told: Told, progress: Progress,
    carry: Callable[[], None] = lambda: None, *, dry_run: bool = False,
) -> Moved:
    """Move a ledger that no host has to a place that has none, whole; ledger/moving.py says in which order.

    `told` gives what people are shown of a ledger; it must be the same at both places. `carry` brings what is kept
    beside a ledger, and may be called again. Given again after a crash, it goes on or begins anew."""
    if str(source) == str(target):
        raise Refused(f"{source} is where the ledger is already. Name another place.")
    with closing(_leaving(source)) as leaves, closing(_receiving(target)) as receives:
        return moving.move(leaves, receives, clock, told, progress, carry, dry_run=dry_run)


def _leaving(path: str | Path) -> MoveSource:
    if is_address(path):
        _need_psycopg()
        from .postgres.move_ends import PostgresSource

        return PostgresSource(str(path))
    from .sqlite.move_ends import SqliteSource

    return SqliteSource(Path(path))


def _receiving(path: str | Path) -> MoveTarget:
    if is_address(path):
        _need_psycopg()
        from .postgres.move_ends import PostgresTarget

        return PostgresTarget(str(path))
    from .sqlite.move_ends import SqliteTarget

    return SqliteTarget(Path(path))


def _has_come(path: str | Path, refused: LedgerMoved) -> bool:
    """Whether a copy that was refused is the ledger, by the place that it came from. If so, its mark is taken off."""
    try:
        with closing(open_reader(refused.place)) as read:
            gone = moving.has_gone(refused, read.one("moved_mark"))
    except KeepError:
        return False
    if gone:
        with closing(_receiving(path)) as receives:
            receives.arrive(refused.mover)
    return gone


def open_deliveries(address: str, inbox: str, most: int, clock: Clock) -> PostgresDeliveries:
    """What was sent to a connector, in the database of a ledger; it connects when it is first used."""
    _need_psycopg()
    from .postgres.deliveries import PostgresDeliveries

    return PostgresDeliveries(address, inbox, most, clock)


def inboxes(address: str) -> list[str]:
    """The connectors to which something was sent that is in the database of a ledger."""
    _need_psycopg()
    from .postgres import deliveries

    return deliveries.inboxes(address)


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
