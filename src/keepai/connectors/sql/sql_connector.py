"""The connector `sql`: tables of an SQLite file or of a PostgreSQL database, for scripts that cannot write SQL.

Names are checked against keep.toml and the database's catalog; values are parameters. `sqlite` and `postgres`, which
send COMMIT, decide what a lost answer means. `row_changes` decides what can be found out afterwards.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NotRequired, TypedDict, cast
from urllib.parse import parse_qs, urlsplit

from ...model.codec import Json, canonical
from ...model.errors import ConfigError, ConnectorError, PermissionDenied
from ...model.operations import Kind
from ...model.visible_text import described
from ..base import Call, Comparison, Connector, OperationSpec, Page, Verdict, mutation, read
from ..kit.pages import checked_limit
from . import postgres_connection, row_changes
from .catalog import Steps
from .postgres import PostgresDatabase
from .row_changes import RowQuery, TableSettings
from .sqlite import SqliteDatabase
from .statement_writer import RECEIPTS

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
TIMEOUT_S_MAX = 600
#: For how long a receipt is honoured. Keep never deletes one.
FOR_EVER_S = 10 * 365 * 86_400.0


class QueryRows(TypedDict):
    """Which rows; `where` maps a column to a value or to operators: `{ total: { ">": 10 } }`."""

    table: str
    columns: NotRequired[list[str] | None]
    where: NotRequired[dict[str, Any] | None]
    order: NotRequired[list[str] | None]  # "-due" sorts downwards
    limit: NotRequired[int | None]
    after: NotRequired[str | None]  # a `lastCursor`


class GetTableRow(TypedDict):
    """Which row: the columns of a unique key with their values."""

    table: str
    key: dict[str, Any]


class InsertRow(TypedDict):
    """A new row: its unique key, unless the database makes it, and its other values."""

    table: str
    key: NotRequired[dict[str, Any] | None]
    values: dict[str, Any]


class UpdateTableRow(TypedDict):
    """New values for the row with a key, if `expect` still holds."""

    table: str
    key: dict[str, Any]
    values: dict[str, Any]
    expect: NotRequired[dict[str, Any] | None]


class UpsertRow(TypedDict):
    """A row with a key and values, whether or not it exists already."""

    table: str
    key: dict[str, Any]
    values: dict[str, Any]


class ChangedRow(TypedDict):
    """The row that was changed: its primary key."""

    key: dict[str, Any]


class Sql(Connector):
    """Tables of an SQLite file or a PostgreSQL database: `type = "sql"`.

    With `receipts` every mutation has class A. Without, an insert is looked up by `marker` or by a unique key among
    its values (class B); an update or an upsert cannot be looked up (class C).

    tables: the tables that scripts may use; nothing else of the database
    path: an existing SQLite file
    url: a PostgreSQL database, such as postgresql://user@host/name; never with a password
    marker: a column with a unique index that holds the key of each insert
    receipts: whether Keep may make a table keep_applied and write to it, in the transaction of each change
    timeout: how many seconds one call may take
    """

    name = "sql"
    input_types = ("row",)
    secrets: ClassVar[Mapping[str, str]] = MappingProxyType({
        "password": "The password of the PostgreSQL user; SQLite needs none.",
    })

    def __init__(
        self, tables: list[str], *, path: str | os.PathLike[str] = "", url: str = "", marker: str = "",
        receipts: bool = False, timeout: float = 30, name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if bool(path) == bool(url):
            raise ConfigError("sql needs either `path`, an SQLite file, or `url`, such as postgresql://user@host/name.")
        if not 0 < timeout <= TIMEOUT_S_MAX:
            raise ConfigError(f"timeout must be more than 0 and at most {TIMEOUT_S_MAX} seconds, not {timeout}.")
        if not tables or RECEIPTS in [table.rpartition(".")[2] for table in tables]:
            raise ConfigError(f"tables must name the tables that scripts may use, and not {RECEIPTS}.")
        self._database: SqliteDatabase | PostgresDatabase
        if url:
            self.account = _checked_url(url)
            self._database = PostgresDatabase(self.name, url, timeout, self._password)
        else:
            self.path = Path(path).expanduser().absolute()
            self.account = str(self.path)
            self.secrets = MappingProxyType({})  # type: ignore[misc]
            self._database = SqliteDatabase(self.path, timeout)
        self._rules = TableSettings(self._database.dialect, tuple(tables), marker, receipts)

    @cached_property
    def operations(self) -> Mapping[str, OperationSpec]:
        """Script name → operation. With receipts every key is honoured; without, only inserts can be looked up."""
        known: Mapping[str, OperationSpec] = Connector.operations.func(self)  # type: ignore[attr-defined]
        return MappingProxyType({name: self._as_set(spec) for name, spec in known.items()})

    def _as_set(self, spec: OperationSpec) -> OperationSpec:
        spec = replace(spec, choices={"table": self._rules.tables})
        if spec.kind is not Kind.MUTATION:
            return spec
        if self._rules.receipts:
            return replace(spec, key_window_s=FOR_EVER_S)
        return spec if spec.name == "insert" else replace(spec, reconciler=None)

    async def check(self) -> None:
        """Check that the login works and that the tables exist."""
        await self._database.read(row_changes.run_check(self._rules), Call())

    @read
    async def query(self, params: QueryRows, call: Call) -> Page[dict[str, Any]]:
        """Rows in order; `more` says whether some follow, `lastCursor` is where they begin."""
        limit = checked_limit(params.get("limit") or None, LIMIT_DEFAULT, LIMIT_MAX)
        row_query = RowQuery(
            params["table"], params.get("columns"), params.get("where") or {}, params.get("order") or [], limit,
            params.get("after"),
        )
        return await self._database.read(row_changes.query(self._rules, row_query), call)

    @read(by_id=True)
    async def get(self, params: GetTableRow, call: Call) -> dict[str, Any] | None:
        """One row, or null if it does not exist."""
        return await self._database.read(row_changes.get(self._rules, params["table"], params["key"]), call)

    @mutation(identity=("table", "key"), target="table", settle=0)
    async def insert(self, params: InsertRow, call: Call) -> ChangedRow:
        """Add a row."""
        key, values = params.get("key") or {}, params["values"]
        steps = row_changes.insert(self._rules, params["table"], key, values, call.idempotency_key)
        return await self._once(steps, call)

    @insert.reconcile
    async def find_inserted(self, params: InsertRow, call: Call) -> Verdict:
        """Look for the receipt, the marker or the unique key."""
        key, values = params.get("key") or {}, params["values"]
        return await self._look_up(
            row_changes.find_insert(self._rules, params["table"], key, values, call.idempotency_key), call)

    @insert.preview
    def say_insert(self, params: InsertRow) -> str:
        """What will be inserted."""
        return described(f"Insert into {params['table']}", {**(params.get("key") or {}), **params["values"]})

    @mutation(identity=("table", "key"), target="table", settle=0)
    async def update(self, params: UpdateTableRow, call: Call) -> ChangedRow:
        """Change one row."""
        steps = row_changes.update(
            self._rules, params["table"], params["key"], params["values"], params.get("expect") or {})
        return await self._once(steps, call)

    @update.preview
    def say_update(self, params: UpdateTableRow) -> str:
        """What will be changed."""
        text = described(f"Update {params['table']} where {_keyed(params['key'])}", params["values"])
        return f"{text} (only if {_keyed(params['expect'] or {})})" if params.get("expect") else text

    @mutation(identity=("table", "key"), target="table", settle=0)
    async def upsert(self, params: UpsertRow, call: Call) -> ChangedRow:
        """Add a row, or change the one that has its key."""
        return await self._once(row_changes.upsert(self._rules, params["table"], params["key"], params["values"]), call)

    @update.reconcile
    @upsert.reconcile
    async def find_changed(self, params: UpdateTableRow | UpsertRow, call: Call) -> Verdict:
        """Look for the receipt."""
        return await self._look_up(row_changes.find_change(self._rules, call.idempotency_key), call)

    @upsert.preview
    def say_upsert(self, params: UpsertRow) -> str:
        """The row that will exist."""
        return described(f"Insert or update {params['table']} where {_keyed(params['key'])}", params["values"])

    @insert.compare_payload
    @update.compare_payload
    @upsert.compare_payload
    def compare_values(self, old: Json, new: Json) -> Comparison:
        """Equivalent if every value is. 12.5 and "12.50" are, because only a column of numbers accepts both."""
        return "equivalent" if _alike(old, new) else "significant"

    async def _once(self, change: Steps[Json], call: Call) -> ChangedRow:
        steps = row_changes.once(self._rules, call.idempotency_key, change)
        return cast(ChangedRow, await self._database.change(steps, call))

    async def _look_up(self, steps: Steps[Verdict], call: Call) -> Verdict:
        """A verdict. If the database cannot be reached, ask again later."""
        try:
            return await self._database.look(steps, call)
        except ConnectorError as error:
            call.log(f"The database could not be asked: {error.message}")
            return Verdict.retry()

    def _password(self) -> str | None:
        """The password, if there is one. A socket or a certificate may need none."""
        try:
            return self.secret("password")
        except PermissionDenied:
            return None


def _checked_url(url: str) -> str:
    """The address of a PostgreSQL database, without any secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigError("url must begin with postgresql://; an SQLite file is named by `path`.")
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise ConfigError("url must not contain a password. Remove it, and run: keep secrets set NAME password")
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigError("PostgreSQL needs one more package: pip install 'keepai[postgres]'")
    postgres_connection.checked(url)
    return url


def _keyed(values: Mapping[str, Json]) -> str:
    return described("", values).removeprefix(": ")


def _alike(old: Json, new: Json) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_alike(old[name], new[name]) for name in old)
    if canonical(old) == canonical(new):
        return True
    plain = [value for value in (old, new) if isinstance(value, str | int | float) and not isinstance(value, bool)]
    kinds = {str if isinstance(value, str) else float for value in plain}
    return kinds == {str, float} and _decimal(old) is not None and _decimal(old) == _decimal(new)


def _decimal(value: Json) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None
