"""Schedules with parked runs in short: none breaks a promise, and each planted fault is found for its own reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.simulate.bugs import PARKING_BUGS, planted
from tests.prove.simulate.parking import play

#: Fault → a seed that finds it.
FOUND = {"target_not_held": 4, "cause_not_held": 1, "state_not_held": 4, "order_broken": 4, "place_given_up": 4,
         "answered_stays_parked": 1, "parked_item_begun": 8, "state_of_item_kept": 8, "item_with_a_later_state": 8}


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in range(1, 41, 10)], ids=str)
def test_no_schedule_with_parked_runs_breaks_a_promise(tmp_path: Path, seeds: range) -> None:
    worlds = [play(seed, tmp_path / "sim") for seed in seeds]
    assert [problem for world in worlds for problem in world.problems] == []
    assert sum(world.parked for world in worlds) > 40, "runs were parked"


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_planted_among_parked_runs_is_found_for_its_own_reason(tmp_path: Path, name: str) -> None:
    reason, _ = PARKING_BUGS[name]
    with planted(name):
        problems = play(FOUND[name], tmp_path / "sim").problems
    assert [each for each in problems if each.startswith(reason)], problems
    assert not [each for each in problems if "TypeError" in each or "AttributeError" in each], "the fault itself broke"
    assert play(FOUND[name], tmp_path / "sim").problems == []


def test_every_fault_among_parked_runs_is_found() -> None:
    assert set(FOUND) == set(PARKING_BUGS)
