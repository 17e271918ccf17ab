"""A host that stood still, died or ended while something was under way: what the next step may believe."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from keepai import Policy, PreconditionFailed
from keepai.engine import mutation
from keepai.model import crash_points
from tests.harness import FIRE, Story, acting
from tests.routines import MAIL, guarded, routine


@pytest.mark.parametrize("source", [acting(), routine(guarded(MAIL))], ids=["a consumer", "a routine"])
async def test_a_host_that_stood_still_between_the_record_and_the_call_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str,
) -> None:
    # I6: its record may be older than anybody expects a request to be; it is sent anew, with a record of its own
    now = [1000.0]
    frozen_s = [61.0]

    def stand_still(point: str) -> None:
        if point == "before:call" and frozen_s:
            now[0] += frozen_s.pop()

    monkeypatch.setattr(mutation, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(crash_points, "_listener", stand_still)
    async with Story(tmp_path, policy=Policy(call_s=60)) as story:
        wf = await story.deploy_and_run(source, "a")
        assert story.world.asked == []
        [row] = await story.keep.mutations(wf)
        assert row.status == "failed"
        assert "the host stood still for too long" in str(row.error)
        assert (await story.last(wf)).status == "paused:transient"
        await story.run(minutes=5)
        assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "applied"]
        assert len(story.world.effects) == 1


async def test_a_call_that_hung_without_a_look_up_is_closed_by_its_hosts_death(tmp_path: Path) -> None:
    # I5, I33: nothing of a dead process can leave any more, so a person may answer
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("webhook.fire").hang(stubborn=True)
        wf = await story.deploy_and_run(acting(FIRE))
        [row] = await story.keep.mutations(wf)
        assert (row.status, row.closed_at) == ("indeterminate", None)
        await die(story)
        [row] = await story.keep.mutations(wf)
        assert row.status == "indeterminate"
        assert row.closed_at is not None
        await story.keep.resolve(row.id, "did_not_happen")
        await story.run(minutes=5)
        assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "applied"]


async def die(story: Story) -> None:
    """Kill the host and start another one: nothing of it runs on, and the lock of a dead process is free."""
    parts = story.keep.parts
    for each in (*parts.calls, *parts.questions):
        each.cancel()
    await parts.runtime.close()
    await parts.ledger.close()
    await story.open()


async def test_an_orderly_end_is_no_crash_of_the_run_that_was_ready_to_go_on(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(crashes_max=2)) as story:
        story.feed.put("a")
        story.world.on("gmail.send").fail(PreconditionFailed("gone"), times=1)
        wf = await story.deploy_and_run(acting())
        await story.keep.retry((await story.last(wf)).id)
        for _ in range(3):
            await story.reopen()
        await story.run()
        assert [r.status for r in await story.runs(wf, "act")] == ["superseded", "committed"]
        assert len(story.world.effects) == 1
