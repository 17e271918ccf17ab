"""A host for a service manager, with the doors that it is told to open: `keep serve`.

It writes one line per event to stderr, and ends on SIGTERM. It opens several doors, so it stands beside them.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass

from ..app import Keep
from ..config import Settings
from ..model.clock import SystemClock, iso
from ..model.errors import LedgerError, LedgerUnusable
from ..model.ledger_address import shown
from ..reading.look import LastingLook, Look
from ..reading.wording import count
from .agents import AgentSocket
from .api.api_port import ApiPort
from .api.openapi import PREFIX
from .cli.narrator import Narrator, NewsLine
from .cli.text import line, say
from .connections import shortage
from .control import ControlSocket
from .dev_host import PagePlace
from .host_process import FINISH_S, end_wanted, leave, new_host, on_signals
from .log_repeats import repeats_counted
from .probe_port import ProbePort
from .web.page_server import PageServer
from .webhooks import WebhookPort

POLL_S = 0.5


@dataclass(frozen=True)
class ServiceLog:
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


@dataclass(frozen=True)
class ServiceDoors:
    """Which doors a service opens, beside the control socket and the port for webhooks."""

    page: PagePlace | None = None
    probes: tuple[str, int] | None = None
    api: tuple[str, int] | None = None
    mcp: tuple[str, int] | None = None


async def run_service(settings: Settings, doors: ServiceDoors, log: ServiceLog) -> str | None:
    """Serve until a signal; gives why the ledger could not be written any more, if so."""
    narrator, told_to_end = Narrator(), on_signals()
    async with AsyncExitStack() as opened:
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
            async with AsyncExitStack() as others:
                await _open(others, keep, settings, doors, log)
                why, was_cut = await _work(keep, look, narrator, told_to_end, log)
    log.note("host", "ended")
    if was_cut:
        leave(1 if why else 0)
    return why


async def _open(
    others: AsyncExitStack, keep: Keep, settings: Settings, doors: ServiceDoors, log: ServiceLog,
) -> None:
    """Open what is wanted of the page, the port for agents, the probes and the API."""
    if doors.page:
        web = await others.enter_async_context(PageServer(keep, settings, doors.page.address, doors.page.port))
        once = "" if web.sessions.has_password else " (this address works once)"
        log.note("host", f"shows its page at {web.address()}{once}")
    if doors.mcp:
        from .mcp_server import McpPort  # here, because it needs a package that is an extra

        port = await others.enter_async_context(McpPort(keep, settings, doors.mcp))
        log.note("host", f"serves agents at {port.url}")
    if doors.probes:
        probes = await others.enter_async_context(ProbePort(keep, settings, doors.probes))
        log.note("host", f"answers probes at {probes.origin}/healthz, /readyz and /metrics")
    if doors.api:
        api = await others.enter_async_context(ApiPort(keep, settings, doors.api))
        log.note("host", f"has its API at {api.origin}{PREFIX}; {api.origin}{PREFIX}/openapi.json describes it")


async def _work(
    keep: Keep, look: LastingLook, narrator: Narrator, told_to_end: asyncio.Event, log: ServiceLog,
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
