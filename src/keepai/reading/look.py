"""A ledger opened to be read: what every door looks through. It creates nothing and needs no lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..ledger.base import OpenReader
from ..ledger.opening import open_reader
from ..model.clock import SystemClock
from ..model.errors import LedgerUnusable
from ..model.policy import Policy
from .unknown_outcome import HostFacts
from .views import Views

T = TypeVar("T")


@dataclass(frozen=True)
class Look:
    """An open ledger that can only be read."""

    views: Views
    read: OpenReader
    now_ms: int
    steady: Callable[[], int]  # milliseconds on a clock that only grows


@contextmanager
def open_look(ledger: str | Path, policy: Policy, host: HostFacts | None = None) -> Iterator[Look]:
    """A read-only look at a ledger; it creates nothing. `host` is one in this process."""
    clock = SystemClock()
    with closing(open_reader(ledger)) as read:
        yield Look(Views(read, policy, host), read, clock.now_ms(), clock.steady_ms)

class LastingLook:
    """A look for one thread that lasts as long as a host. The connection to a database may be lost meanwhile: then the
    next question opens another."""

    def __init__(self, ledger: str | Path, policy: Policy, host: HostFacts | None = None) -> None:
        self._ledger, self._policy, self._host = ledger, policy, host
        self._opened = ExitStack()
        self._look: Look | None = None

    def ask(self, question: Callable[[Look], T]) -> T:
        """The answer to a question; it is asked once more if the first look fails."""
        try:
            return question(self._open())
        except LedgerUnusable:
            self.close()
        try:
            return question(self._open())
        except LedgerUnusable:
            self.close()
            raise

    def _open(self) -> Look:
        if self._look is None:
            self._look = self._opened.enter_context(open_look(self._ledger, self._policy, self._host))
        return self._look

    def close(self) -> None:
        """Let go of it; the next question opens it again."""
        self._look = None
        self._opened.close()
