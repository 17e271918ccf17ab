"""A story as people read it: for each move a sentence, who or what caused it, and a link to more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...model.codec import encode, stored
from ...reading.story import StoryLine

#: Machine and target → what happened. A move that is not here is shown with its states.
SENTENCES: Mapping[tuple[str, str], str] = {
    ("input", "active"): "It came in",
    ("input", "skipped"): "A person skipped it",
    ("event", "pending"): "Its event waits for a consumer",
    ("event", "consumed"): "A run took the event",
    ("event", "skipped"): "The event was skipped",
    ("item", "processing"): "Its routine began to work on it",
    ("item", "done"): "Its routine finished it",
    ("item", "failed"): "Its routine stopped while working on it",
    ("item", "needs_attention"): "What was applied is not what the script wants now",
    ("item", "skipped"): "The item was skipped",
    ("mutation", "in_flight"): "An output was recorded and sent",
    ("mutation", "applied"): "The output is known to have happened",
    ("mutation", "failed"): "The output is known not to have happened",
    ("mutation", "needs_reconcile"): "It is not known whether it happened: Keep asks the outside system",
    ("mutation", "indeterminate"): "Keep could not find out whether it happened: a person must say",
    ("mutation", "skipped"): "A person chose to go on without knowing",
    ("approval", "pending"): "A person was asked to approve the call",
    ("approval", "approved"): "The call was approved",
    ("approval", "rejected"): "The call was rejected",
    ("approval", "expired"): "Nobody answered in time",
    ("approval", "consumed"): "The approval was used",
    ("status", "active"): "A run began, or went on",
    ("status", "paused"): "The run waits",
    ("status", "failed"): "The run failed",
    ("status", "committed"): "The run committed",
    ("status", "crashed"): "Its host died; another run carries on",
    ("workflow", "active"): "It may run",
    ("workflow", "paused"): "It was paused",
    ("workflow", "stopped"): "It was stopped",
    ("status", "superseded"): "Another run carries on",
    ("status", "abandoned"): "The run was given up",
}

_KINDS = {
    "status": "run", "phase": "run", "reason": "run", "host": "run", "reconcile": "output", "mutation": "output",
    "sign": "output", "revision": "event",
}


@dataclass(frozen=True)
class TimelineLine:
    """One sentence of a story."""

    at: int
    what: str
    why: str
    by: str | None
    subject: str
    kind: str
    state: str


def lines(story: Iterable[StoryLine]) -> list[TimelineLine]:
    """A story, line by line; how a run went through its phases belongs to the run's own page."""
    return [_line(told) for told in story if told.machine != "phase"]


def _line(told: StoryLine) -> TimelineLine:
    kind = _KINDS.get(told.machine, told.machine)
    if kind == "act":
        about = told.subject if told.target != "deploy" else told.subject.partition(" ")[2]
        why = f"{about} {_detail(told.why)}".strip()
        return TimelineLine(told.told_at, told.target.replace("_", " "), why, told.by, "", kind, "")
    moved = told.target if told.source is None else f"{told.source} → {told.target}"
    what = SENTENCES.get((told.machine, told.target), f"{told.machine} {moved}")
    why = "" if told.why == "it begins" else told.why
    return TimelineLine(told.told_at, what, why, told.by, told.subject, kind, told.target)


def _detail(text: str) -> str:
    """The facts of an act, without those that are empty, and without hashes."""
    said = stored(text) if text else None
    if not isinstance(said, dict):
        return text
    told = {name: value for name, value in said.items() if value and name != "hash"}
    return ", ".join(f"{name} {value if isinstance(value, str) else encode(value)}" for name, value in told.items())
