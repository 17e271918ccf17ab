"""Deploying: a version is stored, checked and activated; work that is under way or waiting is never lost by it."""

from __future__ import annotations

from typing import Any

import pytest

from keepai import Call, OutcomeUnknown, Rejected, ScriptInvalid, Transient, Verdict
from tests.harness import FIRE, NOTHING, Story, consumer, producer, take_all, take_first, workflow

POLLING = {"poll": producer()}


def taking(next: str | None = None, *, prepare: str | None = None, mutate: str | None = FIRE, poll: bool = True) -> str:
    """A workflow whose consumer fires a webhook for each event."""
    return workflow(
        producers=POLLING if poll else {},
        consumers={"take": consumer(prepare, publishes=["out"], mutate=mutate, next=next)},
    )


# -- versions ----------------------------------------------------------------------------------------------


async def test_an_existing_name_gets_a_new_version_and_the_same_source_changes_nothing(story: Story) -> None:
    """DESIGN 14: major for a new script, minor for a repair; nothing runs."""
    sources = [workflow(producers={"poll": producer(f"return {n};")}) for n in range(4)]
    first = await story.keep.deploy(sources[0])
    again = await story.keep.deploy(sources[0])
    second = await story.keep.deploy(sources[1])
    mended = await story.keep.deploy(sources[2], author="maintainer", workflow_id=first.workflow_id)
    third = await story.keep.deploy(sources[3], author="planner")
    back = await story.keep.deploy(sources[0])
    done = [first, again, second, mended, third, back]
    assert [d.version for d in done] == ["1.0", "1.0", "2.0", "2.1", "3.0", "4.0"]
    assert [d.changed for d in done] == [True, False, True, True, True, True]
    assert {d.workflow_id for d in done} == {first.workflow_id}
    assert [(w.name, w.version) for w in await story.keep.workflows()] == [("story", "4.0")]
    assert (await story.runs(first.workflow_id), story.feed.count) == ([], 0)


async def test_every_run_says_which_version_it_used(story: Story) -> None:
    """I11, R185."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer("return 1;")}))
    await story.deploy(workflow(producers={"poll": producer("return 2;")}), author="maintainer")
    await story.run(minutes=5)
    assert [r.version for r in await story.runs(wf)] == ["1.0", "1.1"]


async def test_neither_a_new_version_nor_the_same_source_makes_a_producer_due(story: Story) -> None:
    """DESIGN 8: it keeps its due time."""
    source = workflow(producers=POLLING)
    await story.deploy_and_run(source)
    await story.run(minutes=1)
    await story.deploy_and_run(source)
    assert story.feed.count == 1
    await story.deploy_and_run(workflow(producers=POLLING, consumers={"take": consumer()}))
    assert story.feed.count == 1
    await story.run(minutes=4)
    assert story.feed.count == 2


async def test_an_invalid_script_changes_nothing(story: Story) -> None:
    """R097, DESIGN 14: the findings say where, what and how to mend it; the old version goes on."""
    wf = await story.deploy(workflow(producers=POLLING))
    for bad in ("export default", workflow(producers={"poll": producer('await ctx.nowhere.list({});')}), "", "x\0"):
        with pytest.raises(ScriptInvalid) as refused:
            await story.deploy(bad, workflow_id=wf)
        errors = [f for f in refused.value.findings if f.severity == "error"]
        assert errors
        assert all(f.code and f.line >= 1 and f.column >= 1 and f.message and f.fix for f in errors)
    assert (await story.workflow(wf)).version == "1.0"
    story.feed.put("a")
    await story.run()
    assert await story.ids(wf) == ["a"]


async def test_a_version_for_a_workflow_that_does_not_exist_is_refused(story: Story) -> None:
    """DESIGN 14."""
    with pytest.raises(Exception, match="wf_nowhere"):
        await story.deploy(workflow(producers=POLLING), workflow_id="wf_nowhere")
    assert await story.keep.workflows() == []


async def test_a_deploy_survives_the_host(story: Story) -> None:
    """DESIGN 5: the version is on disk when deploy returns."""
    wf = await story.deploy(workflow(producers={"poll": producer("return 1;")}))
    await story.deploy(workflow(producers={"poll": producer("return 2;")}))
    await story.crash("before:begin")
    await story.run()
    assert (await story.workflow(wf)).version == "2.0"
    assert await story.keep.state(wf, "poll") == 2


async def test_what_is_not_granted_is_named_and_stops_the_run_until_it_is(story: Story) -> None:
    """DESIGN 10, 14: the default is none; a new version's new capability is not covered by an old "all"."""
    first = await story.keep.deploy(workflow(producers=POLLING))
    wf = first.workflow_id
    assert first.capabilities == first.not_granted == ("feed.list",)
    await story.run()
    assert ((await story.last(wf)).status, story.feed.count) == ("paused:approval", 0)
    await story.keep.grant(wf, "feed.list", "allow")
    await story.run()
    assert ((await story.last(wf)).status, story.feed.count) == ("committed", 1)
    more = await story.keep.deploy(workflow(producers={"poll": producer("await ctx.gmail.search({});")}))
    assert more.not_granted == ("gmail.search",)
    await story.run(minutes=5)
    assert ((await story.last(wf)).status, story.world.asked) == ("paused:approval", [])


async def test_grants_that_come_with_the_same_source_let_the_waiting_run_go_on(story: Story) -> None:
    """DESIGN 9, 14: the script is no new version, the permission counts all the same."""
    source = workflow(producers=POLLING)
    wf = await story.deploy_and_run(source, grants=None)
    assert (await story.last(wf)).status == "paused:approval"
    again = await story.keep.deploy(source, grants="all")
    assert (again.changed, again.version, again.not_granted) == (False, "1.0", ())
    await story.run()
    assert ((await story.last(wf)).status, story.feed.count) == ("committed", 1)


async def test_a_new_version_does_not_undo_a_persons_pause(story: Story) -> None:
    """R331, DESIGN 4."""
    wf = await story.deploy(workflow(producers=POLLING))
    await story.keep.pause(wf)
    await story.deploy(workflow(producers={"poll": producer(interval="1h")}))
    await story.run(hours=2)
    assert ((await story.workflow(wf)).status, story.feed.count) == ("paused", 0)


# -- what stays --------------------------------------------------------------------------------------------


async def test_state_belongs_to_the_handler_over_all_versions(story: Story) -> None:
    """DESIGN 4: also of a handler that was away for a version; another name begins with nothing."""
    def counting(*names: str, step: int) -> str:
        topics = dict(zip(names, ("in", "out"), strict=False))
        return workflow(producers={
            name: producer(f"return (state ?? 0) + {step};", publishes=[topic]) for name, topic in topics.items()
        })
    wf = await story.deploy_and_run(counting("a", "b", step=1))
    await story.deploy(counting("a", step=10))
    await story.run(minutes=5)
    assert [await story.keep.state(wf, name) for name in "ab"] == [11, 1]
    await story.deploy_and_run(counting("b", "c", step=100))
    assert [await story.keep.state(wf, name) for name in "abc"] == [11, 101, 100]
    await story.run(hours=1)
    assert await story.keep.state(wf, "a") == 11, "a handler that is gone does not run"


async def test_a_new_version_takes_up_the_events_that_the_old_one_left(story: Story) -> None:
    """DESIGN 8: an activated version is a reason to run; its payloads and order are as they were."""
    wf = await story.deploy(workflow(producers=POLLING, consumers={"take": consumer(NOTHING)}))
    story.feed.put("a", 1)
    story.feed.put("b", 2)
    await story.run()
    await story.deploy_and_run(workflow(consumers={
        "renamed": consumer(take_all(), next="return prepared.data.events.map(e => e.payload);"),
    }))
    assert await story.keep.state(wf, "renamed") == [1, 2]
    assert await story.ids(wf, status="consumed") == ["a", "b"]


async def test_a_handlers_wishes_for_later_do_not_outlive_it(story: Story) -> None:
    """DESIGN 8: neither wakeAt nor schedule of a handler that the new version does not have."""
    wake = take_first().replace("data: event", 'data: event, wakeAt: "2026-01-05T10:00:00Z"')
    wf = await story.deploy_and_run(workflow(producers=POLLING, consumers={"take": consumer(wake)}), "a")
    await story.deploy(workflow())
    await story.run(days=1)
    assert (await story.workflow(wf)).next_due_at is None
    assert [r.handler for r in await story.runs(wf)] == ["poll", "take"]


# -- events without a subscriber ---------------------------------------------------------------------------


async def test_a_version_that_would_strand_events_is_refused_and_lists_them(story: Story) -> None:
    """DESIGN 4: whether the consumer or the whole topic is gone; nothing is changed by the refusal."""
    wf = await story.deploy(workflow(topics=["in", "side", "out"], producers={
        "poll": producer(publishes=["in", "side", "out"]),
    }, consumers={"take": consumer(NOTHING), "side": consumer(NOTHING, subscribe=["side"])}))
    for id, topic in (("a", "in"), ("b", "in"), ("c", "side"), ("d", "out")):
        story.feed.put(id, topic=topic)
    await story.run()
    runs = len(await story.runs(wf))
    for topics in (["in", "side", "out"], ["side", "out"]):
        with pytest.raises(Exception, match=r"2.*'in'") as refused:
            await story.deploy(workflow(topics=topics, consumers={"side": consumer(subscribe=["side"])}))
        assert "'side'" not in str(refused.value), "only what would be stranded"
        assert not isinstance(refused.value, ScriptInvalid)
    await story.run()
    assert ((await story.workflow(wf)).version, len(await story.runs(wf))) == ("1.0", runs)
    assert await story.ids(wf, status="pending") == ["a", "b", "c", "d"]


async def test_events_are_stranded_only_on_purpose_and_can_be_taken_up_later(story: Story) -> None:
    """DESIGN 4: told to, they become results; their inputs are done; a later subscriber gets them."""
    wf = await story.deploy(workflow(producers=POLLING, consumers={"take": consumer(NOTHING)}))
    story.feed.put("a", "kept")
    await story.run()
    await story.deploy(workflow(topics=["out"]), strand=True)
    await story.run(days=8)
    assert await story.ids(wf, "in", "pending") == ["a"]
    assert [i.status for i in await story.keep.inputs(wf)] == ["done"]
    whole = await story.workflow(wf)
    assert (whole.version, whole.pending, whole.stale) == ("2.0", 0, 0)
    await story.deploy(workflow(consumers={"new": consumer(next="return prepared.data.payload;")}))
    assert [i.status for i in await story.keep.inputs(wf)] == ["pending"]
    await story.run()
    assert await story.keep.state(wf, "new") == "kept"


async def test_consumed_and_skipped_events_strand_nobody(story: Story) -> None:
    """DESIGN 4: only waiting ones count; and another consumer of the topic is as good."""
    pick = take_all().replace("await ctx.peek(topic)", '(await ctx.peek(topic)).filter(e => e.messageId === "a")')
    wf = await story.deploy_and_run(workflow(producers=POLLING, consumers={"take": consumer(pick)}), "a", "b")
    await story.deploy(workflow(producers=POLLING, consumers={"other": consumer(NOTHING)}))
    await story.keep.skip_event((await story.event(wf, "in", "b")).id)
    await story.deploy(workflow(topics=["out"]))
    assert (await story.workflow(wf)).version == "3.0"


async def test_an_event_that_a_stopped_run_holds_counts_as_waiting(story: Story) -> None:
    """DESIGN 4, I17: reserved is not done."""
    await story.deploy_and_run(taking(mutate='throw new Error("no");'), "a")
    with pytest.raises(Exception, match="'in'"):
        await story.deploy(workflow(producers=POLLING))


# -- a run that is under way or stopped --------------------------------------------------------------------


async def test_a_run_before_its_mutation_starts_over_in_the_new_version(story: Story) -> None:
    """DESIGN 2, R172: reservations released, prepare fresh, one effect; the old run is in the chain."""
    broken = 'if (prepared) { throw new Error("bug"); } await ctx.webhook.fire({ id: "never" });'
    wf = await story.deploy(taking(mutate=broken))
    story.feed.put("a", "first")
    await story.run()
    stopped = await story.last(wf, "take")
    assert (stopped.status, stopped.phase) == ("failed:logic", "mutating")
    pick_other = take_first().replace("const [event]", "const [, event]")
    story.feed.put("b", "second")
    await story.deploy(taking(prepare=pick_other), author="maintainer")
    await story.keep.run_now(wf)
    await story.run()
    fresh = (await story.runs(wf, "take"))[1]
    assert (fresh.retry_of, fresh.version) == (stopped.id, "1.1")
    assert (await story.keep.run(stopped.id)).status != "failed:logic", "it was carried on"
    assert [e.params["of"] for e in story.world.effects] == ["b"]
    assert await story.ids(wf, status="pending") == ["a"], "released"
    assert {e.reserved_by for e in await story.events(wf)} == {None}


@pytest.mark.parametrize("error", [Rejected("no such sheet"), Transient("busy")], ids=lambda e: type(e).__name__)
async def test_a_run_whose_mutation_failed_for_sure_starts_over_too(story: Story, error: Exception) -> None:
    """DESIGN 2: every earlier mutation is `failed`, so the new version may do something else."""
    wf = await story.deploy(taking())
    story.feed.put("a")
    story.world.on("webhook.fire").fail(error)
    await story.run()
    await story.deploy(taking(mutate='await ctx.gmail.send({ to: "x@example.com" });'))
    await story.run(seconds=30)
    assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "applied"]
    assert [e.operation for e in story.world.effects] == ["gmail.send"]
    assert (await story.last(wf, "take")).version == "2.0"
    assert await story.ids(wf, status="consumed") == ["a"]


async def test_after_the_effect_the_new_versions_next_gets_what_the_old_one_prepared(story: Story) -> None:
    """DESIGN 2, R157, R158: the stored PrepareResult and result; no second effect, no second prepare."""
    wf = await story.deploy(taking('throw new Error("bug");'))
    story.feed.put("a", "old payload")
    await story.run()
    assert (await story.last(wf, "take")).phase == "emitting"
    story.feed.put("a", "new payload")
    mended = taking("return [prepared.data.payload, mutationResult];", prepare='throw new Error("not again");')
    await story.deploy_and_run(mended, author="maintainer")
    assert await story.keep.state(wf, "take") == ["old payload", {"status": "applied", "result": {"ok": True}}]
    assert len(story.world.effects) == 1
    assert await story.ids(wf, status="consumed") == ["a"]


async def test_while_an_outcome_is_unknown_the_new_version_waits(story: Story) -> None:
    """DESIGN 2, I3: nothing is sent, prepared or released; afterwards the new version's next ends the run."""
    wf = await story.deploy(taking())
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    await story.run()
    [mutation] = await story.keep.mutations(wf)
    runs = len(await story.runs(wf))
    await story.deploy(taking("return [prepared.data.messageId, mutationResult.status];"))
    await story.run(hours=3)
    assert (mutation.status, len(await story.runs(wf)), len(story.world.effects)) == ("indeterminate", runs, 1)
    assert (await story.event(wf, "in", "a")).reserved_by is not None
    await story.keep.resolve(mutation.id, "happened", {"ok": True})
    await story.run()
    assert await story.ids(wf, status="consumed") == ["a"]
    assert await story.keep.state(wf, "take") == ["a", "applied"]
    assert len(story.world.effects) == 1


async def test_while_keep_is_finding_out_the_new_version_waits_too(story: Story) -> None:
    """DESIGN 2: needs_reconcile; then the outcome that was found counts and nothing is sent again."""
    send = 'await ctx.gmail.send({ to: "x@example.com" });'
    wf = await story.deploy(taking(mutate=send))
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer(OutcomeUnknown("lost"))
    story.world.on_reconcile("gmail.send").answer(Verdict.retry())
    await story.run()
    assert (await story.last(wf, "take")).status == "paused:reconciliation"
    await story.deploy_and_run(taking("return mutationResult.status;", mutate=send + " // changed\n"))
    assert len(story.world.effects) == 1
    await story.run(minutes=2)
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
    assert await story.ids(wf, status="consumed") == ["a"]
    assert await story.keep.state(wf, "take") == "applied"
    assert len(story.world.effects) == 1


async def test_a_run_under_way_ends_in_the_version_it_began_with(story: Story) -> None:
    """I11: a deploy during the call; next belongs to the same version as the mutation, and then the new one runs."""
    wf = await story.deploy(taking('return [...(ctx.state ?? []), "one"];'))
    story.feed.put("a")
    story.feed.put("b")
    deployed: list[str] = []

    async def deploy(params: Any, call: Call) -> None:
        if not deployed:
            deployed.append(await story.deploy(taking('return [...(ctx.state ?? []), "two"];')))
    story.world.on("webhook.fire").before(deploy)
    await story.run()
    assert await story.keep.state(wf, "take") == ["one", "two"]
    assert [r.version for r in await story.runs(wf, "take")] == ["1.0", "2.0"]
    assert len(story.world.effects) == 2


async def test_a_version_that_comes_while_its_producer_runs_is_due_an_interval_after_that_began(story: Story) -> None:
    """DESIGN 8: the run of the old version neither puts it off nor makes it run at once."""
    read = "await ctx.gmail.search({{}}); return {};"
    wf = await story.deploy(workflow(producers={"poll": producer(read.format('"one"'))}))
    deployed: list[str] = []

    async def deploy(params: Any, call: Call) -> None:
        if not deployed:
            deployed.append(await story.deploy(workflow(producers={"poll": producer(read.format('"two"'))})))
    story.world.on("gmail.search").before(deploy)
    await story.run()
    assert [r.version for r in await story.runs(wf)] == ["1.0"]
    await story.run(minutes=5)
    assert [r.version for r in await story.runs(wf)] == ["1.0", "2.0"]
    assert await story.keep.state(wf, "poll") == "two"


async def test_a_version_that_comes_while_its_consumer_runs_looks_at_what_waits(story: Story) -> None:
    """DESIGN 8: "a version was activated since its last committed run began", and that run took nothing."""
    idle = consumer("await ctx.gmail.search({}); " + NOTHING)
    wf = await story.deploy(workflow(producers={"poll": producer(interval="30d")}, consumers={"take": idle}))
    story.feed.put("a")

    async def deploy(params: Any, call: Call) -> None:
        await story.deploy(workflow(consumers={"take": consumer()}))
    story.world.on("gmail.search").before(deploy)
    await story.run()
    assert [r.version for r in await story.runs(wf, "take")] == ["1.0", "2.0"]
    assert await story.ids(wf, status="consumed") == ["a"]


async def test_a_stopped_run_whose_handler_is_gone_lets_its_events_go(story: Story) -> None:
    """DESIGN 2, 4: before any effect it is abandoned, and the topic's new consumer takes the event."""
    wf = await story.deploy_and_run(taking(mutate='throw new Error("bug");'), "a")
    stopped = await story.last(wf, "take")
    await story.deploy_and_run(workflow(producers=POLLING, consumers={"other": consumer(mutate=FIRE)}))
    assert (await story.keep.run(stopped.id)).status == "abandoned"
    assert await story.ids(wf, status="consumed") == ["a"]
    assert (len(story.world.effects), (await story.workflow(wf)).blocked_by) == (1, None)


async def test_a_run_after_its_effect_whose_handler_is_gone_waits_to_be_finished(story: Story) -> None:
    """DESIGN 6, I32: the effect is never repeated by another consumer; `finish` consumes its event."""
    wf = await story.deploy_and_run(taking('throw new Error("bug");'), "a")
    stopped = await story.last(wf, "take")
    await story.deploy(workflow(producers=POLLING, consumers={"other": consumer(mutate=FIRE)}))
    await story.run(hours=2)
    assert (await story.workflow(wf)).blocked_by == stopped.id
    await story.keep.finish(stopped.id)
    await story.run()
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"]
    assert len(story.world.effects) == 1
    assert await story.events(wf, "out") == []


async def test_a_producer_that_failed_runs_again_in_the_new_version(story: Story) -> None:
    """R083, R172: from its old state, linked to the failed run."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer('throw new Error("bug");')}))
    failed = await story.last(wf)
    await story.deploy(workflow(producers={"poll": producer("return state === undefined;")}), author="maintainer")
    await story.run()
    assert (await story.runs(wf))[1].retry_of == failed.id
    assert await story.keep.state(wf, "poll") is True
    assert (await story.workflow(wf)).blocked_by is None


async def test_a_version_that_only_finished_a_run_without_events_looks_at_what_waits_itself(story: Story) -> None:
    """`prepare` of the old version took nothing and its `next` failed: what waits is new to the new version."""
    wf = await story.deploy_and_run(taking("null.x;", prepare=NOTHING), "a")
    await story.deploy(taking())
    await story.run()
    assert await story.ids(wf, "in", "consumed") == ["a"]
