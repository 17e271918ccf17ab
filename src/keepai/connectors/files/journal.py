"""What Keep is about to do in a folder and what it did: one small file per change, in the hidden folder `.keep`.

A plan is on disk before any part of its change can be seen, and a receipt after all of it. After a crash at any point,
the folder and the plan together show what happened. Only the holder of the lock reads or writes both. The folder
`.keep` must not be deleted while an outcome is unknown.
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
    """Another change of this folder is running."""


@dataclass(frozen=True)
class ChangePlan:
    """A change before it is made, with what is needed to recognise it afterwards."""

    operation: str  # "put": a draft gets its name; "append"; "move"
    path: str  # where the file will be
    inode: int  # of the draft, of the file that grows, or of the file that moves
    size: int  # of the file afterwards
    hash: str
    old_path: str = ""  # of the draft or of the moved file
    prefix_size: int = 0  # the bytes that an append does not change
    prefix_hash: str = ""


class Journal:
    """The folder `.keep`, locked."""

    def __init__(self, folder: int) -> None:
        self.folder = folder

    def receipt(self, key: str) -> Json:
        """The result of a finished change; None if it is not finished."""
        data = self._read(f"{_name(key)}.done")
        return stored(data) if data is not None else None

    def plan(self, key: str) -> ChangePlan | None:
        """The plan of a change; None if it was not begun."""
        data = self._read(f"{_name(key)}.plan")
        if data is None:
            return None
        fields: Any = stored(data)
        return ChangePlan(**fields)

    def begin(self, key: str, plan: ChangePlan) -> None:
        """Put a plan on disk."""
        self._write(f"{_name(key)}.plan", asdict(plan))

    def drop(self, key: str) -> None:
        """Delete a plan that had no effect."""
        with suppress(FileNotFoundError):
            os.unlink(f"{_name(key)}.plan", dir_fd=self.folder)
            os.fsync(self.folder)

    def end(self, key: str, result: Json) -> None:
        """Put a receipt on disk and delete the plan."""
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
    """The locked journal of a folder. Without `wait`, `Busy` if another thread or process holds it."""
    with paths.opened(root, (paths.OWN,), make=True) as folder:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
        yield Journal(folder)


def draft_name(key: str) -> str:
    """The hidden name of a draft, in the folder where it gets its final name."""
    return f"{paths.OWN}-{_name(key)}"


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
