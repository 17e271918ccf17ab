"""A run begins in the commit that ends the one before it, unless something else comes first."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

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


# -- what a run is told by the one before it, instead of asking the ledger --------------------------------------------

COUNT = "return { count: (ctx.state?.count ?? 0) + 1 };"
SOMETIMES = "if (prepared.data.messageId === 'b') return;" + COUNT  # nothing returned: the state stays
SEEN = """
    const [event] = await ctx.peek('{topic}', {{ limit: 1 }});
    if (!event) return {{ reservations: [], data: {{}} }};
    return {{ reservations: [{{ topic: '{topic}', ids: [event.messageId] }}],
              data: {{ messageId: event.messageId, seen: state?.count ?? 0 }} }};"""


async def seen(story: Story, wf: str, handler: str) -> list[int]:
    """The state that each run's `prepare` was given, in order."""
    return [json.loads(run.prepare_result or "")["data"]["seen"] for run in await story.runs(wf, handler)]


def asked(story: Story, query: str) -> list[str]:
    """The handlers about which the ledger is asked from here on."""
    read, names = story.reader(), list[str]()
    one = read.one

    def listen(name: str, **params: Any) -> Any:
        if name == query:
            names.append(params["handler"])
        return one(name, **params)
    read.one = listen  # type: ignore[method-assign]
    return names


@pytest.mark.sqlite("it listens to the reader that its hosts share")
@pytest.mark.parametrize(("then", "states"), [(COUNT, [0, 1, 2, 3]), (SOMETIMES, [0, 1, 1, 2]), (None, [0, 0, 0, 0])])
async def test_a_run_is_given_the_state_that_the_one_before_it_has_left(
    story: Story, then: str | None, states: list[int],
) -> None:
    for message in "abcd":
        story.feed.put(message)
    act = consumer(SEEN.format(topic="in"), mutate=None, next=then)
    wf = await story.deploy(workflow("story", producers={"poll": producer()}, consumers={"act": act}))
    names = asked(story, "handler_get")
    await story.run()
    assert await seen(story, wf, "act") == states
    assert names.count("act") == 1, "the first run asks; those that begin in another's commit are told"


@pytest.mark.sqlite("it listens to the reader that its hosts share")
async def test_a_run_is_not_given_the_state_of_another_handler(story: Story) -> None:
    for number, message in enumerate("abcdef"):
        story.feed.put(message, topic=("in", "side")[number % 2])
    handlers = {
        name: consumer(SEEN.format(topic=topic), mutate=None, next=COUNT, subscribe=(topic,))
        for name, topic in (("act", "in"), ("beside", "side"))
    }
    poll = producer(publishes=("in", "side"))
    wf = await story.deploy(workflow("story", topics=("in", "side"), producers={"poll": poll}, consumers=handlers))
    names = asked(story, "handler_get")
    await story.run()
    assert [run.handler for run in await story.runs(wf)][1:] == ["act", "beside"] * 3, "they take turns"
    assert await seen(story, wf, "act") == await seen(story, wf, "beside") == [0, 1, 2]
    assert names[1:] == ["act", "beside"] * 3, "each asks for its own"


async def test_a_run_that_fails_passes_no_state_on(story: Story) -> None:
    for message in "abc":
        story.feed.put(message)
    broken = "if (prepared.data.messageId === 'b' && ctx.state.count === 1) throw new Error('no'); " + COUNT
    act = consumer(SEEN.format(topic="in"), mutate=None, next=broken)
    source = workflow("story", producers={"poll": producer()}, consumers={"act": act})
    wf = await story.deploy_and_run(source)
    await story.deploy_and_run(source.replace("throw new Error('no');", "return { count: 7 };"), workflow_id=wf)
    committed = [r for r in await story.runs(wf, "act") if r.status == "committed"]
    assert [json.loads(r.prepare_result or "")["data"]["seen"] for r in committed] == [0, 1, 7]
