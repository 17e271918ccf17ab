"""A real HTTP server on loopback that misbehaves on demand: what stands in for a service that cannot run here.

    with Loopback(handle) as server, server.misbehaving(drop_after):
        ...  # a write takes effect, and its answer never comes

`handle` is the service: it takes a request, has its effect, and says what to answer. Every fault is a function that
decides whether and when `handle` runs and what is sent, so that each happens exactly where it is meant to.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

HOLD_S_MAX = 20.0


@dataclass(frozen=True)
class Request:
    """What came in; header names are in small letters."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    pairs: Sequence[tuple[str, str]] = ()  # the query, also of names that stand in it more than once

    def json(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class HttpReply:
    """What goes back; `content` wins over `json`."""

    status: int = 200
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    @property
    def body(self) -> bytes:
        """The bytes to send."""
        return self.content if self.content is not None else json.dumps(self.json).encode()


Handle = Callable[[Request], HttpReply]
#: Gets the server, the request and the service; gives what to answer, or None to cut the connection.
Fault = Callable[["Loopback", Request, Handle], HttpReply | None]
When = Callable[[Request], bool]


def is_write(request: Request) -> bool:
    """Whether the request is no plain question."""
    return request.method not in ("GET", "HEAD")


def is_read(request: Request) -> bool:
    """Whether the request is a plain question."""
    return not is_write(request)


class Loopback:
    """The server; it runs in threads of its own from the moment it is made until `close`."""

    def __init__(self, handle: Handle) -> None:
        self.seen: list[Request] = []
        self.arrived = threading.Event()  # whether any request has come
        self._handle, self._faults = handle, list[tuple[When, Fault]]()
        self._lock, self._land, self._landed = threading.Lock(), threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_HttpHandler,), {"loopback": self}))
        self._server.daemon_threads = False  # `close` waits for all of them
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @contextmanager
    def misbehaving(self, fault: Fault, when: When = is_write) -> Iterator[None]:
        """Within it, requests for which `when` holds meet the fault."""
        entry = (when, fault)
        self._faults.append(entry)
        try:
            yield
        finally:
            self._faults.remove(entry)

    def apply(self, request: Request) -> HttpReply:
        """Let the service do it; one request at a time."""
        with self._lock:
            return self._handle(request)

    def hold(self) -> None:
        """Wait until `land`, or the end."""
        self._land.wait(HOLD_S_MAX)

    def land(self) -> None:
        """Let what is held go on, and wait until what was late has happened."""
        self._land.set()
        self._landed.wait(HOLD_S_MAX)

    def close(self) -> None:
        """Stop; what is held is let go."""
        self._land.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(HOLD_S_MAX)

    def answer(self, request: Request) -> HttpReply | None:
        """What a request gets; None: its connection is cut."""
        self.seen.append(request)
        self.arrived.set()
        fault = next((fault for when, fault in reversed(self._faults) if when(request)), None)
        return fault(self, request, self.apply) if fault else self.apply(request)


# -- faults ----------------------------------------------------------------------------------------


def drop_before(server: Loopback, request: Request, apply: Handle) -> HttpReply | None:
    """It does not happen, and the connection is cut."""
    return None


def drop_after(server: Loopback, request: Request, apply: Handle) -> HttpReply | None:
    """It happens, and the connection is cut."""
    apply(request)
    return None


def held(server: Loopback, request: Request, apply: Handle) -> HttpReply | None:
    """It happens, and the answer is held back."""
    apply(request)
    server.hold()
    return None


def late(server: Loopback, request: Request, apply: Handle) -> HttpReply | None:
    """No answer comes; it happens at `land()`."""
    server.hold()
    apply(request)
    server._landed.set()
    return None


def garbled(server: Loopback, request: Request, apply: Handle) -> HttpReply | None:
    """It happens, and the answer makes no sense."""
    apply(request)
    return HttpReply(content=b'{"ok": tru', headers={"Content-Type": "application/json"})


def instead(reply: HttpReply) -> Fault:
    """It does not happen; this is answered."""
    return lambda server, request, apply: reply


def but(reply: HttpReply) -> Fault:
    """It happens, and yet this is answered."""
    def fault(server: Loopback, request: Request, apply: Handle) -> HttpReply | None:
        apply(request)
        return reply
    return fault


# -- the protocol ----------------------------------------------------------------------------------


class _HttpHandler(BaseHTTPRequestHandler):
    loopback: Loopback
    protocol_version = "HTTP/1.1"
    timeout = 5.0

    def handle_one_request(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            super().handle_one_request()

    def do_GET(self) -> None:
        reply = self.loopback.answer(self._request())
        if reply is None:
            return self._cut()
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(reply.body)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)
        return None

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        return Request(self.command, parts.path, dict(pairs), headers, body, pairs)

    def _cut(self) -> None:
        """End the connection as a crash does: at once, without a word."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
