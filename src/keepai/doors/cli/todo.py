"""`keep todo`: every question that only a person can answer, with the facts and what to type.

The host's words and the exact params are shown in full. What the script chose, such as a title, is marked as the
script's words. A running host is asked, because it knows the connectors; without one, only the ledger is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from ...model.clock import parse_iso
from ...model.ids import typed_name
from ...model.records import Escalation
from ...reading.diffs import differences
from ...reading.look import Look
from ...reading.offered_acts import CLASSES, command, commands, heading, meaning, workflow_name
from ...reading.shadow_words import told, told_run
from ...reading.shared_hosts import runs_on
from ...reading.wording import ago, count
from ..health_checks import OK, check_channels
from .command_session import CommandSession, with_json, with_session, with_watch
from .status import questions
from .text import LABEL, cells, echo, echo_json, exact, field, plain, say, width

_DIFFERING_MAX = 5  # runs that a card shows


@click.command()
@with_json
@with_watch
@with_session
def todo(session: CommandSession, as_json: bool) -> None:
    """What waits for you: questions that only a person can answer.

    Exit code 4 if there is one.
    """
    with session.look() as look:
        names = {row["id"]: str(row["name"]) for row in look.read.all("workflow_all")}
        found = questions(session, look)
        if as_json:
            echo_json([{**q.to_json(), "commands": [typed for _, typed in commands(q, workflow_name(q, names))]}
                       for q in found])
        else:
            for number, each in enumerate(found):
                echo(*([""] if number else []), *_card(look, each, workflow_name(each, names)))
            if not found:
                echo("Nothing waits for you.")
            _warn(look)
    sys.exit(4 if found else 0)


def _warn(look: Look) -> None:
    """Name the channels that do not work, to people who rely on being told."""
    for each in check_channels(look):
        if each.state != OK:
            say(f"{each.name} {each.said} {each.do}")


def _card(look: Look, question: Escalation, name: str) -> list[str]:
    facts: Mapping[str, Any] = question.facts
    lines = [f"{click.style(heading(question), fg='red')}  {plain(name)}  {question.id}"]
    if question.kind == "proposal":
        return [*lines, *_about_proposal(look, facts), *_answers(look, question, name)]
    lines += _what(facts)
    typed = typed_name(name, question.workflow_id)
    lines += field("why", facts["why"])
    lines += field("because of", *(facts.get("inputs") or ()))
    lines += field("runs on", runs_on(look.read, question.workflow_id))
    lines += _about_doubt(look, facts) if question.kind == "unknown_outcome" else _about_term(look, facts)
    lines += _about_item(facts) if "item_id" in facts else []
    lines += _about_contradiction(look, facts) if "noticed_at" in facts else []
    impact = facts.get("impact_by_author")
    lines += field("repair", facts.get("note"), impact and f"its author calls it {impact}")
    lines += _trial(facts["trial"]) if facts.get("trial") else []
    lines += _repairs(facts) if facts.get("repairs") else []
    lines += [each for found in facts.get("blast", ()) for each in _touched(found, typed)]
    lines += exact("new script", facts.get("source"))
    if facts.get("workflow_status"):
        lines += field("note", f"The workflow is {facts['workflow_status']}: nothing goes on until `keep resume`.")
    told = f"an answer with --shown {question.version} is refused if any of this has changed since"
    lines += field("version", f"{question.version}: {told}")
    return [*lines, *_answers(look, question, name)]


def _about_proposal(look: Look, facts: Mapping[str, Any]) -> list[str]:
    """What is proposed, in short: whoever accepts it is shown all of it."""
    return [
        *field("why", facts["why"]), *field("in its words", f"“{facts['why_by_proposer']}”"),
        *field("does", *facts["does"]), *field("may change", *(facts["changes"] or ("nothing",))),
        *field("proof", *facts["proof"]), *field("warning", *facts["warnings"]),
        *field("expires", _when(look, facts["expires_at"])),
    ]


def _what(facts: Mapping[str, Any]) -> list[str]:
    """What was attempted: in the host's words, in the script's, and exactly."""
    if not facts.get("attempted"):
        where = [str(facts[name]) for name in ("handler", "phase") if facts.get(name)]
        return field("in", ", ".join(where))
    called, target = facts.get("title_by_script"), facts["target"]
    return [
        *exact("what", str(facts["attempted"])), *field("", called and f"in the script's words: “{called}”"),
        *exact("wanted now", facts.get("wanted_preview")),
        *exact("where", f"{facts['connector']}: {target}" if target else facts["connector"]),
        *(differs(facts["applied"], facts["wanted"]) if "wanted" in facts
          else exact("params", json.dumps(facts["params"], ensure_ascii=False))),
    ]


def _about_item(facts: Mapping[str, Any]) -> list[str]:
    """An item that was left behind: what was done for it, which stays."""
    applied = facts["already_applied"] or ["nothing"]
    return [*field("item", f"{facts['item_id']}, attempt {facts['attempt']}"), *exact("applied", *applied)]


def _repairs(facts: Mapping[str, Any]) -> list[str]:
    """What was tried to mend the script, and how many more tries there may be."""
    tried = [f"{each['id']} {each['status']}: {each['note'] or 'no note'}" for each in facts["repairs"]]
    left = facts["repairs_left"]
    return field("repairs", *tried, f"{left} more may be tried" if left else "none is left: a person must deploy")


def _trial(trial: Mapping[str, Any]) -> list[str]:
    """What recorded runs show of a repair, and why it does not go live by itself."""
    differing = [f"{told_run(run)}{''.join(f'; {told(each).sentence}' for each in run['differences'])}"
                 for run in trial["report"]["differing"][:_DIFFERING_MAX]]
    return [
        *field("it waits", trial["waits"]), *field("recorded", trial["report"]["words"], *differing),
        *field("would send", *(f"{each}, for the input that failed" for each in trial["sends"])),
    ]


def _touched(found: Mapping[str, Any], workflow: str) -> list[str]:
    """What one faulty version touched: how much of each kind, and the first of it."""
    counts = [count(found[f"{noun}s_count"], noun) for noun in ("input", "item", "mutation")]
    lines = field("touched", f"by version {found['version']}, in {count(found['runs'], 'run')}: {', '.join(counts)}")
    for kind in ("inputs", "items", "mutations"):
        more = found[f"{kind}_count"] - len(found[kind])
        lines += field(kind, *found[kind], f"… and {more:,} more" if more else None)
    return lines + field("all of it", f"keep blast {workflow} --version {found['version']}")


def _about_doubt(look: Look, facts: Mapping[str, Any]) -> list[str]:
    """Who could verify it, and whether it may still arrive."""
    until = facts["may_arrive_until"]
    times = facts["asked_times"]
    return [
        *field("account", facts["account"]),
        *field("verify", facts["verifying"], CLASSES.get(facts["connector_class"])),
        *field("check", facts["check_by_hand"]),
        *field("sent", f"{_when(look, facts['sent_at'])}, as attempt {facts['sent_times']}"),
        *field("", f"{facts['connector']} was asked {count(times, 'time')} what became of it" if times else None),
        *field("may arrive", "not any more" if until is None else _moment(look, "until", until)),
        *exact("came later", *(json.dumps(each, ensure_ascii=False) for each in facts["late_evidence"])),
    ]


def _about_contradiction(look: Look, facts: Mapping[str, Any]) -> list[str]:
    """What is on record, what came later, and what to check."""
    return [
        *field("on record", facts["recorded"]),
        *exact("came later", *(json.dumps(each, ensure_ascii=False) for each in facts["late_evidence"])),
        *field("noticed", _when(look, facts["noticed_at"])), *field("check", facts["check_by_hand"]),
    ]


def _about_term(look: Look, facts: Mapping[str, Any]) -> list[str]:
    lines = field("account", facts.get("account"))
    if "expires_at" in facts:
        lines += field("asked", _when(look, facts["asked_at"]))
        lines += field("expired" if facts["possible_from"] else "expires", _when(look, facts["expires_at"]))
    return lines + field("script", f"version {facts['version']}, line {facts['location'].partition(':')[0]}"
                         if facts.get("location") else None)


def _answers(look: Look, question: Escalation, name: str) -> list[str]:
    """What to type now, and what will be possible later."""
    typed = commands(question, name)
    wide = max((len(text) for _, text in typed), default=0)
    lines = ["  answer with one of"] if typed else []
    lines += [f"    {text:<{wide}}  {click.style('# ' + meaning(act, question).comes, dim=True)}"
              for act, text in typed]
    later = question.facts.get("possible_from")
    for act, moment in (later.items() if isinstance(later, dict) else ()):
        on = question.mutation_id or question.id
        text = command(act, on, typed_name(name, question.workflow_id))
        lines.append(f"  not yet: {text}  {click.style('# ' + _moment(look, 'from', moment), dim=True)}")
    return lines


def _moment(look: Look, word: str, moment: object) -> str:
    """From or until when; or the reason why there is no such moment."""
    try:
        return f"{word} {moment} ({ago(parse_iso(str(moment)), look.now_ms)})"
    except ValueError:
        return str(moment)


def _when(look: Look, moment: str) -> str:
    return f"{ago(parse_iso(moment), look.now_ms)} ({moment})"


_HEADER = ("FIELD", "APPLIED", "WANTED")


def differs(applied: Any, wanted: Any) -> list[str]:
    """The fields that are not the same, exactly; side by side where the terminal is wide enough."""
    found, same = differences(applied, wanted)
    rows = [(plain(name), plain(before), plain(now)) for name, before, now in found]
    lead = " " * LABEL
    told = [*_beside(rows), *([f"{count(same, 'other field')} the same"] if same else [])]
    return [f"  {'differs':<{LABEL - 3}} {told[0]}", *(lead + each for each in told[1:])] if rows else []


def _beside(rows: list[tuple[str, str, str]]) -> list[str]:
    every = [_HEADER, *rows]
    wide = [max(cells(row[column]) for row in every) for column in range(3)]
    room = width()
    if room is None or LABEL + sum(wide) + 4 <= room:
        return ["  ".join(cell + " " * (space - cells(cell)) for cell, space in zip(row, wide, strict=True)).rstrip()
                for row in every]
    return [part for name, before, now in rows for part in (name, f"  applied  {before}", f"  wanted   {now}")]
