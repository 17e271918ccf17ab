"""`keep dev`: a host in the foreground that prints what it does, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from ...testing.crash import install_from_env
from ..dev_host import PagePlace, run_dev_host
from .command_session import CommandSession, with_json, with_session
from .text import say
from .wiring import unlock_secrets


@click.command()
@click.option("--once", is_flag=True, help="Run what is due now and what it causes, then end; without the page.")
@click.option("--no-ui", is_flag=True, help="Only the host: no page, and no script is deployed by itself.")
@click.option("--port", type=click.IntRange(0, 65535), help="The page's port; without it 7777, or the next free one.")
@click.option("--host", "address", metavar="ADDRESS",
              help="The page's address; without it a name of its own, on this machine. One that others can reach "
                   "needs a password in KEEP_PASSWORD.")
@with_json
@with_session
def dev(session: CommandSession, once: bool, no_ui: bool, port: int | None, address: str | None, as_json: bool) -> None:
    """Run the workflows here, with a page to look at, until Ctrl-C.

    The page's address is printed, and works once. A script in this folder that you save becomes the new version of its
    workflow, if that workflow is deployed already. What the script newly asks for is not granted by that, unless
    keep.toml grants it.

    With --once the exit code is 4 if a workflow waits for a person.
    """
    _crash_if_told()
    settings = session.settings(connectors=True)
    closed = unlock_secrets(settings)
    if closed:
        say(closed)
    page = None if once or no_ui else PagePlace(address, port)
    needs_you = asyncio.run(run_dev_host(settings, page, once, as_json))
    sys.exit(4 if once and needs_you else 0)


def _crash_if_told() -> None:
    """The demo and the tests kill a host at a named place."""
    if os.environ.get("KEEP_CRASH_AT"):
        install_from_env()
