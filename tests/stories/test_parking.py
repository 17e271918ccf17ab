"""DESIGN 17: while a run waits for a person, what does not depend on it goes on, if a person wants that."""

from __future__ import annotations

from typing import Any

import pytest

from keepai import Policy
from keepai.ledger.invariants import check_invariants
from keepai.model.errors import Refused
from keepai.model.records import Escalation
from tests.harness import TOLD, Story, consumer, producer, workflow

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


async def test_a_mode_that_does_not_exist_is_refused(story: Story) -> None:
    wf = await story.deploy(orders(), grants=GRANTS)
    with pytest.raises(Refused, match="stop, intake, others"):
        await story.keep.set(wf, "all")
