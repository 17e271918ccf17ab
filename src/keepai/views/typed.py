"""What a person types to answer a question or to do something else: the form of acts on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answers import handle, offered, subject

if TYPE_CHECKING:
    from ..model.records import Escalation

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


def commands(question: Escalation, name: str) -> list[tuple[str, str]]:
    """Each act that answers a question now, with what a person types."""
    capability = question.facts.get("capability")
    workflow = handle(name, question.workflow_id)
    acts = offered(question.actions)
    return [(act, command(act, subject(question, act), workflow, str(capability))) for act in acts]


def command(act: str, on: str | None, workflow: str, capability: str | None = None) -> str:
    """What a person types to do one thing."""
    return FORMS[act].format(on, wf=workflow, capability=capability)
