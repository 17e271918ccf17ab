"""`keep status`: how every workflow stands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ...model.records import Escalation, Gap, Workflow
from ...reading.look import Look
from ...reading.wording import ago, count, kept_bytes
from ..control import is_running
from .command_session import CommandSession, with_json, with_session
from .stopped_runs import StoppedRun, questions, stopped
from .text import echo, echo_json, line, paint, plain, width
from .watch import with_watch

if TYPE_CHECKING:
    _Entry = tuple[Workflow, StoppedRun | None, list[Escalation]]


@click.command()
@with_json
@with_watch
@with_session
def status(session: CommandSession, as_json: bool) -> None:
    """How every workflow stands. Exit code 4 if one waits for a person, or if no host starts with this ledger."""
    with session.look(tells=True) as look:
        shown = look.views.version()
        asked = questions(session, look)
        entries = [(w, stopped(look, w.id, w.name, asked), [q for q in asked if q.workflow_id == w.id])
                   for w in look.views.workflows(look.now_ms)]
        running = is_running(look.path)
        if as_json:
            workflows = [_data(*entry) for entry in entries]
            echo_json({"host": running, "refused": look.read.refused, "shown": shown, "workflows": workflows})
        else:
            _print(look, entries, running)
    sys.exit(4 if asked or look.read.refused else 0)


def _data(workflow: Workflow, stop: StoppedRun | None, asked: list[Escalation]) -> dict[str, Any]:
    return {**workflow.to_json(), "blocked": stop.to_json() if stop else None, "needs_you": [q.id for q in asked]}


def _print(look: Look, entries: list[_Entry], running: bool) -> None:
    for workflow, stop, asked in entries:
        echo(f"{plain(workflow.name)}  {paint(workflow.status)}  version {workflow.version}  {workflow.id}")
        for label, text in _facts(look, workflow, stop, asked, running):
            room = width()
            echo(f"  {label:<10} {line(text, max(20, room - 13) if room else None)}")
    if not entries:
        echo("No workflow is deployed yet. `keep deploy FILE` deploys one.")
    if look.read.refused:
        echo(plain(look.read.refused))
    else:
        echo("A host is running." if running else "No host is running: nothing happens until `keep dev` starts one.")


def _facts(
    look: Look, workflow: Workflow, stop: StoppedRun | None, asked: list[Escalation], running: bool,
) -> list[tuple[str, str]]:
    facts = []
    if stop:
        word = "needs you" if stop.needs_you else "waits"
        facts.append((word, f"{stop.run.handler} is {stop.run.status}{_line_of(stop)}: {stop.why}"))
        facts += [("  type", command) for command in stop.commands]
    others = [q for q in asked if stop is None or q != stop.question]
    if others:
        titles = ", ".join(line(q.title) for q in others)
        noun = "more question" if stop and stop.needs_you else "question"
        facts.append(("needs you", f"{count(len(others), noun)}: {titles}"))
        facts.append(("  type", "keep todo"))
    if workflow.pending:
        old = f", {workflow.stale:,} of them for too long" if workflow.stale else ""
        facts.append(("pending", f"{count(workflow.pending, 'event')}{old}"))
    facts += [("gap", _gap(look, gap)) for gap in workflow.gaps]
    facts.append(("ledger", kept_bytes(workflow.bytes)))
    if stop and stop.needs_you:
        facts.append(("next", "after your answer"))  # when the question expires is no check
    elif workflow.next_due_at is not None:
        due = ago(workflow.next_due_at, look.now_ms) if workflow.next_due_at > look.now_ms else "now"
        facts.append(("next", due if running or due != "now" else "as soon as a host runs"))
    return facts


def _line_of(stop: StoppedRun) -> str:
    return f" at line {stop.run.error.line}" if stop.run.error and stop.run.error.line else ""


def _gap(look: Look, gap: Gap) -> str:
    if gap.looks is not None:
        times = count(gap.looks, "time")
        return f"{gap.handler} has looked {times} since {ago(gap.since_at, look.now_ms)} and left what waits"
    lasted = ago(gap.since_at, gap.until_at).removesuffix(" ago")
    return f"{gap.handler} did not look for {lasted}, until {ago(gap.until_at, look.now_ms)}"
