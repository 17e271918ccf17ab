"""The acts that are offered to a person: the words of a question, what comes of each answer, and what to type for it.

Every door shows the same words. A door adds only its own form: a command to type, a button to press.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..model.acts import ACTS, Act
from ..model.ids import typed_name
from ..model.records import Escalation
from .left_items import sent_again

#: Kind of question → what is asked, in a few words.
HEADINGS = {
    "unknown_outcome": "Did this happen?", "approval": "May this be sent?", "permission": "May it do this?",
    "attention": "It was done before with another content.", "precondition": "Something outside is missing.",
    "logic": "The script failed.", "exhausted": "It was tried too often.",
    "internal": "The host or a connector failed.", "proposal": "May this become the active version?",
}
_CONTRADICTED = "Later evidence contradicts what is on record."
_REPAIR = "May this repair become the active version?"
_LEFT = "This was begun and not finished."

#: Class of a connector → what it says about finding out what became of a call.
CLASSES = {
    "A": "class A: it honours idempotency keys", "B": "class B: what was sent can be looked up",
    "C": "class C: it cannot be asked",
}


#: What approving and rejecting mean for a repair that waits: a held call has the same two answers.
_OF_A_REPAIR = {
    "approve": replace(
        ACTS["approve"], label="Activate it",
        comes="the repair becomes the active version, and the run goes on with it",
        done="The repair is the active version now, and the run goes on.",
        risk="What earlier versions did stays as it is; the new version does not mend it."),
    "reject": replace(
        ACTS["reject"], comes="the repair is refused; the run waits for another",
        done="The repair was refused.", risk="It is not offered again."),
}


def is_repair(question: Escalation) -> bool:
    """Whether the question is if a repair may become the active version."""
    return question.id.startswith("fix_")


def in_bulk(question: Escalation) -> bool:
    """Whether it may be answered together with others: a call that waits for approval. A repair is looked at alone."""
    return question.kind == "approval" and "approve" in question.actions and not is_repair(question)


def workflow_name(question: Escalation, names: Mapping[str, str]) -> str:
    """The name of its workflow; that of one that is only proposed stands in the question itself."""
    return names[question.workflow_id] if question.workflow_id else str(question.facts["workflow"])


def heading(question: Escalation) -> str:
    """What is asked, in a few words."""
    if is_repair(question):
        return _REPAIR
    if "seen" in question.actions:
        return _CONTRADICTED
    return _LEFT if "item_id" in question.facts else HEADINGS[question.kind]


def meaning(act: str, question: Escalation | None = None) -> Act:
    """The words for an act, and for its consequence: as an answer to a question, or by itself."""
    repair = _OF_A_REPAIR if question and is_repair(question) else {}
    found = repair.get(act) or ACTS[act]
    return replace(found, comes=found.comes + _of_card(act, question)) if question else found


def _of_card(act: str, question: Escalation) -> str:
    """What else follows from an act, given the facts of its card."""
    reads, applied = question.facts.get("result_read"), question.facts.get("already_applied")
    if act == "happened" and isinstance(reads, list) and reads:
        return f" (the script reads it, and without one it gets null: {'; '.join(map(str, reads))})"
    if act == "reprocess" and isinstance(applied, list) and applied:
        return f".{sent_again(applied)}"
    return ""


def offered(acts: Sequence[str]) -> list[str]:
    """The acts that are worth showing: where something can be granted, trying again without that is not."""
    return [act for act in acts if act != "retry" or "grant" not in acts]


def subject(question: Escalation, act: str) -> str:
    """What an act that answers a question is done to."""
    on = {
        "repair": question.id, "proposal": question.id, "run": question.run_id, "item": question.facts.get("item_id"),
        "input": question.facts.get("input_id"),
    }
    kinds = ACTS[act].on
    return str((on.get(kinds[-1]) if kinds else None) or question.mutation_id or question.run_id)


def act_request(act: str, subject: str, workflow_id: str, capability: str | None = None) -> tuple[str, dict[str, str]]:
    """An act as a host takes it: its name in `REQUESTS` and the parameters that name what it is done to."""
    found = ACTS[act]
    if found.answers:
        return "resolve", {"mutation_id": subject, "answer": act}
    if act == "grant":
        return "grant", {"wf": workflow_id, "capability": str(capability), "mode": "allow"}
    if act == "set":
        return "set", {"wf": workflow_id, "waiting": "others"}
    return act, {next(iter(found.params)): workflow_id if found.on == ("workflow",) else subject}


def commands(question: Escalation, name: str) -> list[tuple[str, str]]:
    """Each act that answers a question now, with what a person types."""
    capability = question.facts.get("capability")
    workflow = typed_name(name, question.workflow_id)
    acts = offered(question.actions)
    return [(act, command(act, subject(question, act), workflow, str(capability))) for act in acts]


def command(act: str, on: str | None, workflow: str, capability: str | None = None) -> str:
    """What a person types to do one thing."""
    return ACTS[act].typed.format(on, wf=workflow, capability=capability)
