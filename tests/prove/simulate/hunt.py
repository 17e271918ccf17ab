"""`python -m tests.prove.simulate.hunt [NAME …]`: how many schedules it takes to find each planted fault."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.folders import memory_folder
from tests.prove.simulate.bugs import BUGS, planted
from tests.prove.simulate.judge import judge
from tests.prove.simulate.schedule import play

SCHEDULES_MAX = int(os.environ.get("KEEP_SCHEDULES", "25000"))


def hunt(name: str, folder: Path) -> tuple[int, str] | None:
    """The first seed that finds a fault, and what it says; None if none does."""
    for seed in range(1, SCHEDULES_MAX + 1):
        with planted(name):
            problems = play(seed, folder, judge).problems
        if problems and not play(seed, folder, judge).problems:  # without the fault all is well
            return seed, problems[0]
    return None


def main() -> int:
    """Hunt; 1 if a fault was not found."""
    missed = 0
    with TemporaryDirectory(dir=memory_folder()) as folder:
        for name in sys.argv[1:] or BUGS:
            began = time.monotonic()
            found = hunt(name, Path(folder) / "sim")
            missed += found is None
            seed, what = found or (0, f"NOT FOUND in {SCHEDULES_MAX} schedules")
            print(f"{name:<42}{seed:>6}  {time.monotonic() - began:>6.0f} s  {what[:110]}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
