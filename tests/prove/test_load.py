"""The short form of load: few workflows and events, and what makes many cost no more: statements and indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import views
from tests.prove.load import Desk, bulk, many_workflows, poisoned, scans, script, statements, unsound


async def test_many_workflows_all_run_and_a_new_host_finds_its_way(tmp_path: Path) -> None:
    judged = await many_workflows(tmp_path / "keep.db", 20)
    assert judged.broken == []


async def test_what_is_behind_a_workflow_adds_no_statement_and_no_scan(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with desk.keep() as keep:
        wf = str((await keep.deploy(script("bulk"), grants="all")).workflow_id)
        await desk.once(keep, "first")
        with statements() as few:
            await desk.once(keep, "with few")
            views(keep).workflows(desk.clock.now_ms())
            views(keep).needs_you(desk.clock.now_ms())
        await keep.parts.ledger.write(bulk, wf, "many", 3_000)
        with statements() as many:
            await desk.once(keep, "with many")
            views(keep).workflows(desk.clock.now_ms())
            views(keep).needs_you(desk.clock.now_ms())
        for each in (few, many):
            del each["account_head"]  # one for each transaction, and how many verbs share one depends on the machine
        assert many == few
        assert len(many) > 20, "hardly anything was recorded"
        assert [e.status for e in await keep.events(wf, "in")].count("consumed") == 3_003
    async with desk.keep() as keep:
        with statements() as restart:
            await desk.once(keep, "after the restart")
    assert scans(desk.path, {*many, *restart}) == []
    assert unsound(desk.path) == []


async def test_a_scan_is_found(tmp_path: Path) -> None:
    async with Desk(tmp_path / "keep.db").keep():
        assert scans(tmp_path / "keep.db", {"never_event_taken_twice", "look_mutations_of_run", "run_open_all"}) == [
            "never_event_taken_twice: SCAN v USING INDEX reservation_by_event"
        ]


@pytest.mark.parametrize("count", [6])
async def test_one_poisonous_workflow_does_not_keep_the_others_from_their_work(tmp_path: Path, count: int) -> None:
    judged = await poisoned(tmp_path, count)
    assert judged.broken == []
