"""Two texts side by side, line by line: what is the same, what went and what came, with the lines around it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

AROUND = 3  #: lines of the same that are shown beside what differs

#: Longer texts are compared without lines that stand in them often: exactness would cost the square of their length.
EXACT_MAX = 1_000


@dataclass(frozen=True)
class Line:
    """One line of a comparison; on one side there may be none."""

    kind: str  # "same", "gone", "new" or "cut", which stands for lines of the same that are left out
    old: int | None  # its number there, counted from 1
    new: int | None
    text: str


def changes(old: str, new: str, around: int = AROUND) -> list[Line]:
    """What differs between two texts; nothing if they are the same."""
    before, after = old.splitlines(), new.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=max(len(before), len(after)) > EXACT_MAX)
    found: list[Line] = []
    end = 0
    for group in matcher.get_grouped_opcodes(around):
        if group[0][1] > end:
            found.append(_cut(group[0][1] - end))
        for kind, old_from, old_to, new_from, new_to in group:
            found += _lines(kind, before, after, (old_from, old_to), (new_from, new_to))
        end = group[-1][2]
    if found and end < len(before):
        found.append(_cut(len(before) - end))
    return found


def _lines(
    kind: str, before: list[str], after: list[str], old: tuple[int, int], new: tuple[int, int],
) -> Iterator[Line]:
    if kind == "equal":
        for there, here in zip(range(*old), range(*new), strict=True):
            yield Line("same", there + 1, here + 1, before[there])
        return
    for there in range(*old):
        yield Line("gone", there + 1, None, before[there])
    for here in range(*new):
        yield Line("new", None, here + 1, after[here])


def _cut(number: int) -> Line:
    return Line("cut", None, None, f"{number:,} line{'' if number == 1 else 's'} the same")
