"""The write-ahead log as a file that can be synced by itself, while the connection that writes it goes on.

SQLite syncs its log inside a commit, and nothing else can use the connection until the disk has answered. So commits
leave the log unsynced, and here it is synced as SQLite would: by the method of the very file that SQLite has open.
"""

from __future__ import annotations

import ctypes

import apsw


class _Methods(ctypes.Structure):
    """The beginning of `sqlite3_io_methods`, which never changes."""

    _fields_ = (
        ("version", ctypes.c_int), ("close", ctypes.c_void_p), ("read", ctypes.c_void_p), ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p), ("sync", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)),
    )


class _SqliteFile(ctypes.Structure):
    """The beginning of `sqlite3_file`."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class Log:
    """The log of one connection, which has written to it; it lives as long as that."""

    def __init__(self, connection: apsw.Connection) -> None:
        found = ctypes.c_void_p()
        connection.file_control("main", apsw.SQLITE_FCNTL_JOURNAL_POINTER, ctypes.addressof(found))
        self._at = found.value
        self._file = ctypes.cast(found, ctypes.POINTER(_SqliteFile)).contents

    def sync(self) -> None:
        """Wait until everything that is in the log now is on disk; any thread may, and none has to wait for it."""
        methods = self._file.methods
        if not methods:
            return  # a ledger in memory has no log
        try:
            code = methods.contents.sync(self._at, apsw.SQLITE_SYNC_NORMAL)
        except SystemError as error:  # a file whose methods are Python's, and raised
            raise error.__cause__ or error from None
        if code:
            raise apsw.exception_for(code)
