"""The only source of time, of randomness for ids, and of ids."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
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
        """A fresh id: `run_` + 10 characters of time + 13 of chance; every row of the ledger has one."""
        chance, pairs = int.from_bytes(os.urandom(8), "big"), _PAIRS
        return (
            f"{prefix}_{_ten(self._clock.now_ms())}{_ALPHABET[chance >> 60]}{pairs[chance >> 50 & 1023]}"
            f"{pairs[chance >> 40 & 1023]}{pairs[chance >> 30 & 1023]}{pairs[chance >> 20 & 1023]}"
            f"{pairs[chance >> 10 & 1023]}{pairs[chance & 1023]}"
        )


@lru_cache(maxsize=8)
def _ten(value: int) -> str:
    """The last ten digits of a number, two at a time. Rows that are written together share their millisecond."""
    return (
        f"{_PAIRS[value >> 40 & 1023]}{_PAIRS[value >> 30 & 1023]}{_PAIRS[value >> 20 & 1023]}"
        f"{_PAIRS[value >> 10 & 1023]}{_PAIRS[value & 1023]}"
    )


def iso(ms: int) -> str:
    """A time as people and JSON see it: `2026-01-05T09:00:00.000Z`."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:-6]}.{ms % 1000:03d}Z"


def parse_iso(text: str) -> int:
    """Milliseconds of an ISO-8601 text; without a zone it means UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
