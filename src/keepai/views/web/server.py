"""Runs the page in the host's own loop: binds a port, serves until it is left, and then ends at once.

It never takes signals: whoever runs the host decides when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

import uvicorn

from ...config import Settings
from ...model.errors import ConfigError
from .app import links, make, things
from .assets import Assets
from .door import Door
from .guard import Guard, Names, is_loopback
from .live import Live
from .looks import Looks
from .render import Renderer
from .site import Site

if TYPE_CHECKING:
    from ...app import Keep
    from .demo import Demo

HOST, PORT = "127.0.0.1", 7777
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 (not bound to here: these are no addresses to look at)
PORTS_TRIED = 20  #: from PORT on, where no port was asked for
ENDING_S = 1  #: after which requests under way are cut off


class _Server(uvicorn.Server):
    """A server that leaves signals to the host."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Web:
    """The page of one open `Keep`, while it is entered."""

    def __init__(
        self, keep: Keep, settings: Settings, host: str = HOST, port: int | None = None, demo: Demo | None = None,
    ) -> None:
        if not is_loopback(host) and not settings.password:
            raise ConfigError(
                f"--host {host} would let others on the network in. Set a password in the environment variable "
                "KEEP_PASSWORD first, or leave --host out: then only this machine can reach the page."
            )
        self._keep, self._settings, self._host, self._asked_port = keep, settings, host, port
        self._demo = demo

    async def __aenter__(self) -> Web:
        self._listener = self._demo.listener if self._demo else bind(self._host, self._asked_port)
        self.port: int = self._listener.getsockname()[1]
        self.looks = Looks(self._settings, self._keep.parts.clock, self._keep.known)
        self.live = Live(self.looks.open().change)
        handed = self._demo.handed if self._demo else None
        self.door = Door(self._settings.password, asyncio.get_running_loop().time, handed)
        self.app = self._app()
        config = uvicorn.Config(
            self.app, lifespan="off", ws="none", http="h11", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=ENDING_S,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a browser that hangs up is no news
        self._server = _Server(config)
        self.live.start()
        self._keep.page = None if self._host in _ANYWHERE else self.origin
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        self._keep.page = None
        await self.live.close()
        self._server.should_exit = True
        await self._serving
        self.looks.close()

    def _app(self) -> Guard:
        assets = Assets()
        here = Site(self._keep, self.looks, self.live, self.door, Renderer(assets, things()), links())
        return make(here, Names(self._host, self.port), assets, self._demo.routes() if self._demo else ())

    @property
    def origin(self) -> str:
        """Where the page is."""
        name = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{name}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the page."""
        return is_loopback(self._host)

    def address(self) -> str:
        """What to open: with a new token that works once, unless people sign in with a password."""
        return f"{self.origin}/" if self.door.has_password else f"{self.origin}/?token={self.door.token()}"


def bind(host: str, asked: int | None) -> socket.socket:
    """A listener on the port that was asked for, else on the first free one from the usual one on."""
    tried = [asked] if asked is not None else list(range(PORT, PORT + PORTS_TRIED))
    told = ""
    for port in tried:
        try:
            return _listener(host, port)
        except OSError as error:
            told = error.strerror or str(error)
    which = f"port {asked}" if asked is not None else f"the ports {PORT} to {PORT + PORTS_TRIED - 1}"
    raise ConfigError(f"The page cannot listen on {host}, {which}: {told}. Name another with --port, or use --no-ui.")


def _listener(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # whoever comes before the server is ready waits for it
    except OSError:
        listener.close()
        raise
    return listener
