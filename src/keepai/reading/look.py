"""A ledger opened to be read: what every door looks through. It creates nothing and needs no lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..ledger.base import OpenReader
from ..ledger.opening import open_reader
from ..model.clock import SystemClock
from ..model.policy import Policy
from .unknown_outcome import HostFacts
from .views import Views


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
