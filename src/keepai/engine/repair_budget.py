"""Whether the repair hook is asked about a run that failed: once per run, and so often for one piece of work."""

from __future__ import annotations

from ..ledger.base import Reader
from ..model.records import Run
from ..model.states import Reason, Status
from .host_parts import Parts


def wanted(read: Reader, parts: Parts, run: Run) -> bool:
    """Whether the hook should be asked about a run: once per run, within the budget of its lineage."""
    if parts.repair is None or run.state is not Status.FAILED or run.reason is not Reason.LOGIC:
        return False
    asked = read.one("repair_of_run", run_id=run.id)
    return asked is None and tries_left(read, parts, run) > 0


def tries_left(read: Reader, parts: Parts, run: Run) -> int:
    """How many more repairs this piece of work may have."""
    row = read.one("repair_count", workflow_id=run.workflow_id, lineage=run.lineage)
    return parts.policy.repairs_max - (int(row["tries"]) if row else 0)
