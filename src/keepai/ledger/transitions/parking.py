"""Runs that wait while others of their workflow go on: what they hold, and that nobody takes it.

docs/internals/parking.md has the rule. A parked run keeps its place: at one target, runs go in the order of their
lineages. What it holds is written down when it is parked, so that every verb can be refused by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.errors import Conflict, TargetHeld
from ...model.records import Run
from ...model.states import Waiting
from ..account import as_facts
from ..base import Row, Tx

#: What a run may write to while it is parked: nothing, one target, whatever its connector reaches, or anything.
NOTHING, TARGET, CONNECTOR, ANYTHING = "nothing", "target", "connector", "anything"


@dataclass(frozen=True)
class Holds:
    """What a parked run keeps others from, beside its events and those that share an input with them."""

    handler: str | None = None  # that may not begin
    writes: str = NOTHING
    connector: str = ""
    account: str = ""
    target: str = ""
    item_id: str | None = None  # of a routine: the item with which the run waits from now on, while others do the rest


def park(tx: Tx, run: Run, holds: Holds) -> None:
    """A stopped run lets others go on; it keeps what it holds."""
    tx.expect("run_park", f"run {run.id} is no longer {run.status}", run_id=run.id, status=run.state)
    where = {"workflow_id": run.workflow_id, "run_id": run.id}
    tx.run("mutation_park", **where)
    written = {name: value for name, value in vars(holds).items() if name != "item_id"}
    tx.run("parked_insert", lineage=run.lineage, now=tx.now, **where, **written)
    if holds.item_id is not None and run.item_id is None:
        tx.expect("run_part", f"run {run.id} carries on an item already", run_id=run.id, item_id=holds.item_id)
        tx.run("handler_rest", workflow_id=run.workflow_id, handler=run.handler, now=tx.now)
    tx.run("workflow_parked", workflow_id=run.workflow_id, count=1)
    tx.tick(run.workflow_id)
    hold_events(tx, run.workflow_id)
    tx.tell(run.workflow_id, "parking", run.id, None, "parked", facts=as_facts(vars(holds)))


def unpark(tx: Tx, run: Run) -> None:
    """A parked run goes on: it holds its workflow until it ends, or is parked again."""
    tx.expect("run_unpark", f"run {run.id} is no longer parked", run_id=run.id)
    leave(tx, run)


def leave(tx: Tx, run: Run) -> None:
    """What a run held while it was parked is free, as far as no other parked run holds it."""
    where = {"workflow_id": run.workflow_id, "run_id": run.id}
    tx.run("mutation_unpark", **where)
    tx.run("parked_delete", **where)
    tx.run("workflow_parked", workflow_id=run.workflow_id, count=-1)
    free_events(tx, run.workflow_id)
    tx.run("topic_touch_all", workflow_id=run.workflow_id, sequence=tx.tick(run.workflow_id))
    tx.tell(run.workflow_id, "parking", run.id, "parked", "goes on")


def hand_over(tx: Tx, run: Run, new_run_id: str) -> None:
    """Another run carries on from a parked one, and is parked in its place until its turn comes."""
    tx.run("parked_hand_over", workflow_id=run.workflow_id, run_id=run.id, new_run_id=new_run_id)
    free_events(tx, run.workflow_id)


def hold_events(tx: Tx, workflow_id: str) -> None:
    """Free events that share an input with what a parked run has reserved wait for it."""
    tx.run("event_hold", workflow_id=workflow_id, now=tx.now)


def free_events(tx: Tx, workflow_id: str) -> None:
    """Events wait for the runs that are parked now, and for no others."""
    tx.run("event_unhold", workflow_id=workflow_id, now=tx.now)
    hold_events(tx, workflow_id)


def check_target(tx: Tx, run: Run, connector: str, account: str, target: str) -> None:
    """Refuse a call to what a parked run holds. The workflow was counted in, in the same transaction."""
    if not tx.parked[run.workflow_id]:
        return
    before = tx.one(
        "parked_before", workflow_id=run.workflow_id, run_id=run.id, lineage=run.lineage, connector=connector,
        account=account, target=target,
    )
    if before is not None:
        held = f"{connector}: {target}" if target else connector
        raise TargetHeld(
            f"Run {before['run_id']} is parked, and may still write to the same target ({held}). This run goes on "
            "when that one is done.", str(before["run_id"]), (connector, account, target),
        )


def check_begin(tx: Tx, counted: Row, handler: str, kind: str) -> None:
    """Refuse to begin what waits for parked runs; `counted` is the row of its workflow."""
    if not counted["parked"]:
        return
    if counted["waiting"] == Waiting.STOP or (counted["waiting"] == Waiting.INTAKE and kind != "producer"):
        raise Conflict(f"Nothing was changed: {handler!r} waits for the runs of its workflow that are parked.")
    held = tx.one("parked_handler", workflow_id=counted["id"], handler=handler)
    if held is not None:
        raise Conflict(f"Nothing was changed: {handler!r} waits for run {held['run_id']}, which is parked.")
