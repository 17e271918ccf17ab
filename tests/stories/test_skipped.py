"""What a read had to leave out is counted and named where a person looks at the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keepai import Call, Connector, read
from tests.harness import Story, producer, workflow


class Box(Connector):
    """A mailbox with some messages that cannot be read."""

    bad = 0

    @read
    async def search(self, params: dict[str, Any], call: Call) -> list[int]:
        """Find one good message among the bad ones."""
        for n in range(self.bad):
            call.skip(f"the message {n} (RecursionError)")
        return [1]


async def test_what_a_read_left_out_is_counted_and_named_in_the_run(tmp_path: Path) -> None:
    box = Box()
    async with Story(tmp_path, connectors=[box]) as story:
        twice = "await ctx.box.search({}); await ctx.box.search({});"
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(twice)}))
        assert story.warnings(await story.last(wf)) == []
        box.bad = 7
        await story.keep.run_now(wf)
        await story.run()
        run = await story.last(wf)
        assert run.status.value == "committed", "one bad message is no failure"
        assert story.warnings(run) == [
            "ctx.box.search could not read 7 of what it found, and left it out: " + "; ".join(
                f"the message {n} (RecursionError)" for n in range(5)) + "; …",
        ] * 2
