"""One host per file: OS locks that the kernel lets go of when the process is dead, and not before.

There are two. One is on a file beside the ledger, which a connector's child process may hold too. The other, on Linux,
is on the ledger's own file: it holds also if somebody removes the lock's file.

The lock's own file also tells how far the ledger had come when it was last synced. It stands beside the ledger and not
in it, so a ledger that was put back from a backup, that vanished, or whose log is gone, is noticed.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
from functools import lru_cache
from pathlib import Path

from ...model.errors import LedgerUnusable
from .. import mark
from ..mark import Mark

_MACHINE = socket.gethostname()

#: The byte of the ledger's file that is locked: far behind those that SQLite locks, and behind any content.
_BYTE = 1 << 62


_told = json.JSONEncoder().encode

#: Files, by device and inode, that a host of this process has. Another descriptor of such a file must not be opened
#: and closed: with it the kernel would drop the locks of SQLite.
_held: set[tuple[int, int]] = set()


@lru_cache(maxsize=1)
def _holder(pid: int, host: str, since: str) -> str:
    return _told({"pid": pid, "machine": _MACHINE, "host": host, "since": since})


def mark_beside(ledger: Path) -> Mark | None:
    """How far a ledger had come, as the file beside it says; None if it says nothing that can be read."""
    try:
        return mark.parse(_lock_path(ledger).read_bytes()[:mark.BYTES])
    except OSError:
        return None


class HostLock:
    """Holds the lock from opening to closing; a second host is refused with the first one's name.

    A connector's child process that is given `fd` holds it too: the lock is free only when all of them are dead."""

    _file: int | None = None  # the ledger's own file, if it is locked too
    _names: tuple[tuple[Path, tuple[int, int]], ...] = ()  # what must stand at each path

    def __init__(self, ledger: Path) -> None:
        self._ledger, self.path = ledger, _lock_path(ledger)
        try:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerUnusable(
                f"The lock file {self.path} cannot be written ({error.strerror}). "
                "Keep needs a folder that it may write to; change its permissions or use another path."
            ) from None
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            taken = isinstance(error, BlockingIOError)
            refused = self._taken() if taken else LedgerUnusable(
                f"The lock file {self.path} cannot be locked: its file system has no locks ({error.strerror}). Without "
                "them two hosts could send the same thing. Put the ledger on a local disk."
            )
            os.close(self.fd)
            raise refused from None

    def take_file(self) -> None:
        """Lock the ledger's own file, and make it if it is not there: it is its owner's alone then."""
        try:
            found = os.stat(self._ledger)
            if found.st_nlink > 1:
                raise LedgerUnusable(
                    f"{self._ledger} has {found.st_nlink} names (hard links). Its lock and its log go by the name, so "
                    "two hosts could work on it at once. Remove the other names, or use a copy of the file."
                )
            if _id(found) in _held:
                raise self._taken()
        except OSError:
            pass  # it is not there yet, or opening it as a ledger says what is wrong
        if sys.platform != "linux":
            return
        try:
            file = os.open(self._ledger, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _BYTE, 1, 0))
        except OSError as error:
            os.close(file)
            if isinstance(error, (BlockingIOError, PermissionError)):
                raise self._taken() from None
            return  # a file system that has no such lock: the one beside it is held
        self._file = file
        _held.add(_id(os.fstat(file)))

    def watch(self) -> None:
        """From now on the files that are at their paths must stay there: the ledger, its log, and the lock's own."""
        names = [(self.path, _id(os.fstat(self.fd)))]
        if self._file is not None:
            names.append((self._ledger, _id(os.fstat(self._file))))
        for path in (self._ledger, self._ledger.with_name(self._ledger.name + "-wal")):
            try:
                names.append((path, _id(os.stat(path))))
            except OSError:
                continue  # a ledger that lies somewhere else than in a file
        self._names = tuple(dict.fromkeys(names))

    def lost(self) -> str | None:
        """Why what is at its path is no longer what this host holds, if so."""
        for path, held in self._names:
            try:
                found = os.stat(path)
            except OSError as error:
                return f"{path} was removed while a host worked with it ({error.strerror})."
            if _id(found) != held:
                return f"{path} was replaced by another file while a host worked with it."
        return None

    def left(self) -> Mark | None:
        """How far the last holder had come; None if it left nothing that can be read."""
        return mark.parse(os.pread(self.fd, mark.BYTES, 0))

    def tell(self, since: str, made: Mark) -> None:
        """Write who holds the lock, for the sentence that a second host gets, and how far the ledger has come."""
        entry = _holder(os.getpid(), made.host, since)[:-1] + f', "mark": {_told(vars(made))}}}'
        os.pwrite(self.fd, entry.encode().ljust(mark.BYTES), 0)

    def release(self) -> None:
        """Let go; every connection of this host is closed by then."""
        if self._file is not None:
            _held.discard(_id(os.fstat(self._file)))
            os.close(self._file)
        os.close(self.fd)

    def _taken(self) -> LedgerUnusable:
        try:
            entry = json.loads(os.pread(self.fd, mark.BYTES, 0))
            holder = f"process {entry['pid']} on {entry['machine']} (host {entry['host']}, since {entry['since']})"
        except (ValueError, KeyError, TypeError):
            holder = "another process"
        return LedgerUnusable(
            f"The ledger {self._ledger} is in use by {holder}. "
            "One file serves one host: stop that one first, or talk to it with the keep command."
        )


def _lock_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".lock")


def _id(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
