"""Connectors of a folder beyond the common contract: crash points, threads, and a disk that fails."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from keepai.connectors.base import Connector
from keepai.connectors.kit import disk
from keepai.connectors.local import mail, sheets
from keepai.model.errors import OutcomeUnknown, PermissionDenied, PreconditionFailed, Transient
from keepai.testing import CrashAt, Crashed
from tests.connectors.cases import CASES, Case, call, dies, files_in, held_up, strangers
from tests.connectors.file_cases import CASES as FILE_CASES

EVERY = [*CASES, *FILE_CASES]
each_case = pytest.mark.parametrize("case", EVERY, ids=lambda case: case.id)
each_local = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
each_point = pytest.mark.parametrize(
    ("case", "point"),
    [(c, p) for c in EVERY for p in c.points],
    ids=lambda v: v if isinstance(v, str) else v.id,
)


@pytest.fixture
def place(case: Case, tmp_path: Path) -> Path:
    case.setup(tmp_path / "place")
    return tmp_path / "place"


@each_case
async def test_the_result_is_the_declared_one(case: Case, place: Path) -> None:
    result = await case.spec(place).invoke(case.params, call())
    assert isinstance(result, dict)
    assert result.keys() == case.result_keys


@each_case
async def test_what_was_never_sent_is_not_found(case: Case, place: Path) -> None:
    assert (await case.spec(place).reconcile(case.params, call())).status == "failed"


@each_case
async def test_another_key_is_not_found(case: Case, place: Path) -> None:
    await case.spec(place).invoke(case.params, call("key-1"))
    assert (await case.spec(place).reconcile(case.params, call("key-2"))).status == "failed"


@each_point
def test_a_process_killed_at_any_point_leaves_a_truth_that_reconcile_tells(
    case: Case, point: str, place: Path
) -> None:
    assert dies(case, place, point)
    happened = case.points.index(point) >= case.points.index(case.visible)
    verdict = asyncio.run(case.spec(place).reconcile(case.params, call()))
    assert verdict.status == ("applied" if happened else "failed")
    assert case.effects(place) == int(happened)
    again = asyncio.run(case.spec(place).invoke(case.params, call()))
    assert case.effects(place) == 1
    assert strangers(place) == []
    assert not happened or again == verdict.result
    assert not (place / "old.txt").exists() or case.operation != "move"


@each_point
def test_after_a_crash_the_next_send_leaves_exactly_one_effect(case: Case, point: str, place: Path) -> None:
    assert dies(case, place, point)
    asyncio.run(case.spec(place).invoke(case.params, call()))
    assert case.effects(place) == 1
    assert asyncio.run(case.spec(place).reconcile(case.params, call())).status == "applied"


@each_case
async def test_the_named_points_are_reached_in_their_order(case: Case, place: Path) -> None:
    with CrashAt(None) as watched:
        await case.spec(place).invoke(case.params, call())
    assert tuple(watched.reached) == case.points


@each_case
async def test_a_cancelled_call_ends_only_after_its_thread_has(case: Case, place: Path) -> None:
    async with held_up(case, place) as task:
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert not done
    with pytest.raises(asyncio.CancelledError):
        await task
    assert case.effects(place) == 1


@each_case
async def test_a_folder_that_vanished_is_a_failed_precondition_and_is_not_made_anew(
    case: Case, place: Path
) -> None:
    shutil.rmtree(place)
    with pytest.raises(PreconditionFailed):
        await case.spec(place).invoke(case.params, call())
    assert files_in(place.parent) == []
    assert (await case.spec(place).reconcile(case.params, call())).status == "retry"


@each_case
async def test_a_call_whose_time_is_over_writes_nothing(case: Case, place: Path) -> None:
    with pytest.raises(Transient):
        await case.spec(place).invoke(case.params, call(deadline=0))
    assert case.effects(place) == 0
    assert (await case.spec(place).reconcile(case.params, call())).status == "failed"


@each_local
async def test_an_io_error_while_looking_means_ask_again(
    case: Case,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await case.spec(place).invoke(case.params, call())

    def broken(*_args: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "scandir", broken)
    assert (await case.spec(place).reconcile(case.params, call())).status == "retry"


@each_local
async def test_a_disk_that_fails_after_the_effect_leaves_the_outcome_unknown(
    case: Case,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await case.spec(place).invoke(case.params, call("warm-up"))  # folders that are made on first use exist

    def broken(_folder: Path) -> None:
        raise OSError(5, "Input/output error")

    for module in (mail, sheets):
        monkeypatch.setattr(module, "sync_folder", broken)
    with pytest.raises(OutcomeUnknown):
        await case.spec(place).invoke(case.params, call())
    assert (await case.spec(place).reconcile(case.params, call())).status == "applied"


@each_local
async def test_a_full_disk_never_leaves_half_an_effect(
    case: Case,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    for module in (disk, sheets):
        monkeypatch.setattr(module, "write_all", full)
    with pytest.raises((OutcomeUnknown, Transient)):
        await case.spec(place).invoke(case.params, call())
    monkeypatch.undo()
    assert (await case.spec(place).reconcile(case.params, call())).status == "failed"
    assert case.effects(place) == 0


@each_local
async def test_a_refused_permission_is_told_as_such(
    case: Case,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(path: object, flags: int, *_mode: object, **_more: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionDenied):
        await case.spec(place).invoke(case.params, call())


@each_case
async def test_a_crash_in_process_passes_through_every_handler(case: Case, place: Path) -> None:
    with CrashAt(case.points[0]), pytest.raises(Crashed):
        await case.spec(place).invoke(case.params, call())


@each_case
async def test_check_is_silent_when_the_folder_is_there(case: Case, place: Path) -> None:
    connector: Connector = case.connector(place)
    await connector.check()
    shutil.rmtree(place)
    with pytest.raises(PreconditionFailed):
        await connector.check()
