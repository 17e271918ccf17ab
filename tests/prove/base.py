"""What the suites of `make prove` share: each tries for a given time and says how often, and what it found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


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
        """Keep a violation."""
        self.violations.append(Violation(str(seed), what))


#: A suite: tries for so many seconds from a first seed on, or one seed alone if that is given.
Suite = Callable[[float, int, str | None], Result]


def rounds(seconds: float, first: int, only: str | None) -> Iterator[int]:
    """Seeds from the first on until the time is up; at least one."""
    if only is not None:
        yield int(only)
        return
    ends, seed = time.monotonic() + seconds, first
    while seed == first or time.monotonic() < ends:
        yield seed
        seed += 1
