"""The ledger's file, in memory: one connection for all hosts of a process, so that statements stay prepared.

Hosts come and go on it as on a file. What a death leaves is what was committed; what a power cut leaves is what was
there at the last synced commit. Older bytes are put back below SQLite, which sees a file that somebody else has
changed, with the same tables: it reads again and prepares nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw

from keepai.ledger.sqlite import connection as opening
from keepai.ledger.sqlite import store
from keepai.ledger.sqlite.migrate import migrate
from keepai.ledger.sqlite.write_ahead_log import Log

_CHANGES_MAX = 1 << 13  # that are made before older bytes come back: SQLite must not take its own count for theirs

#: An owner, an attribute of it, and what to put there for a while.
Patch = tuple[Any, str, Any]


@contextmanager
def replaced(patches: Sequence[Patch]) -> Iterator[None]:
    """Within it, every attribute is what its patch says."""
    saved = [(owner, attribute, owner.__dict__[attribute] if isinstance(owner, type) and attribute in owner.__dict__
              else getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, value in patches:
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for owner, attribute, value in reversed(saved):
            setattr(owner, attribute, value)


class Memory:
    """What the disk holds, and what it would hold after a power cut."""

    def __init__(self, name: str = "/ledger", tables: str = "") -> None:
        """`tables` are what it has beside those of a ledger."""
        self._empty = _empty(tables)
        image, flags = self._empty, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_MAIN_DB
        self._file = apsw.VFSFile("memdb", name, [flags, 0])
        self._file.xWrite(image, 0)
        self._changes = 0
        self.connection = apsw.Connection(name, vfs="memdb", statementcachesize=1000)
        opening.settle(self.connection)
        self.connection.execute("pragma foreign_keys = on; pragma synchronous = full")
        self.has_power_cuts = True
        self.synced = image

    def cut(self) -> None:
        """The power fails: what was not synced is gone."""
        self.let_go()
        self._changes = (self._changes + _CHANGES_MAX) % (1 << 32)
        mark = self._changes.to_bytes(4, "big")
        self._file.xWrite(self.synced[:24] + mark + self.synced[28:92] + mark + self.synced[96:], 0)
        self._file.xTruncate(len(self.synced))

    def let_go(self) -> None:
        """The process dies: what was not committed is gone."""
        if self.connection.in_transaction:
            self.connection.execute("rollback")

    def reset(self, *, has_power_cuts: bool) -> None:
        """An empty ledger again."""
        self.has_power_cuts = has_power_cuts
        self.synced = self._empty
        self.cut()

    def _sync(self) -> None:
        if not self.has_power_cuts:
            return
        self.synced = self._file.xRead(self._file.xFileSize(), 0)

    def _beginning(self, begin: Callable[..., None]) -> Callable[..., None]:
        def begun(ledger: Any, accept_older: bool) -> None:
            begin(ledger, accept_older)
            self._sync()

        return begun

    def patches(self) -> list[Patch]:
        """What opens a file opens this."""
        return [
            (store, "open_file", lambda path, vfs=None: self.connection),
            (store, "open_reader", lambda path, vfs=None: self.connection),
            (store, "migrate", lambda connection, path: None),
            (store, "close_untouched", lambda connection: None),
            (store.SqliteLedger, "_let_go", lambda ledger: None),
            (store.SqliteLedger, "_begin", self._beginning(store.SqliteLedger._begin)),
            (store.SqliteLedger, "_take_file", lambda ledger, lock, accept_older: None),
            (Log, "sync", lambda log: self._sync()),
        ]


@lru_cache(maxsize=2)
def _empty(tables: str) -> bytes:
    """A ledger with its tables and nothing in them."""
    connection = opening.open_file(Path(":memory:"))
    migrate(connection, Path(":memory:"))
    connection.execute(tables)
    return connection.serialize("main")
