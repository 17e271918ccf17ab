"""Named statements as PostgreSQL is given them: parameters numbered, and of a type where nothing else says which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from .. import stored_ids
from ..queries import load
from .tables import migrations

_COLUMN = re.compile(r"^  (\w+) (bigint|bytea|text)\b", re.MULTILINE)
_BYTEWISE = ' collate "C"'  # as the columns are: what is compared with them, or made lower case, is so too
_VALUES = re.compile(r"values \(([^()]*)\)")
_COMMENT, _PARAMETER = re.compile(r"--.*"), re.compile(r"(?<!:):(\w+)")


@cache
def types() -> Mapping[str, str]:
    """Parameter → its type: that of the columns with its name, which all have the same."""
    of_columns = dict(_COLUMN.findall("".join(each.text for each in migrations().values())))
    return of_columns | {"since": "bigint", "subject_ids": "bigint[]"} | dict.fromkeys(
        ("text", "lower", "upper", "remark"), "text")


@cache
def numbered() -> Mapping[str, tuple[str, stored_ids.Params]]:
    """Every statement, and what picks its parameters in their order."""
    return {name: _numbered(text) for name, text in load("postgres").items()}


@cache
def that_hits(name: str) -> tuple[str, stored_ids.Params]:
    """A change, or a look for a row, as a statement that fails by dividing by zero if there is no row for it."""
    text, picked = numbered()[name]
    hit = text if text.startswith("select") else f"{text} returning 1"
    return f"with hit as ({hit}) select 1 / count(*) as hit from hit", picked  # noqa: S608 -- our own


@cache
def of_many(name: str) -> tuple[str, stored_ids.Params]:
    """A statement that inserts a row, as one that inserts several: each parameter is a list, one value for each row."""
    text, picked = numbered()[name]
    values = _VALUES.search(text)
    assert values, f"{name} inserts no row"
    lists = values[1].replace(_BYTEWISE, "").replace(",", "[],")
    rows = f"select * from unnest({lists}[])"  # noqa: S608 -- of a statement of our own
    return text[: values.start()] + rows + text[values.end() :], picked


def _numbered(text: str) -> tuple[str, stored_ids.Params]:
    plain = " ".join(_COMMENT.sub("", text).split())
    names = list(dict.fromkeys(_PARAMETER.findall(plain)))

    def place(found: re.Match[str]) -> str:
        kind = types().get(found[1])
        return f"${names.index(found[1]) + 1}" + (f"::{kind}" if kind else "") + (_BYTEWISE if kind == "text" else "")

    return _PARAMETER.sub(place, plain), stored_ids.parameters(tuple(names))
