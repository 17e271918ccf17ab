"""`keep status`: the state of every workflow, and why one has stopped. `keep digest`: what happened lately."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ...ledger.rows import run_record
from ...model.records import Escalation, Gap, Run, Workflow
from ...model.states import Waiting
from ...reading.digest import digest as made
from ...reading.look import Look
from ...reading.offered_acts import commands
from ...reading.parked_runs import GOES_ON
from ...reading.shared_hosts import at_work, place
from ...reading.wording import ago, count, kept_bytes, run_stands
from ...script.duration import BadDuration, parse_duration
from ..control import is_running
from .command_session import CommandSession, with_json, with_session, with_watch
from .text import echo, echo_json, line, paint, plain, width

#: Parked runs of one workflow that are listed.
PARKED_SHOWN = 5


@click.command()
@with_json
@with_watch
@with_session
def status(session: CommandSession, as_json: bool) -> None:
    """The state of every workflow. Exit code 4 if one waits for a person, or if no host starts with this ledger."""
    with session.look(tells=True) as look:
        shown = look.views.version()
        asked = questions(session, look)
        entries = [(w, stopped(look, w.id, w.name, asked), [q for q in asked if q.workflow_id == w.id])
                   for w in look.views.workflows(look.now_ms)]
        places = [place(host) for host in at_work(look.read)]
        running = bool(places) or is_running(session.settings().ledger)
        if as_json:
            workflows = [
                {**w.to_json(), "blocked": stop.to_json() if stop else None, "needs_you": [q.id for q in of_it]}
                for w, stop, of_it in entries
            ]
            echo_json({"host": running, "refused": look.read.refused, "shown": shown, "workflows": workflows})
        else:
            _print(look, entries, running, places)
    sys.exit(4 if asked or look.read.refused else 0)


def _print(
    look: Look, entries: list[tuple[Workflow, StoppedRun | None, list[Escalation]]], running: bool,
    places: Sequence[str],
) -> None:
    for workflow, stop, asked in entries:
        echo(f"{plain(workflow.name)}  {paint(workflow.status)}  version {workflow.version}  {workflow.id}")
        for label, text in _facts(look, workflow, stop, asked, running):
            room = width()
            echo(f"  {label:<10} {line(text, max(20, room - 13) if room else None)}")
    if not entries:
        echo("No workflow is deployed yet. `keep deploy FILE` deploys one.")
    if look.read.refused:
        echo(plain(look.read.refused))
    elif places:
        echo(plain(f"At work: {', '.join(places)}."))
    else:
        echo("A host is running." if running else "No host is running: nothing happens until `keep dev` starts one.")


def _facts(
    look: Look, workflow: Workflow, stop: StoppedRun | None, asked: list[Escalation], running: bool,
) -> list[tuple[str, str]]:
    facts = []
    if stop:
        word = "needs you" if stop.needs_you else "waits"
        place = f" at line {stop.run.error.line}" if stop.run.error and stop.run.error.line else ""
        facts.append((word, f"{stop.run.handler} {run_stands(stop.run.status)}{place}: {stop.why}"))
        facts += [("  type", command) for command in stop.commands]
    others = [q for q in asked if stop is None or q != stop.question]
    if others:
        titles = ", ".join(line(q.title) for q in others)
        noun = "more question" if stop and stop.needs_you else "question"
        facts.append(("needs you", f"{count(len(others), noun)}: {titles}"))
        facts.append(("  type", "keep todo"))
    if workflow.waiting != Waiting.STOP:
        facts.append(("waiting", f"{workflow.waiting}: while a run waits for a person, {GOES_ON[workflow.waiting]}"))
    facts += [("parked", f"{each.run_id} of {each.handler} is {each.status}, and holds {', '.join(each.holds)}")
              for each in workflow.parked[:PARKED_SHOWN]]
    if len(workflow.parked) > PARKED_SHOWN:
        facts.append(("", f"and {count(len(workflow.parked) - PARKED_SHOWN, 'more run')}"))
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


def _gap(look: Look, gap: Gap) -> str:
    if gap.looks is not None:
        times = count(gap.looks, "time")
        return f"{gap.handler} has looked {times} since {ago(gap.since_at, look.now_ms)} and left what waits"
    lasted = ago(gap.since_at, gap.until_at).removesuffix(" ago")
    return f"{gap.handler} did not look for {lasted}, until {ago(gap.until_at, look.now_ms)}"


# -- why a workflow has stopped ---------------------------------------------------------------------


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
    """The stopped run of a workflow, if it has one; `asked` are the questions that a running host has given."""
    row = look.read.one("run_open", workflow_id=workflow_id)
    return stop_of(look, run_record(row), name, asked) if row and row["status"] != "active" else None


def stop_of(look: Look, run: Run, name: str, asked: Iterable[Escalation] | None = None) -> StoppedRun:
    """What holds a stopped run."""
    known = look.views.needs_you(look.now_ms, run.workflow_id) if asked is None else asked
    question = next((q for q in known if q.run_id == run.id and "seen" not in q.actions), None)
    why = run.error.message if run.error else run.status
    found = tuple(command for _, command in commands(question, name)) if question else ()
    return StoppedRun(run, question, why, found)


# -- the digest -------------------------------------------------------------------------------------


def _span(context: click.Context, option: click.Parameter, text: str) -> int:
    try:
        return parse_duration(text)
    except BadDuration as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--since", "span_ms", metavar="SPAN", default="24h", show_default=True, callback=_span,
              help="How far back, such as 24h or 7d.")
@with_json
@with_session
def digest(session: CommandSession, span_ms: Any, as_json: bool) -> None:
    """What came in, went out and failed lately, and what waits.

    A channel of keep.toml with `digest` gets the same by itself. Of each kind the newest few are named and all are
    counted; what failed is counted each time.
    """
    with session.look() as look:
        found = made(look.read, questions(session, look), look.now_ms - span_ms, look.now_ms)
    if as_json:
        echo_json(found.to_json())
    else:
        echo(found.title, *found.lines())
