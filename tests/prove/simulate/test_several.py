"""Several hosts in short: no schedule breaks a promise, the same seed is the same story, planted faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.simulate.judge import judge
from tests.prove.simulate.several import BUGS, play

#: Fault → a seed that finds it. `python -m tests.prove.simulate.hunt --several` looks for them anew.
FOUND: dict[str, int] = {
    "silent_is_dead": 13, "no_closure": 20, "no_settle": 4, "no_fencing": 422, "what_was_taken_over_is_guessed": 1,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sim"


@pytest.mark.parametrize("seeds", [range(1, 4), range(4, 7)], ids=str)
def test_no_schedule_of_several_hosts_breaks_a_promise(folder: Path, seeds: range) -> None:
    for seed in seeds:
        world = play(seed, folder, judge)
        assert world.problems == [], f"seed {seed}"
        assert len(world.places) >= 3, "each host has had a place"


def test_the_same_seed_is_the_same_story(folder: Path) -> None:
    one, other = (play(1, folder, judge) for _ in range(2))
    assert (one.loop.trace, one.loop.steps, one.outside.effects) == (
        other.loop.trace, other.loop.steps, other.outside.effects)


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found_by_a_schedule_that_is_sound_without_it(folder: Path, name: str) -> None:
    # "silent_is_dead" is the rule that a lease which is over, and the settle time too, prove that nothing happened
    problems = play(FOUND[name], folder, judge, BUGS[name]).problems
    assert problems != []
    assert not [each for each in problems if "TypeError" in each or "AttributeError" in each], "the fault itself broke"
    assert play(FOUND[name], folder, judge).problems == []


def test_every_fault_that_can_be_planted_is_found() -> None:
    assert set(FOUND) == set(BUGS)
