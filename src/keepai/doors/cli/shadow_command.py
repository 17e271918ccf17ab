"""`keep shadow`: what a new script would do otherwise than the runs that were recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ...model.errors import ScriptInvalid
from ...reading.shadow_words import told, told_run
from ...reading.wording import count
from . import names
from .ask_host import ask_host
from .blast_command import time_option
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .script_files import read_script, say_refused
from .text import echo, echo_json, plain, say


@click.command()
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--last", type=click.IntRange(1), metavar="N", help="Compare the last N recorded runs; else 200.")
@click.option("--since", metavar="T", callback=time_option,
              help="Compare recorded runs that began at this time or later, such as 2026-01-05T09:00:00Z.")
@with_json
@with_session
def shadow(
    session: CommandSession, workflow: str, file: str, last: int | None, since: int | None, as_json: bool,
) -> None:
    """What a new script would do otherwise than the recorded runs.

    The script runs over what earlier runs of the active version were given. Nothing is called, sent or stored. What it
    would send, take, publish and remember is compared with what those runs did. A time without a zone is UTC.

    Exit code 0 if all is the same, 3 if something is not or cannot be compared, 1 if no run was recorded.
    """
    with session.look() as look:
        row = names.workflow(look, workflow)
    if sys.stderr.isatty() and not as_json:
        say("The script runs over the recorded runs …")
    try:
        report = ask_host(session, "shadow", wf=str(row["id"]), source=read_script(file), last=last, since=since)
    except ScriptInvalid as error:
        say_refused(file, error, as_json)
        sys.exit(3)
    if as_json:
        echo_json(report)
    else:
        echo(*lines(report, str(row["name"])))
    sys.exit(0 if report["all_same"] else 3 if report["runs"] else 1)


def lines(report: Mapping[str, Any], name: str) -> Iterator[str]:
    """A report for people."""
    colour = "green" if report["all_same"] else "yellow"
    yield click.style(f"{plain(name)} {report['version']} and the new script: {report['words']}.", fg=colour)
    for run in report["differing"]:
        yield f"{run['run_id']}  {plain(told_run(run))}"
        for each in map(told, run["differences"]):
            yield f"  {plain(each.sentence)}"
            for field, before, after in each.fields:
                yield from (f"    {plain(field)}", f"      then  {plain(before)}", f"      now   {plain(after)}")
    if report["not_shown"]:
        yield f"… and {count(report['not_shown'], 'further run')} that would not be the same."
