"""`keep serve`: a host for a service manager. It writes one line per event to stderr, and ends on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import click

from ...app import Keep
from ...config import Settings
from ...model.clock import SystemClock, iso
from ...model.errors import LedgerError, LedgerUnusable
from ...model.ledger_address import shown
from ...reading.look import LastingLook, Look
from ...reading.wording import count
from ..agents import AgentSocket
from ..connections import shortage
from ..control import ControlSocket
from ..host_process import FINISH_S, end_wanted, leave, new_host, on_signals
from ..log_repeats import repeats_counted
from ..webhooks import WebhookPort
from .command_session import CommandSession, with_json, with_session
from .narrator import Narrator, NewsLine
from .text import line, say
from .wiring import unlock_secrets

POLL_S = 0.5


@click.command()
@with_json
@with_session
def serve(session: CommandSession, as_json: bool) -> None:
    """Run the workflows here for a service manager.

    It prints nothing on stdout. It writes one line per happening to stderr, with --json as JSON. SIGTERM or SIGINT ends
    it: after the first signal, runs under way have three seconds to finish; a second signal ends it at once. Nothing is
    lost: the next host finds out what became of a call that was cut off. Exit code 1 if the ledger can no longer be
    written.
    """
    settings = session.settings(connectors=True)
    log, closed = _Log(as_json), unlock_secrets(settings)
    if closed:
        log.note("secrets", closed)
    why = asyncio.run(_serve(settings, log))
    sys.exit(1 if why else 0)


@dataclass(frozen=True)
class _Log:
    """Lines on stderr, each with its time and its kind."""

    as_json: bool

    def news(self, news: list[NewsLine]) -> None:
        """What happened."""
        for told in news:
            data = told.to_json()
            where = f"{data['workflow']}/{data['handler']}"
            plain = f"{data['at']} {data['kind']} {where} {data['run_id']} {line(str(data['text']))}"
            say(json.dumps(data, ensure_ascii=False) if self.as_json else plain)

    def note(self, kind: str, text: str) -> None:
        """What the host itself has to say."""
        at = iso(SystemClock().now_ms())
        say(json.dumps({"at": at, "kind": kind, "text": text}) if self.as_json else f"{at} {kind} {line(text)}")


async def _serve(settings: Settings, log: _Log) -> str | None:
    """Serve until a signal; gives why the ledger could not be written any more, if so."""
    narrator, told_to_end = Narrator(), on_signals()
    with ExitStack() as opened:
        opened.enter_context(repeats_counted(lambda text: log.note("log", text)))
        if short := shortage():
            log.note("host", short)
        async with (new_host(settings) as keep, ControlSocket(keep, settings.ledger), AgentSocket(keep, settings),
                    WebhookPort(settings) as hooks):
            look = LastingLook(settings.ledger, settings.policy, keep)
            opened.callback(look.close)
            look.ask(narrator.catch_up)
            workflows = count(look.ask(lambda look: len(look.read.all("workflow_all"))), "workflow")
            log.note("host", f"serves {workflows} from {shown(settings.ledger)}")
            if hooks.origin:
                log.note("host", f"takes webhooks at {hooks.origin}{{{','.join(hooks.inboxes)}}}")
            why, was_cut = await _work(keep, look, narrator, told_to_end, log)
    log.note("host", "ended")
    if was_cut:
        leave(1 if why else 0)
    return why


async def _work(
    keep: Keep, look: LastingLook, narrator: Narrator, told_to_end: asyncio.Event, log: _Log,
) -> tuple[str | None, bool]:
    """Let the host work until a signal stops it, or it can no longer write: then a service manager restarts it.

    Gives why it cannot, and whether calls were cut off."""
    work, ending = asyncio.ensure_future(keep.serve()), asyncio.ensure_future(end_wanted(keep, told_to_end))
    why = unread = None

    def news(look: Look) -> list[NewsLine]:
        return narrator.news(look, keep.parts.ledger.host)  # which changes when it takes another place

    while not work.done() and not ending.done() and why is None:
        try:
            log.news(await asyncio.to_thread(look.ask, news))  # a database is asked over a network
            unread = None
        except LedgerUnusable as error:
            if unread is None:
                log.note("host", error.message)
            unread = error.message
        why = keep.parts.ledger.stopped()
        await asyncio.wait({work, ending}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
    if why:
        log.note("host", why)
    if keep.host.drains.is_set():
        log.note("host", "hands over its work and ends: a person said so")
    ending.cancel()
    was_cut = await keep.host.close(FINISH_S)
    try:
        await work
        log.news(look.ask(news))
    except LedgerError as error:  # a database that cannot be written to can mostly not be read either
        if why is None:
            why = error.message
            log.note("host", why)
    return why, was_cut
