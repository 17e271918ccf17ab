"""A story as people read it: for each move a sentence, who or what caused it, and a link to more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...ledger.base import Reader
from ...ledger.rows import mutation_record
from ...model.codec import encode, stored
from ...reading.call_sentences import output_sentence
from ...reading.parked_runs import GOES_ON
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
    **{("waiting", each): f"While a run waits for a person, {told}" for each, told in GOES_ON.items()},
    ("act", "deploy"): "A version was deployed",
    ("act", "grant"): "A permission was set",
    ("act", "run_now"): "Its producers were told to look",
    ("act", "accept_older"): "The ledger was accepted although it is older than it was",
    ("status", "superseded"): "Another run carries on",
    ("status", "abandoned"): "The run was given up",
}

SENT_AND_HAPPENED = "An output was sent, and it happened"

#: The beginning of an id → the statement that finds it, its parameter, and the column with its name.
_NAMED = {
    "run_": ("run_by_id", "run_id", "handler"), "evt_": ("event_by_id", "event_id", "message_id"),
    "inp_": ("input_by_id", "input_id", "title"), "itm_": ("item_by_id", "item_id", "title"),
    "mut_": ("mutation_by_id", "mutation_id", "preview"),
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
    name: str = ""  # what people call its subject


def lines(read: Reader, story: Iterable[StoryLine]) -> list[TimelineLine]:
    """A story, line by line; how a run went through its phases belongs to the run's own page."""
    told: list[TimelineLine] = []
    for line in (_line(each) for each in story if each.machine != "phase"):
        if told and _at_once(told[-1], line):
            told[-1] = replace(told[-1], what=SENT_AND_HAPPENED, state=line.state)
        elif told and (told[-1].what, line.kind) == ("set", "waiting"):
            told[-1] = replace(line, by=told[-1].by)
        else:
            told.append(line)
    names = {id: _name(read, id) for id in {each.subject for each in told}}
    return [replace(each, name=names[each.subject]) for each in told]


def _at_once(sent: TimelineLine, line: TimelineLine) -> bool:
    """Whether a line only says that what was just sent happened."""
    return (sent.state, line.state, line.why, line.by, line.subject) == (
        "in_flight", "applied", "success response", None, sent.subject)


def _name(read: Reader, id: str) -> str:
    """What people call a thing; empty if it has no better name than its kind."""
    statement, parameter, column = _NAMED.get(id[:4], ("", "", ""))
    row = read.one(statement, **{parameter: id}) if statement else None
    if row is None:
        return ""
    return output_sentence(mutation_record(row)) if id.startswith("mut_") else str(row[column])


def _line(told: StoryLine) -> TimelineLine:
    kind = _KINDS.get(told.machine, told.machine)
    if kind == "act":
        about = told.subject if told.target != "deploy" else f"version {told.subject.partition(' ')[2]}"
        why = f"{'' if about.startswith('wf_') else about} {_detail(told.why)}".strip()
        what = SENTENCES.get(("act", told.target), told.target.replace("_", " "))
        return TimelineLine(told.told_at, what, why, told.by, "", kind, "")
    moved = told.target if told.source is None else f"{told.source} → {told.target}"
    what = SENTENCES.get((told.machine, told.target), f"{told.machine} {moved}")
    why = "" if told.why == "it begins" or told.machine == "waiting" else told.why
    return TimelineLine(told.told_at, what, why, told.by, told.subject, kind, told.target)


def _detail(text: str) -> str:
    """The facts of an act, without those that are empty, and without hashes."""
    said = stored(text) if text else None
    if not isinstance(said, dict):
        return text
    told = {name: value for name, value in said.items() if value and name != "hash"}
    return ", ".join(f"{name} {value if isinstance(value, str) else encode(value)}" for name, value in told.items())
