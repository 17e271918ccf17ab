"""What a new host makes of what the one before left: settle times that run, and connectors that were missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, OutcomeUnknown, Verdict, mutation
from keepai.model.errors import Refused
from tests.harness import Story, consumer, producer, workflow


class Slow(Connector):
    """An outside system in which an effect may show a minute after the call ended, and that may not be asked."""

    @mutation(identity=("to",), settle=60)
    async def post(self, params: dict[str, Any], call: Call) -> None:
        """Post, and lose the answer."""
        raise OutcomeUnknown("lost")

    @post.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Nobody can tell."""
        return Verdict.unknown("the archive is closed")


POST = "await ctx.slow.post({ to: prepared.data.messageId });"
FLOW = workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=POST)})


async def in_question(story: Story) -> str:
    """A mutation that only a person can tell about; gives its id."""
    story.feed.put("a")
    wf = await story.deploy(FLOW)
    await story.run()
    [row] = await story.keep.mutations(wf)
    assert row.status == "indeterminate"
    return row.id


# -- settle ------------------------------------------------------------------------------------------


async def test_the_settle_time_of_an_earlier_hosts_call_runs_from_the_restart_and_not_from_the_first_look(
    tmp_path: Path,
) -> None:
    async with Story(tmp_path, connectors=[Slow()]) as story:
        mutation_id = await in_question(story)
        await story.reopen()
        story.clock.advance(hours=1)  # nobody has looked at it
        await story.keep.resolve(mutation_id, "did_not_happen")


async def test_the_settle_time_of_an_earlier_hosts_call_starts_anew_with_the_restart(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Slow()]) as story:
        mutation_id = await in_question(story)
        story.clock.advance(hours=1)
        await story.reopen()  # how long the machine was off, no clock of ours has measured
        story.clock.advance(seconds=59)
        with pytest.raises(Refused, match="answer in 1 s"):
            await story.keep.resolve(mutation_id, "did_not_happen")
        story.clock.advance(seconds=1)
        await story.keep.resolve(mutation_id, "did_not_happen")
