"""A disk that fails below SQLite: the methods of its open files are replaced by ones that can say no.

An apsw VFS cannot show what happens to an error that SQLite ignores, for whatever its Python code raises is raised by
apsw in any case. So the faults are put where a real disk has them, into the table of functions that SQLite itself
calls: the code goes back to SQLite, and only what SQLite makes of it reaches the ledger.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

_NAMES = (
    "close", "read", "write", "truncate", "sync", "file_size", "lock", "unlock", "check_reserved_lock", "file_control",
    "sector_size", "device_characteristics", "shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch",
)


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`."""

    _fields_ = [("version", ctypes.c_int), *((name, ctypes.c_void_p) for name in _NAMES)]


class _File(ctypes.Structure):
    """The head of every `sqlite3_file`."""

    _fields_ = [("methods", ctypes.POINTER(_Methods))]


_AT = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_KINDS: dict[str, Any] = {
    "read": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *_AT),
    "write": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *_AT),
    "truncate": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64),
    "sync": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
}


@dataclass(frozen=True)
class Fault:
    """What fails and how; `short` does half of a write first, `lasts` means that the disk does not get well."""

    act: str
    code: int
    short: bool = False
    lasts: bool = True


FAULTS: dict[str, Fault] = {
    "write fails": Fault("write", apsw.SQLITE_IOERR_WRITE),
    "write fails once": Fault("write", apsw.SQLITE_IOERR_WRITE, lasts=False),
    "disk full": Fault("write", apsw.SQLITE_FULL),
    "write cut short": Fault("write", apsw.SQLITE_FULL, short=True),
    "write cut short once": Fault("write", apsw.SQLITE_IOERR_WRITE, short=True, lasts=False),
    "read-only": Fault("write", apsw.SQLITE_READONLY),
    "sync fails": Fault("sync", apsw.SQLITE_IOERR_FSYNC),
    "sync fails once": Fault("sync", apsw.SQLITE_IOERR_FSYNC, lasts=False),
    "truncate fails": Fault("truncate", apsw.SQLITE_IOERR_TRUNCATE),
    "read fails once": Fault("read", apsw.SQLITE_IOERR_READ, lasts=False),
}


class Broken:
    """Sits under one connection; `calls` counts by act, and the `nth` call of the fault's act fails."""

    def __init__(self, fault: Fault | None = None, nth: int = 0) -> None:
        self.calls: Counter[str] = Counter()
        self.struck: str | None = None  # the file in which it struck
        self.on_struck: Callable[[str], None] | None = None
        self._fault, self._nth = fault, nth
        self._kept: list[Any] = []  # what C points to

    def attach(self, connection: apsw.Connection) -> None:
        """Replace the methods of the file and of its log; both must be open."""
        self._replace(connection, apsw.SQLITE_FCNTL_FILE_POINTER, "keep.db")
        self._replace(connection, apsw.SQLITE_FCNTL_JOURNAL_POINTER, "keep.db-wal")

    def break_down(self, fault: Fault, nth: int) -> None:
        """Fail at the nth call from now on."""
        self._fault, self._nth = fault, self.calls[fault.act] + nth

    def mend(self) -> None:
        """Work again."""
        self._fault = None

    @property
    def changes(self) -> int:
        """How often anything was done to the files, or tried."""
        return self.calls["write"] + self.calls["truncate"] + self.calls["sync"]

    def _replace(self, connection: apsw.Connection, which: int, name: str) -> None:
        found = ctypes.c_void_p()
        assert connection.file_control("main", which, ctypes.addressof(found))
        file = ctypes.cast(found, ctypes.POINTER(_File))
        methods = _Methods.from_buffer_copy(file.contents.methods.contents)
        for act, kind in _KINDS.items():
            stub = kind(self._stub(act, name, kind(getattr(methods, act))))
            setattr(methods, act, ctypes.cast(stub, ctypes.c_void_p).value)
            self._kept.append(stub)
        self._kept.append(methods)
        file.contents.methods = ctypes.pointer(methods)

    def _stub(self, act: str, name: str, real: Callable[..., int]) -> Callable[..., int]:
        def call(*args: int) -> int:
            self.calls[act] += 1
            if not self._fails(act):
                return real(*args)
            assert self._fault is not None
            if self.struck is None:
                self.struck = name
                if self.on_struck:
                    self.on_struck(name)
            if self._fault.short and args[2] > 1:
                real(args[0], args[1], args[2] // 2, args[3])
            return self._fault.code

        return call

    def _fails(self, act: str) -> bool:
        if self._fault is None or self._fault.act != act:
            return False
        return self.calls[act] == self._nth or (self._fault.lasts and self.calls[act] > self._nth)


class Closed(apsw.VFS):
    """A disk that fails while a ledger is being opened, when there are no files to put methods into yet.

    While it exists it is the default, so that every connection uses it."""

    def __init__(self, act: str, nth: int, error: type[apsw.Error]) -> None:
        self.calls: Counter[str] = Counter()
        self._act, self._nth, self._error = act, nth, error
        super().__init__("keep-closed", "unix", makedefault=True)

    @property
    def struck(self) -> bool:
        """Whether it has failed."""
        return self.calls[self._act] >= self._nth > 0

    def mend(self) -> None:
        """Work again."""
        self._act = ""

    def count(self, act: str) -> None:
        """Something is asked for: from the nth on it fails."""
        self.calls[act] += 1
        if act == self._act and self.struck:
            raise self._error("the disk failed")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        self.count("open")
        return ClosedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.count("delete")
        super().xDelete(filename, syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:
        self.count("access")
        return super().xAccess(pathname, flags)


class ClosedFile(apsw.VFSFile):
    """One file of such a disk."""

    def __init__(self, disk: Closed, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.count("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.count("write")
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.count("truncate")
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.count("sync")
        super().xSync(flags)

    def xFileSize(self) -> int:
        self._disk.count("size")
        return super().xFileSize()


#: What can fail while a ledger is opened.
OPENING: dict[str, tuple[str, type[apsw.Error]]] = {
    "open": ("open", apsw.CantOpenError), "read": ("read", apsw.IOError), "write": ("write", apsw.IOError),
    "full": ("write", apsw.FullError), "sync": ("sync", apsw.IOError), "truncate": ("truncate", apsw.IOError),
    "delete": ("delete", apsw.IOError), "access": ("access", apsw.IOError), "size": ("size", apsw.IOError),
}
