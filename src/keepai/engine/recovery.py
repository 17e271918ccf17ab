"""What a host does with runs that another left active in workflows that it runs from now on, before anything else.

It never guesses: a mutation that was in flight has an unknown outcome; every other run goes on from what
was committed. A run that keeps killing its host is stopped.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..ledger.transitions import mutations, repairs, runs
from ..ledger.transitions.runs import Carry
from ..model.errors import HostFault, OutcomeUnknown, SenderNotDead
from ..model.records import Run
from ..model.states import Status
from . import failure, reconcile
from .host_parts import Parts
from .relaunch import carry, in_flight, last_mutation


async def recover(parts: Parts, claimed: Collection[str] | None = None) -> None:
    """Take over what earlier hosts left in these workflows, or in all of them."""
    ledger = parts.ledger

    async def of_claimed(query: str) -> list[Row]:
        rows = await ledger.all(query)
        return rows if claimed is None else [row for row in rows if row["workflow_id"] in claimed]

    if await ledger.one("mutation_unclosed", epoch=ledger.epoch):
        await ledger.write(mutations.close_dead)
    for row in await of_claimed("mutation_closed_in_doubt"):
        parts.call_ends.seen(row["id"], parts.clock.steady_ms())
    if orphans := await of_claimed("repair_orphaned"):
        await ledger.write(repairs.decline_orphans, [row["id"] for row in orphans])
    for row in await of_claimed("run_active_all"):
        run = run_record(row)
        if run.epoch != ledger.epoch:
            await _take_over(parts, run)
    await reconcile.withdraw(parts, claimed)


async def _take_over(parts: Parts, run: Run) -> None:
    adopted = await parts.ledger.write(runs.adopt, run)
    mutation = await parts.ledger.look(in_flight, adopted)
    if mutation is not None:
        closed = mutation.closed_at is not None or await parts.ledger.one("host_over", epoch=mutation.epoch) is not None
        said = f"while it was sending “{mutation.preview}”; it may or may not have happened."
        unknown = OutcomeUnknown(f"The host died {said}") if closed else SenderNotDead(
            f"Host {mutation.sender} was cut off {said} It may still send it: if it is dead, say `keep host dead "
            f"{mutation.sender}`.", mutation.sender)
        doubt = reconcile.doubt(parts, adopted, mutation, unknown, closed=closed)
        await parts.ledger.write(mutations.doubt, adopted, mutation, doubt, [], barrier=True)
        return
    owner, sharing = await parts.ledger.one("host_get", epoch=run.epoch), parts.ledger.sharing
    if owner is not None and owner["ended_at"] is not None:
        return  # its host ended in order: it was made ready to go on, and nothing of it was interrupted
    if sharing is not None and sharing.was(run.epoch):
        await _carry_on(parts, adopted, Status.SUPERSEDED, "ended")  # this very process had to stop in its midst
        return
    if await _crashes(parts, run) + 1 >= parts.policy.crashes_max:
        fault = HostFault(
            f"The host died {parts.policy.crashes_max} times while it ran {run.handler!r}. "
            "It is not tried again by itself; look at the host's log, then retry the run."
        )
        why = failure.stop(fault, adopted, None, parts.policy, parts.clock.now_ms())
        await parts.ledger.write(runs.stop, adopted, why, [])
        return
    await _carry_on(parts, adopted, Status.CRASHED, "recovery")


async def _carry_on(parts: Parts, run: Run, leaves: Status, trigger: str) -> None:
    how = await parts.ledger.look(_how, parts, run, leaves, trigger)
    assert how is not None, "nothing of this run is in flight"
    await parts.ledger.write(runs.carry_on, run, how)


def _how(read: Reader, parts: Parts, run: Run, leaves: Status, trigger: str) -> Carry | None:
    workflow = read.one("workflow_by_id", workflow_id=run.workflow_id)
    assert workflow is not None
    active = (workflow["major"], workflow["minor"])
    if parts.script(read, run.workflow_id, active).manifest.handler(run.handler) is None:
        active = run.number  # it ends under the version that knows its handler
    return carry(run, last_mutation(read, run), active, leaves, trigger, run.failures)


async def _crashes(parts: Parts, run: Run) -> int:
    row = await parts.ledger.one("run_crashes", workflow_id=run.workflow_id, lineage=run.lineage)
    return int(row["crashes"]) if row else 0
