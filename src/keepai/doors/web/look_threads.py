"""Reading for pages: in threads of their own, each with a read-only connection, one moment of the ledger per page.

The host's loop is never held up by a page; the host's file is never written from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from threading import local
from typing import TypeVar

from ...config import Settings
from ...model.clock import Clock
from ...reading.look import Look, open_look
from ...reading.unknown_outcome import HostFacts

T = TypeVar("T")

THREADS = 2


class LookThreads:
    """Looks at one ledger from several threads."""

    def __init__(self, settings: Settings, clock: Clock, host: HostFacts) -> None:
        self._settings, self._clock, self._host = settings, clock, host
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="keep-page")
        self._own, self._opened = local(), ExitStack()

    async def read(self, what: Callable[[Look], T]) -> T:
        """What `what` finds, all of it at one moment of the ledger."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, what)

    def open(self) -> Look:
        """A look that lasts until `close`, for the caller's own thread."""
        return self._opened.enter_context(open_look(self._settings.path, self._settings.policy, self._host))

    def close(self) -> None:
        """Let reads under way end, then let go of the file."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._opened.close()

    def _read(self, what: Callable[[Look], T]) -> T:
        if not hasattr(self._own, "look"):
            self._own.look = self.open()
        look: Look = self._own.look
        with look.read.moment():
            return what(replace(look, now_ms=self._clock.now_ms()))
