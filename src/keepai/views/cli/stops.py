"""Why a workflow stands still: whether it goes on by itself, and if not, what a person can type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...model.records import Escalation, Run
    from .session import Look


@dataclass(frozen=True)
class Stopped:
    """A run that holds its workflow, and the question that it puts to a person, if it does."""

    run: Run
    question: Escalation | None
    why: str
    commands: tuple[str, ...]  # what a person can type now

    @property
    def needs_you(self) -> bool:
        """Whether only a person can let it go on."""
        return self.question is not None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run_id": self.run.id, "handler": self.run.handler, "status": self.run.status,
            "kind": self.question.kind if self.question else None,
            "mutation_id": self.question.mutation_id if self.question else None, "needs_you": self.needs_you,
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
    question = next((q for q in look.views.needs_you(run.workflow_id) if q.run_id == run.id), None)
    why = run.error.message.replace("keep grant WORKFLOW ", f"keep grant {name} ") if run.error else run.status
    return Stopped(run, question, why, _commands(run, question, name) if question else ())


def _commands(run: Run, question: Escalation, name: str) -> tuple[str, ...]:
    """What a person can type to answer a question."""
    if question.kind == "unknown_outcome":
        answers = "|".join(question.actions)
        return (f"keep show {question.mutation_id}", f"keep resolve {question.mutation_id} {answers}")
    capability = _capability(run)
    forms = {
        "approve": f"keep approve {question.id}",
        "reject": f"keep reject {question.id}",
        "grant": f"keep grant {name} {capability}" if capability else None,
        "retry": None if capability else f"keep retry {run.id}",
        "deploy": "keep deploy FILE   (with the script mended)",
        "skip_run": f"keep skip {run.id}",
        "finish": f"keep finish {run.id}",
    }
    return tuple(form for act in question.actions if (form := forms.get(act)))


def _capability(run: Run) -> str | None:
    """The capability that nobody granted, which the host names in its sentence."""
    if run.error is None or "`keep grant WORKFLOW " not in run.error.message:
        return None
    return run.error.message.partition("`keep grant WORKFLOW ")[2].partition("`")[0]
