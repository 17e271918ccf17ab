"""What the suites of `make prove` share: each tries for a given time and says how often, and what it found."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

_TOLD_S = 30.0  # between two words on how far it is
_AGAIN_S = 2.0  # between two interruptions of one trial: code under test may catch the first


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, and the seed that breaks it again."""

    seed: str
    what: str


@dataclass
class Result:
    """What one suite tried and found."""

    suite: str
    unit: str  # what was counted: "schedules", "kills", "images", …
    tried: int = 0
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""

    def broke(self, seed: object, what: str) -> None:
        """Keep a violation, and say so at once: the table may be hours away."""
        self.violations.append(Violation(str(seed), what))
        print(f"{self.suite}, seed {seed}: {what}", file=sys.stderr, flush=True)


class TooLong(KeyboardInterrupt):
    """A trial reached its time limit. It is a KeyboardInterrupt: asyncio and hypothesis stop for nothing else."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooLong` after `seconds`, and again every few seconds until what is inside ends; for the main thread."""
    late: TooLong | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal late
        late = TooLong(f"it did not end within {seconds:g} s")
        raise late

    before = signal.signal(signal.SIGALRM, interrupt)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    except BaseException:
        if late is None:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)  # one around this one goes on
    if late is not None:  # also if what is inside caught it
        raise late


@contextmanager
def trial(result: Result, seed: object, seconds: float) -> Iterator[None]:
    """One trial of a suite; that it does not end in time is a violation, and the next one begins."""
    try:
        with limited(seconds):
            yield
    except TooLong as error:
        result.broke(seed, str(error))


#: A suite: tries for so many seconds from a first seed on, or one seed alone if that is given.
Suite = Callable[[float, int, str | None], Result]


def rounds(seconds: float, first: int, only: str | None) -> Iterator[int]:
    """Seeds from the first on until the time is up; at least one."""
    if only is not None:
        yield int(only)
        return
    now = told = time.monotonic()
    ends, seed = now + seconds, first
    while seed == first or now < ends:
        yield seed
        seed, now = seed + 1, time.monotonic()
        if now - told >= _TOLD_S:
            print(f"  … {seed - first:,} seeds, {max(0.0, ends - now):.0f} s left", file=sys.stderr, flush=True)
            told = now
