"""A deploy's verdict for people: the open things that share a fate, in one sentence with how many they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.verdict import Fate, Tried
from .wording import count

#: So many of a group are named.
NAMED = 3

LABELS: Mapping[Fate, str] = {
    Fate.NOBODY: "no taker", Fate.GIVEN_UP: "given up", Fate.VOID: "void", Fate.STARTS_AGAIN: "starts again",
    Fate.FINISHES: "is finished", Fate.BECOMES_WORK: "new work", Fate.WAITS: "waits", Fate.UNDER_WAY: "under way",
    Fate.GOES_ON: "goes on",
}
TRIED: Mapping[Tried, str] = {
    Tried.FAILS: "fails", Tried.STOPS: "stops", Tried.ASKS: "asks you", Tried.TAKEN: "is taken",
    Tried.PASSED: "makes no call", Tried.LEFT: "is left",
}


@dataclass(frozen=True)
class FateGroup:
    """Open things of one kind that have the same fate."""

    fate: Fate
    label: str
    noun: str  # `1 run`, `12 events`
    words: str
    named: tuple[tuple[str, str, str], ...]  # id and title of the first of them, and what came of trying it
    more: int


def fate_groups(things: Sequence[Mapping[str, Any]]) -> list[FateGroup]:
    """The things of a verdict, as its JSON has them: those that a person must know of first."""
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for each in things:
        groups.setdefault((each["what"], each["tried"] or "", each["kind"], each["words"]), []).append(each)
    found = [
        FateGroup(
            Fate(what), " · ".join((LABELS[Fate(what)], *([TRIED[Tried(came)]] if came else []))),
            count(len(those), kind), words,
            tuple((str(each["id"]), str(each["title"]), _came(each)) for each in those[:NAMED]),
            max(0, len(those) - NAMED),
        ) for (what, came, kind, words), those in groups.items()
    ]
    return sorted(found, key=lambda each: list(LABELS).index(each.fate))


def fates_in_words(fates: Sequence[Mapping[str, Any]]) -> str:
    """How many open things have which fate; those that a person must know of first."""
    found: dict[str, list[str]] = {}
    for each in fates:
        found.setdefault(each["what"], []).append(count(each["count"], each["kind"]))
    return "; ".join(f"{LABELS[fate]}: {', '.join(found[fate])}" for fate in LABELS if fate in found)


def lost(fates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What speaks against a version: the open things that come to nothing under it."""
    for each in fates:
        if words := _LOST.get(Fate(each["what"])):
            yield words.format(count(each["count"], each["kind"]))


_LOST: Mapping[Fate, str] = {
    Fate.NOBODY: "Nobody would take {} any more.", Fate.VOID: "{} would become void, without an answer.",
    Fate.GIVEN_UP: "{} would be given up, for it has no such handler.",
}


def _came(thing: Mapping[str, Any]) -> str:
    doubt = ", with a result before it that is made up" if thing["assumed"] else ""
    return f"tried{doubt}: {thing['came']}" if thing["came"] else ""


def not_tried(verdict: Mapping[str, Any]) -> str:
    """How much of it could not be tried, and why; empty if there is nothing."""
    because = verdict["because"]
    return f"{count(verdict['not_tried'], 'thing')}: {'; '.join(because)}" if because else ""
