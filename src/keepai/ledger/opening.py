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
from ..model.ledger_address import is_address, shown
from . import moving
from .base import Ledger, OpenReader
from .checks import Check
from .moving import Moved, MoveSource, MoveTarget, Progress, Told

if TYPE_CHECKING:
    from .postgres.deliveries import PostgresDeliveries
    from .postgres.server_facts import ServerFact


def open_ledger(path: str | Path, clock: Clock, *, accept_older: bool = False, works: bool = True) -> Ledger:
    """A host's hold on a ledger. In a file no second host gets one; at an address there may be many, each with its part
    of the workflows, or with none if it does not work."""
    try:
        return _opened(path, clock, accept_older, works)
    except LedgerMoved as refused:
        if not _has_come(path, refused):
            raise
        return _opened(path, clock, accept_older, works)


def _opened(path: str | Path, clock: Clock, accept_older: bool, works: bool) -> Ledger:
    if is_address(path):
        _need_psycopg()
        from .postgres.store import PostgresLedger

        return PostgresLedger(str(path), clock, accept_older=accept_older, works=works)
    from .sqlite.store import SqliteLedger

    return SqliteLedger(path, clock, accept_older=accept_older)


def _need_psycopg() -> None:
    try:
        import greenlet  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError:
        raise LedgerUnusable(
            "A ledger in PostgreSQL needs psycopg and greenlet. Install them: pip install 'keepai[postgres]'."
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
        raise Refused(f"{shown(source)} is where the ledger is already. Name another place.")
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


def examine(address: str, clock: Clock) -> list[ServerFact]:
    """What `keep doctor` says of the database at an address."""
    _need_psycopg()
    from .postgres import server_facts

    return server_facts.examine(address, clock)


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


def copy(path: str | Path, target: Path, clock: Clock) -> None:
    """Write a ledger, if there is one, into the new file `target`, as it is now; neither checked nor synced."""
    if not is_address(path):
        from .sqlite import backups

        if Path(path).exists() and Path(path).stat().st_size:
            backups.copy(Path(path), target)
        return
    _need_psycopg()
    from .postgres.move_ends import PostgresMoment

    with closing(PostgresMoment(str(path))) as source, closing(_receiving(target)) as made:
        if source.holds():
            moving.copy(source, made, clock)


def backup(path: str | Path, target: Path) -> list[Check]:
    """Put a verified copy at `target`, where nothing may be yet; gives what was checked."""
    if is_address(path):
        raise Refused(
            "`keep db backup` copies a file, and this ledger is in PostgreSQL. Its own tools back it up beside hosts: "
            "pg_dump for one moment, or pg_basebackup with an archive of the log, from which you can go back to any "
            "moment. Either way, what was sent after the moment that you restore is not on record then, and would be "
            "sent again: stop every host before, and read docs/operating/postgres.md.")
    from .sqlite import backups

    return backups.backup(Path(path), target)


def vacuum(path: str | Path) -> tuple[int, int]:
    """Write a ledger that no host has anew without its gaps; gives its bytes before and after."""
    if is_address(path):
        raise Refused(
            "`keep db vacuum` rewrites a file, and this ledger is in PostgreSQL, whose autovacuum lets room be used "
            "again by itself. To give it back to the disk: stop the hosts, then say `vacuum full` to the database.")
    from .sqlite import backups

    return backups.vacuum(Path(path))


def library() -> str:
    """The version of SQLite that keeps the file; `LedgerUnusable` if it can lose data."""
    from .sqlite.connection import check_library, library_version

    check_library()
    return library_version()


def schema() -> int:
    """The number of the schema that this code reads and writes."""
    from .sqlite.migrate import migrations

    return max(migrations())
