"""A worker that lies, and the frames it says it with."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from keepai.runtime.base import Ended, Job
from keepai.runtime.javascript.forks import Worker
from keepai.runtime.javascript.frames import pack
from keepai.runtime.javascript.habits import Habits
from keepai.runtime.javascript.link import Link
from keepai.runtime.javascript.session import Session
from tests.runtime.script_world import FakeHost


class Forger:
    """A worker that says whatever the test wants."""

    def __init__(self, habits: Habits | None = None) -> None:
        self.killed = False
        self.habits = habits or Habits()

    async def run(self, said: bytes, made: Job, host: FakeHost, *, reads: bool = True) -> Ended:
        ours, theirs = socket.socketpair()
        link = await Link.over(ours)
        worker = Worker(0, link, asyncio.get_running_loop().create_future())
        theirs.setblocking(False)

        def kill() -> None:
            self.killed = True
            link.abort()

        speaking = asyncio.create_task(self._speak(theirs, said, reads))
        try:
            session = Session(made, host, worker, 7, kill, self.habits)
            return await asyncio.wait_for(session.run(), 5)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            theirs.close()
            link.abort()

    @staticmethod
    async def _speak(sock: socket.socket, said: bytes, reads: bool) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.sock_sendall(sock, said)
            while reads and await loop.sock_recv(sock, 65536):
                pass


def call(**changes: object) -> bytes:
    return pack({"t": "call", "n": 7, "id": 1, "name": "gmail.get", "args": ["1"], "at": [1, 1], **changes})
