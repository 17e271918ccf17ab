"""Tries to mend a script: each is kept, whatever became of it."""

from __future__ import annotations

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
    tx: Tx, repair_id: str, source_status: RepairStatus, workflow_id: str, version: Version, number: tuple[int, int],
) -> str:
    """The mended script becomes the active version, in the step that says so of the try."""
    _move(tx, repair_id, source_status, RepairStatus.DEPLOYED, f"{number[0]}.{number[1]}", version.source)
    return workflows.deploy(tx, workflow_id, version, number)


def _move(
    tx: Tx, repair_id: str, source_status: RepairStatus, target: RepairStatus, note: str, script: str | None,
) -> None:
    tx.expect(
        "repair_move", f"repair {repair_id} is no longer {source_status}", repair_id=repair_id,
        source_status=source_status, target=target, note=note, source=script, now=tx.now,
    )
