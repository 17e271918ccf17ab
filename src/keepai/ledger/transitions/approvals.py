"""Calls that wait for a person: held whole, decided once, used once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ...model.codec import encode, size
from ...model.errors import Conflict
from ...model.records import Approval, Mutation, Run, Traced
from ...model.states import ApprovalStatus
from ..account import as_facts
from ..base import Tx
from ..rows import approval_record
from . import kept_bytes, mutations, parking, runs
from .mutations import Intent
from .runs import Stop


@dataclass(frozen=True)
class Ask:
    """A call to be shown to a person, and what binds the answer to it."""

    intent: Intent
    account: str
    because: str
    digest: str
    expires_at: int


def ask(tx: Tx, run: Run, asked: Ask, why: Stop, trace: Sequence[Traced]) -> Approval:
    """Hold a call and have its run wait for a person."""
    approval, intent = _hold(tx, run, asked), asked.intent
    parking.check_target(tx, run, intent.connector, intent.account, intent.target)
    runs.stop(tx, run, why, trace)
    return approval


def ask_afresh(tx: Tx, run: Run, approval: Approval, asked: Ask) -> Approval:
    """Nobody answered, or nobody used the answer, in time: the same call is shown again."""
    _move(tx, approval, ApprovalStatus.EXPIRED)
    tx.expect(
        "run_expect_by", f"run {run.id} no longer waits for a person", run_id=run.id, retry_at=asked.expires_at,
        now=tx.now,
    )
    return _hold(tx, run, asked)


def decide(tx: Tx, approval: Approval, target: ApprovalStatus, actor: str) -> None:
    """A person says yes or no, while the version that asks is the active one."""
    run = tx.row("run_by_id", f"run {approval.run_id} is gone", run_id=approval.run_id)
    active = tx.row("workflow_by_id", "its workflow is gone", workflow_id=approval.workflow_id)
    version = active["major"], active["minor"]
    if (run["major"], run["minor"]) != version:
        raise Conflict(f"Nothing was changed: version {version[0]}.{version[1]} was deployed since it was asked.")
    _move(tx, approval, target, decided_by=actor)


def send(tx: Tx, run: Run, approval: Approval, intent: Intent) -> tuple[Run, Mutation]:
    """Use an approval: it is consumed, the run goes on and the intent is recorded, in one step."""
    _move(tx, approval, ApprovalStatus.CONSUMED)
    resumed = runs.resume(tx, run, run.phase)
    return resumed, mutations.send(tx, resumed, intent, ())


def _hold(tx: Tx, run: Run, asked: Ask) -> Approval:
    approval_id, intent = tx.new_id("apr"), encode(asdict(asked.intent))
    seq = tx.tick(run.workflow_id, runs=kept_bytes.ROW + size(intent))
    tx.run(
        "approval_insert", workflow_id=run.workflow_id, seq=seq, approval_id=approval_id, run_id=run.id,
        capability=f"{asked.intent.connector}.{asked.intent.operation}", account=asked.account,
        because=asked.because, intent=intent, digest=asked.digest, expires_at=asked.expires_at, now=tx.now,
    )
    facts = {"run": run.id, "capability": f"{asked.intent.connector}.{asked.intent.operation}", "digest": asked.digest}
    tx.tell(run.workflow_id, "approval", approval_id, None, ApprovalStatus.PENDING, facts=as_facts(facts))
    row = tx.one("approval_by_id", approval_id=approval_id)
    assert row is not None, f"approval {approval_id} was just written"
    return approval_record(row)


def _move(tx: Tx, approval: Approval, target: ApprovalStatus, decided_by: str | None = None) -> None:
    tx.expect(
        "approval_move", f"approval {approval.id} is no longer {approval.status}", approval_id=approval.id,
        source=approval.status, target=target, decided_by=decided_by, now=tx.now,
    )
    tx.tell(approval.workflow_id, "approval", approval.id, approval.status, target, decided_by or approval.decided_by)
