"""A repair that waits for a person, as a question: what it changes, and what the faulty versions touched."""

from __future__ import annotations

from ..ledger.base import Reader, Row
from ..model.codec import Json
from ..model.records import Escalation, Mutation, Run
from .blast import blast

#: A card shows the first so many of everything that was touched, and counts the rest.
_TOUCHED_MAX = 10


def waiting_repair(read: Reader, run: Run) -> Escalation | None:
    """The question whether a repair shall be let in, if one waits."""
    row = read.one("repair_of_run", run_id=run.id)
    if row is None or row["status"] != "waiting":
        return None
    return Escalation(
        id=row["id"], kind="approval", workflow_id=run.workflow_id, run_id=run.id, mutation_id=None,
        title=f"A repair of {run.handler} waits for you", facts=_facts(read, run, row),
        actions=("approve", "reject"),
    )


def _facts(read: Reader, run: Run, row: Row) -> dict[str, Json]:
    return {
        "why": run.error.message if run.error else None, "impact_by_author": row["impact"],
        "note": row["note"],
        "version": run.version, "source": row["source"], "blast": _touched(read, run),
    }


def _touched(read: Reader, run: Run) -> list[Json]:
    """The blast radius of each version that the failed work ran with: those are what the repair replaces."""
    workflow = read.one("workflow_by_id", workflow_id=run.workflow_id)
    assert workflow is not None, f"{run.workflow_id} is never deleted"
    lineage = read.all("look_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
    versions = dict.fromkeys(f"{r['major']}.{r['minor']}" for r in lineage)
    found = [blast(read, workflow, version, most=_TOUCHED_MAX) for version in versions]
    return [{
        "version": each.version, "runs": each.runs,
        "inputs_count": each.inputs_count, "inputs": [i.title for i in each.inputs],
        "items_count": each.items_count, "items": [f"{i.title} ({i.status})" for i in each.items],
        "mutations_count": each.mutations_count, "mutations": [_sent(m) for m in each.mutations],
    } for each in found]


def _sent(mutation: Mutation) -> str:
    return f"{mutation.preview} ({mutation.status})"
