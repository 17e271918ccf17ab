"""What a database says about a table, and the checks of names that scripts give.

A name from a script reaches a statement only if it is in the list of keep.toml (tables) or in the database's own
catalog (columns). No other name may be used as an identifier.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from ...model.codec import INTEGER_MAX, Json
from ...model.errors import PreconditionFailed, Rejected
from ..kit.lenient_json import parse_json

T = TypeVar("T")
Cell: TypeAlias = None | int | float | str | bytes  # as the driver returns it; from PostgreSQL always text
Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True)
class Statement:
    """The text of a statement that Keep wrote, and its parameters."""

    text: str
    values: tuple[object, ...] = ()


#: Work in a transaction, independent of the driver: it yields statements, is sent their rows, and returns a result.
Steps: TypeAlias = Generator[Statement, list[Row], T]


@dataclass(frozen=True)
class Column:
    """A column, as the catalog describes it."""

    name: str
    kind: str  # its values in JSON: integer, number, decimal, text, boolean, json, bytes, moment, array, any
    type: str = ""  # the database's name for it
    exact: str = ""  # the same with its length or precision


@dataclass(frozen=True)
class Table:
    """A table, as the catalog describes it."""

    name: str  # as keep.toml and scripts write it
    columns: Mapping[str, Column]
    keys: tuple[tuple[str, ...], ...]  # the unique keys, the primary key first
    primary: tuple[str, ...]  # empty if there is none

    def column(self, name: str) -> Column:
        """The column of that name; otherwise `Rejected`."""
        if name not in self.columns:
            known = ", ".join(self.columns)
            raise Rejected(f"{self.name} has no column {name[:80]!r}. It has: {known}.")
        return self.columns[name]

    def chosen(self, names: Iterable[str]) -> list[Column]:
        """The columns of those names."""
        return [self.column(name) for name in names]

    def check_key(self, key: Mapping[str, Json]) -> None:
        """Refuse a key that could mean several rows."""
        self.chosen(key)
        if not any(set(unique) == set(key) for unique in self.keys):
            known = " or ".join(f"({', '.join(unique)})" for unique in self.keys)
            raise Rejected(f"key must be a unique key of {self.name}: {known or 'it has none'}.")
        empty = [name for name, value in key.items() if value is None]
        if empty:
            raise Rejected(f"key.{empty[0]} is null, which identifies no row.")

    def covered(self, values: Mapping[str, Json]) -> tuple[str, ...]:
        """The first unique key whose columns are all in `values`; empty if there is none."""
        named = {name for name, value in values.items() if value is not None}
        return next((unique for unique in self.keys if named.issuperset(unique)), ())


class Dialect(Protocol):
    """What differs between SQLite and PostgreSQL."""

    mark: str  # the placeholder of a parameter

    def quote(self, name: str) -> str:
        """A name as an identifier."""

    def catalog(self, table: str) -> Statement:
        """Asks for one cell of JSON about a table; no row, or null, if the table does not exist."""

    def select(self, column: Column) -> str:
        """A column in a list of results, as SQL."""

    def compared(self, column: Column) -> str:
        """A parameter that is compared with a column, as SQL."""

    def same(self, column: Column) -> str:
        """Whether a column holds what a parameter would become in it, as SQL."""

    def bind(self, column: Column, value: Json) -> object:
        """A JSON value as a parameter for a column; `Rejected` if it does not fit."""

    def read(self, column: Column, cell: Cell) -> Json:
        """A cell as JSON."""

    def begin_change(self, key: str) -> Statement | None:
        """The first statement of a change, so that `under_way` can see it."""

    def under_way(self, key: str) -> Statement | None:
        """Asks for one cell: 1 while a change with that key may still be committed."""

    def has_receipts(self) -> Statement:
        """Asks for one cell: 1 if the table of receipts exists."""


def carried(column: Column, value: float) -> Json:
    """A number as JSON. A whole number that JavaScript would round becomes a string; NaN is an error."""
    if not math.isfinite(value):
        raise PreconditionFailed(f"{column.name} holds {value}, which JSON cannot hold. Leave the column out.")
    return repr(value) if value == int(value) and abs(value) > INTEGER_MAX else value


def document(column: Column, text: str) -> Json:
    """The value of a JSON column."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise PreconditionFailed(f"{column.name} holds JSON that Keep cannot use: {error}.") from None


def look_up(dialect: Dialect, name: str, allowed: Sequence[str]) -> Steps[Table]:
    """The table that a script names, if keep.toml allows it and the database has it."""
    if name not in allowed:
        raise Rejected(f"Scripts may not use the table {name[:80]!r}. They may use: {', '.join(allowed)}.")
    rows = yield dialect.catalog(name)
    if not rows or rows[0][0] is None:
        raise PreconditionFailed(f"The database has no table {name!r}. Create it, or correct `tables` in keep.toml.")
    described: dict[str, Any] = json.loads(str(rows[0][0]))
    columns = {column["name"]: Column(**column) for column in described["columns"] or ()}
    keys = tuple(tuple(columns_of) for columns_of in described["keys"] or ())
    return Table(name, columns, keys, tuple(described["primary"] or ()))
