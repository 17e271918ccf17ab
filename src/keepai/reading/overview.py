"""Every workflow at a glance, and what came in and went out of one, by source and by connector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..model.records import Escalation, Record, Workflow
from ..model.states import Reason
from .call_sentences import sentence_of
from .offered_acts import heading
from .views import Views

#: At most so much of what waits in one workflow is counted.
COUNTED_MAX = 10_000
LATE_MAX = 1_000_000  #: of what came too late


@dataclass(frozen=True)
class InputCount(Record):
    """The inputs of one source and type."""

    source: str
    type: str
    total: int
    pending: int
    skipped: int
    late: int  # that came after their event was finished, and were not processed

    @property
    def done(self) -> int:
        """Those of which nothing is left to do."""
        return self.total - self.pending - self.skipped - self.late


@dataclass(frozen=True)
class OutputCount(Record):
    """The outputs through one connector."""

    connector: str
    total: int
    open: int  # being sent, or not known yet
    failed: int
    skipped: int

    @property
    def applied(self) -> int:
        """Those that are known to have happened."""
        return self.total - self.open - self.failed - self.skipped


@dataclass(frozen=True)
class WorkflowGlance(Record):
    """One workflow at a glance."""

    workflow: Workflow
    standing: str  # "needs you", "failed", "paused", "stopped", "running", "waiting", "watching" or "idle"
    because: str
    questions: int
    held: bool  # the workflow waits until one of them is answered
    active_at: int | None  # when a run last did something


@dataclass(frozen=True)
class Traffic(Record):
    """Everything that ever came in and went out of one workflow, counted."""

    inputs: tuple[InputCount, ...]
    more_pending: bool  # more waits than was counted
    outputs: tuple[OutputCount, ...]


def glances(read: Reader, views: Views, now_ms: int) -> list[WorkflowGlance]:
    """Every workflow, those that need somebody first."""
    asked = views.needs_you(now_ms)
    found = [_glance(read, workflow, [q for q in asked if q.workflow_id == workflow.id])
             for workflow in views.workflows(now_ms)]
    return sorted(found, key=lambda each: (not each.questions, each.workflow.name))


def traffic(read: Reader, workflow_id: str) -> Traffic:
    """What came in by source, and what went out by connector."""
    pending = read.all("look_inputs_waiting", workflow_id=workflow_id, limit=COUNTED_MAX)
    return Traffic(tuple(_arrived(read, workflow_id, pending)), len(pending) == COUNTED_MAX,
                   tuple(_sent(read, workflow_id)))


def _glance(read: Reader, workflow: Workflow, asked: Sequence[Escalation]) -> WorkflowGlance:
    where = {"workflow_id": workflow.id}
    last, open_run = read.one("look_runs", **where, limit=1), read.one("run_open", **where)
    standing, because = standing_of(workflow, asked, open_run)
    held = open_run is not None and any(q.run_id == open_run["id"] for q in asked)
    return WorkflowGlance(
        workflow, standing, because, len(asked), held, int(last["updated_at"]) if last else None)


def standing_of(workflow: Workflow, asked: Sequence[Escalation], run: Row | None) -> tuple[str, str]:
    """One word for how a workflow stands, and the reason behind it."""
    active = workflow.status.value == "active"
    if asked:
        failed = next((q for q in asked if q.kind in ("logic", "internal")), None)
        first = failed or asked[0]
        said = sentence_of(first.facts) if first.kind in ("approval", "unknown_outcome") else ""
        why = f"{heading(first)} {said}" if said else str(first.facts.get("why") or first.title)
        held = "" if active else f" It is {workflow.status} too: nothing goes on until somebody resumes it."
        return "failed" if failed else "needs you", f"{why}{held}"
    if not active:
        return workflow.status.value, "It starts nothing until somebody resumes it."
    if run is not None and run["status"] == "active":
        return "running", f"{run['handler']} is {run['phase']}."
    if run is not None and run["reason"] == Reason.LIMIT:
        error = run_record(run).error
        return "waiting", error.message if error else f"{run['handler']} waits its turn."
    if run is not None:
        return "waiting", f"{run['handler']} stopped and goes on by itself."
    if workflow.pending:
        return "waiting", "Events wait for a consumer."
    if workflow.next_due_at is not None:
        return "watching", "Nothing is left to do; it looks again by itself."
    return "idle", "Nothing is left to do, and nothing is planned."


def _arrived(read: Reader, workflow_id: str, pending: Iterable[Row]) -> list[InputCount]:
    waiting = Counter((r["source"], r["type"]) for r in pending)
    skipped = {(r["source"], r["type"]): r["skipped"]
               for r in read.all("look_inputs_skipped", workflow_id=workflow_id)}
    late = {(r["source"], r["type"]): r["late"]
            for r in read.all("look_inputs_late", workflow_id=workflow_id, limit=LATE_MAX)}
    return [
        InputCount(*(kind := (r["source"], r["type"])), r["total"], waiting[kind], skipped.get(kind, 0),
                   late.get(kind, 0))
        for r in read.all("look_inputs_by_kind", workflow_id=workflow_id)
    ]


def _sent(read: Reader, workflow_id: str) -> list[OutputCount]:
    ended = Counter({(r["connector"], r["status"]): r["number"]
                     for r in read.all("look_mutations_ended", workflow_id=workflow_id)})
    under_way = Counter(r["connector"] for r in read.all("look_mutation_open", workflow_id=workflow_id))
    return [
        OutputCount(c := r["connector"], r["total"], under_way[c], ended[c, "failed"], ended[c, "skipped"])
        for r in read.all("look_mutations_by_connector", workflow_id=workflow_id)
    ]
