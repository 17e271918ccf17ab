"""What happened to something, in order: the moves that the ledger kept, and what people did.

A move that an act of a person brought about carries that person's name. Nothing here is made up: what the
history does not say is not told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ledger.base import Reader, Row
from ..model.codec import stored
from ..model.records import Mutation, Record, Run
from ..model.states import MACHINES

#: More moves than this are not told; the newest are.
TOLD_MAX = 500

#: Act → the moves of its subject that it brings about.
BROUGHT: Mapping[str, Collection[tuple[str, str]]] = {
    "pause": (("workflow", "paused"),),
    "resume": (("workflow", "active"),),
    "stop": (("workflow", "stopped"),),
    "skip_event": (("event", "skipped"),),
    "skip_input": (("input", "skipped"),),
    "reprocess": (("event", "pending"),),
    "retry": (("status", "superseded"),),
    "skip_run": (("status", "active"), ("status", "abandoned")),
    "finish": (("status", "committed"),),
    "approve": (("approval", "approved"),),
    "reject": (("approval", "rejected"),),
    "happened": (("mutation", "applied"),),
    "did_not_happen": (("mutation", "failed"),),
    "try_again": (("mutation", "needs_reconcile"),),
}

#: Acts on a whole workflow; they belong to the story of everything that was open then.
ON_WORKFLOW = ("deploy", "grant", "pause", "resume", "stop")

_STOPS = {"paused", "failed", "needs_reconcile", "indeterminate"}


@dataclass(frozen=True)
class Told(Record):
    """One move, or one act of a person that moved nothing at once."""

    told_at: int
    subject: str
    machine: str  # "phase", "status", "mutation", "event", "input", "approval", "workflow" or "act"
    source: str | None
    target: str
    why: str
    by: str | None = None  # the person, where it was one


@dataclass(frozen=True)
class Note:
    """Why something stopped, as the ledger still has it; with a moment, only the move at that moment is meant."""

    message: str
    at: int | None


@dataclass(frozen=True)
class Scope:
    """Of what a story tells: these things, and acts on the workflow between two moments."""

    workflow_id: str
    subjects: tuple[str, ...]
    notes: Mapping[str, Note]
    version: str = ""  # under which it began: the deploy of that is no part of it
    since_at: int | None = None
    until_at: int | None = None


def tell(read: Reader, scope: Scope) -> tuple[Told, ...]:
    """The story, oldest first."""
    rows = [row for each in dict.fromkeys(scope.subjects)
            for row in read.all("look_moves", workflow_id=scope.workflow_id, subject=each)]
    moves = [(row["seq"], _move(row)) for row in sorted(rows, key=lambda r: int(r["seq"]))]
    acts = [row for row in read.all("action_all", workflow_id=scope.workflow_id) if _belongs(row, scope)]
    told = _with_notes([move for _, move in moves], scope.notes)
    alone = []
    for row in acts:
        place = _brought(told, row)
        if place is None:
            alone.append(_act(row))
        else:
            told[place] = replace(told[place], by=str(row["actor"]))
    return tuple(sorted([*told, *alone], key=lambda t: t.told_at))


def notes_of(runs: Iterable[Run], mutations: Sequence[Mutation]) -> dict[str, Note]:
    """Why each run and mutation stopped the last time; while an outcome is unknown, that changes without a move."""
    doubted = {mutation.run_id for mutation in mutations if mutation.doubted_at is not None}
    notes = {run.id: Note(run.error.message, run.updated_at if run.id in doubted else None)
             for run in runs if run.error}
    return notes | {m.id: Note(m.error.message, m.updated_at) for m in mutations if m.error}


def _move(row: Row) -> Told:
    machine, source, target = str(row["machine"]), row["source"], str(row["target"])
    return Told(int(row["at"]), str(row["subject"]), machine, source, target, _why(machine, source, target))


def _why(machine: str, source: str | None, target: str) -> str:
    """The reason that the table of moves gives."""
    states = MACHINES[machine].states
    if source is None:
        return "it begins"
    return MACHINES[machine].moves[states(source)].get(states(target), "")


def _with_notes(told: list[Told], notes: Mapping[str, Note]) -> list[Told]:
    """The last stop of each thing says why, in the words that were kept."""
    left = dict(notes)
    for place in reversed(range(len(told))):
        each = told[place]
        if each.subject in left and each.machine in ("status", "mutation") and each.target in _STOPS:
            note = left.pop(each.subject)
            told[place] = replace(each, why=note.message) if note.at in (None, each.told_at) else each
    return told


def _belongs(row: Row, scope: Scope) -> bool:
    if row["subject"] in scope.subjects:
        return True
    if row["act"] not in ON_WORKFLOW or scope.since_at is None or row["subject"].endswith(f" {scope.version}"):
        return False
    return scope.since_at <= int(row["at"]) and (scope.until_at is None or int(row["at"]) <= scope.until_at)


def _brought(told: list[Told], row: Row) -> int | None:
    """The move that an act brought about: of its subject, at its moment, and nobody else's."""
    moves = BROUGHT.get(str(row["act"]), ())
    found = [
        place for place, each in enumerate(told)
        if (each.subject, each.told_at, each.by) == (row["subject"], row["at"], None)
        and (each.machine, each.target) in moves and each.source is not None
    ]
    return found[-1] if found else None


def _act(row: Row) -> Told:
    detail = stored(row["detail"])
    said = "" if detail is None else str(row["detail"])
    return Told(int(row["at"]), str(row["subject"]), "act", None, str(row["act"]), said, str(row["actor"]))
