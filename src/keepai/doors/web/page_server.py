"""Runs the page in the host's own loop: binds a port, serves inside `async with`, and then ends at once.

It never takes signals: the host decides when it ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from ...config import Settings
from ...model.errors import ConfigError, LedgerError
from ...reading.activity import ActivityCounts
from ..connections import listening
from ..http_server import HttpServer, http_bounds
from ..live import LiveUpdates
from ..presence import Presence
from .guard import LOCALHOST, Guard, PageNames, is_loopback
from .plans import BegunPlans
from .render import Assets, Renderer
from .sessions import Sessions
from .site import LookThreads, Site
from .web_app import LINKS, THINGS, make

if TYPE_CHECKING:
    from ...app import Keep
    from .demo_page import DemoPage

PORT = 7777
LOOPBACK = ("127.0.0.1", "::1")  #: where the page is, unless another address is named
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 (not bound to here: these are no addresses to look at)
COUNT_S = 300.0  #: between two counts of what happened lately, if nobody asks
PORTS_TRIED = 20  #: from PORT on, if the person chose no port


class PageServer:
    """The page of one open `Keep`, while it is entered."""

    def __init__(
        self, keep: Keep, settings: Settings, host: str | None = None, port: int | None = None,
        demo: DemoPage | None = None,
    ) -> None:
        if host is not None and not is_loopback(host) and not settings.password:
            raise ConfigError(
                f"--host {host} would let others on the network in. Set a password in the environment variable "
                "KEEP_PASSWORD first, or leave --host out: then only this machine can reach the page."
            )
        self._keep, self._settings, self._host, self._asked_port = keep, settings, host, port
        self._demo = demo
        self.is_private = host is None or is_loopback(host)  # only this machine can reach the page
        self.has_own_name = host is None  # a name that cannot be guessed, unless the person chose an address

    async def __aenter__(self) -> PageServer:
        listeners = self._demo.listeners if self._demo else bind(self._host, self._asked_port)
        self.port: int = listeners[0].getsockname()[1]
        self.looks = LookThreads(self._settings, self._keep.parts.clock, self._keep)
        self.plans = BegunPlans(self._keep, self._settings)
        self.live = LiveUpdates(self._changes)
        handed = self._demo.handed if self._demo else None
        self.sessions = Sessions(self._settings.password, asyncio.get_running_loop().time, handed, self._keep.principal)
        self._names = PageNames(self._host or f"{self.sessions.label}.{LOCALHOST}", self.port, self.is_private)
        self._activity = ActivityCounts()
        self.app = self._app()
        self._server = HttpServer(self.app, listeners, http_bounds("The page", self._settings.policy))
        await self.live.start()
        self._keep.page = None if self._host in _ANYWHERE else self.origin
        self._server.begin()
        self._counting = asyncio.ensure_future(self._count_ahead())
        return self

    async def _changes(self) -> int:
        """A number that grows when somebody commits, or a plan comes further."""
        return await self.looks.change() + self.plans.changes

    async def _count_ahead(self) -> None:
        """Count the last day before somebody asks, and go on: over a big ledger the first time takes a moment."""
        while True:
            with suppress(LedgerError):
                await self.looks.read(lambda look: self._activity.of(look.read, look.now_ms))
                if self._activity.missed:
                    self._activity.missed = False
                    await self.live.say_again()
            await asyncio.sleep(COUNT_S)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        self._keep.page = None
        self._counting.cancel()
        await self.plans.close()
        await self.live.close()
        await self._server.end()
        self.looks.close()

    def _app(self) -> Guard:
        assets = Assets()
        renderer = Renderer(assets, THINGS)
        here = Site(self._keep, self.looks, self.live, self.sessions, Presence(self._keep), renderer, LINKS,
                    self._activity, self.plans)
        return make(here, self._names, assets, self._demo.routes() if self._demo else ())

    @property
    def origin(self) -> str:
        """Where the page is."""
        return self._names.origin

    def address(self) -> str:
        """What to open: with a new token that works once, unless people sign in with a password."""
        return f"{self.origin}/" if self.sessions.has_password else f"{self.origin}/?token={self.sessions.token()}"


def bind(host: str | None, asked: int | None) -> list[socket.socket]:
    """Listeners on the port that was asked for, else on the first free one from the usual one on."""
    tried = range(PORT, PORT + PORTS_TRIED) if asked is None else [asked] if asked else [0] * PORTS_TRIED
    told = ""
    for port in tried:
        try:
            return [listening(host, port)] if host else _on_loopback(port)
        except OSError as error:
            told = error.strerror or str(error)
    which = f"port {asked}" if asked is not None else f"the ports {PORT} to {PORT + PORTS_TRIED - 1}"
    raise ConfigError(
        f"The page cannot listen on {host or LOOPBACK[0]}, {which}: {told}. Name another with --port, or use --no-ui."
    )


def _on_loopback(port: int) -> list[socket.socket]:
    """Both addresses of this machine: a browser tries one after the other, and neither may be another program's."""
    first = listening(LOOPBACK[0], port)
    try:
        return [first, listening(LOOPBACK[1], first.getsockname()[1])]
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return [first]  # this machine has no IPv6, so no other program can have that address
        first.close()
        raise
