"""Runs steps on a PostgreSQL server: on its own connection, in one transaction, with every wait limited.

A transaction runs in a task that is never cancelled: to give it up, the caller closes its connection, and the task
ends at its present step. Before COMMIT is sent, the server undoes everything when the connection ends, so every
failure is definite. After it, only a refusal by the server is definite. The tables `REFUSED` and `UNCLEAR` say which
is which.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...model import crash_points
from ...model.codec import INTEGER_MAX, Json, encode, shown
from ...model.errors import (
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
)
from ..kit.blocking import check_deadline
from ..values import Call
from . import postgres_connection
from .catalog import Cell, Column, Row, Statement, Steps, carried, document
from .sqlite import unpacked
from .statement_writer import RECEIPTS

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

CONNECT_S_MAX = 10.0
LATE_S = 5.0  #: how long after Keep's own limit the server ends an abandoned transaction
#: Never the server's default: with one snapshot per transaction, a read after a lock would not see what was freed.
_CHANGE = "begin isolation level read committed read write"
_EACH_MOMENT = "begin isolation level read committed read only"
_ONE_MOMENT = "begin isolation level repeatable read read only"
_NUMBERS = ("integer", "number", "decimal")

#: The beginning of an SQLSTATE → our error; the longest match counts. Raised before COMMIT or on its refusal.
REFUSED: Mapping[str, type[ConnectorError]] = MappingProxyType({
    "08": Transient, "0A": Rejected, "21": Rejected, "22": Rejected,
    "23": Rejected, "23503": PreconditionFailed, "23505": PreconditionFailed, "23P01": PreconditionFailed,
    "25": Transient, "25006": PermissionDenied, "28": PermissionDenied, "3D": PreconditionFailed,
    "3F": PreconditionFailed, "40": Transient, "42": Rejected, "42501": PermissionDenied,
    "42P01": PreconditionFailed, "42P07": Transient, "44": Rejected, "53": Transient, "54": Rejected, "55": Transient,
    "57": Transient, "58": Transient, "P0": Rejected, "XX": Transient,
})
#: Answers to COMMIT that do not prove a rollback: a lost connection, a shutdown by the administrator, a system failure.
UNCLEAR = ("08", "40003", "53", "57P", "58", "F0", "XX")


class PostgresDialect:
    """The SQL of PostgreSQL. Every value is sent as text, and the server reads it as the column's type."""

    mark = "%s"

    def quote(self, name: str) -> str:
        """A name as an identifier. psycopg reads a single % as a parameter."""
        return '"' + name.replace('"', '""').replace("%", "%%") + '"'

    def catalog(self, table: str) -> Statement:
        """Columns and unique keys."""
        name = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
        return Statement(_CATALOG, (name,))

    def select(self, column: Column) -> str:
        """A column in a list of results. Arrays come as JSON."""
        name = self.quote(column.name)
        return f"to_jsonb({name})" if column.kind == "array" else name

    def compared(self, column: Column) -> str:
        """A parameter, cast to the column's type."""
        return f"cast({self.mark} as {column.type.replace('%', '%%')})"

    def same(self, column: Column) -> str:
        """Whether a column holds what a parameter would become in it: it may be rounded, but not cut off."""
        name, exact_type = self.quote(column.name), column.exact.replace("%", "%%")
        if column.type == "json":
            return f"cast({name} as jsonb) is not distinct from cast({self.mark} as jsonb)"
        kept = exact_type if column.kind in (*_NUMBERS, "moment") else column.type.replace("%", "%%")
        return f"{name} is not distinct from cast({self.mark} as {kept})"

    def bind(self, column: Column, value: Json) -> object:
        """A JSON value as a text that the server reads."""
        if value is None:
            return None
        if column.kind == "json":
            return _sound(column, encode(value))
        if column.kind == "bytes":
            return "\\x" + unpacked(column.name, value).hex()
        if column.kind == "boolean" and isinstance(value, bool):
            return "true" if value else "false"
        if column.kind in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
            return encode(value)
        if isinstance(value, str) and column.kind not in ("boolean", "array"):
            return _sound(column, value)
        raise Rejected(f"{column.name} is {column.type}: it does not accept {shown(value)}.")

    def read(self, column: Column, cell: Cell) -> Json:
        """A cell, which the server sends as text, as JSON."""
        if cell is None:
            return None
        text = str(cell)
        match column.kind:
            case "boolean":
                return text == "t"
            case "integer":
                return int(text) if abs(int(text)) <= INTEGER_MAX else text
            case "number":
                return carried(column, float(text))
            case "decimal" if text.lstrip("-") in ("NaN", "Infinity"):
                raise PreconditionFailed(f"{column.name} holds {text}, which JSON cannot hold. Leave the column out.")
            case "json" | "array":
                return document(column, text)
            case "bytes":
                return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
            case "moment" if column.type.startswith("timestamp"):
                # `2026-01-02T03:04:05.6Z`, as JavaScript reads it. Dates and times of day stay as they are.
                return text.replace(" ", "T", 1).replace("+00", "Z")
        return text

    def begin_change(self, key: str) -> Statement | None:
        """A lock that the server holds until the transaction has ended and its result is visible to all."""
        return Statement("select pg_advisory_xact_lock(%s)", (_number_of(key),))

    def under_way(self, key: str) -> Statement | None:
        """Asks whether a transaction holds that lock: its COMMIT may still be running."""
        asked = "select case when pg_try_advisory_xact_lock_shared(%s) then 0 else 1 end"
        return Statement(asked, (_number_of(key),))

    def has_receipts(self) -> Statement:
        """Asks whether the table of receipts exists."""
        return Statement("select case when to_regclass(%s) is null then 0 else 1 end", (RECEIPTS,))


class PostgresDatabase:
    """A database on a PostgreSQL server."""

    dialect = PostgresDialect()

    def __init__(self, name: str, url: str, timeout_s: float, password: Callable[[], str | None]) -> None:
        self.name = name  # of the connector
        self.url = url
        self.timeout_s = timeout_s
        self._password = password

    async def read(self, steps: Steps[T], call: Call) -> T:
        """Run steps that only read."""
        return await self._in_time(lambda connected: self._look(_ONE_MOMENT, steps, call, connected), call)

    async def look(self, steps: Steps[T], call: Call) -> T:
        """Run steps that only read, each with its own snapshot: first what is running, then what is there."""
        return await self._in_time(lambda connected: self._look(_EACH_MOMENT, steps, call, connected), call)

    async def change(self, steps: Steps[T], call: Call) -> T:
        """Run steps and commit. Every error says correctly whether they took place."""
        return await self._in_time(lambda connected: self._change(steps, call, connected), call)

    async def _look(self, begin_statement: str, steps: Steps[T], call: Call, connected: Connected) -> T:
        with refused("The database could not be read"):
            connection = await self._connect(connected, call)
            try:
                await self._begin(connection, begin_statement, call)
                result = await _driven(steps, connection)
                await connection.execute("rollback")
                return result
            finally:
                connection.pgconn.finish()

    async def _change(self, steps: Steps[T], call: Call, connected: Connected) -> T:
        with refused("Nothing was changed"):
            connection = await self._connect(connected, call)
        try:
            with refused("Nothing was changed"):
                await self._begin(connection, _CHANGE, call)
                result = await _driven_or_undone(steps, connection)
                check_deadline(call)
                crash_points.reach("sql.before_commit")
            await _commit(connection)
            crash_points.reach("sql.committed")
            return result
        finally:
            connection.pgconn.finish()

    async def _connect(self, connected: Connected, call: Call) -> psycopg.AsyncConnection[Any]:
        import psycopg

        seconds = max(2, math.ceil(min(CONNECT_S_MAX, self.timeout_s, call.remaining_s)))
        try:
            connection = await postgres_connection.connect(self.url, self._password(), seconds)
        except psycopg.OperationalError as error:
            raise self._unreached(error) from None  # the details of the connection stay here
        connected.descriptor = connection.pgconn.socket
        return connection

    def _unreached(self, error: psycopg.OperationalError) -> ConnectorError:
        message = " ".join(str(error).split())
        state = error.sqlstate or ""
        if _WEAK_ENTRY in message:
            return PermissionDenied(
                f"The server does not use SCRAM: {message}. Keep did not send it the password. Store the password on "
                "the server as scram-sha-256; or, if you accept this server as it is, put require_auth=… into the url."
            )
        if any(phrase in message for phrase in _NO_PROOF):
            return PreconditionFailed(
                f"The server did not prove who it is: {message}. For a server on another machine Keep requires TLS "
                "with a certificate for the host's name. Name its authority with sslrootcert=FILE in the url; or put "
                "another sslmode there, if others on the way may read and change everything."
            )
        if state.startswith("28") or any(phrase in message for phrase in _NO_ENTRY):
            advice = f"Run `keep secrets set {self.name} password`."
            return PermissionDenied(f"The database refused the login: {message}. {advice}")
        if state.startswith("3D") or "does not exist" in message:
            return PreconditionFailed(f"The database does not exist: {message}.")
        return Transient(f"The database cannot be reached: {message}.")

    async def _begin(self, connection: psycopg.AsyncConnection[Any], begin_statement: str, call: Call) -> None:
        """Begin, independent of the server's settings, and with limits that the server enforces."""
        await connection.execute(begin_statement)
        milliseconds = int(max(0.001, min(self.timeout_s, call.remaining_s)) * 1000)
        settings = {**_WORDS, "statement_timeout": f"{milliseconds}", "lock_timeout": f"{milliseconds}"}
        settings["idle_in_transaction_session_timeout"] = f"{milliseconds + int(LATE_S * 1000)}"
        pairs = ", ".join("set_config(%s, %s, true)" for _ in settings)
        await connection.execute(f"select {pairs}", [word for pair in settings.items() for word in pair])

    async def _in_time(self, work: Callable[[Connected], Coroutine[Any, Any, T]], call: Call) -> T:
        """Run a transaction to its end. A cancellation or a timeout cuts its connection; then it ends by itself."""
        connected = Connected()
        task = asyncio.ensure_future(work(connected))
        cancelled: asyncio.CancelledError | None = None
        patience = min(self.timeout_s, call.remaining_s)
        gave_up = False
        while not task.done():
            try:
                await asyncio.wait({task}, timeout=None if gave_up else patience)
            except asyncio.CancelledError as cancellation:
                cancelled = cancellation
            if not task.done():
                gave_up = True
                connected.cut(task)
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # read it, or asyncio logs that it was never read
            raise cancelled
        if task.cancelled():
            raise Transient("The database did not answer in time; nothing was sent to it.")
        error = task.exception()
        if gave_up and isinstance(error, Transient | OutcomeUnknown):
            message = error.message.partition(":")[0]
            raise type(error)(f"{message}: the database did not answer within {patience:.1f} s.") from error
        return task.result()


class Connected:
    """The connection of a transaction, which can be cut from outside."""

    def __init__(self) -> None:
        self.descriptor: int | None = None

    def cut(self, task: asyncio.Task[Any]) -> None:
        """End the connection at once. If there is none yet, nothing was sent, and the task may just end."""
        if self.descriptor is None:
            task.cancel()
            return
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.descriptor)) as double:
            double.shutdown(socket.SHUT_RDWR)


async def _commit(connection: psycopg.AsyncConnection[Any]) -> None:
    """The only uncertain moment: before it nothing has happened, after it everything has."""
    import psycopg

    try:
        answer = await connection.execute("commit")
    except psycopg.Error as error:
        if was_refused(error):
            raise translated(error)(f"The database refused to commit and undid all: {_error_text(error)}.") from error
        raise OutcomeUnknown(f"The change may have been committed, but then: {_error_text(error)}.") from error
    if answer.statusmessage == "ROLLBACK":
        raise Transient("The database undid the change instead of committing it.")
    if answer.statusmessage != "COMMIT":
        raise OutcomeUnknown(f"The database answered COMMIT with {answer.statusmessage!r}.")


def was_refused(error: psycopg.Error) -> bool:
    """Whether the server itself refused the COMMIT, which undoes the transaction."""
    state = error.sqlstate or ""
    return error.diag.severity_nonlocalized == "ERROR" and bool(state) and not state.startswith(UNCLEAR)


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Use around everything before COMMIT: every error of the driver is a definite failure."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translated(error)(f"{message}: {_error_text(error)}.") from error


def translated(error: psycopg.Error) -> type[ConnectorError]:
    """Our error for an error of the server. Without an SQLSTATE the connection was lost."""
    state = error.sqlstate
    if state is None:
        return Transient
    known = [prefix for prefix in REFUSED if state.startswith(prefix)]
    return REFUSED[max(known, key=len)] if known else PreconditionFailed


async def _driven(steps: Steps[T], connection: psycopg.AsyncConnection[Any]) -> T:
    rows: list[Row] | None = None
    while True:
        try:
            statement = steps.send(rows) if rows is not None else next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        answer = await connection.execute(statement.text, statement.values)
        rows = _rows(answer.pgresult)


async def _driven_or_undone(steps: Steps[T], connection: psycopg.AsyncConnection[Any]) -> T:
    """Run steps. If one of them fails, release the locks at once, not when the server notices."""
    import psycopg

    try:
        return await _driven(steps, connection)
    except ConnectorError:
        with contextlib.suppress(psycopg.Error):
            await connection.execute("rollback")
        raise


def _rows(result: Any) -> list[Row]:
    """The rows as the server sent them, before psycopg converts them."""
    def cell(row: int, column: int) -> str | None:
        data = result.get_value(row, column)
        return data.decode("utf-8") if data is not None else None

    return [tuple(cell(row, n) for n in range(result.nfields)) for row in range(result.ntuples)]


def _error_text(error: psycopg.Error) -> str:
    message = error.diag.message_primary or (str(error).splitlines() or [type(error).__name__])[0]
    detail = error.diag.message_detail
    return (f"{message} ({detail})" if detail else message).rstrip(".")


def _number_of(key: str) -> int:
    return int.from_bytes(hashlib.sha256(b"keep:" + key.encode()).digest()[:8], "big", signed=True)


def _sound(column: Column, text: str) -> str:
    if "\0" in text or "\\u0000" in text:
        raise Rejected(f"{column.name} must not contain a NUL character: PostgreSQL cannot store it.")
    if column.kind in _NUMBERS and text.strip().lower().lstrip("+-").startswith(("nan", "inf")):
        raise Rejected(f"{column.name} must be a number that JSON can hold, not {text[:20]!r}.")
    return text


_NO_ENTRY = ("password authentication failed", "no password supplied", "no pg_hba.conf entry", "role \"")
_WEAK_ENTRY = "authentication method requirement"
_NO_PROOF = ("server does not support SSL", "certificate verify failed", "server certificate for", "root certificate")
_WORDS = {"datestyle": "ISO, YMD", "timezone": "UTC", "intervalstyle": "iso_8601", "bytea_output": "hex",
          "extra_float_digits": "1", "standard_conforming_strings": "on", "client_encoding": "UTF8"}
_CATALOG = """
with c as (select to_regclass(%s) as oid),
keys as (
  select i.indisprimary as is_primary, (
    select json_agg(a.attname order by k.place)
    from unnest(i.indkey::smallint[]) with ordinality k(number, place)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
    where k.place <= i.indnkeyatts) as names
  from pg_index i join c on i.indrelid = c.oid
  where i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null)
select json_build_object(
  'columns', (
    select json_agg(json_build_object(
      'name', a.attname, 'type', format_type(a.atttypid, null), 'exact', format_type(a.atttypid, a.atttypmod),
      'kind', case
        when t.typcategory = 'A' then 'array' when t.typcategory = 'B' then 'boolean'
        when b.typname in ('int2', 'int4', 'int8', 'oid') then 'integer'
        when b.typname in ('float4', 'float8') then 'number' when b.typname = 'numeric' then 'decimal'
        when b.typname in ('json', 'jsonb') then 'json' when b.typname = 'bytea' then 'bytes'
        when t.typcategory in ('D', 'T') then 'moment' else 'text' end) order by a.attnum)
    from pg_attribute a join pg_type t on t.oid = a.atttypid
      join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
  'primary', (select names from keys where is_primary),
  'keys', (select json_agg(names order by is_primary desc) from keys))
from c where c.oid is not null"""
