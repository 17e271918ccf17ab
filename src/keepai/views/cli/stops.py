"""Why a workflow stands still: whether it goes on by itself, and if not, what a person can type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...model.records import Mutation, Run
    from .session import Look


@dataclass(frozen=True)
class Stopped:
    """A run that holds its workflow."""

    run: Run
    mutation: Mutation | None
    needs_you: bool
    why: str
    commands: tuple[str, ...]  # what a person can type now

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run_id": self.run.id, "handler": self.run.handler, "status": self.run.status,
            "mutation_id": self.mutation.id if self.mutation else None, "needs_you": self.needs_you,
            "why": self.why, "line": self.run.error.line if self.run.error else None,
            "retry_at": self.run.to_json()["retry_at"], "commands": list(self.commands),
        }


def stopped(look: Look, workflow_id: str, name: str) -> Stopped | None:
    """The stopped run of a workflow, if it has one."""
    from ...ledger.rows import run_record

    row = look.read.one("run_open", workflow_id=workflow_id)
    return stop_of(look, run_record(row), name) if row and row["status"] != "active" else None


def stop_of(look: Look, run: Run, name: str) -> Stopped:
    """What holds a stopped run."""
    from ...ledger.rows import mutation_record

    row = look.read.one("mutation_of_lineage", workflow_id=run.workflow_id, lineage=run.lineage)
    mutation = mutation_record(row) if row else None
    unknown = mutation is not None and mutation.status.value == "indeterminate"
    waits = run.status in ("paused:transient", "paused:reconciliation") and not run.exhausted and not unknown
    why = run.error.message.replace("keep grant WORKFLOW ", f"keep grant {name} ") if run.error else run.status
    return Stopped(run, mutation, not waits, why, () if waits else _commands(run, mutation if unknown else None, name))


def _commands(run: Run, unknown: Mutation | None, name: str) -> tuple[str, ...]:
    if unknown is not None:
        return (
            f"keep show {unknown.id}",
            f"keep resolve {unknown.id} happened|did_not_happen|try_again|skip",
        )
    if run.phase.value in ("mutated", "emitting"):
        return (f"keep deploy FILE   (a version whose `next` works), or keep finish {run.id}",)
    skip = f"keep skip {run.id}"
    capability = _capability(run)
    if capability:
        return (f"keep grant {name} {capability}", skip)
    if run.status == "failed:logic":
        return ("keep deploy FILE   (with the script mended)", skip)
    return (f"keep retry {run.id}", skip)


def _capability(run: Run) -> str | None:
    """The capability that a run was refused, which the host names in its sentence."""
    if run.error is None or run.error.code != "permission" or "keep grant WORKFLOW " not in run.error.message:
        return None
    return run.error.message.partition("keep grant WORKFLOW ")[2].partition("`")[0]
