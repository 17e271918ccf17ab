"""Makes the tables of a ledger, in a schema of their own, and the triggers that guard them.

Nothing here depends on what else is in the database: Keep names every table by `search_path`, and touches no other.
Hosts of two neighbouring versions may work side by side: a newer one adds at once what it needs, and takes away what
nobody needs any more when no older host is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

import psycopg

from ...model.errors import LedgerUnusable
from ...model.ids import text_of
from .lease import LEASE_MS
from .triggers import statements, without_checks

#: The schema in the database that has everything of Keep.
SCHEMA = "keep"

#: The number of `schema.sql`.
FIRST = 1

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class SchemaStep:
    """A change of the tables. One that `takes_away` what older code uses waits until no host of that code lives."""

    text: str
    takes_away: bool = False


def migrations() -> Mapping[int, SchemaStep]:
    """The steps by number: `schema.sql` first. A released schema changes only by a further step, and a step takes away
    only what the code of the step before it has ceased to use."""
    text = files("keepai.ledger.postgres").joinpath("schema.sql").read_text("utf-8")
    return {FIRST: SchemaStep(text, takes_away=True)}


def known() -> int:
    """The newest schema that this code knows."""
    return max(migrations())


def settle(connection: Connection) -> None:
    """What holds for every connection: whose tables are meant, and how long it waits for another's lock."""
    connection.execute(f"set search_path = {SCHEMA}; set lock_timeout = '10s'; set jit = off")


def number(connection: Connection) -> int | None:
    """Which schema the database has; None: it has no ledger."""
    if not _first(connection, "select to_regclass('ledger') is not null"):
        return None
    return int(_first(connection, "select schema from ledger"))


def needed(connection: Connection) -> int:
    """Which schema whoever uses this ledger must know; it is lower than the ledger's where steps only added to it."""
    return int(_first(connection, "select schema_needed from ledger"))


def migrate(connection: Connection, name: str) -> None:
    """Apply what is missing and may be applied now, and derive the triggers, in one transaction."""
    with connection.transaction():
        if number(connection) is None:  # of hosts that begin at the same moment, one makes it, and the others wait
            connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [SCHEMA])
        if not _first(connection, f"select to_regnamespace('{SCHEMA}') is not null"):  # only then is the right needed
            connection.execute(f"create schema if not exists {SCHEMA}")
        if number(connection) is not None:
            connection.execute("select from ledger for update")  # one host at a time comes further
            refuse_newer(needed(connection), name)
        have = number(connection) or 0
        if have > known():
            return  # a newer Keep has added to it, and its triggers are newer too
        for step, change in migrations().items():
            if step <= have:
                continue
            if have and change.takes_away and not _no_older_host(connection, step):
                break
            connection.execute(without_checks(change.text))
            if not have:
                connection.execute("insert into ledger (schema, schema_needed, guards) values (0, 0, '')")
            connection.execute("update ledger set schema = %s", [step])
            if change.takes_away:
                connection.execute("update ledger set schema_needed = %s", [step])
            have = step
        _derive(connection)


def _no_older_host(connection: Connection, step: int) -> bool:
    """Whether no host lives that does not know a step. One that is silent for too long loses its place here, so that it
    cannot come back to tables that it does not know."""
    connection.execute(
        "update heartbeat set lost_at = beat_at where knows < %s and lost_at is null "
        "and beat_at < (extract(epoch from clock_timestamp()) * 1000)::bigint - %s", [step, LEASE_MS])
    return not older_hosts(connection, step)


def older_hosts(connection: Connection, step: int) -> list[str]:
    """The hosts that have a place and do not know a step."""
    return [f"{text_of(id)} (process {pid} on {machine})" for id, pid, machine in connection.execute(
        "select h.id, h.pid, h.machine from heartbeat b join host h on h.epoch = b.epoch "
        "where b.knows < %s and b.lost_at is null order by h.epoch", [step]).fetchall()]


def lacks(have: int) -> bool:
    """Whether a ledger of this schema lacks what this code uses. What is yet to be taken away from it does no harm."""
    return any(step > have and not change.takes_away for step, change in migrations().items())


def refuse_newer(need: int, name: str) -> None:
    """Leave a ledger alone that only a newer Keep knows how to use."""
    if need > known():
        raise LedgerUnusable(
            f"{name} was written by a newer Keep (schema {need}; this one knows {known()}). Nothing was touched. "
            "Upgrade Keep (pip install -U keepai)."
        )


def _derive(connection: Connection) -> None:
    """Replace the triggers if they are not those that the tables give, or not as they were made."""
    texts = list(statements("".join(each.text for each in migrations().values()), SCHEMA))
    wanted = sha256("\n".join(texts).encode()).hexdigest()
    if _first(connection, "select guards from ledger") == f"{wanted} {_guards(connection)}":
        return
    for (function,) in connection.execute(
        "select oid::regprocedure::text from pg_proc where pronamespace = current_schema()::regnamespace "
        "and prorettype = 'trigger'::regtype"
    ).fetchall():
        connection.execute(f"drop function {function} cascade")
    for text in texts:
        connection.execute(text)
    connection.execute("update ledger set guards = %s", [f"{wanted} {_guards(connection)}"])


def _guards(connection: Connection) -> str:
    """A hash over the triggers and their functions as the database has them."""
    return str(_first(connection, """
        select md5(coalesce(string_agg(found.text, ' ' order by found.text collate "C"), '')) from (
          select pg_get_triggerdef(t.oid) || t.tgenabled::text as text
          from pg_trigger t join pg_class c on c.oid = t.tgrelid
          where c.relnamespace = current_schema()::regnamespace and not t.tgisinternal
          union all select p.prosrc || coalesce(p.proconfig::text, '') from pg_proc p
          where p.pronamespace = current_schema()::regnamespace and p.prorettype = 'trigger'::regtype) found"""))


def _first(connection: Connection, text: str) -> Any:
    row = connection.execute(text).fetchone()
    return row[0] if row else None
