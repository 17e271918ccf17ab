"""The life of a run: phases go forward, statuses say why it stops, attempts are linked, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, Policy, PreconditionFailed, Rejected, Transient
from tests.harness import (
    FIRE,
    NOTHING,
    POLL,
    SEND,
    SEND_APART,
    Story,
    acting,
    consumer,
    producer,
    take_first,
    views,
    workflow,
)

# -- phases ------------------------------------------------------------------------------------------

WAYS = {
    "applied": (SEND, None, ["preparing", "prepared", "mutating", "mutated", "emitting", "committed"]),
    "nothing called": (
        "ctx.log('no');", None, ["preparing", "prepared", "mutating", "emitting", "committed"]),
    "nothing reserved": (SEND, NOTHING, ["preparing", "prepared", "emitting", "committed"]),
}


async def test_phases_go_forward_one_by_one_and_every_move_is_on_record(story: Story) -> None:
    # R164–R167, R317
    story.feed.put("a")
    for way, (mutate, prepare, phases) in WAYS.items():
        wf = await story.deploy_and_run(acting(mutate, name=way, prepare=prepare))
        poll, act = await story.runs(wf)
        assert story.moves(wf, act.id, "phase") == phases, way
        assert story.moves(wf, act.id, "status") == ["active", "committed"], way
        assert story.moves(wf, poll.id, "phase") == ["executing", "committed"], way
        assert all(r["at"] == story.clock.now_ms() for r in views(story.keep).history(wf, act.id))


async def test_a_skipped_run_goes_from_mutating_to_emitting(story: Story) -> None:
    # R167
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(acting(FIRE))
    [row] = await story.keep.mutations(wf)
    await story.keep.resolve(row.id, "skip")
    await story.run()
    assert story.moves(wf, row.run_id, "phase") == ["preparing", "prepared", "mutating", "emitting", "committed"]
    assert story.moves(wf, row.run_id, "status") == ["active", "paused", "active", "committed"]
    event = await story.event(wf, "in", "a")
    assert story.moves(wf, event.id, "event") == ["pending", "skipped"]


async def test_a_run_whose_mutation_is_found_later_goes_on_in_its_place(story: Story) -> None:
    # R171, R234: next runs exactly once
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry()
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=30)
    [run] = await story.runs(wf, "act")
    assert story.moves(wf, run.id, "phase") == [
        "preparing", "prepared", "mutating", "mutated", "emitting", "committed"]
    assert story.moves(wf, run.id, "status") == ["active", "paused", "active", "committed"]
    assert len(story.logs(run)) == 1


# -- one at a time -----------------------------------------------------------------------------------


async def test_one_run_of_a_workflow_is_under_way_at_a_time_and_workflows_run_side_by_side(story: Story) -> None:
    # R181, R182, I22: seen from inside the calls
    for id in "ab":
        story.feed.put(id)
    counts: list[tuple[str, int, int]] = []

    async def look(params: Any, call: Any) -> None:
        rows = await story.keep.runs(call.workflow_id)
        open_rows = await story.keep.mutations(call.workflow_id)
        counts.append((
            call.workflow_id, sum(r.status == "active" for r in rows),
            sum(m.status == "in_flight" for m in open_rows)))

    story.world.on("gmail.send").before(look)
    wfs = [await story.deploy(workflow(
        f"w{n}", topics=["in", "more"], producers={"poll": producer()}, consumers={
            "act": consumer(mutate=SEND, publishes=["more"], next="""
  await ctx.publish("more", { messageId: prepared.data.messageId, payload: 1 });"""),
            "again": consumer(subscribe=["more"], mutate=SEND)})) for n in range(3)]
    await story.run()
    assert len(counts) == 12
    assert {(runs, open_) for _, runs, open_ in counts} == {(1, 1)}
    for wf in wfs:
        assert {e.status for e in await story.events(wf)} == {"consumed"}


BLOCKED: dict[str, tuple[str, Any, str]] = {
    # how → (mutate, what the world does, the status)
    "transient": (SEND, Transient("later", retry_after=86_400 * 9), "paused:transient"),
    "approval": (SEND, PreconditionFailed("gone"), "paused:approval"),
    "question": (FIRE, OutcomeUnknown("lost"), "paused:reconciliation"),
    "logic": (SEND, Rejected("wrong"), "failed:logic"),
    "thrown": ("throw new Error('no');", None, "failed:logic"),
}


@pytest.mark.parametrize("how", BLOCKED)
async def test_a_blocked_run_holds_all_of_its_workflow_and_nothing_of_any_other(story: Story, how: str) -> None:
    # R178, R183, R184
    mutate, error, status = BLOCKED[how]
    story.feed.put("a")
    if error is not None:
        story.world.on("webhook.fire" if mutate == FIRE else "gmail.send").fail(error)
    wf = await story.deploy_and_run(acting(mutate))
    blocked = await story.last(wf)
    assert blocked.status == status
    other = await story.deploy(acting("ctx.log('fine');", name="other"))
    story.feed.put("b")
    await story.run(minutes=5)
    await story.keep.run_now(wf)
    await story.run(hours=5)
    assert await story.last(wf) == blocked
    assert len(await story.runs(wf)) == 2
    assert (await story.workflow(wf)).blocked_by == blocked.id
    assert (await story.event(wf, "in", "a")).reserved_by == blocked.id
    assert await story.ids(other, "in", "consumed") == ["a", "b"]


async def test_a_blocked_producer_holds_its_consumers_too(story: Story) -> None:
    # R183
    wf = await story.deploy_and_run(workflow(
        producers={
            "a-poll": producer(POLL, interval="7d"),
            "b-fails": producer("throw new Error('no');", publishes=[], interval="7d"),
        },
        consumers={"act": consumer(mutate=SEND)}), "a")
    failed = await story.last(wf, "b-fails")
    assert failed.status == "failed:logic"
    before = len(await story.runs(wf))
    story.feed.put("b")
    await story.run(days=8)
    assert len(await story.runs(wf)) == before


# -- restart -----------------------------------------------------------------------------------------


async def test_a_restart_changes_nothing_of_what_waits(tmp_path: Path) -> None:
    # R113, R170, R186, R204, R205, R310: every kind of waiting, compared record by record
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        story.feed.put("a")
        wfs: dict[str, str] = {}

        async def begin(name: str, mutate: str | None = SEND, **more: Any) -> None:
            wfs[name] = await story.deploy(acting(mutate, name=name, **more), grants=more.pop("grants", "all"))
            await story.run()

        story.world.on("gmail.send").fail(Transient("later"))
        await begin("transient")
        story.world.on("gmail.send").fail(PreconditionFailed("gone"))
        await begin("precondition")
        story.world.on("webhook.fire").fail(OutcomeUnknown("lost"))
        await begin("question", FIRE)
        story.world.on("gmail.send").lose_answer()
        story.world.on_reconcile("gmail.send").retry()
        await begin("looked up")
        await begin("thrown in prepare", prepare="throw new Error('no');")
        await begin("thrown in mutate", "throw new Error('no');")
        await begin("thrown in next", next="throw new Error('no');")
        story.world.on("gmail.get").fail(KeyError("bug"))
        await begin("internal", prepare="await ctx.gmail.get({ id: '1' });" + take_first())
        wfs["not granted"] = await story.deploy(acting(name="not granted"), grants={"feed.list": "allow"})
        await story.run()
        await begin("nothing to do", prepare=NOTHING)

        async def all_of(wf: str) -> list[Any]:
            return [
                await story.keep.runs(wf), await story.keep.events(wf), await story.keep.mutations(wf),
                await story.keep.inputs(wf), await story.workflow(wf),
            ]

        before = {name: await all_of(wf) for name, wf in wfs.items()}
        statuses = {name: (await story.last(wf)).status for name, wf in wfs.items()}
        assert statuses == {
            "transient": "paused:transient", "precondition": "paused:approval", "question": "paused:reconciliation",
            "looked up": "paused:reconciliation", "thrown in prepare": "failed:logic",
            "thrown in mutate": "failed:logic", "thrown in next": "failed:logic", "internal": "failed:internal",
            "not granted": "paused:approval", "nothing to do": "committed",
        }
        calls = len(story.world.asked)
        await story.reopen()
        await story.run()
        assert {name: await all_of(wf) for name, wf in wfs.items()} == before
        assert len(story.world.asked) == calls

        # and each of them can still go on
        await story.keep.grant(wfs["not granted"], "gmail.send", "allow")
        for name in ("precondition", "internal"):
            await story.keep.retry((await story.last(wfs[name])).id)
        await story.keep.resolve((await story.keep.mutations(wfs["question"]))[0].id, "happened")
        for name in ("thrown in prepare", "thrown in mutate", "thrown in next"):
            await story.deploy(acting("ctx.log('mended');", name=name))
        await story.run(seconds=30)
        for name, wf in wfs.items():
            if name != "nothing to do":
                assert await story.ids(wf, "in", "consumed") == ["a"], name
        # transient, precondition, looked up, thrown in next, internal, not granted: one effect each
        assert len(story.world.effects) == 6


@pytest.mark.parametrize(("mutate", "point", "phase"), [
    # where it died → the phase in which the next attempt starts
    (SEND, "before:prepare_and_send", "preparing"),
    (SEND, "after:apply", "emitting"), (SEND, "before:commit_consumer", "emitting"),
    (SEND_APART, "before:prepare", "preparing"), (SEND_APART, "after:prepare", "prepared"),
    (SEND_APART, "before:send", "prepared"), (SEND_APART, "after:apply", "emitting"),
])
async def test_a_run_that_its_host_died_in_is_carried_on_by_a_linked_run(
    story: Story, mutate: str, point: str, phase: str,
) -> None:
    # R186, R187, R197, DESIGN 5: no step with an effect is repeated, no event is lost
    story.feed.put("a")
    wf = await story.deploy(acting(mutate))
    await story.crash(point)
    assert len(story.world.effects) == (phase == "emitting")
    await story.run()
    first, second = await story.runs(wf, "act")
    assert (first.status, second.status) == ("crashed", "committed")
    assert (second.retry_of, second.lineage, second.attempt) == (first.id, first.id, 2)
    assert story.moves(wf, second.id, "phase")[0] == phase
    assert len(story.world.effects) == 1
    assert await story.ids(wf, "in", "consumed") == ["a"]


@pytest.mark.parametrize("point", ["after:begin", "before:commit_producer", "after:commit_producer"])
async def test_a_producer_that_its_host_died_in_runs_again_and_publishes_once(story: Story, point: str) -> None:
    # R186, R187, I19
    story.feed.put("a")
    wf = await story.deploy(acting("ctx.log('fine');"))
    await story.crash(point)
    await story.run()
    assert await story.ids(wf, "in") == ["a"]
    assert len(await story.keep.inputs(wf)) == 1
    done = [r.status for r in await story.runs(wf, "poll")]
    assert done == (["committed"] if point == "after:commit_producer" else ["crashed", "committed"])


# -- attempts ----------------------------------------------------------------------------------------


async def test_attempts_form_a_chain_that_can_be_listed_in_order(story: Story) -> None:
    # R185: a retry, a crash, a person and a new version, all in one lineage
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    story.world.on("gmail.send").fail(PreconditionFailed("gone"))
    story.world.on("gmail.send").fail(Rejected("wrong"))
    wf = await story.deploy_and_run(acting())
    await story.crash("before:send", seconds=30)
    await story.run()
    await story.keep.retry((await story.last(wf)).id)
    await story.run()
    await story.deploy_and_run(acting("await ctx.gmail.send({ to: 'right' });"))
    runs = await story.runs(wf, "act")
    assert [(r.trigger, r.status) for r in runs] == [
        ("event", "superseded"), ("retry", "crashed"), ("recovery", "superseded"), ("person", "superseded"),
        ("new_version", "committed")]
    assert [r.retry_of for r in runs] == [None, *(r.id for r in runs[:-1])]
    assert [r.attempt for r in runs] == [1, 2, 3, 4, 5]
    assert {r.lineage for r in runs} == {runs[0].id}
    assert [r.version for r in runs] == ["1.0"] * 4 + ["2.0"]
    assert [(m.status, m.attempts, m.params) for m in await story.keep.mutations(wf)] == [
        ("failed", 1, {"to": "a"}), ("failed", 2, {"to": "a"}), ("failed", 3, {"to": "a"}),
        ("applied", 4, {"to": "right"})]


async def test_a_retry_under_the_same_version_keeps_the_inputs_and_a_new_version_lets_them_go(story: Story) -> None:
    # R171, R172, DESIGN 2 "After a mutation definitely failed"
    story.feed.put("a")
    story.world.on("gmail.send").fail(PreconditionFailed("gone"), times=2)
    wf = await story.deploy_and_run(acting(prepare="ctx.log('prepare');" + take_first()))
    first = await story.last(wf)
    await story.keep.retry(first.id)
    await story.run()
    second = await story.last(wf)
    assert story.moves(wf, second.id, "phase")[0] == "prepared"
    assert (second.prepare_result, story.logs(second)) == (first.prepare_result, [])
    assert (await story.event(wf, "in", "a")).reserved_by == second.id
    await story.deploy_and_run(acting(prepare=NOTHING))
    [third] = [r for r in await story.runs(wf, "act") if r.retry_of == second.id]
    assert third.status == "committed"
    assert story.moves(wf, third.id, "phase")[0] == "preparing"
    event = await story.event(wf, "in", "a")
    assert (event.status, event.reserved_by) == ("pending", None)
    assert story.world.effects == []


async def test_a_reset_by_a_new_version_runs_the_consumer_once(story: Story) -> None:
    # R118, DESIGN 8: what the reset itself let go is what the new run looks at, not a reason for another
    wf = await story.deploy_and_run(acting("throw new Error('no');"), "a")
    await story.deploy_and_run(acting(prepare=NOTHING))
    assert [r.trigger for r in await story.runs(wf, "act")] == ["event", "new_version"]


async def test_a_failed_run_of_a_handler_that_is_gone_lets_go_of_its_events(story: Story) -> None:
    wf = await story.deploy_and_run(acting("throw new Error('no');"), "a")
    await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"other": consumer(mutate=SEND)}))
    assert [r.status for r in await story.runs(wf, "act")] == ["abandoned"]
    assert (await story.last(wf, "other")).status == "committed"
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert len(story.world.effects) == 1


async def test_an_applied_run_of_a_handler_that_is_gone_waits_to_be_finished(story: Story) -> None:
    # DESIGN 6: "or its consumer is gone": its event must not be offered to the new consumer
    wf = await story.deploy_and_run(acting(next="throw new Error('no');"), "a")
    failed = await story.last(wf)
    await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"other": consumer(mutate=SEND)}))
    assert await story.last(wf) == failed
    await story.keep.finish(failed.id)
    await story.run()
    assert await story.runs(wf, "other") == []
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert len(story.world.effects) == 1


# -- people ------------------------------------------------------------------------------------------


async def test_a_paused_workflow_starts_nothing_and_goes_on_where_it_was(story: Story) -> None:
    # R170, R171, R331
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    wf = await story.deploy_and_run(acting())
    await story.keep.pause(wf)
    await story.run(hours=1)
    assert (await story.last(wf)).status == "paused:transient"
    assert story.world.count("gmail.send") == 1
    await story.keep.resume(wf)
    await story.run()
    assert (await story.last(wf, "act")).status == "committed"
    assert len(story.world.effects) == 1


async def test_a_pause_during_a_run_lets_that_run_end_and_starts_no_other(story: Story) -> None:
    for id in "ab":
        story.feed.put(id)
    wf = await story.deploy(acting())

    async def pause(params: Any, call: Any) -> None:
        if not story.world.effects:
            await story.keep.pause(wf)

    story.world.on("gmail.send").before(pause)
    await story.run()
    assert await story.ids(wf, "in", "consumed") == ["a"]
    await story.run(days=1)
    assert len(story.world.effects) == 1
    await story.keep.resume(wf)
    await story.run()
    assert len(story.world.effects) == 2


async def test_every_run_says_what_it_took_what_it_tried_and_why_it_stopped(story: Story) -> None:
    # R311–R313: from the records alone, and as JSON
    story.feed.put("a", {"amount": 3})
    story.world.on("gmail.send").fail(Rejected("no such address"))
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    shown = json.loads(json.dumps(run.to_json()))
    assert shown["status"] == "failed:logic"
    assert "no such address" in shown["error"]["message"]
    assert json.loads(shown["prepare_result"])["reservations"] == [{"topic": "in", "ids": ["a"]}]
    [output] = await story.keep.outputs(wf)
    assert (output.mutation.connector, output.mutation.operation) == ("gmail", "send")
    assert output.mutation.preview == 'gmail.send: to="a"'
    assert [i.external_id for i in output.inputs] == ["a"]
    input = (await story.inputs(wf))["a"]
    assert (input.status, input.needs_you) == ("pending", True)
