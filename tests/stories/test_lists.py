"""Lists: oldest first, a page at a time, and never cut off without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keepai import Transient
from keepai.model.errors import NotFound, Refused
from keepai.reading import views as reading_views
from tests.harness import FIRE, NOTHING, Story, consumer, producer, views, workflow
from tests.routines import ROW, guarded, routine

LISTS = ("inputs", "outputs", "events", "runs", "mutations")


async def worked(story: Story, count: int = 7) -> str:
    """So many inputs came in, each with an event, a run and a mutation; gives the workflow."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(mutate=FIRE)}))
    for number in range(count):
        story.feed.put(f"i{number}")
    await story.run()
    return wf


def ids(entries: list[Any]) -> list[str]:
    return [each.mutation.id if hasattr(each, "mutation") else each.id for each in entries]


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_can_be_read_page_by_page(story: Story, name: str) -> None:
    wf = await worked(story)
    listed: Callable[..., Any] = getattr(story.keep, name)
    whole = await listed(wf)
    assert whole.cursor is None
    assert len(whole) >= 7
    seen: list[str] = []
    page = await listed(wf, limit=3)
    while page.cursor is not None:
        assert len(page) == 3
        assert page.cursor == ids(page)[-1]
        seen += ids(page)
        page = await listed(wf, limit=3, after=page.cursor)
    assert seen + ids(page) == ids(whole)
    assert (await listed(wf, limit=len(whole))).cursor is None
    assert await listed(wf, after=ids(whole)[-1]) == []


async def test_items_can_be_read_page_by_page(story: Story) -> None:
    wf = await story.deploy_and_run(routine(guarded(ROW)), *"abc")
    first = await story.keep.items(wf, limit=2)
    assert [i.external_id for i in first] == ["a", "b"]
    rest = await story.keep.items(wf, after=first.cursor)
    assert ([i.external_id for i in rest], rest.cursor) == (["c"], None)


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_that_is_too_long_says_where_it_goes_on(
    story: Story, monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:
    """As with 100,001 entries: nothing is left out in silence."""
    wf = await worked(story)
    listed: Callable[..., Any] = getattr(story.keep, name)
    whole = ids(await listed(wf))
    monkeypatch.setattr(reading_views, "ROWS_MAX", len(whole) - 1)
    first = await listed(wf)
    assert ids(first) == whole[:-1]
    assert first.cursor == whole[-2]
    assert ids(await listed(wf, after=first.cursor)) == whole[-1:]


async def test_a_page_of_what_is_looked_for_is_full(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts what fits, however much lies between."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(NOTHING)}))
    for number in range(30):
        story.feed.put(f"i{number:02}", title="Ünlike" if number % 10 == 5 else "Same")
    await story.run()
    monkeypatch.setattr(reading_views, "_SEARCHED", 4)
    first = await story.keep.inputs(wf, search="ÜNLIKE", limit=2)
    assert [i.external_id for i in first] == ["i05", "i15"]
    rest = await story.keep.inputs(wf, search="ÜNLIKE", limit=2, after=first.cursor)
    assert ([i.external_id for i in rest], rest.cursor) == (["i25"], None)
    inputs = await story.inputs(wf)
    for id in ("i03", "i07"):
        await story.keep.skip_input(inputs[id].id)
    pending = await story.keep.inputs(wf, status="pending", limit=4)
    assert [i.external_id for i in pending] == ["i00", "i01", "i02", "i04"]
    assert [i.external_id for i in await story.keep.inputs(wf, status="skipped", after=pending.cursor)] == ["i07"]


async def test_events_that_a_run_has_in_hand_can_be_asked_for(story: Story) -> None:
    story.world.on("webhook.fire").fail(Transient("busy"))
    wf = await worked(story, 3)
    assert await story.ids(wf, status="reserved") == ["i0"]
    assert await story.ids(wf, "in", "reserved") == ["i0"]
    assert await story.ids(wf, "out", "reserved") == []
    assert await story.ids(wf, status="pending") == ["i0", "i1", "i2"]


async def test_what_cannot_be_listed_is_refused_and_not_empty(story: Story) -> None:
    wf = await worked(story, 1)
    other = await story.deploy_and_run(workflow("other", producers={"poll": producer(publishes=["in"])}))
    with pytest.raises(Refused, match=r"no status 'done'. There are: pending, reserved, consumed, skipped"):
        await story.keep.events(wf, status="done")
    with pytest.raises(Refused, match=r"no status 'reserved'. There are: pending, done, late, skipped"):
        await story.keep.inputs(wf, status="reserved")
    for limit in (0, -1, True, 1.5):
        with pytest.raises(Refused, match="limit must be a whole number above zero"):
            await story.keep.events(wf, limit=limit)  # type: ignore[arg-type]
    [foreign] = await story.keep.events(other)
    for after in ("evt_none", "", foreign.id, (await story.keep.runs(wf))[0].id):
        with pytest.raises(NotFound, match="This list cannot go on after"):
            await story.keep.events(wf, after=after)


async def test_the_newest_lines_of_a_long_log_are_shown(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    wf = await worked(story, 4)
    looked = views(story.keep)
    every = looked.logs(wf)
    monkeypatch.setattr(reading_views, "ROWS_MAX", 3)
    assert looked.newest_logs(wf, 2) == every[-2:]
    assert looked.logs(wf) == every[:3]
    assert looked.logs(wf, every[2][0]) == every[3:6]
