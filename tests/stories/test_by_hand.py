"""What a person sends in by hand: into a topic as a producer would, into an inbox as a delivery; and replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai import Policy
from keepai.connectors.webhook.inbox import Inbox
from keepai.model.errors import BadValue, KeepError, LimitExceeded, NotFound, Refused
from keepai.testing import CrashAt, Crashed
from tests.harness import NOTHING, SEND, Story, acting, consumer, producer, workflow

#: Reads an inbox and works on each delivery once.
READS = """
export default Keep.workflow({ name: "story", topics: { "in": {} },
  producers: { poll: { publishes: ["in"], schedule: { interval: "5m" }, handler: async (ctx, state) => {
    const page = await ctx.box.list({ after: state?.cursor });
    for (const each of page) {
      const inputId = ctx.registerInput({ source: "box", type: "delivery", id: each.id, title: each.id });
      await ctx.publish("in", { messageId: each.id, inputId, payload: each.body });
    }
    return { cursor: page.lastCursor };
  } } },
  consumers: { take: Keep.consumer({ subscribe: ["in"], publishes: [],
    async prepare(ctx) {
      const [event] = await ctx.peek("in");
      return event ? { reservations: [{ topic: "in", ids: [event.messageId] }], data: event, ui: { title: "x" } }
                   : { reservations: [], data: {} };
    },
    async mutate(ctx, prepared) { await ctx.gmail.send({ to: "ann", body: JSON.stringify(prepared.data.payload) }); },
  }) },
});"""


async def test_what_is_sent_in_is_an_input_and_an_event_and_is_worked_on(story: Story) -> None:
    wf = await story.deploy_and_run(acting())
    sent = await story.keep.send("in", {"total": 3}, title="Ann, by phone")
    event, found = await story.event(wf, "in", str(sent["id"])), (await story.inputs(wf))[str(sent["id"])]
    assert (event.payload, event.caused_by, event.status) == ({"total": 3}, (found.id,), "pending")
    assert (found.source, found.type, found.title, found.status) == ("manual", "in", "Ann, by phone", "pending")
    await story.run()
    assert [e.params["to"] for e in story.world.effects] == [sent["id"]]
    [mutation] = await story.keep.mutations(wf)
    outputs = (await story.keep.input(found.id)).outputs
    assert outputs is not None
    assert [each.id for each in outputs] == [mutation.id], "what came of it is found"
    assert story.feed.items == []


async def test_who_sent_it_in_and_when_is_on_record(story: Story) -> None:
    wf = await story.deploy_and_run(acting())
    sent = await story.keep.send("in", 1, id="a")
    told = (await story.keep.explain(str(sent["input"]))).story
    assert ("act", "send", "person") in [(line.machine, line.target, line.by) for line in told]
    assert (await story.keep.input(str(sent["input"]))).created_at == story.clock.now_ms()
    await story.run()
    assert (await story.keep.explain(str(sent["event"]))).standing == "consumed"
    assert (await story.keep.explain(wf)).moved_by


async def test_with_the_same_id_it_is_there_once(story: Story) -> None:
    wf = await story.deploy_and_run(acting())
    first = await story.keep.send("in", {"n": 1}, id="a", title="First")
    again = await story.keep.send("in", {"n": 1}, id="a", title="Again")
    assert (first["became"], again["became"], first["event"]) == ("new", "known", again["event"])
    assert (await story.keep.send("in", {"n": 2}, id="a"))["became"] == "changed"
    await story.run()
    assert [e.params["to"] for e in story.world.effects] == ["a"]
    assert (await story.event(wf, "in", "a")).payload == {"n": 2}
    assert (await story.keep.send("in", {"n": 3}, id="a"))["became"] == "late", "it was taken"
    await story.run()
    assert len(story.world.effects) == 1
    assert [each.title for each in await story.keep.inputs(wf)] == ["First"]


async def test_it_joins_what_a_producer_publishes_under_the_same_id(story: Story) -> None:
    leaves_it = workflow(producers={"poll": producer()}, consumers={"take": consumer(NOTHING)})
    wf = await story.deploy(leaves_it)
    await story.keep.send("in", "by phone", id="a")
    story.feed.put("a", "from the feed")
    await story.run()
    event = await story.event(wf, "in", "a")
    assert (event.payload, len(event.caused_by)) == ("from the feed", 2)


async def test_it_is_sent_in_while_the_workflow_works_and_while_it_rests(story: Story) -> None:
    wf = await story.deploy_and_run(acting())

    async def send_in(params: Any, call: Any) -> None:
        if len(story.world.effects) == 1:
            await story.keep.send("in", 2, id="second")

    story.world.on("gmail.send").before(send_in)
    await story.keep.send("in", 1, id="first")
    await story.run()
    await story.keep.pause(wf)
    await story.keep.send("in", 3, id="third")
    await story.run()
    assert await story.ids(wf, "in", "pending") == ["third"]
    await story.keep.resume(wf)
    await story.run()
    assert sorted(e.params["to"] for e in story.world.effects) == ["first", "second", "third"]


async def test_a_kill_around_it_leaves_all_of_it_or_nothing(story: Story) -> None:
    wf = await story.deploy_and_run(acting())
    for point, there in (("before:send", 0), ("after:send", 1)):
        with CrashAt(point), pytest.raises(Crashed):
            await story.keep.send("in", 1, id=point)
        parts = story.keep.parts
        await parts.runtime.close()
        await parts.ledger.close()
        await story.open()
        assert len([i for i in await story.keep.inputs(wf) if i.external_id == point]) == there
        assert len([e for e in await story.keep.events(wf) if e.message_id == point]) == there


@pytest.mark.parametrize(("to", "data", "more", "error"), [
    ("nowhere", 1, {}, NotFound),
    ("in", "x" * 2_000_000, {}, LimitExceeded),
    ("in", float("nan"), {}, BadValue),
    ("in", 1, {"id": ""}, KeepError),
    ("in", 1, {"id": "a\0b"}, KeepError),
    ("in", 1, {"shown": 10_000}, Refused),
], ids=str)
async def test_what_no_producer_could_publish_is_refused(
    story: Story, to: str, data: Any, more: dict[str, Any], error: type[KeepError],
) -> None:
    wf = await story.deploy(acting())
    with pytest.raises(error):
        await story.keep.send(to, data, **more)
    assert await story.keep.inputs(wf) == []


async def test_a_page_that_shows_an_older_version_sends_nothing_in(story: Story) -> None:
    wf = await story.deploy(acting())
    shown = await story.keep.version()
    await story.deploy(acting(SEND + "/* other */"))
    with pytest.raises(Refused, match="moved since"):
        await story.keep.send("in", 1, shown=shown)
    assert await story.keep.inputs(wf) == []


async def test_a_workflow_is_named_where_several_have_the_topic(story: Story) -> None:
    first, second = [await story.deploy(acting(name=name)) for name in ("one", "two")]
    with pytest.raises(Refused, match="one, two"):
        await story.keep.send("in", 1)
    await story.keep.send("two/in", 1, id="a")
    assert (await story.inputs(first), list(await story.inputs(second))) == ({}, ["a"])


async def test_a_script_cannot_register_an_input_as_sent_in_by_hand(story: Story) -> None:
    body = 'const source = ["man", "ual"].join(""); ctx.registerInput({ source, type: "in", id: "a", title: "Ann" });'
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(body)}, consumers={"take": consumer()}))
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert await story.keep.inputs(wf) == []


async def test_a_workflow_that_is_full_takes_nothing_more(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(workflow_bytes_max=1)) as story:
        wf = await story.deploy(acting())
        with story.keep.parts.ledger.under_way():
            await story.keep.send("in", "x" * 100)
        with pytest.raises(Refused, match="workflow_bytes_max"):
            await story.keep.send("in", 1)
        assert len(await story.keep.inputs(wf)) == 1


# -- inboxes -----------------------------------------------------------------------------------------------


async def test_into_an_inbox_it_is_a_delivery_that_came_in(tmp_path: Path) -> None:
    box = Inbox(tmp_path / "box", create=True, name="box")
    async with Story(tmp_path, connectors=[box]) as story:
        wf = await story.deploy_and_run(READS)
        sent = await story.keep.send("box", {"total": 3}, id="o1")
        assert (sent["became"], (await story.keep.send("box", {"total": 3}, id="o1"))["became"]) == ("new", "known")
        await story.run(minutes=5)
        assert [e.params["body"] for e in story.world.effects] == ['{"total":3}']
        assert list(await story.inputs(wf)) == ["o1"]
        [kept] = await story.keep.deliveries()
        assert (kept.inbox, kept.id, kept.body, kept.by, kept.repeats) == ("box", "o1", {"total": 3}, "person", None)


async def test_a_replay_puts_a_delivery_in_once_more_and_says_what_it_repeats(tmp_path: Path) -> None:
    box = Inbox(tmp_path / "box", create=True, name="box")
    async with Story(tmp_path, connectors=[box]) as story:
        wf = await story.deploy_and_run(READS)
        await story.keep.send("box", {"total": 3}, id="o1")
        await story.run(minutes=5)
        replayed = await story.keep.replay("o1")
        first, again = await story.keep.deliveries("box")
        assert (replayed["repeats"], again.repeats, again.id, again.body) == ("o1", "o1", replayed["id"], first.body)
        await story.run(minutes=5)
        assert [e.params["body"] for e in story.world.effects] == ['{"total":3}'] * 2
        assert list(await story.inputs(wf)) == ["o1", again.id]
        assert (await story.keep.replay(again.cursor))["repeats"] == again.id


async def test_what_is_no_delivery_is_not_replayed(tmp_path: Path) -> None:
    box = Inbox(tmp_path / "box", create=True, bytes_max=100, name="box")
    async with Story(tmp_path, connectors=[box]) as story:
        with pytest.raises(NotFound, match="keep deliveries"):
            await story.keep.replay("nothing")
        with pytest.raises(NotFound, match="There are: box"):
            await story.keep.replay("nothing", "other")
        with pytest.raises(LimitExceeded):
            await story.keep.send("box", "x" * 101)
        assert await story.keep.deliveries() == []


async def test_an_inbox_and_a_topic_of_one_name_are_told_apart(tmp_path: Path) -> None:
    box = Inbox(tmp_path / "box", create=True, name="orders")
    async with Story(tmp_path, connectors=[box]) as story:
        await story.deploy(workflow(topics=("orders",)))
        with pytest.raises(Refused, match="WORKFLOW/orders"):
            await story.keep.send("orders", 1)
        assert "event" in await story.keep.send("story/orders", 1)
