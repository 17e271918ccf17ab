"""The steps of each operation, which run alike on every database: reads, changes, and the look-up afterwards.

How a change is found again, best first: by a receipt, written in the same transaction; by a marker column, which holds
the key of the insert; by the unique key of an inserted row. Without any of these it cannot be found: a row with the
values of an update may have them for any reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from ...model.codec import Json, stored
from ...model.errors import PreconditionFailed, Rejected
from ..kit.pages import PAGE_BYTES, size_of
from ..values import Page, Verdict
from . import statement_writer
from .catalog import Column, Dialect, Row, Steps, Table, look_up
from .statement_writer import SortColumn, StatementWriter

T = TypeVar("T")
Values = Mapping[str, Json]

CHUNK = 100  #: rows that are read at once
NO_TRACE = (
    "Nothing in the database shows whether Keep or somebody else made this insert. Look at the table. "
    "With `receipts = true` in keep.toml, or with a unique key among the values, Keep could tell."
)


@dataclass(frozen=True)
class TableSettings:
    """What keep.toml says about the tables of a database."""

    dialect: Dialect
    tables: tuple[str, ...]
    marker: str = ""  # the column that holds the key of an insert
    receipts: bool = False  # whether the table of receipts may be made and written

    def table(self, name: str) -> Steps[StatementWriter]:
        """The writer of statements for a table."""
        return StatementWriter(self.dialect, (yield from look_up(self.dialect, name, self.tables)))


# Reading


@dataclass(frozen=True)
class RowQuery:
    """Which rows a script asks for."""

    table: str
    columns: list[str] | None
    where: Values
    order: list[str]
    limit: int
    after: str | None


def query(rules: TableSettings, row_query: RowQuery) -> Steps[Page[dict[str, Json]]]:
    """Rows up to a number and a size, and the cursor of the next ones."""
    write = yield from rules.table(row_query.table)
    shown = write.table.chosen(row_query.columns if row_query.columns is not None else write.table.columns)
    order = write.order(row_query.order)
    columns = list({column.name: column for column in [*shown, *(o.column for o in order)]}.values())
    rows_shown: list[dict[str, Json]] = []
    size, cursor, more = 0, row_query.after, True
    while more and len(rows_shown) < row_query.limit and size < PAGE_BYTES:
        count = min(CHUNK, row_query.limit - len(rows_shown)) if write.table.primary else row_query.limit
        rows = yield from _chunk(write, row_query, columns, order, cursor, count)
        more = len(rows) > count
        for row in rows[:count]:
            rows_shown.append({column.name: row[column.name] for column in shown})
            size += size_of(rows_shown[-1])
            cursor = write.cursor(order, row) if write.table.primary else None
            if size >= PAGE_BYTES:
                more = more or row is not rows[-1]
                break
        if not write.table.primary:
            break
    return Page(rows_shown, lastCursor=cursor, more=more)


def _chunk(
    write: StatementWriter, row_query: RowQuery, columns: list[Column], order: list[SortColumn], cursor: str | None,
    count: int,
) -> Steps[list[dict[str, Json]]]:
    where = write.conditions(row_query.where)
    if cursor is not None:
        if not write.table.primary:
            raise Rejected(f"{row_query.table} has no primary key, so `after` cannot be used with it.")
        where.append(write.after(order, cursor))
    rows = yield write.query(columns, where, order, count + 1)
    return [_shown(write, columns, row) for row in rows]


def get(rules: TableSettings, table: str, key: Values) -> Steps[dict[str, Json] | None]:
    """The row that has a key, or None."""
    write = yield from rules.table(table)
    write.table.check_key(key)
    columns = list(write.table.columns.values())
    rows = yield write.query(columns, write.equal(key), (), 1)
    return _shown(write, columns, rows[0]) if rows else None


# Changing


def once(rules: TableSettings, key: str, change: Steps[Json]) -> Steps[Json]:
    """Make a change under its idempotency key. With receipts, a second one finds the result of the first."""
    first = rules.dialect.begin_change(key)
    if first is not None:
        yield first
    if not rules.receipts:
        return (yield from change)
    rows = yield from _receipt(rules, key)
    if rows is None:
        yield statement_writer.MAKE_RECEIPTS
    if rows:
        return stored(str(rows[0][0]))
    result = yield from change
    yield statement_writer.keep_receipt(rules.dialect, key, result)
    return result


def insert(rules: TableSettings, table: str, key: Values, values: Values, idempotency_key: str) -> Steps[Json]:
    """Insert a row. If it already exists, refuse, unless it can only be this one."""
    write = yield from rules.table(table)
    row = _checked(rules, write.table, key, values)
    if rules.marker:
        marked = yield from _marked(rules, write, idempotency_key)
        if marked is not None:
            return marked
        row[rules.marker] = idempotency_key
    rows = yield write.insert(row, " on conflict do nothing")
    if rows:
        return _result(write, key, rows[0])
    earlier = None if rules.marker or rules.receipts else (yield from _equal(write, row))
    if isinstance(earlier, Equal):
        return _result(write, key, earlier.cells)
    raise PreconditionFailed(f"{table} already has a row with this key: {_listed(key or values)}.")


def update(rules: TableSettings, table: str, key: Values, values: Values, expect: Values) -> Steps[Json]:
    """New values for one row, if it is as expected."""
    write = yield from rules.table(table)
    write.table.check_key(key)
    if not values:
        raise Rejected("values is empty: there is nothing to update.")
    _checked(rules, write.table, {}, values)
    rows = yield write.update(key, values, expect)
    if rows:
        return _result(write, key, rows[0])
    there = yield write.find(key)
    if there and expect:
        raise PreconditionFailed(f"The row of {table} with {_listed(key)} is not as expected: {_listed(expect)}.")
    raise PreconditionFailed(f"{table} has no row with {_listed(key)}.")


def upsert(rules: TableSettings, table: str, key: Values, values: Values) -> Steps[Json]:
    """A row with these values, new or not."""
    write = yield from rules.table(table)
    write.table.check_key(key)
    _checked(rules, write.table, key, values)
    rows = yield write.upsert(key, values)
    if not rows:
        raise PreconditionFailed(f"The database did not store the row in {table}: {_listed(key)}.")
    return _result(write, key, rows[0])


# Looking up


def find_insert(rules: TableSettings, table: str, key: Values, values: Values, idempotency_key: str) -> Steps[Verdict]:
    """What an insert did."""
    known = yield from _known(rules, idempotency_key)
    if known is not None and known.status != "failed":
        return known
    write = yield from rules.table(table)
    row = _checked(rules, write.table, key, values)
    if rules.marker:
        result = yield from _marked(rules, write, idempotency_key)
        return Verdict.applied(result) if result is not None else Verdict.failed()
    if known is not None and not write.table.covered(row):
        return known
    existing = yield from _equal(write, row)
    if existing is None:
        return Verdict.failed()
    if isinstance(existing, str):
        return Verdict.unknown(existing)
    if known is not None:
        return Verdict.unknown(f"{table} has this row, but no receipt for it: somebody else may have written it.")
    return Verdict.applied(_result(write, key, existing.cells))


def find_change(rules: TableSettings, idempotency_key: str) -> Steps[Verdict]:
    """What an update or an upsert did. Only a receipt can tell; without receipts it is not looked up."""
    known = yield from _known(rules, idempotency_key)
    assert known is not None
    return known


def _known(rules: TableSettings, key: str) -> Steps[Verdict | None]:
    """What the server and the receipts say; None if they say nothing."""
    statement = rules.dialect.under_way(key)
    if statement is not None and int(str((yield statement)[0][0])):
        return Verdict.retry(after=1)
    if not rules.receipts:
        return None
    rows = yield from _receipt(rules, key)
    return Verdict.applied(stored(str(rows[0][0]))) if rows else Verdict.failed()


# Parts


@dataclass(frozen=True)
class Equal:
    """An existing row with the values that should be inserted: its primary key."""

    cells: Row


def _receipt(rules: TableSettings, key: str) -> Steps[list[Row] | None]:
    """The receipt of a key; None if there is no table of receipts."""
    exists = yield rules.dialect.has_receipts()
    if not int(str(exists[0][0])):
        return None
    return (yield statement_writer.receipt(rules.dialect, key))


def _marked(rules: TableSettings, write: StatementWriter, key: str) -> Steps[Json]:
    """The result of the insert that wrote this marker; None if there is none."""
    if (rules.marker,) not in write.table.keys:
        raise PreconditionFailed(
            f"{write.table.name} needs a column {rules.marker!r} with a unique index, as `marker` in keep.toml says."
        )
    rows = yield write.find({rules.marker: key})
    return _result(write, {}, rows[0]) if rows else None


def _equal(write: StatementWriter, row: Values) -> Steps[Equal | str | None]:
    """The row with the unique key of `row` and the same values; else why Keep cannot tell; None if it is missing."""
    names = write.table.covered(row)
    if not names:
        return NO_TRACE
    rows = yield write.compare({name: row[name] for name in names}, row)
    if not rows:
        return None
    if int(str(rows[0][0])):
        return Equal(rows[0][1:])
    return f"{write.table.name} has a row with {_listed({n: row[n] for n in names})}, but with other content."


def _checked(rules: TableSettings, table: Table, key: Values, values: Values) -> dict[str, Json]:
    """Key and values as one row. Refuses what a script must not set."""
    if key:
        table.check_key(key)
    table.chosen(values)
    both = sorted(key.keys() & values.keys())
    if both or rules.marker in {*key, *values}:
        name = both[0] if both else rules.marker
        raise Rejected(f"{name} is both in key and in values." if both else f"{name} is Keep's own column.")
    return {**key, **values}


def _result(write: StatementWriter, key: Values, cells: Row) -> Json:
    """The result of a change: the primary key of its row; without one, the key that was given."""
    if not write.table.primary:
        return {"key": dict(key)}
    return {"key": _shown(write, write.table.chosen(write.table.primary), cells)}


def _shown(write: StatementWriter, columns: list[Column], cells: Row) -> dict[str, Json]:
    return {column.name: write.dialect.read(column, cell) for column, cell in zip(columns, cells, strict=True)}


def _listed(values: Values) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())[:300]


def run_check(rules: TableSettings) -> Steps[None]:
    """Check that every table exists, and has what Keep needs."""
    for name in rules.tables:
        write = yield from rules.table(name)
        if rules.marker and (rules.marker,) not in write.table.keys:
            raise PreconditionFailed(f"{name} needs a column {rules.marker!r} with a unique index, or no `marker`.")
