"""Two contents beside each other, field by field: what was applied, and what the script wants now."""

from __future__ import annotations

from typing import Any

from ...reading.differences import differences
from ...reading.wording import count
from .text import LABEL, cells, plain, width

_HEADER = ("FIELD", "APPLIED", "WANTED")


def differs(applied: Any, wanted: Any) -> list[str]:
    """The fields that are not the same, exactly; side by side where the terminal is wide enough."""
    found, same = differences(applied, wanted)
    rows = [(plain(name), plain(before), plain(now)) for name, before, now in found]
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
