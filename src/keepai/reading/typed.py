"""What a person types to answer a question or to do something else: the form of acts on a command line."""

from __future__ import annotations

from ..model.acts import ACTS
from ..model.records import Escalation
from .answers import handle, offered, subject


def commands(question: Escalation, name: str) -> list[tuple[str, str]]:
    """Each act that answers a question now, with what a person types."""
    capability = question.facts.get("capability")
    workflow = handle(name, question.workflow_id)
    acts = offered(question.actions)
    return [(act, command(act, subject(question, act), workflow, str(capability))) for act in acts]


def command(act: str, on: str | None, workflow: str, capability: str | None = None) -> str:
    """What a person types to do one thing."""
    return ACTS[act].typed.format(on, wf=workflow, capability=capability)
