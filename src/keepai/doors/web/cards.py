"""Questions to a person as cards: the words of `reading/offered_acts.py`, the facts, and a form for each answer."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.acts import ACTS, Act, has
from ...model.clock import parse_iso
from ...model.principals import Role
from ...model.records import Escalation, Run
from ...reading import offered_acts
from ...reading.call_sentences import sentence_of
from ...reading.diffs import differences
from ...reading.excerpt import Excerpt, excerpt
from ...reading.look import Look
from ...reading.next_steps import StepAhead
from ...reading.shadow_words import ToldDifference, told, told_run

#: A run, its sentence, and what is not the same.
ShownRun = tuple[str, str, tuple[ToldDifference, ...]]

#: Facts that are moments.
_MOMENTS = ("sent_at", "ended_at", "may_arrive_until", "asked_at", "expires_at", "noticed_at")


@dataclass(frozen=True)
class AnswerForm:
    """One answer as a form sends it."""

    name: str
    act: str
    params: Mapping[str, str]
    meaning: Act


@dataclass(frozen=True)
class LaterAnswer:
    """An answer that would be refused now."""

    meaning: Act
    from_at: int | None
    why: str  # where there is no such moment


@dataclass(frozen=True)
class Card:
    """One question."""

    question: Escalation
    heading: str
    sentence: str  # the call in a person's words; empty if it is about none
    workflow: str
    why: str
    answers: tuple[AnswerForm, ...]
    later: tuple[LaterAnswer, ...]
    moments: Mapping[str, int]
    arrives_s: int | None  # for how long the request may still arrive, if that is known
    differs: tuple[tuple[str, str, str], ...]  # field, as applied, as wanted now
    same: int
    place: Excerpt | None  # in the script
    changes: tuple[str, ...]  # of a repair: the lines of a unified diff
    shadowed: tuple[ShownRun, ...]  # of a repair: recorded runs that would not be the same
    mends: bool  # a new version of the script would answer it

    @property
    def kind(self) -> str:
        """What kind of question it is, in a word."""
        return "repair" if offered_acts.is_repair(self.question) else self.question.kind


def cards(look: Look, questions: Iterable[Escalation], role: Role | None) -> list[Card]:
    """One card per question, with the answers that this role has."""
    names = {row["id"]: str(row["name"]) for row in look.read.all("workflow_all")}
    return [_card(look, each, offered_acts.workflow_name(each, names), role) for each in questions]


def forms_of_steps(steps: Iterable[StepAhead], workflow_id: str, role: Role | None) -> list[AnswerForm]:
    """What a person of this role may do about something that asks no question."""
    found = [(act, step) for step in steps if step.kind == "person" for act in offered_acts.offered(step.acts)]
    return [
        _answer(act, step.subject or "", workflow_id, step.capability, offered_acts.meaning(act))
        for act, step in found if ACTS[act].label and has(role, act, step.subject or "")
    ]


def source_of(look: Look, run: Run) -> str:
    """The script version with which a run runs."""
    major, minor = run.number
    row = look.read.one("script_get", workflow_id=run.workflow_id, major=major, minor=minor)
    assert row is not None, f"{run.id} ran with a version that is kept"
    return str(row["source"])


def _card(look: Look, question: Escalation, name: str, role: Role | None) -> Card:
    facts: Mapping[str, Any] = question.facts
    rows, same = differences(facts["applied"], facts["wanted"]) if "wanted" in facts else ([], 0)
    found = {each: _moment(facts.get(each)) for each in _MOMENTS}
    moments = {each: moment for each, moment in found.items() if moment is not None}
    until = moments.get("may_arrive_until")
    arrives_s = None if until is None else max(0, math.ceil((until - look.now_ms) / 1000))
    return Card(
        question, offered_acts.heading(question), sentence_of(facts), name, _why(facts),
        _answers(question, role), _later(question, role), moments, arrives_s, tuple(rows), same,
        _place(look, question), _changes(look, question),
        shown_runs(facts["trial"]["report"]) if facts.get("trial") else (),
        "deploy" in question.actions and has(role, "deploy"),
    )


def shown_runs(report: Mapping[str, Any]) -> tuple[ShownRun, ...]:
    """The runs of a shadow report that are not the same."""
    return tuple((run["run_id"], told_run(run), tuple(map(told, run["differences"]))) for run in report["differing"])


def _why(facts: Mapping[str, Any]) -> str:
    """Why somebody is asked, without the call, which the card says already."""
    why = str(facts.get("why") or "")
    said = f"“{facts.get('attempted')}” "
    return f"This {why.removeprefix(said)}" if why.startswith(said) else why


def _answers(question: Escalation, role: Role | None) -> tuple[AnswerForm, ...]:
    capability = question.facts.get("capability")
    if question.kind == "proposal":
        return ()  # it is judged on its own page, which shows all of it
    answers = [(act, offered_acts.subject(question, act)) for act in offered_acts.offered(question.actions)]
    return tuple(
        _answer(act, on, question.workflow_id, str(capability), offered_acts.meaning(act, question))
        for act, on in answers if ACTS[act].label and has(role, act, on)
    )


def _answer(name: str, subject: str, workflow_id: str, capability: str | None, meaning: Act) -> AnswerForm:
    act, params = offered_acts.act_request(name, subject, workflow_id, capability)
    return AnswerForm(name, act, params, meaning)


def _later(question: Escalation, role: Role | None) -> tuple[LaterAnswer, ...]:
    found = question.facts.get("possible_from")
    later = found.items() if isinstance(found, dict) else ()
    return tuple(
        LaterAnswer(offered_acts.meaning(act, question), _moment(when), str(when))
        for act, when in later if has(role, act, offered_acts.subject(question, act))
    )


def _moment(text: object) -> int | None:
    """A fact as a moment; None if it says why there is none."""
    try:
        return parse_iso(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _place(look: Look, question: Escalation) -> Excerpt | None:
    """Where in its script a run failed."""
    if "location" not in question.facts:
        return None
    run = look.views.run(question.run_id)
    return excerpt(source_of(look, run), run.error.line, run.error.column) if run.error else None


def _changes(look: Look, question: Escalation) -> tuple[str, ...]:
    """What a repair changes in the script that failed."""
    if not offered_acts.is_repair(question):
        return ()
    before = source_of(look, look.views.run(question.run_id)).splitlines()
    after = str(question.facts["source"]).splitlines()
    return tuple(difflib.unified_diff(before, after, "the script that failed", "the repair", lineterm=""))
