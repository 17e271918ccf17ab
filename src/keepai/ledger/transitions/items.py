"""The units of a routine's work: begun, finished, skipped, worked on once more."""

from __future__ import annotations

from ...model.errors import Conflict, Refused
from ...model.records import Run
from ...model.states import UNFINISHED, InputStatus, ItemStatus
from ..account import as_facts
from ..base import Reader, Row, Tx
from . import events, kept_bytes
from .events import Registration

#: An item is an input too, so that inputs → outputs holds for routines: its source and type.
AS_INPUT = ("workflow", "item")


def begin_item(tx: Tx, run: Run, external_id: str, title: str) -> Row:
    """A run works on an item from now on; one that is new is registered as an input in the same step."""
    expect_executing(tx, run)
    known = tx.one("item_find", workflow_id=run.workflow_id, external_id=external_id)
    item_id = str(known["id"]) if known else _create(tx, run, external_id, title)
    tx.run("item_enter", run_id=run.id, item_id=item_id, seq=tx.tick(run.workflow_id))
    if tx.parked[run.workflow_id] and with_parked_run(tx, run, item_id):
        raise Conflict(f"Nothing was changed: a parked run has item {item_id} in hand.")
    return _get(tx, item_id)


def with_parked_run(read: Reader, run: Run, item_id: str) -> bool:
    """Whether a parked run carries on an item, other than the run that comes to it."""
    return read.one("parked_with_item", item_id=item_id, run_id=run.id) is not None


def _create(tx: Tx, run: Run, external_id: str, title: str) -> str:
    source, kind = AS_INPUT
    address = {"workflow_id": run.workflow_id, "source": source, "type": kind, "external_id": external_id}
    input_id, item_id = tx.new_id("inp"), tx.new_id("itm")
    events.register(tx, run.workflow_id, run.id, [Registration(input_id, source, kind, external_id, title)])
    registered = tx.one("input_find", **address)
    assert registered is not None, f"input {external_id!r} was just registered"
    tx.run(
        "item_insert", workflow_id=run.workflow_id, item_id=item_id, external_id=external_id, title=title,
        seq=tx.tick(run.workflow_id, inputs=kept_bytes.of_input(external_id, title)), input_id=registered["id"],
        handler=run.handler, now=tx.now,
    )
    facts = as_facts({"external_id": external_id, "title": title, "handler": run.handler})
    tx.tell(run.workflow_id, "item", item_id, None, ItemStatus.PROCESSING, facts=facts)
    return item_id


def end_item(tx: Tx, run: Run, item_id: str) -> None:
    """An item's handler returned."""
    expect_executing(tx, run)
    _move(tx, expect_at_work(tx, run, item_id), ItemStatus.DONE, run.id)


def expect_executing(tx: Tx, run: Run) -> None:
    """Refuse to go on for a run that this host no longer executes."""
    tx.expect(
        "run_phase", f"run {run.id} is no longer active under this host", run_id=run.id, source=run.phase,
        target=run.phase, outcome=None, epoch=tx.epoch, now=tx.now, bytes=run.bytes,
    )


def expect_at_work(tx: Tx, run: Run, item_id: str) -> Row:
    """Refuse to go on with an item that ended, or was begun anew, since the run entered it; gives it."""
    return tx.row(
        "item_at_work", f"run {run.id} no longer has item {item_id} in hand", workflow_id=run.workflow_id,
        run_id=run.id, item_id=item_id,
    )


def stop(tx: Tx, run: Run, becomes: ItemStatus | None) -> None:
    """What the item becomes in which a run stopped; None leaves it as it is."""
    if becomes is None:
        return
    item = tx.one("item_of_run", workflow_id=run.workflow_id, run_id=run.id)
    if item is not None and item["status"] in UNFINISHED and item["status"] != becomes:
        _move(tx, item, becomes, run.id)


def leave(tx: Tx, run: Run) -> None:
    """A lineage has ended: what it began and did not finish stands as failed, for people to see."""
    for item in tx.all("item_left", workflow_id=run.workflow_id, lineage=run.lineage):
        _move(tx, item, ItemStatus.FAILED, run.id)


def pass_over(tx: Tx, run: Run) -> None:
    """A routine has ended: what waited for it when it began, and that it did not come to, is left behind as well."""
    leave(tx, run)
    for item in tx.all("item_passed_over", workflow_id=run.workflow_id, handler=run.handler, seq=run.seq):
        _move(tx, item, ItemStatus.FAILED, run.id)


def of_run(tx: Tx, run: Run) -> str | None:
    """The unfinished item in which a run stopped, or that it carries on, if there is one."""
    if run.item_id is not None:
        return run.item_id if _get(tx, run.item_id)["status"] in UNFINISHED else None
    row = tx.one("item_of_run", workflow_id=run.workflow_id, run_id=run.id)
    if row is None or ItemStatus(row["status"]) not in UNFINISHED or row["attempt"] != row["worked_attempt"]:
        return None
    return str(row["id"])


def skip(tx: Tx, item_id: str) -> None:
    """A person skips an item that has not ended."""
    item = _get(tx, item_id)
    if item["status"] not in UNFINISHED:
        raise Conflict(f"Nothing was changed: item {item_id} has ended already.")
    _move(tx, item, ItemStatus.SKIPPED)


def reprocess(tx: Tx, item: Row) -> str:
    """Begin an item anew, as a new attempt: gives its routine's name."""
    held = tx.one("item_held", item_id=item["id"])
    if held is not None and item["status"] not in (ItemStatus.DONE, ItemStatus.SKIPPED):
        raise Refused(
            f"Item {item['id']} cannot be reprocessed: run {held['held_by']} holds it. Retry or skip that run."
        )
    begun = tx.one("item_reprocess", item_id=item["id"], seq=tx.tick(item["workflow_id"]), now=tx.now)
    if begun is None:
        raise Refused(f"Item {item['id']} cannot be reprocessed: it is {item['status']}.")
    tx.tell(item["workflow_id"], "item", item["id"], item["status"], ItemStatus.PROCESSING)
    if tx.hits("input_take_up", input_id=item["input_id"], now=tx.now):
        tx.tell(item["workflow_id"], "input", item["input_id"], InputStatus.SKIPPED, InputStatus.ACTIVE)
    return str(begun["handler"])


def _move(tx: Tx, item: Row, target: ItemStatus, run_id: str | None = None) -> None:
    """An item goes from the state in which it was found to another; `run_id` names the run that had it in hand."""
    tx.expect(
        "item_move", f"item {item['id']} is no longer {item['status']}", item_id=item["id"], source=item["status"],
        target=target, now=tx.now,
    )
    tx.tell(item["workflow_id"], "item", item["id"], item["status"], target, run_id)


def _get(tx: Tx, item_id: str) -> Row:
    row = tx.one("item_by_id", item_id=item_id)
    assert row is not None, f"item {item_id} was just written"
    return row
