"""`keep open`: the page in a browser, at one thing."""

from __future__ import annotations

import webbrowser
from urllib.parse import urlencode

import click

from ...model.errors import Refused
from ...reading.look import Look
from .. import control
from . import names
from .command_session import CommandSession, with_json, with_session
from .completion import ANYTHING
from .text import echo, echo_json, say


@click.command("open")
@click.argument("id", metavar="[ID]", type=ANYTHING, required=False)
@with_json
@with_session
def open_page(session: CommandSession, id: str | None, as_json: bool) -> None:
    """Open the page in a browser, at a workflow or at anything with an id.

    A browser that is not signed in says how to get in, and then leads there. With --json the address is printed, and
    nothing is opened.
    """
    with session.look() as look:
        whole = _whole(look, id) if id else None
    try:
        origin = session.ask("page_origin", {}, control.LOOK_S)
    except control.NoHost:
        origin = None
    if origin is None:
        raise Refused("No running host has a page. `keep dev` starts one with a page.")
    address = f"{origin}/search?{urlencode({'text': whole})}" if whole else f"{origin}/"
    if as_json:
        echo_json({"address": address})
        return
    echo(address)
    if not webbrowser.open(address):
        say("No browser could be started here. Open that address yourself.")


def _whole(look: Look, typed: str) -> str:
    if typed.startswith("ask_"):
        return typed
    if typed[:4] in names.KINDS:
        return names.thing(look, typed, [kind for kind, *_ in names.KINDS.values()])[1]
    return str(names.workflow(look, typed)["id"])
