"""Consumers and their topics: what they are offered, what they may take, and the seeds' own examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepai import Policy, ScriptInvalid
from tests.harness import NOTHING, POLL, Story, consumer, js, producer, take_all, take_first, workflow

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Publishes every item of the feed to the topic that it names.
SPREAD = producer(publishes=["in", "side"])


async def test_a_consumer_of_several_topics_runs_for_any_of_them_and_may_take_from_all(story: Story) -> None:
    """R085, R087, R088, R327."""
    wf = await story.deploy_and_run(workflow(topics=["in", "side"], producers={"poll": SPREAD}, consumers={
        "take": consumer(take_all("in", "side"), subscribe=["in", "side"]),
    }))
    assert await story.runs(wf, "take") == [], "nothing waits, nothing runs"
    story.feed.put("a", topic="side")
    await story.run(minutes=5)
    assert await story.ids(wf, "side", "consumed") == ["a"]
    story.feed.put("b", topic="in")
    story.feed.put("c", topic="side")
    story.feed.put("d", topic="in")
    await story.run(minutes=5)
    assert await story.ids(wf, status="consumed") == ["a", "b", "c", "d"]
    assert len(await story.runs(wf, "take")) == 2, "one run took from both topics"


FOREIGN = {
    "peek": 'try { await ctx.peek(other); } catch (e) {} return { reservations: [], data: {} };',
    "getByIds": 'try { await ctx.getByIds(other, ["b"]); } catch (e) {} return { reservations: [], data: {} };',
    "reserve": 'return { reservations: [{ topic: other, ids: ["b"] }], data: {} };',
    "reserve both": 'return { reservations: [{ topic: "in", ids: ["a"] }, { topic: other, ids: ["b"] }], data: {} };',
    "peek undeclared": 'await ctx.peek(other + "s"); return { reservations: [], data: {} };',
    "peek nothing": 'await ctx.peek([][0]); return { reservations: [], data: {} };',
}


async def test_a_topic_that_is_not_subscribed_can_be_neither_read_nor_reserved(story: Story) -> None:
    """R089, R090: the run fails, names the rule and the line, and nothing is reserved, nothing sent."""
    story.feed.put("a", topic="in")
    story.feed.put("b", topic="side")
    ids = {
        name: await story.deploy(workflow(name, topics=["in", "side"], producers={"poll": SPREAD}, consumers={
            "take": consumer(f'const other = ["si", "de"].join(""); {body}', mutate="await ctx.webhook.fire({});"),
        })) for name, body in FOREIGN.items()
    }
    await story.run()
    for name, wf in ids.items():
        run = await story.last(wf, "take")
        assert (name, run.status, run.phase) == (name, "failed:logic", "preparing")
        assert run.error is not None
        assert run.error.code == "rule_broken", name
        assert {e.reserved_by for e in await story.events(wf)} == {None}, name
    assert story.world.effects == []


async def test_check_finds_a_topic_that_is_not_subscribed(story: Story) -> None:
    """R069, R089."""
    with pytest.raises(ScriptInvalid) as refused:
        await story.deploy(workflow(consumers={"take": consumer('await ctx.peek("out"); ' + NOTHING)}))
    assert "topic-not-subscribed" in {f.code for f in refused.value.findings}


async def test_a_consumer_takes_what_it_wants_in_any_order_and_the_rest_stays(story: Story) -> None:
    """R091, R092, R094: the host enforces no order; what was not reserved is offered again."""
    newest_even = """
      const events = (await ctx.peek("in")).filter(e => e.payload % 2 === 0);
      const last = events.at(-1);
      if (!last) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [last.messageId] }], data: last.payload };
    """
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(newest_even, next="return [...(ctx.state ?? []), prepared.data];"),
    }))
    for number in range(1, 6):
        story.feed.put(f"m{number}", number)
    await story.run()
    assert await story.keep.state(wf, "take") == [4, 2, {}]
    assert await story.ids(wf, status="consumed") == ["m2", "m4"]
    assert await story.ids(wf, status="pending") == ["m1", "m3", "m5"]
    runs = await story.runs(wf)
    assert len({r.id for r in runs}) == len(runs) == 4


async def test_peek_gives_a_hundred_events_unless_told_and_never_more_than_policy(tmp_path: Path) -> None:
    """R035, R093: oldest first."""
    look = """
      const seen = [];
      for (const options of [undefined, {}, { limit: 3 }, { limit: 150 }, { limit: 100000 }])
        seen.push((await ctx.peek("in", options)).map(e => e.payload));
      console.log(JSON.stringify(seen));
      return { reservations: [], data: {} };
    """
    async with Story(tmp_path, policy=Policy(peek_max=200)) as story:
        wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"look": consumer(look)}))
        for number in range(250):
            story.feed.put(str(number), number)
        await story.run()
        [log] = story.logs(await story.last(wf, "look"))
        assert json.loads(log) == [list(range(n)) for n in (100, 100, 3, 150, 200)]


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", '"3"', "true"])
async def test_a_limit_that_is_no_count_is_refused(story: Story, limit: str) -> None:
    """R093: rather than all events, or none."""
    look = f'await ctx.peek("in", {{ limit: {limit} }}); {NOTHING}'
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"look": consumer(look)}), "a")
    assert (await story.last(wf, "look")).status == "failed:logic"


async def test_get_by_ids_gives_only_what_waits(story: Story) -> None:
    """R011, R101: in the order asked for; the consumed, the skipped and the unknown are left out."""
    prepare = """
      const found = await ctx.getByIds("in", ["c", "gone", "eaten", "a", "skipped"]);
      console.log(found.map(e => `${e.messageId}=${e.payload}`).join());
      const eat = state ? [] : ["eaten"];
      return { reservations: eat.length ? [{ topic: "in", ids: eat }] : [], data: {} };
    """
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(prepare, next="return true;"),
    }))
    for id in ("a", "eaten", "skipped", "c"):
        story.feed.put(id, id.upper())
    await story.run()
    await story.keep.skip_event((await story.event(wf, "in", "skipped")).id)
    story.feed.put("new")
    await story.run(minutes=5)
    logs = [log for run in await story.runs(wf, "take") for log in story.logs(run)]
    assert logs[0] == "c=C,eaten=EATEN,a=A,skipped=SKIPPED"
    assert logs[-1] == "c=C,a=A"


@pytest.mark.parametrize("topic", ["other", "in", "nowhere"])
async def test_next_publishes_only_where_its_consumer_said_it_would(story: Story, topic: str) -> None:
    """R086: the run fails after its mutation, keeps it, and commits nothing; no catch holds it."""
    emit = f"""
      await ctx.publish("out", {{ messageId: "fine", payload: 1 }});
      const topic = JSON.parse({js(js(topic))});
      try {{ await ctx.publish([topic], {{ messageId: "x", payload: 1 }}); }} catch (e) {{}}
      return "went on";
    """
    wf = await story.deploy_and_run(workflow(topics=["in", "out", "other"], producers={"poll": producer()}, consumers={
        "take": consumer(publishes=["out"], mutate="await ctx.webhook.fire({});", next=emit),
    }), "a")
    run = await story.last(wf, "take")
    assert (run.status, run.phase) == ("failed:logic", "emitting")
    assert [(e.topic, e.status) for e in await story.events(wf)] == [("in", "pending")]
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
    assert await story.keep.state(wf, "take") is None
    await story.run(hours=2)
    assert len(story.world.effects) == 1


async def test_a_run_has_its_own_id_which_no_script_sees(story: Story) -> None:
    """R094, R095, R096: it keys the mutation; no step finds it in what it is given."""
    look = """
      const walk = (value, depth) => depth > 6 || value === null || !["object", "function"].includes(typeof value)
        ? [String(value)]
        : Reflect.ownKeys(value).flatMap(k => [String(k), ...walk(value[k], depth + 1)]);
      console.log(JSON.stringify([walk(ctx, 0), [...arguments].slice(1).map(a => walk(a, 0))]));
    """
    poll = producer(look.replace("arguments", "[0]") + POLL)
    wf = await story.deploy_and_run(workflow(producers={"poll": poll}, consumers={
        "take": consumer(look + take_first(), mutate=look + "await ctx.webhook.fire({});", next=look),
    }), "a")
    runs = await story.runs(wf)
    assert [r.status for r in runs] == ["committed", "committed"]
    logs = [log for run in runs for log in story.logs(run)]
    assert len(logs) == 4
    hidden = [run.id for run in runs] + [wf] + [run.id[4:] for run in runs]
    assert not [secret for secret in hidden for log in logs if secret in log]
    [mutation] = await story.keep.mutations(wf)
    assert mutation.run_id == runs[1].id


async def test_the_example_of_the_topics_chapter_runs_as_written(story: Story) -> None:
    """R098: mail → row → row.created, each mail once, with its input's title and its output beside it."""
    wf = await story.deploy((EXAMPLES / "email-to-sheets.js").read_text())
    story.world.deliver(from_="ann@example.com", subject="Invoice 1")
    story.world.deliver(from_="bob@example.com", subject="Invoice 2")
    await story.run()
    story.world.deliver(from_="cy@example.com", subject="Invoice 3")
    await story.run(minutes=5)
    await story.run(minutes=5)
    assert [row["values"] for row in story.world.rows["..."]] == [
        ["ann@example.com", "Invoice 1"], ["bob@example.com", "Invoice 2"], ["cy@example.com", "Invoice 3"],
    ]
    assert await story.keep.state(wf, "pollEmail") == {"cursor": "3"}
    assert [(e.message_id, e.payload) for e in await story.events(wf, "row.created")] == [
        (f"row:mail-{n}", {"rowId": f"row-{n}"}) for n in (1, 2, 3)
    ]
    inputs = await story.keep.inputs(wf)
    assert (inputs[0].title, inputs[0].status) == ('Email from ann@example.com: "Invoice 1"', "done")
    outputs = [(o.mutation.title, [i.external_id for i in o.inputs]) for o in await story.keep.outputs(wf)]
    assert outputs[2] == ("Add row for cy@example.com", ["mail-3"])
    assert {i.status for i in inputs} == {"done"}


async def test_the_example_of_the_execution_chapter_runs_as_written(story: Story) -> None:
    """R098, DESIGN 2: the older dialect. Its messageId is the same for all rows, so the last write wins."""
    done = await story.keep.deploy((EXAMPLES / "chapter-06.js").read_text(), grants="all")
    wf = done.workflow_id
    assert {f.severity for f in done.findings} == {"warning"}
    story.world.deliver(from_="ann@example.com", subject="One")
    await story.run()
    story.world.deliver(from_="bob@example.com", subject="Two")
    await story.run(minutes=5)
    rows = [row["values"] for row in story.world.rows["..."]]
    assert rows == [["ann@example.com", "One"], ["bob@example.com", "Two"]]
    inputs = await story.inputs(wf)
    assert {(i.source, i.type) for i in inputs.values()} == {("workflow", "email.received")}
    assert [i.title for i in inputs.values()] == [
        'Email from ann@example.com: "One"', 'Email from bob@example.com: "Two"',
    ]
    [created] = await story.events(wf, "row.created")
    assert (created.message_id, created.payload) == ("row:undefined", {"rowId": "row-2"})
    assert set(created.caused_by) == {i.id for i in inputs.values()}


async def test_both_examples_run_side_by_side_on_one_mailbox(story: Story) -> None:
    """R026, R042, R098: each its own inputs, events and cursor."""
    names = ("chapter-06.js", "email-to-sheets.js", "routine-invoices.js")
    ids = [await story.deploy((EXAMPLES / name).read_text()) for name in names]
    story.world.deliver(subject="Only one")
    await story.run()
    assert len(ids) >= 2
    assert len(story.world.rows["..."]) == 2
    inputs = [i for wf in ids for i in await story.keep.inputs(wf)]
    assert len(inputs) == len({i.id for i in inputs}) == len(ids)
