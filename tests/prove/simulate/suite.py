"""The suite of `make prove`: one schedule after the other."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

from tests.folders import memory_folder
from tests.prove.base import Result, rounds, trial
from tests.prove.simulate.judge import judge
from tests.prove.simulate.schedule import play

SCHEDULE_S_MAX = 120.0  # for one schedule, where a second is usual


def run(seconds: float, first: int, only: str | None) -> Result:
    """Schedules until the time is up."""
    result = Result("simulation", "schedules")
    virtual = 0.0
    gc.freeze()  # what is there now stays: looking through it again and again takes a sixth of the time
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        for seed in rounds(seconds, first, only):
            with trial(result, seed, SCHEDULE_S_MAX):
                world = play(seed, Path(folder) / "sim", judge)
                virtual += world.loop.time()
                for problem in world.problems:
                    result.broke(seed, problem)
            result.tried += 1
    result.note = f"{virtual / 86_400:,.0f} days of virtual time"
    return result
