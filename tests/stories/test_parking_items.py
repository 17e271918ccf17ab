"""DESIGN 17: a routine parks the item with which a person is asked, and goes on with the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from keepai import Policy
from keepai.ledger.invariants import check_invariants
from keepai.ledger.transitions import items as item_verbs
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.runs import Begin
from keepai.model.errors import Conflict
from keepai.model.records import Run
from keepai.model.states import Phase
from tests.harness import Story
from tests.routines import items, routine

pytestmark = pytest.mark.both_stores

#: Each order goes to the account of its customer; above 1,000 a person must see it. What was read once is not read
#: again: the state is a cursor.
ORDERS = """
  const from = state?.done ?? 0;
  const orders = (await ctx.feed.list({})).slice(from);
  for (const order of orders) {
    await ctx.withItem(order.id, `Order ${order.id}`, async (ctx) => {
      if (ctx.item.isDone) return;
      await ctx.gmail.send({ to: order.payload.to, body: order.payload.amount });
      MORE
    });
  }
  return { done: from + orders.length };
"""
TWICE = 'await ctx.sheets.appendRow({ spreadsheetId: order.id, values: ["booked"] });'
GRANTS = {"feed.list": "allow", "sheets.appendRow": "allow",
          "gmail.send": {"mode": "allow", "ask_when": ["body > 1000"]}}


def put(story: Story, *orders: tuple[str, int, str]) -> None:
    for id, amount, to in orders:
        story.feed.put(id, {"amount": amount, "to": to})


async def begun(story: Story, *orders: tuple[str, int, str], more: str = "", grants: Any = None) -> str:
    put(story, *orders)
    wf = await story.deploy(routine(ORDERS.replace("MORE", more)), grants=grants or GRANTS)
    await story.keep.set(wf, "others")
    await story.run()
    return wf


def booked(story: Story) -> list[int]:
    return [effect.params["body"] for effect in story.world.effects if effect.operation == "gmail.send"]


async def parked(story: Story, wf: str) -> list[Run]:
    return [run for run in await story.runs(wf) if run.parked]


async def answer(story: Story, act: str = "approve") -> None:
    await getattr(story.keep, act)((await story.keep.needs_you())[0].id)
    await story.run()


async def state(story: Story, wf: str) -> Any:
    [row] = await story.rows("handler_get", workflow_id=wf, handler="work")
    return row["state"]


@pytest.fixture(autouse=True)
async def sound(story: Story) -> AsyncIterator[None]:
    """At its end the ledger of every story keeps every rule."""
    yield
    assert [str(broken) for broken in check_invariants(story.reader())] == []


async def test_the_other_items_are_worked_on_while_one_waits_and_it_is_asked_and_sent_once(story: Story) -> None:
    wf = await begun(story, ("a", 1, "ann"), ("b", 5000, "bob"), ("c", 2, "cleo"))
    assert booked(story) == [1, 2]
    assert await items(story, wf) == {"a": "done", "b": "processing", "c": "done"}
    put(story, ("d", 3, "dora"))
    await story.run(minutes=5)
    await story.run(minutes=5)
    assert booked(story) == [1, 2, 3]
    assert len(await story.keep.needs_you()) == 1
    await answer(story)
    assert booked(story) == [1, 2, 3, 5000]
    assert set((await items(story, wf)).values()) == {"done"}
    assert await parked(story, wf) == []
    await story.run(minutes=5)
    assert booked(story) == [1, 2, 3, 5000]


async def test_a_parked_item_is_carried_on_with_the_state_that_it_had_and_leaves_that_of_others_alone(
    story: Story,
) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), more=TWICE)
    await answer(story)
    assert [effect.operation for effect in story.world.effects] == [
        "gmail.send", "sheets.appendRow", "gmail.send", "sheets.appendRow"]
    assert story.world.effects[-1].params["spreadsheetId"] == "a", "the list of the present state has no a"
    assert await state(story, wf) == '{"done":2}'


async def test_items_to_one_target_stay_in_order(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), ("c", 2, "ann"), ("d", 3, "dora"))
    assert booked(story) == [1], "what waits for a target has the routine wait: a later item may be for it too"
    assert [run.item_id is not None for run in await parked(story, wf)] == [True, False]
    await answer(story)
    assert booked(story) == [1, 5000, 2, 3]


async def test_several_items_wait_at_once_and_are_answered_in_any_order(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 6000, "bob"), ("c", 1, "cleo"))
    assert booked(story) == [1]
    second = next(each for each in await story.keep.needs_you() if "bob" in str(each.facts))
    await story.keep.approve(second.id)
    await story.run()
    assert booked(story) == [1, 6000]
    await answer(story)
    assert booked(story) == [1, 6000, 5000]
    assert set((await items(story, wf)).values()) == {"done"}


@pytest.mark.parametrize("act", ["reject", "skip_run"])
async def test_who_refuses_a_parked_item_skips_it_alone(story: Story, act: str) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"))
    [asked] = await story.keep.needs_you()
    await (story.keep.reject(asked.id) if act == "reject" else story.keep.skip_run(asked.run_id))
    await story.run()
    assert booked(story) == [1]
    assert await items(story, wf) == {"a": "skipped", "b": "done"}
    assert (await parked(story, wf), await story.keep.needs_you()) == ([], [])
    put(story, ("c", 2, "cleo"))
    await story.run(minutes=5)
    assert booked(story) == [1, 2]


async def test_an_item_whose_call_has_an_unknown_outcome_is_parked_and_may_make_the_rest_of_its_calls(
    story: Story,
) -> None:
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").unknown()
    wf = await begun(story, ("a", 1, "ann"), ("b", 2, "bob"), more=TWICE)
    assert booked(story) == [1, 2]
    [asked] = await story.keep.needs_you()
    await story.keep.resolve(str(asked.mutation_id), "happened")
    await story.run()
    assert [effect.params.get("spreadsheetId") for effect in story.world.effects] == [None, None, "b", "a"]
    assert await items(story, wf) == {"a": "done", "b": "done"}


async def test_what_may_stop_every_item_stops_the_routine(story: Story) -> None:
    wf = await begun(story, ("a", 1, "ann"), ("b", 2, "bob"), grants={"feed.list": "allow"})
    [run] = await parked(story, wf)
    assert (run.item_id, len(await story.runs(wf))) == (None, 1)
    await story.keep.grant(wf, "gmail.send")
    await story.run()
    assert booked(story) == [1, 2]


async def test_a_new_version_carries_a_parked_item_on(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"))
    await story.deploy(routine(ORDERS.replace("MORE", TWICE)), workflow_id=wf, grants=None)
    await story.run()
    assert booked(story) == [1]
    await answer(story)
    assert booked(story) == [1, 5000]
    assert [effect.params["spreadsheetId"] for effect in story.world.effects if "values" in effect.params] == ["a"]


async def test_a_list_without_the_parked_item_leaves_it_behind_for_people_to_see(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"), ("b", 1, "bob"), more=TWICE)
    story.feed.items = [each for each in story.feed.items if each["id"] != "a"]
    await answer(story)
    assert booked(story) == [1, 5000], "what a person approved is sent as it was shown"
    assert await items(story, wf) == {"a": "failed", "b": "done"}
    assert await parked(story, wf) == []


async def test_a_limit_per_run_counts_on_behind_a_parked_item(story: Story) -> None:
    grants = {**GRANTS, "gmail.send": {"mode": "allow", "ask_when": ["body > 1000"], "per_run": 2}}
    wf = await begun(story, ("a", 1, "ann"), ("b", 5000, "bob"), ("c", 2, "cleo"), ("d", 3, "dora"), grants=grants)
    assert booked(story) == [1, 2]
    assert "2" in str((await story.last(wf)).error)


async def test_a_parked_item_cannot_be_begun_by_another_run_whoever_decides_it(story: Story) -> None:
    wf = await begun(story, ("a", 5000, "ann"))
    ledger = story.keep.parts.ledger
    other = await ledger.write(runs.begin, Begin(wf, "work", "routine", (1, 0), Phase.EXECUTING, "schedule"))
    with pytest.raises(Conflict, match="a parked run has item"):
        await ledger.write(item_verbs.begin_item, other, "a", "Order a")


#: Before the answer, and after it.
POINTS = [
    *(("asked", point) for point in ("before:park", "after:park", "after:begin_item", "before:commit_routine")),
    *(("answered", point) for point in (
        "before:unpark", "after:unpark", "after:end_item", "before:commit_item", "after:commit_item")),
]


@pytest.mark.parametrize(("when", "point"), POINTS)
async def test_a_host_that_dies_around_a_parked_item_loses_nothing_and_does_nothing_twice(
    story: Story, when: str, point: str,
) -> None:
    put(story, ("a", 5000, "ann"), ("b", 1, "bob"))
    wf = await story.deploy(routine(ORDERS.replace("MORE", TWICE)), grants=GRANTS)
    await story.keep.set(wf, "others")
    if when == "asked":
        await story.crash(point, nth=2 if point == "after:begin_item" else 1)
    await story.run()
    await story.keep.approve((await story.keep.needs_you())[0].id)
    if when == "answered":
        await story.crash(point)
    await story.run(minutes=10)
    assert sorted(booked(story)) == [1, 5000]
    assert len(story.world.effects) == 4
    assert set((await items(story, wf)).values()) == {"done"}
    assert await state(story, wf) == '{"done":2}'


async def test_parked_items_are_bounded_as_parked_runs_are(tmp_path: Any) -> None:
    few = tmp_path / "few"
    few.mkdir()
    async with Story(few, policy=Policy(parked_max=2)) as story:
        orders = [(f"o{n}", 5000 + n, f"p{n}") for n in range(4)]
        await begun(story, *orders)
        assert len(await story.keep.needs_you()) == 2
        for _ in orders:
            await answer(story)
        assert sorted(booked(story)) == [5000, 5001, 5002, 5003]
