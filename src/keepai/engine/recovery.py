"""What a new host does with runs that a dead one left active, before anything else runs.

It never guesses: a mutation that was in flight has an unknown outcome; every other run goes on from what
was committed. A run that keeps killing its host is stopped.
"""

from __future__ import annotations

from ..ledger.base import Reader
from ..ledger.rows import run_record
from ..ledger.transitions import mutations, repairs, runs
from ..ledger.transitions.runs import Carry
from ..model.errors import HostFault, OutcomeUnknown
from ..model.records import Run
from ..model.states import Status
from . import failure, reconcile
from .host_parts import Parts
from .relaunch import carry, in_flight, last_mutation


async def recover(parts: Parts) -> int:
    """Take over every run that was active; returns how many there were."""
    if await parts.ledger.one("mutation_unclosed", epoch=parts.ledger.epoch):
        await parts.ledger.write(mutations.close_dead)
    if await parts.ledger.one("repair_orphaned"):
        await parts.ledger.write(repairs.decline_orphans)
    rows = await parts.ledger.all("run_active_all")
    for row in rows:
        run = run_record(row)
        if run.epoch != parts.ledger.epoch:
            await _take_over(parts, run)
    await reconcile.withdraw(parts)
    return len(rows)


async def _take_over(parts: Parts, run: Run) -> None:
    adopted = await parts.ledger.write(runs.adopt, run)
    mutation = await parts.ledger.look(in_flight, adopted)
    if mutation is not None:
        unknown = OutcomeUnknown(
            f"The host died while it was sending “{mutation.preview}”; it may or may not have happened."
        )
        doubt = reconcile.doubt(parts, adopted, mutation, unknown, closed=True)  # its lock is free: it is dead
        await parts.ledger.write(mutations.doubt, adopted, mutation, doubt, [], barrier=True)
        return
    owner = await parts.ledger.one("host_get", epoch=run.epoch)
    if owner is not None and owner["ended_at"] is not None:
        return  # its host ended in order: it was made ready to go on, and nothing of it was interrupted
    if await _crashes(parts, run) + 1 >= parts.policy.crashes_max:
        fault = HostFault(
            f"The host died {parts.policy.crashes_max} times while it ran {run.handler!r}. "
            "It is not tried again by itself; look at the host's log, then retry the run."
        )
        why = failure.stop(fault, adopted, None, parts.policy, parts.clock.now_ms())
        await parts.ledger.write(runs.stop, adopted, why, [])
        return
    await _carry_on(parts, adopted)


async def _carry_on(parts: Parts, run: Run) -> None:
    how = await parts.ledger.look(_how, parts, run)
    assert how is not None, "nothing of this run is in flight"
    await parts.ledger.write(runs.carry_on, run, how)


def _how(read: Reader, parts: Parts, run: Run) -> Carry | None:
    workflow = read.one("workflow_by_id", workflow_id=run.workflow_id)
    assert workflow is not None
    active = (workflow["major"], workflow["minor"])
    if parts.script(read, run.workflow_id, active).manifest.handler(run.handler) is None:
        active = run.number  # it ends under the version that knows its handler
    return carry(run, last_mutation(read, run), active, Status.CRASHED, "recovery", run.failures)


async def _crashes(parts: Parts, run: Run) -> int:
    row = await parts.ledger.one("run_crashes", workflow_id=run.workflow_id, lineage=run.lineage)
    return int(row["crashes"]) if row else 0
