"""What differs: two texts line by line, with the lines around each difference; two contents field by field. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .wording import count

AROUND = 3  #: lines of the same that are shown beside what differs

#: Longer texts are compared without lines that stand in them often: exactness would cost the square of their length.
EXACT_MAX = 1_000


@dataclass(frozen=True)
class DiffLine:
    """One line of a comparison; on one side there may be none."""

    kind: str  # "same", "gone", "new" or "cut", which stands for lines of the same that are left out
    old: int | None  # its number there, counted from 1
    new: int | None
    text: str


def changes(old: str, new: str, around: int = AROUND) -> list[DiffLine]:
    """What differs between two texts; nothing if they are the same."""
    before, after = old.splitlines(), new.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=max(len(before), len(after)) > EXACT_MAX)
    found: list[DiffLine] = []
    end = 0
    for group in matcher.get_grouped_opcodes(around):
        if group[0][1] > end:
            found.append(DiffLine("cut", None, None, f"{count(group[0][1] - end, 'line')} the same"))
        for kind, old_from, old_to, new_from, new_to in group:
            found += _lines(kind, before, after, (old_from, old_to), (new_from, new_to))
        end = group[-1][2]
    if found and end < len(before):
        found.append(DiffLine("cut", None, None, f"{count(len(before) - end, 'line')} the same"))
    return found


def _lines(
    kind: str, before: list[str], after: list[str], old: tuple[int, int], new: tuple[int, int],
) -> Iterator[DiffLine]:
    if kind == "equal":
        for there, here in zip(range(*old), range(*new), strict=True):
            yield DiffLine("same", there + 1, here + 1, before[there])
        return
    for there in range(*old):
        yield DiffLine("gone", there + 1, None, before[there])
    for here in range(*new):
        yield DiffLine("new", None, here + 1, after[here])


ABSENT = "(absent)"


def differences(applied: Any, wanted: Any) -> tuple[list[tuple[str, str, str]], int]:
    """Each field that is not the same, as it was and as it is wanted; and how many others are the same."""
    before, now = _fields(applied), _fields(wanted)
    rows = [
        (name, before.get(name, ABSENT), now.get(name, ABSENT))
        for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)
    ]
    return rows, len(before.keys() | now.keys()) - len(rows)


def _fields(value: Any, path: str = "") -> dict[str, str]:
    """Each single value by its path, such as `row.name` or `values[2]`, as JSON."""
    if isinstance(value, dict) and value:
        parts = [_fields(inner, f"{path}.{name}" if path else str(name)) for name, inner in value.items()]
    elif isinstance(value, list) and value:
        parts = [_fields(inner, f"{path}[{number}]") for number, inner in enumerate(value)]
    else:
        return {path or "params": json.dumps(value, ensure_ascii=False)}
    return {name: text for part in parts for name, text in part.items()}
