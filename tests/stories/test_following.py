"""A run begins in the commit that ends the one before it, unless something else comes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from keepai import Call, Connector, mutation
from tests.harness import Story, consumer, producer, workflow

PASS = "await ctx.door.enter({ of: prepared.data.messageId });"


class Door(Connector):
    """A mutation in whose middle a test may act once."""

    def __init__(self) -> None:
        super().__init__(name="door")
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None

    @mutation(identity=("of",))
    async def enter(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        """Go through."""
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act()
        return {}


def passing(log: str = "") -> str:
    then = f"ctx.log('{log}');"
    return workflow("story", producers={"poll": producer()}, consumers={"act": consumer(mutate=PASS, next=then)})


async def ready(folder: Path, *messages: str) -> tuple[Story, Door]:
    door = Door()
    story = Story(folder, connectors=[door])
    for message in messages:
        story.feed.put(message)
    return story, door


async def test_a_run_and_the_one_after_it_are_one_commit(tmp_path: Path) -> None:
    story, _ = await ready(tmp_path, "a", "b")
    async with story:
        wf = await story.deploy(passing())
        await story.crash("after:commit_consumer")
        first, second, third = await story.runs(wf, "act")
        assert (first.status, second.status) == ("committed", "crashed")
        assert (third.retry_of, third.phase) == (second.id, "preparing")
        await story.run()
        assert await story.ids(wf, "in", "consumed") == ["a", "b"]


async def test_a_commit_that_never_came_leaves_no_run_behind_it(tmp_path: Path) -> None:
    story, _ = await ready(tmp_path, "a", "b")
    async with story:
        wf = await story.deploy(passing())
        await story.crash("before:commit_consumer")
        assert [r.attempt for r in await story.runs(wf, "act")] == [1, 2], "of the first event alone"


async def test_nothing_follows_in_a_workflow_that_was_paused_meanwhile(tmp_path: Path) -> None:
    story, door = await ready(tmp_path, "a", "b")
    async with story:
        wf = await story.deploy(passing())
        door.meanwhile = lambda: story.keep.pause(wf)
        await story.run()
        assert [r.status for r in await story.runs(wf, "act")] == ["committed"]
        await story.keep.resume(wf)
        await story.run()
        assert [r.status for r in await story.runs(wf, "act")] == ["committed", "committed"]


async def test_what_follows_has_the_version_that_was_deployed_meanwhile(tmp_path: Path) -> None:
    story, door = await ready(tmp_path, "a", "b")
    async with story:
        wf = await story.deploy(passing("old"))
        door.meanwhile = lambda: story.deploy(passing("new"), workflow_id=wf)
        await story.run()
        first, second = await story.runs(wf, "act")
        assert (first.version, second.version) == ("1.0", "2.0")
        assert (story.logs(first), story.logs(second)) == (["old"], ["new"])
