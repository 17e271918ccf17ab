"""The only source of time, of randomness for ids, and of ids."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


class Clock(Protocol):
    """Two readings: the wall, which may jump, and a steady one, which only grows."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, by the wall."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds on a clock that only grows and counts suspend."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.clock_gettime_ns(_STEADY) // 1_000_000


_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Ids:
    """Makes prefixed ids that sort by time and are unique over hosts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new(self, prefix: str) -> str:
        """A fresh id: `run_` + 10 characters of time + 13 of chance."""
        chance = int.from_bytes(os.urandom(8), "big")
        return f"{prefix}_{_ten(self._clock.now_ms())}{_thirteen(chance)}"


def _ten(bits: int) -> str:
    """50 bits as ten characters, two at a time: every row of the ledger has such an id."""
    return (
        f"{_PAIRS[bits >> 40 & 1023]}{_PAIRS[bits >> 30 & 1023]}{_PAIRS[bits >> 20 & 1023]}"
        f"{_PAIRS[bits >> 10 & 1023]}{_PAIRS[bits & 1023]}"
    )


def _thirteen(bits: int) -> str:
    """64 bits as thirteen characters."""
    return f"{_ALPHABET[bits >> 60]}{_ten(bits >> 10)}{_PAIRS[bits & 1023]}"


def iso(ms: int) -> str:
    """A time as people and JSON see it: `2026-01-05T09:00:00.000Z`."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def parse_iso(text: str) -> int:
    """Milliseconds of an ISO-8601 text; without a zone it means UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
