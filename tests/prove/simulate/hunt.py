"""`python -m tests.prove.simulate.hunt [--several] [NAME …]`: how many schedules it takes to find a planted fault."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.folders import memory_folder
from tests.prove.simulate import several
from tests.prove.simulate.bugs import BUGS, planted
from tests.prove.simulate.judge import judge
from tests.prove.simulate.schedule import World, play

SCHEDULES_MAX = int(os.environ.get("KEEP_SCHEDULES", "25000"))


#: Plays a seed, with a fault by name or without one.
Play = Callable[[int, Path, str | None], World]


def play_one(seed: int, folder: Path, fault: str | None) -> World:
    """One host."""
    with planted(fault) if fault else nullcontext():
        return play(seed, folder, judge)


def play_several(seed: int, folder: Path, fault: str | None) -> World:
    """Several hosts."""
    return several.play(seed, folder, judge, several.BUGS[fault] if fault else ())


def hunt(name: str, folder: Path, play: Play) -> tuple[int, str] | None:
    """The first seed that finds a fault, and what it says; None if none does."""
    for seed in range(1, SCHEDULES_MAX + 1):
        problems = play(seed, folder, name).problems
        if problems and not play(seed, folder, None).problems:  # without the fault all is well
            return seed, problems[0]
    return None


def main() -> int:
    """Hunt; 1 if a fault was not found."""
    missed, names = 0, sys.argv[1:]
    with_several = "--several" in names
    bugs, play = (several.BUGS, play_several) if with_several else (BUGS, play_one)
    with TemporaryDirectory(dir=memory_folder()) as folder:
        for name in [each for each in names if each != "--several"] or bugs:
            began = time.monotonic()
            found = hunt(name, Path(folder) / "sim", play)
            missed += found is None
            seed, what = found or (0, f"NOT FOUND in {SCHEDULES_MAX} schedules")
            print(f"{name:<42}{seed:>6}  {time.monotonic() - began:>6.0f} s  {what[:110]}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
