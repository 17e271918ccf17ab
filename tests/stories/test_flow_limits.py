"""Limits on what is sent: no window of a rate holds more than it may, over kills and restarts; concurrency holds over
workflows; nothing is sent outside of the hours. What waits is no failure, and says until when and by which rule."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from keepai import FlowLimit, Keep, Policy
from keepai.model.clock import iso, parse_iso
from keepai.model.flow_limits import Window
from tests.harness import APPEND, POLL, SEND, Story, acting, consumer, js, producer, take_first, workflow

SLACK = "connectors.gmail"  # any connection


def policy(limits: Mapping[str, FlowLimit], **more: Any) -> Policy:
    return Policy(limits=limits, **more)


def times(story: Story) -> list[int]:
    """When effects took place."""
    return [effect.at for effect in story.world.effects]


def fullest(times: Sequence[int], window: Window) -> int:
    """The most that was sent in any stretch of time as long as a window."""
    ordered = sorted(times)
    return max((bisect_left(ordered, at + window.ms) - place for place, at in enumerate(ordered)), default=0)


async def until_next_turn(story: Story) -> int | None:
    """How long until something that waits can go on; None if nothing waits."""
    found = []
    for wf in await story.keep.workflows():
        run = (await story.runs(wf.id))[-1]
        if run.status.startswith("paused:"):
            found += [step.due_at for step in (await story.keep.explain(run.id)).moved_by if step.due_at is not None]
    return max(1, min(found) - story.clock.now_ms()) if found else None


async def to_next_turn(story: Story) -> bool:
    """Let time pass until something that waits can go on, and run; False if nothing waits."""
    ms = await until_next_turn(story)
    if ms is not None:
        await story.run(ms=ms)
    return ms is not None


async def sent(story: Story, count: int) -> None:
    """Let time pass until that much is sent."""
    for _ in range(40 * count):
        if len(story.world.effects) >= count:
            return
        assert await to_next_turn(story), "nothing waits, and not all is sent"
    raise AssertionError(f"only {len(story.world.effects)} of {count} are sent")


# -- rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["connectors.gmail", "workflows.story"])
async def test_a_rate_lets_so_many_through_at_once_and_the_next_when_the_first_is_that_long_ago(
    tmp_path: Path, place: str,
) -> None:
    async with Story(tmp_path, policy=policy({place: FlowLimit(rate="3/10s")})) as story:
        wf = await story.deploy_and_run(acting(), *"abcde")
        begun = story.clock.now_ms()
        assert len(story.world.effects) == 3
        run = await story.last(wf)
        assert (run.status, run.phase, run.failures, run.exhausted) == ("paused:limit", "mutating", 0, False)
        assert [m.status for m in await story.keep.mutations(wf)] == ["applied"] * 3, "none is recorded before its turn"
        await story.run(ms=9_999)
        assert len(story.world.effects) == 3
        await story.run(ms=1)
        assert len(story.world.effects) == 5
        assert times(story) == [begun] * 3 + [begun + 10_000] * 2
        again = await story.last(wf, "act")
        assert (again.id, again.status, again.attempt) == (run.id, "committed", 1) or again.status == "committed"
        assert {(r.status, r.attempt) for r in await story.runs(wf, "act")} == {("committed", 1)}, "no run is a retry"


@pytest.mark.parametrize("limit", [
    FlowLimit(rate="10/s"), FlowLimit(rate="10/s", burst=3), FlowLimit(rate="10/s", burst=25), FlowLimit(rate="1/3s"),
], ids=str)
async def test_no_window_of_a_rate_holds_more_than_it_may_over_kills_and_restarts(
    tmp_path: Path, limit: FlowLimit,
) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": limit})) as story:
        names = [f"i{n}" for n in range(150)]
        await story.deploy_and_run(acting(next=None), *names)
        for death in ("before:send", "after:send", "before:apply", "after:apply", "after:stop"):
            await story.crash(death, ms=await until_next_turn(story) or 0)
            await story.run()
            await story.reopen()
        await sent(story, len(names))
        assert sorted(e.params["to"] for e in story.world.effects) == sorted(names)
        rows = await story.keep.mutations((await story.keep.workflows())[0].id)
        for window in limit.windows:
            assert fullest(times(story), window) <= window.most
            assert fullest([row.first_sent_at for row in rows], window) <= window.most


