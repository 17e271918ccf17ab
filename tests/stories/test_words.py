"""What the author of a script is told is in the words of JavaScript, and nothing is cut in silence."""

from __future__ import annotations

import re

import pytest

from tests.harness import Story, consumer, producer, take_first, workflow
from tests.routines import routine

#: Words that only Python has.
PYTHON = re.compile(r"\b(None|True|False|dict|int|str|float|bool|tuple|nan|inf)\b|'")

REGISTER = 'ctx.registerInput({ source: "feed", type: "item", id: "i", title: "T" })'

#: A producer's body → what is said.
IN_A_PRODUCER = {
    'ctx.registerInput({ source: "feed", type: "item", id: 5, title: "T" });': "must be a non-empty string, not 5.",
    'ctx.registerInput({ source: "feed", type: "item", id: null, title: "T" });': "string, not null.",
    'ctx.registerInput({ source: "feed", type: "item", id: { a: 1 }, title: "T" });': "string, not an object.",
    'ctx.registerInput({ source: "feed", type: "item", id: ["a"], title: "T" });': "string, not an array.",
    'ctx.registerInput({ source: "feed", type: "item", id: "i", title: false });': "it is false.",
    f"ctx.publish(null, {{ messageId: 'm', inputId: {REGISTER} }});": "the topic null is not declared.",
    f"ctx.publish(true, {{ messageId: 'm', inputId: {REGISTER} }});": "the topic true is not declared.",
    f"ctx.publish({{}}, {{ messageId: 'm', inputId: {REGISTER} }});": "the topic an object is not declared.",
    f"ctx.publish('in', {{ messageId: 1.5, inputId: {REGISTER} }});": "must be a non-empty string, not 1.5.",
    "const params = [1]; await ctx.feed.list(params.slice());": "takes one object, not an array.",
    "const params = 'all'; await ctx.feed.list(params.slice());": 'takes one object, not "all".',
}

#: The body of `prepare` → what is said.
IN_PREPARE = {
    'await ctx.peek("in", { limit: "5" });': 'limit must be a whole number above zero, not "5".',
    'await ctx.peek("in", { limit: true });': "limit must be a whole number above zero, not true.",
    'await ctx.peek("in", { after: 5 });': "earlier page of this topic, not 5.",
    "await ctx.peek(7);": 'does not subscribe to the topic 7. It subscribes to "in".',
    'return { reservations: [{ topic: "in", ids: [7] }], data: {} };': "must be a non-empty string, not 7.",
    "return { reservations: [{ topic: null, ids: [] }], data: {} };": "events of the topic null, to which",
}


def named(text: str) -> str:
    return re.sub(r"\W+", "-", text)[:60]


@pytest.mark.parametrize(("body", "said"), IN_A_PRODUCER.items(), ids=map(named, IN_A_PRODUCER))
async def test_a_producer_that_breaks_a_rule_is_told_so_in_javascript(story: Story, body: str, said: str) -> None:
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(body)}))
    await told(story, wf, said)


@pytest.mark.parametrize(("body", "said"), IN_PREPARE.items(), ids=map(named, IN_PREPARE))
async def test_a_consumer_that_breaks_a_rule_is_told_so_in_javascript(story: Story, body: str, said: str) -> None:
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"take": consumer(body)}), "a")
    await told(story, wf, said)


async def told(story: Story, wf: str, said: str) -> None:
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert run.error is not None
    assert said in run.error.message
    assert not PYTHON.search(run.error.message), run.error.message


async def test_a_subkey_that_is_no_text_is_told_in_javascript(story: Story) -> None:
    wf = await story.deploy_and_run(routine("""
        await ctx.withItem("a", "A", async (ctx) => {
          if (!ctx.item.isDone) await ctx.gmail.send({ to: "a@b.c", body: "b", subkey: 5 });
        });"""))
    await told(story, wf, "subkey must be a non-empty string, not 5.")


async def test_a_wake_time_that_is_no_date_is_shown_as_it_was_written(story: Story) -> None:
    story.feed.put("a")
    take = take_first().replace("data: event,", "data: event, wakeAt: [1],")
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"take": consumer(take)}))
    [warning] = story.warnings(await story.last(wf, "take"))
    assert warning == "wakeAt is an array, which is no ISO-8601 date, and was ignored."


async def test_a_title_that_is_cut_leaves_one_warning_on_the_run(story: Story) -> None:
    for name in ("a", "b"):
        story.feed.put(name, title=name * 1500)
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}))
    inputs = await story.inputs(wf)
    assert (inputs["a"].title, inputs["b"].title) == ("a" * 1000, "b" * 1000)
    [warning] = story.warnings(await story.last(wf, "poll"))
    assert warning.startswith('ctx.registerInput: the title "aaaa')
    assert "has 1,500 characters. People see the first 1,000" in warning


async def test_a_title_that_just_fits_leaves_no_warning(story: Story) -> None:
    story.feed.put("a", title="a" * 1000)
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}))
    assert (await story.inputs(wf))["a"].title == "a" * 1000
    assert story.warnings(await story.last(wf, "poll")) == []


async def test_an_items_title_that_is_cut_leaves_one_warning_on_the_run(story: Story) -> None:
    wf = await story.deploy_and_run(routine("""
        for (const id of ["a", "b"]) await ctx.withItem(id, id.repeat(1001), async (ctx) => {});"""))
    assert [item.title for item in await story.keep.items(wf)] == ["a" * 1000, "b" * 1000]
    [warning] = story.warnings(await story.last(wf))
    assert "ctx.withItem: the title" in warning
    assert "1,001 characters" in warning
