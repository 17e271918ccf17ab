"""A host that loses a COMMIT sends nothing that is not on record, and the next one does all of it once (I26)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from keepai.model import crash_points
from keepai.model.errors import KeepError, LedgerStopped
from tests.harness import SPECULATE, Story, acting
from tests.ledger.stores import chosen
from tests.postgres import StatementCutter

#: More commits than there are.
NEVER = 1_000

#: The commits that put on record what is about to be sent.
INTENTS = ("after:prepare_and_send", "after:send")


@pytest.fixture(autouse=True)
def store_of_stories() -> Iterator[None]:
    with chosen("postgres"):
        yield


async def begun(folder: Path, cutter: StatementCutter) -> tuple[Story, str]:
    """A host that is connected through the cutter, with one thing to do."""
    story = Story(folder)
    cutter.upstream = story.store.server.port  # type: ignore[attr-defined]
    story.path = re.sub(r":\d+/", f":{cutter.port}/", story.path)
    await story.open()
    wf = await story.deploy(acting())
    story.feed.put("a")
    return story, wf


async def lives(story: Story, cutter: StatementCutter, manner: str) -> list[str]:
    """Run until the cut has stopped the host; what was acknowledged to it."""
    reached: list[str] = []
    crash_points.listen(reached.append)
    try:
        running = asyncio.create_task(story.run())
        assert await asyncio.to_thread(cutter.met.wait, 30)
        if manner == "silent":
            assert not running.done()
            cutter.release.set()
        with pytest.raises(LedgerStopped):
            await running
        with suppress(KeepError):
            await story.keep.host.close(0)
    finally:
        crash_points.listen(None)
    return reached


async def is_dead(story: Story) -> None:
    """The process of the host is gone, and what it still wanted to record."""
    parts = story.keep.parts
    for call in parts.calls:
        call.cancel()
    await parts.runtime.close()
    await parts.ledger.close()


@pytest.mark.parametrize("manner", ["before", "after", "late", "silent"])
async def test_whichever_commit_is_lost_the_effect_comes_once(tmp_path: Path, manner: str) -> None:
    with StatementCutter(0) as cutter:
        story, wf = await begun(tmp_path / "whole", cutter)
        cutter.cut(NEVER, manner, only_commits=True)
        await story.run()
        commits = cutter.counted()
        await story.keep.close()
        assert commits >= (4 if SPECULATE else 6)
        for number in range(1, commits + 1):
            story, wf = await begun(tmp_path / str(number), cutter)
            cutter.cut(number, manner, only_commits=True)
            reached = await lives(story, cutter, manner)
            sent = len(story.world.effects)
            assert sent == 0 or any(point in INTENTS for point in reached), number
            cutter.release.set()
            assert await asyncio.to_thread(cutter.over.wait, 30)
            await is_dead(story)
            await story.open()
            for _ in range(4):
                await story.run(minutes=10)
            assert [effect.params["to"] for effect in story.world.effects] == ["a"], number
            *before, last = [m.status for m in await story.keep.mutations(wf)]
            assert (set(before) <= {"failed"}, last) == (True, "applied"), number  # looked up, and was not there
            assert [e.status for e in await story.events(wf)] == ["consumed"], number
            assert await story.keep.needs_you() == [], number
            await story.keep.close()
