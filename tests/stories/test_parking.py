"""DESIGN 17: while a run waits for a person, what does not depend on it goes on, if a person wants that."""

from __future__ import annotations

from typing import Any

import pytest

from keepai import PermissionDenied, Policy, Transient
from keepai.ledger.invariants import check_invariants
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.runs import Begin
from keepai.model.errors import Conflict, Refused
from keepai.model.records import Escalation
from keepai.model.states import Phase
from tests.harness import POLL, TOLD, Story, consumer, producer, take_first, workflow

pytestmark = pytest.mark.both_stores

#: Each order goes to the account of its customer; above 1,000 a person must see it.
BOOK = "await ctx.gmail.send({ to: prepared.data.payload.to, body: prepared.data.payload.amount });"
GRANTS = {"feed.list": "allow", "gmail.send": {"mode": "allow", "ask_when": ["body > 1000"]}}


def orders(mutate: str = BOOK, *, next: str | None = TOLD) -> str:
    """A workflow that books each order."""
    return workflow(producers={"poll": producer()}, consumers={"book": consumer(mutate=mutate, next=next)})


def put(story: Story, *orders: tuple[str, int, str]) -> None:
    for id, amount, to in orders:
        story.feed.put(id, {"amount": amount, "to": to})


async def begun(story: Story, *orders_: tuple[str, int, str], waiting: str = "others", **more: Any) -> str:
    put(story, *orders_)
    wf = await story.deploy(orders(**more), grants=GRANTS)
    await story.keep.set(wf, waiting)
    await story.run()
    return wf


def booked(story: Story) -> list[str]:
    """To whom something was booked, in order."""
    return [effect.params["to"] for effect in story.world.effects]


async def questions(story: Story) -> list[Escalation]:
    return await story.keep.needs_you()


async def answer(story: Story, *, nth: int = 0) -> None:
    await story.keep.approve((await questions(story))[nth].id)
    await story.run()


@pytest.fixture(autouse=True)
async def sound(story: Story) -> Any:
    """At its end the ledger of every story keeps every rule."""
    yield
    assert [str(broken) for broken in check_invariants(story.reader())] == []


async def test_by_default_one_question_stops_its_workflow(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), waiting="stop")
    assert booked(story) == []
    assert len(await questions(story)) == 1
    await answer(story)
    assert booked(story) == ["ann", "bob"]


async def test_with_others_what_does_not_depend_on_the_question_goes_on(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), ("c", 2, "cleo"))
    assert booked(story) == ["bob", "cleo"]
    [asked] = await questions(story)
    run = await story.keep.run(asked.run_id)
    assert (run.status, bool(run.parked)) == ("paused:approval", True)
    put(story, ("d", 3, "dora"))
    await story.run(minutes=5)
    assert booked(story) == ["bob", "cleo", "dora"]
    await answer(story)
    assert booked(story) == ["bob", "cleo", "dora", "ann"]
    assert await questions(story) == []
    assert await story.ids(wf, status="pending") == []
    assert not any(run.parked for run in await story.runs(wf))


async def test_orders_to_one_target_stay_in_order(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 1, "ann"), ("c", 2, "bob"), ("d", 3, "ann"))
    assert booked(story) == ["bob"]
    assert len(await questions(story)) == 1
    await answer(story)
    assert [e.params["body"] for e in story.world.effects] == [2, 5000, 1, 3]


async def test_two_questions_about_one_target_are_asked_one_after_the_other(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 6000, "ann"), ("c", 2, "ann"))
    assert booked(story) == []
    for amounts in ([5000], [5000, 6000, 2]):
        assert len(await questions(story)) == 1
        await answer(story)
        assert [e.params["body"] for e in story.world.effects] == amounts


async def test_several_questions_stand_at_once_and_are_answered_in_any_order(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 6000, "bob"), ("c", 7000, "cleo"), ("d", 1, "dora"))
    assert booked(story) == ["dora"]
    assert len(await questions(story)) == 3
    await answer(story, nth=1)
    assert booked(story) == ["dora", "bob"]
    await story.keep.reject((await questions(story))[1].id)
    await story.run()
    await answer(story)
    assert booked(story) == ["dora", "bob", "ann"]
    assert await questions(story) == []


async def test_with_intake_producers_go_on_and_nothing_else(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), waiting="intake")
    put(story, ("c", 1, "cleo"))
    await story.run(minutes=5)
    assert (booked(story), await story.ids(wf)) == ([], ["a", "b", "c"])
    await answer(story)
    assert booked(story) == ["ann", "bob", "cleo"]


async def test_as_many_runs_are_parked_as_policy_allows_and_then_nothing_begins(tmp_path: Any) -> None:
    few = tmp_path / "few"
    few.mkdir()
    async with Story(few, policy=Policy(parked_max=2)) as story:
        wf = await begun(story, *[(f"o{n}", 5000 + n, f"p{n}") for n in range(4)], ("z", 1, "zoe"))
        assert (len(await questions(story)), booked(story)) == (2, [])
        assert "parked_max" in (await story.keep.explain(wf)).because
        await answer(story)
        assert (len(await questions(story)), booked(story)) == (2, ["p0"])
        await answer(story, nth=1)
        await answer(story, nth=1)
        assert booked(story)[:3] == ["p0", "p2", "p3"]
        assert "zoe" in booked(story)


async def test_what_a_parked_run_keeps_is_counted_as_that_of_any_open_run(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann" * 400), waiting="stop")
    before = (await story.workflow(wf)).bytes
    await story.keep.set(wf, "others")
    await story.run()
    assert (await story.last(wf, "book")).parked
    assert (await story.workflow(wf)).bytes.runs >= before.runs


async def test_what_parked_runs_keep_leaves_less_room_for_others(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann" * 10_000))
    kept = (await story.workflow(wf)).bytes.total
    put(story, ("b", 1, "bob"))
    story.policy = Policy(workflow_bytes_max=kept - 5_000)  # as much as there is without the parked run
    for _ in "once as the host knows it from the file, once as it has counted since":
        await story.reopen()
        await story.run(minutes=5)
    assert booked(story) == []
    [_, full] = await questions(story)
    assert "workflow_bytes_max" in str(full.facts["why"])


async def test_a_grant_fits_what_was_shown_of_a_parked_run_whatever_others_have_done_since(story: Story) -> None:
    put(story, ("a", 1, "ann"))
    wf = await story.deploy(orders(), grants={"feed.list": "allow"})
    await story.keep.set(wf, "others")
    await story.run()
    [card] = await questions(story)
    assert (await story.keep.run(card.run_id)).parked
    await story.keep.retry(card.run_id)
    await story.run()
    with pytest.raises(Refused, match="has moved since"):
        await story.keep.grant(wf, "gmail.send", shown=card.version)
    [card] = await questions(story)
    await story.run(minutes=5)  # the producer runs meanwhile
    await story.keep.grant(wf, "gmail.send", shown=card.version)
    await story.run()
    assert booked(story) == ["ann"]


async def test_a_mode_that_does_not_exist_is_refused(story: Story) -> None:
    wf = await story.deploy(orders(), grants=GRANTS)
    with pytest.raises(Refused, match="stop, intake, others"):
        await story.keep.set(wf, "all")


# -- what is held --------------------------------------------------------------------------------------

#: Two consumers; each event of the first has a sibling of the same input in the second.
TWINS = """
  for (const item of await ctx.feed.list({})) {
    const inputId = ctx.registerInput({ source: "feed", type: "item", id: item.id, title: item.id });
    for (const topic of ["in", "out"]) {
      await ctx.publish(topic, { messageId: item.id, inputId, payload: { ...item.payload, topic } });
    }
  }
"""


def twins() -> str:
    book = "await ctx.gmail.send({ to: prepared.data.payload.topic + prepared.data.payload.to, "
    return workflow(producers={"poll": producer(TWINS, publishes=["in", "out"])}, consumers={
        "book": consumer(mutate=book + "body: prepared.data.payload.amount });"),
        "tell": consumer(subscribe=["out"], mutate=book + "body: 0 });"),
    })


async def test_what_comes_of_one_input_waits_for_the_parked_run_of_that_input(story: Story) -> None:
    put(story, ("a", 5000, "ann"), ("b", 1, "bob"))
    wf = await story.deploy(twins(), grants=GRANTS)
    await story.keep.set(wf, "others")
    await story.run()
    assert booked(story) == ["inbob", "outbob"]
    [asked] = await questions(story)
    held = await story.event(wf, "out", "a")
    told = await story.keep.explain(held.id)
    assert asked.run_id in told.because
    assert asked.run_id in str(told.moved_by)
    await answer(story)
    assert booked(story) == ["inbob", "outbob", "inann", "outann"]


async def test_a_script_that_reserves_a_held_event_unseen_is_told_by_which_run_it_is_held(story: Story) -> None:
    put(story, ("a", 5000, "ann"), ("b", 1, "bob"))
    unseen = take_first("out").replace("[event.messageId] }],", '["a"] }],')
    wf = await story.deploy(twins().replace(take_first("out"), unseen), grants=GRANTS)
    await story.keep.set(wf, "others")
    await story.run()
    asked = next(each for each in await questions(story) if each.kind == "approval")
    failed = await story.last(wf, "tell")
    assert (failed.status, failed.error and failed.error.message) == (
        "failed:logic", f"prepare reserved 'a' of topic 'out', but it waits for run {asked.run_id}, which is parked. "
        "Reserve only events that ctx.peek or ctx.getByIds returned in this run.")


async def test_an_event_that_is_published_later_waits_for_the_parked_run_of_its_input(story: Story) -> None:
    put(story, ("a", 5000, "ann"))
    poll = TWINS.replace('["in", "out"]', '(item.payload.more ? ["in", "out"] : ["in"])')
    source = twins().replace(TWINS, poll)
    assert source != twins()
    wf = await story.deploy(source, grants=GRANTS)
    await story.keep.set(wf, "others")
    await story.run()
    story.feed.put("a", {"amount": 5000, "to": "ann", "more": True})
    await story.run(minutes=5)
    assert booked(story) == []
    await answer(story)
    assert booked(story) == ["inann", "outann"]


async def test_an_event_that_is_processed_once_more_waits_for_the_parked_run_of_its_input(story: Story) -> None:
    put(story, ("a", 5000, "ann"))
    wf = await story.deploy(twins(), grants=GRANTS)
    await story.keep.set(wf, "others")
    await story.run()
    await answer(story)
    assert booked(story) == ["inann", "outann"]
    for topic in ("in", "out"):
        await story.keep.reprocess((await story.event(wf, topic, "a")).id)
        await story.run()
    assert booked(story) == ["inann", "outann"]
    await answer(story)
    assert booked(story) == ["inann", "outann", "inann", "outann"]


async def test_an_event_that_waits_for_a_parked_run_can_be_skipped(story: Story) -> None:
    put(story, ("a", 5000, "ann"), ("b", 1, "bob"))
    wf = await story.deploy(twins(), grants=GRANTS)
    await story.keep.set(wf, "others")
    await story.run()
    await story.keep.skip_event((await story.event(wf, "out", "a")).id)
    assert (await story.event(wf, "out", "a")).status == "skipped"
    await answer(story)
    assert booked(story) == ["inbob", "outbob", "inann"]


async def test_an_approved_call_waits_for_an_earlier_run_that_came_to_hold_its_target(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 6000, "bob"))
    first, second = await questions(story)
    story.world.on("gmail.send").fail(PermissionDenied("The password was changed."))
    await story.keep.approve(first.id)
    await story.run()
    await story.keep.approve(second.id)
    await story.run(minutes=1)
    assert booked(story) == [], "what the first lacks the second lacks too"
    assert (await story.keep.run(second.run_id)).status == "paused:approval"
    await story.keep.retry(first.run_id)  # it asks once more, and holds no more than its own target
    await story.run()
    assert booked(story) == ["bob"]
    await answer(story)
    assert booked(story) == ["bob", "ann"]


async def test_a_handler_that_keeps_state_waits_for_its_parked_run(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), next="return { n: (ctx.state?.n ?? 0) + 1 };")
    assert booked(story) == []
    await answer(story)
    assert booked(story) == ["ann", "bob"]


async def test_what_waits_for_parked_runs_cannot_begin_whoever_decides_it(story: Story) -> None:
    # a person may have chosen what goes on since this was decided
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), next="return { n: (ctx.state?.n ?? 0) + 1 };")
    book = Begin(wf, "book", "consumer", (1, 0), Phase.PREPARING, "event")
    poll = Begin(wf, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule")
    for waiting, wanted in (("others", book), ("intake", book), ("stop", book), ("stop", poll)):
        await story.keep.set(wf, waiting)
        with pytest.raises(Conflict, match=rf"'{wanted.handler}' waits for"):
            await story.keep.parts.ledger.write(runs.begin, wanted)


async def test_what_waits_for_a_target_names_the_parked_run(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "ann"))
    [asked] = await questions(story)
    held = await story.last(wf, "book")
    assert (held.status, bool(held.parked)) == ("paused:held", True)
    told = await story.keep.explain(held.id)
    assert asked.run_id in told.because
    assert [step.kind for step in told.moved_by][:2] == ["run", "person"]
    assert asked.run_id in str(await story.keep.explain(wf))
    [workflow_] = await story.keep.workflows()
    assert (workflow_.waiting, [each.run_id for each in workflow_.parked]) == ("others", [asked.run_id, held.id])
    assert "gmail: ann" in workflow_.parked[0].holds


async def test_a_script_that_throws_before_its_call_holds_its_handler_and_every_target(story: Story) -> None:
    throws = "if (prepared.data.payload.amount > 1000) throw new Error('no'); "
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), mutate=throws + BOOK)
    assert booked(story) == []
    [asked] = await questions(story)
    assert asked.kind == "logic"
    await story.keep.skip_run(asked.run_id)
    await story.run()
    assert booked(story) == ["bob"]
    assert await story.ids(wf, status="skipped") == ["a"]


async def test_an_unknown_outcome_is_parked_and_its_target_is_held(story: Story) -> None:
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").unknown()
    await begun(story, ("a", 1, "ann"), ("b", 1, "ann"), ("c", 1, "bob"))
    [asked] = await questions(story)
    assert asked.kind == "unknown_outcome"
    assert booked(story) == ["ann", "bob"]
    await story.keep.resolve(str(asked.mutation_id), "happened")
    await story.run()
    assert booked(story) == ["ann", "bob", "ann"]


# -- people, versions, hosts -----------------------------------------------------------------------------


async def test_a_restart_keeps_what_is_parked_and_what_it_holds(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 1, "ann"), ("c", 1, "bob"))
    await story.reopen()
    put(story, ("d", 1, "ann"), ("e", 1, "dora"))
    await story.run(minutes=5)
    assert booked(story) == ["bob", "dora"]
    await story.keep.approve((await questions(story))[0].id)
    await story.reopen()
    await story.run()
    assert [e.params["body"] for e in story.world.effects if e.params["to"] == "ann"] == [5000, 1, 1]


@pytest.mark.parametrize("point", ["before:unpark", "after:unpark", "after:park", "before:park", "after:stop"])
async def test_a_host_that_dies_around_parking_loses_nothing_and_does_nothing_twice(story: Story, point: str) -> None:
    put(story, ("a", 5000, "ann"), ("b", 1, "ann"), ("c", 1, "bob"))
    wf = await story.deploy(orders(), grants=GRANTS)
    await story.keep.set(wf, "others")
    if "unpark" in point:
        await story.run()
        await story.keep.approve((await questions(story))[0].id)
    await story.crash(point)
    await story.run()
    for asked in await questions(story):
        await story.keep.approve(asked.id)
    await story.run()
    assert sorted(booked(story)) == ["ann", "ann", "bob"]
    assert [e.params["body"] for e in story.world.effects if e.params["to"] == "ann"] == [5000, 1]


async def test_a_new_version_carries_parked_runs_on_in_their_order(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"), ("b", 6000, "ann"), ("c", 1, "bob"))
    await story.deploy(orders(next=TOLD + " /* better */"), grants=None)
    await story.run()
    for amounts in ([5000], [5000, 6000]):
        await answer(story)
        assert [e.params["body"] for e in story.world.effects if e.params["to"] == "ann"] == amounts


async def test_back_to_stop_nothing_begins_until_the_parked_runs_are_answered(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"))
    await story.keep.set(wf, "stop")
    put(story, ("b", 1, "bob"))
    await story.run(minutes=5)
    assert booked(story) == []
    await answer(story)
    assert booked(story) == ["ann", "bob"]


async def test_a_retry_after_a_failure_of_the_network_still_stops_the_others(story: Story) -> None:
    story.world.on("gmail.send").fail(Transient("Come later."))
    await begun(story, ("a", 1, "ann"), ("b", 1, "bob"))
    assert booked(story) == []
    await story.run(minutes=1)
    assert booked(story) == ["ann", "bob"]


async def test_a_parked_run_is_answered_although_another_waits_for_time(story: Story) -> None:
    await begun(story, ("a", 5000, "ann"))
    story.world.on("gmail.send").fail(Transient("Come later."))
    put(story, ("b", 1, "bob"), ("c", 1, "cleo"))
    await story.run(minutes=5)
    assert booked(story) == []
    await answer(story)
    assert booked(story) == ["ann"]
    await story.run(minutes=1)
    assert booked(story) == ["ann", "bob", "cleo"]


async def test_what_people_do_with_a_parked_run_fits_it_alone(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 6000, "bob"), ("c", 1, "cleo"))
    first, second = await questions(story)
    await story.keep.skip_run(first.run_id)
    await story.keep.pause(wf)
    await story.run()
    assert booked(story) == ["cleo"]
    await story.keep.resume(wf)
    await story.run()
    assert await story.ids(wf, status="skipped") == ["a"]
    assert [each.run_id for each in await questions(story)] == [second.run_id]


async def test_small_orders_go_through_while_big_ones_wait_and_each_big_one_is_booked_once(story: Story) -> None:
    # the story of the guide: the whole of it, killed and with thousands, is tests/prove/orders.py
    big = [(f"big {n}", 5000 + n, f"customer {n}") for n in range(3)]
    small = [(f"small {n}", n, f"customer {100 + n}") for n in range(60)]
    await begun(story, *sorted([*small, *big], key=lambda order: order[1] % 7))
    assert sorted(booked(story)) == sorted(to for _, _, to in small)
    assert len(await questions(story)) == 3
    for _ in big:
        await answer(story)
    assert sorted(booked(story)) == sorted(to for _, _, to in (*small, *big))


async def test_a_parked_run_can_be_mended_while_another_run_waits_for_time(story: Story) -> None:
    throws = f"if (prepared.data.payload.amount === 13) throw new Error('unlucky');\n{BOOK}"
    poll = producer("await ctx.gmail.search({});" + POLL)
    faulty = workflow(producers={"poll": poll}, consumers={"book": consumer(mutate=throws)})
    put(story, ("a", 13, "ann"))
    wf = await story.deploy(faulty, grants={**GRANTS, "gmail.search": "allow"})
    await story.keep.set(wf, "others")
    await story.run()
    story.world.on("gmail.search").fail(Transient("Come later."))
    await story.run(minutes=5)
    assert [(run.status, bool(run.parked)) for run in await story.runs(wf) if run.status != "committed"] == [
        ("failed:logic", True), ("paused:transient", False)]
    offered = await story.keep.fix(wf, faulty.replace("=== 13", "=== 14"))
    await story.keep.approve(offered)
    await story.run(minutes=1)
    assert booked(story) == ["ann"]
