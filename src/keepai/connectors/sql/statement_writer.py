"""Turns data into statements: every name comes from the catalog and is quoted, every value is a parameter.

Nothing here talks to a database. A script's text never becomes part of a statement's text.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...model.codec import Json, encode
from ...model.errors import Rejected
from .catalog import Column, Dialect, Statement, Table

IN_MAX = 1_000
CONDITIONS_MAX = 50
RECEIPTS = "keep_applied"  #: the table of what was applied, by idempotency key
_COMPARISONS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
OPERATORS = (*_COMPARISONS, "in", "like")


@dataclass(frozen=True)
class SortColumn:
    """One column that rows are sorted by."""

    column: Column
    down: bool


@dataclass(frozen=True)
class SqlFragment:
    """A piece of a statement with its values."""

    text: str
    values: tuple[object, ...] = ()


class StatementWriter:
    """Writes the statements of one table."""

    def __init__(self, dialect: Dialect, table: Table) -> None:
        self.dialect = dialect
        self.table = table
        self.name = ".".join(dialect.quote(part) for part in table.name.split("."))

    # -- reading -----------------------------------------------------------------------------------

    def query(
        self, columns: Sequence[Column], where: Sequence[SqlFragment], order: Sequence[SortColumn], limit: int,
    ) -> Statement:
        """Rows that meet all conditions. Rows without a value come last."""
        text = f"select {self._list(columns)} from {self.name}{self._where(where)}"
        if order:
            quote = self.dialect.quote
            sorts = [f"{quote(sort.column.name)} {'desc' if sort.down else 'asc'} nulls last" for sort in order]
            text += f" order by {', '.join(sorts)}"
        return Statement(f"{text} limit {int(limit)}", self._values(where))

    def conditions(self, where: Mapping[str, Json]) -> list[SqlFragment]:
        """Conditions as a script gives them: a value, or an object of operators."""
        parts = []
        for name, condition in where.items():
            column = self.table.column(name)
            operators = condition if isinstance(condition, dict) else {"=": condition}
            parts += [self._condition(column, operator, value) for operator, value in operators.items()]
        if len(parts) > CONDITIONS_MAX:
            raise Rejected(f"where has {len(parts)} conditions; at most {CONDITIONS_MAX} are allowed.")
        return parts

    def order(self, names: Iterable[str]) -> list[SortColumn]:
        """What rows are sorted by: the wanted columns, then the primary key, so that the order is unique."""
        columns = {name.removeprefix("-"): name.startswith("-") for name in names}
        for name in self.table.primary:
            columns.setdefault(name, False)
        return [SortColumn(self.table.column(name), down) for name, down in columns.items()]

    def after(self, order: Sequence[SortColumn], cursor: str) -> SqlFragment:
        """Rows that come after the row of a cursor."""
        passed = _opened(cursor, self.table.name, self._sorted(order))
        fragments: list[SqlFragment] = []
        level: list[SqlFragment] = []
        for column, value in zip(order, passed, strict=True):
            fragments.append(_all([*level, self._beyond(column, value)]))
            level.append(self._equals(column.column, value))
        return SqlFragment(f"({' or '.join(fragment.text for fragment in fragments)})", self._values(fragments))

    def cursor(self, order: Sequence[SortColumn], row: Mapping[str, Json]) -> str:
        """The cursor after a row."""
        text = encode([self.table.name, self._sorted(order), [row[column.column.name] for column in order]])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    # -- writing -----------------------------------------------------------------------------------

    def insert(self, values: Mapping[str, Json], more: str) -> Statement:
        """A new row; `more` says what to do if it already exists."""
        columns = self.table.chosen(values)
        names = ", ".join(self.dialect.quote(column.name) for column in columns)
        marks = ", ".join(self.dialect.mark for _ in columns)
        row = f"({names}) values ({marks})" if columns else "default values"
        text = f"insert into {self.name} {row}{more} returning {self._primary()}"
        return Statement(text, self._bound(values))

    def upsert(self, key: Mapping[str, Json], values: Mapping[str, Json]) -> Statement:
        """A new row, or new values for the one that has its key."""
        quote = self.dialect.quote
        changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in values or key)
        names = ", ".join(quote(name) for name in key)
        return self.insert({**key, **values}, f" on conflict ({names}) do update set {changes}")

    def update(self, key: Mapping[str, Json], values: Mapping[str, Json], expect: Mapping[str, Json]) -> Statement:
        """New values for the row that has its key and is as expected."""
        changes = ", ".join(f"{self.dialect.quote(name)} = {self.dialect.mark}" for name in values)
        where = self.equal({**key, **expect})
        text = f"update {self.name} set {changes}{self._where(where)} returning {self._primary()}"
        return Statement(text, (*self._bound(values), *self._values(where)))

    def find(self, key: Mapping[str, Json]) -> Statement:
        """The primary key of the row that has a key."""
        where = self.equal(key)
        return Statement(f"select {self._primary()} from {self.name}{self._where(where)} limit 2", self._values(where))

    def compare(self, key: Mapping[str, Json], values: Mapping[str, Json]) -> Statement:
        """The primary key of the row with a key, and before it 1 if the row holds `values`."""
        same = [SqlFragment(self.dialect.same(self.table.column(n)), (self._bind(n, v),)) for n, v in values.items()]
        holds, where = _all(same), self.equal(key)
        text = f"select case when {holds.text} then 1 else 0 end, {self._primary()} from {self.name}"
        return Statement(f"{text}{self._where(where)}", (*holds.values, *self._values(where)))

    def equal(self, values: Mapping[str, Json]) -> list[SqlFragment]:
        """Conditions that columns hold exactly these values."""
        return [self._equals(self.table.column(name), value) for name, value in values.items()]

    # -- pieces ------------------------------------------------------------------------------------

    def _condition(self, column: Column, operator: str, value: Json) -> SqlFragment:
        name = self.dialect.quote(column.name)
        if value is None and operator in ("=", "!="):
            return SqlFragment(f"{name} is {'not ' if operator == '!=' else ''}null")
        if operator in _COMPARISONS and value is not None:
            comparison = f"{name} {_COMPARISONS[operator]} {self.dialect.compared(column)}"
            return SqlFragment(comparison, (self.dialect.bind(column, value),))
        if operator == "in" and isinstance(value, list) and 0 < len(value) <= IN_MAX and None not in value:
            marks = ", ".join(self.dialect.compared(column) for _ in value)
            return SqlFragment(f"{name} in ({marks})", tuple(self.dialect.bind(column, item) for item in value))
        if operator == "like" and isinstance(value, str) and "\0" not in value:
            return SqlFragment(f"cast({name} as text) like {self.dialect.mark} escape '\\'", (value,))
        raise Rejected(
            f"where.{column.name}: {operator[:20]!r} with this value is not a condition. The operators are "
            f"{', '.join(OPERATORS)}; `in` takes 1 to {IN_MAX:,} values, `like` takes text; null goes with = and !=."
        )

    def _beyond(self, order: SortColumn, value: Json) -> SqlFragment:
        """Rows after a value. Rows without a value are last in both directions."""
        name = self.dialect.quote(order.column.name)
        if value is None:
            return SqlFragment("1 = 0")
        sign = "<" if order.down else ">"
        compared = f"{name} {sign} {self.dialect.compared(order.column)}"
        return SqlFragment(f"({compared} or {name} is null)", (self.dialect.bind(order.column, value),))

    def _equals(self, column: Column, value: Json) -> SqlFragment:
        name = self.dialect.quote(column.name)
        if value is None:
            return SqlFragment(f"{name} is null")
        return SqlFragment(f"{name} = {self.dialect.compared(column)}", (self.dialect.bind(column, value),))

    def _sorted(self, order: Sequence[SortColumn]) -> list[Json]:
        return [f"{'-' if column.down else ''}{column.column.name}" for column in order]

    def _list(self, columns: Iterable[Column]) -> str:
        return ", ".join(self.dialect.select(column) for column in columns)

    def _primary(self) -> str:
        return self._list(self.table.chosen(self.table.primary)) or "1"

    def _where(self, parts: Sequence[SqlFragment]) -> str:
        return f" where {_all(parts).text}" if parts else ""

    def _values(self, parts: Iterable[SqlFragment]) -> tuple[object, ...]:
        return tuple(value for part in parts for value in part.values)

    def _bind(self, name: str, value: Json) -> object:
        return self.dialect.bind(self.table.column(name), value)

    def _bound(self, values: Mapping[str, Json]) -> tuple[object, ...]:
        return tuple(self._bind(name, value) for name, value in values.items())


# Receipts


#: Makes the table of receipts. A receipt is written in the transaction of its change, so both exist or neither does.
MAKE_RECEIPTS = Statement(
    f"create table {RECEIPTS} (idempotency_key text primary key, result text not null, at text not null)"
)


def receipt(dialect: Dialect, key: str) -> Statement:
    """The stored result for a key."""
    return Statement(f"select result from {RECEIPTS} where idempotency_key = {dialect.mark}", (key,))


def keep_receipt(dialect: Dialect, key: str, result: Json) -> Statement:
    """Store the result of a change."""
    mark = dialect.mark
    return Statement(
        f"insert into {RECEIPTS} (idempotency_key, result, at) "
        f"values ({mark}, {mark}, cast(current_timestamp as text))",
        (key, encode(result)),
    )


def _all(parts: Sequence[SqlFragment]) -> SqlFragment:
    text = " and ".join(part.text for part in parts) or "1 = 1"
    return SqlFragment(text if len(parts) < 2 else f"({text})", tuple(v for part in parts for v in part.values))


def _opened(cursor: str, table: str, order: list[Json]) -> list[Json]:
    """The values of a cursor; `Rejected` if it was made for another order."""
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        made_for, sorted_by, values = json.loads(data)
        if made_for == table and sorted_by == order and isinstance(values, list) and len(values) == len(order):
            return values
    except (ValueError, TypeError, binascii.Error):
        pass
    raise Rejected("after must be a lastCursor that query returned for the same table and order.")
