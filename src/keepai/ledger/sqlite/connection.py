"""Opening a ledger file: what must be true of it before anything is written, and running statements on it."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from ...model.clock import Ids
from ...model.errors import LedgerUnusable
from .. import stored_ids
from ..base import Row
from ..queries import load
from ..transaction import SharedTransaction

#: Older ones can corrupt a WAL file.
SQLITE_OLDEST = (3, 51, 3)

#: "KEEP": marks the file as ours.
APPLICATION_ID = 0x4B454550

_CHECKED_BYTES_MAX = 64 << 20
_BUSY_MS = 10_000
_PAGE_BYTES = 2048  # most of a run's pages change in a few places, and each goes into the log whole
_PREPARED_MAX = 400  # statements; more than there are, so that each is prepared once


def check_library(version: str | None = None) -> None:
    """Refuse a SQLite that can lose data."""
    found = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in found.split(".")[:3]) < SQLITE_OLDEST:
        oldest = ".".join(map(str, SQLITE_OLDEST))
        raise LedgerUnusable(
            f"SQLite {found} has a bug that can corrupt the ledger; Keep needs {oldest} or newer. "
            "Install a current apsw (pip install -U apsw), which brings its own SQLite."
        )


def library_version() -> str:
    """Which SQLite this is."""
    return str(apsw.sqlite_lib_version())


def open_file(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """A connection for writing to a file that is ours, whole, and not newer than this code."""
    check_library()
    if vfs is None and str(path) != ":memory:":
        _make_private(path)
    try:
        connection = apsw.Connection(str(path), vfs=vfs, statementcachesize=_PREPARED_MAX)
    except apsw.Error as error:
        raise unusable(error, path) from None
    try:
        settle(connection)
        _check_ours(connection, path)
        connection.execute(f"pragma page_size = {_PAGE_BYTES}")  # of a file that is made now; another keeps its own
        if _pragma(connection, "journal_mode = wal") != "wal" and str(path) != ":memory:":
            raise LedgerUnusable(f"{path} cannot use a write-ahead log here. Put it on a local disk.")
        connection.execute("pragma foreign_keys = on; pragma wal_autocheckpoint = 0; pragma synchronous = full")
    except apsw.Error as error:
        close_untouched(connection)
        raise unusable(error, path) from None
    except LedgerUnusable:
        close_untouched(connection)
        raise
    return connection


def settle(connection: apsw.Connection) -> None:
    """What holds for every connection. Plans must not depend on what is bound: where a partial index is in sight,
    SQLite would otherwise make the plan anew at each execution, which takes twenty times as long as the statement."""
    connection.set_busy_timeout(_BUSY_MS)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _make_private(path: Path) -> None:
    """A new ledger is its owner's alone, and so is its log, which gets the ledger's mode; an old one stays as it is."""
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError:
        return  # it exists, or opening it will say what is wrong


def close_untouched(connection: apsw.Connection) -> None:
    """Close a file that was refused without bringing its log into it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()


def open_reader(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """A connection that only looks; it waits for nobody and holds up nobody."""
    try:
        connection = apsw.Connection(
            str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs, statementcachesize=_PREPARED_MAX,
        )
    except apsw.Error as error:
        raise unusable(error, path) from None
    try:
        settle(connection)
        connection.execute("pragma query_only = on")
        _pragma(connection, "schema_version")  # so that its files are open now, and not when it is first needed
    except apsw.Error as error:
        close_untouched(connection)
        raise unusable(error, path) from None
    return connection


def _check_ours(connection: apsw.Connection, path: Path) -> None:
    if connection.readonly("main"):
        raise LedgerUnusable(
            f"{path} is read-only for this user. Keep must be able to write to it: change its permissions, "
            "or use another path."
        )
    empty = not _pragma(connection, "schema_version")
    if not empty and _pragma(connection, "application_id") != APPLICATION_ID:
        raise LedgerUnusable(f"{path} is a SQLite database of some other program. Name another file.")
    if not empty and str(path) != ":memory:" and path.stat().st_size <= _CHECKED_BYTES_MAX:
        found = _pragma(connection, "quick_check(1)")
        if found != "ok":
            raise LedgerUnusable(
                f"{path} is damaged ({str(found).splitlines()[-1]}). Stop here, keep a copy of the file and of "
                f"{path.name}-wal, and restore the newest backup."
            )


def unusable(error: apsw.Error, path: Path) -> LedgerUnusable:
    """An error of SQLite as a sentence that says what to do."""
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return LedgerUnusable(sentence.format(path=path, error=error))
    return LedgerUnusable(f"The ledger {path} failed: {error}. Look at the disk, then start again.")


_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.NotADBError, "{path} is not a Keep ledger: it is no SQLite database at all. Name another file."),
    (apsw.CorruptError, "{path} is damaged ({error}). Keep a copy of it and restore the newest backup."),
    (apsw.FullError, "The disk that holds {path} is full. Free some space, then start again: nothing was lost."),
    (apsw.ReadOnlyError, "{path} is read-only. Change its permissions or use another path."),
    (apsw.PermissionsError, "{path} may not be opened by this user. Change its permissions or use another path."),
    (apsw.CantOpenError, "{path} cannot be opened ({error}). Does its folder exist, and may you write there?"),
    (apsw.BusyError, "{path} is locked by another program for more than 10 s. Close that program, then start again."),
    (apsw.IOError, "The disk failed under {path} ({error}). Look at the disk, then start again."),
)


def _pragma(connection: apsw.Connection, text: str) -> Any:
    return connection.pragma(*_split(text)) if "=" in text else _first(connection, f"pragma {text}")


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _first(connection: apsw.Connection, text: str) -> Any:
    row = connection.execute(text).fetchone()
    return row[0] if row else None


#: A statement as SQLite is given it, and what picks its parameters.
Bare = tuple[str, stored_ids.Params]

_COMMENT, _PARAMETER = re.compile(r"--.*"), re.compile(r":(\w+)")


@cache
def bare(text: str) -> Bare:
    """A statement without its comments and breaks, its parameters numbered: at every execution apsw goes through the
    whole text, and would look up every name that stands in it."""
    names = list(dict.fromkeys(_PARAMETER.findall(_COMMENT.sub("", text))))
    numbered = _PARAMETER.sub(lambda found: f"?{names.index(found[1]) + 1}", " ".join(_COMMENT.sub("", text).split()))
    return numbered, stored_ids.parameters(tuple(names))


class Statements:
    """Runs named statements on one connection and gives rows as mappings."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute, self._cursor = connection.execute, connection.cursor
        self._texts = load()
        self._bare: dict[str, Bare] = {}
        self._rows: dict[str, stored_ids.Rows] = {}  # of each statement that gave a row

    def all(self, query: str, **params: object) -> list[Row]:
        """Every row."""
        text, picked = self._bare.get(query) or self._bared(query)
        cursor = self._execute(text, picked(params))
        rows = self._rows.get(query)
        if rows is not None:
            return rows(cursor.fetchall())  # type: ignore[return-value]
        first = cursor.fetchone()
        return [] if first is None else self._described(query, cursor)([first, *cursor])  # type: ignore[return-value]

    def one(self, query: str, **params: object) -> Row | None:
        """The first row, if any; statements that write are run to their end."""
        rows = self.all(query, **params)
        return rows[0] if rows else None

    def iterate(self, query: str, **params: object) -> Generator[Row]:
        """Row by row, as far as the caller reads; closing it ends the statement."""
        text, picked = self._bare.get(query) or self._bared(query)
        cursor = self._cursor()
        try:
            for values in cursor.execute(text, picked(params)):
                yield from (self._rows.get(query) or self._described(query, cursor))([values])
        finally:
            cursor.close()

    def _described(self, query: str, cursor: apsw.Cursor) -> stored_ids.Rows:
        """What makes the rows of a statement, which has just given one."""
        made = self._rows[query] = stored_ids.rows(tuple(column[0] for column in cursor.get_description()))
        return made

    def _bared(self, query: str) -> Bare:
        found = self._bare[query] = bare(self._texts[query])
        return found


class Transaction(Statements, SharedTransaction):
    """What a verb sees: statements, the moment, and who is writing."""

    def __init__(self, connection: apsw.Connection, ids: Ids, host: str, epoch: int) -> None:
        Statements.__init__(self, connection)
        SharedTransaction.__init__(self, ids, host, epoch)
        self.entry = 0
        cursor = connection.cursor()  # one for all: each is read to its end before the next
        self._execute, self._many = cursor.execute, cursor.executemany
        self._changes = connection.changes

    def run(self, query: str, **params: object) -> None:
        """Execute a change."""
        text, picked = self._bare.get(query) or self._bared(query)
        self._execute(text, picked(params))

    def hits(self, query: str, **params: object) -> int:
        """Execute a change, and say how many rows it hit; those that its triggers write do not count."""
        self.run(query, **params)
        return self._changes()

    def many(self, query: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a change once for each of these."""
        text, picked = self._bare.get(query) or self._bared(query)
        self._many(text, [picked(row) for row in rows])

    def values(self, query: str, **params: object) -> list[tuple[Any, ...]]:
        """Every row, as its columns in order and as they are kept: without ids."""
        text, picked = self._bare.get(query) or self._bared(query)
        return self._execute(text, picked(params)).fetchall()
