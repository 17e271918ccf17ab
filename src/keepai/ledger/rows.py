"""Rows of the ledger as records."""

from __future__ import annotations

from typing import Any, cast

from ..model.codec import Json, stored
from ..model.records import Approval, Error, Item, Mutation, Proposal, Run, Script
from ..model.states import ApprovalStatus, ItemStatus, MutationStatus, Phase, ProposalStatus, Reason, Status
from .base import Reader, Row

_RUN_AS_IS = (
    "id", "workflow_id", "seq", "handler", "kind", "trigger", "retry_of", "lineage", "attempt", "prepare_result",
    "prepared_at", "outcome", "retry_at", "failures", "observed", "host", "epoch", "created_at", "updated_at",
    "due_at", "bytes", "parked", "item_id",
)
_MUTATION_AS_IS = (
    "id", "workflow_id", "run_id", "ordinal", "lineage", "mutation_key", "idempotency_key", "connector",
    "operation", "account", "target", "title", "preview", "attempts", "sender", "epoch", "first_sent_at", "closed_at",
    "doubted_at", "reconcile_attempts", "evidence", "resolution", "contradicted_at", "item_id",
    "created_at", "updated_at",
)
_APPROVAL_AS_IS = (
    "id", "workflow_id", "run_id", "capability", "account", "because", "intent", "digest", "expires_at",
    "decided_by", "created_at",
)
_ITEM_AS_IS = (
    "id", "workflow_id", "external_id", "title", "attempt", "input_id", "handler", "created_at", "updated_at",
)
_PROPOSAL_AS_IS = (
    "id", "workflow_id", "name", "proposer", "source", "cases", "why", "digest", "note", "expires_at", "created_at",
    "updated_at",
)
_SCRIPT = (
    "workflow_id", "major", "minor", "source", "hash", "manifest", "author", "impact", "created_at", "activated_at",
)


def run_record(row: Row) -> Run:
    """A run."""
    return Run(
        **_pick(row, _RUN_AS_IS), version=f"{row['major']}.{row['minor']}", phase=Phase(row["phase"]),
        state=Status(row["status"]), reason=Reason(row["reason"]) if row["reason"] else None,
        error=error_record(row["error"]), exhausted=bool(row["exhausted"]),
    )


def open_runs(read: Reader, workflow_id: str) -> list[Run]:
    """The open runs of a workflow: the one that holds it, if one does, and those that are parked."""
    holds = read.one("run_open", workflow_id=workflow_id)
    return [run_record(row) for row in [*([holds] if holds else []), *read.all("parked_runs", workflow_id=workflow_id)]]


def mutation_record(row: Row) -> Mutation:
    """A mutation."""
    return Mutation(
        **_pick(row, _MUTATION_AS_IS), params=stored(row["params"]), status=MutationStatus(row["status"]),
        result=stored(row["result"]) if row["result"] is not None else None, error=error_record(row["error"]),
    )


def item_record(row: Row) -> Item:
    """A unit of a routine's work."""
    return Item(**_pick(row, _ITEM_AS_IS), status=ItemStatus(row["status"]))


def approval_record(row: Row) -> Approval:
    """A call that waits for a person, or waited."""
    return Approval(**_pick(row, _APPROVAL_AS_IS), status=ApprovalStatus(row["status"]))


def proposal_record(row: Row) -> Proposal:
    """A script that somebody proposes."""
    wanted, facts = cast("dict[str, Json]", stored(row["wanted"])), cast("dict[str, Json]", stored(row["facts"]))
    return Proposal(
        **_pick(row, _PROPOSAL_AS_IS), status=ProposalStatus(row["status"]), wanted=wanted, facts=facts,
        work=stored(row["work"]) if row["work"] is not None else None,
    )


def script_record(row: Row) -> Script:
    """A script version."""
    return Script(**_pick(row, _SCRIPT))


def error_record(text: str | None) -> Error | None:
    """Why something stopped."""
    if text is None:
        return None
    data: Any = stored(text)
    return Error(**data)


def _pick(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}
