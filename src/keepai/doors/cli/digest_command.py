"""`keep digest`: what came in, what went out, what failed and what waits, of the last day or longer."""

from __future__ import annotations

from typing import Any

import click

from ...reading.digest import digest as made
from ...script.duration import BadDuration, parse_duration
from .command_session import CommandSession, with_json, with_session
from .stopped_runs import questions
from .text import echo, echo_json


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
