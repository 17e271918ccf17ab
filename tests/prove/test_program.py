"""`make prove` ends: a trial that does not end is interrupted, and a suite that cannot be interrupted is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from tests.prove import program
from tests.prove.base import Result, TooLong, limited, rounds, trial
from tests.prove.inputs.doors import COMMANDS, DRAWN
from tests.prove.inputs.hosts import ANSWERS, Act, Page, Plan
from tests.prove.inputs.property import pure
from tests.prove.inputs.pure import nested
from tests.prove.inputs.suite import attempt

SHORT_S = 0.2


async def forever() -> None:
    await asyncio.sleep(3600)


def caught() -> None:
    """What is interrupted may take that for a person's Ctrl-C, once."""

    @click.command()
    def endless() -> None:
        time.sleep(3600)

    CliRunner().invoke(endless)


ENDLESS: dict[str, Any] = {
    "a loop": lambda: [None for _ in iter(int, 1)], "an event loop": lambda: asyncio.run(forever()),
    "a command that catches Ctrl-C": caught,
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_trial_that_does_not_end_is_a_violation_and_the_next_one_begins(what: str) -> None:
    result, done = Result("some", "trials"), list[int]()
    outer, _ = signal.getitimer(signal.ITIMER_REAL)
    for seed in (1, 2):
        with trial(result, seed, SHORT_S):
            if seed == 1:
                ENDLESS[what]()
            done.append(seed)
    assert [(v.seed, v.what) for v in result.violations] == [("1", "it did not end within 0.2 s")]
    assert done[-1] == 2
    assert 0 < outer - signal.getitimer(signal.ITIMER_REAL)[0] < 10, "the limit of this test itself goes on"


def test_an_error_in_time_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError), limited(60):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt) as raised, limited(60):
        raise KeyboardInterrupt
    assert not isinstance(raised.value, TooLong)


def test_an_input_without_an_end_is_told_with_the_input() -> None:
    endless = pure("endless", st.just("serve"), lambda value: time.sleep(3600), 3)
    assert attempt(endless, 1, 3, SHORT_S) == (1, "endless: tests.prove.base.TooLong: it did not end within 0.2 s "
                                               "for 'serve'")


def test_every_command_that_is_drawn_ends_by_itself() -> None:
    each = replace(COMMANDS, strategy=st.sampled_from([[name] for name in DRAWN]))
    count, broken = attempt(each, 1, 10 * len(DRAWN), 30.0)
    assert broken is None
    assert count == len(DRAWN), "hypothesis tries each of so few"
    assert not {"serve", "dev", "demo"} & set(DRAWN)


# a suite that cannot be interrupted


def deaf(seconds: float, first: int, only: str | None) -> Result:
    """A suite that hears no alarm."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(3600)
    return Result("deaf", "trials")


def dies(seconds: float, first: int, only: str | None) -> Result:
    os._exit(7)


def counts(seconds: float, first: int, only: str | None) -> Result:
    return Result("counts", "trials", tried=len(list(rounds(0, first, only))))


@pytest.mark.parametrize(("name", "what"), [
    ("deaf", "the suite did not end"), ("dies", "exit code 7 and no result"), ("counts", None),
])
def test_a_suite_always_has_a_result(monkeypatch: pytest.MonkeyPatch, name: str, what: str | None) -> None:
    monkeypatch.setitem(program.SUITES, name, (__name__, 1, False))
    monkeypatch.setattr(program, "_part", part)
    result = program.run_suite(name, 0.0, 1, None, 2, ending_s=2.0 if name == "deaf" else 60.0)
    told = [(v.seed, what in v.what) for v in result.violations] if what else result.violations
    assert told == ([("from 1", True), ("from 1000001", True)] if what else [])
    assert result.tried == (0 if what else 2)


def part(told: Any, name: str, seconds: float, first: int, only: str | None) -> None:
    told.send(globals()[name](seconds, first, only))


def test_a_seed_that_failed_is_tried_again_by_every_test_where_it_repeats_what_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    monkeypatch.setattr(program, "KEPT", tmp_path / "seeds.json")
    for name in ("images", "cluster"):
        result = Result(name, "trials")
        result.broke(7, "something is lost")
        program._keep(result)
    assert json.loads(program.KEPT.read_text()) == {"images": ["7"]}


# the judge of connectors' answers


def test_a_page_whose_fields_cannot_be_kept_is_in_doubt() -> None:
    with ANSWERS.opened() as holds:
        for field in (b"bytes", nested(2000), "kept"):
            holds(Plan(send=Act("return", Page([1], after=field)), find=Act("cancel")))


def test_a_failed_assertion_is_told_also_of_an_input_that_cannot_be_shown() -> None:
    def holds(value: object) -> None:
        raise AssertionError("it was applied")

    deep = pure("deep", st.just(1).map(lambda _: Page([], after=nested(2000))), holds, 3)
    assert attempt(deep, 1, 3)[1] == (
        "deep: AssertionError: it was applied for (a Page that cannot be shown: RecursionError)")


def test_the_stories_are_run_with_speculate_off_and_one_that_fails_is_a_violation() -> None:
    one = "tests/stories/test_straight.py::test_a_plain_call_is_recorded_in_the_commit_that_pins_what_it_follows_from"
    skipped, missing = program.suite("stories")(0.0, 1, one), program.suite("stories")(0.0, 1, one + "_not")
    assert (skipped.tried, skipped.violations) == (0, []), "it is about what is foreseen"
    assert len(missing.violations) == 1
