"""The simulation in short: no schedule breaks a promise, the same seed is the same story, planted faults are found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.prove.simulate.bugs import BUGS, planted
from tests.prove.simulate.judge import judge
from tests.prove.simulate.schedule import play

#: Fault → a seed that finds it. `python -m tests.prove.simulate.hunt` looks for them anew.
FOUND: dict[str, int] = {
    "seeds_literally": 2, "timeout_is_failure": 1, "odd_error_is_failure": 7, "no_settle": 2, "no_closure": 6,
    "stale_answer_counts": 24, "unknown_is_failure": 2, "retry_is_failure": 2, "crash_is_failure": 2,
    "did_not_happen_too_early": 83, "skip_what_happened": 277, "exhausted_asks_nobody": 10,
    "recorded_after_the_call": 2, "cursor_before_events": 22, "events_stay_pending": 1,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name) / "sim"


@pytest.mark.parametrize("first", range(1, 41, 8))
def test_no_schedule_breaks_a_promise(folder: Path, first: int) -> None:
    for seed in range(first, first + 8):
        assert play(seed, folder, judge).problems == [], f"seed {seed}"


def test_the_same_seed_is_the_same_story(folder: Path) -> None:
    for seed in (7, 23):
        one, other = (play(seed, folder, judge) for _ in range(2))
        assert (one.loop.trace, one.loop.steps, one.outside.effects) == (
            other.loop.trace, other.loop.steps, other.outside.effects)


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found(folder: Path, name: str) -> None:
    with planted(name):
        assert play(FOUND[name], folder, judge).problems != []


def test_what_is_said_to_be_found_can_be_planted() -> None:
    assert set(FOUND) <= set(BUGS)
