"""Reports what a host does, line by line, from what it commits. It only reads the ledger, so it cannot disturb.

On a ledger that several hosts share, each reports what it did itself: a line stands in the log of one host.

It remembers how each unfinished run stood, and reports what has changed since. Of a run that began and ended between
two looks, only the end is reported; a run that found nothing to do is not reported at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ledger.base import Row
from ...ledger.rows import mutation_record
from ...model.clock import iso
from ...model.records import Mutation, Run
from ...reading.look import Look
from ...reading.offered_acts import commands
from ...reading.wording import ago
from .list_commands import named
from .status import stop_of

_BATCH = 64
_OPEN = ("active", "paused", "failed")


@dataclass(frozen=True)
class NewsLine:
    """One line."""

    at: int
    workflow: str
    handler: str
    run_id: str
    kind: str  # "run", "item", "mutation" or "needs_you"
    state: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**vars(self), "at": iso(self.at)}


_Line = tuple[int, str, str, str]
_Marks = Mapping[str, str]  # the state of each mutation and item of a run
_Stood = tuple[str, _Marks, int | None]  # a run's status, these, and when it is tried again


@dataclass
class _WorkflowProgress:
    """What was reported of one workflow."""

    seq: int = 0
    runs: dict[str, _Stood] = field(default_factory=dict)  # unfinished ones


class Narrator:
    """Call `news` whenever something may have changed."""

    def __init__(self) -> None:
        self._known: dict[str, _WorkflowProgress] = {}
        self._change: int | None = None
        self._present: set[str] = set()  # the hosts that were there at the last look
        self._own: str | None = None  # which of them this one was

    def catch_up(self, look: Look) -> None:
        """Treat everything up to now as reported."""
        self.news(look)
        self._change = None  # it is the number of one connection

    def news(self, look: Look, host: str | None = None) -> list[NewsLine]:
        """What happened since the last time, in the order of the runs; with `host`, what that one has to report."""
        change = look.read.change()
        if change == self._change:
            return []
        self._change = change
        told: list[NewsLine] = []
        is_others = self._others(look, host)
        for row in look.read.all("workflow_all"):
            known = self._known.setdefault(row["id"], _WorkflowProgress())
            for run in self._changed(look, row["id"], known):
                lines = self._about(look, run, row["name"], known)
                told += [] if is_others(run) else lines
        return told

    def _others(self, look: Look, own: str | None) -> Callable[[Run], bool]:
        """Whether another host reports a run: the one that ran it, or, once that is gone, the one that has its workflow
        by now. What a host did until it was gone, it has reported itself."""
        if own is None or look.read.path is not None:
            return lambda run: False
        present = {host.id for host in look.read.hosts() if host.lives}
        ours, theirs = {own, self._own}, self._present | present
        self._own, self._present = own, present

        def is_others(run: Run) -> bool:
            return run.host not in ours and (run.host in theirs or look.read.host_of(run.workflow_id) != own)

        return is_others

    def _changed(self, look: Look, workflow_id: str, known: _WorkflowProgress) -> list[Run]:
        """New runs and unfinished ones, oldest first."""
        old = [look.views.run(run_id) for run_id in known.runs]
        limit, new = _BATCH, look.views.newest_runs(workflow_id, _BATCH)
        while len(new) == limit and new[0].seq > known.seq + 1:
            limit *= 4
            new = look.views.newest_runs(workflow_id, limit)
        fresh = [run for run in new if run.seq > known.seq]
        known.seq = max((run.seq for run in fresh), default=known.seq)
        return old + fresh

    def _about(self, look: Look, run: Run, name: str, known: _WorkflowProgress) -> list[NewsLine]:
        did = _RunProgress.of(look, run)
        before = known.runs.pop(run.id, None)
        if run.state.value in _OPEN:
            known.runs[run.id] = (run.status, did.marks, run.retry_at)
        told: list[_Line] = []
        if before is None and run.status == "active":
            told.append((run.created_at, "run", run.status, f"started ({run.trigger})"))
        told += did.since(before[1] if before else {})
        if before is None or (before[0], before[2]) != (run.status, run.retry_at):
            told += _of_run(look, run, name, did)
        return [NewsLine(at, name, run.handler, run.id, kind, state, text) for at, kind, state, text in told]


@dataclass(frozen=True)
class _RunProgress:
    """What a run has done so far: a routine works through items, each with its mutations."""

    items: tuple[Row, ...]
    mutations: tuple[Mutation, ...]

    @staticmethod
    def of(look: Look, run: Run) -> _RunProgress:
        where = {"workflow_id": run.workflow_id, "run_id": run.id}
        items = look.read.all("look_items_of_run", **where) if run.kind == "routine" else []
        mutations = [mutation_record(row) for row in look.read.all("look_mutations_of_run", **where)]
        return _RunProgress(tuple(items), tuple(mutations))

    @property
    def marks(self) -> _Marks:
        return {**{i["id"]: str(i["status"]) for i in self.items}, **{m.id: m.status.value for m in self.mutations}}

    def since(self, before: _Marks) -> list[_Line]:
        """What is new: in a routine item by item, each one's mutations before its end."""
        now = self.marks
        lines: list[_Line] = []
        for item in (None, *self.items):  # a consumer's mutation belongs to none
            of = item["id"] if item else None
            sent = [m for m in self.mutations if m.item_id == of and before.get(m.id) != now[m.id]]
            lines += [each for m in sent for each in _of_mutation(m)]
            if item and item["status"] == "done" != before.get(item["id"]):
                lines.append((item["updated_at"], "item", "done", f"done: {item['title']}"))
        return lines


def _of_mutation(mutation: Mutation) -> list[_Line]:
    """What became of a mutation; what the run's own line says better is left to it."""
    operation = f"{mutation.connector}.{mutation.operation}"
    what = named(mutation).removeprefix(operation).lstrip(": ")  # a host's preview begins with it
    text = {
        "in_flight": f"sending {operation}: {what}",
        "applied": f"applied {operation}: {what}",
        "needs_reconcile": f"unknown whether it happened, so {mutation.connector} is asked: {what}",
        "skipped": f"skipped {operation}: {what}",
    }.get(mutation.status.value)
    return [(mutation.updated_at, "mutation", mutation.status.value, text)] if text else []


def _of_run(look: Look, run: Run, name: str, did: _RunProgress) -> list[_Line]:
    state, why = run.state.value, run.error.message if run.error else ""
    if run.kind == "routine" and state in ("committed", "abandoned"):
        return _of_routine(look, run, name, did)
    if state in ("active", "superseded", "abandoned") or _idle(run):
        return []
    if state == "crashed":
        return [(run.updated_at, "run", run.status, f"its host died while it was {run.phase}; another run carries on")]
    if state == "committed":
        return [(run.updated_at, "run", run.status, "committed")]
    stop = stop_of(look, run, name)
    if stop.needs_you:
        lines: list[_Line] = [(run.updated_at, "needs_you", run.status, f"{run.status}: {stop.why}")]
        return lines + [(run.updated_at, "needs_you", run.status, f"  type: {command}") for command in stop.commands]
    later = run.retry_at is not None and run.retry_at > run.updated_at
    if run.status == "paused:reconciliation" and not later:
        return []  # the mutation's line has said it
    again = f" Again {ago(run.retry_at, run.updated_at)}." if run.retry_at and later else ""
    return [(run.updated_at, "run", run.status, f"{run.status}: {why}{again}")]


def _of_routine(look: Look, run: Run, name: str, did: _RunProgress) -> list[_Line]:
    """The end of a routine, with what it left unfinished. One that found nothing to do is not reported."""
    asked = [q for q in look.views.needs_you(look.now_ms, run.workflow_id) if "item_id" in q.facts]
    left = [q for q in asked if look.views.run(q.run_id).lineage == run.lineage]
    told = run.state.value == "committed" and (did.items or left)
    lines: list[_Line] = [(run.updated_at, "run", run.status, "committed")] if told else []
    for question in left:
        typed = [f"  type: {command}" for _, command in commands(question, name)]
        lines += [(run.updated_at, "needs_you", run.status, text)
                  for text in (f"left unfinished: {question.title}", *typed)]
    return lines


def _idle(run: Run) -> bool:
    """Whether a consumer's run committed without having had anything to do."""
    if run.kind != "consumer" or run.state.value != "committed" or not run.prepare_result:
        return False
    return not json.loads(run.prepare_result).get("reservations")
