"""Copies of a ledger as it is at one moment, beside a running host; and the file written anew without its gaps.

A copy is in its place whole or not at all: it is made under another name, checked, synced, and then put there.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import apsw

from ...model.errors import LedgerUnusable, Refused
from ..checks import Check, check
from .connection import Statements, open_file, open_reader, unusable
from .lock import HostLock

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def copy(path: Path, target: Path) -> None:
    """Write the ledger at `path` into the new file `target`, as it is now; neither checked nor synced."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            copy_through(connection, target)
        finally:
            connection.close()
    except apsw.Error as error:
        raise unusable(error, path) from None


def copy_through(connection: apsw.Connection, target: Path) -> None:
    """The same, through a connection that is open."""
    connection.execute("vacuum into ?", (str(target),))


def backup(path: Path, target: Path) -> list[Check]:
    """Put a verified copy at `target`, where nothing may be yet; gives what was checked."""
    if target.exists() or target.is_symlink():
        raise Refused(f"{target} exists already, and a backup overwrites nothing. Name a new file.")
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # a ledger is nobody else's to read
        copy(path, part)
        found = verified(part)
        sync(part)
        _put(part, target)
        sync(target.parent)
    except OSError as error:
        raise LedgerUnusable(f"The backup {target} cannot be written: {error.strerror}. Nothing is there.") from None
    finally:
        part.unlink(missing_ok=True)
    return found


def verified(copied: Path) -> list[Check]:
    """What was checked of a copy; one that is not sound is refused."""
    connection = open_reader(copied)
    try:
        found = check(Statements(connection))
    finally:
        connection.close()
    wrong = [each for each in found if not each.sound]
    if wrong:
        raise LedgerUnusable(f"The copy is not sound, so it was thrown away. {wrong[0].name}: {wrong[0].said}")
    return found


def vacuum(path: Path) -> tuple[int, int]:
    """Write a ledger that no host has anew without its gaps; gives its bytes before and after."""
    lock = HostLock(path)
    try:
        lock.take_file()
        before = _bytes(path)
        connection = open_file(path)
        try:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")
        finally:
            connection.close()
        return before, _bytes(path)
    except apsw.Error as error:
        raise unusable(error, path) from None
    finally:
        lock.release()


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(part: Path, target: Path) -> None:
    """Give a file its name, unless somebody was quicker."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise Refused(f"{target} exists already, and a backup overwrites nothing. Name a new file.") from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part.rename(target)  # a disk without links


def _bytes(path: Path) -> int:
    """How much a ledger takes, with its log."""
    return sum(each.stat().st_size for each in (path, path.with_name(path.name + "-wal")) if each.exists())
