"""Two contents beside each other, field by field: what was applied, and what the script wants now."""

from __future__ import annotations

import json
from typing import Any

from .text import LABEL, cells, count, plain, width

_ABSENT = "(absent)"
_HEADER = ("FIELD", "APPLIED", "WANTED")


def differs(applied: Any, wanted: Any) -> list[str]:
    """The fields that are not the same, exactly; side by side where the terminal is wide enough."""
    before, now = _fields(applied), _fields(wanted)
    rows = [
        (plain(name), plain(before.get(name, _ABSENT)), plain(now.get(name, _ABSENT)))
        for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)
    ]
    same = len(before.keys() | now.keys()) - len(rows)
    lead = " " * LABEL
    told = [*_beside(rows), *([f"{count(same, 'other field')} the same"] if same else [])]
    return [f"  {'differs':<{LABEL - 3}} {told[0]}", *(lead + each for each in told[1:])] if rows else []


def _beside(rows: list[tuple[str, str, str]]) -> list[str]:
    every = [_HEADER, *rows]
    wide = [max(cells(row[column]) for row in every) for column in range(3)]
    room = width()
    if room is None or LABEL + sum(wide) + 4 <= room:
        return ["  ".join(cell + " " * (space - cells(cell)) for cell, space in zip(row, wide, strict=True)).rstrip()
                for row in every]
    return [part for name, before, now in rows for part in (name, f"  applied  {before}", f"  wanted   {now}")]


def _fields(value: Any, path: str = "") -> dict[str, str]:
    """Each single value by its path, such as `row.name` or `values[2]`, as JSON."""
    if isinstance(value, dict) and value:
        parts = [_fields(inner, f"{path}.{name}" if path else str(name)) for name, inner in value.items()]
    elif isinstance(value, list) and value:
        parts = [_fields(inner, f"{path}[{number}]") for number, inner in enumerate(value)]
    else:
        return {path or "params": json.dumps(value, ensure_ascii=False)}
    return {name: text for part in parts for name, text in part.items()}
