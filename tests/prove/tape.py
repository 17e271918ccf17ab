"""Records everything that SQLite does to its files: an apsw VFS that writes through and keeps a tape.

Files are kept apart from their names, as on disk: a log that is deleted and made anew is two files. The folder is
synced by SQLite itself, below this VFS: with the first sync of a log or journal that it opened, and with a deletion
that asks for it. `test_images.py` proves that it does so.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw

_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes went into a file."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file was cut to a size."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A file is on disk, and with `folder` the names of all files too."""

    file: int
    folder: bool


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """A sync failed: what was not on disk may never be, and a later sync says nothing about it."""

    file: int


@dataclass(frozen=True, slots=True)
class Link:
    """A new file has this name."""

    name: str
    file: int


@dataclass(frozen=True, slots=True)
class Unlink:
    """This name is gone; with `folder` surely."""

    name: str
    folder: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """SQLite said that a transaction is committed: number so-and-so."""

    number: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A caller was told that everything up to this commit is on disk, and what it may build on."""

    number: int
    promises: tuple[tuple[str, str, str], ...] = ()  # table, key, state


Op = Write | Truncate | Sync | SyncFailed | Link | Unlink | Committed | Acknowledged

#: The disk's lies, for planted faults: which files' syncs do nothing.
Lies = frozenset[str]


class Tape(apsw.VFS):
    """Pass `tape.name` as `vfs=`; `ops` is the tape. `base` is what is on disk already."""

    def __init__(self, base: Mapping[str, bytes] | None = None, lies: Lies = frozenset()) -> None:
        self.name = f"keep-tape-{next(_names)}"
        self.ops: list[Op] = []
        self.lies = lies
        self.base = dict(base or {})
        self.files = {name: number for number, name in enumerate(self.base)}
        self.base_files = dict(self.files)
        super().__init__(self.name, "")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file: nobody opens it again
            return apsw.VFSFile("", name, flags)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        opened = Taped(self, name, flags, path.name)
        if path.name not in self.files:
            self.files[path.name] = len(self.base) + sum(isinstance(op, Link) for op in self.ops)
            self.ops.append(Link(path.name, self.files[path.name]))
        opened.number = self.files[path.name]
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        name = Path(filename).name
        if self.files.pop(name, None) is not None:
            self.ops.append(Unlink(name, bool(syncdir)))


class Taped(apsw.VFSFile):
    """One open file."""

    def __init__(self, tape: Tape, name: apsw.URIFilename | str, flags: list[int], short: str) -> None:
        self.number = -1
        self._tape, self._short = tape, short
        kinds = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
        self._folder_due = bool(flags[0] & kinds and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._tape.ops.append(Write(self.number, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._tape.ops.append(Truncate(self.number, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self._short not in self._tape.lies:
            self._tape.ops.append(Sync(self.number, self._folder_due))
            self._folder_due = False
