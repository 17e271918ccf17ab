"""Why something is in its state: what was selected, what was attempted, what can move it on, and its story.

`Explainer.explain` takes the id of a run, a lineage, an input, an event, a mutation, an approval, a question or
a workflow. It reads only, and it works for every state that the ledger can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..engine.failure import inputs_of
from ..ledger.account import of_subject
from ..ledger.base import Reader, Row
from ..ledger.rows import approval_record, mutation_record, run_record
from ..model.codec import Json, stored
from ..model.errors import NotFound
from ..model.records import Approval, Held, Mutation, Record, Run
from ..model.states import OPEN, ApprovalStatus, MutationStatus
from . import reasons
from .contradictions import MEANINGS
from .inputs_and_events import held_record, input_status, kept_row, left_by_consumers, looks_at
from .next_steps import FINISHED, NextSteps, StepAhead
from .parked_runs import summary
from .questions import Questions
from .story import TOLD_MAX, Scope, StoryLine, story_of
from .unknown_outcome import late_evidence

#: At most this many waiting events of one input are explained.
_WAITING_MAX = 20


@dataclass(frozen=True)
class Selected(Record):
    """Something that was taken up: an input, in a person's words, or an event."""

    kind: str
    id: str
    title: str
    attempt: int | None = None  # of an event: the one that the run processed


@dataclass(frozen=True)
class Processed(Record):
    """A run that took an event or worked on an item, and the attempt of that which it processed."""

    run_id: str
    attempt: int
    handler: str
    version: str
    status: str


@dataclass(frozen=True)
class Attempted(Record):
    """A side effect that was sent, or that waits for a person; its title is the script's word, its preview ours."""

    id: str
    call: str
    target: str
    preview: str
    title_by_script: str | None
    params: Json
    status: str
    sent_times: int
    result: Json = None


@dataclass(frozen=True)
class Explanation(Record):
    """How something stands, why, and what can move it."""

    id: str
    kind: str  # "run", "input", "event", "item", "mutation", "approval" or "workflow"
    workflow_id: str
    standing: str
    because: str
    selected: tuple[Selected, ...]
    attempted: tuple[Attempted, ...]
    moved_by: tuple[StepAhead, ...]
    story: tuple[StoryLine, ...]
    untold: int = 0  # earlier moves that the story leaves out
    held: tuple[Held, ...] = ()  # payloads that came too late to be processed
    processed_by: tuple[Processed, ...] = ()  # of an event or an item, oldest first


class Explainer:
    """Explains the things of one ledger as they stand at one moment."""

    def __init__(self, read: Reader, questions: Questions, now_ms: int) -> None:
        self._read, self._now, self._policy = read, now_ms, questions.policy
        self._steps = NextSteps(read, questions, now_ms)

    def explain(self, id: str) -> Explanation:
        """One thing, by its whole id."""
        prefix, _, rest = id.partition("_")
        if prefix == "ask":  # a question is the run, the item or the mutation that it is about
            prefix, id = (rest[:3], rest) if rest.startswith(("itm_", "mut_")) else ("run", f"run_{rest}")
        if prefix == "prp":
            raise NotFound(f"{id} is a proposal: `keep proposals {id}` shows all of it.")
        by_id: dict[str, tuple[str, str, Callable[[Row], Explanation]]] = {
            "run": ("run_by_id", "run_id", self._run), "inp": ("look_input", "input_id", self._input),
            "evt": ("look_event", "event_id", self._event), "mut": ("mutation_by_id", "mutation_id", self._mutation),
            "apr": ("approval_by_id", "approval_id", self._approval),
            # A try to mend a script is a part of its run's story.
            "fix": ("repair_by_id", "repair_id", lambda repair: self._run(
                kept_row(self._read, "run_by_id", run_id=repair["run_id"]))),
            "itm": ("look_item", "item_id", self._item), "wf": ("workflow_by_id", "workflow_id", self._workflow),
        }
        statement, parameter, made = by_id.get(prefix, ("workflow_by_name", "name", self._workflow))
        row = self._read.one(statement, **{parameter: id})
        if row is None:
            raise NotFound(f"There is nothing with the id {id!r} to explain. `keep status` lists the workflows.")
        return made(row)

    # -- one per kind ------------------------------------------------------------------------------

    def _run(self, row: Row) -> Explanation:
        run = run_record(row)
        lineage = self._lineage(run)
        return self._made(
            run.id, "run", run.workflow_id, standing=reasons.standing(run), because=reasons.of_run(run, lineage),
            selected=self._selected(run), attempted=self._attempts(run), moved_by=self._steps.of_run(run),
            scope=self._scope(lineage),
        )

    def _mutation(self, row: Row) -> Explanation:
        mutation = mutation_record(row)
        run = run_record(kept_row(self._read, "run_by_id", run_id=mutation.run_id))
        evidence = late_evidence(mutation)
        return self._made(
            mutation.id, "mutation", run.workflow_id, standing=mutation.status.value,
            because=" ".join((
                reasons.of_mutation(mutation),
                *([MEANINGS[mutation.status]] if mutation.contradicted_at is not None else []),
                *([f"What came later: {evidence}."] if evidence else []))),
            selected=self._selected(run), attempted=(_attempt(mutation),),
            moved_by=self._steps.of_mutation(mutation, run, int(row["deadline_at"])),
            scope=self._scope(self._lineage(run)),
        )

    def _approval(self, row: Row) -> Explanation:
        approval, run = approval_record(row), run_record(kept_row(self._read, "run_by_id", run_id=row["run_id"]))
        return self._made(
            approval.id, "approval", run.workflow_id, standing=approval.status.value,
            because=reasons.of_approval(approval), selected=self._selected(run), attempted=(_held(approval),),
            moved_by=self._steps.of_approval(approval, run), scope=self._scope(self._lineage(run)),
        )

    def _item(self, row: Row) -> Explanation:
        where = {"workflow_id": row["workflow_id"], "item_id": row["id"]}
        rows = self._read.all("look_runs_of_item", **where)
        runs = [run_record(r) for r in rows]
        sent = [mutation_record(r) for r in self._read.all("look_mutations_of_item", item_id=row["id"])]
        subjects = (row["id"], *(run.id for run in runs), *(m.id for m in sent))
        return self._made(
            row["id"], "item", row["workflow_id"], standing=row["status"], because=reasons.of_item(row, runs, sent),
            selected=(Selected("input", row["input_id"], row["title"]),), attempted=tuple(_attempt(m) for m in sent),
            moved_by=self._steps.of_item(row), scope=Scope(row["workflow_id"], subjects),
            processed_by=_processed(rows),
        )

    def _event(self, row: Row) -> Explanation:
        where = {"workflow_id": row["workflow_id"], "event_id": row["id"]}
        rows = self._read.all("look_runs_of_event", **where)
        runs = [run_record(r) for r in rows]
        inputs = self._read.all("look_inputs_of_event", **where)
        sent = [self._read.one("mutation_of_run", workflow_id=run.workflow_id, run_id=run.id) for run in runs]
        subjects = (row["id"], *(run.id for run in runs))
        noted = of_subject(self._read, row["workflow_id"], row["id"])
        moves = [each for each in noted if each["machine"] == "event"]
        held = self._read.all("look_held_of_event", **where, revision=row["revision"])
        return self._made(
            row["id"], "event", row["workflow_id"], standing="reserved" if row["reserved_by"] else row["status"],
            because=reasons.of_event(row, runs, moves, self._left(row), is_result=self._steps.is_result(row)),
            held=tuple(held_record(each) for each in held), processed_by=_processed(rows),
            selected=tuple(Selected("input", i["id"], i["title"]) for i in inputs),
            attempted=tuple(_attempt(mutation_record(m)) for m in sent if m), moved_by=self._steps.of_event(row),
            scope=Scope(row["workflow_id"], subjects),
        )

    def _left(self, event: Row) -> str:
        """Who has looked at an event that waits, and left it."""
        topic = self._read.one("look_topic", workflow_id=event["workflow_id"], topic=event["topic"])
        if event["status"] != "pending" or event["reserved_by"] or topic is None or topic["subscriber"] is None:
            return ""
        consumer = str(topic["subscriber"])
        return reasons.left_by(consumer, looks_at(self._read, event, consumer)["looks"], "it came", "it")

    def _input(self, row: Row) -> Explanation:
        where = {"workflow_id": row["workflow_id"], "input_id": row["id"]}
        events = self._read.all("look_events_of_input", **where)
        mutations = [mutation_record(r) for r in self._read.all("look_mutations_of_input", **where)]
        item = self._read.one("look_item_of_input", input_id=row["id"])
        held = self._read.all("look_held_of_input", **where)
        subjects = (row["id"], *(e["id"] for e in events), *(h["event_id"] for h in held), *(m.id for m in mutations))
        subjects += (item["id"],) if item else ()
        status = input_status(row)
        return self._made(
            row["id"], "input", row["workflow_id"], standing=f"{status}, needs you" if row["needs_you"] else status,
            because=self._why_input(row, item, events, mutations, held), held=tuple(held_record(each) for each in held),
            selected=(*(Selected("event", e["id"], f"{e['topic']}/{e['message_id']}") for e in events),
                      *(_selected_late(each) for each in held)),
            attempted=tuple(_attempt(m) for m in mutations),
            moved_by=self._steps.of_item(item) if item else self._of_waiting(row, events, held),
            scope=Scope(row["workflow_id"], subjects),
        )

    def _why_input(
        self, row: Row, item: Row | None, events: Sequence[Row], mutations: Sequence[Mutation], held: Sequence[Row],
    ) -> str:
        if item is None:
            return reasons.of_input(row, events, len(self._waiting(events)), mutations, held)
        runs = self._read.all("look_runs_of_item", workflow_id=row["workflow_id"], item_id=item["id"])
        why = reasons.of_item(item, [run_record(r) for r in runs], mutations)
        return f"It stands for the item {item['id']}, which is {item['status']}. {why}"

    def _workflow(self, row: Row) -> Explanation:
        open_row = self._read.one("run_open", workflow_id=row["id"])
        run = run_record(open_row) if open_row else None
        gaps = left_by_consumers(self._read, self._read.all("handler_due", workflow_id=row["id"]))
        return self._made(
            row["id"], "workflow", row["id"], standing=reasons.standing_of_workflow(row, run),
            because=reasons.of_workflow(row, run, gaps) + summary(row, self._policy),
            selected=self._selected(run) if run else (),
            attempted=self._attempts(run) if run else (), moved_by=self._steps.of_workflow(row, run),
            scope=Scope(row["id"], (row["id"],), since_at=0),
        )

    def _waiting(self, events: Sequence[Row]) -> list[Row]:
        """The events that a handler still has to take; an event that no handler takes is a result."""
        return [e for e in events if e["status"] == "pending" and not self._steps.is_result(e)]

    def _of_waiting(self, row: Row, events: Sequence[Row], held: Sequence[Row]) -> tuple[StepAhead, ...]:
        """What moves the waiting events of an input, or the events for which it came too late."""
        moved = self._waiting(events) if row["waiting"] else []
        if row["late"] and not row["waiting"]:
            moved = [e for h in held[:_WAITING_MAX] if (e := self._read.one("look_event", event_id=h["event_id"]))]
        found = [step for event in moved[:_WAITING_MAX] for step in self._steps.of_event(event)]
        return tuple(dict.fromkeys(found)) or FINISHED

    # -- what they share ---------------------------------------------------------------------------

    def _made(
        self, id: str, kind: str, workflow_id: str, *, standing: str, because: str, selected: tuple[Selected, ...],
        attempted: tuple[Attempted, ...], moved_by: tuple[StepAhead, ...], scope: Scope, held: tuple[Held, ...] = (),
        processed_by: tuple[Processed, ...] = (),
    ) -> Explanation:
        story = story_of(self._read, scope)
        assert moved_by, f"{kind} {id}: something moves it, or it is finished"
        return Explanation(
            id, kind, workflow_id, standing, because, selected, attempted, moved_by, story[-TOLD_MAX:],
            max(0, len(story) - TOLD_MAX), held, processed_by,
        )

    def _lineage(self, run: Run) -> list[Run]:
        rows = self._read.all("look_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
        return [run_record(row) for row in rows]

    def _scope(self, lineage: Sequence[Run]) -> Scope:
        """The whole lineage: its runs, what they sent and what people were asked for them."""
        first, last = lineage[0], lineage[-1]
        where = {"workflow_id": first.workflow_id, "lineage": first.lineage}
        mutations = [mutation_record(r) for r in self._read.all("look_mutations_of_lineage", **where)]
        approvals = [str(r["id"]) for r in self._read.all("look_approvals_of_lineage", **where)]
        repairs = [str(r["id"]) for r in self._read.all("look_repairs_of_lineage", **where)]
        subjects = (*(r.id for r in lineage), *(m.id for m in mutations), *approvals, *repairs)
        until = None if last.state in OPEN else last.updated_at
        return Scope(first.workflow_id, subjects, first.version, first.created_at, until)

    def _selected(self, run: Run) -> tuple[Selected, ...]:
        where = {"workflow_id": run.workflow_id, "run_id": run.id}
        inputs = [Selected("input", r["id"], r["title"]) for r in self._read.all("look_inputs_of_run", **where)]
        events = self._read.all("reservation_of_run", **where)
        stopped_in = [Selected("input", r["id"], r["title"]) for r in inputs_of(self._read, run)]
        pinned = [Selected("event", r["event_id"], f"{r['topic']}/{r['message_id']}", r["attempt"]) for r in events]
        return tuple(dict.fromkeys((*inputs, *stopped_in, *pinned)))

    def _attempts(self, run: Run) -> tuple[Attempted, ...]:
        rows = self._read.all("look_mutations_of_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
        held = self._read.one("approval_open", run_id=run.id)
        return (*(_attempt(mutation_record(r)) for r in rows), *([_held(approval_record(held))] if held else []))


def _attempt(mutation: Mutation) -> Attempted:
    result = mutation.result if mutation.status is MutationStatus.APPLIED else None
    return Attempted(
        mutation.id, f"{mutation.connector}.{mutation.operation}", mutation.target, mutation.preview, mutation.title,
        mutation.params, mutation.status.value, mutation.attempts, result,
    )


def _held(approval: Approval) -> Attempted:
    """A call that a person was shown; what was sent of it is a mutation of its own."""
    intent = stored(approval.intent)
    assert isinstance(intent, dict), f"{approval.id} holds a call"
    title, used = intent["title"], approval.status is ApprovalStatus.CONSUMED
    return Attempted(
        approval.id, approval.capability, str(intent["target"]), str(intent["preview"]),
        None if title is None else str(title), stored(str(intent["params"])), "sent" if used else "not sent",
        int(used),
    )


def _processed(rows: Sequence[Row]) -> tuple[Processed, ...]:
    found = [(run_record(row), int(row["processed_attempt"])) for row in rows]
    return tuple(Processed(run.id, attempt, run.handler, run.version, run.status) for run, attempt in found)


def _selected_late(row: Row) -> Selected:
    """An event for which an input came too late."""
    what = f"{row['topic']}/{row['message_id']}: revision {row['revision']}, not processed"
    return Selected("event", row["event_id"], what)
