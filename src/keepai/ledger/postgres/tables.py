"""Makes the tables of a ledger, in a schema of their own, and the triggers that guard them.

Nothing here depends on what else is in the database: Keep names every table by `search_path`, and touches no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

import psycopg

from ...model.errors import LedgerUnusable
from .triggers import statements, without_checks

#: The schema in the database that has everything of Keep.
SCHEMA = "keep"

#: The number of `schema.sql`.
FIRST = 1

Connection = psycopg.Connection[tuple[Any, ...]]


def migrations() -> Mapping[int, str]:
    """The steps by number: `schema.sql` first. A released schema changes only by a further step."""
    return {FIRST: files("keepai.ledger.postgres").joinpath("schema.sql").read_text("utf-8")}


def settle(connection: Connection) -> None:
    """What holds for every connection: whose tables are meant, and how long it waits for another's lock."""
    connection.execute(f"set search_path = {SCHEMA}; set lock_timeout = '10s'; set jit = off")


def number(connection: Connection) -> int | None:
    """Which schema the database has; None: it has no ledger."""
    if not _first(connection, "select to_regclass('ledger') is not null"):
        return None
    return int(_first(connection, "select schema from ledger"))


def migrate(connection: Connection, name: str) -> None:
    """Apply what is missing and derive the triggers, in one transaction."""
    with connection.transaction():
        if number(connection) is None:  # of hosts that begin at the same moment, one makes it, and the others wait
            connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [SCHEMA])
        if not _first(connection, f"select to_regnamespace('{SCHEMA}') is not null"):  # only then is the right needed
            connection.execute(f"create schema if not exists {SCHEMA}")
        have, want = number(connection) or 0, max(migrations())
        refuse_newer(have, name)
        if have:
            connection.execute("select from ledger for update")  # one host at a time comes further
        for step, text in migrations().items():
            if step > have:
                connection.execute(without_checks(text))
        if have < want:
            connection.execute("delete from ledger")
            connection.execute("insert into ledger (schema, guards) values (%s, '')", [want])
        _derive(connection)


def refuse_newer(have: int, name: str) -> None:
    """Leave a ledger alone that a newer Keep wrote."""
    want = max(migrations())
    if have > want:
        raise LedgerUnusable(
            f"{name} was written by a newer Keep (schema {have}; this one knows {want}). Nothing was touched. "
            "Upgrade Keep (pip install -U keepai)."
        )


def _derive(connection: Connection) -> None:
    """Replace the triggers if they are not those that the tables give, or not as they were made."""
    texts = list(statements("".join(migrations().values()), SCHEMA))
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
