"""Producers: they read, register and publish; all of a run's work is kept, or none of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepai import Policy, ScriptInvalid, Transient
from tests.harness import POLL, Story, consumer, producer, workflow

#: Says what it was given, gives back what the feed says.
ECHO = """
  const [item] = await ctx.feed.list({});
  console.log(state === undefined ? "undefined" : JSON.stringify(state));
  return item.payload;
"""

STATES = [
    {"cursor": "c1"}, 0, False, "", None, [], {}, "ünï ☃ 😀", [None, [1, {"a": None}]], 2**53 - 1, -0.5, True,
    {"__proto__": 1, "then": 2, "toJSON": 3, "": 4}, {"seq": list(range(500))},
]


async def test_what_a_producer_returns_is_what_it_is_given_next_time(story: Story) -> None:
    """R075, R076, R080: undefined at first, then any JSON value unchanged, also over a restart."""
    wf = await story.deploy(workflow(producers={"poll": producer(ECHO)}))
    for number, value in enumerate(STATES):
        story.feed.put("next", value)
        await story.run(minutes=5)
        assert await story.keep.state(wf, "poll") == value
        if number == 4:
            await story.reopen()
    await story.run(minutes=5)
    [first, *rest] = [log for run in await story.runs(wf) for log in story.logs(run)]
    assert first == "undefined"
    assert [json.loads(log) for log in rest] == STATES


async def test_a_producer_that_throws_late_leaves_nothing_and_starts_over_from_its_old_state(story: Story) -> None:
    """R052, R077, R078, R079: inputs, events and state of the failed run are nowhere."""
    poll = POLL + """
      if ((state ?? 0) === 1 && (await ctx.feed.list({})).length < 3) throw new Error("at the very end");
      return (state ?? 0) + 1;
    """
    source = {"producers": {"poll": producer(poll)}, "consumers": {"take": consumer()}}
    wf = await story.deploy_and_run(workflow(**source), "a")
    story.feed.put("b")
    await story.run(minutes=5)
    failed = await story.last(wf)
    assert (failed.handler, failed.status) == ("poll", "failed:logic")
    assert failed.error is not None
    assert "at the very end" in failed.error.message
    assert await story.ids(wf) == ["a"]
    assert list(await story.inputs(wf)) == ["a"]
    assert await story.keep.state(wf, "poll") == 1
    story.feed.put("c")
    await story.keep.retry(failed.id)
    await story.run()
    assert await story.ids(wf, "in", "consumed") == ["a", "b", "c"]
    assert await story.keep.state(wf, "poll") == 2


@pytest.mark.parametrize("point", ["before:begin", "after:begin", "before:commit_producer", "after:commit_producer"])
async def test_a_producer_run_that_the_host_did_not_survive_counts_once(story: Story, point: str) -> None:
    """R041, R077, R078, R082: whatever the instant, afterwards everything is there once and the state fits it."""
    poll = POLL + "return (state ?? 0) + 1;"
    wf = await story.deploy(workflow(producers={"poll": producer(poll)}))
    story.feed.put("a", 1)
    story.feed.put("b", 2)
    await story.crash(point)
    events, inputs, state = await story.ids(wf), list(await story.inputs(wf)), await story.keep.state(wf, "poll")
    assert (events, inputs, state) in [([], [], None), (["a", "b"], ["a", "b"], 1)], "all or nothing"
    await story.run()
    assert await story.ids(wf) == ["a", "b"]
    assert list(await story.inputs(wf)) == ["a", "b"]
    assert await story.keep.state(wf, "poll") == 1, "the work of one run, however often it was begun"


async def test_polling_the_same_things_again_and_again_doubles_nothing(story: Story) -> None:
    """R082."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer()}))
    story.feed.put("a", 1)
    for _ in range(4):
        await story.run(minutes=5)
    assert await story.ids(wf) == ["a"]
    assert len(await story.runs(wf, "poll")) == 4
    assert len(await story.runs(wf, "take")) == 1


async def test_a_state_that_is_too_large_is_refused_with_limit_and_size_and_nothing_is_kept(story: Story) -> None:
    """R081, R156: 3 MB where 1 MB is allowed, in a producer and in next."""
    wf = await story.deploy(workflow("large", producers={
        "poll": producer(POLL + 'return { text: "x".repeat(3 << 20) };'),
    }))
    next_wf = await story.deploy_and_run(workflow("large-next", producers={"poll": producer()}, consumers={
        "take": consumer(publishes=["out"], next="""
          await ctx.publish("out", { messageId: "x", payload: 1 });
          return "é".repeat(600_000);
        """),
    }), "a")
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert run.error is not None
    assert "1,048,576" in run.error.message, "the limit"
    assert "3,145,7" in run.error.message, "the size"
    assert (await story.events(wf), await story.keep.inputs(wf)) == ([], [])
    assert await story.keep.state(wf, "poll") is None
    run = await story.last(next_wf, "take")
    assert run.status == "failed:logic", "bytes count, not characters"
    assert await story.ids(next_wf, "out") == []
    assert await story.keep.state(next_wf, "take") is None


async def test_a_state_just_below_the_limit_is_kept(tmp_path: Path) -> None:
    """R081: the limit is policy's, not one below."""
    async with Story(tmp_path, policy=Policy(state_bytes_max=1000)) as story:
        wf = await story.deploy(workflow(producers={"poll": producer(ECHO)}))
        story.feed.put("s", "x" * 998)
        await story.run()
        assert await story.keep.state(wf, "poll") == "x" * 998
        story.feed.put("s", "x" * 999)
        await story.run(minutes=5)
        assert (await story.last(wf)).status == "failed:logic"
        assert await story.keep.state(wf, "poll") == "x" * 998


@pytest.mark.parametrize("text", [
    '{ schedule: { interval: "5m" }, handler: async (ctx, state) => {} }',
    '{ publishes: ["nowhere"], schedule: { interval: "5m" }, handler: async (ctx, state) => {} }',
    '{ publishes: ["in"], schedule: { interval: "5m" } }',
    '{ publishes: ["in"], schedule: { interval: "soon" }, handler: async (ctx, state) => {} }',
    '{ publishes: ["in"], schedule: { cron: "61 * * * *" }, handler: async (ctx, state) => {} }',
    '{ publishes: ["in"], schedule: { cron: "0 9 * * *", tz: "Mars/Base" }, handler: async (ctx, state) => {} }',
], ids=["no publishes", "undeclared topic", "no handler", "bad interval", "bad cron", "bad zone"])
async def test_a_producer_that_is_declared_wrongly_is_not_deployed(story: Story, text: str) -> None:
    """R065, R066, R067, R069, R097."""
    with pytest.raises(ScriptInvalid) as refused:
        await story.deploy(workflow(producers={"poll": text}))
    assert any(f.severity == "error" and f.line and f.fix for f in refused.value.findings)
    assert await story.keep.workflows() == []


async def test_a_bare_function_is_a_producer_of_the_older_dialect(story: Story) -> None:
    """R066, DESIGN 2: a warning, the default interval, and any declared topic."""
    source = workflow(producers={"poll": f"async (ctx, state) => {{ {POLL} }}"})
    done = await story.keep.deploy(source, grants="all")
    assert "bare-producer" in {f.code for f in done.findings if f.severity == "warning"}
    story.feed.put("a", topic="in")
    story.feed.put("b", topic="out")
    await story.run()
    assert await story.ids(done.workflow_id) == ["a", "b"]
    await story.run(minutes=4, seconds=59)
    assert story.feed.count == 1
    await story.run(seconds=1)
    assert story.feed.count == 2


async def test_a_producer_reads_lists_and_single_things(story: Story) -> None:
    """R070."""
    poll = """
      const mails = await ctx.gmail.search({});
      const same = await ctx.gmail.get({ id: mails[0].id });
      const none = await ctx.gmail.get({ id: "nowhere" });
      return [mails.length, mails.lastCursor, same.subject, none];
    """
    story.world.deliver(subject="Hi")
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(poll)}))
    assert await story.keep.state(wf, "poll") == [1, "1", "Hi", None]


FORBIDDEN = {
    "a mutation": 'await ctx[["web", "hook"].join("")].fire({ id: 1 });',
    "another mutation": 'await Reflect.get(ctx, ["g", "mail"].join("")).send({ to: "a@example.com" });',
    "peek": 'await ctx[["pe", "ek"].join("")]("in");',
    "getByIds": 'await ctx[["getBy", "Ids"].join("")]("in", ["a"]);',
}


async def test_a_producer_cannot_change_the_world_or_look_into_topics(story: Story) -> None:
    """R071, R072, R073: refused before any effect, and no catch holds it; what came before is not kept."""
    story.feed.put("a")
    ids = {}
    for name, call in FORBIDDEN.items():
        body = POLL + f'try {{ {call} }} catch (e) {{}} finally {{ console.log("went on"); }} return "went on";'
        ids[name] = await story.deploy(workflow(name, producers={"poll": producer(body)}))
    for wf in ids.values():
        for capability in ("webhook.fire", "gmail.send"):
            await story.keep.grant(wf, capability, "allow")
    await story.run()
    for name, wf in ids.items():
        run = await story.last(wf)
        assert (name, run.status) == (name, "failed:logic")
        assert run.error is not None
        assert (name, run.error.code) == (name, "phase_violation")
        assert story.logs(run) == [], name
        assert (await story.events(wf), await story.keep.inputs(wf)) == ([], []), name
    assert (story.world.effects, story.world.asked) == ([], [])


async def test_check_finds_what_a_producer_may_not_do_before_it_runs(story: Story) -> None:
    """R069, R071, R073."""
    for body in ('await ctx.webhook.fire({});', 'await ctx.peek("in");'):
        with pytest.raises(ScriptInvalid) as refused:
            await story.deploy(workflow(producers={"poll": producer(body)}))
        assert "forbidden-call" in {f.code for f in refused.value.findings}


async def test_a_mended_producer_corrects_the_payload_of_an_event_that_still_waits(story: Story) -> None:
    """R083: and the consumer gets the corrected one."""
    def version(payload: str, consumers: dict[str, str]) -> str:
        return workflow(
            producers={"poll": producer(POLL.replace("item.payload", payload))}, consumers=consumers,
        )
    wait = {"take": consumer('await ctx.peek("in"); return { reservations: [], data: {} };')}
    wf = await story.deploy_and_run(version('"buggy"', wait), "a")
    await story.deploy(version('"correct"', wait), author="maintainer")
    await story.run(minutes=5)
    await story.deploy_and_run(version('"correct"', {"take": consumer(next="return prepared.data.payload;")}))
    assert await story.keep.state(wf, "take") == "correct"
    assert await story.ids(wf) == ["a"]


async def test_producers_have_schedules_and_states_of_their_own(story: Story) -> None:
    """R084: also under the same name in another workflow."""
    count = "return (state ?? 0) + {};"
    wf = await story.deploy(workflow(producers={
        "fast": producer(count.format(1), interval="5m"),
        "slow": producer(count.format(100), publishes=["out"], interval="15m"),
    }))
    other = await story.deploy_and_run(workflow("other", producers={"fast": producer(count.format(7), interval="10m")}))
    for _ in range(3):
        await story.run(minutes=5)
    assert [await story.keep.state(wf, name) for name in ("fast", "slow")] == [4, 200]
    assert await story.keep.state(other, "fast") == 14


async def test_a_read_that_fails_for_now_is_tried_again_later_with_the_old_state(story: Story) -> None:
    """R078, R329: nothing of the failed try is kept; the waits double; the chain can be followed."""
    poll = POLL + "await ctx.gmail.search({}); return (state ?? 0) + 1;"
    wf = await story.deploy(workflow(producers={"poll": producer(poll)}))
    story.feed.put("a")
    story.world.on("gmail.search").fail(Transient("busy"), times=2)
    await story.run()
    assert (await story.last(wf)).status == "paused:transient"
    assert (await story.ids(wf), await story.keep.state(wf, "poll")) == ([], None)
    await story.run(seconds=29)
    assert story.world.count("gmail.search") == 1
    await story.run(seconds=1)
    assert story.world.count("gmail.search") == 2
    await story.run(seconds=59)
    assert story.world.count("gmail.search") == 2
    await story.run(seconds=1)
    assert (await story.ids(wf), await story.keep.state(wf, "poll")) == (["a"], 1)
    runs = await story.runs(wf)
    assert [r.retry_of for r in runs] == [None, runs[0].id, runs[1].id]
    assert {r.lineage for r in runs} == {runs[0].id}


async def test_events_that_nobody_awaited_are_published_all_the_same(story: Story) -> None:
    """DESIGN 3: publish without await, as in the seeds, takes part in the commit."""
    body = POLL.replace("await ctx.publish", "ctx.publish")
    wf = await story.deploy(workflow(producers={"poll": producer(body)}))
    for number in range(20):
        story.feed.put(str(number))
    await story.run()
    assert await story.ids(wf) == [str(n) for n in range(20)]


async def test_nothing_is_shared_between_runs_but_the_state(story: Story) -> None:
    """R320: every run gets a fresh context."""
    body = """
      const outer = [Math, Array.prototype, Reflect.get(Math, "constructor").prototype];
      for (const each of outer) Reflect.set(each, "kept", (Reflect.get(each, "kept") ?? 0) + 1);
      return [[].kept, Math.kept];
    """
    wf = await story.deploy(workflow(producers={"poll": producer(body), "two": producer(body, publishes=["out"])}))
    await story.run()
    await story.run(minutes=5)
    first, second = await story.runs(wf, "poll"), await story.runs(wf, "two")
    assert [r.status for r in first + second] == ["committed"] * 4
    assert await story.keep.state(wf, "poll") == await story.keep.state(wf, "two")
    assert await story.keep.state(wf, "poll") in ([1, 1], [None, None]), "fresh, or not to be changed at all"


async def test_an_undeclared_topic_in_publishes_or_subscribe_is_found_before_execution(story: Story) -> None:
    """R069, R097."""
    for part in (
        {"producers": {"poll": producer("", publishes=["nowhere"])}},
        {"consumers": {"take": consumer(subscribe=["nowhere"])}},
        {"consumers": {"take": consumer(publishes=["nowhere"])}},
        {"producers": {"poll": producer('ctx.publish("nowhere", { messageId: "a", inputId: "i", payload: 1 });')}},
    ):
        with pytest.raises(ScriptInvalid) as refused:
            await story.deploy(workflow(**part))
        assert "undeclared-topic" in {f.code for f in refused.value.findings}
