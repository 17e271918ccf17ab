"""Brings a file to this code's schema: numbered steps forward, a backup first, a newer file left untouched."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import apsw

from ...model.errors import LedgerUnusable
from .backups import copy_through, sync
from .connection import APPLICATION_ID
from .triggers import statements

#: The number of `schema.sql`. A file with a lower number was made before the first release, and is refused.
FIRST = 13


def migrations() -> Mapping[int, str]:
    """The steps by number: `schema.sql` first. A released schema changes only by a further step."""
    return {FIRST: files("keepai.ledger.sqlite").joinpath("schema.sql").read_text("utf-8")}


def migrate(connection: apsw.Connection, path: Path, steps: Mapping[int, str] | None = None) -> None:
    """Apply what is missing, each step whole or not at all, then derive the triggers."""
    steps = migrations() if steps is None else steps
    have, want = int(connection.pragma("user_version")), max(steps)
    if have > want:
        raise LedgerUnusable(
            f"{path} was written by a newer Keep (schema {have}; this one knows {want}). "
            "Nothing was touched. Upgrade Keep (pip install -U keepai) or restore an older backup."
        )
    if 0 < have < FIRST:
        raise LedgerUnusable(
            f"{path} was written by a Keep from before the first release (schema {have}; this one reads {FIRST}). "
            "Nothing was touched. Start a new ledger in another file (--db) and deploy your scripts there."
        )
    if 0 < have < want:
        _backup(connection, path, have)
    if have < want:
        drop_triggers(connection)  # they would refuse a step that rewrites what they protect
    for number, text in steps.items():
        if number > have:
            with connection:
                connection.execute(text)
                connection.execute(f"pragma user_version = {number}; pragma application_id = {APPLICATION_ID}")
    derive(connection)


def _backup(connection: apsw.Connection, path: Path, version: int) -> None:
    target = path.with_name(f"{path.name}.before-schema-{version + 1}")
    if str(path) == ":memory:":
        return
    part = target.with_name(target.name + ".part")  # a backup that was cut off must not count as one
    part.unlink(missing_ok=True)
    copy_through(connection, part)
    sync(part)
    part.replace(target)


def derive(connection: apsw.Connection) -> None:
    """Replace every trigger whose text is not the one that the tables give."""
    rows = connection.execute("select name, sql from sqlite_schema where type = 'trigger'")
    have = {str(name): str(text) for name, text in rows}
    want = {name: f"CREATE TRIGGER {name} {body}" for name, body in statements().items()}
    if have == want:
        return
    with connection:
        drop_triggers(connection)
        for text in want.values():
            connection.execute(text)


def drop_triggers(connection: apsw.Connection) -> None:
    rows = connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall()
    for (name,) in rows:
        connection.execute(f"drop trigger {name}")
