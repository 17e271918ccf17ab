# ruff: noqa: E501 (an attack is read best on one line)
"""Connections that say nothing, half of something, or do not read: no door starves, and the log stays short."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

from keepai import Policy
from keepai.doors import connections, log_repeats
from tests import doors
from tests.attack.base import Area, Attack, Planted, must
from tests.doors import Open, opened

DOORS = ("page", "webhooks", "control")
COUNT = 70  # more than a door holds of one address
SOURCES = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
FIRST = {
    "silent": b"", "half a head": doors.HALF_HEAD, "half a body": doors.HALF_BODY, "one byte": b"G", "an empty line": b"\r\n",
    "a length that is never filled": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
    "half a line of JSON": b'{"act": "pause", ',
}
LINES_MAX = 20  # that a flood may add to the log


@dataclass
class Host:
    """Hosts with each of their doors open, and what they logged."""

    doors: dict[str, Open] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Host]:
    host = Host()
    async with AsyncExitStack() as stack:
        stack.enter_context(log_repeats.repeats_counted(host.lines.append))  # as `keep serve` writes its log
        for name in DOORS:
            (folder / name).mkdir()
            host.doors[name] = await stack.enter_async_context(opened(folder / name, name, Policy(request_s=600)))
        yield host


def attacks(host: Host) -> Iterator[Attack]:
    for door in DOORS:
        kinds = ("silent", "one byte", "half a line of JSON") if door == "control" else ("silent", "half a head", "half a body", "a length that is never filled")
        for name, first in ((name, FIRST[name]) for name in kinds):
            yield Attack(f"{COUNT} connections to {door}: {name}", lambda door=door, first=first: _held(host, door, first, SOURCES[:1]))
    for door in ("page", "webhooks"):
        yield Attack(f"{COUNT} connections to {door} from each of {len(SOURCES)} addresses", lambda door=door: _held(host, door, b"", SOURCES))
    for door in ("page", "webhooks"):
        yield Attack(f"a flood of requests to {door} that are never read", lambda door=door: _unread(host, door))


async def _held(host: Host, name: str, first: bytes, sources: tuple[str, ...]) -> None:
    door, held = host.doors[name], []
    host.lines.clear()
    try:
        for source in sources:
            given = None if isinstance(door.address, str) else source
            held += await asyncio.to_thread(_hold, door.address, COUNT, first, given)
        await _answers(host)
    finally:
        doors.let_go(held)
    must(len(host.lines) <= LINES_MAX, f"it wrote {len(host.lines)} lines into the log: {host.lines[:2]}")


def _hold(address: doors.Address, count: int, first: bytes, source: str | None) -> list[socket.socket]:
    held: list[socket.socket] = []
    for _ in range(count):
        try:
            held += doors.hold(address, 1, first, source)
        except BlockingIOError:  # the system holds no more for a door that has not accepted those before
            time.sleep(0.01)
    return held


async def _answers(host: Host) -> None:
    """An honest request is answered at each door, and soon."""
    for name, door in host.doors.items():
        begun = time.monotonic()
        async with asyncio.timeout(10):
            must(await door.answers(), f"an honest request to {name} was put off")
        must(time.monotonic() - begun < 8, f"an honest request to {name} waited for {time.monotonic() - begun:.1f} s")


async def _unread(host: Host, name: str) -> None:
    door = host.doors[name]
    request = f"GET /nowhere HTTP/1.1\r\nHost: {door.name}\r\n\r\n".encode() * 50
    held = await asyncio.to_thread(doors.hold, door.address, 60, request)
    try:
        await _answers(host)
    finally:
        doors.let_go(held)


def drawn(host: Host, chance: Random) -> Attack:
    """Connections of several kinds to several doors at once."""
    plan = [(chance.choice(DOORS), chance.choice(list(FIRST.values())), chance.randint(1, 150), chance.choice(SOURCES)) for _ in range(4)]

    async def attack() -> None:
        held = []
        try:
            for name, first, count, source in plan:
                address = host.doors[name].address
                held += await asyncio.to_thread(_hold, address, count, first, None if isinstance(address, str) else source)
            await _answers(host)
        finally:
            doors.let_go(held)

    return Attack(f"idle connections: {[(name, count) for name, _, count, _ in plan]}", attack)


AREA = Area(
    "connections", "every port and socket, by connections that are idle, slow or never read", place, attacks, drawn,
    (Planted("a door closes no idle connection for a new one", lambda: patch.object(
        connections.Acceptor, "_make_room", lambda *_: False), "silent"),
     Planted("every line is written into the log", lambda: patch.object(
         log_repeats.RepeatCounter, "emit", lambda self, record: self._tell(record.getMessage())), "from each of")),
)
