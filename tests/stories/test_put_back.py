"""A ledger that is older than it was is noticed before anything of it is sent again (I38)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keepai import Keep
from keepai.model.errors import LedgerUnusable
from tests.harness import POLL, Story, producer, workflow

FLOW = workflow(producers={"poll": producer(POLL)})


async def worked(story: Story) -> str:
    """A host has worked on the ledger and ended."""
    wf = await story.deploy(FLOW)
    story.feed.put("a")
    await story.run()
    await story.keep.close()
    return wf


async def works_on(story: Story) -> None:
    """Another host works on it, and ends."""
    await story.open()
    story.feed.put("b")
    await story.run(minutes=5)
    await story.keep.close()


async def test_a_ledger_that_was_put_back_from_a_backup_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    backup = shutil.copyfile(story.path, tmp_path / "backup.db")
    await works_on(story)
    shutil.copyfile(backup, story.path)
    before = story.path.read_bytes()
    for _ in range(2):  # a refusal is no acceptance
        with pytest.raises(LedgerUnusable, match=r"older than it was.*would be sent again.*keep db accept-older"):
            await story.open()
    assert story.path.read_bytes() == before


async def test_a_ledger_that_lost_its_log_is_refused(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    await story.open()
    story.feed.put("b")
    await story.run(minutes=5)  # it is in the log, and a barrier has synced it
    shutil.copyfile(story.path, tmp_path / "without-log.db")
    await story.keep.close()
    shutil.copyfile(tmp_path / "without-log.db", story.path)
    with pytest.raises(LedgerUnusable, match="older than it was"):
        await story.open()


async def test_a_person_may_go_on_with_it_and_the_account_says_so(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    wf = await worked(story)
    backup = shutil.copyfile(story.path, tmp_path / "backup.db")
    await works_on(story)
    shutil.copyfile(backup, story.path)
    connectors = [*story.world.connectors(), story.feed]
    async with Keep(story.path, connectors=connectors, clock=story.clock, actor="ada", accept_older=True) as keep:
        told = (await keep.explain(wf)).story[-1]
        assert (told.machine, told.target, told.by) == ("act", "accept_older", "ada")
    await story.open()  # from now on it is the ledger
    await story.keep.close()


async def test_another_ledger_in_its_place_is_no_older_one(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    await works_on(story)
    story.path.unlink()
    await story.open()
    assert await story.keep.workflows() == []
    await story.keep.close()


async def test_what_a_killed_host_had_synced_is_there_and_is_not_taken_for_older(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await story.deploy(FLOW)
    story.feed.put("a")
    await story.crash("before:commit_producer")
    await story.run(hours=1)
    assert [w.status for w in await story.keep.workflows()] == ["active"]
    await story.keep.close()
