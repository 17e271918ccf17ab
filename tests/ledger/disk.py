"""A disk to count on and to break: an SQLite VFS whose files count syncs and fail when told to."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import apsw

_names = itertools.count(1)


class Disk(apsw.VFS):
    """Pass `disk.name` as `vfs=`. `syncs` lists the files synced; `fail` arms one failure."""

    def __init__(self) -> None:
        self.name = f"keep-test-{next(_names)}"
        self.syncs: list[str] = []
        self.writes = 0
        self.on_sync: Callable[[], None] | None = None
        self._left: dict[str, int] = {}
        self._error: Exception | None = None
        super().__init__(self.name, "")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        self._count("open")
        return DiskFile(self, name, flags)

    def fail(self, act: str, nth: int, error: Exception) -> None:
        """From its nth "write", "sync" or "open" on, this disk fails: a disk does not get well by itself."""
        self._left, self._error = {act: nth}, error

    def mend(self) -> None:
        """Work again."""
        self._left, self._error = {}, None

    @property
    def failed(self) -> bool:
        """Whether the armed failure has struck."""
        return any(left <= 0 for left in self._left.values())

    def _count(self, act: str) -> None:
        if act in self._left:
            self._left[act] -= 1
            if self._left[act] <= 0:
                assert self._error is not None
                raise type(self._error)(*self._error.args)

    def wrote(self) -> None:
        """A file is about to be written."""
        self.writes += 1
        self._count("write")

    def synced(self, name: str) -> None:
        """A file is about to be synced."""
        self.syncs.append(name)
        if self.on_sync:
            self.on_sync()
        self._count("sync")


class DiskFile(apsw.VFSFile):
    """One file of a disk."""

    def __init__(self, disk: Disk, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xSync(self, flags: int) -> None:
        self._disk.synced(self._name.rpartition("/")[2])
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.wrote()
        super().xWrite(data, offset)
