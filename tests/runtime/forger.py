"""A worker that lies, and the frames it says it with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

from keepai.runtime.base import Ended, Job
from keepai.runtime.javascript.forks import Worker
from keepai.runtime.javascript.frames import said
from keepai.runtime.javascript.habits import Habits
from keepai.runtime.javascript.link import Link
from keepai.runtime.javascript.session import Session
from tests.runtime.script_world import FakeHost


class Forger:
    """A worker that says whatever the test wants."""

    def __init__(self, habits: Habits | None = None) -> None:
        self.killed = False
        self.habits = habits or Habits()

    async def run(self, frames: bytes, made: Job, host: FakeHost, *, reads: bool = True) -> Ended:
        ours, theirs = socket.socketpair()
        link = await Link.over(ours)
        worker = Worker(0, link, asyncio.get_running_loop().create_future())
        theirs.setblocking(False)

        def kill() -> None:
            self.killed = True
            link.abort()

        speaking = asyncio.create_task(self._speak(theirs, frames, reads))
        try:
            session = Session(made, host, worker, 7, kill, self.habits)
            return await asyncio.wait_for(session.run(), 5)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            theirs.close()
            link.abort()

    @staticmethod
    async def _speak(sock: socket.socket, frames: bytes, reads: bool) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.sock_sendall(sock, frames)
            while reads and await loop.sock_recv(sock, 65536):
                pass


def forged(t: str, *texts: str, **members: object) -> bytes:
    """A frame of any kind, of job 7 if nothing else is said."""
    return said(json.dumps({"t": t, "n": 7, **members})[1:-1], texts)


def call(*args: str, **changes: object) -> bytes:
    return forged("call", *args or ("1",), **{"id": 1, "name": "gmail.get", "at": [1, 1], **changes})


def end(*texts: str, **changes: object) -> bytes:
    return forged("end", *texts, **changes)
