"""Does one job after the other with one connection, in the thread of the loop.

A job is a plain function that runs in a light thread (greenlet): where it waits for the server it stands still, and the
loop goes on. What is wanted in one turn of the loop is there when the first job begins.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

import psycopg
from greenlet import getcurrent, greenlet

from ...model.errors import LedgerStopped, LedgerUnusable
from ..account import Head
from .wire import Wire

#: Verbs in one transaction, questions of one moment.
_TOGETHER_MAX = 32

#: For so long the end of a moment may wait for something with which it can be sent.
_REST_S = 0.005


Each = TypeVar("Each")


class HostPlace(Protocol):
    """What those who use a host's connections know of its place."""

    own: frozenset[str]  # the workflows that it runs

    def check(self) -> None:
        """Raise `LedgerStopped` if this place is lost, or soon may be."""
        ...

    def lose(self, error: psycopg.Error | LedgerUnusable | LedgerStopped) -> LedgerStopped:
        """Write nothing any more; gives what to raise."""
        ...

    def acknowledge(self, head: Head) -> None:
        """What the server has now must still be there on every new connection, and for every later host."""
        ...


def first(waiting: deque[Each]) -> list[Each]:
    """The first that wait, as many as may share a transaction."""
    return [waiting.popleft() for _ in range(min(len(waiting), _TOGETHER_MAX))]


def wait_for_others() -> None:
    """Of several light threads that ask side by side: let the others go on until all that was given is answered."""
    hub = getcurrent().parent
    assert hub is not None, "only a light thread can wait in it"
    hub.switch()


class ConnectionWorker:
    """One connection's. Whoever uses the connection without it, in another thread or before there is a loop, waits in
    its own way."""

    def __init__(self, wire: Wire, broken: Callable[[psycopg.Error], object]) -> None:
        self._wire, self._broken = wire, broken
        self._jobs: deque[Callable[[], None]] = deque()
        self._at_work: greenlet | None = None
        self._waits = False  # for the server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket = -1  # while there is a loop
        self._is_busy, self._sends_rest = False, False
        self._waiting: list[asyncio.Future[None]] = []  # until nothing is left to do
        self._wait_elsewhere = wire.wait
        wire.wait = self._wait

    def do(self, job: Callable[[], None]) -> None:
        """Have a job done after those that were wanted before. It raises nothing."""
        self._jobs.append(job)
        self._go_on()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        is_another, is_at_work = self._listen(loop), self._at_work is not None
        if not self._is_busy or (is_another and not is_at_work):  # the loop before may have ended before it began
            self._is_busy = True
            loop.call_soon(self._begin)

    async def finished(self) -> None:
        """Wait until every job is done, also of a loop that has ended."""
        while self._is_busy:
            if self._loop is not None:  # the connection is there
                self._go_on()
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    def close(self) -> None:
        """The connection is about to be closed."""
        if self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
            os.close(self._socket)
        self._loop = None

    def _listen(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it is another loop than before."""
        if loop is self._loop:
            return False
        self.close()
        # A copy: libpq closes the socket of a broken connection, and another one may get its number at once.
        self._loop, self._socket = loop, os.dup(self._wire.socket)
        loop.add_reader(self._socket, self._heard)
        return True

    def _begin(self) -> None:
        self._at_work = greenlet(self._work)
        self._at_work.switch()

    def _work(self) -> None:
        try:
            while self._jobs:
                self._jobs.popleft()()
        finally:
            self._at_work, self._is_busy = None, False
            if not self._sends_rest and self._loop is not None:
                self._sends_rest = True
                self._loop.call_later(_REST_S, self._send_rest)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    def _send_rest(self) -> None:
        """What was left to be sent with what comes next is sent now, if nothing came: the server waits for its end."""
        self._sends_rest = False
        if not self._is_busy and self._loop is not None:
            self._unless_broken(self._wire.send)

    def _wait(self, events: int) -> None:
        worker, loop = self._at_work, self._loop
        if worker is None or getcurrent() is not worker or loop is None:
            self._wait_elsewhere(events)
            return
        if events & select.POLLOUT:
            loop.add_writer(self._socket, worker.switch)
        self._waits = True
        try:
            assert worker.parent is not None, "a greenlet that was begun has one"
            worker.parent.switch()
        finally:
            self._waits = False
            if events & select.POLLOUT:
                loop.remove_writer(self._socket)

    def _heard(self) -> None:
        """The server has sent something. If nobody waits for it, it is the answer to what was left, or the end of the
        connection."""
        if self._waits and self._at_work is not None:
            self._at_work.switch()
            return
        self._unless_broken(self._wire.take_in)

    def _unless_broken(self, done: Callable[[], None]) -> None:
        try:
            done()
        except psycopg.Error as error:
            self.close()
            self._broken(error)
