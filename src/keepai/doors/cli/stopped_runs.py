"""Why a workflow stands still: whether it goes on by itself, and if not, what a person can type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...ledger.rows import run_record
from ...model.records import Escalation, Run
from ...reading.look import Look
from ...reading.offered_acts import commands, typed_name, with_name
from .command_session import CommandSession


@dataclass(frozen=True)
class StoppedRun:
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


def questions(session: CommandSession, look: Look) -> list[Escalation]:
    """Every question to a person: as the running host sees it, else as far as the ledger alone says."""
    told = session.told("needs_you")
    if told is None:
        return look.views.needs_you(look.now_ms)
    return [Escalation(**{**each, "actions": tuple(each["actions"])}) for each in told]


def stopped(look: Look, workflow_id: str, name: str, asked: Iterable[Escalation] | None = None) -> StoppedRun | None:
    """The stopped run of a workflow, if it has one; `asked` are questions that a host has told."""
    row = look.read.one("run_open", workflow_id=workflow_id)
    return stop_of(look, run_record(row), name, asked) if row and row["status"] != "active" else None


def stop_of(look: Look, run: Run, name: str, asked: Iterable[Escalation] | None = None) -> StoppedRun:
    """What holds a stopped run."""
    known = look.views.needs_you(look.now_ms, run.workflow_id) if asked is None else asked
    question = next((q for q in known if q.run_id == run.id and "seen" not in q.actions), None)
    why = with_name(run.error.message, typed_name(name, run.workflow_id)) if run.error else run.status
    found = tuple(command for _, command in commands(question, name)) if question else ()
    return StoppedRun(run, question, why, found)
