"""The thirteen ways in which the system before this one failed, each as a story that ends well here."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, Policy, Transient
from keepai.ledger.transitions import events, runs
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.runs import Begin
from keepai.model.errors import Conflict, RuleBroken
from keepai.model.states import Phase
from tests import harness
from tests.harness import NOTHING, POLL, TOLD, Story, consumer, js, producer, take_first, views, workflow

pytestmark = pytest.mark.both_stores

acting = partial(harness.acting, publishes=["out"])
#: `send` and `fire`, in a way that `check` cannot follow.
HIDDEN = """
  const hidden = name => ctx[name.split("").join("")];
  const { send } = hidden("gmail");
  const { fire } = hidden("webhook");
"""
GRANTS = dict.fromkeys(("feed.list", "gmail.get", "gmail.search", "gmail.send", "webhook.fire"), "allow")


async def test_1_the_same_topic_and_message_id_in_two_workflows_stay_apart(story: Story) -> None:
    story.feed.put("a", {"of": "both"})
    one = await story.deploy_and_run(acting(name="one"))
    story.feed.put("a", {"of": "two"})
    two = await story.deploy_and_run(acting("ctx.log('nothing');", name="two", next="throw new Error('no');"))
    first, second = await story.event(one, "in", "a"), await story.event(two, "in", "a")
    assert first.id != second.id
    assert (first.status, first.payload, first.reserved_by) == ("consumed", {"of": "both"}, None)
    assert (second.status, second.payload) == ("pending", {"of": "two"})
    assert second.reserved_by == (await story.last(two)).id
    assert not set(first.caused_by) & set(second.caused_by)
    assert len(story.world.effects) == 1


@pytest.mark.parametrize(("which", "id"), [("unknown", "nobody"), ("foreign", "theirs"), ("consumed", "mine")])
async def test_2_an_id_that_cannot_be_reserved_fails_the_run_before_any_call(story: Story, which: str, id: str) -> None:
    other = await story.deploy_and_run(acting("throw new Error('keeps it reserved');", name="other"), "theirs")
    story.feed.items.clear()
    wf = await story.deploy_and_run(acting(prepare="""
  const [event] = await ctx.peek("in");
  const ids = state ? [event.messageId, state] : [event.messageId];
  return { reservations: [{ topic: "in", ids }], data: event };
""", next=f"return {js(id)};"), "mine")
    assert len(story.world.effects) == 1
    story.feed.put("more")
    await story.run(minutes=5)
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("failed:logic", "preparing")
    assert run.error is not None
    assert repr(id) in run.error.message
    assert (await story.event(wf, "in", "more")).reserved_by is None
    assert len(story.world.effects) == 1
    assert (await story.event(other, "in", "theirs")).reserved_by == (await story.last(other)).id


async def test_2_an_event_that_another_run_has_reserved_cannot_be_reserved_again(story: Story) -> None:
    # one run at a time: a second holder can only be tried by hand
    wf = await story.deploy_and_run(acting("throw new Error('keeps it reserved');"), "a", "b")
    poll, holder = await story.runs(wf)
    with pytest.raises(RuleBroken, match=holder.id):
        await story.keep.parts.ledger.write(events.reserve, wf, poll.id, [("in", "b"), ("in", "a")])
    assert [e.reserved_by for e in await story.events(wf)] == [holder.id, None]


CAUGHT = {
    "a violation in prepare": ("prepare", 'try { await hidden("publish")("out", { payload: 1 }); } catch { }'),
    "an unsubscribed topic in prepare": ("prepare", 'try { await hidden("peek")("out"); } catch { }'),
    "a read error in prepare": ("prepare", 'try { await hidden("gmail").get({ id: "1" }); } catch { }'),
    "a read error that nobody awaits": ("prepare", 'hidden("gmail").get({ id: "1" }).catch(() => {});'),
    "one read error of several": (
        "prepare", 'await Promise.allSettled([hidden("gmail").get({ id: "1" }), hidden("gmail").search({})]);'),
    "a violation in mutate": ("mutate", 'try { await hidden("peek")("in"); } catch { }'),
    "a violation in next": ("next", 'try { await hidden("gmail").search({}); } catch { }'),
    "a violation that nobody awaits": ("next", 'hidden("gmail").send({ to: "x" }).catch(() => {});'),
}


@pytest.mark.parametrize("what", CAUGHT)
async def test_3_what_a_script_catches_still_ends_the_run(story: Story, what: str) -> None:
    step, code = CAUGHT[what]
    text = HIDDEN + code + "ctx.log('went on');"
    story.feed.put("a")
    story.world.on("gmail.get").fail(Transient("busy"), times=None)
    wf = await story.deploy_and_run(acting(
        text if step == "mutate" else "ctx.log('mutate');",
        prepare=(text if step == "prepare" else "") + take_first(), next=text if step == "next" else TOLD),
        grants=GRANTS)
    run = await story.last(wf)
    assert run.status == ("paused:transient" if "read error" in what else "failed:logic")
    assert (await story.event(wf, "in", "a")).status == "pending"
    assert await story.events(wf, "out") == []
    if "nobody" not in what and "several" not in what:
        assert "went on" not in story.logs(run)
    assert story.world.effects == []


async def test_4_code_after_a_mutation_never_runs(story: Story) -> None:
    wf = await story.deploy_and_run(acting(HIDDEN + """
  try { await send({ to: "first" }); ctx.log("after"); }
  catch (e) { ctx.log("caught"); }
  finally { ctx.log("finally"); await fire({}); }
  ctx.log("end");
"""), "a", grants=GRANTS)
    assert story.logs(await story.last(wf)) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert [e.operation for e in story.world.effects] == ["gmail.send"]


@pytest.mark.parametrize("code", [
    "send({ to: 'first' }); fire({}); return;",
    "await Promise.all([send({ to: 'first' }), fire({}), send({ to: 'third' })]);",
    "[1, 2, 3].map(n => send({ to: n === 1 ? 'first' : 'later' }));",
    "const p = send({ to: 'first' }); await new Promise(() => {});",
], ids=["not awaited", "at once", "mapped", "never ends"])
async def test_5_mutations_made_side_by_side_have_one_effect_and_next_is_told_the_truth(
    story: Story, code: str,
) -> None:
    wf = await story.deploy_and_run(acting(HIDDEN + code), "a", grants=GRANTS)
    [effect] = story.world.effects
    assert (effect.operation, effect.params) == ("gmail.send", {"to": "first"})
    [row] = await story.keep.mutations(wf)
    assert (row.status, row.result) == ("applied", effect.result)
    assert story.logs(await story.last(wf)) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert story.world.count("webhook.fire") == 0


async def test_6_next_runs_when_nothing_was_reserved(story: Story) -> None:
    wf = await story.deploy_and_run(acting(prepare=NOTHING, next=TOLD + """
  await ctx.publish("out", { messageId: "said", payload: mutationResult });
  return { ran: true };
"""), "a")
    assert story.logs(await story.last(wf)) == ['{"status":"none"}']
    assert (await story.event(wf, "out", "said")).payload == {"status": "none"}
    assert await story.keep.state(wf, "act") == {"ran": True}


@pytest.mark.parametrize("end", ["throw new Error('late');", "for (;;) {}", "await ctx.gmail.get({ id: '1' });"])
async def test_7_a_failed_producer_leaves_nothing(tmp_path: Path, end: str) -> None:
    async with Story(tmp_path, policy=Policy(script_s=0.2)) as story:
        story.feed.put("a")
        story.world.on("gmail.get").fail(Transient("busy"))
        again = POLL.replace("item.id", "'new-' + item.id")
        working = producer("if (state !== 7) {" + POLL + "return 7; }" + again + end)
        wf = await story.deploy_and_run(workflow(producers={"poll": working}, consumers={"act": consumer(NOTHING)}))
        assert await story.ids(wf) == ["a"]
        await story.run(minutes=5)
        assert (await story.last(wf, "poll")).status in ("failed:logic", "paused:transient")
        assert await story.ids(wf) == ["a"]
        assert list(await story.inputs(wf)) == ["a"]
        assert await story.keep.state(wf, "poll") == 7


async def test_8_next_gets_the_original_result_when_it_runs_again_after_a_fix(story: Story) -> None:
    wf = await story.deploy_and_run(acting(next="throw new Error('no');"), "a")
    for _ in range(2):
        await story.keep.retry((await story.last(wf)).id)
        await story.run()
    story.world.on("gmail.send").answer({"id": "another"}, times=None)
    await story.deploy_and_run(acting("throw new Error('must not run');", prepare="throw new Error('must not run');"))
    last = (await story.runs(wf, "act"))[-1]
    assert last.status == "committed"
    assert story.logs(last) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert story.world.count("gmail.send") == 1


@pytest.mark.parametrize("call", [
    'hidden("peek")("out")', 'hidden("getByIds")("out", ["m"])', 'hidden("peek")("none")',
])
async def test_9_looking_into_a_topic_outside_the_subscription_is_refused(story: Story, call: str) -> None:
    story.feed.put("a")
    look = f"ctx.log(JSON.stringify(await {call}));"
    wf = await story.deploy_and_run(acting(prepare=HIDDEN + look + NOTHING), grants=GRANTS)
    run = await story.last(wf)
    assert (run.status, story.logs(run)) == ("failed:logic", [])
    assert run.error is not None
    assert run.error.code == "rule_broken"
    assert "subscribe" in run.error.message
    assert run.error.line is not None


@pytest.mark.parametrize("handler", ["poll", "act"])
async def test_10_three_megabytes_of_state_are_refused_with_the_limit(story: Story, handler: str) -> None:
    big = "return { big: 'x'.repeat(3_000_000) };"
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer(POLL + (big if handler == "poll" else ""))},
        consumers={"act": consumer(next=big)}), "a")
    run = await story.last(wf)
    assert (run.handler, run.status) == (handler, "failed:logic")
    assert run.error is not None
    assert run.error.code == "limit_exceeded"
    assert "1,048,576" in run.error.message
    assert "3,000,0" in run.error.message
    assert await story.keep.state(wf, handler) is None


@pytest.mark.slow
async def test_11_an_endless_loop_in_one_workflow_does_not_delay_another(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(script_s=2.0)) as story:
        story.feed.put("a")
        for number in range(2):
            await story.deploy(workflow(f"stuck {number}", producers={"poll": producer("for (;;) {}")}))
        before: list[set[str]] = []

        def looked(params: Any, call: Any) -> None:
            runs = [run for each in views(story.keep).workflows(0) for run in views(story.keep).runs(each.id)]
            before.append({run.status for run in runs if run.handler == "poll" and run.workflow_id != wf})

        story.world.on("gmail.send").before(looked)
        wf = await story.deploy(acting(name="quick"))
        await story.run()
        assert await story.ids(wf, "in", "consumed") == ["a"]
        assert before == [{"active"}], "it waited for the loops"
        assert {r.status for w in await story.keep.workflows() for r in await story.runs(w.id)} == {
            "committed", "failed:logic"}


async def test_12_a_transaction_that_fails_does_not_undo_those_of_other_workflows(story: Story) -> None:
    # many verbs of many workflows in one group commit; every third is refused, by a constraint or by a rule
    ledger = story.keep.parts.ledger
    wfs = [await story.deploy(workflow(f"w{n}", producers={"poll": producer()})) for n in range(12)]
    await story.run()
    begun = {wf: (await story.runs(wf))[0] for wf in wfs}

    async def work(number: int, wf: str) -> Any:
        if number % 3 == 0:  # the second open run of a workflow: a unique index refuses it
            begin = Begin(wf, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule")

            def twice(tx: Any) -> None:
                events.publish(tx, wf, begun[wf].id, [Publication("in", "half", "1")])
                runs.begin(tx, begin)
                runs.begin(tx, begin)

            return await ledger.write(twice, barrier=True)
        if number % 3 == 1:  # a reservation of nothing: a rule refuses it, after a write
            def reserve(tx: Any) -> None:
                events.publish(tx, wf, begun[wf].id, [Publication("in", "half", "1")])
                events.reserve(tx, wf, begun[wf].id, [("in", "half"), ("in", "nobody")])

            return await ledger.write(reserve, barrier=True)
        return await ledger.write(
            events.publish, wf, begun[wf].id, [Publication("in", "whole", "1")], barrier=True)

    with ExitStack() as runs_of_twelve:  # so that their commits are gathered
        for _ in wfs:
            runs_of_twelve.enter_context(ledger.under_way())
        ended = await asyncio.gather(*(work(n, wf) for n, wf in enumerate(wfs)), return_exceptions=True)
    kinds = [type(e) for e in ended]
    assert kinds == [Conflict, RuleBroken, type(None)] * 4
    await story.reopen()
    for number, wf in enumerate(wfs):
        assert await story.ids(wf) == (["whole"] if number % 3 == 2 else []), number


async def test_12_a_workflow_that_breaks_a_rule_at_its_commit_undoes_nothing_of_the_others(story: Story) -> None:
    # the same through scripts: all of them commit at once, half of them are refused at the ledger
    for id in "ab":
        story.feed.put(id)
    bad = 'return { reservations: [{ topic: "in", ids: ["a", "nobody"] }], data: {} };'
    wfs = [await story.deploy(acting(name=f"w{n}", prepare=bad if n % 2 else None)) for n in range(10)]
    await story.run()
    for number, wf in enumerate(wfs):
        expected = [] if number % 2 else ["a", "b"]
        assert await story.ids(wf, "in", "consumed") == expected, number
    assert len(story.world.effects) == 10


@pytest.mark.slow
async def test_13_the_status_of_twenty_thousand_inputs_is_known_at_once(tmp_path: Path) -> None:
    many = 20_000
    async with Story(tmp_path, policy=Policy(events_per_run_max=many)) as story:
        wf = await story.deploy_and_run(acting(prepare=NOTHING), "first")
        [poll, *_] = await story.runs(wf)

        known = [story.keep.parts.ids.new("inp") for _ in range(many)]

        def fill(tx: Any) -> None:
            events.register(tx, wf, poll.id, [
                Registration(known[n], "feed", "item", f"x{n}", f"Item {n}") for n in range(many)])
            events.publish(tx, wf, poll.id, [
                Publication("in", f"x{n}", '{"n":1}', (known[n],)) for n in range(many)])

        await story.keep.skip_event((await story.event(wf, "in", "first")).id)
        await story.keep.parts.ledger.write(fill)
        started = time.process_time()
        found = await story.keep.inputs(wf)
        pending = await story.keep.inputs(wf, status="pending")
        one = await story.keep.input(known[-1])
        took = time.process_time() - started  # of this process alone: other tests may load the machine
        assert (len(found), len(pending), one.status) == (many + 1, many, "pending")
        assert {i.external_id for i in found if i.status != "pending"} == {"first"}
        assert took < 10.0, f"{took:.2f} s of CPU: it looked at every input for every input"


async def test_5_an_unknown_outcome_is_the_truth_too(story: Story) -> None:
    # un-awaited, and its answer is lost: next is not told "none"
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer(OutcomeUnknown("lost"))
    wf = await story.deploy_and_run(acting(HIDDEN + "send({ to: 'first' }); return 1;"), grants=GRANTS)
    assert story.logs(await story.last(wf)) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert len(story.world.effects) == 1


