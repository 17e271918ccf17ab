"""Which stopped runs are questions to a person, with the facts and what may be done about each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..model.clock import iso
from ..model.codec import Json, stored
from ..model.records import Approval, Escalation, Mutation, Run
from ..model.states import ApprovalStatus, MutationStatus, Phase, Reason

#: Kind of question → the acts that answer it.
ACTIONS: dict[str, tuple[str, ...]] = {
    "unknown_outcome": ("try_again", "did_not_happen", "happened", "skip"),
    "approval": ("approve", "reject"),
    "permission": ("grant", "retry", "skip_run"),
    "attention": ("skip_run",),
    "precondition": ("retry", "skip_run"),
    "logic": ("deploy", "retry", "skip_run"),
    "exhausted": ("retry", "skip_run"),
    "internal": ("retry", "skip_run"),
}


#: The error that made a run wait for a person → the kind of question.
_PERSON_KINDS = {kind: kind for kind in ("approval", "permission", "precondition", "attention")}


def question(
    run: Run, mutation: Mutation | None, approval: Approval | None, inputs: Sequence[str],
) -> Escalation | None:
    """The question that a stopped run puts; None while it may still go on by itself."""
    kind = _kind(run, mutation)
    if kind is None or (kind == "approval" and not _waits(approval)):
        return None
    asked = mutation if kind == "unknown_outcome" else None
    facts = _facts(run, mutation, inputs) | (_call(approval) if approval else {})
    return Escalation(
        id=approval.id if approval and kind == "approval" else f"ask_{run.id.removeprefix('run_')}",
        kind=kind, workflow_id=run.workflow_id, run_id=run.id, mutation_id=asked.id if asked else None,
        title=str(facts.get("title_by_script") or f"{run.handler} stopped"), facts=facts, actions=_actions(kind, run),
    )


def _waits(approval: Approval | None) -> bool:
    return approval is not None and approval.status is ApprovalStatus.PENDING


def _call(approval: Approval) -> dict[str, Json]:
    """The call as it was held: the host's words and the very params that will be sent."""
    intent = cast("dict[str, Json]", stored(approval.intent))
    return {
        "attempted": intent["preview"], "target": intent["target"], "params": stored(str(intent["params"])),
        "account": approval.account, "capability": approval.capability, "title_by_script": intent["title"],
        "asked_at": iso(approval.created_at), "expires_at": iso(approval.expires_at),
    }


def _kind(run: Run, mutation: Mutation | None) -> str | None:
    match run.reason:
        case Reason.RECONCILIATION:
            waits = mutation is not None and mutation.status is MutationStatus.INDETERMINATE
            return "unknown_outcome" if waits else None
        case Reason.TRANSIENT:
            return "exhausted" if run.exhausted else None
        case Reason.APPROVAL:
            return _PERSON_KINDS[run.error.code] if run.error else "permission"
        case Reason.LOGIC:
            return "logic"
        case Reason.INTERNAL:
            return "internal"
    return None


def _actions(kind: str, run: Run) -> tuple[str, ...]:
    if run.phase in (Phase.MUTATED, Phase.EMITTING):  # what happened cannot be skipped, only finished
        return tuple("finish" if act == "skip_run" else act for act in ACTIONS[kind])
    return ACTIONS[kind]


def _facts(run: Run, mutation: Mutation | None, inputs: Sequence[str]) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "why": run.error.message if run.error else None, "handler": run.handler, "version": run.version,
        "phase": run.phase, "status": run.status, "inputs": list(inputs),
    }
    if run.error and run.error.line:
        facts["location"] = f"{run.error.line}:{run.error.column}"
    if mutation is not None:
        facts |= {
            "attempted": mutation.preview, "target": mutation.target, "title_by_script": mutation.title,
            "mutation_status": mutation.status, "sent_times": mutation.attempts,
            "asked_times": mutation.reconcile_attempts,
        }
    return facts
