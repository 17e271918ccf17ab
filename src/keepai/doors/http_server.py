"""Serves HTTP for the page, the API, the probes and the webhook port in the host's own loop.

It is uvicorn behind our own way to accept. It takes no signals, says nothing about itself in an answer, and judges no
request: an ASGI app does that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..model.errors import ConfigError
from ..model.policy import Policy
from .connections import Acceptor, Connection, ConnectionLimits, Progress, WatchedWriting, descriptors, listening

ENDING_S = 1  #: after which requests under way are cut off
_END = b"connection: close\r\ncontent-length: 0\r\n\r\n"
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n" + _END
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\n" + _END


def http_bounds(name: str, policy: Policy) -> ConnectionLimits:
    """What the page, or the webhook port, allows."""
    return ConnectionLimits(
        name, policy.connections_max, policy.connections_per_address_max, policy.request_s, descriptors()[1], TOO_MANY)


def listening_at(place: tuple[str, int], what: str, key: str) -> tuple[socket.socket, str]:
    """A listener at the place that people set as `key`, and its origin; `what` it is for, in a sentence."""
    host, port = place
    try:
        listener = listening(host, port)
    except OSError as error:
        raise ConfigError(f"{what} cannot listen on {host}, port {port}: {error.strerror or error}. Name another place "
                          f"as [keep] {key}, or with --{key}.") from None
    return listener, f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


class HttpServer(uvicorn.Server):
    """Serves an app on its listeners from `begin` to `end`."""

    def __init__(self, app: ASGIApp, listeners: Sequence[socket.socket], bounds: ConnectionLimits) -> None:
        super().__init__(uvicorn.Config(
            _ignoring_disconnects(app), lifespan="off", ws="none", http="h11", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_graceful_shutdown=ENDING_S,
        ))
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a browser that hangs up is no news
        self._acceptor = Acceptor(listeners, bounds, lambda connection: HttpProtocol(
            self.config, self.server_state, self.lifespan.state, connection))

    def begin(self) -> None:
        """Serve, until `end`."""
        self._serving = asyncio.ensure_future(self.serve())

    async def end(self) -> None:
        """Accept nothing more, and end what is under way."""
        self.should_exit = True
        await self._serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept from now on, instead of asyncio's own servers."""
        self.servers = []
        self._acceptor.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        await self._acceptor.close()
        await super().shutdown(sockets)


class HttpProtocol(WatchedWriting, H11Protocol):
    """Tells a connection how far its request is."""

    def __init__(
        self, config: uvicorn.Config, state: uvicorn.server.ServerState, app_state: dict[str, object],
        connection: Connection,
    ) -> None:
        super().__init__(config, state, app_state)
        self._connection = connection
        connection.on_late = self._late

    def data_received(self, data: bytes) -> None:
        """Something came."""
        if self._connection.progress is Progress.SILENT:
            self._connection.reached(Progress.HEAD)
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """An answer is written."""
        super().on_response_complete()
        self._note()

    def _note(self) -> None:
        theirs, before = self.conn.their_state, self._connection.progress
        if self.transport.is_closing() or (theirs is h11.IDLE and before > Progress.HEAD):
            self._connection.reached(Progress.SILENT)
        elif theirs is h11.SEND_BODY:
            self._connection.reached(Progress.BODY)
        elif theirs is not h11.IDLE:
            self._connection.reached(Progress.WHOLE)

    def _late(self) -> None:
        """Too late for the rest of a request."""
        if self.conn.our_state is h11.SEND_RESPONSE and not self.transport.is_closing():
            self.transport.write(TOO_SLOW)
            self.transport.close()
            self._connection.reached(Progress.SILENT)
        else:
            self._connection.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        super().connection_lost(exc)
        self._connection.ended()


def _ignoring_disconnects(app: ASGIApp) -> ASGIApp:
    """The app, but a sender that disconnects before its request is complete is not an error."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            pass

    return served
