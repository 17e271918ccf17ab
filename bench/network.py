"""Stands between clients and a PostgreSQL server, as a process of its own: it holds up what passes, or writes it down.

    python bench/network.py PORT DELAY_MS [TRACE]

It prints the port on which it listens, and ends when its standard input does. In each direction every piece waits for
so many milliseconds, however many wait at a time, so it makes a round trip longer and limits nothing else. One thread
does it all, with `select`, whose wait is as exact as the kernel's clock; asyncio's is a whole number of milliseconds.

The trace has a line for everything that a client said and the server finished: the time, and what it was. `trip`: the
client has sent something after it had heard from the server. `statement`: one was to be executed. `commit`: the server
has said that a transaction is committed.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

_PIECE = 1 << 16
_EXECUTE, _PROTOCOL_3 = b"QE", 3


@dataclass(eq=False)
class Direction:
    """What one end says to the other, and has not been handed over yet."""

    source: socket.socket
    target: socket.socket
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)  # when it is due, and what
    over: bool = False  # the source says nothing more
    stuck: bool = False  # the target takes nothing more for now
    back: Direction | None = None


@dataclass
class Said:
    """Finds the messages in what a client says."""

    begun: bool = False  # what has no type stands at the beginning
    rest: bytes = b""

    def statements(self, data: bytes) -> int:
        """How many of the messages that are complete now ask to execute one."""
        self.rest += data
        return sum(kind in _EXECUTE for kind in self._kinds())

    def _kinds(self) -> Iterator[bytes]:
        while len(self.rest) >= 8 - 3 * self.begun:
            at = 1 if self.begun else 0
            size = at + int.from_bytes(self.rest[at : at + 4])
            if len(self.rest) < size:
                return
            message, self.rest = self.rest[:size], self.rest[size:]
            if self.begun:
                yield message[:1]
            else:
                self.begun = int.from_bytes(message[4:6]) == _PROTOCOL_3  # before that it may ask for TLS


class Network:
    """All connections from one port to another."""

    def __init__(self, port: int, delay_s: float, trace: TextIO | None) -> None:
        self.upstream, self.delay_s, self.trace = port, delay_s, trace
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.directions: dict[socket.socket, Direction] = {}  # by its source
        self.said: dict[Direction, Said] = {}  # of those from a client
        self.heard: set[Direction] = set()  # of these the server has said something since

    def run(self, until: TextIO) -> None:
        """Until that input ends."""
        while True:
            now = time.monotonic()
            for each in list(self.directions.values()):
                self._hand_over(each, now)
            open_now = self.directions.values()
            full = [each.target for each in open_now if each.stuck]
            due = [each.waiting[0][0] for each in open_now if each.waiting and not each.stuck]
            reading = [each.source for each in open_now if not each.over]
            wait = max(0.0, min(due) - time.monotonic()) if due else None
            ready, _, _ = select.select([until, self.listening, *reading], full, [], wait)
            for source in ready:
                if source is until:
                    return
                if source is self.listening:
                    self._accept()
                elif source in self.directions:
                    self._take(self.directions[source])

    def _accept(self) -> None:
        client, server = self.listening.accept()[0], socket.create_connection(("127.0.0.1", self.upstream))
        for each in (client, server):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        forth, back = Direction(client, server), Direction(server, client)
        forth.back, back.back = back, forth
        self.directions |= {client: forth, server: back}
        self.said[forth] = Said()
        self.heard.add(forth)

    def _take(self, each: Direction) -> None:
        """Hear what one end says, and let it wait; an end that says nothing more is passed on like any other word."""
        try:
            data = each.source.recv(_PIECE)
        except OSError:
            data = b""
        each.over = not data
        each.waiting.append((time.monotonic() + self.delay_s, data))
        if self.trace is not None and data:
            self._note(each, data)

    def _hand_over(self, each: Direction, now: float) -> None:
        """Give one end everything that is due, as far as it takes it."""
        each.stuck = False
        while each.waiting and each.waiting[0][0] <= now and not each.stuck:
            due, data = each.waiting.popleft()
            try:
                sent = each.target.send(data) if data else self._end(each)
            except BlockingIOError:
                sent = 0
            except OSError:
                data, sent = b"", self._end(each)
            if sent < len(data):
                each.waiting.appendleft((due, data[sent:]))
                each.stuck = True

    def _end(self, each: Direction) -> int:
        """One end has gone: so does the other."""
        assert each.back is not None
        for one in (each, each.back):
            self.directions.pop(one.source, None)
            self.said.pop(one, None)
            self.heard.discard(one)
            one.waiting.clear()
            one.source.close()
        return 0

    def _note(self, each: Direction, data: bytes) -> None:
        words: list[str] = []
        if each in self.said:
            words += ["trip"] * (each in self.heard) + ["statement"] * self.said[each].statements(data)
            self.heard.discard(each)
        elif each.back is not None:
            words += ["commit"] * data.count(b"COMMIT\0")
            self.heard.add(each.back)
        assert self.trace is not None
        self.trace.writelines(f"{time.time():.6f} {word}\n" for word in words)


def main(port: str, delay_ms: str, trace: str | None = None) -> None:
    """Tell the port, and stand there."""
    with Path(trace).open("w", encoding="ascii") if trace else nullcontext() as file:
        network = Network(int(port), float(delay_ms) / 1000, file)
        print(network.listening.getsockname()[1], flush=True)
        network.run(sys.stdin)


if __name__ == "__main__":
    main(*sys.argv[1:])
