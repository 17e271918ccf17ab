"""`keep inputs`, `keep outputs` and `keep runs`: what came in, what went out, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from . import names
from .session import Look, Session, with_json, with_session
from .text import ago, cells, count, cut, echo, echo_json, line, paint, say, short, table, width

if TYPE_CHECKING:
    from ...ledger.base import Row
    from ...model.records import Event, Input, Mutation, Output, Run

_LAST = click.option("--last", metavar="N", type=click.IntRange(min=1), default=50, show_default=True,
                     help="Show at most so many, the newest.")


@click.command()
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--status", type=click.Choice(["pending", "done", "skipped"]), help="Only these.")
@click.option("--search", metavar="TEXT", help="Only those with this in their title.")
@_LAST
@with_json
@with_session
def inputs(
    session: Session, workflow: str, status: str | None, search: str | None, last: int, as_json: bool,
) -> None:
    """What came in, and what came of each."""
    with session.look() as look:
        row = names.workflow(look, workflow)
        found = look.views.inputs(row["id"], status, search)
        whole = [look.views.input(each.id) for each in found[-last:]]
        if as_json:
            echo_json([each.to_json() for each in whole])
            return
        shown = short([each.id for each in whole] + [m.id for each in whole for m in each.outputs or ()])
        takers = _takers(look, row)
        for each in whole:
            _block(each.status, ago(each.created_at, look.now_ms), each.title, shown[each.id], each.needs_you)
            for told, id in _what_came(look, each, takers):
                _leaf("→", told, shown.get(id, id))
        _rest(len(found), len(whole), "input", "Nothing has come in yet." if not (status or search) else "None.")


@click.command()
@click.argument("workflow", metavar="WORKFLOW")
@_LAST
@with_json
@with_session
def outputs(session: Session, workflow: str, last: int, as_json: bool) -> None:
    """What went out, and which inputs caused it."""
    with session.look() as look:
        found = look.views.outputs(names.workflow(look, workflow)["id"])
        if as_json:
            echo_json([each.to_json() for each in found[-last:]])
            return
        _print_outputs(look, found[-last:])
        _rest(len(found), min(last, len(found)), "output", "Nothing has gone out yet.")


def _print_outputs(look: Look, found: list[Output]) -> None:
    shown = short([each.mutation.id for each in found] + [i.id for each in found for i in each.inputs])
    for each in found:
        mutation = each.mutation
        when, doubt = ago(mutation.created_at, look.now_ms), mutation.status.value == "indeterminate"
        _block(mutation.status, when, mutation.title or mutation.preview, shown[mutation.id], doubt)
        for cause in each.inputs:
            _leaf("←", cause.title, shown[cause.id])


@click.command()
@click.argument("workflow", metavar="WORKFLOW")
@_LAST
@with_json
@with_session
def runs(session: Session, workflow: str, last: int, as_json: bool) -> None:
    """Every attempt at every handler, oldest first."""
    with session.look() as look:
        found = look.views.runs(names.workflow(look, workflow)["id"], last)
        if as_json:
            echo_json([each.to_json() for each in found])
            return
        shown = short(each.id for each in found)
        header = ("RUN", "STARTED", "HANDLER", "TRIGGER", "STATUS", "WHAT")
        rows = [
            (shown[r.id], ago(r.created_at, look.now_ms), r.handler, r.trigger, r.status, _what(r, shown))
            for r in found
        ]
        if rows:
            echo(*table(header, rows, 5))
        else:
            say("Nothing has run yet.")


def _what(run: Run, shown: dict[str, str]) -> str:
    """What is worth knowing of a run at a glance."""
    if run.error and run.state.value in ("paused", "failed"):
        return run.error.message
    if run.retry_of:
        return f"carries on {shown.get(run.retry_of, run.retry_of)}"
    return f"in {run.phase}" if run.state.value == "active" else ""


def _block(status: str, when: str, title: str, id: str, needs_you: bool) -> None:
    """The first line of an entry: what it is, with its state before and its id after it."""
    word = "needs you" if needs_you else str(status)
    lead = f"{paint(f'{word:<10}') if not needs_you else click.style(f'{word:<10}', fg='red')} {when:<11} "
    _with_id(lead, 23, title, id)


def _leaf(arrow: str, text: str, id: str) -> None:
    _with_id(" " * 11 + f"{arrow} ", 13, text, id)


def _with_id(lead: str, taken: int, text: str, id: str) -> None:
    room = width()
    told = line(text)
    if room is not None:
        told = cut(told, max(12, room - taken - 2 - cells(id)))
    echo(f"{lead}{told}" + (f"  {click.style(id, dim=True)}" if id else ""))


def _what_came(look: Look, input: Input, takers: Mapping[str, str]) -> list[tuple[str, str]]:
    """What came of an input, each with the id to look at."""
    told = [(_outcome(each), each.id) for each in input.outputs or ()]
    told += [_waits(look, event, takers) for event in input.events or () if _is_work(event, takers)]
    return told or [("nothing went out", "")]


def _takers(look: Look, workflow: Row) -> dict[str, str]:
    """Topic → the consumer that takes its events."""
    from ...script.manifest import from_text

    row = look.read.one("script_get", workflow_id=workflow["id"], major=workflow["major"], minor=workflow["minor"])
    assert row is not None, "a workflow has the version that is active"
    manifest = from_text(row["manifest"])
    found = {topic: manifest.subscriber(topic) for topic in manifest.topics}
    return {topic: handler.name for topic, handler in found.items() if handler}


def _is_work(event: Event, takers: Mapping[str, str]) -> bool:
    """Whether an event still waits; in a topic that nobody takes it is a result."""
    return event.status.value == "pending" and event.topic in takers


def _outcome(mutation: Mutation) -> str:
    return f"{_WORDS[mutation.status.value]}: {mutation.title or mutation.preview}"


_WORDS = {
    "in_flight": "being sent", "applied": "applied", "failed": "did not happen",
    "needs_reconcile": "unknown, being looked up", "indeterminate": "unknown, needs you", "skipped": "skipped",
}


def _waits(look: Look, event: Event, takers: Mapping[str, str]) -> tuple[str, str]:
    if not event.reserved_by:
        return f"waits for {takers[event.topic]}", event.id
    run = look.views.run(event.reserved_by)
    why = f": {run.error.message}" if run.error else ""
    return f"{run.handler} is {run.status}{why}", run.id


def _rest(total: int, shown: int, noun: str, none: str) -> None:
    if not total:
        say(none)
    elif total > shown:
        say(f"… and {count(total - shown, f'earlier {noun}')}: --last {total} shows all.")
