"""How the local connectors touch the disk: in a thread, under a lock, with every error translated.

`OSError` becomes one of Keep's errors by the table `REFUSED`. It holds only errors by which the system
refuses a step before doing any of it; all others say nothing, and the step decides what they mean.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from ...model.codec import encode
from ...model.errors import (
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Transient,
)
from ..values import Call

T = TypeVar("T")

#: A page ends when it holds so much: hostile content must not make an answer that no script can take.
PAGE_BYTES = 1 << 20

REFUSED: Mapping[int, type[ConnectorError]] = MappingProxyType({
    errno.ENOENT: PreconditionFailed,
    errno.ENOTDIR: PreconditionFailed,
    errno.EISDIR: PreconditionFailed,
    errno.ELOOP: PreconditionFailed,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
})


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking `work` in a thread and end only after it has ended, even when cancelled meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # looked at, so that nobody warns about it
        raise cancelled
    return task.result()


def check_deadline(call: Call) -> None:
    """The last look before the first byte: after the deadline nothing is begun."""
    if call.remaining_s <= 0:
        raise Transient("The call's time was over before it began; nothing was written.")


@contextmanager
def nothing_happened(what: str) -> Iterator[None]:
    """Around steps that leave no effect when they fail: every `OSError` is a definite failure."""
    try:
        yield
    except OSError as error:
        raise REFUSED.get(error.errno or 0, Transient)(f"{what}: {told(error)}.") from error


@contextmanager
def may_have_happened(what: str) -> Iterator[None]:
    """Around steps that may leave an effect when they fail."""
    try:
        yield
    except OSError as error:
        raise OutcomeUnknown(f"{what}, but then: {told(error)}.") from error


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """The lock file `path`, held against every other thread and process; gives its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a short write goes on where it stopped."""
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


def size_of(item: object) -> int:
    """The bytes of an item as JSON."""
    return len(encode(item).encode())


def told(error: OSError) -> str:
    """An `OSError` in words: `…/inbox: No such file or directory`."""
    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    return where + (error.strerror or type(error).__name__)
