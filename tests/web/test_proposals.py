"""The page of a proposal: everything that a person must know, and a form that accepts exactly what it shows."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from keepai.model.principals import Principal, PrincipalKind, Role
from keepai.model.records import Proposal

from .conftest import LINES, Served, Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLAUDE = Principal(PrincipalKind.AGENT, "claude", Role.PROPOSE)
CASES = """
[[case]]
name = "one line"
[[case.expect.output]]
call = "sheets.appendRow"
params = { spreadsheetId = "book", values = ["one"] }
"""
WHY = "Ann wants <b>lines</b> in her book"
PHONE = {"viewport": {"width": 320, "height": 640}}


async def proposed(served: Served, source: str = LINES, **more: object) -> Proposal:
    keep = served.story.keep.acting_as(CLAUDE)
    return await keep.propose(source, why=WHY, cases=CASES, grants="all", **more)  # type: ignore[arg-type]


def texts(page: str) -> str:
    """What a reader sees of a page, with single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_the_card_says_what_it_will_do_and_whose_words_are_whose(served: Served) -> None:
    made = await proposed(served, work={"model": "m-1"})
    page = (await served.get(f"/proposals/{made.id}")).body
    for part in ("agent:claude proposes a new workflow, lines", "“poll” runs every 5m and looks for work",
                 "agent:claude says this. It decides nothing.", "one line: Add a row to book: one.",
                 "It has no certificate that holds", "How it was made, as its proposer tells it", made.digest):
        assert part in texts(page), part
    assert "<b>lines</b>" not in page
    assert "keep-graph" in page
    assert "agent:claude proposes a new workflow, lines" in texts((await served.get("/proposals")).body)
    asked = (await served.get("/needs-you")).body
    assert f'href="/proposals/{made.id}"' in asked
    assert 'value="accept"' not in asked, "it is accepted where all of it is shown"


async def test_a_new_version_shows_what_differs_and_what_it_may_touch_that_is_new(served: Served) -> None:
    await served.story.deploy(LINES)
    wider = LINES.replace("async prepare(ctx, state) {", "async prepare(ctx, state) { await ctx.gmail.search({});")
    made = await proposed(served, wider)
    page = (await served.get(f"/proposals/{made.id}")).body
    assert "What changes from 1.0" in page
    assert re.search(r"gmail.search</code>.*?new.*?</th>", page)
    assert not re.search(r"sheets.appendRow</code> <span[^>]*>[^<]*<[^>]*>!</span> new", page)
    assert "added:" in page
    assert "As it is now: allow" in texts(page)


async def test_a_rule_that_refuses_or_limits_is_not_widened_by_accepting_the_form_as_it_is(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    await served.story.keep.grant(wf, "sheets.appendRow", "deny")
    made = await proposed(served, LINES + "// 2")
    page = (await served.get(f"/proposals/{made.id}")).body
    assert 'value="keep" checked> As it is now: deny' in page
    await served.story.keep.grant(wf, "sheets.appendRow", {"mode": "allow", "per_day": 5})
    page = (await served.get(f"/proposals/{made.id}")).body
    assert 'value="" checked> Ask me each time, at most 5 per day' in page


async def test_what_has_changed_since_the_page_was_read_is_shown_anew(served: Served) -> None:
    made = await proposed(served)
    await served.story.certified(LINES, CASES)
    back = f"/proposals/{made.id}"
    fields = {"act": "accept", "back": back, "p.id": made.id, "p.shown": made.digest}
    assert (await served.post("/act", None, **fields)).status == 303
    page = texts((await served.get(back)).body)
    assert "Nothing was accepted: what you were shown" in page
    assert "Certified: 12 trials" in page
    assert await served.story.keep.workflows() == []


async def test_a_person_declines_it_and_says_why(served: Served) -> None:
    made = await proposed(served)
    back, shown = f"/proposals/{made.id}", str(await served.story.keep.version())
    assert "Decline" in (await served.get(back)).body
    await served.post("/act", None, act="decline", back=back, **{"p.id": made.id, "p.shown": shown, "p.why": "not now"})
    page = (await served.get(back)).body
    assert "declined not now · proposed" in texts(page)
    assert 'value="accept"' not in page


@pytest.mark.parametrize("context", [PHONE], indirect=True)
async def test_a_person_accepts_it_with_the_keyboard_on_a_phone(served: Served, tab: Tab) -> None:
    made = await proposed(served)
    page = tab.page
    await page.goto(served.web.address())
    await page.goto(f"{served.web.origin}/proposals/{made.id}")
    assert not await tab.overflows()
    chosen = page.get_by_label("Ask me each time")
    await expect(chosen).to_be_checked()
    await chosen.focus()
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_label("Allow", exact=True)).to_be_checked()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Accept exactly this")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("It is the active version now.")).to_be_visible()
    [wf] = await served.story.keep.workflows()
    grants = await served.story.keep.parts.ledger.all("grant_all", workflow_id=wf.id)
    assert {each["capability"]: each["mode"] for each in grants}["sheets.appendRow"] == "allow"
