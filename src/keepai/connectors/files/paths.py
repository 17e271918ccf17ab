"""Finds files below one folder and nowhere else: no name from a script can lead out of it.

A path is walked part by part from the folder's descriptor, and no link is followed, so that a link that appears in
between changes nothing. Only plain files with one name are touched: a device would act on its own, and a second name
may be anywhere on the disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import PreconditionFailed, Rejected

OWN = ".keep"  #: Keep's own names begin with this
PATH_MAX = 1_024
PART_MAX = 200  #: bytes; a longer name would leave no room for the name of a draft
DEPTH_MAX = 32
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class File:
    """A plain file as it was seen."""

    inode: int
    size: int
    mode: int
    names: int


def parts_of(path: str) -> tuple[str, ...]:
    """The parts of a path below the folder; `Rejected` if it could lead anywhere else."""
    parts = tuple(path.split("/"))
    wrong = [p for p in parts if p in ("", ".", "..") or "\0" in p or len(os.fsencode(p)) > PART_MAX]
    if wrong or len(path) > PATH_MAX or len(parts) > DEPTH_MAX:
        raise Rejected(
            f"{path[:80]!r} is not a path in this folder. Write a relative path such as reports/may.txt, without empty "
            f"parts, . or .., and with at most {DEPTH_MAX} parts of {PART_MAX} bytes."
        )
    if any(is_own(part) for part in parts):
        raise Rejected(f"{path[:80]!r}: names that begin with {OWN} are Keep's own.")
    return parts


def is_own(name: str) -> bool:
    """Whether a name belongs to Keep, also on a disk that ignores case."""
    return name.casefold().startswith(OWN)


@contextmanager
def opened(root: Path, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder below `root`; with `make`, missing folders are made."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, part in enumerate(parts):
            inner = _entered(here, part, "/".join(parts[: number + 1]), make)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _entered(here: int, part: str, path: str, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    except (NotADirectoryError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise PreconditionFailed(f"{path} is not a folder: {error.strerror}.") from error
    with suppress(FileExistsError):
        os.mkdir(part, 0o777, dir_fd=here)
        os.fsync(here)
    return os.open(part, _FOLDER, dir_fd=here)


def seen(folder: int, name: str) -> File | None:
    """A plain file, or None if the name is free; `PreconditionFailed` if it is anything else."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _plain(status, name)


def contents(folder: int, name: str, bytes_max: int, *, names_max: int = 1) -> tuple[File, bytes] | None:
    """A plain file with all its bytes, or None if the name is free."""
    file = seen(folder, name)
    if file is None:
        return None
    if file.names > names_max:
        raise PreconditionFailed(f"{name} has {file.names} names (hard links), and some may be elsewhere.")
    descriptor = os.open(name, os.O_RDONLY | _PLAIN, dir_fd=folder)
    try:
        file = _plain(os.fstat(descriptor), name)
        data = _all(descriptor, bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise PreconditionFailed(f"{name} is larger than {bytes_max:,} bytes.")
    return file, data


def create(folder: int, name: str, mode: int) -> int:
    """A new file, open for writing."""
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, mode, dir_fd=folder)


def append_to(folder: int, name: str) -> int:
    """An existing file, open for writing at its end."""
    return os.open(name, os.O_WRONLY | os.O_APPEND | _PLAIN, dir_fd=folder)


def digest(data: bytes) -> str:
    """The hash of a file's bytes, as scripts see it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _plain(status: os.stat_result, name: str) -> File:
    if not stat.S_ISREG(status.st_mode):
        raise PreconditionFailed(f"{name} is not a plain file.")
    return File(status.st_ino, status.st_size, stat.S_IMODE(status.st_mode), status.st_nlink)


def _all(descriptor: int, bytes_max: int) -> bytes:
    data = bytearray()
    while len(data) < bytes_max:
        more = os.read(descriptor, min(1 << 20, bytes_max - len(data)))
        if not more:
            break
        data += more
    return bytes(data)
