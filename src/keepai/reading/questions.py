"""Which stopped runs are questions to a person, with the facts and what may be done about each.

An act is offered only if it would be accepted now. One that will be accepted later is in the facts, under
`possible_from`, with the moment. A run that goes on by itself as soon as a host runs is not a question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ..engine.approval import in_words
from ..engine.failure import inputs_of
from ..engine.next_step import AskAgain, AskRepair, NextStep, Now, Wait, look, of_run, step_of_run
from ..ledger.account import of_subject
from ..ledger.base import Reader, Row
from ..ledger.rows import mutation_record
from ..ledger.transitions.turns import Turn
from ..model.clock import iso, parse_iso
from ..model.codec import Json, stored
from ..model.policy import Policy
from ..model.records import Approval, Escalation, Mutation, Run
from ..model.states import MutationStatus, Phase, Reason
from ..script.result_reads import result_reads
from .repair_questions import Repairs, repairs_of, waiting_repair
from .unknown_outcome import DoubtfulMutation, HostFacts

#: Kind of question → the acts that answer it.
ACTIONS: dict[str, tuple[str, ...]] = {
    "unknown_outcome": ("try_again", "did_not_happen", "happened", "skip"),
    "approval": ("approve", "reject"),
    "permission": ("grant", "retry", "skip_run"),
    "attention": ("keep", "skip_run"),
    "precondition": ("retry", "skip_run"),
    "logic": ("deploy", "retry", "skip_run"),
    "exhausted": ("retry", "skip_run"),
    "internal": ("retry", "skip_run"),
    "proposal": ("accept", "decline"),
}

#: The error that made a run wait for a person → the kind of question.
_PERSON_KINDS = {kind: kind for kind in ("approval", "permission", "precondition", "attention")}

_ASKED_AFRESH = "it has expired; the next host that runs asks again"


@dataclass(frozen=True)
class StoppedRunFacts:
    """A stopped run, what it does next, and everything that decides what a person may do about it."""

    run: Run
    workflow: Row
    step: NextStep  # what the run does next, unless a person holds the workflow
    present: bool  # the active version has its handler
    mutation: Mutation | None  # the one that its stop is about
    approval: Approval | None  # the one that it waits for or may use
    inputs: tuple[str, ...]
    doubt: DoubtfulMutation | None
    result_read: tuple[str, ...]  # of a doubt: where the script reads the result that a person may not have
    repairs: Repairs | None  # of a fault of the script
    turn: Turn | None = None  # of its call, if a limit holds that back
    behind: str | None = None  # the parked run that must be done first

    @property
    def kind(self) -> str | None:
        """What it asks; None while it may still go on by itself."""
        asks = self.turn is None and isinstance(self.step, Wait | AskAgain | AskRepair)
        return _kind(self.run, self.mutation) if asks else None

    @property
    def happened(self) -> bool:
        """Whether its mutation took place, so that only `next` is left of it."""
        if self.run.phase is Phase.EXECUTING:
            return False  # a routine has no `next`: it is replayed, with what happened
        applied = self.mutation is not None and self.mutation.status is MutationStatus.APPLIED
        return applied or self.run.phase in (Phase.MUTATED, Phase.EMITTING)

    @property
    def expired(self) -> bool:
        """Whether an answer would come too late, so that the next host asks again."""
        return isinstance(self.step, AskAgain)


class Questions:
    """Looks at one ledger. `host` is a running host, which knows its connectors; None if there is none."""

    def __init__(self, read: Reader, policy: Policy, host: HostFacts | None = None) -> None:
        self._read, self.policy, self._host = read, policy, host

    def of(self, run: Run, now_ms: int) -> Escalation | None:
        """The question that a stopped run puts; None while it may still go on by itself."""
        return None if run.reason is None else self.asked(self.seen(run, now_ms))

    def asked(self, seen: StoppedRunFacts) -> Escalation | None:
        """The same, for a run that was looked at already."""
        if not isinstance(seen.step, Wait | AskAgain | AskRepair):
            return None
        return waiting_repair(self._read, seen.run) or question(seen)

    def now(self, workflow_id: str, now_ms: int) -> Now:
        """One look at a workflow, as the host takes it."""
        return look(self._read, workflow_id, now_ms, self.policy, self._host.parts if self._host else None)

    def seen(self, run: Run, now_ms: int) -> StoppedRunFacts:
        """A stopped run and what decides about it."""
        parts = self._host.parts if self._host else None
        now = of_run(self._read, run.workflow_id, now_ms, self.policy, parts, run)
        mutation = self._mutation(run)
        doubt = self.doubt(mutation) if mutation else None
        titles = tuple(str(row["title"]) for row in inputs_of(self._read, run))
        step, present = step_of_run(now, run, now.stopped), now.manifest.handler(run.handler) is not None
        return StoppedRunFacts(
            run, now.workflow, step, present, mutation, now.stopped.approval if now.stopped else None, titles, doubt,
            self._result_read(run, now.workflow, doubt) if doubt else (),
            repairs_of(self._read, run, self.policy.repairs_max) if run.reason is Reason.LOGIC else None,
            now.stopped.turn if now.stopped else None, now.stopped.behind if now.stopped else None,
        )

    def _result_read(self, run: Run, workflow: Row, doubt: DoubtfulMutation) -> tuple[str, ...]:
        """The places where the active version reads the result."""
        version = {"major": workflow["major"], "minor": workflow["minor"]}
        script = self._read.one("script_get", workflow_id=run.workflow_id, **version)
        assert script is not None, f"version {version} of {run.workflow_id} is never deleted"
        sent = doubt.mutation
        return result_reads(str(script["source"]), run.handler, f"{sent.connector}.{sent.operation}")

    def _mutation(self, run: Run) -> Mutation | None:
        """The mutation that a run's stop is about: its newest, or the one that differs from what is wanted now."""
        differs = run.differs
        row = self._read.one("mutation_by_id", mutation_id=differs["mutation_id"]) if differs else self._read.one(
            "mutation_of_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
        mutation = mutation_record(row) if row else None
        passed = run.phase is Phase.EXECUTING and mutation and mutation.status is MutationStatus.APPLIED
        return None if passed and not differs else mutation

    def doubt(self, mutation: Mutation) -> DoubtfulMutation | None:
        """What is known about a mutation in question; None if it is not."""
        if mutation.status is not MutationStatus.INDETERMINATE:
            return None
        moves = of_subject(self._read, mutation.workflow_id, mutation.id)
        asked_before = any(move["target"] == MutationStatus.NEEDS_RECONCILE for move in moves)
        return DoubtfulMutation(mutation, asked_before, self._host.known(mutation) if self._host else None)


def question(seen: StoppedRunFacts) -> Escalation | None:
    """The question that a stopped run puts, if it does."""
    kind, run, approval = seen.kind, seen.run, seen.approval
    if kind is None:
        return None
    facts = _facts(seen)
    return Escalation(
        id=approval.id if approval and kind == "approval" else f"ask_{run.id.removeprefix('run_')}",
        kind=kind, workflow_id=run.workflow_id, run_id=run.id,
        mutation_id=seen.mutation.id if seen.mutation and kind in ("unknown_outcome", "attention") else None,
        title=str(facts.get("title_by_script") or f"{run.handler} stopped"), facts=facts, actions=_actions(kind, seen),
    )


def _kind(run: Run, mutation: Mutation | None) -> str | None:
    match run.reason:
        case Reason.RECONCILIATION:
            waits = mutation is not None and mutation.status is MutationStatus.INDETERMINATE
            return "unknown_outcome" if waits else None
        case Reason.TRANSIENT:
            return "exhausted" if run.exhausted else None
        case Reason.APPROVAL:
            return _PERSON_KINDS.get(run.error.code, "attention") if run.error else "permission"
        case Reason.LOGIC:
            return "logic"
        case Reason.INTERNAL:
            return "internal"
    return None


def _actions(kind: str, seen: StoppedRunFacts) -> tuple[str, ...]:
    """The acts that would be accepted now."""
    if kind == "unknown_outcome" and seen.doubt:
        return seen.doubt.actions
    refused = {
        "retry": not seen.present, "grant": seen.run.lacks is None,
        "approve": seen.expired, "reject": seen.expired, "keep": seen.run.differs is None,
    }
    acts = [act for act in ACTIONS[kind] if not refused.get(act)]
    return tuple(given_up(seen) if act == "skip_run" else act for act in acts)


def given_up(seen: StoppedRunFacts) -> str:
    """The act that gives up a stopped run: a run whose mutation happened can be finished, not skipped."""
    return "finish" if seen.happened else "skip_run"


def _facts(seen: StoppedRunFacts) -> dict[str, Json]:
    run, mutation = seen.run, seen.mutation
    facts: dict[str, Json] = {
        "why": run.error.message if run.error else None, "handler": run.handler, "version": run.version,
        "phase": run.phase, "status": run.status, "inputs": list(seen.inputs),
    }
    if run.error and run.error.line:
        facts["location"] = f"{run.error.line}:{run.error.column}"
    if run.lacks:
        facts["capability"] = run.lacks
    if seen.workflow["status"] != "active":
        facts["workflow_status"] = seen.workflow["status"]
    facts |= sent_facts(mutation) if mutation else {}
    if differs := run.differs:
        facts |= {side: differs[side] for side in ("applied", "wanted", "wanted_preview")}
    facts |= {**seen.doubt.facts(), "result_read": list(seen.result_read)} if seen.doubt else {}
    facts |= seen.repairs.facts() if seen.repairs else {}
    return facts | (_call(seen) if seen.approval else {})


def sent_facts(mutation: Mutation) -> dict[str, Json]:
    """What was sent, exactly, and how often."""
    return {
        "connector": mutation.connector, "operation": mutation.operation, "account": mutation.account,
        "target": mutation.target,
        "attempted": mutation.preview, "title_by_script": mutation.title, "params": mutation.params,
        "mutation_status": mutation.status, "sent_times": mutation.attempts,
        "asked_times": mutation.reconcile_attempts,
    }


def _call(seen: StoppedRunFacts) -> dict[str, Json]:
    """The call as it was held: the host's words and the very params that will be sent."""
    approval = cast("Approval", seen.approval)
    intent = cast("dict[str, Json]", stored(approval.intent))
    later: dict[str, Json] = dict.fromkeys(ACTIONS["approval"], _ASKED_AFRESH) if seen.expired else {}
    return {
        "connector": intent["connector"], "operation": intent["operation"],
        "attempted": intent["preview"], "target": intent["target"], "params": stored(str(intent["params"])),
        "why": in_words(str(intent["preview"]), approval.because),
        "because": approval.because, "account": approval.account, "capability": approval.capability,
        "title_by_script": intent["title"],
        "asked_at": iso(approval.created_at), "expires_at": iso(approval.expires_at), "possible_from": later,
    }


def asked_at(read: Reader, question: Escalation) -> int:
    """When a question came up: when its call was held or its script proposed, else when its run stopped."""
    told = question.facts.get("asked_at")
    if isinstance(told, str):
        return parse_iso(told)
    row = read.one("run_by_id", run_id=question.run_id)
    assert row is not None, "a question that says no time is about a run"
    return int(row["updated_at"])
