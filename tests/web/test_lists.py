"""Lists a page at a time: nothing is shown twice or left out, filters hold, and one page never searches for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import Transient
from keepai.reading import lists, overview
from keepai.reading.lists import ListFilter
from tests.harness import Story, consumer, producer, take_all, views, workflow

from .conftest import APPEND, LINES

GATHER = 'await ctx.sheets.appendRow({ spreadsheetId: "book", values: ["all"] });'


async def filled(story: Story, number: int, script: str = LINES) -> str:
    """A workflow that took so many inputs, a minute apart."""
    wf = await story.deploy(script)
    for each in range(number):
        story.feed.put(f"m{each:02}", title=f"Item {each:02}")
        await story.run(minutes=5)
    return wf


def titles(listed: lists.ListPage[lists.InputRow]) -> list[str]:
    return [came.input.title for came in listed.rows]


async def test_pages_follow_each_other_without_gap_or_overlap(story: Story) -> None:
    wf = await filled(story, 7)
    read, seen, before = story.reader(), [], None
    for size in (3, 3, 1):
        page = lists.inputs(read, wf, ListFilter(before=before), rows=3)
        assert len(page.rows) == size
        seen += titles(page)
        before = page.older
    assert before is None
    assert seen == [f"Item {each:02}" for each in reversed(range(7))]
    assert all(len(came.outputs) == 1 for came in lists.inputs(read, wf, ListFilter()).rows)


async def test_filters_by_status_time_and_text(story: Story) -> None:
    wf = await filled(story, 4)
    await story.keep.grant(wf, "sheets.appendRow", "ask")
    story.feed.put("late", title="Ärger mit Straße")
    await story.run(minutes=5)
    read, now = story.reader(), story.clock.now_ms()
    assert titles(lists.inputs(read, wf, ListFilter(status="pending"))) == ["Ärger mit Straße"]
    assert titles(lists.inputs(read, wf, ListFilter(status="needs you"))) == ["Ärger mit Straße"]
    assert len(lists.inputs(read, wf, ListFilter(status="done")).rows) == 4
    assert lists.inputs(read, wf, ListFilter(status="skipped")).rows == ()
    assert titles(lists.inputs(read, wf, ListFilter(since_ms=now - 6 * 60_000))) == ["Ärger mit Straße", "Item 03"]
    for text in ("ärger", "ÄRGER", "Ärger", "late"):
        assert titles(lists.inputs(read, wf, ListFilter(text=text))) == ["Ärger mit Straße"], text
    assert titles(lists.inputs(read, wf, ListFilter(status="pending", text="item"))) == []
    assert len(lists.outputs(read, wf, ListFilter(status="applied", text="APPENDROW")).rows) == 4
    assert lists.outputs(read, wf, ListFilter(status="failed")).rows == ()


async def test_one_page_searches_so_far_and_says_how_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SPAN", 3)
    async with Story(tmp_path) as story:
        wf = await filled(story, 8)
        read, found, pages, before = story.reader(), [], 0, None
        while True:
            page = lists.inputs(read, wf, ListFilter(text="Item 00", before=before))
            pages, before = pages + 1, page.older
            found += titles(page)
            if before is None:
                break
            assert page.searched_to_at is not None
        assert found == ["Item 00"]
        assert pages == 3


async def test_what_waits_is_found_wherever_it_stands_in_a_long_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lists, "SPAN", 2)
    holds = "if (prepared.data.messageId === 'm00') throw new Error('no'); " + APPEND
    skips_first = """
      const events = await ctx.peek("in");
      const event = events.find(e => e.messageId !== "m00");
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [event.messageId] }], data: event, ui: { title: "x" } };
    """
    script = workflow(producers={"poll": producer()}, consumers={"take": consumer(skips_first, mutate=holds)})
    async with Story(tmp_path) as story:
        wf = await filled(story, 6, script)
        page = lists.inputs(story.reader(), wf, ListFilter(status="pending"))
        assert titles(page) == ["Item 00"]
        assert page.older is None


async def test_an_output_leads_back_to_all_its_inputs(story: Story) -> None:
    script = workflow(producers={"poll": producer()}, consumers={"all": consumer(take_all(), mutate=GATHER)})
    wf = await story.deploy(script)
    for each in range(7):
        story.feed.put(f"m{each}")
    await story.run()
    read = story.reader()
    [went] = lists.outputs(read, wf, ListFilter()).rows
    assert (went.inputs, went.more) == (7, False)
    assert went.first is not None
    first = lists.causes(read, went.output, rows=4)
    rest = lists.causes(read, went.output, first.older or 0, rows=4)
    assert [each.title for each in (*first.rows, *rest.rows)] == [f"Item m{each}" for each in range(7)]
    assert rest.older is None


@pytest.mark.parametrize(("what", "standing"), [
    ("nothing", "watching"), ("asked", "needs you"), ("broken", "failed"), ("later", "waiting"), ("paused", "paused"),
    ("broken and paused", "failed"),
])
async def test_a_workflow_stands_as_people_would_say(story: Story, what: str, standing: str) -> None:
    body = "null.x;" if what.startswith("broken") else APPEND
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(mutate=body)}))
    story.feed.put("one")
    if what == "asked":
        await story.keep.grant(wf, "sheets.appendRow", "ask")
    if what == "later":
        story.world.on("sheets.appendRow").fail(Transient("later"))
    await story.run()
    if what.endswith("paused"):
        await story.keep.pause(wf)
    read, looked = story.reader(), views(story.keep)
    [glance] = overview.glances(read, looked, story.clock.now_ms())
    assert glance.standing == standing
    assert ("until somebody resumes it" in glance.because) == what.endswith("paused")
    [arrived] = overview.traffic(read, wf).inputs
    assert (arrived.source, arrived.type, arrived.total) == ("feed", "item", 1)
    assert (arrived.pending, arrived.done) == ((0, 1) if what in ("nothing", "paused") else (1, 0))
