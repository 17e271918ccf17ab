"""From where a stopped run goes on: one table for retries, crashes, new versions and people.

| stopped in              | last mutation  | same version                      | new version                  |
|-------------------------|----------------|-----------------------------------|------------------------------|
| executing, preparing    | none           | again from the start              | again from the start         |
| prepared, mutating      | none or failed | at prepared, the same inputs kept | at preparing, inputs let go  |
| mutating                | in doubt       | not at all                        | not at all                   |
| mutated, emitting       | any            | at emitting, outcome kept         | at emitting, outcome kept    |

A new version begins the count of failures anew, whatever the run goes on for: what failed may be mended in it.
"""

from __future__ import annotations

from ..ledger.base import Reader
from ..ledger.rows import mutation_record
from ..ledger.transitions.runs import Carry
from ..model.records import Mutation, Run
from ..model.states import DOUBTFUL, Phase, Status


def last_mutation(read: Reader, run: Run) -> Mutation | None:
    """The newest mutation of a run's lineage."""
    row = read.one("mutation_of_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
    return mutation_record(row) if row else None


def in_flight(read: Reader, run: Run) -> Mutation | None:
    """The mutation of this run whose call is recorded and whose outcome is not."""
    row = read.one("mutation_under_way", workflow_id=run.workflow_id, run_id=run.id)
    return mutation_record(row) if row else None


def carry(
    run: Run, mutation: Mutation | None, active: tuple[int, int], leaves: Status, trigger: str, failures: int = 0,
) -> Carry | None:
    """How a new run carries on from `run`, whose newest mutation is given; None while that is in doubt."""
    if mutation is not None and mutation.status in DOUBTFUL:
        return None
    if active != run.number:
        failures = 0
    if run.phase in (Phase.EXECUTING, Phase.PREPARING):
        own = run.item_id is not None  # it carries on one item, with the state that it was given
        return Carry(leaves, active, run.phase, keep=own, trigger=trigger, failures=failures)
    if run.phase in (Phase.MUTATED, Phase.EMITTING):
        return Carry(leaves, active, Phase.EMITTING, keep=True, trigger=trigger, failures=failures)
    if active == run.number:
        return Carry(leaves, active, Phase.PREPARED, keep=True, trigger=trigger, failures=failures)
    return Carry(leaves, active, Phase.PREPARING, keep=False, trigger=trigger)
