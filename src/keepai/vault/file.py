"""The vault's file: read as a whole, replaced completely or not at all, by one writer at a time. It knows no key."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..model.errors import VaultClosed

BYTES_MAX = 4 << 20
OTHERS = 0o077
TRIES, PAUSE_S = 200, 0.05  #: ten seconds for another writer to finish

Document = dict[str, Any]
Print = tuple[int, int, int]


def print_of(path: Path) -> Print | None:
    """Values that change whenever the file does; None if there is no file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VaultClosed(f"{path} cannot be read: {error.strerror}. Change its permissions.") from None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read(path: Path) -> Document | None:
    """The content of the file; None if there is no file."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VaultClosed(f"{path} cannot be read: {error.strerror}. Change its permissions.") from None
    try:
        document = json.loads(raw) if len(raw) <= BYTES_MAX else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise VaultClosed(damaged(path))
    return document


def damaged(path: Path) -> str:
    """The message for a file that Keep did not write as it is."""
    return (
        f"{path} is damaged, or another program changed it, so none of its secrets is used. Restore a good copy, "
        "or delete the file and store the secrets again: keep secrets set NAME SECRET."
    )


def write(path: Path, document: Document) -> None:
    """Replace the content of the file. Before this returns, the old content is on disk; afterwards the new one."""
    content = json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"
    if len(content) > BYTES_MAX:
        raise VaultClosed(f"{path} would have more than {BYTES_MAX:,} bytes; nothing was stored. Delete some secrets.")
    replace(path, content, 0o600)


def replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file by one with `content`, or leave the old one as it was."""
    path = path.resolve()  # a link stays a link
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            os.fchmod(descriptor, mode)
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        part.rename(path)
        _sync(path.parent)
    except OSError as error:
        raise VaultClosed(f"{path} cannot be written: {error.strerror}. It was not changed.") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Become the only writer among all processes."""
    lock = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise VaultClosed(f"{lock} cannot be written: {error.strerror}. Change the folder's permissions.") from None
    try:
        _wait_for(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, lock: Path) -> None:
    for _ in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_S)
        else:
            return
    raise VaultClosed(f"Another process holds {lock} for too long. Nothing was stored; try again.")


def is_others(path: Path) -> bool:
    """Whether other users may read or change a file."""
    status = path.stat()
    return bool(stat.S_IMODE(status.st_mode) & OTHERS) or status.st_uid not in (os.geteuid(), 0)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
