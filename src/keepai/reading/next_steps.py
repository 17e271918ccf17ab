"""Who or what can move something: a time, an event, reconciliation, a host, a person with which acts, or nothing.

Something can always move what waits: if nothing else, a person. `engine/next_step.py` and `engine/commands.py` decide;
this module only explains their rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.next_step import Abandon, AskRepair, CarryOn, LookUp, SendApproved, TakeTurn, Wait, next_step
from ..engine.scheduler import consumer_due
from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..model.clock import parse_iso
from ..model.records import Approval, Escalation, Mutation, Record, Run
from ..model.states import (
    OPEN,
    UNFINISHED,
    ApprovalStatus,
    EventStatus,
    ItemStatus,
    MutationStatus,
    Reason,
    RepairStatus,
    Status,
    Waiting,
)
from .inputs_and_events import kept_row
from .left_items import applied_of, left_actions, sent_again
from .parked_runs import full
from .questions import Questions, StoppedRunFacts, given_up
from .unknown_outcome import HOST_KNOWS, NOT_ENDED
from .wording import run_stands


@dataclass(frozen=True)
class StepAhead(Record):
    """One thing that can move another."""

    kind: str  # "time", "event", "reconciliation", "host", "run", "person" or "nothing"
    what: str
    due_at: int | None = None
    acts: tuple[str, ...] = ()  # what a person may do
    subject: str | None = None  # to what
    capability: str | None = None  # what `grant` would grant


#: Of so many parked runs it is told what lets them go on.
_PARKED_MAX = 5

#: Nothing can move it.
FINISHED = (StepAhead("nothing", "It is finished."),)

_ANSWERS = {
    "unknown_outcome": "A person must say what became of it.",
    "approval": "A person must say whether exactly this call may be sent.",
    "permission": "A person must allow it, or give it up.",
    "attention": "A person must look: it was done before with another content.",
    "precondition": "A person must mend what is missing outside, then have it tried again, or give it up.",
    "logic": "A person must mend the script, have it tried again, or give it up.",
    "exhausted": "Its attempts are used up: a person must have it tried again, or give it up.",
    "internal": "The host or a connector is at fault: after mending it, a person has the run tried again.",
}


class NextSteps:
    """Finds what can move the things of one ledger, from their state at one moment."""

    def __init__(self, read: Reader, questions: Questions, now_ms: int) -> None:
        self._read, self._questions, self._now = read, questions, now_ms

    def of_run(self, run: Run) -> tuple[StepAhead, ...]:
        """What lets a run go on."""
        if run.state in (Status.CRASHED, Status.SUPERSEDED):
            return self._of_next(run)
        if run.state not in OPEN:
            return FINISHED
        if run.state is Status.ACTIVE:
            workflow = kept_row(self._read, "workflow_by_id", workflow_id=run.workflow_id)
            what = "A host runs it; if that host died, the next one that starts carries on."
            if run.parked:
                what = "A person has answered: it goes on as soon as the run that is under way has ended."
            return (*self._resume(workflow), StepAhead("host", what))
        seen = self._questions.seen(run, self._now)
        return (*self._resume(seen.workflow), *self._of_stopped(seen))

    def of_mutation(self, mutation: Mutation, run: Run, deadline_at: int) -> tuple[StepAhead, ...]:
        """What lets the outcome of a mutation be known, or has a person look at evidence against it."""
        if mutation.contradicted_at is not None:
            look = "A person must look: later evidence contradicts what is on record."
            return (StepAhead("person", look, None, ("seen",), mutation.id),)
        match mutation.status:
            case MutationStatus.IN_FLIGHT:
                host = StepAhead("host", "The host waits for the answer; if it dies, the next one asks what happened.",
                             deadline_at)
                return (host,)
            case MutationStatus.NEEDS_RECONCILE | MutationStatus.INDETERMINATE:
                return self.of_run(run)
            case MutationStatus.FAILED if run.state in OPEN:
                goes_on = f"It stays as it is; its run {run.id} goes on."
                return (StepAhead("run", goes_on, subject=run.id), *self.of_run(run))
        return FINISHED

    def of_approval(self, approval: Approval, run: Run) -> tuple[StepAhead, ...]:
        """What lets a held call be sent or given up."""
        if approval.status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED):
            return self.of_run(run)
        return FINISHED

    def of_event(self, event: Row) -> tuple[StepAhead, ...]:
        """What lets an event be taken."""
        if event["status"] != EventStatus.PENDING:
            again = StepAhead("person", "It can be processed again.", acts=("reprocess",), subject=event["id"])
            return (*FINISHED, again) if event["payload"] or event["held"] else FINISHED
        if event["reserved_by"]:
            run = kept_row(self._read, "run_by_id", run_id=event["reserved_by"])
            return self._through(run_record(run), "has reserved it")
        skip = StepAhead("person", "A person can skip it.", acts=("skip_event",),
                     subject=event["id"])
        if event["held_by"]:
            parked = run_record(kept_row(self._read, "run_by_id", run_id=event["held_by"]))
            return (*self._through(parked, "is parked, and works on an input of it"), skip)
        subscriber = self._subscriber(event)
        if subscriber is None:
            return (StepAhead("nothing", "It is a result, unless a new version subscribes to its topic."), skip)
        return (*self._of_free(event["workflow_id"], subscriber), skip)

    def is_result(self, event: Row) -> bool:
        """Whether an event is in a topic that no handler takes: then it is not work that waits."""
        return event["status"] == EventStatus.PENDING and not event["reserved_by"] and self._subscriber(event) is None

    def _subscriber(self, event: Row) -> str | None:
        topic = self._read.one("look_topic", workflow_id=event["workflow_id"], topic=event["topic"])
        return str(topic["subscriber"]) if topic is not None and topic["subscriber"] is not None else None

    def of_item(self, item: Row) -> tuple[StepAhead, ...]:
        """What lets an item be finished."""
        if ItemStatus(item["status"]) not in UNFINISHED:
            return FINISHED
        if item["held_by"] is not None:
            run = kept_row(self._read, "run_by_id", run_id=item["held_by"])
            return self._through(run_record(run), "holds it")
        held = self._resume(kept_row(self._read, "workflow_by_id", workflow_id=item["workflow_id"]))
        return (*held, *self._of_routine(item), *_of_left(self._read, item))

    def _of_routine(self, item: Row) -> tuple[StepAhead, ...]:
        """When the routine runs again, for an item that no run works on."""
        holds = self._read.one("run_open", workflow_id=item["workflow_id"])
        if holds is not None:
            what = f"holds the workflow; after it, {item['handler']!r} can come to it"
            return self._through(run_record(holds), what)
        handler = self._read.one("handler_get", workflow_id=item["workflow_id"], handler=item["handler"])
        if handler is None or not handler["present"]:
            return ()
        what = f"Then {item['handler']!r} runs, and may come to it."
        return (StepAhead("time", what, self._now if handler["queued"] else handler["next_run_at"]),)

    def of_workflow(self, workflow: Row, run: Run | None) -> tuple[StepAhead, ...]:
        """What lets a workflow do something."""
        if workflow["status"] != "active":
            return self._resume(workflow)
        if run is not None:
            return self._through(run, "holds it")
        now = self._questions.now(workflow["id"], self._now)
        parked = tuple(
            StepAhead("run", f"Run {each.id} is parked: it {run_stands(each.status)}.", subject=each.id)
            for each, _ in now.parked[:_PARKED_MAX])
        step = next_step(now)
        if not isinstance(step, Wait):
            return (StepAhead("host", "Something is due: the next host that looks runs it."), *parked)
        look_now = "A person can have its producers look now."
        look = StepAhead("person", look_now, acts=("run_now",), subject=workflow["id"])
        at = [] if step.until is None else [StepAhead("time", "Then the next handler is due.", step.until)]
        return (*at, StepAhead("event", "A new event in a topic that a handler takes."), look, *parked)

    # -- runs --------------------------------------------------------------------------------------

    def _of_stopped(self, seen: StoppedRunFacts) -> tuple[StepAhead, ...]:
        run, asked = seen.run, self._questions.asked(seen)
        if seen.behind is not None:
            before = run_record(kept_row(self._read, "run_by_id", run_id=seen.behind))
            return self._through(before, "is parked, and may still write to the same target")
        if asked is not None:
            return (*self._of_repair(seen), *self._of_question(seen, asked))
        match seen.step:
            case LookUp():
                return (StepAhead("reconciliation", f"{_connector(seen)} is asked what became of it.", run.retry_at),)
            case SendApproved():
                return (StepAhead("host", "The next host that looks sends the approved call."),)
            case TakeTurn():
                return (StepAhead("host", "Its turn has come: the next host that looks goes on with it."),)
            case CarryOn(_, _, because):
                return (StepAhead("host", f"It goes on as soon as a host looks: {because}."),)
            case Abandon():
                what = f"The active version has no handler {run.handler!r}: the next host that looks ends it."
                return (StepAhead("host", what),)
        if run.reason is Reason.RECONCILIATION:
            return (StepAhead("reconciliation", f"{_connector(seen)} is asked what became of it.", run.retry_at),)
        acts = (*(("retry",) if seen.present else ()), given_up(seen))
        if seen.turn is not None:
            gives_up = StepAhead("person", "Nobody has to act. A person can give it up.", None, acts[-1:], run.id)
            return (StepAhead("time", f"Then its turn comes, by {seen.turn.rule}.", seen.turn.at), gives_up)
        may = "Nobody has to act. A person can have it tried now, or give it up."
        person = StepAhead("person", may, None, acts, run.id)
        return (StepAhead("time", "Then it is tried again.", run.retry_at), person)

    def _of_question(self, seen: StoppedRunFacts, asked: Escalation) -> tuple[StepAhead, ...]:
        run, kind, actions = seen.run, asked.kind, asked.actions
        if asked.id.startswith("fix_"):
            must = "A person must say whether this repair may become the active version."
            return (StepAhead("person", must, None, actions, asked.id),)
        if kind == "approval" and seen.approval:
            term = seen.approval.expires_at
            afresh = StepAhead("time", "If nobody has answered by then, Keep asks again.", term)
            answer = StepAhead("person", _ANSWERS[kind], None, actions, seen.approval.id)
            return (answer, afresh) if actions else (StepAhead("host", "It has expired: the next host asks again."),)
        if seen.doubt:
            answered = StepAhead("person", _ANSWERS[kind] + _null(seen), None, actions, seen.doubt.mutation.id)
            return (answered, *_later(seen))
        if kind == "attention" and asked.mutation_id:
            kept = StepAhead("person", "A person can keep what was applied.", None, ("keep",), asked.mutation_id)
            rest = tuple(act for act in actions if act != "keep")
            return (kept, StepAhead("person", _ANSWERS[kind], None, rest, run.id))
        gone = "" if seen.present else f" The active version has no handler {run.handler!r}."
        gone += seen.repairs.sentence() if seen.repairs else ""
        return (StepAhead("person", _ANSWERS[kind] + gone, None, actions, run.id, run.lacks),)

    def _of_repair(self, seen: StoppedRunFacts) -> tuple[StepAhead, ...]:
        if isinstance(seen.step, AskRepair):
            return (StepAhead("host", "The next host that looks asks the repair hook for a new version."),)
        tried = self._read.one("repair_of_run", run_id=seen.run.id)
        if tried is None or tried["status"] != RepairStatus.ASKED:
            return ()
        offers = "The repair hook has the evidence and may offer a new version."
        return (StepAhead("host", offers, subject=tried["id"]),)

    def _of_next(self, run: Run) -> tuple[StepAhead, ...]:
        """What moves a run that another one carried on from: whatever moves that other run."""
        rows = self._read.all("look_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
        last = run_record(rows[-1])
        if last.state not in OPEN:
            return (StepAhead("nothing", f"It is finished: run {last.id} carried on and is {last.status}."),)
        return self._through(last, "carries on")

    def _through(self, run: Run, does: str) -> tuple[StepAhead, ...]:
        return (StepAhead("run", f"Run {run.id} {does}; it is {run.status}.", subject=run.id), *self.of_run(run))

    # -- waiting events ----------------------------------------------------------------------------

    def _of_free(self, workflow_id: str, subscriber: str) -> tuple[StepAhead, ...]:
        """What lets a consumer look at an event that no run has reserved."""
        holds = self._read.one("run_open", workflow_id=workflow_id)
        if holds is not None:
            return self._through(run_record(holds), f"holds the workflow; after it, {subscriber!r} can take it")
        workflow = kept_row(self._read, "workflow_by_id", workflow_id=workflow_id)
        if workflow["parked"] and (held := self._of_held_handler(workflow, subscriber)):
            return (*self._resume(workflow), *held)
        [handler] = [h for h in self._read.all("handler_due", workflow_id=workflow_id) if h["handler"] == subscriber]
        return (*self._resume(workflow), *self._of_handler(handler))

    def _of_held_handler(self, workflow: Row, handler: str) -> tuple[StepAhead, ...]:
        """What lets a handler begin that waits for parked runs."""
        holds = self._read.one("parked_handler", workflow_id=workflow["id"], handler=handler)
        if holds is not None:
            run = run_record(kept_row(self._read, "run_by_id", run_id=holds["run_id"]))
            return self._through(run, f"is parked; after it, {handler!r} can begin")
        if workflow["waiting"] == Waiting.OTHERS and full(workflow, self._questions.policy) is None:
            return ()
        parked = [run_record(row) for row in self._read.all("parked_runs", workflow_id=workflow["id"])]
        return tuple(step for run in parked[:_PARKED_MAX]
                     for step in self._through(run, f"is parked; after it, {handler!r} can begin"))

    def _of_handler(self, handler: Row) -> tuple[StepAhead, ...]:
        name = repr(str(handler["handler"]))
        times = [handler[at] for at in ("wake_at", "recheck_at") if handler[at] is not None]
        if consumer_due(handler, self._now) is not None:
            return (StepAhead("host", f"The next host that looks offers it to {name}."),)
        again = StepAhead("event", f"{name} left it the last time; it looks again when another event comes.")
        return (*([StepAhead("time", f"Then {name} looks again.", min(times))] if times else []), again)

    def _resume(self, workflow: Row) -> tuple[StepAhead, ...]:
        if workflow["status"] == "active":
            return ()
        what = f"The workflow is {workflow['status']}: it starts nothing until a person resumes it."
        return (StepAhead("person", what, None, ("resume",), workflow["id"]),)


def _of_left(read: Reader, item: Row) -> tuple[StepAhead, ...]:
    """What a person can do about an item that no run works on."""
    what = f"A person can have it worked on again, as a new attempt.{sent_again(applied_of(read, item))}"
    again = StepAhead("person", what, None, ("reprocess",), item["id"])
    skip = StepAhead("person", "A person can give it up.", None, ("skip_input",), item["input_id"])
    anew = item["status"] == ItemStatus.FAILED and "reprocess" in left_actions(read, item)
    return (again, skip) if anew else (skip,)


def _null(seen: StoppedRunFacts) -> str:
    """What a person who cannot give the result must know."""
    if not seen.result_read:
        return ""
    return f" The script reads the result ({'; '.join(seen.result_read)}): `happened` without a result gives it null."


def _later(seen: StoppedRunFacts) -> tuple[StepAhead, ...]:
    """When a person may also say that it did not happen, if that is not yet so."""
    until = seen.doubt.arrives_until if seen.doubt else None
    if until is None or seen.doubt is None:
        return ()
    id, acts = seen.doubt.mutation.id, ("did_not_happen",)
    if until == NOT_ENDED:
        open_call = f"Not before the host knows that the call has ended ({NOT_ENDED}): it may still happen."
        return (StepAhead("host", open_call, None, acts, id),)
    if until == HOST_KNOWS:
        return (StepAhead("host", "Possible once a host has run for the time in which the request may still arrive.",
                      None, acts, id),)
    return (StepAhead("time", "After that the request can no longer arrive, and this answer is possible too.",
                  parse_iso(until), acts, id),)


def _connector(seen: StoppedRunFacts) -> str:
    return seen.mutation.connector if seen.mutation else "The outside system"
