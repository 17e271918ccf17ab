"""`keep logs`: what a workflow's runs called and logged, and their warnings, from the traces of the runs."""

from __future__ import annotations

import time
from typing import Any

import click

from ...model.clock import iso
from ...model.records import Traced
from ...reading.look import Look
from ...reading.whole_thing import traced_line
from ...reading.wording import clock
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .text import echo, echo_json, echo_json_line, line, say, width

POLL_S = 0.2
Entry = tuple[tuple[int, int], str, "Traced"]


@click.command()
@click.argument("workflow", metavar="[WORKFLOW]", type=WORKFLOW, required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--last", metavar="N", type=click.IntRange(min=1), default=200, show_default=True,
              help="Begin with at most so many lines, the newest.")
@with_json
@with_session
def logs(session: CommandSession, workflow: str | None, follow: bool, last: int, as_json: bool) -> None:
    """What a workflow's runs did, line by line."""
    with session.look() as look:
        workflow_id = names.workflow(look, workflow)["id"]
        entries = look.views.newest_logs(workflow_id, last)
        if as_json and not follow:
            echo_json([_data(*entry) for entry in entries])
            return
        _print(entries, as_json)
        if not entries and not follow:
            ran = look.views.newest_runs(workflow_id, 1)
            say("Nothing that its runs did is on record any more." if ran else "Nothing has run yet.")
        if follow:
            _follow(look, workflow_id, entries[-1][0] if entries else (0, 0), as_json)


def _follow(look: Look, workflow_id: str, place: tuple[int, int], as_json: bool) -> None:
    seen = None
    try:
        while True:
            change = look.read.change()
            if change != seen:
                seen = change
                while entries := look.views.logs(workflow_id, place):
                    _print(entries, as_json)
                    place = entries[-1][0]
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return


def _print(entries: list[Entry], as_json: bool) -> None:
    for entry in entries:
        if as_json:
            echo_json_line(_data(*entry))
        else:
            echo(line(f"{clock(entry[2].at)} {entry[1]}.{entry[2].step} {traced_line(entry[2])}", width()))


def _data(place: tuple[int, int], handler: str, traced: Traced) -> dict[str, Any]:
    return {**traced.to_json(), "handler": handler, "at": iso(traced.at)}
