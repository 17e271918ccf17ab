"""Why a workflow stands still: whether it goes on by itself, and if not, what a person can type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..answers import handle, offered, subject, with_name

if TYPE_CHECKING:
    from ...model.records import Escalation, Run
    from .session import Look, Session

#: Act → the command that does it; {0} is what it is done to, {wf} the workflow.
FORMS = {
    "try_again": "keep resolve {0} try_again", "did_not_happen": "keep resolve {0} did_not_happen",
    "happened": "keep resolve {0} happened --result JSON", "skip": "keep resolve {0} skip",
    "keep": "keep resolve {0} keep", "skip_input": "keep skip {0}", "seen": "keep resolve {0} seen",
    "approve": "keep approve {0}", "reject": "keep reject {0}", "grant": "keep grant {wf} {capability}",
    "retry": "keep retry {0}", "deploy": "keep deploy FILE", "skip_run": "keep skip {0}", "finish": "keep finish {0}",
    "skip_event": "keep skip {0}", "reprocess": "keep reprocess {0}", "resume": "keep resume {wf}",
    "run_now": "keep run-now {wf}",
}


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


def questions(session: Session, look: Look) -> list[Escalation]:
    """Every question to a person: as the running host sees it, else as far as the ledger alone says."""
    from ...model.records import Escalation

    told = session.told("needs_you")
    if told is None:
        return look.views.needs_you(look.now_ms)
    return [Escalation(**{**each, "actions": tuple(each["actions"])}) for each in told]


def stopped(look: Look, workflow_id: str, name: str, asked: Iterable[Escalation] | None = None) -> Stopped | None:
    """The stopped run of a workflow, if it has one; `asked` are questions that a host has told."""
    from ...ledger.rows import run_record

    row = look.read.one("run_open", workflow_id=workflow_id)
    return stop_of(look, run_record(row), name, asked) if row and row["status"] != "active" else None


def stop_of(look: Look, run: Run, name: str, asked: Iterable[Escalation] | None = None) -> Stopped:
    """What holds a stopped run."""
    known = look.views.needs_you(look.now_ms, run.workflow_id) if asked is None else asked
    question = next((q for q in known if q.run_id == run.id and "seen" not in q.actions), None)
    why = with_name(run.error.message, handle(name, run.workflow_id)) if run.error else run.status
    found = tuple(command for _, command in commands(question, name)) if question else ()
    return Stopped(run, question, why, found)


def commands(question: Escalation, name: str) -> list[tuple[str, str]]:
    """Each act that answers a question now, with what a person types."""
    capability = question.facts.get("capability")
    workflow = handle(name, question.workflow_id)
    acts = offered(question.actions)
    return [(act, command(act, subject(question, act), workflow, str(capability))) for act in acts]


def command(act: str, on: str | None, workflow: str, capability: str | None = None) -> str:
    """What a person types to do one thing."""
    return FORMS[act].format(on, wf=workflow, capability=capability)
