"""`keep serve`: a host for a service manager."""

from __future__ import annotations

import asyncio
import sys

import click

from ...config import PROBES, place_of
from ..dev_host import PagePlace
from ..service_host import ServiceDoors, ServiceLog, run_service
from .command_session import CommandSession, with_json, with_session
from .wiring import unlock_secrets


def _place(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, int] | None:
    place = place_of(text) if text is not None else None
    if text is not None and place is None:
        raise click.BadParameter(f"write an address and a port, such as {PROBES}")
    return place


PROBES_OPTION = click.option(
    "--probes", metavar="ADDRESS:PORT", callback=_place,
    help="Answer what watches this host there: /healthz, /readyz, /metrics. Nobody signs in.")
MCP_OPTION = click.option(
    "--mcp", metavar="ADDRESS:PORT", callback=_place,
    help="Serve agents there over the Model Context Protocol, each with its token.")


@click.command()
@click.option("--page", is_flag=True, help="Show the page as well.")
@click.option("--host", "address", metavar="ADDRESS",
              help="The page's address; without it a name of its own, on this machine. One that others can reach "
                   "needs a password in KEEP_PASSWORD.")
@click.option("--port", type=click.IntRange(0, 65535), help="The page's port; without it 7777, or the next free one.")
@PROBES_OPTION
@MCP_OPTION
@click.option("--api", metavar="ADDRESS:PORT", callback=_place,
              help="Open the API there: acts and lists over HTTP with JSON. Each request needs a token.")
@with_json
@with_session
def serve(
    session: CommandSession, page: bool, address: str | None, port: int | None, probes: tuple[str, int] | None,
    api: tuple[str, int] | None, mcp: tuple[str, int] | None, as_json: bool,
) -> None:
    """Run the workflows here for a service manager.

    It prints nothing on stdout. It writes one line per happening to stderr, with --json as JSON. SIGTERM or SIGINT ends
    it: after the first signal, runs under way have three seconds to finish; a second signal ends it at once. Nothing is
    lost: the next host finds out what became of a call that was cut off. Exit code 1 if the ledger can no longer be
    written.

    Scripts that you save are not deployed by it; `keep deploy` does that.
    """
    if not page and (address is not None or port is not None):
        raise click.UsageError("--host and --port are about the page. Add --page.")
    settings = session.settings(connectors=True)
    log, closed = ServiceLog(as_json), unlock_secrets(settings)
    if closed:
        log.note("secrets", closed)
    doors = ServiceDoors(PagePlace(address, port) if page else None, probes or settings.probes, api or settings.api,
                         mcp or settings.mcp)
    why = asyncio.run(run_service(settings, doors, log))
    sys.exit(1 if why else 0)
