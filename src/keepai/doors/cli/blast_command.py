"""`keep blast`: what runs of a script version, or of a span of time, have touched."""

from __future__ import annotations

import click

from ...model.errors import Refused
from ...reading.blast import Blast, moment
from ...reading.look import Look
from ...reading.wording import ago, count
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import WORKFLOW
from .list_commands import block, leaf, outcome, print_items
from .text import echo, echo_json, plain, say, short


def time_option(ctx: click.Context, option: click.Parameter, given: str | None) -> int | None:
    """A moment that an option names."""
    try:
        return moment(given, "it")
    except Refused as error:
        raise click.BadParameter(error.message) from None


@click.command()
@click.argument("workflow", metavar="WORKFLOW", type=WORKFLOW)
@click.option("--version", metavar="V", help="What the runs of this script version touched, such as 1.3.")
@click.option("--since", metavar="T", callback=time_option,
              help="What runs touched that began at this time or later, such as 2026-01-05T09:00:00Z.")
@click.option("--until", metavar="T", callback=time_option, help="What runs touched that began before this time.")
@with_json
@with_session
def blast(
    session: CommandSession, workflow: str, version: str | None, since: int | None, until: int | None, as_json: bool,
) -> None:
    """What a script version touched: its inputs, items, mutations.

    Without options, it is the active version. A time without a zone is UTC.
    """
    with session.look() as look:
        row = names.workflow(look, workflow)
        found = look.views.blast(row["id"], version, since, until)
        if as_json:
            echo_json(found.to_json())
            return
        counts = (f"{count(found.inputs_count, 'input')}, {count(found.items_count, 'item')} and "
                  f"{count(found.mutations_count, 'mutation')}")
        echo(plain(f"{row['name']}, {_whose(found)}: {count(found.runs, 'run')} touched {counts}."))
        _print(look, found)
    left_out = found.inputs_count + found.items_count + found.mutations_count - (
        len(found.inputs) + len(found.items) + len(found.mutations))
    if left_out:
        say(f"… and {left_out:,} more. --since and --until narrow it.")


def _whose(found: Blast) -> str:
    """Which runs are meant."""
    told = found.to_json()
    named = [f"version {found.version}" if found.version else "every version"]
    named += [f"{word} {told[name]}" for word, name in (("since", "since_at"), ("until", "until_at")) if told[name]]
    return " ".join(named)


def _print(look: Look, found: Blast) -> None:
    """The inputs with everything that came of them, the items, and what these runs themselves sent."""
    outputs = [m for each in found.inputs for m in each.outputs or ()]
    shown = short([*(i.id for i in found.inputs), *(m.id for m in outputs), *(m.id for m in found.mutations)])
    _heading("inputs", found.inputs_count)
    for each in found.inputs:
        block(each.status, ago(each.created_at, look.now_ms), each.title, shown[each.id], each.needs_you)
        for output in each.outputs or ():
            leaf("→", outcome(output), shown[output.id])
    _heading("items", found.items_count)
    print_items(look, found.items)
    _heading("mutations", found.mutations_count)
    for sent in found.mutations:
        doubt = sent.status.value == "indeterminate"
        block(sent.status, ago(sent.created_at, look.now_ms), sent.preview, shown[sent.id], doubt)


def _heading(name: str, number: int) -> None:
    if number:
        echo(click.style(name, dim=True))
