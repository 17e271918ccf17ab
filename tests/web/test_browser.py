"""The page as people meet it, in a real browser."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from .conftest import LINES, Served, Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 320, "height": 640}}
DARK = {"viewport": {"width": 1000, "height": 800}, "color_scheme": "dark"}


async def test_the_printed_address_leads_to_a_first_page_that_says_what_to_do(served: Served, tab: Tab) -> None:
    await tab.page.goto(served.web.address())
    assert tab.page.url == f"{served.web.origin}/"
    await expect(tab.page.get_by_role("heading", name="Nothing is deployed yet")).to_be_visible()
    await expect(tab.page.locator(".commands li")).to_have_count(3)


async def test_home_follows_the_work_without_being_loaded_again(served: Served, tab: Tab) -> None:
    await tab.page.goto(served.web.address())
    await tab.page.evaluate("window.sameDocument = true")
    await served.story.deploy(LINES)
    row = tab.page.get_by_role("row", name="lines")
    await expect(row).to_contain_text("watching")
    served.story.feed.put("one")
    await served.story.run()
    await expect(row.locator("[data-label='In, 24 h'] a")).to_have_text("1")
    await expect(row.locator("[data-label='Out, 24 h'] a")).to_have_text("1")
    assert await tab.page.evaluate("window.sameDocument")


async def test_from_an_input_to_its_output_and_back(standing: Served, tab: Tab) -> None:
    await tab.page.goto(standing.web.address())
    await tab.page.get_by_role("link", name="Inputs").first.click()
    await tab.page.get_by_role("link", name="Item one").click()
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Item one")
    await expect(tab.page.locator(".story li strong")).to_have_text([
        "It came in", "Its event waits for a consumer", "An output was sent, and it happened", "A run took the event",
    ])
    await tab.page.get_by_role("link", name="Add a row to book").first.click()
    await expect(tab.page.locator(".json").first).to_contain_text('"spreadsheetId": "book"')
    await tab.page.get_by_role("link", name="Item one").click()
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Item one")


async def test_filters_narrow_a_list_while_one_types_and_stay_in_the_address(standing: Served, tab: Tab) -> None:
    await tab.page.goto(standing.web.address())
    await tab.page.get_by_role("link", name="Inputs").first.click()
    await expect(tab.page.locator(".list tbody tr")).to_have_count(2)
    await tab.page.get_by_label("Text").press_sequentially("TWO")
    await expect(tab.page.locator(".list tbody tr")).to_have_count(1)
    await expect(tab.page.get_by_label("Text")).to_be_focused()
    assert "text=TWO" in tab.page.url
    await tab.page.reload()
    await expect(tab.page.get_by_label("Text")).to_have_value("TWO")
    await expect(tab.page.locator(".list tbody tr")).to_have_count(1)
    await tab.page.get_by_label("Status").select_option("pending")
    await expect(tab.page.get_by_text("No input fits.")).to_be_visible()
    await tab.page.go_back()
    await expect(tab.page.locator(".list tbody tr")).to_have_count(1)


async def test_what_somebody_opens_marks_or_types_is_left_alone(served: Served, tab: Tab) -> None:
    await served.story.deploy(LINES)
    served.story.feed.put("one")
    await served.story.run()
    await tab.page.goto(served.web.address())
    await tab.page.get_by_role("link", name="Inputs").first.click()
    await tab.page.get_by_role("link", name="Item one").click()
    await tab.page.locator("summary", has_text="Parameters").click()
    await tab.page.evaluate("document.activeElement.blur()")
    wf = (await served.story.keep.workflows())[0].id
    for _ in range(2):
        await served.story.keep.pause(wf)
        await served.story.keep.resume(wf)
        await asyncio.sleep(0.4)
    await expect(tab.page.locator(".json")).to_be_visible()


@pytest.mark.parametrize("context", [PHONE], indirect=True)
async def test_on_a_phone_nothing_is_wider_than_the_window(served: Served, tab: Tab) -> None:
    await served.story.deploy(LINES)
    served.story.feed.put("one", title="A" * 300)
    await served.story.run()
    await tab.page.goto(served.web.address())
    assert not await tab.overflows()
    for name in ("Inputs", "Outputs"):
        await tab.page.get_by_role("link", name=name).first.click()
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text(name)
        assert not await tab.overflows()
        await tab.page.locator(".list th a").click()
        await expect(tab.page.locator("#story-title")).to_be_visible()
        assert not await tab.overflows()


@pytest.mark.parametrize("context", [DARK], indirect=True)
async def test_in_the_dark_the_page_is_dark(standing: Served, tab: Tab) -> None:
    await tab.page.goto(standing.web.address())
    colours = await tab.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    paper, ink = (sum(int(part) for part in each[4:-1].split(",")) for each in colours)
    assert paper < 120 < 600 < ink


async def test_everything_can_be_reached_with_the_keyboard(standing: Served, tab: Tab) -> None:
    await tab.page.goto(standing.web.address())
    await tab.page.keyboard.press("Tab")
    await expect(tab.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await tab.page.keyboard.press("Enter")
    for _ in ("in", "out", "lines"):
        await tab.page.keyboard.press("Tab")
    await expect(tab.page.get_by_role("link", name="lines")).to_be_focused()
    outline = await tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus must be seen"
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("lines")


async def test_a_stranger_sees_how_to_get_in(standing: Served, tab: Tab) -> None:
    await tab.page.goto(standing.web.origin)
    await expect(tab.page.get_by_role("heading", name="How to get in")).to_be_visible()
    assert len(tab.complaints) == 1
    assert "401 (Unauthorized)" in tab.complaints.pop()


async def test_a_page_whose_host_is_gone_says_so(served: Served, tab: Tab) -> None:
    await tab.page.goto(served.web.address())
    await served.web.__aexit__(None, None, None)
    await expect(tab.page.get_by_text("Keep does not answer")).to_be_visible()
    tab.complaints.clear()  # the browser's own remarks on a server that is gone
    await tab.page.close()
    await served.web.__aenter__()


async def input_that_waits(served: Served, tab: Tab) -> None:
    """The page of an input that waits behind another whose call a person must approve, with its act laid open."""
    wf = await served.story.deploy(LINES)
    served.story.feed.put("one")
    served.story.feed.put("two")
    await served.story.keep.grant(wf, "sheets.appendRow", "ask")
    await served.story.run()
    await tab.page.goto(served.web.address())
    await tab.page.get_by_role("link", name="Inputs").first.click()
    await tab.page.get_by_role("link", name="Item two").click()
    await tab.page.locator("summary", has_text="Skip this input").click()


async def test_an_act_on_the_page_is_done_and_said(served: Served, tab: Tab) -> None:
    await input_that_waits(served, tab)
    await tab.page.get_by_role("button", name="Skip this input").click()
    await expect(tab.page.locator(".note.done")).to_have_text("Done Nothing more starts because of this input.")
    await tab.page.reload()
    await expect(tab.page.locator(".note.done")).to_have_count(0)


async def test_an_act_that_no_longer_fits_is_refused_with_the_reason(served: Served, tab: Tab) -> None:
    await input_that_waits(served, tab)
    two = (await served.story.inputs("lines"))["two"]
    await served.story.keep.skip_input(two.id)  # somebody else, while this page is open
    await tab.page.get_by_role("button", name="Skip this input").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text("Not done")
    await expect(tab.page.get_by_role("alert")).to_contain_text("skipped")
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Item two")
