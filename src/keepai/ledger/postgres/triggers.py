"""The guards of ledger/guards.py as PostgreSQL triggers, and the checks of schema.sql, as one more for each table: each
calls a function for every row that changes.

PostgreSQL reads the text of a check, and of the condition of a trigger, anew for every statement. That took most of
what an update of a run cost; a function is read once per connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..guards import RowGuard, guards

_CHECK = re.compile(r",?\s+constraint (\w+) check (?=\()")
_TABLE = re.compile(r"create table (\w+) \(\n(.*?)\n\);", re.DOTALL)
_COLUMN = re.compile(r"^  (\w+) (?:bigint|bytea|text)\b", re.MULTILINE)
_READ_TABLE = re.compile(r"\bfrom (\w+)\b")


def without_checks(schema: str) -> str:
    """What makes the tables, but for their checks."""
    parts, at = [], 0
    for _, begin, end in _checks(schema):
        parts.append(schema[at:begin])
        at = end
    return "".join(parts) + schema[at:]


def statements(schema: str, tables: str) -> Iterator[str]:
    """What makes every trigger, in the schema with the tables that has none of them."""
    for guard in guards():
        yield from _trigger(guard, [guard], tables)
    for table, checks in _as_guards(schema):
        yield from _trigger(RowGuard(f"{table}_valid", "insert or update", table, ""), checks, tables)


def _trigger(as_one: RowGuard, of: list[RowGuard], tables: str) -> Iterator[str]:
    refused = " ".join(_refused_by(guard, tables) for guard in of)
    row = "old" if as_one.act == "delete" else "new"
    yield f"create function {as_one.name}() returns trigger language plpgsql as $$ begin {refused} return {row}; end $$"
    yield (f"create trigger {as_one.name} before {as_one.act} on {as_one.table} for each row "
           f"execute function {as_one.name}()")


def _refused_by(guard: RowGuard, tables: str) -> str:
    """The part of a function that refuses what a guard refuses."""
    text = f"raise exception '%', '{guard.why}' using errcode = 'check_violation', constraint = '{guard.name}';"
    if not guard.when:
        return text
    condition = _READ_TABLE.sub(rf"from {tables}.\1", guard.when)
    return f"if {condition} then {text} end if;"


def _as_guards(schema: str) -> Iterator[tuple[str, list[RowGuard]]]:
    """The checks of every table that has some, of which PostgreSQL says the same as of its own."""
    for table, body in _TABLE.findall(schema):
        columns = set(_COLUMN.findall(body))
        found = []
        for name, begin, end in _checks(body):
            condition = body[body.index("check (", begin) + len("check ") : end]
            why = f'new row for relation "{table}" violates check constraint "{name}"'
            found.append(RowGuard(name, "insert or update", table, why, f"not {_of_new_row(condition, columns)}"))
        if found:
            yield table, found


def _of_new_row(condition: str, columns: set[str]) -> str:
    """A check as a condition on the row `new`; what stands in quotes is no column."""
    parts = re.sub(r"--.*", "", condition).split("'")
    parts[::2] = [re.sub(r"\b\w+\b", lambda word: f"new.{word[0]}" if word[0] in columns else word[0], part)
                  for part in parts[::2]]
    return "'".join(parts)


def _checks(text: str) -> Iterator[tuple[str, int, int]]:
    """The name of every check, and where it stands."""
    for found in _CHECK.finditer(text):
        depth, end = 0, found.end()
        while True:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
            if depth == 0:
                break
        yield found[1], found.start(), end
