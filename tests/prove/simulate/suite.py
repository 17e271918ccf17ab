"""The suites of `make prove`: one schedule after the other, with one host or with several."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.folders import memory_folder
from tests.prove.base import Result, rounds, trial
from tests.prove.simulate import several
from tests.prove.simulate.judge import judge
from tests.prove.simulate.schedule import World, play

SCHEDULE_S_MAX = 120.0  # for one schedule, where a second is usual


def run(seconds: float, first: int, only: str | None) -> Result:
    """Schedules of one host until the time is up."""
    return _run(Result("simulation", "schedules"), lambda seed, folder: play(seed, folder, judge), seconds, first, only)


def run_several(seconds: float, first: int, only: str | None) -> Result:
    """The same of several hosts."""
    return _run(Result("several", "schedules"), lambda seed, folder: several.play(seed, folder, judge), seconds, first,
                only)


def _run(
    result: Result, play_one: Callable[[int, Path], World], seconds: float, first: int, only: str | None,
) -> Result:
    virtual = 0.0
    gc.freeze()  # what is there now stays: looking through it again and again takes a sixth of the time
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        for seed in rounds(seconds, first, only):
            with trial(result, seed, SCHEDULE_S_MAX):
                world = play_one(seed, Path(folder) / "sim")
                virtual += world.loop.time()
                for problem in world.problems:
                    result.broke(seed, problem)
            result.tried += 1
    result.note = f"{virtual / 86_400:,.0f} days of virtual time"
    return result
