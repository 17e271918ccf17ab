"""Runs steps on an SQLite file: in a thread, on its own connection, in one transaction.

Until COMMIT, closing the connection undoes everything, so every failure before it is definite. The table `REFUSED`
translates an error; the place where it was raised says what it proves.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from ...model import crash_points
from ...model.codec import INTEGER_MAX, Json, encode
from ...model.errors import (
    ConfigError,
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
)
from ..kit.blocking import check_deadline, in_thread
from ..values import Call
from .catalog import Cell, Column, Row, Statement, Steps, carried, document
from .statement_writer import RECEIPTS

if TYPE_CHECKING:
    import apsw

T = TypeVar("T")

BUSY_S_MAX = 10.0
LENGTH_MAX = 16 << 20  #: bytes of one value or row
_STEPS = 2_000  #: steps of SQLite's virtual machine between two looks at the clock
_KEEP = 0x4B454550  #: the application id of a ledger of Keep, which is not an outside system

#: The name of apsw's error → ours. All of them are raised only before COMMIT, when nothing has happened.
REFUSED: Mapping[str, type[ConnectorError]] = MappingProxyType({
    "BusyError": Transient, "LockedError": Transient, "SchemaChangeError": Transient, "InterruptError": Transient,
    "NoMemError": Transient, "FullError": Transient, "IOError": Transient, "ProtocolError": Transient,
    "PermissionsError": PermissionDenied, "ReadOnlyError": PermissionDenied, "AuthError": PermissionDenied,
    "CantOpenError": PreconditionFailed, "NotADBError": PreconditionFailed, "CorruptError": PreconditionFailed,
    "FormatError": PreconditionFailed, "TooBigError": PreconditionFailed,
    "ConstraintError": Rejected, "MismatchError": Rejected, "SQLError": Rejected, "RangeError": Rejected,
})
#: Constraints that concern other rows, so that a person may be able to help.
_OF_THE_WORLD = ("UNIQUE", "FOREIGN KEY", "PRIMARY KEY")


def make_database(path: Path, statements: str) -> None:
    """Make a file with tables, for somebody who has none yet. `ConfigError` if it cannot be made."""
    import apsw

    try:
        with closing(apsw.Connection(str(path))) as database:
            database.execute(statements)
    except apsw.Error as error:
        raise ConfigError(f"{path} cannot be made: {error}.") from None


class SqliteDialect:
    """SQLite's words."""

    mark = "?"

    def quote(self, name: str) -> str:
        """A name as an identifier."""
        return '"' + name.replace('"', '""') + '"'

    def catalog(self, table: str) -> Statement:
        """Columns and unique keys. A name must be spelled as in the database."""
        return Statement(_CATALOG, (table, table, table, table, table))

    def select(self, column: Column) -> str:
        """A column in a list of results."""
        return self.quote(column.name)

    def compared(self, column: Column) -> str:
        """A parameter. SQLite gives it the affinity of the column beside it."""
        return self.mark

    def same(self, column: Column) -> str:
        """Whether a column holds what a parameter would become in it."""
        return f"{self.quote(column.name)} is {self.mark}"

    def bind(self, column: Column, value: Json) -> object:
        """A value of JSON as a parameter."""
        if value is None:
            return None
        if column.kind == "json":
            return encode(value)
        if column.kind == "bytes":
            return unpacked(column.name, value)
        if isinstance(value, list | dict):
            raise Rejected(f"{column.name} does not accept a list or an object; only a column of type JSON does.")
        return int(value) if isinstance(value, bool) else value

    def read(self, column: Column, cell: Cell) -> Json:
        """A cell as JSON. SQLite allows any value in any column."""
        if isinstance(cell, bytes):
            return base64.b64encode(cell).decode()
        if isinstance(cell, str):
            if column.kind == "bytes":
                return base64.b64encode(cell.encode()).decode()
            return document(column, cell) if column.kind == "json" else cell
        if column.kind == "boolean" and cell in (0, 1):
            return bool(cell)
        if isinstance(cell, int):
            return cell if abs(cell) <= INTEGER_MAX else str(cell)
        return carried(column, cell) if cell is not None else None

    def begin_change(self, key: str) -> Statement | None:
        """Nothing: only one change at a time can run in a file."""
        return None

    def under_way(self, key: str) -> Statement | None:
        """Nothing: only one connection at a time can write a file."""
        return None

    def has_receipts(self) -> Statement:
        """Asks whether the table of receipts exists."""
        return Statement("select count(*) from sqlite_schema where type = 'table' and name = ?", (RECEIPTS,))


class SqliteDatabase:
    """An SQLite file."""

    dialect = SqliteDialect()

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s

    async def read(self, steps: Steps[T], call: Call) -> T:
        """Run steps that only read."""
        return await in_thread(lambda: self._look(steps, call, write=False))

    async def look(self, steps: Steps[T], call: Call) -> T:
        """Run steps that only read, while nobody writes: a dying process may still be writing."""
        return await in_thread(lambda: self._look(steps, call, write=True))

    async def change(self, steps: Steps[T], call: Call) -> T:
        """Run steps and commit. Every error says correctly whether they took place."""
        return await in_thread(lambda: self._change(steps, call))

    def _look(self, steps: Steps[T], call: Call, *, write: bool) -> T:
        with refused("The database could not be read"), closing(self._open(call, write=write)) as db:
            db.execute("begin immediate" if write else "begin")
            return _driven(steps, db)

    def _change(self, steps: Steps[T], call: Call) -> T:
        with refused("Nothing was changed"):
            db = self._open(call, write=True)
        with closing(db):
            with refused("Nothing was changed"):
                db.execute("begin immediate")
                result = _driven(steps, db)
                db.set_progress_handler(None)
                check_deadline(call)
                crash_points.reach("sql.before_commit")
            _commit(db)
            crash_points.reach("sql.committed")
        return result

    def _open(self, call: Call, *, write: bool) -> apsw.Connection:
        import apsw

        if not self.path.is_file():
            raise PreconditionFailed(f"There is no database {self.path}. Keep never creates one.")
        flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
        db = apsw.Connection(str(self.path), flags=flags)
        try:
            self._prepare(db, call)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: apsw.Connection, call: Call) -> None:
        import apsw

        seconds = min(self.timeout_s, call.remaining_s)
        until = time.monotonic() + seconds
        db.set_busy_timeout(int(min(seconds, BUSY_S_MAX) * 1000))
        db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, LENGTH_MAX)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        db.execute("pragma trusted_schema = off")
        db.execute("pragma foreign_keys = on")
        if db.pragma("application_id") == _KEEP:
            raise PermissionDenied(f"{self.path} is a ledger of Keep, which scripts must not use.")


def _commit(db: apsw.Connection) -> None:
    """The only uncertain moment: before it nothing has happened, after it everything has."""
    import apsw

    try:
        db.execute("commit")
    except apsw.BusyError as error:  # readers block it; the transaction is still open, and is undone here
        db.execute("rollback")
        raise Transient(f"Nothing was changed: {error}.") from error
    except apsw.Error as error:
        raise OutcomeUnknown(f"The change may have been committed, but then: {error}.") from error


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Use around everything before COMMIT: every error of SQLite is a definite failure."""
    import apsw

    try:
        yield
    except apsw.Error as error:
        raise translated(error)(f"{message}: {error}.") from error


def translated(error: apsw.Error) -> type[ConnectorError]:
    """Our error for an error of SQLite."""
    name = type(error).__name__
    if name == "ConstraintError" and str(error).startswith(_OF_THE_WORLD):
        return PreconditionFailed
    return REFUSED.get(name, PreconditionFailed)


def unpacked(name: str, value: Json) -> bytes:
    """The bytes of a base64 text."""
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(f"{name} holds bytes: give them as base64.") from None


def _driven(steps: Steps[T], db: apsw.Connection) -> T:
    rows: list[Row] | None = None
    while True:
        try:
            statement = steps.send(rows) if rows is not None else next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        rows = [tuple(row) for row in db.execute(statement.text, statement.values)]


_CATALOG = """
select json_object(
  'columns', json((select json_group_array(json_object('name', c.name, 'type', c.type, 'kind', case
      when upper(c.type) like '%BOOL%' then 'boolean' when upper(c.type) like '%JSON%' then 'json'
      when upper(c.type) like '%BLOB%' then 'bytes' else 'any' end))
    from pragma_table_xinfo(?) c where c.hidden in (0, 2, 3))),
  'primary', json((select json_group_array(name) from
    (select c.name from pragma_table_xinfo(?) c where c.pk > 0 order by c.pk))),
  'keys', json((select json_group_array(json(columns)) from (
    select 0 as place, json_group_array(name) as columns from
      (select c.name from pragma_table_xinfo(?) c where c.pk > 0 order by c.pk) having count(*) > 0
    union all
    select 1, (select json_group_array(i.name) from pragma_index_info(l.name) i)
    from pragma_index_list(?) l
    where l."unique" and not l.partial and l.origin <> 'pk'
      and not exists (select 1 from pragma_index_info(l.name) i where i.name is null)
    order by place))))
from sqlite_schema s where s.type in ('table', 'view') and s.name = ?"""
