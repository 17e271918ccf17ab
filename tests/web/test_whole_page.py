"""What holds of every page: axe finds no serious fault, no page is heavy, keys lead everywhere, times are local."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.harness import consumer, producer, workflow

from . import questions
from .conftest import APPEND, Served, Tab, serve
from .questions import POLICY

pytestmark = pytest.mark.asyncio(loop_scope="session")

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
BYTES_MAX = 120_000  #: of a page
TOKYO = {"viewport": {"width": 1000, "height": 800}, "timezone_id": "Asia/Tokyo", "locale": "en-US"}
DARK_PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
LIGHT = {"viewport": {"width": 1280, "height": 800}}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def busy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A host with several workflows, some of which ask."""
    async for each in serve(tmp_path_factory.mktemp("busy"), policy=POLICY, connectors=questions.connectors()):
        await each.sign_in()
        for ask in (questions.approval, questions.logic, questions.unknown_blind, questions.left):
            await ask(each.story)
        source = workflow("lines", producers={"poll": producer()}, consumers={"take": consumer(mutate=APPEND)})
        wf = await each.story.deploy(source)
        each.story.feed.items = [{"id": f"A-{n}", "title": f"Order A-{n}"} for n in range(60)]
        await each.story.run(minutes=5)
        await each.story.keep.deploy(source.replace('name: "lines"', 'name: "lines" /* 2 */'), workflow_id=wf)
        await each.story.keep.propose(source, why="as it was", cases='[[case]]\nname = "one"\n')
        yield each


async def paths(served: Served) -> list[str]:
    """An address of every kind of page."""
    wf = next(each.id for each in await served.story.keep.workflows() if each.name == "lines")
    keep = served.story.keep
    things = [(await keep.inputs(wf))[0].id, (await keep.mutations(wf))[0].id, (await keep.runs(wf))[-1].id,
              (await keep.events(wf))[0].id]
    kinds = ("inputs", "outputs", "runs", "events")
    [held] = [each for each in await keep.needs_you() if each.kind == "approval"]
    return [
        "/", "/needs-you", "/inputs", "/outputs", "/runs", "/health", "/search?text=A-1", "/search",
        "/proposals", f"/proposals/{(await keep.proposals())[0].id}",
        f"/needs-you/several?id={held.id}", f"/workflows/{wf}",
        *(f"/workflows/{wf}/{name}" for name in (*kinds, "items", "versions", "blast", "needs-you")),
        *(f"/{kind}/{id}" for kind, id in zip(kinds, things, strict=True)),
        *(f"/needs-you?q={each.id}" for each in await keep.needs_you()),
    ]


async def enter(served: Served, tab: Tab) -> None:
    """In this browser, signed in already."""
    name, _, value = served.cookie.partition("=")
    await tab.page.context.add_cookies([{"name": name, "value": value, "url": served.web.origin}])
    await tab.page.add_init_script(f"localStorage.setItem('keep.token', '{served.csrf}')")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `npm ci` brings it")
@pytest.mark.parametrize("context", [LIGHT, DARK_PHONE], indirect=True)
async def test_axe_finds_no_serious_fault_on_any_page(busy: Served, tab: Tab) -> None:
    await enter(busy, tab)
    await tab.page.add_init_script(path=AXE)
    found = []
    for path in await paths(busy):
        await tab.page.goto(busy.web.origin + path)
        await tab.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        faults = await tab.page.evaluate("axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)")
        found += [(path, each["id"], each["nodes"][0]["html"][:160]) for each in faults
                  if each["impact"] in ("serious", "critical")]
        assert not await tab.overflows(), path
    assert found == []


async def test_no_page_is_heavy_and_none_loads_anything_from_elsewhere(busy: Served) -> None:
    for path in await paths(busy):
        body = (await busy.get(path)).body
        assert len(body.encode()) < BYTES_MAX, path
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", body), path
        assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", body), path


async def test_the_keys_lead_everywhere(busy: Served, tab: Tab) -> None:
    await enter(busy, tab)
    await tab.page.goto(busy.web.origin)
    await tab.page.keyboard.press("?")
    await expect(tab.page.get_by_role("heading", name="Keys")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("A-17")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("What fits “A-17”")
    await expect(tab.page.get_by_role("link", name="Order A-17").first).to_be_visible()
    await tab.page.locator("body").click(position={"x": 2, "y": 2})
    await tab.page.keyboard.press("Control+k")
    await expect(tab.page.get_by_role("option").first).to_be_visible()
    await tab.page.keyboard.type("lines run")
    await expect(tab.page.get_by_role("option", name="lines: Runs")).to_be_visible()
    await tab.page.get_by_role("option", name="Run now: lines").click()
    await expect(tab.page.locator(".note.done")).to_contain_text("lines: Its producers")
    for key, title in (("i", "Inputs"), ("o", "Outputs"), ("r", "Runs"), ("h", "Workflows"), ("n", "Needs you")):
        await tab.page.keyboard.press("g")
        await tab.page.keyboard.press(key)
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text(title)


async def test_an_id_in_the_search_leads_to_its_page(busy: Served) -> None:
    run = (await busy.story.keep.runs("lines"))[0]
    for id, path in ((run.id, f"/runs/{run.id}"), (run.workflow_id, f"/workflows/{run.workflow_id}")):
        answer = await busy.get(f"/search?text={id}")
        assert (answer.status, answer.headers["location"]) == (303, path)
    assert "Nothing fits." in (await busy.get("/search?text=no+such+thing")).body


@pytest.mark.parametrize("context", [TOKYO], indirect=True)
async def test_times_are_those_of_the_reader(busy: Served, tab: Tab) -> None:
    await enter(busy, tab)
    run = (await busy.story.keep.runs("lines"))[0]  # at 09:05 UTC or later, which is the evening in Tokyo
    await tab.page.goto(f"{busy.web.origin}/runs/{run.id}")
    await expect(tab.page.locator(".story .at time").first).to_have_text(re.compile(r"^18:\d\d:\d\d\.\d{3}$"))
    await expect(tab.page.locator(".facts time").first).to_have_attribute("title", re.compile(r"Jan 5, 2026.*GMT\+9"))


async def test_a_list_of_all_workflows_names_them_and_goes_on(busy: Served) -> None:
    body = (await busy.get("/inputs")).body
    assert re.search(r'data-label="Workflow"><a href="/workflows/wf_\w+">\w+</a></td>', body)
    [older] = re.findall(r'<a href="(/inputs\?before=\d+)" rel="next">', body)
    first, second = (set(re.findall(r'<a href="/inputs/(inp_\w+)">', each))
                     for each in (body, (await busy.get(older)).body))
    assert len(first) == 50
    assert second
    assert not first & second


async def test_a_stranger_is_led_to_where_he_wanted_to_go(busy: Served, tab: Tab) -> None:
    wanted = f"{busy.web.origin}/runs?time=24h"
    await tab.page.goto(wanted)
    await expect(tab.page.get_by_role("heading", name="How to get in")).to_be_visible()
    tab.complaints.clear()  # of the answer 401
    await tab.page.goto(busy.web.address())
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Runs")
    assert tab.page.url == wanted


async def test_an_earlier_text_becomes_the_active_version_again(busy: Served, tab: Tab) -> None:
    wf = next(each for each in await busy.story.keep.workflows() if each.name == "lines")
    await enter(busy, tab)
    await tab.page.goto(f"{busy.web.origin}/workflows/{wf.id}/versions?from={wf.version}&to=1.0")
    await expect(tab.page.locator(".tok-keyword").first).to_be_visible()
    await tab.page.locator("summary", has_text="Make 1.0 the active version again").click()
    await tab.page.get_by_role("button", name="Yes: deploy the text of 1.0").click()
    await expect(tab.page.locator(".note.done")).to_contain_text("active version again")
    after = next(each for each in await busy.story.keep.workflows() if each.name == "lines")
    assert after.version not in ("1.0", wf.version)
