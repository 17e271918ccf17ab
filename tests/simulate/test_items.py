"""A few hundred random schedules over items (see items.py), and faults planted to show that they would be found.

KEEP_SCHEDULES asks for more: `KEEP_SCHEDULES=10000 pytest tests/simulate`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepai import Transient
from keepai.engine import failure, mutation, recovery, relaunch, routine_run
from keepai.engine.mutation import Unit, Wanted
from keepai.ledger.transitions import items, mutations, runs
from keepai.model.operations import Step
from keepai.model.records import Run
from keepai.model.states import ItemStatus
from tests.crashes.test_routines import ITEMS, Routine
from tests.simulate.items import Violation, simulate
from tests.simulate.office import CALLS, Plan

SCHEDULES = int(os.environ.get("KEEP_SCHEDULES", "120"))
PARTS = 4
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("part", range(PARTS))
async def test_whatever_happens_every_effect_takes_place_once_and_nothing_is_lost_in_silence(part: int) -> None:
    # R293, R294
    found = await simulate(range(1 + part, SCHEDULES + 1, PARTS))
    assert not found, "\n\n".join(map(str, found[:3]))


# -- the stand-in for the sandbox ----------------------------------------------------------------------


@pytest.mark.parametrize("throws", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("world", ["works", "loses answers"])
async def test_the_script_without_a_sandbox_does_what_it_does_in_one(
    tmp_path: Path, throws: int | None, world: str,
) -> None:
    told = []
    for sandbox in (True, False):
        story = Routine(tmp_path / str(sandbox), world, sandbox=sandbox)
        async with story:
            wf = await story.deploy(Plan(throws=throws).script())
            for _ in range(4):
                await story.run(minutes=2)
            rows = await story.keep.mutations(wf)
            told.append((
                [(e.operation, e.params, e.result) for e in story.world.effects],
                [(m.operation, m.status, m.params, m.result, m.title) for m in rows],
                [(i.external_id, i.title, i.status) for i in await story.keep.items(wf)],
                [(r.status, r.error and (r.error.code, r.error.message)) for r in await story.runs(wf)],
                [story.logs(r) for r in await story.runs(wf)], await story.keep.state(wf, "work"),
            ))
    assert told[0] == told[1]
    assert len(told[0][0]) == (len(CALLS) * len(ITEMS) if throws is None else throws)


# -- planted faults ------------------------------------------------------------------------------------


def replay_ignores_the_ledger(patch: Patch) -> None:
    real = mutation._intent
    patch.setattr(mutation, "_intent", lambda *args: (real(*args)[0], None))


def the_key_knows_no_attempt(patch: Patch) -> None:
    def unit(step: Step, key: str, title: str | None, item_id: str | None = None) -> Unit:
        return Unit(step, re.sub(r",\d+\]$", ",1]", key), title, item_id)

    patch.setattr(routine_run, "Unit", unit)


def the_key_is_the_runs(patch: Patch) -> None:
    real = mutation._intent

    def intent(parts: Any, read: Any, run: Run, wanted: Wanted, unit: Unit) -> Any:
        own = Unit(unit.step, unit.key + run.id, unit.title, unit.item_id)
        return real(parts, read, run, wanted, own)

    patch.setattr(mutation, "_intent", intent)


def results_are_not_kept(patch: Patch) -> None:
    async def forgets(*args: Any) -> Any:
        return '{"id":"forgotten"}'

    patch.setattr(mutation, "_use_applied", forgets)


def recovery_guesses_that_it_did_not_happen(patch: Patch) -> None:
    real = recovery._take_over

    async def take_over(parts: Any, run: Run) -> None:
        found = await parts.ledger.look(relaunch.in_flight, run)
        if found is None:
            await real(parts, run)
            return
        adopted = await parts.ledger.write(runs.adopt, run)
        gone = Transient("The host died, so it did not happen.")
        why = failure.stop(gone, adopted, Step.ROUTINE, parts.policy, parts.clock.now_ms())
        await parts.ledger.write(mutations.refuse, adopted, found, why, [])

    patch.setattr(recovery, "_take_over", take_over)


def another_content_is_sent_as_well(patch: Patch) -> None:
    real = mutation._intent

    def intent(read: Any, parts: Any, run: Run, wanted: Any, unit: Unit) -> Any:
        return real(read, parts, run, replace(wanted, subkey=wanted.params["text"]), unit)

    patch.setattr(mutation, "_intent", intent)


def an_item_that_stopped_is_done(patch: Patch) -> None:
    real = items.stop
    patch.setattr(items, "stop", lambda tx, run, becomes: real(tx, run, ItemStatus.DONE if becomes else None))


def what_was_left_is_forgotten(patch: Patch) -> None:
    patch.setattr("keepai.reading.views.left_behind", lambda read, workflow_id: [])


def a_replay_sees_another_time(patch: Patch) -> None:
    real = routine_run._fixed_by_item
    patch.setattr(routine_run, "_fixed_by_item", lambda read, run, item: replace(
        real(read, run, item), now_ms=run.created_at))


def a_replay_draws_other_numbers(patch: Patch) -> None:
    real = routine_run._fixed_by_item
    patch.setattr(routine_run, "_fixed_by_item", lambda read, run, item: replace(
        real(read, run, item), seed=run.id.encode()))


FAULTS: tuple[Callable[[Patch], None], ...] = (
    replay_ignores_the_ledger, the_key_knows_no_attempt, the_key_is_the_runs, results_are_not_kept,
    recovery_guesses_that_it_did_not_happen, another_content_is_sent_as_well, an_item_that_stopped_is_done,
    what_was_left_is_forgotten, a_replay_sees_another_time, a_replay_draws_other_numbers,
)


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
async def test_a_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    for first in range(1, 201, 10):
        found = await simulate(range(first, first + 10))
        if found:
            assert all(isinstance(each, Violation) for each in found)
            return
    raise AssertionError("two hundred schedules did not notice")
