"""The only source of time, and of new ids (model/ids.py says what an id is)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from .ids import CHANCE_BITS, KIND_BITS, KINDS, MS_BITS, number_of, text_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Two clocks: the wall clock, which may jump, and a steady one, which only grows."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, by the wall clock."""
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


_STEP = 1025  # it changes more than the last two digits, so that an id is still recognised without them


class Ids:
    """Makes the ids of one ledger. Each is higher than all that it made before.

    Why ids are unique: in one ledger, a host starts after the newest id in it, and each further id is higher, even if
    the clock stands still or is set back. Between ledgers, the first id of a millisecond gets 16 random bits, and the
    others follow it; very many in a row run ahead of the clock. Two hosts that write to one ledger at the same time can
    make the same id only in the same millisecond and with the same random bits; the primary key then refuses the
    second."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._last = clock, 0  # the last id, without the bits of its kind

    def go_on_from(self, newest: str) -> None:
        """Make only ids that are higher than this one."""
        self._last = max(self._last, (number_of(newest) or 0) >> KIND_BITS)

    def new(self, prefix: str) -> str:
        """A fresh id of the kind that has this prefix."""
        kind, made, ms = KINDS[prefix][0], self._last + _STEP, self._clock.now_ms()
        if made >> CHANCE_BITS < ms < 1 << MS_BITS:  # a clock with an impossible time is ignored
            made = ms << CHANCE_BITS | int.from_bytes(os.urandom(2), "big")
        self._last = made
        return text_of(made << KIND_BITS | kind)


def iso(ms: int) -> str:
    """A time for people and JSON: `2026-01-05T09:00:00.000Z`."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:-6]}.{ms % 1000:03d}Z"


def parse_iso(text: str) -> int:
    """The milliseconds of an ISO-8601 text; without a zone it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
