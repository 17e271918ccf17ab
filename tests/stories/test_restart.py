"""What a new host makes of what the one before left: settle times that run, and connectors that were missing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from keepai import Keep, Verdict
from keepai.model.errors import KeepError, Refused
from keepai.testing import CrashAt, Crashed
from tests.harness import POST, SEND, Slow, Story, consumer, producer, workflow

pytestmark = pytest.mark.both_stores

FLOW = workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=POST)})


async def in_question(story: Story) -> str:
    """A mutation that only a person can tell about; gives its id."""
    wf = await story.deploy_and_run(FLOW, "a")
    [row] = await story.keep.mutations(wf)
    assert row.status == "indeterminate"
    return row.id


# -- settle ------------------------------------------------------------------------------------------


async def test_the_settle_time_of_an_earlier_hosts_call_runs_from_the_restart_and_not_from_the_first_look(
    tmp_path: Path,
) -> None:
    async with Story(tmp_path, connectors=[Slow(Verdict.unknown("the archive is closed"))]) as story:
        mutation_id = await in_question(story)
        await story.reopen()
        story.clock.advance(hours=1)  # nobody has looked at it
        await story.keep.resolve(mutation_id, "did_not_happen")


async def test_the_settle_time_of_an_earlier_hosts_call_starts_anew_with_the_restart(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Slow(Verdict.unknown("the archive is closed"))]) as story:
        mutation_id = await in_question(story)
        story.clock.advance(hours=1)
        await story.reopen()  # how long the machine was off, no clock of ours has measured
        story.clock.advance(seconds=59)
        with pytest.raises(Refused, match="answer in 1 s"):
            await story.keep.resolve(mutation_id, "did_not_happen")
        story.clock.advance(seconds=1)
        await story.keep.resolve(mutation_id, "did_not_happen")


# -- a connector that was missing for one start ------------------------------------------------------

SENDING = workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=SEND)})


async def start_without(story: Story, *names: str) -> None:
    """Another host starts, and its keep.toml lacks these connectors."""
    await story.keep.close()
    connectors = [each for each in (*story.world.connectors(), story.feed) if each.name not in names]
    story.keep = Keep(story.path, connectors=connectors, clock=story.clock)
    await story.keep.__aenter__()


@pytest.mark.parametrize("name", ["feed", "gmail"])
async def test_a_run_that_lacked_its_connector_goes_on_when_that_is_back(story: Story, name: str) -> None:
    wf = await story.deploy(SENDING)
    story.feed.put("a")
    await start_without(story, name)
    await story.run()
    [asked] = await story.keep.needs_you()
    assert asked.kind == "precondition"
    assert f"no connector '{name}' is configured" in str(asked.facts)
    await story.run(hours=1)
    await story.reopen()
    assert await story.keep.needs_you() == []  # nothing has run yet, but nobody need act
    [run] = [each for each in await story.runs(wf) if each.status.startswith("paused")]
    assert "is configured now" in str((await story.keep.explain(run.id)).moved_by)
    await story.run()
    assert [effect.params for effect in story.world.effects] == [{"to": "a"}]
    assert {run.status for run in await story.runs(wf)} == {"committed", "superseded"}


async def test_a_missing_connector_is_no_fault_of_the_script_and_calls_no_repair_hook(story: Story) -> None:
    await story.deploy(SENDING)
    story.feed.put("a")
    await story.keep.close()
    called: list[object] = []

    async def repair(evidence: object) -> None:
        called.append(evidence)

    connectors = [each for each in (*story.world.connectors(), story.feed) if each.name != "gmail"]
    story.keep = Keep(story.path, connectors=connectors, clock=story.clock, repair=repair)
    await story.keep.__aenter__()
    await story.run()
    assert called == []


async def test_a_question_that_only_a_missing_connector_raised_is_withdrawn_when_that_is_back(story: Story) -> None:
    wf = await story.deploy(SENDING)
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry()
    await story.run()
    await start_without(story, "gmail")
    await story.run(minutes=5)
    assert [each.kind for each in await story.keep.needs_you()] == ["unknown_outcome"]
    await story.reopen()
    assert await story.keep.needs_you() == []
    await story.run()
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
    assert len(story.world.effects) == 1


async def test_the_question_about_a_call_that_died_with_its_host_is_withdrawn_as_well(story: Story) -> None:
    wf = await story.deploy(SENDING)
    story.feed.put("a")
    with CrashAt("after:call") as crash:
        with contextlib.suppress(Crashed):
            await story.run()
        assert crash.crashed
        parts = story.keep.parts
        with contextlib.suppress(Crashed, KeepError):
            await story.keep.host.close()
    await parts.runtime.close()
    await parts.ledger.close()
    connectors = [each for each in (*story.world.connectors(), story.feed) if each.name != "gmail"]
    story.keep = Keep(story.path, connectors=connectors, clock=story.clock)
    await story.keep.__aenter__()
    assert [each.kind for each in await story.keep.needs_you()] == ["unknown_outcome"]
    await story.reopen()
    await story.run(minutes=5)
    assert await story.keep.needs_you() == []
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]


async def test_a_question_that_nobody_could_answer_stays_over_a_restart(story: Story) -> None:
    await story.deploy(SENDING)
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").unknown()
    await story.run()
    await story.reopen()
    await story.run(hours=1)
    assert [each.kind for each in await story.keep.needs_you()] == ["unknown_outcome"]
    assert story.world.count("gmail.send", "reconcile") == 1
