"""A repair that waits for a person, as a question: what it changes, and what the faulty version touched."""

from __future__ import annotations

from ..ledger.base import Reader, Row
from ..model.codec import Json
from ..model.records import Escalation, Run

_TOUCHED_MAX = 1_000


def waiting_repair(read: Reader, run: Run) -> Escalation | None:
    """The question whether a potentially impactful repair shall be let in, if there is one."""
    row = read.one("repair_of_run", run_id=run.id)
    if row is None or row["status"] != "waiting":
        return None
    return Escalation(
        id=row["id"], kind="approval", workflow_id=run.workflow_id, run_id=run.id, mutation_id=None,
        title=f"A repair of {run.handler} waits for you", facts=_facts(read, run, row),
        actions=("approve", "reject"),
    )


def _facts(read: Reader, run: Run, row: Row) -> dict[str, Json]:
    major, minor = run.number
    touched = read.all("look_inputs_of_version", workflow_id=run.workflow_id, major=major, minor=minor)
    return {
        "why": run.error.message if run.error else None, "impact": "potentially_impactful", "note": row["note"],
        "version": run.version, "source": row["source"],
        "touched": [str(r["title"]) for r in touched[:_TOUCHED_MAX]], "touched_count": len(touched),
    }
