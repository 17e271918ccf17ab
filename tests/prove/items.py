"""Random schedules over the items of a routine, as a suite of `make prove` (see tests/simulate/items.py)."""

from __future__ import annotations

import asyncio

from tests.prove.base import Result, rounds, trial
from tests.simulate.items import simulate

_AT_ONCE = 10
BATCH_S_MAX = 300.0  # for one batch, where a few seconds are usual


def run(seconds: float, first: int, only: str | None) -> Result:
    """Schedules until the time is up."""
    result = Result("items", "schedules")
    for number in rounds(seconds, first, only):
        seeds = [number] if only is not None else range(number * _AT_ONCE, (number + 1) * _AT_ONCE)
        with trial(result, number, BATCH_S_MAX):
            for violation in asyncio.run(simulate(seeds)):
                result.broke(violation.seed, str(violation).splitlines()[0])
        result.tried += len(seeds)
    return result
