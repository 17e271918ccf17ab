"""Tries to mend a script: each is kept, whatever became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...model.errors import Conflict
from ...model.records import Run
from ...model.states import RepairStatus
from ..account import as_facts
from ..base import Tx
from . import workflows
from .workflows import Version


def ask_repair(tx: Tx, run: Run) -> str:
    """A try begins; a failed run leads to one at most."""
    repair_id = tx.new_id("fix")
    tx.run(
        "repair_insert", workflow_id=run.workflow_id, seq=tx.tick(run.workflow_id), repair_id=repair_id, run_id=run.id,
        lineage=run.lineage, status=RepairStatus.ASKED, now=tx.now,
    )
    tx.tell(run.workflow_id, "repair", repair_id, None, RepairStatus.ASKED, facts=as_facts({"run": run.id}))
    return repair_id


def end_repair(tx: Tx, repair_id: str, target: RepairStatus, note: str) -> None:
    """What became of a try that offered nothing, or nothing that keeps the rules."""
    _move(tx, repair_id, RepairStatus.ASKED, target, note)


@dataclass(frozen=True)
class Offer:
    """A script that is offered as a repair, and what came of trying it."""

    source: str
    impact: str | None
    note: str
    trial: str


def offer_repair(tx: Tx, repair_id: str, run: Run, offer: Offer) -> None:
    """A script that keeps the rules waits for a person, if its run still waits for it."""
    _check_waits(tx, run)
    _move(tx, repair_id, RepairStatus.ASKED, RepairStatus.WAITING, offer.note, offer)


def admit_repair(
    tx: Tx, repair_id: str, run: Run, offer: Offer, version: Version, number: tuple[int, int],
) -> str:
    """The gate lets a repair in: it becomes the active version, if its run still waits for it."""
    _check_waits(tx, run)
    _move(tx, repair_id, RepairStatus.ASKED, RepairStatus.DEPLOYED, f"{number[0]}.{number[1]}", offer)
    return workflows.deploy(tx, run.workflow_id, version, number, run.number)


def deploy_repair(tx: Tx, repair_id: str, run: Run, version: Version, number: tuple[int, int]) -> str:
    """A person lets a repair in: it becomes the active version, in the step that says so, if its run still waits."""
    _check_waits(tx, run)
    _move(tx, repair_id, RepairStatus.WAITING, RepairStatus.DEPLOYED, f"{number[0]}.{number[1]}")
    workflows.note(tx, run.workflow_id, "approve", repair_id, version.actor, None)
    return workflows.deploy(tx, run.workflow_id, version, number, run.number)


def decline_orphans(tx: Tx, repair_ids: Iterable[str]) -> None:
    """Hosts that asked a repair hook and died will get no answer any more."""
    for repair_id in repair_ids:
        _move(tx, repair_id, RepairStatus.ASKED, RepairStatus.DECLINED, "the host died while it was asked")


def reject_repair(tx: Tx, workflow_id: str, repair_id: str, actor: str) -> None:
    """A person does not want a repair that waits."""
    _move(tx, repair_id, RepairStatus.WAITING, RepairStatus.REJECTED, f"rejected by {actor}")
    workflows.note(tx, workflow_id, "reject", repair_id, actor, None)


def _check_waits(tx: Tx, run: Run) -> None:
    found = tx.one("run_by_id", run_id=run.id)
    if found is None or found["status"] != run.state:
        raise Conflict(f"Nothing was changed: run {run.id} is no longer {run.status}.")


def _move(
    tx: Tx, repair_id: str, before: RepairStatus, target: RepairStatus, note: str, offer: Offer | None = None,
) -> None:
    repair = tx.row(
        "repair_move", f"repair {repair_id} is no longer {before}", repair_id=repair_id, before=before, target=target,
        note=note, source=offer and offer.source, impact=offer and offer.impact, trial=offer and offer.trial,
        now=tx.now,
    )
    tx.tell(repair["workflow_id"], "repair", repair_id, before, target, note)
