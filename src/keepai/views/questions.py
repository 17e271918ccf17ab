"""Which stopped runs are questions to a person, with the facts and what may be done about each.

An act is offered only if it would be accepted now; one that will be accepted later stands in the facts, under
`possible_from`, with the moment. A run that goes on by itself as soon as a host runs is no question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ..engine.approval import in_words
from ..engine.failure import inputs_of
from ..ledger.base import Reader, Row
from ..ledger.rows import approval_record, mutation_record
from ..model.clock import iso
from ..model.codec import Json, stored
from ..model.records import Approval, Escalation, Mutation, Run
from ..model.states import DOUBTFUL, ApprovalStatus, MutationStatus, Phase, Reason
from ..script.result_reads import result_reads
from .repairs import Repairs, repairs_of, waiting_repair
from .verify import Doubt, Knows

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
}

#: The error that made a run wait for a person → the kind of question.
_PERSON_KINDS = {kind: kind for kind in ("approval", "permission", "precondition", "attention")}

_ASKED_AFRESH = "it has expired; the next host that runs asks afresh"


@dataclass(frozen=True)
class Seen:
    """A stopped run with everything that decides what may be done about it."""

    run: Run
    workflow: Row
    present: bool  # the active version has its handler
    mutation: Mutation | None  # the newest of its lineage
    approval: Approval | None  # the one that it waits for or may use
    granted: bool  # what it lacked has been allowed meanwhile
    inputs: tuple[str, ...]
    doubt: Doubt | None
    result_read: tuple[str, ...]  # of a doubt: where the script reads the result that a person may not have
    repairs: Repairs | None  # of a fault of the script
    now_ms: int

    @property
    def kind(self) -> str | None:
        """What it asks; None while it may still go on by itself."""
        kind = _kind(self.run, self.mutation)
        if kind is None or self.goes_on or (kind == "approval" and not self._asks):
            return None
        return kind

    @property
    def goes_on(self) -> str | None:
        """Why the next host that looks carries on with it, if it does."""
        run, active = self.run, f"{self.workflow['major']}.{self.workflow['minor']}"
        if run.reason in (None, Reason.RECONCILIATION) or (self.mutation and self.mutation.status in DOUBTFUL):
            return None
        if self.granted:
            return f"{run.lacks} has been granted since"
        if run.version == active or run.reason is Reason.INTERNAL:
            return None
        return f"version {active} is active since" if self.present or not self.happened else None

    @property
    def happened(self) -> bool:
        """Whether its mutation took place, so that only `next` is left of it."""
        if self.run.phase is Phase.EXECUTING:
            return False  # a routine has no `next`: it is replayed, with what happened
        applied = self.mutation is not None and self.mutation.status is MutationStatus.APPLIED
        return applied or self.run.phase in (Phase.MUTATED, Phase.EMITTING)

    @property
    def expired(self) -> bool:
        """Whether an answer would come too late."""
        return self.approval is not None and self.now_ms >= self.approval.expires_at

    @property
    def _asks(self) -> bool:
        return self.approval is not None and self.approval.status is ApprovalStatus.PENDING


class Questions:
    """Looks at one ledger; `knows` is what a host tells about connectors, if one does."""

    def __init__(self, read: Reader, repairs_max: int, knows: Knows | None = None) -> None:
        self._read, self._repairs_max, self.knows = read, repairs_max, knows

    def of(self, run: Run, now_ms: int) -> Escalation | None:
        """The question that a stopped run puts; None while it may still go on by itself."""
        return None if run.reason is None else self.asked(self.seen(run, now_ms))

    def asked(self, seen: Seen) -> Escalation | None:
        """The same, for a run that was looked at already."""
        repair = None if seen.goes_on else waiting_repair(self._read, seen.run)
        return repair or question(seen)

    def seen(self, run: Run, now_ms: int) -> Seen:
        """A run and what decides about it."""
        read, where = self._read, {"workflow_id": run.workflow_id}
        workflow = read.one("workflow_by_id", **where)
        assert workflow is not None, f"{run.workflow_id} is never deleted"
        handler = read.one("handler_get", handler=run.handler, **where)
        held = read.one("approval_open", run_id=run.id)
        mutation = self._mutation(run)
        doubt = self.doubt(mutation) if mutation else None
        titles = tuple(str(row["title"]) for row in inputs_of(read, run))
        return Seen(
            run, workflow, bool(handler and handler["present"]), mutation, approval_record(held) if held else None,
            self._granted(run), titles, doubt, self._result_read(run, workflow, doubt) if doubt else (),
            repairs_of(read, run, self._repairs_max) if run.reason is Reason.LOGIC else None, now_ms,
        )

    def _result_read(self, run: Run, workflow: Row, doubt: Doubt) -> tuple[str, ...]:
        """Where the active version, which goes on with the result, reads it."""
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

    def doubt(self, mutation: Mutation) -> Doubt | None:
        """What is known about a mutation in question; None if it is not."""
        if mutation.status is not MutationStatus.INDETERMINATE:
            return None
        moves = self._read.all("look_moves", workflow_id=mutation.workflow_id, subject=mutation.id)
        asked_before = any(move["target"] == MutationStatus.NEEDS_RECONCILE for move in moves)
        return Doubt(mutation, asked_before, self.knows(mutation) if self.knows else None)

    def _granted(self, run: Run) -> bool:
        """Whether what a run lacked was allowed since it began; less than `allow` may not be enough."""
        wanted = run.lacks
        rules = self._read.all("grant_all", workflow_id=run.workflow_id) if wanted else []
        return any(r["capability"] == wanted and r["mode"] == "allow" and r["seq"] > run.seq for r in rules)


def question(seen: Seen) -> Escalation | None:
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


def _actions(kind: str, seen: Seen) -> tuple[str, ...]:
    """The acts that would be accepted now."""
    if kind == "unknown_outcome" and seen.doubt:
        return seen.doubt.actions
    refused = {
        "retry": not seen.present, "grant": seen.run.lacks is None,
        "approve": seen.expired, "reject": seen.expired, "keep": seen.run.differs is None,
    }
    acts = [act for act in ACTIONS[kind] if not refused.get(act)]
    return tuple(given_up(seen) if act == "skip_run" else act for act in acts)


def given_up(seen: Seen) -> str:
    """How a stopped run is given up: what happened cannot be skipped, only finished."""
    return "finish" if seen.happened else "skip_run"


def _facts(seen: Seen) -> dict[str, Json]:
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


def _call(seen: Seen) -> dict[str, Json]:
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
