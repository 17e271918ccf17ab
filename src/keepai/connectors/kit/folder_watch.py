"""Notices what appears in folders: told by the system on Linux (inotify), elsewhere by looking at them every 2 seconds.

It only says that something appeared; what it is, whoever is told reads for himself. A file counts when it was written
and closed, or moved there, so that nobody reads half of it. Looking finds names that are new, and no file whose
content changed; so it is also what is done in folders that no inotify reaches, such as those of another machine.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Protocol

from ...model.errors import Transient
from .blocking import in_thread

POLL_S = 2.0
PAUSE_S = 1.0  # between two things that are told, however much appears
FOLDERS_MAX = 1_000  # that are watched; what appears in more than these is found by the schedule
_NAMES_MAX = 1_000

_CLOSED, _MOVED_IN, _MADE, _GONE, _OVERFLOW = 0x8, 0x80, 0x100, 0x400 | 0x800, 0x4000
_IS_FOLDER, _ONLY_FOLDERS, _NO_LINKS = 0x40000000, 0x01000000, 0x02000000
_EVENT = struct.Struct("iIII")

#: Gives the folders to watch, the first of which must be there.
Folders = Callable[[], Sequence[Path]]


async def appearing(folders: Folders) -> AsyncGenerator[set[Path]]:
    """An empty set once nothing can be missed any more, then the paths that appeared; a folder's own, if more is not
    known. Raises `Transient` when the first folder is gone."""
    try:
        async with aclosing(_noticed(InotifyWatcher(folders))) as noticed:
            async for each in noticed:
                yield each
    except (OSError, AttributeError):  # there is no inotify, or no more of it on this machine
        async with aclosing(_noticed(PollingWatcher(folders))) as noticed:
            async for each in noticed:
                yield each


class FolderWatcher(Protocol):
    """Waits for what appears."""

    def begin(self) -> None:
        """From here on nothing is missed. It blocks."""
        ...

    async def news(self) -> set[Path]:
        """What appeared since it was asked last; waits until something has."""
        ...

    def close(self) -> None:
        """Watch no longer."""
        ...


async def _noticed(watcher: FolderWatcher) -> AsyncGenerator[set[Path]]:
    with closing(watcher):
        await in_thread(watcher.begin)
        yield set()
        while True:
            yield await watcher.news()
            await asyncio.sleep(PAUSE_S)


class InotifyWatcher:
    """Is told by the system."""

    def __init__(self, folders: Folders) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._add, self._folders, self._watched = libc.inotify_add_watch, folders, dict[int, Path]()
        self._seen: set[Path] = set()
        self._ready: asyncio.Event | None = None
        self._lost = self._grown = False
        self._fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def close(self) -> None:
        if self._ready is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    async def news(self) -> set[Path]:
        if self._ready is None:
            self._ready = asyncio.Event()
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        while not self._seen:
            await self._ready.wait()
            self._ready.clear()
            if self._lost:
                raise Transient(f"{self._folders()[0]} is gone.")
        if self._grown:
            self._grown = False
            await in_thread(self.begin)
        seen, self._seen = self._seen, set()
        return seen

    def begin(self) -> None:
        """Watch every folder; those that are watched already stay so."""
        for number, folder in enumerate(self._folders()):
            wanted = _CLOSED | _MOVED_IN | _MADE | _GONE | _ONLY_FOLDERS | (_NO_LINKS if number else 0)
            watch = int(self._add(self._fd, os.fsencode(folder), wanted))
            if watch >= 0:
                self._watched[watch] = folder
            elif number == 0 or ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _read(self) -> None:
        data, at = os.read(self._fd, 1 << 16), 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            self._note(self._watched.get(watch), mask, os.fsdecode(name))
        if (self._seen or self._lost) and self._ready is not None:
            self._ready.set()

    def _note(self, folder: Path | None, mask: int, name: str) -> None:
        if mask & _OVERFLOW or folder is None:
            self._grown = True
            self._seen.update(list(self._watched.values()))
        elif mask & _GONE:
            self._lost = self._lost or folder == next(iter(self._watched.values()))
        elif mask & _IS_FOLDER:
            self._grown = True
            self._seen.add(folder / name)
        elif mask & (_CLOSED | _MOVED_IN) or (mask & _MADE and _is_a_second_name(folder / name)):
            self._seen.add(folder / name if len(self._seen) < _NAMES_MAX else folder)


def _is_a_second_name(path: Path) -> bool:
    """Whether a name that was just made is a link to a whole file, as mail programs deliver. Otherwise somebody begins
    to write the file, and its end is told too."""
    try:
        return os.stat(path, follow_symlinks=False).st_nlink > 1
    except OSError:
        return False


class PollingWatcher:
    """Looks when each folder was changed last."""

    def __init__(self, folders: Folders) -> None:
        self._folders, self._known = folders, dict[Path, int]()

    def begin(self) -> None:
        self._known = self._times()

    def close(self) -> None:
        """It holds nothing."""

    async def news(self) -> set[Path]:
        while True:
            await asyncio.sleep(POLL_S)
            before, self._known = self._known, await in_thread(self._times)
            if changed := {folder for folder, time in self._known.items() if before.get(folder) != time}:
                return changed

    def _times(self) -> dict[Path, int]:
        found = {}
        for number, folder in enumerate(self._folders()):
            try:
                found[folder] = os.stat(folder).st_mtime_ns
            except OSError as error:
                if number == 0:
                    raise Transient(f"{folder} cannot be watched: {error.strerror}.") from None
        return found


def folders_below(root: Path, is_left_out: Callable[[str], bool]) -> list[Path]:
    """A folder and those in it, without links, as far as they are watched."""
    found = [root]
    for folder in found:  # the list grows during the loop
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        inner = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and not is_left_out(e.name)]
        found += inner[: FOLDERS_MAX - len(found)]
    return found
