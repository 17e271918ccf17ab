"""Reads and writes local files: locks, complete writes, syncs, and the translation of `OSError`.

The table `REFUSED` translates an `OSError` into one of Keep's errors. It holds only errors with which the system
refuses a step before it does any part of it. Every other error proves nothing; the caller decides what it means.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from ...model.errors import (
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Transient,
)

REFUSED: Mapping[int, type[ConnectorError]] = MappingProxyType({
    errno.ENOENT: PreconditionFailed,
    errno.ENOTDIR: PreconditionFailed,
    errno.EISDIR: PreconditionFailed,
    errno.ELOOP: PreconditionFailed,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
})


@contextmanager
def nothing_happened(message: str) -> Iterator[None]:
    """Use around steps that leave no effect when they fail: every `OSError` is a definite failure."""
    try:
        yield
    except OSError as error:
        raise REFUSED.get(error.errno or 0, Transient)(f"{message}: {os_error_text(error)}.") from error


@contextmanager
def may_have_happened(message: str) -> Iterator[None]:
    """Use around steps that may leave an effect when they fail: the outcome is unknown."""
    try:
        yield
    except OSError as error:
        raise OutcomeUnknown(f"{message}, but then: {os_error_text(error)}.") from error


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock file `path` against every other thread and process; yields its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def check_writable(folder: Path) -> None:
    """Raise `PermissionDenied` if this process may not read and write the folder."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionDenied(f"{folder} cannot be written.")


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte. A short write is continued where it stopped."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]


def write_new(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Make a file that did not exist, with these bytes on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def os_error_text(error: OSError) -> str:
    """An `OSError` in words: `…/inbox: No such file or directory`."""
    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    return where + (error.strerror or type(error).__name__)
