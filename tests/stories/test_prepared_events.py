"""`mutate` and `next` are given the reserved events as they were pinned: `prepared.events`.

Whatever happens between the steps (a crash, a retry, a new payload for the same event), it is the same list. Nothing of
it is kept a second time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Keep, Policy, Transient, read
from keepai.ledger.transitions import events
from keepai.ledger.transitions.events import Publication
from tests.harness import NOTHING, Story, consumer, producer, take_first, workflow

TELL = "ctx.log(prepared.events.length); for (const event of prepared.events) ctx.log(JSON.stringify(event));"
SEND = "const [first] = prepared.events; await ctx.gmail.send({ to: first.messageId, body: first.payload });"
LARGE = {"n": 1, "text": "é" * 2500, "rows": [{"i": i} for i in range(300)]}

#: Reserves the events of two topics, in another order than `peek` has them, and copies nothing.
BACKWARDS = """
  const some = await ctx.peek("in");
  const more = await ctx.peek("out");
  if (!some.length) return { reservations: [], data: {} };
  return {
    reservations: [{ topic: "out", ids: more.map(e => e.messageId) },
                   { topic: "in", ids: some.map(e => e.messageId).reverse() }], data: {} };
"""


def sending(prepare: str | None = None, *, mutate: str = SEND, next: str = TELL, **more: Any) -> str:
    taken = take_first().replace("data: event", "data: {}") if prepare is None else prepare
    return workflow(
        producers={"poll": producer(publishes=("in", "out"))},
        consumers={"act": consumer(taken, mutate=mutate, next=next, **more)},
    )


def told(story: Story, run: Any) -> list[Any]:
    """Every list of events that the steps of a run have told, one after the other."""
    lists: list[list[Any]] = []
    for line in map(json.loads, story.logs(run)):
        if isinstance(line, int):
            lists.append([])
        else:
            lists[-1].append(line)
    return lists


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("payload", [{"n": 1}, LARGE, "x" * 4000, None], ids=["small", "large", "text", "nothing"])
async def test_both_steps_see_the_events_in_the_order_of_the_reservations(
    tmp_path: Path, payload: Any, speculate: bool,
) -> None:
    async with Story(tmp_path, policy=Policy(speculate=speculate)) as story:
        for id, topic in (("a", "in"), ("b", "in"), ("c", "out"), ("d", "out")):
            story.feed.put(id, payload, topic=topic)
        mutate = "await ctx.gmail.send({ to: 'x', body: prepared.events });"
        wf = await story.deploy_and_run(sending(BACKWARDS, mutate=mutate, subscribe=("in", "out")))
        wanted = [{"messageId": id, "payload": payload, "topic": topic}
                  for id, topic in (("c", "out"), ("d", "out"), ("b", "in"), ("a", "in"))]
        [row] = await story.keep.mutations(wf)
        assert row.params == {"to": "x", "body": wanted}
        [run] = [each for each in await story.runs(wf, "act") if each.prepare_result and "out" in each.prepare_result]
        assert told(story, run) == [wanted]
        kept = json.loads(run.prepare_result or "")
        assert "events" not in kept
        assert "é" not in json.dumps(kept, ensure_ascii=False)


async def test_a_run_that_reserved_nothing_has_no_events(story: Story) -> None:
    wf = await story.deploy_and_run(sending(NOTHING), "a")
    assert told(story, await story.last(wf, "act")) == [[]]


@pytest.mark.parametrize("point", ["after:prepare", "after:apply", "before:commit_consumer"])
@pytest.mark.parametrize("payload", ["old", LARGE], ids=["small", "large"])
async def test_after_a_crash_the_events_are_those_that_were_pinned(story: Story, point: str, payload: Any) -> None:
    story.feed.put("a", payload)
    wf = await story.deploy(sending(mutate=TELL + SEND))
    await story.crash(point)
    story.feed.put("a", "new")
    await story.keep.run_now(wf)
    await story.run()
    [row] = await story.keep.mutations(wf)
    assert row.params == {"to": "a", "body": payload}
    runs = await story.runs(wf, "act")
    said = [each for run in runs for each in told(story, run)]
    assert said
    pinned = [{"messageId": "a", "payload": payload, "topic": "in"}]
    assert [each for each in said if each] == [pinned] * len([each for each in said if each])
    assert pinned in said


async def test_a_retry_is_given_the_events_that_were_pinned(story: Story) -> None:
    story.feed.put("a", LARGE)
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(sending())
    story.feed.put("a", "new")
    await story.run(minutes=5)
    rows = await story.keep.mutations(wf)
    assert [row.params for row in rows] == [{"to": "a", "body": LARGE}] * 2
    assert [row.status for row in rows] == ["failed", "applied"]


async def test_next_is_given_the_events_of_a_run_that_a_person_skips(story: Story) -> None:
    story.feed.put("a", LARGE)
    wf = await story.deploy_and_run(sending(mutate="throw new Error('no');"))
    await story.keep.skip_run((await story.last(wf, "act")).id)
    await story.run()
    said = [each for run in await story.runs(wf, "act") for each in told(story, run)]
    assert [{"messageId": "a", "payload": LARGE, "topic": "in"}] in said


@pytest.mark.parametrize("speculate", [True, False])
async def test_a_result_with_events_of_its_own_is_a_logic_failure_that_says_so(tmp_path: Path, speculate: bool) -> None:
    async with Story(tmp_path, policy=Policy(speculate=speculate)) as story:
        story.feed.put("a")
        own = take_first().replace("ui:", "...JSON.parse('{\"events\":[]}'), ui:")
        wf = await story.deploy_and_run(sending(own))
        run = await story.last(wf, "act")
        assert (run.status, run.phase) == ("failed:logic", "preparing")
        assert "prepare of act returned a member `events`" in run.error.message
        assert (await story.event(wf, "in", "a")).reserved_by is None
        assert story.world.asked == []


class Meanwhile(Connector):
    """Somebody gives the event another payload after `prepare` has seen it, and before it is pinned."""

    def __init__(self) -> None:
        super().__init__(name="meanwhile")
        self.keep: Keep | None = None

    @read
    async def look(self, params: dict[str, Any], call: Call) -> None:
        """Publish over the event, as a run of the same workflow would."""
        assert self.keep is not None
        [publication] = [Publication("in", "a", '"new"', ())]
        await self.keep.parts.ledger.write(events.publish, call.workflow_id, call.run_id, [publication], 10)


async def test_what_mutate_was_tried_with_counts_only_if_that_is_what_was_pinned(tmp_path: Path) -> None:
    meanwhile = Meanwhile()
    async with Story(tmp_path, connectors=[meanwhile]) as story:
        meanwhile.keep = story.keep
        story.feed.put("a", "old")
        looking = take_first().replace("data: event", "data: {}").replace(
            "if (!event)", "await ctx.meanwhile.look({}); if (!event)")
        wf = await story.deploy_and_run(sending(looking))
        [row] = await story.keep.mutations(wf)
        assert row.params == {"to": "a", "body": "new"}
        assert [e.params["body"] for e in story.world.effects] == ["new"]
