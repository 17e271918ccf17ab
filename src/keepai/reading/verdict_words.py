"""A deploy's verdict for people: the open things that share a fate, in one sentence with how many they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.verdict import Fate, Tried
from .wording import count

#: So many of a group are named.
NAMED = 3

LABELS: Mapping[Fate, str] = {
    Fate.NOBODY: "nobody takes it", Fate.GIVEN_UP: "is given up", Fate.VOID: "becomes void",
    Fate.STARTS_AGAIN: "starts again", Fate.FINISHES: "is finished",
    Fate.BECOMES_WORK: "becomes work", Fate.WAITS: "waits", Fate.UNDER_WAY: "is under way", Fate.GOES_ON: "goes on",
}

TRIED: Mapping[Tried, str] = {
    Tried.FAILS: "would fail", Tried.STOPS: "would stop", Tried.ASKS: "would ask you", Tried.TAKEN: "would be taken",
    Tried.PASSED: "would pass without a call", Tried.LEFT: "would be left",
}


@dataclass(frozen=True)
class FateGroup:
    """Open things of one kind that have the same fate."""

    fate: Fate
    label: str
    noun: str  # `1 run`, `12 events`
    words: str
    named: tuple[tuple[str, str], ...]  # id and title of the first of them
    more: int


def fate_groups(things: Sequence[Mapping[str, Any]]) -> list[FateGroup]:
    """The things of a verdict, as its JSON has them: those that a person must know of first."""
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for each in things:
        groups.setdefault((each["what"], each["tried"] or "", each["kind"], each["words"]), []).append(each)
    found = [
        FateGroup(
            Fate(what), TRIED[Tried(came)] if came else LABELS[Fate(what)], count(len(those), kind), words,
            tuple((str(each["id"]), str(each["title"])) for each in those[:NAMED]), max(0, len(those) - NAMED),
        ) for (what, came, kind, words), those in groups.items()
    ]
    return sorted(found, key=lambda each: list(LABELS).index(each.fate))


def not_tried(verdict: Mapping[str, Any]) -> str:
    """How much of it nobody has tried, and why; empty if there is nothing."""
    if not verdict["not_tried"]:
        return ""
    why = f": {'; '.join(verdict['because'])}" if verdict["because"] else ""
    return f"{count(verdict['not_tried'], 'thing')}{why}"
