"""What a shadow found, in sentences: one for each thing that a new script would do otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .diffs import differences

_VERBS = {
    ("mutation", "added"): "it would also send", ("mutation", "missing"): "it would no longer send",
    ("mutation", "changed"): "it would send something else:",
    ("taken", "added"): "it would also take", ("taken", "missing"): "it would no longer take",
    ("item", "added"): "it would also work on the item", ("item", "missing"): "it would no longer work on the item",
    ("input", "added"): "it would also register", ("input", "missing"): "it would no longer register",
    ("event", "added"): "it would also publish", ("event", "missing"): "it would no longer publish",
    ("event", "changed"): "it would publish otherwise:", ("state", "changed"): "it would remember something else:",
}
_NOT_SAME = {
    "changed": "would do something else", "fails": "would fail", "not_comparable": "cannot be compared",
}


@dataclass(frozen=True)
class ToldDifference:
    """One difference: a sentence, and the fields that are not the same: name, as it was, as it would be."""

    sentence: str
    fields: tuple[tuple[str, str, str], ...]


def told_run(run: Mapping[str, Any]) -> str:
    """One run that is not the same, in a sentence."""
    work = f" for {run['title']}" if run["title"] else ""
    why = f": {run['why']}" if run["why"] else ""
    return f"{run['handler']}{work} {_NOT_SAME[run['verdict']]}{why}"


def told(difference: Mapping[str, Any]) -> ToldDifference:
    """One difference of a run."""
    kind, verdict, before, after = (difference[name] for name in ("kind", "verdict", "before", "after"))
    rows, _ = differences(before, after) if verdict == "changed" else ([], 0)
    return ToldDifference(f"{_VERBS[kind, verdict]} {_what(difference)}".strip(), tuple(rows))


def _what(difference: Mapping[str, Any]) -> str:
    if difference["kind"] == "mutation":
        return f"“{difference['before_words'] or difference['after_words']}”"
    if difference["kind"] == "event":
        return f"{difference['identity']} in {difference['name']}"
    given = difference["before"] or difference["after"]
    return ", ".join(map(str, given)) if isinstance(given, list) else ""
