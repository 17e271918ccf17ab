"""A host in the foreground with its doors open: the sockets, the webhook port and the page.

`keep dev` and `keep demo --ui` run it. It opens several doors, so it stands beside them.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass

import click

from ..app import Keep
from ..config import Settings
from ..model.errors import KeepError, LedgerUnusable
from ..model.ledger_address import shown
from ..reading.look import LastingLook, Look, open_look
from ..reading.wording import clock, count
from .agents import AgentSocket
from .cli.auto_deploy import AutoDeploy
from .cli.narrator import Narrator, NewsLine
from .cli.text import cut, echo, echo_json_line, line, plain, say, width
from .connections import shortage
from .control import ControlSocket
from .host_process import FINISH_S, end_wanted, leave, new_host, on_signals
from .log_repeats import repeats_counted
from .web.demo_page import DemoPage
from .web.page_server import PageServer
from .webhooks import WebhookPort

POLL_S = 0.2


@dataclass(frozen=True)
class PagePlace:
    """The address and the port that the page will have."""

    address: str | None = None  # none: a name of its own
    port: int | None = None
    demo: DemoPage | None = None


async def run_dev_host(settings: Settings, page: PagePlace | None, once: bool, as_json: bool) -> bool:
    """Run a host until it is idle or told to end. True if a person is asked something then."""
    narrator, told_to_end = Narrator(), on_signals()
    _remember_state(settings, narrator)
    with ExitStack() as opened:
        opened.enter_context(repeats_counted(lambda text: say(plain(text))))
        if short := shortage():
            say(short)
        async with (new_host(settings) as keep, ControlSocket(keep, settings.ledger),
                    AgentSocket(keep, settings)):
            look = LastingLook(settings.ledger, settings.policy, keep)
            opened.callback(look.close)
            look.ask(lambda look: _greet(settings, look, once))
            async with AsyncExitStack() as shown:
                if not once:
                    await _take_webhooks(shown, settings)
                if page:
                    await _show(shown, keep, settings, page)
                was_cut = await _work(keep, look, narrator, told_to_end, once, as_json)
            _tell(look.ask(lambda look: narrator.news(look, keep.parts.ledger.host)), as_json)
            needs_you = bool(look.ask(lambda look: look.views.needs_you(look.now_ms)))
    say("Nothing more is due now." if once else "Ended.")
    if was_cut:
        leave(4 if once and needs_you else 0)
    return needs_you


async def _take_webhooks(shown: AsyncExitStack, settings: Settings) -> None:
    """Let webhooks in, if a connector takes them."""
    hooks = await shown.enter_async_context(WebhookPort(settings))
    for name in hooks.inboxes:
        say(f"Webhooks for ctx.{name} come in at {hooks.origin}{name}")


async def _show(shown: AsyncExitStack, keep: Keep, settings: Settings, page: PagePlace) -> None:
    """Open the page, and deploy what is saved, until `shown` is left."""
    web = await shown.enter_async_context(PageServer(keep, settings, page.address, page.port, page.demo))
    await shown.enter_async_context(AutoDeploy(keep, settings))
    say(f"Open {web.address()}")
    if web.sessions.has_password:
        say("Sign in with the password in KEEP_PASSWORD." + ("" if web.is_private else
            " Others on the network can read what they overhear: the page is not encrypted."))
    else:
        say("The address works once, in one browser." + _on_enter(shown, web))
    if web.has_own_name:
        say("If the browser does not find that address, end this and add --host 127.0.0.1.")
    elif web.is_private:
        say("If you open a page of another program on this machine in the same browser, that program gets the cookie "
            "of this page. With it, it can look at this page, but not act. Without --host it gets none.")


def _on_enter(shown: AsyncExitStack, web: PageServer) -> str:
    """At a terminal, Enter asks for a new address."""
    if not sys.stdin.isatty():
        return ""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()

    def entered() -> None:
        if sys.stdin.readline():
            say(f"Open {web.address()}")
        else:
            loop.remove_reader(number)

    loop.add_reader(number, entered)
    shown.callback(loop.remove_reader, number)
    return " Enter prints a new one."


async def _work(
    keep: Keep, look: LastingLook, narrator: Narrator, told_to_end: asyncio.Event, once: bool, as_json: bool,
) -> bool:
    """Let the host work, telling what it does; end when it is idle, or at the first signal. True if calls were cut."""
    work = asyncio.ensure_future(keep.run_until_idle() if once else keep.serve())
    ending = asyncio.ensure_future(end_wanted(keep, told_to_end))
    warned = was_cut = False

    def news(look: Look) -> list[NewsLine]:
        return narrator.news(look, keep.parts.ledger.host)  # which changes when it takes another place

    while not work.done() and not ending.done():
        why = keep.parts.ledger.stopped()
        try:
            _tell(await asyncio.to_thread(look.ask, news), as_json)  # a database is asked over a network
        except LedgerUnusable as error:
            why = why or error.message
        if why and not warned:
            say(why)
        warned = why is not None
        await asyncio.wait({work, ending}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        say("Ending: runs under way have three seconds. Ctrl-C again ends at once; nothing is lost.")
        was_cut = await keep.host.close(FINISH_S)
    ending.cancel()
    await work
    return was_cut


def _remember_state(settings: Settings, narrator: Narrator) -> None:
    """Remember the state before this host starts, so that it reports what it takes over."""
    try:
        with open_look(settings.ledger, settings.policy) as look:
            narrator.catch_up(look)
    except KeepError:
        return  # there is no ledger yet, or the host will say what is wrong with it


def _greet(settings: Settings, look: Look, once: bool) -> None:
    names = ", ".join(connector.name for connector in settings.connectors) or "none"
    workflows = count(len(look.read.all("workflow_all")), "workflow")
    ends = "" if once else " Ctrl-C ends it."
    say(f"Keep runs {workflows} from {shown(settings.ledger)}; connectors: {names}.{ends}")


def _tell(news: list[NewsLine], as_json: bool) -> None:
    for told in news:
        if as_json:
            echo_json_line(told.to_json())
        else:
            text = f"{clock(told.at)} {line(told.workflow)}/{line(told.handler)}  {line(told.text)}"
            echo(_painted(cut(text, width()), told))
    sys.stdout.flush()


def _painted(text: str, told: NewsLine) -> str:
    if told.kind == "needs_you":
        return click.style(text, fg="red")
    return click.style(text, fg="green") if told.state == "applied" else text
