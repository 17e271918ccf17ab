"""What Keep is about to do in a folder, and what it did: one small file per change, in the hidden folder `.keep`.

A plan is on disk before anything of its change can be seen, and a receipt after all of it. After a crash at any point,
what the folder holds together with the plan says what happened. Whoever holds the lock is alone with both; the folder
must never be deleted while an outcome is unknown.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...model.codec import Json, encode, stored
from ..kit.disk import write_all
from . import paths


class Busy(Exception):
    """Another change of this folder is under way."""


@dataclass(frozen=True)
class ChangePlan:
    """A change before it happens, with what is needed to recognise it afterwards."""

    operation: str  # "put": a draft takes a name; "append"; "move"
    path: str  # where it will be
    inode: int  # of the draft, of the file that grows or of the one that moves
    size: int  # of all that the file will hold
    hash: str
    old_path: str = ""  # the draft's or the moved file's
    prefix_size: int = 0  # what an append leaves as it is
    prefix_hash: str = ""


class Journal:
    """The folder `.keep`, locked."""

    def __init__(self, folder: int) -> None:
        self.folder = folder

    def receipt(self, key: str) -> Json:
        """The result of a change that is done; None if it is not."""
        data = self._read(f"{_name(key)}.done")
        return stored(data) if data is not None else None

    def plan(self, key: str) -> ChangePlan | None:
        """What was about to be done; None if it was not begun."""
        data = self._read(f"{_name(key)}.plan")
        if data is None:
            return None
        fields: Any = stored(data)
        return ChangePlan(**fields)

    def begin(self, key: str, plan: ChangePlan) -> None:
        """Put a plan on disk."""
        self._write(f"{_name(key)}.plan", asdict(plan))

    def drop(self, key: str) -> None:
        """Forget a plan of which nothing came."""
        with suppress(FileNotFoundError):
            os.unlink(f"{_name(key)}.plan", dir_fd=self.folder)
            os.fsync(self.folder)

    def end(self, key: str, result: Json) -> None:
        """Put a receipt on disk; the plan has done its work."""
        self._write(f"{_name(key)}.done", result)
        self.drop(key)

    def _read(self, name: str) -> str | None:
        file = paths.contents(self.folder, name, 1 << 20)
        return file[1].decode() if file else None

    def _write(self, name: str, value: object) -> None:
        draft = f"{name}.draft"
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=self.folder)
        descriptor = paths.create(self.folder, draft, 0o600)
        try:
            write_all(descriptor, encode(value).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(draft, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)


@contextmanager
def journal(root: Path, *, wait: bool = True) -> Iterator[Journal]:
    """The journal of a folder, against every other thread and process; without `wait`, `Busy` if somebody has it."""
    with paths.opened(root, (paths.OWN,), make=True) as folder:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
        yield Journal(folder)


def draft_name(key: str) -> str:
    """The hidden name of a draft, in the folder where it will get its own."""
    return f"{paths.OWN}-{_name(key)}"


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
