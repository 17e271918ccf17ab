"""What happened to something, in the order of the account: its moves, other decisions, what people did.

If a person's act caused a move, the move carries that person's name. The story says only what the account says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..ledger.account import of_subject
from ..ledger.base import Reader, Row
from ..model.acts import ACTS
from ..model.codec import stored
from ..model.records import Record
from ..model.states import MACHINES

#: A story has at most this many moves, the newest.
TOLD_MAX = 500

#: Acts on a whole workflow; they belong to the story of everything that was open then.
ON_WORKFLOW = ("deploy", "grant", "set", "pause", "resume", "stop", "accept_older")

#: Machine → the moves whose own reason is shown; the other moves get the reason from the table of moves.
_OWN: Mapping[str, Collection[str]] = {
    "status": ("paused", "failed"), "mutation": ("failed", "needs_reconcile", "indeterminate"),
    "repair": ("declined", "refused", "waiting"), "event": ("skipped",),
}

#: What was decided without a move → what it means where no reason is kept with it.
_NOTED = {
    "reason": "it waits for something else", "host": "its host had died, and another took it over",
    "reconcile": "the outside system was asked again", "sign": "something became known late",
    "revision": "another payload was published under its messageId",
    "parking": "it waits while others go on, or goes on", "waiting": "what goes on while a run waits for a person",
}


@dataclass(frozen=True)
class StoryLine(Record):
    """One move, one decision that moved nothing, or one act of a person that moved nothing at once."""

    told_at: int
    subject: str
    machine: str  # a machine of model/states.py, "reason", "host", "reconcile", "sign", "revision" or "act"
    source: str | None
    target: str
    why: str
    by: str | None = None  # the person, where it was one


@dataclass(frozen=True)
class Scope:
    """What a story is about: these things, and acts on the workflow between two moments."""

    workflow_id: str
    subjects: tuple[str, ...]
    version: str = ""  # under which it began: the deploy of that is no part of it
    since_at: int | None = None
    until_at: int | None = None


def story_of(read: Reader, scope: Scope) -> tuple[StoryLine, ...]:
    """The story, oldest first."""
    found = [row for each in dict.fromkeys(scope.subjects)
             for row in of_subject(read, scope.workflow_id, each)]
    rows = sorted(found, key=lambda row: int(row["seq"]))
    told = [_move(row) for row in rows]
    alone = []
    for act in read.all("action_all", workflow_id=scope.workflow_id):
        if not _belongs(act, scope):
            continue
        brought = _brought(told, act)
        if brought is None:
            alone.append((int(act["entry"]), _act(act)))
        else:
            told[brought] = replace(told[brought], by=str(act["actor"]))
    placed = [*alone, *zip((int(row["seq"]) for row in rows), told, strict=True)]  # an act before what it brought about
    return tuple(each for _, each in sorted(placed, key=lambda entry: entry[0]))


def _move(row: Row) -> StoryLine:
    machine, source, target = str(row["machine"]), row["source"], str(row["target"])
    why = _own(machine, target, row["why"]) or _table(machine, source, target)
    return StoryLine(int(row["at"]), str(row["subject"]), machine, source, target, why)


def _own(machine: str, target: str, why: str | None) -> str | None:
    """The reason that was stored with a row, if people are shown that one."""
    if why is None or not (machine in _NOTED or target in _OWN.get(machine, ())):
        return None
    if machine == "sign":
        return why
    try:
        error = stored(why)
    except ValueError:
        return why if machine != "event" else None  # a person's words, or a note; of an event, the run that had it
    return str(error["message"]) if isinstance(error, dict) and "message" in error else None


def _table(machine: str, source: str | None, target: str) -> str:
    """The reason that the table of moves gives."""
    if machine in _NOTED:
        return _NOTED[machine]
    if source is None:
        return "it begins"
    states = MACHINES[machine].states
    return MACHINES[machine].moves[states(source)].get(states(target), "")


def _belongs(row: Row, scope: Scope) -> bool:
    if row["subject"] in scope.subjects:
        return True
    if row["act"] not in ON_WORKFLOW or scope.since_at is None or row["subject"].endswith(f" {scope.version}"):
        return False
    return scope.since_at <= int(row["at"]) and (scope.until_at is None or int(row["at"]) <= scope.until_at)


def _brought(told: list[StoryLine], row: Row) -> int | None:
    """The move that an act brought about: of its subject, at its moment, and nobody else's."""
    act = ACTS.get(str(row["act"]))
    found = [
        place for place, each in enumerate(told)
        if (each.subject, each.told_at, each.by) == (row["subject"], row["at"], None)
        and (each.machine, each.target) in (act.brings if act else ()) and each.source is not None
    ]
    return found[-1] if found else None


def _act(row: Row) -> StoryLine:
    detail = stored(row["detail"])
    said = "" if detail is None else str(row["detail"])
    return StoryLine(int(row["at"]), str(row["subject"]), "act", None, str(row["act"]), said, str(row["actor"]))
