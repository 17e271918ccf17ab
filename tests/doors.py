"""Hostile connections over real sockets: idle ones, half requests, receivers that do not read, broken HTTP.

These are plain functions of an address, so that tests of one door and the attacks on all doors use the same.
`address` is ("127.0.0.1", port), or the path of a unix socket.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from keepai import Keep, Policy
from keepai.config import Settings
from keepai.connectors.webhook.inbox import Inbox
from keepai.doors import control
from keepai.doors.control import ControlSocket
from keepai.doors.web.page_server import PageServer
from keepai.doors.webhooks import WebhookPort

Address = tuple[str, int] | str

HALF_HEAD = b"POST /hooks/shop HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = (b"POST /hooks/shop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
             b"Content-Length: 100\r\n\r\nhalf")

#: Requests that a server answers by itself, before any app sees them, or refuses in some layer of its own.
BROKEN_HTTP: Mapping[str, bytes] = {
    "no HTTP": b"hello\r\n\r\n",
    "a method that is none": b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a version that is none": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "another host": b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a length that is none": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a broken chunk": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "an unknown coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a head that is too long": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    "NUL": b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a websocket": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another path": b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
    "another method": b"PUT /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + b"\0" * 40,
}


def connect(address: Address, source: str | None = None, timeout_s: float = 20.0) -> socket.socket:
    """One connection; `source` is the loopback address that it comes from."""
    made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    made.settimeout(timeout_s)
    try:
        if source:
            made.bind((source, 0))
        made.connect(address)
    except OSError:
        made.close()
        raise
    return made


def hold(address: Address, count: int, first: bytes = b"", source: str | None = None) -> list[socket.socket]:
    """`count` connections that say `first` and then nothing."""
    held = []
    for _ in range(count):
        held.append(connect(address, source))
        try:
            held[-1].sendall(first)
        except OSError:
            pass  # closed already, to make room
    return held


def let_go(held: Iterable[socket.socket]) -> None:
    """Close them."""
    for each in held:
        each.close()


def still_open(held: Sequence[socket.socket]) -> list[int]:
    """Which of them the other side has not closed, by their places; nothing may have been answered on them."""
    poll = select.poll()
    for each in held:
        poll.register(each, select.POLLIN)
    closed = {number for number, _ in poll.poll(0)}
    return [place for place, each in enumerate(held) if each.fileno() not in closed]


def said(address: Address, request: bytes, source: str | None = None) -> bytes:
    """Everything that comes back until the other side closes, or has answered and waits for more."""
    with connect(address, source) as made:
        try:
            made.sendall(request)
        except OSError:
            pass
        return until_closed(made)


def until_closed(made: socket.socket) -> bytes:
    """What comes back until the other side closes; it must."""
    found = bytearray()
    try:
        while part := made.recv(1 << 16):
            found += part
    except ConnectionError:
        pass
    return bytes(found)


def status_of(answer: bytes) -> int:
    """The status of an HTTP answer; 0 if there is none."""
    line = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(line[1]) if line else 0


def betrays_server(answer: bytes) -> list[str]:
    """What an HTTP answer says about the programs that made it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    named = re.findall(rb"(?im)^(?:server|x-powered-by|via)\s*:.*$", head)
    words = re.findall(rb"(?i)uvicorn|h11|starlette|python[/ ]?\d|keepai|keep[/ ]\d", head + b"\n" + body)
    return [each.decode("latin-1") for each in [*named, *words]]


@dataclass
class Open:
    """One door of a host."""

    address: Address
    name: str  # in the header Host
    inbox: Inbox

    async def answers(self, source: str | None = None) -> bool:
        """Whether an honest request is answered, and not put off."""
        if isinstance(self.address, str):
            asked = b'{"act": "pause", "params": {"wf": "x"}}\n'
            return b"no workflow" in await asyncio.to_thread(said, self.address, asked, source)
        asked = f"GET /nowhere HTTP/1.1\r\nHost: {self.name}\r\nConnection: close\r\n\r\n".encode()
        return status_of(await asyncio.to_thread(said, self.address, asked, source)) in (401, 404)


@asynccontextmanager
async def opened(folder: Path, door: str, policy: Policy | None = None) -> AsyncIterator[Open]:
    """A host with one door open: "page", "webhooks" or "control"."""
    policy = policy or Policy()
    inbox = Inbox(folder / "shop", create=True, name="shop")
    settings = Settings(ledger=folder / "keep.db", policy=policy, connectors=(inbox,), hooks=("127.0.0.1", 0))
    async with AsyncExitStack() as stack:
        keep = await stack.enter_async_context(Keep(settings.ledger, connectors=[inbox], policy=policy))
        address: Address
        name = "x"
        if door == "page":
            web = await stack.enter_async_context(PageServer(keep, settings, port=0))
            address, name = ("127.0.0.1", web.port), web.origin.removeprefix("http://")
        elif door == "webhooks":
            address = ("127.0.0.1", (await stack.enter_async_context(WebhookPort(settings))).port or 0)
        else:
            await stack.enter_async_context(ControlSocket(keep, settings.ledger))
            address = str(control.socket_path(settings.ledger))
        yield Open(address, name, inbox)
