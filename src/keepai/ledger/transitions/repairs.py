"""Tries to mend a script: each is kept, whatever became of it."""

from __future__ import annotations

from ...model.errors import Conflict
from ...model.records import Run
from ...model.states import RepairStatus
from ..base import Tx
from . import workflows
from .workflows import Version


def ask_repair(tx: Tx, run: Run) -> str:
    """A try begins; a failed run leads to one at most."""
    repair_id = tx.new_id("fix")
    tx.run(
        "repair_insert", workflow_id=run.workflow_id, seq=tx.tick(run.workflow_id), repair_id=repair_id, run_id=run.id,
        lineage=run.lineage, status=RepairStatus.ASKED, source=None, note=None, now=tx.now,
    )
    return repair_id


def end_repair(
    tx: Tx, repair_id: str, source_status: RepairStatus, target: RepairStatus, note: str, script: str | None = None,
) -> None:
    """What became of a try, other than a deployment."""
    _move(tx, repair_id, source_status, target, note, script)


def deploy_repair(
    tx: Tx, repair_id: str, source_status: RepairStatus, run: Run, version: Version, number: tuple[int, int],
    before: tuple[int, int],
) -> str:
    """The mended script becomes the active version, in the step that says so of the try, if its run still waits."""
    open_run = tx.one("run_open", workflow_id=run.workflow_id)
    if open_run is None or (open_run["id"], open_run["status"]) != (run.id, run.state):
        raise Conflict(f"Nothing was changed: run {run.id} is no longer {run.status}.")
    _move(tx, repair_id, source_status, RepairStatus.DEPLOYED, f"{number[0]}.{number[1]}", version.source)
    if source_status is RepairStatus.WAITING:
        workflows.note(tx, run.workflow_id, "approve", repair_id, version.actor, None)
    return workflows.deploy(tx, run.workflow_id, version, number, before)


def decline_orphans(tx: Tx) -> None:
    """Hosts that asked a repair hook and died will get no answer any more."""
    for row in tx.all("repair_orphaned"):
        _move(tx, row["id"], RepairStatus.ASKED, RepairStatus.DECLINED, "the host died while it was asked", None)


def reject_repair(tx: Tx, workflow_id: str, repair_id: str, actor: str) -> None:
    """A person does not want a repair that waits."""
    _move(tx, repair_id, RepairStatus.WAITING, RepairStatus.REJECTED, f"rejected by {actor}", None)
    workflows.note(tx, workflow_id, "reject", repair_id, actor, None)


def _move(
    tx: Tx, repair_id: str, source_status: RepairStatus, target: RepairStatus, note: str, script: str | None,
) -> None:
    tx.expect(
        "repair_move", f"repair {repair_id} is no longer {source_status}", repair_id=repair_id,
        source_status=source_status, target=target, note=note, source=script, now=tx.now,
    )
