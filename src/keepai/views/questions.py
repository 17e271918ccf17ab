"""Which stopped runs are questions to a person, with the facts and what may be done about each."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.codec import Json
from ..model.records import Escalation, Mutation, Run
from ..model.states import MutationStatus, Phase, Reason

#: Kind of question → the acts that answer it.
ACTIONS: dict[str, tuple[str, ...]] = {
    "unknown_outcome": ("try_again", "did_not_happen", "happened", "skip"),
    "permission": ("grant", "retry", "skip_run"),
    "precondition": ("retry", "skip_run"),
    "logic": ("deploy", "retry", "skip_run"),
    "exhausted": ("retry", "skip_run"),
    "internal": ("retry", "skip_run"),
}


def question(run: Run, mutation: Mutation | None, inputs: Sequence[str]) -> Escalation | None:
    """The question that a stopped run puts; None while it may still go on by itself."""
    kind = _kind(run, mutation)
    if kind is None:
        return None
    asked = mutation if kind == "unknown_outcome" else None
    title = mutation.title if mutation else None
    return Escalation(
        id=f"ask_{run.id.removeprefix('run_')}", kind=kind, workflow_id=run.workflow_id, run_id=run.id,
        mutation_id=asked.id if asked else None, title=title or f"{run.handler} stopped",
        facts=_facts(run, mutation, inputs), actions=_actions(kind, run),
    )


def _kind(run: Run, mutation: Mutation | None) -> str | None:
    match run.reason:
        case Reason.RECONCILIATION:
            waits = mutation is not None and mutation.status is MutationStatus.INDETERMINATE
            return "unknown_outcome" if waits else None
        case Reason.TRANSIENT:
            return "exhausted" if run.exhausted else None
        case Reason.APPROVAL:
            return "precondition" if run.error and run.error.code == "precondition" else "permission"
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
