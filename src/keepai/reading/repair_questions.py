"""A repair that waits for a person, as a question: what recorded runs show of it, and what the faulty versions touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ledger.base import Reader, Row
from ..model.clock import iso
from ..model.codec import Json, stored
from ..model.records import Escalation, Run
from .blast import blast
from .inputs_and_events import kept_row

#: A card shows this many of everything that was touched, and counts the rest.
_TOUCHED_MAX = 10


def waiting_repair(read: Reader, run: Run) -> Escalation | None:
    """The question whether a repair may become the active version, if a repair waits."""
    row = read.one("repair_of_run", run_id=run.id)
    if row is None or row["status"] != "waiting":
        return None
    return Escalation(
        id=row["id"], kind="approval", workflow_id=run.workflow_id, run_id=run.id, mutation_id=None,
        title=f"A repair of {run.handler} waits for you", facts=_facts(read, run, row),
        actions=("approve", "reject"),
    )


@dataclass(frozen=True)
class Repairs:
    """The attempts to repair the script that failed."""

    tried: tuple[Row, ...]  # oldest first
    left: int  # that the budget allows

    def facts(self) -> dict[str, Json]:
        """What its card shows of them."""
        return {"repairs_left": self.left, "repairs": [
            {"id": row["id"], "run_id": row["run_id"], "status": row["status"], "note": row["note"],
             "at": iso(row["updated_at"])} for row in self.tried]}

    def sentence(self) -> str:
        """What an explanation says of them; nothing if there was none."""
        if not self.tried:
            return ""
        were = "1 repair was" if len(self.tried) == 1 else f"{len(self.tried)} repairs were"
        left = "none is left" if self.left <= 0 else f"{self.left} more may be"
        return f" {were} tried ({', '.join(str(row['status']) for row in self.tried)}); {left}."


def repairs_of(read: Reader, run: Run, repairs_max: int) -> Repairs:
    """The repairs of a run's lineage."""
    rows = read.all("look_repairs_of_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
    return Repairs(tuple(rows), max(0, repairs_max - len(rows)))


def _facts(read: Reader, run: Run, row: Row) -> dict[str, Json]:
    return {
        "why": run.error.message if run.error else None, "impact_by_author": row["impact"],
        "note": row["note"],
        "version": run.version, "source": row["source"], "blast": _touched(read, run),
        "trial": stored(row["trial"]) if row["trial"] else None,
    }


def _touched(read: Reader, run: Run) -> list[Json]:
    """The blast radius of each version that the failed work ran with: those are what the repair replaces."""
    workflow = kept_row(read, "workflow_by_id", workflow_id=run.workflow_id)
    lineage = read.all("look_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
    versions = dict.fromkeys(f"{r['major']}.{r['minor']}" for r in lineage)
    found = [blast(read, workflow, version, most=_TOUCHED_MAX) for version in versions]
    return [{
        "version": each.version, "runs": each.runs,
        "inputs_count": each.inputs_count, "inputs": [i.title for i in each.inputs],
        "items_count": each.items_count, "items": [f"{i.title} ({i.status})" for i in each.items],
        "mutations_count": each.mutations_count, "mutations": [f"{m.preview} ({m.status})" for m in each.mutations],
    } for each in found]
