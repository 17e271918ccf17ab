"""Events by topic and items of routines: lists with filters a page at a time, one of them in full, what can be done."""

from __future__ import annotations

import html
import re

import pytest
from playwright.async_api import expect

from tests.harness import POLL, consumer, producer, workflow
from tests.routines import ROW, guarded, items, routine

from .conftest import Served, Tab
from .test_workflow import act, held, texts

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_events_are_listed_by_topic_status_and_text(served: Served) -> None:
    wf = await held(served)
    for query, found in (
        ("", ["two", "one"]), ("?topic=in", ["two", "one"]), ("?topic=out", []), ("?status=reserved", ["one"]),
        ("?status=pending", ["two"]), ("?status=consumed", []), ("?text=TW", ["two"]), ("?topic=in&text=on", ["one"]),
        ("?status=pending&text=zzz", []), ("?time=1h", ["two", "one"]),
    ):
        page = (await served.get(f"/workflows/{wf}/events{query}")).body
        told = texts(page[page.index('<div id="list"'):])
        assert [name for name in ("two", "one") if f" {name} " in told] == found, query
    assert "in 2 waiting" in texts(page)
    refused = await served.get(f"/workflows/{wf}/events?status=nonsense")
    assert (refused.status, "This list has no status 'nonsense'." in html.unescape(refused.body)) == (404, True)


async def test_a_long_list_of_events_goes_on_from_page_to_page_within_its_topic(served: Served) -> None:
    wf = await served.story.deploy(workflow(producers={"poll": producer(publishes=("in", "out"))}))
    for number in range(120):
        served.story.feed.put(f"e{number:03}", topic="in" if number % 2 else "out")
    await served.story.run()
    path: str | None = f"/workflows/{wf}/events?topic=in"
    seen: list[str] = []
    while path:
        page = (await served.get(path)).body
        seen += [part[:4] for part in page.split('">')[1:] if part[:1] == "e" and part[4:8] == "</a>"]
        older = page.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
        path = older if 'rel="next"' in page else None
        assert path is None or "topic=in" in path
    assert seen == [f"e{number:03}" for number in range(119, 0, -2)]


async def test_an_event_is_skipped_and_another_reprocessed(served: Served) -> None:
    wf = await held(served)
    two = await served.story.event(wf, "in", "two")
    page = f"/events/{two.id}"
    first = (await served.get(page)).body
    assert "Skip this event" in first
    assert "Item two" in first
    shown = (await act(served, "skip_event", page, id=two.id)).body
    assert "Skip this event" not in shown
    assert (await served.story.event(wf, "in", "two")).status == "skipped"
    again = (await act(served, "reprocess", page, id=two.id)).body
    assert (await served.story.event(wf, "in", "two")).attempt == 2
    assert "Skip this event" in again
    one = await served.story.event(wf, "in", "one")
    taken = (await served.get(f"/events/{one.id}")).body
    assert "reserved" in texts(taken)
    assert 'name="act"' not in taken, "a run holds it"


async def test_a_payload_is_shown_as_text_whatever_it_holds(served: Served) -> None:
    wf = await served.story.deploy(workflow(producers={"poll": producer()}))
    served.story.feed.put("one", {"html": "<script>alert(1)</script>", "bidi": "a\u202eb"})
    await served.story.run()
    one = await served.story.event(wf, "in", "one")
    for path in (f"/workflows/{wf}/events", f"/events/{one.id}"):
        page = (await served.get(path)).body
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "a‹U+202E›b" in page


async def test_what_is_not_there_is_said_so(standing: Served) -> None:
    for path in ("/events/evt_nothing", "/items/itm_nothing", "/workflows/nothing/events", "/workflows/nothing"):
        answer = await standing.get(path)
        assert answer.status == 404, path
        assert "There is no" in answer.body
    assert "only routines work through items" in (await standing.get("/workflows/lines/items")).body


async def test_items_show_their_attempts_and_outputs_and_are_reprocessed(served: Served) -> None:
    wf = await served.story.deploy(routine(guarded(ROW)))
    served.story.feed.put("a", title="Invoice A")
    served.story.feed.put("b", title="Invoice B")
    await served.story.run()
    listed = texts((await served.get(f"/workflows/{wf}/items")).body)
    assert "✓ done Invoice B work" in listed
    assert listed.count("✓ applied Add a row to") == 2
    narrowed = texts((await served.get(f"/workflows/{wf}/items?text=invoice+a&status=done")).body)
    assert ("Invoice A" in narrowed, "Invoice B" in narrowed) == (True, False)
    found = next(item for item in await served.story.keep.items(wf) if item.external_id == "a")
    page = f"/items/{found.id}"
    assert "Runs that worked on it" in (await served.get(page)).body
    await act(served, "reprocess", page, id=found.id)
    await served.story.run()
    again = texts((await served.get(page)).body)
    assert "Attempt 2" in again
    assert again.count("✓ applied Add a row to") == 2


async def test_what_came_too_late_is_on_the_pages_of_its_event_and_its_input(served: Served) -> None:
    shared = POLL.replace("messageId: item.id", 'messageId: "shared"')
    wf = await served.story.deploy(workflow(producers={"poll": producer(shared)}, consumers={"take": consumer()}))
    for id in ("m1", "m2"):
        served.story.feed.items = [{"id": id, "payload": {"said": f"word of {id}"}}]
        await served.story.run(minutes=5)
    event, m2 = await served.story.event(wf, "in", "shared"), (await served.story.inputs(wf))["m2"]
    for page in (f"/events/{event.id}", f"/inputs/{m2.id}"):
        told = texts((await served.get(page)).body)
        assert "What came too late" in told
        assert "Revision 2" in told
        assert "word of m2" in told
    assert "late “Item m2” led to 0 events and 0 outputs; it came after its event was finished; " \
        "revision 2 was not processed." in told
    listed = texts((await served.get(f"/workflows/{wf}/inputs?status=late")).body)
    assert "Item m2" in listed
    assert "Item m1" not in listed
    assert re.search(r"in: feed item 0 1 0 1\b", texts((await served.get(f"/workflows/{wf}")).body))


async def test_an_item_that_its_routine_left_is_skipped(served: Served) -> None:
    wf = await served.story.deploy(routine(guarded('throw new Error("no");')))
    served.story.feed.put("a")
    await served.story.run()
    served.story.feed.items.clear()
    await served.story.keep.retry((await served.story.last(wf)).id)
    await served.story.run()
    [found] = await served.story.keep.items(wf)
    page = f"/items/{found.id}"
    assert "Skip this item" in (await served.get(page)).body
    await act(served, "skip_input", page, id=found.input_id)
    assert await items(served.story, wf) == {"a": "skipped"}


async def test_a_topic_stays_chosen_while_one_types(served: Served, tab: Tab) -> None:
    wf = await held(served)
    await tab.page.goto(served.web.address())
    await tab.page.goto(f"{served.web.origin}/workflows/{wf}/events")
    await tab.page.get_by_role("link", name="in 2 waiting").click()
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Events of in")
    await tab.page.get_by_label("Text").press_sequentially("two")
    await expect(tab.page.locator(".list tbody tr")).to_have_count(1)
    assert "topic=in" in tab.page.url
    assert "text=two" in tab.page.url
    await tab.page.get_by_role("link", name="two", exact=True).click()
    await expect(tab.page.locator("#payload-title")).to_be_visible()
