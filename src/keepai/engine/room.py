"""How much the ledger may keep for one workflow. A workflow that has used that up starts nothing and asks a person.

It is judged before the first step of a run, and only there: what a run has begun it may finish, for its mutation may
have happened already. What one run adds has a limit of its own (policy run_bytes_max).
"""

from __future__ import annotations

from ..model.errors import WorkflowFull
from ..model.records import Run
from .parts import Parts


def check(parts: Parts, run: Run) -> None:
    """Refuse to begin a run for which the ledger has no room; no statement is needed unless it has none."""
    most = parts.policy.workflow_bytes_max
    kept = parts.ledger.kept_bytes(run.workflow_id)
    if kept < most:
        return
    row = parts.ledger.read().one("workflow_by_id", workflow_id=run.workflow_id)
    assert row is not None, run
    raise WorkflowFull(
        f"The ledger keeps {kept:,} bytes for the workflow {row['name']!r}; the limit is {most:,} (policy "
        f"workflow_bytes_max). Its events use {row['event_bytes']:,} of them, its runs with their traces "
        f"{row['run_bytes']:,}, its inputs {row['input_bytes']:,}. Nothing of the workflow starts until there is room. "
        "See why it keeps so much. Then make room with `keep db prune --days N`, which throws away the content of work "
        f"that has ended, or raise the limit; and say `keep retry {run.id}`."
    )
