"""The simulation in short: no schedule breaks a promise, the same seed is the same story, planted faults are found."""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path

import pytest

from keepai import Keep
from tests.prove.simulate.bugs import BUGS, planted
from tests.prove.simulate.judge import judge
from tests.prove.simulate.loop import HOST, SimLoop
from tests.prove.simulate.people import HostGone
from tests.prove.simulate.schedule import LETTERS_AT, SPECIAL_EVERY, World, play

#: Fault → a seed that finds it. `python -m tests.prove.simulate.hunt` looks for them anew.
FOUND: dict[str, int] = {
    "seeds_literally": 3, "timeout_is_failure": 3, "odd_error_is_failure": 7, "no_settle": 3, "no_closure": 57,
    "stale_answer_counts": 44, "unknown_is_failure": 3, "retry_is_failure": 3, "crash_is_failure": 20,
    "did_not_happen_too_early": 75, "exhausted_asks_nobody": 65, "approval_asks_nobody": 4,
    "intent_not_synced": 541, "intent_not_synced_with_prepare": 2087, "recorded_after_the_call": 14,
    "pinned_after_the_call": 20, "what_came_with_prepare_is_not_checked": 4, "outcome_in_two_transactions": 4,
    "cursor_before_events": 46, "first_cause_only": 11, "events_stay_pending": 2, "ledger_not_consulted": 3,
    "item_attempt_not_pinned": 215, "item_never_done": 16, "attempt_not_in_key": 7, "done_items_are_open": 3,
    "no_recovery": 20, "never_reconciled": 3, "never_retried": 20, "no_host_lock": 2, "clock_set_back_is_believed": 170,
    "new_version_keeps_what_it_did_not_choose": 14, "act_without_version_check": 145,
    "item_key_is_the_runs": 22, "another_content_is_sent_as_well": 141, "results_are_not_kept": 21,
    "stopped_item_is_done": 5, "left_behind_is_forgotten": 133, "replay_sees_another_time": 85,
    "replay_draws_other_numbers": 85, "recovery_guesses": 133,
    "doubt_resets_the_count": 196, "each_retry_is_the_first": 5, "skip_during_prepare_fails_the_run": 56,
    "late_input_is_a_cause": 124,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sim"


@pytest.mark.parametrize("seeds", [
    *(range(first, first + 8) for first in range(1, 41, 8)),
    *(range(at, 10 * SPECIAL_EVERY, SPECIAL_EVERY) for at in LETTERS_AT),
], ids=str)
def test_no_schedule_breaks_a_promise(folder: Path, seeds: range) -> None:
    # R293, R294
    for seed in seeds:
        assert play(seed, folder, judge).problems == [], f"seed {seed}"


def test_the_same_seed_is_the_same_story(folder: Path) -> None:
    for seed in (7, 23):
        one, other = (play(seed, folder, judge) for _ in range(2))
        assert (one.loop.trace, one.loop.steps, one.outside.effects) == (
            other.loop.trace, other.loop.steps, other.outside.effects)


def test_a_thawed_host_goes_on_with_everything_that_was_held_back() -> None:
    # else it is half awake: it does what it is asked next, and later what it was asked before
    loop, done = SimLoop(1), list[str]()
    host = contextvars.copy_context()
    host.run(HOST.set, "host")
    loop.freeze("host", 90)
    loop.call_soon(done.append, "asked while it was frozen", context=host)
    loop.call_later(2, done.append, "its own timer", context=host)
    loop.run(10)
    assert done == []
    loop.thaw()
    loop.run(10)
    assert set(done) == {"asked while it was frozen", "its own timer"}


def test_a_dead_host_does_nothing_not_even_what_a_person_asked_for(folder: Path) -> None:
    done = list[str]()

    async def act(keep: Keep) -> None:
        done.append("begun")
        await asyncio.sleep(5)
        done.append("ended")

    async def asks(world: World) -> None:
        try:
            await world.ask(act)
        except HostGone:
            done.append("gone")

    def at_the_end(world: World) -> None:
        world.spawn(asks(world))
        world.loop.run(world.loop.time() + 1)
        world.die()
        world.loop.run(world.loop.time() + 60)

    assert play(16, folder, at_the_end).problems == []
    assert done == ["begun", "gone"]


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found_by_a_schedule_that_is_sound_without_it(folder: Path, name: str) -> None:
    with planted(name):
        problems = play(FOUND[name], folder, judge).problems
    assert problems != []
    assert not [each for each in problems if "TypeError" in each or "AttributeError" in each], "the fault itself broke"
    assert play(FOUND[name], folder, judge).problems == []


def test_every_fault_that_can_be_planted_is_found() -> None:
    assert set(FOUND) == set(BUGS)
    assert len(FOUND) >= 45
