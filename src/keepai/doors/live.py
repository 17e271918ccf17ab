"""Tells every open page, and every program that listens at the API, that something was committed.

It does so a few times a second at most. It says that something changed, never what: the page then fetches itself again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from ..model.errors import LedgerError

PAUSE_S = 0.25  #: between two looks, and so between two events
BEAT_S = 30.0  #: after which an event is sent although nothing changed, so that "3 min ago" stays true
STREAMS_MAX = 64


class LiveUpdates:
    """Watches a number that changes whenever somebody commits."""

    def __init__(self, change: Callable[[], Awaitable[int]]) -> None:
        self._change, self.number = change, 0
        self._news = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self.streams = 0

    async def start(self) -> None:
        """Watch until `close`."""
        self.number = await self._change()
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """End every stream: an open page must not hold up the end of the host."""
        self._closed = True
        if self._watching:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await self._tell()

    async def events(self, seen: int) -> AsyncIterator[bytes]:
        """The events for a page that has seen the change `seen`."""
        self.streams += 1
        try:
            yield b"retry: 1000\n\n"
            while not self._closed:
                if self.number == seen:
                    await self._wait(seen)
                if not self._closed:
                    seen = self.number
                    yield f"event: changed\ndata: {seen}\n\n".encode()
        finally:
            self.streams -= 1

    async def say_again(self) -> None:
        """Have every open page fetch itself again, though nothing was committed."""
        self.number = -1
        await self._tell()

    async def _wait(self, seen: int) -> None:
        try:
            async with asyncio.timeout(BEAT_S), self._news:
                await self._news.wait_for(lambda: self._closed or self.number != seen)
        except TimeoutError:
            return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            with suppress(LedgerError):  # the pages say that it cannot be read
                number = await self._change()
                if number != self.number:
                    self.number = number
                    await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()
