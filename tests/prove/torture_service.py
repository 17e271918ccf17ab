"""The outside world of the process torture: a small HTTP service on the loopback, and the judge's evidence.

It lists orders, takes rows and mails, and can be asked by idempotency key what it has. Every effect is appended to
`effects.jsonl` with its key, and a key that comes twice takes effect twice: it forgives nothing. By its seed it
delays, drops connections before or after the effect, answers 429 or 500, hangs, and applies after the caller is
gone. The way to it can be cut for one sender. It promises one thing: a request takes effect within `EXPIRES_S` of being
sent or never; its connectors declare `SETTLE_S`.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

EXPIRES_S = 0.1
SETTLE_S = 0.12
_REQUEST_BYTES_MAX = 64 << 10
_HANG_S_MAX = 3.0
_LATE_S = (0.01, 0.09)

#: What an effect's request may meet → how often. The first is as it should be.
MANNERS = {
    "well": 36, "slow": 4, "drop_before": 2, "drop_after": 3, "busy": 2, "broken_before": 1, "broken_after": 2,
    "late": 4, "hang_before": 1, "hang_after": 1,
}
#: The same for questions; "stale" answers late what was true when it was asked.
ASKED = {"well": 24, "slow": 2, "drop_before": 2, "busy": 1, "broken_before": 1, "stale": 4}


class Dropped(Exception):
    """The connection ends here without an answer."""


class Refusal(Exception):
    """Answered with a status alone; nothing took effect."""

    def __init__(self, status: int) -> None:
        self.status = status


@dataclass(frozen=True)
class Request:
    """One request, read whole."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def key(self) -> str:
        """What the sender calls this effect."""
        return self.headers.get("idempotency-key", "")

    @property
    def expired(self) -> bool:
        """Whether it was sent too long ago to take effect."""
        return time.monotonic() - float(self.headers["sent-at"]) > EXPIRES_S


@dataclass
class Service:
    """The world of one ledger."""

    folder: Path
    seed: int
    calm: bool = False
    orders: list[dict[str, Any]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    cuts: dict[str, str] = field(default_factory=dict)  # sender → the way that is cut: "forth" or "back"
    _seen: Counter[str] = field(default_factory=Counter)
    _chance: random.Random = field(default_factory=random.Random)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._chance.seed(self.seed)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            status, value = await self._met(await _request(reader))
            text = json.dumps(value).encode()
            head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(text)}\r\nRetry-After: 0.05\r\n\r\n"
            writer.write(head.encode() + text)
            await writer.drain()
        except (Dropped, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller is gone, or shall think so
        finally:
            writer.close()

    async def _met(self, request: Request) -> tuple[int, Any]:
        try:
            return await self._route(request)
        except Refusal as refusal:
            return refusal.status, None

    async def _route(self, request: Request) -> tuple[int, Any]:
        kind = request.path.strip("/")
        outside = kind in ("rows", "mails") or (kind == "orders" and request.body is None)
        cut = self.cuts.get(request.headers.get("sender", "")) if outside else None
        if cut == "forth":
            await _hang()
        answer = await self._answer(kind, request) if outside else self._told(kind, request)
        if cut == "back":
            await _hang()
        return answer

    async def _answer(self, kind: str, request: Request) -> tuple[int, Any]:
        if kind == "orders":
            return await self._list(request)
        return await (self._effect(kind, request) if request.body is not None else self._look(kind, request))

    def _told(self, kind: str, request: Request) -> tuple[int, Any]:
        """What the judge and the person ask; they are never lied to."""
        if kind == "calm":
            self.calm = True
        elif kind == "cut":
            self.cuts = request.body
        elif kind == "orders":
            self.orders += [{"id": f"o{len(self.orders) + n}"} for n in range(request.body["more"])]
        elif kind == "log":
            key = request.query.get("key")
            return 200, [effect for effect in self.effects if key in (None, effect["key"])]
        return 200, len(self.orders)

    async def _list(self, request: Request) -> tuple[int, Any]:
        manner = self._manner(ASKED, "orders")
        await self._before(manner)
        return 200, self.orders[int(request.query.get("after", 0)) :]

    async def _look(self, kind: str, request: Request) -> tuple[int, Any]:
        manner = self._manner(ASKED, f"look.{kind}.{request.query['key']}")
        await self._before(manner)
        found = [e for e in self.effects if e["kind"] == kind and e["key"] == request.query["key"]]
        if manner == "stale":
            await asyncio.sleep(self._chance.uniform(*_LATE_S) * 2)
        return (200, found[0]["result"]) if found else (404, None)

    async def _effect(self, kind: str, request: Request) -> tuple[int, Any]:
        manner = self._manner(MANNERS, f"{kind}.{request.key}")
        if manner == "late":
            self._later(kind, request)
            raise Dropped
        await self._before(manner)
        if request.expired:
            return 408, None
        result = self._apply(kind, request)
        if manner == "drop_after":
            raise Dropped
        if manner == "hang_after":
            await _hang()
        return (500, None) if manner == "broken_after" else (200, result)

    async def _before(self, manner: str) -> None:
        """What happens before anything takes effect."""
        if manner == "slow":
            await asyncio.sleep(self._chance.uniform(0.005, 0.06))
        elif manner == "drop_before":
            raise Dropped
        elif manner == "hang_before":
            await _hang()
        elif manner in ("busy", "broken_before"):
            raise Refusal({"busy": 429, "broken_before": 500}[manner])

    def _later(self, kind: str, request: Request) -> None:
        async def land() -> None:
            await asyncio.sleep(self._chance.uniform(*_LATE_S))
            if not request.expired:
                self._apply(kind, request)

        task = asyncio.get_running_loop().create_task(land())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _apply(self, kind: str, request: Request) -> dict[str, Any]:
        result = {"id": f"{kind}-{len(self.effects) + 1}"}
        effect = {"kind": kind, "key": request.key, "run": request.headers["run"], "body": request.body,
                  "result": result, "at": time.monotonic()}
        self.effects.append(effect)
        with (self.folder / "effects.jsonl").open("a") as log:
            log.write(json.dumps(effect) + "\n")
        return result

    def _manner(self, manners: dict[str, int], what: str) -> str:
        """How the nth request of its kind is met: the same for the same seed."""
        self._seen[what] += 1
        if self.calm:
            return "well"
        chance = random.Random(f"{self.seed}.{what}.{self._seen[what]}")
        return chance.choices(list(manners), list(manners.values()))[0]


async def _hang() -> NoReturn:
    """Say nothing, as long as anybody waits."""
    await asyncio.sleep(_HANG_S_MAX)
    raise Dropped


async def _request(reader: asyncio.StreamReader) -> Request:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
    _, target, _ = lines[0].split(" ")
    pairs = (line.partition(": ") for line in lines[1:] if line)
    headers = {name.lower(): value for name, _, value in pairs}
    length = int(headers.get("content-length", 0))
    if length > _REQUEST_BYTES_MAX:
        raise ValueError(f"a request of {length} bytes")
    body = json.loads(await reader.readexactly(length)) if length else None
    parts = urlsplit(target)
    return Request(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}, headers, body)


def listen() -> socket.socket:
    """A socket on the loopback, at a port that is free."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    return sock


def serve(sock: socket.socket, folder: Path, seed: int) -> None:
    """Serve one ledger's world until this process is killed."""

    async def main() -> None:
        server = await asyncio.start_server(Service(folder, seed).answer, sock=sock, limit=_REQUEST_BYTES_MAX)
        async with server:
            await server.serve_forever()

    asyncio.run(main())
