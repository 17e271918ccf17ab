"""How a question is put to a person and what comes of each answer: words and acts that every front door shares.

A front door adds only its own form: a command to type, a button to press.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .items import sent_again

if TYPE_CHECKING:
    from ..model.records import Escalation

#: Kind of question → what is asked, in a few words.
HEADINGS = {
    "unknown_outcome": "Did this happen?", "approval": "May this be sent?", "permission": "May it do this?",
    "attention": "It was done before with another content.", "precondition": "Something outside is missing.",
    "logic": "The script failed.", "exhausted": "It was tried too often.",
    "internal": "The host or a connector failed.",
}
_CONTRADICTED = "A later sign contradicts what is on record."
_REPAIR = "May this repair be let in?"
_LEFT = "This was begun and not finished."

#: Class of a connector → what that means for whoever wants to know what became of a call.
CLASSES = {
    "A": "class A: it honours idempotency keys", "B": "class B: what was sent leaves a mark", "C": "class C: blind",
}


@dataclass(frozen=True)
class Meaning:
    """What an act is called, what comes of it, and what is said once it is done."""

    label: str
    comes: str
    done: str
    risk: str | None = None  # what goes wrong if it is the wrong answer; then it is asked for twice


#: Act → what comes of it.
MEANINGS = {
    "try_again": Meaning(
        "Look again", "the outside system is asked once more, from the start",
        "The outside system is asked once more."),
    "did_not_happen": Meaning(
        "It didn’t happen", "you looked, and it is not there: it is sent again", "It is sent again.",
        "If it did happen, it will have happened twice."),
    "happened": Meaning(
        "It happened", "you looked, and it is there: the script goes on with the result that you give, or with none",
        "It counts as done, and the script goes on.", "If it is not there, it will never be done."),
    "skip": Meaning(
        "Skip it", "go on without knowing: the script is told, its events end as skipped",
        "It was given up without knowing, and the script was told.",
        "Nobody looks after it any more, whether it happened or not."),
    "seen": Meaning(
        "I have seen it", "you have looked, and done what was to be done; what is on record stays",
        "Noted. What is on record stays."),
    "approve": Meaning("Approve", "exactly this is done, once", "Exactly this is done, once."),
    "reject": Meaning(
        "Reject", "it is not done; a held call ends its events as skipped", "It is not done.",
        "What was to be done is given up, and nothing asks for it again."),
    "grant": Meaning(
        "Allow it", "the workflow may do it from now on, and the run goes on",
        "The workflow may do it from now on, and the run goes on."),
    "retry": Meaning("Try again", "try it again now", "It is tried again."),
    "deploy": Meaning(
        "Deploy", "with the script mended: the run goes on with the new version", "The new version is active."),
    "skip_run": Meaning(
        "Give it up",
        "give it up: a consumer is told and its events end as skipped, a routine goes on without the item",
        "It was given up.", "What was to be done here is not done, and nothing asks for it again."),
    "finish": Meaning(
        "End it here", "end it: what happened stays, and nothing more is published",
        "It has ended. What happened stays.", "What should follow from it does not follow."),
    "keep": Meaning(
        "Keep what was done", "what was applied counts, and the script goes on with its result; nothing is sent",
        "What was applied counts, and the script goes on.", "What the script wants now is not sent."),
    "skip_event": Meaning(
        "Skip this event", "nothing shall come of it", "Nothing shall come of it.", "It is not worked on any more."),
    "skip_input": Meaning(
        "Skip this input", "nothing more shall come of it; what was applied stays",
        "Nothing more starts because of this input.", "What waits because of it is given up."),
    "reprocess": Meaning(
        "Work on it once more", "have it processed once more; what came of it before stays on record",
        "It is worked on once more.", "What was done for it before may be done a second time."),
    "resume": Meaning("Resume the workflow", "let the workflow run again", "The workflow runs again."),
    "run_now": Meaning(
        "Run now", "have its producers and routines run now", "Its producers and routines run as soon as they can."),
}

#: The same for a repair that waits: the answers have the names of those to a held call.
_OF_A_REPAIR = {
    "approve": Meaning(
        "Let it in", "the repair becomes the active version, and the run goes on with it",
        "The repair is the active version now, and the run goes on.",
        "What earlier versions did stays as it is; the new version does not mend it."),
    "reject": Meaning(
        "Reject", "the repair is not let in; the run waits for another", "The repair was not let in.",
        "It is not offered again."),
}

#: The answers that `resolve` takes.
_RESOLVED = ("try_again", "did_not_happen", "happened", "skip", "keep", "seen")


def is_repair(question: Escalation) -> bool:
    """Whether it is asked if a new script may be let in."""
    return question.id.startswith("fix_")


def heading(question: Escalation) -> str:
    """What is asked, in a few words."""
    if is_repair(question):
        return _REPAIR
    if "seen" in question.actions:
        return _CONTRADICTED
    return _LEFT if "item_id" in question.facts else HEADINGS[question.kind]


def meaning(act: str, question: Escalation | None = None) -> Meaning:
    """What comes of an act, as an answer to a question or by itself."""
    repair = _OF_A_REPAIR if question and is_repair(question) else {}
    found = repair.get(act) or MEANINGS[act]
    return replace(found, comes=found.comes + _of_card(act, question)) if question else found


def _of_card(act: str, question: Escalation) -> str:
    """What else comes of an act, for what its card is about."""
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
        "approve": question.id, "reject": question.id, "retry": question.run_id, "skip_run": question.run_id,
        "finish": question.run_id, "reprocess": question.facts.get("item_id"),
        "skip_input": question.facts.get("input_id"),
    }
    return str(on.get(act) or question.mutation_id or question.run_id)


def deed(act: str, subject: str, workflow_id: str, capability: str | None = None) -> tuple[str, dict[str, str]]:
    """An act as a host takes it: its name in `control.ACTS` and the parameters that name what it is done to."""
    if act in _RESOLVED:
        return "resolve", {"mutation_id": subject, "answer": act}
    if act == "grant":
        return "grant", {"wf": workflow_id, "capability": str(capability), "mode": "allow"}
    if act in ("resume", "run_now"):
        return act, {"wf": workflow_id}
    return act, {"run_id" if act in ("retry", "finish") else "id": subject}


def handle(name: str, workflow_id: str) -> str:
    """A workflow as it can safely be typed: a script chose its name, and a shell would read it."""
    return name if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) else workflow_id


def with_name(message: str, name: str) -> str:
    """A sentence of the host, with the workflow that it means."""
    return message.replace("keep grant WORKFLOW ", f"keep grant {name} ")
