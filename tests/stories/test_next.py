"""`next` always runs, is told the truth, and either everything of it is kept or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepai import Policy
from tests.harness import APPEND, FIRE, NOTHING, TOLD, Story, consumer, producer, take_all, take_first, views, workflow

PASS_ON = """
  await ctx.publish("out", { messageId: `row-${prepared.data.messageId}`, payload: mutationResult });
"""


def going_on(next: str, *, mutate: str | None = APPEND, prepare: str | None = None, publishes: bool = True) -> str:
    """A workflow that polls the feed, acts, and goes on with `next`."""
    return workflow(producers={"poll": producer()}, consumers={
        "act": consumer(prepare, mutate=mutate, next=next, publishes=["out"] if publishes else [])})


# -- what next is told -------------------------------------------------------------------------------


async def test_next_is_told_that_the_mutation_was_applied_and_gets_its_result(story: Story) -> None:
    # R144, R145
    wf = await story.deploy_and_run(going_on(PASS_ON), "a")
    [row] = await story.keep.mutations(wf)
    assert (await story.event(wf, "out", "row-a")).payload == {"status": "applied", "result": row.result}
    assert row.result == {"rowId": "row-1", "row": 1}


@pytest.mark.parametrize("prepare", [NOTHING, take_first()], ids=["nothing reserved", "nothing called"])
async def test_next_is_told_that_there_was_no_mutation(story: Story, prepare: str) -> None:
    # R146, R148
    wf = await story.deploy_and_run(going_on(TOLD, prepare=prepare, mutate="ctx.log('mutate');"), "a")
    assert story.logs(await story.last(wf, "act"))[-1] == '{"status":"none"}'


async def test_next_is_told_that_a_person_skipped(story: Story) -> None:
    # R147, R148, R163, R211, R250
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(going_on(PASS_ON, mutate=FIRE))
    [row] = await story.keep.mutations(wf)
    assert row.status == "indeterminate"
    await story.keep.resolve(row.id, "skip")
    await story.run()
    assert (await story.event(wf, "out", "row-a")).payload == {"status": "skipped"}
    assert (await story.event(wf, "in", "a")).status == "skipped"
    assert [m.status for m in await story.keep.mutations(wf)] == ["skipped"]


@pytest.mark.parametrize("result", ["None", "0", "''", "[]", "{'status': 'none'}", "{'deep': [{'a': None}]}"])
async def test_a_result_arrives_as_it_is_whatever_it_is(story: Story, result: str) -> None:
    # R145: empty, falsy and misleading results are results
    value = eval(result)
    story.feed.put("a")
    story.world.on("sheets.appendRow").answer(value)
    wf = await story.deploy_and_run(going_on(TOLD))
    run = await story.last(wf, "act")
    assert run.status == "committed", run.error
    assert json.loads(story.logs(run)[0]) == {"status": "applied", "result": value}


# -- state -------------------------------------------------------------------------------------------


async def test_what_next_returns_is_the_state_from_then_on_and_nothing_keeps_the_old_one(story: Story) -> None:
    # R153, R154, R155
    wf = await story.deploy_and_run(going_on("""
  ctx.log(JSON.stringify(ctx.state ?? null));
  if (prepared.data.messageId === "b") return;
  if (prepared.data.messageId === "c") return undefined;
  return { seen: [...(ctx.state?.seen ?? []), prepared.data.messageId] };
""", mutate=None), *"abcd")
    assert [story.logs(r)[0] for r in await story.runs(wf, "act")] == [
        "null", '{"seen":["a"]}', '{"seen":["a"]}', '{"seen":["a"]}']
    assert await story.keep.state(wf, "act") == {"seen": ["a", "d"]}


@pytest.mark.parametrize(("returned", "kept"), [
    ("0", 0), ("false", False), ("''", ""), ("[]", []), ("{}", {}), ("{ a: undefined }", {}),
])
async def test_a_falsy_state_is_a_state(story: Story, returned: str, kept: object) -> None:
    # R153, R156: the host does not interpret it
    story.feed.put("a")
    wf = await story.deploy(going_on(f"return ctx.state === undefined ? {{ first: 1 }} : {returned};", mutate=None))
    await story.run()
    assert await story.keep.state(wf, "act") == {"first": 1}
    story.feed.put("b")
    await story.run(minutes=5)
    assert await story.keep.state(wf, "act") == kept
    assert type(await story.keep.state(wf, "act")) is type(kept)


async def test_each_handler_has_a_state_of_its_own(story: Story) -> None:
    # R336, R320
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer("ctx.log(JSON.stringify(state ?? null));" + "return 'of poll';")},
        consumers={"one": consumer(NOTHING, next="return 'of one';")}), "a")
    await story.run(minutes=5)
    assert [story.logs(r)[0] for r in await story.runs(wf, "poll")] == ["null", '"of poll"']
    assert await story.keep.state(wf, "one") is None  # no event, so it never ran


async def test_a_state_beyond_the_limit_is_refused_with_the_limit_and_its_size(story: Story) -> None:
    # R156, and the tenth failure: 3 MB
    wf = await story.deploy_and_run(going_on("return 'x'.repeat(3_000_000);"), "a")
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("failed:logic", "emitting")
    assert run.error is not None
    assert run.error.code == "limit_exceeded"
    assert "1,048,576" in run.error.message
    assert "3,000,002" in run.error.message
    assert await story.keep.state(wf, "act") is None
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]


# -- all or nothing ----------------------------------------------------------------------------------


async def test_when_next_fails_nothing_of_it_is_seen_and_everything_before_it_stays(story: Story) -> None:
    # R157, R160, I15: published first, failed afterwards
    wf = await story.deploy_and_run(going_on(PASS_ON + "throw new Error('too late');"), "a")
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("failed:logic", "emitting")
    assert await story.events(wf, "out") == []
    event = await story.event(wf, "in", "a")
    assert (event.status, event.reserved_by) == ("pending", run.id)
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
    await story.run(hours=24)
    assert len(await story.runs(wf)) == 2  # a logic failure is not tried again by itself


async def test_a_mended_next_gets_the_result_that_was_kept_and_the_mutation_is_not_repeated(story: Story) -> None:
    # R145, R157, R158, R172, R202, R240
    wf = await story.deploy_and_run(going_on("throw new Error('no');"), "a")
    broken = await story.last(wf, "act")
    story.world.rows["s"].append({"rowId": "row-2", "values": ["somebody else's"]})
    await story.reopen()
    await story.deploy_and_run(going_on(
        PASS_ON, prepare="throw new Error('not again');", mutate="throw new Error('not again');"))
    mended = await story.last(wf, "act")
    assert (mended.status, mended.version, mended.retry_of) == ("committed", "2.0", broken.id)
    assert mended.prepare_result == broken.prepare_result
    assert (await story.event(wf, "out", "row-a")).payload == {
        "status": "applied", "result": {"rowId": "row-1", "row": 1}}
    assert (await story.event(wf, "in", "a")).status == "consumed"
    assert len(story.world.effects) == 1


async def test_a_person_may_have_next_tried_again_as_often_as_they_like(story: Story) -> None:
    # R157–R159: each try is a linked run, none repeats the effect
    wf = await story.deploy_and_run(going_on(PASS_ON + "throw new Error('no');"), "a")
    for _ in range(3):
        await story.keep.retry((await story.last(wf)).id)
        await story.run()
    runs = await story.runs(wf, "act")
    assert [r.status for r in runs] == ["superseded"] * 3 + ["failed:logic"]
    assert [r.retry_of for r in runs] == [None, *(r.id for r in runs[:-1])]
    assert {r.lineage for r in runs} == {runs[0].id}
    assert {r.outcome for r in runs} == {runs[0].outcome}
    assert len(story.world.effects) == 1
    assert await story.events(wf, "out") == []


async def test_running_next_twice_publishes_once_also_without_a_message_id(story: Story) -> None:
    # R159, I18: ids that the host makes are the same in the relaunch
    story.feed.put("a")
    wf = await story.deploy(going_on("""
  await ctx.publish("out", { messageId: "named", payload: 1 });
  await ctx.publish("out", { payload: 2 });
  await ctx.publish("out", { payload: 3 });
"""))
    await story.crash("before:commit_consumer")
    assert await story.events(wf, "out") == []
    await story.run()
    assert [e.payload for e in await story.events(wf, "out")] == [1, 2, 3]
    assert len(story.world.effects) == 1
    first, second = await story.runs(wf, "act")
    assert (first.status, second.status, second.retry_of) == ("crashed", "committed", first.id)


@pytest.mark.parametrize("point", ["before:commit_consumer", "after:commit_consumer"])
async def test_a_crash_around_the_commit_leaves_all_of_it_or_nothing(story: Story, point: str) -> None:
    # R161, R162
    story.feed.put("a")
    wf = await story.deploy(going_on(PASS_ON + "return { done: true };"))
    await story.crash(point)
    committed = point.startswith("after")
    assert [e.status for e in await story.events(wf, "in")] == ["consumed" if committed else "pending"]
    assert len(await story.events(wf, "out")) == (1 if committed else 0)
    assert await story.keep.state(wf, "act") == ({"done": True} if committed else None)
    await story.run()
    assert [e.status for e in await story.events(wf, "in")] == ["consumed"]
    assert len(await story.events(wf, "out")) == 1
    assert await story.keep.state(wf, "act") == {"done": True}
    assert len(story.world.effects) == 1


async def test_the_commit_ends_every_reserved_event_and_the_run_together(story: Story) -> None:
    # R161, R179, I16
    wf = await story.deploy_and_run(going_on("return 1;", prepare=take_all(), mutate=None), *"abc")
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("committed", "committed")
    assert [(e.status, e.reserved_by) for e in await story.events(wf, "in")] == [("consumed", None)] * 3


# -- what next may publish ---------------------------------------------------------------------------

REFUSED_PUBLICATIONS = {
    "a topic that is not declared": ('hidden("nowhere", { messageId: "m", payload: 1 })', "nowhere"),
    "a topic that it does not list": ('hidden("in", { messageId: "m", payload: 1 })', "in"),
    "one good topic and one bad": ('hidden(["out", "nowhere"], { messageId: "m", payload: 1 })', "nowhere"),
    "no message": ('hidden("out")', "publish"),
    "a message id that is a number": ('hidden("out", { messageId: 5, payload: 1 })', "messageId"),
    "a payload with NaN": ('hidden("out", { messageId: "m", payload: { n: NaN } })', "NaN"),
}


@pytest.mark.parametrize("what", REFUSED_PUBLICATIONS)
async def test_a_publication_that_breaks_a_rule_ends_the_run_uncaught(story: Story, what: str) -> None:
    # R149, R194
    call, word = REFUSED_PUBLICATIONS[what]
    wf = await story.deploy_and_run(going_on(f"""
  const hidden = ctx[["pub", "lish"].join("")];
  await ctx.publish("out", {{ messageId: "good", payload: 1 }});
  try {{ await {call}; }} catch (e) {{ ctx.log("caught"); }}
  ctx.log("went on");
"""), "a")
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("failed:logic", "emitting")
    assert run.error is not None
    assert word in run.error.message
    assert run.error.line is not None
    assert story.logs(run) == []
    assert await story.events(wf, "out") == []


async def test_the_number_of_events_that_one_run_publishes_is_limited(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(events_per_run_max=10)) as story:
        wf = await story.deploy_and_run(going_on(
            'for (let i = 0; i < 11; i++) await ctx.publish("out", { messageId: `m${i}`, payload: i });'), "a")
        run = await story.last(wf, "act")
        assert run.error is not None
        assert (run.error.code, "10" in run.error.message) == ("limit_exceeded", True)
        assert await story.events(wf, "out") == []


async def test_what_next_publishes_is_there_for_the_next_consumer_and_inherits_its_inputs(story: Story) -> None:
    # R149, R161, I20
    wf = await story.deploy_and_run(workflow(topics=["in", "out"], producers={"poll": producer()}, consumers={
        "collect": consumer(
            take_all(), publishes=["out"], next='await ctx.publish("out", { messageId: "both", payload: 1 });'),
        "finish": consumer(subscribe=["out"], mutate="await ctx.gmail.send({ to: 'x' });"),
    }), "a", "b")
    both = await story.event(wf, "out", "both")
    assert both.status == "consumed"
    assert set(both.caused_by) == {i.id for i in (await story.inputs(wf)).values()}
    assert len(story.world.effects) == 1


# -- what is kept with the run -----------------------------------------------------------------------


async def test_what_the_script_logged_is_kept_with_its_run_step_by_step(story: Story) -> None:
    # R116, DESIGN 3
    wf = await story.deploy_and_run(going_on(
        "console.error('in next', [1, { a: null }]); ctx.log('by ctx', 2);",
        prepare="console.debug('in prepare');" + take_first(), mutate="console.warn('in mutate');" + APPEND), "a")
    trace = [t for t in views(story.keep).trace((await story.last(wf)).id) if t.kind == "log"]
    assert [(t.step, t.name) for t in trace] == [
        ("prepare", "debug"), ("mutate", "warn"), ("next", "error"), ("next", "info")]
    assert [t.answer for t in trace[:2]] == ["in prepare", "in mutate"]
    assert (trace[2].answer or "").startswith("in next")
    assert trace[3].answer == "by ctx 2"
