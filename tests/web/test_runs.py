"""Runs: found by what is known of them, and one shown as its steps in time with everything that it called."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keepai import Transient
from keepai.model.records import Run
from keepai.reading import lists
from keepai.reading.excerpt import excerpt
from keepai.reading.lists import ListFilter
from keepai.reading.waterfall import WIDTH, Scale, Span, duration_text
from tests.harness import consumer, producer, workflow

from . import questions
from .conftest import Served, Tab, serve
from .questions import POLICY, last

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOURCE = workflow("flow", producers={"poll": producer()}, consumers={"answer": consumer(
    questions.TAKE, mutate=questions.SEND, next='ctx.log("answered");\n  console.warn("almost <late>");')})


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def ran(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, dict[str, Run]]]:
    """A workflow whose second work was held for a minute and a half, failed once and then went well."""
    async for each in serve(tmp_path_factory.mktemp("ran"), policy=POLICY):
        story = each.story
        wf = await story.deploy(SOURCE, grants={"feed.list": "allow", "gmail.send": "ask"})
        story.feed.put("mail-1", title="Mail 1 of Ann")
        story.world.on("gmail.send").fail(Transient("The mail server is busy."))
        await story.run()
        story.clock.advance(seconds=90)
        await story.keep.approve((await story.keep.needs_you())[0].id)
        await story.run()
        story.clock.advance(seconds=30)
        await story.run()
        await story.keep.approve((await story.keep.needs_you())[0].id)
        await story.run()
        await each.sign_in()
        [poll, first, second] = (await story.runs(wf))[:3]
        yield each, {"poll": poll, "first": first, "second": second}


async def page(served: Served, path: str) -> str:
    """What a page says, without its markup."""
    answer = await served.get(path)
    assert answer.status == 200, answer.body
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.body)).split())


def listed(body: str) -> list[str]:
    """The runs of a list."""
    return re.findall(r'<th scope="row"><a href="/runs/(run_\w+)">', body)


# The list


@pytest.mark.parametrize(("asked", "found"), [
    ("", ["second", "first", "poll"]),
    ("status=committed", ["second", "poll"]),
    ("handler=poll", ["poll"]),
    ("handler=poll&status=superseded", []),
    ("text=server+IS+busy", ["first"]),
    ("text=answer+to+mail-1", ["second", "first"]),
    ("time=1h", ["second", "first", "poll"]),
])
async def test_runs_are_found_by_what_is_known_of_them(
    ran: tuple[Served, dict[str, Run]], asked: str, found: list[str],
) -> None:
    served, runs = ran
    body = (await served.get(f"/workflows/flow/runs?{asked}")).body
    assert listed(body) == [runs[name].id for name in found]
    assert ("No run fits." in body) is (not found)


async def test_a_handler_that_the_workflow_lacks_is_no_filter(ran: tuple[Served, dict[str, Run]]) -> None:
    refused = await ran[0].get("/workflows/flow/runs?handler=nobody")
    assert (refused.status, "This list has no handler 'nobody'." in html.unescape(refused.body)) == (404, True)


async def test_older_runs_are_a_page_away(ran: tuple[Served, dict[str, Run]]) -> None:
    served, runs = ran
    read, wf = served.story.reader(), runs["poll"].workflow_id
    first = lists.runs(read, wf, ListFilter(), "answer", rows=1)
    assert [each.run.id for each in first.rows] == [runs["second"].id]
    second = lists.runs(read, wf, ListFilter(before=first.older), "answer", rows=1)
    assert ([each.run.id for each in second.rows], second.older) == ([runs["first"].id], None)
    asked = f"handler=answer&before={first.older}"
    body = (await served.get(f"/workflows/flow/runs?{asked}")).body
    assert listed(body) == [runs["first"].id]
    assert '<a href="/workflows/flow/runs?handler=answer" rel="first">' in body


async def test_a_list_without_runs_says_so(served: Served) -> None:
    await served.story.deploy(SOURCE)
    assert "Nothing has run yet." in (await served.get("/workflows/flow/runs")).body


# One run


async def test_a_run_shows_its_steps_its_calls_and_its_logs(ran: tuple[Served, dict[str, Run]]) -> None:
    served, runs = ran
    said = await page(served, f"/runs/{runs['second'].id}")
    for each in (
        "Run of the consumer · version 1.0", "The script calls this: “Answer to mail-1”", "committed",
        "because it was time to try again", "gmail.send", '"subject": "Re: mail-1"', '"id": "sent-1"', "answered",
        "almost <late>", "Inputs Mail 1 of Ann", "Outputs ✓ applied", "The output is known to have happened",
    ):
        assert each in said, each
    assert said.index("mutate") < said.index("next 0 ms")


async def test_a_wait_is_told_and_the_attempts_are_linked(ran: tuple[Served, dict[str, Run]]) -> None:
    served, runs = ran
    said = await page(served, f"/runs/{runs['first'].id}")
    assert "waited 1 min 30 s (waits for approval)" in said
    assert "waited 30.0 s (waits to try again)" in said
    assert "Failed The mail server is busy." in said
    body = (await served.get(f"/runs/{runs['first'].id}")).body
    assert f'<a href="/runs/{runs["second"].id}">answer' in body
    assert f'href="/runs/{runs["first"].id}"' in (await served.get(f"/runs/{runs['second'].id}")).body


async def test_a_run_that_is_not_there_is_said_to_be_missing(standing: Served) -> None:
    answer = await standing.get("/runs/run_nothing")
    assert answer.status == 404
    assert "There is no run run_nothing." in answer.body


async def test_what_stopped_a_run_can_be_answered_on_its_page(served: Served, tab: Tab) -> None:
    wf = await questions.logic(served.story)
    run = await last(served.story, wf)
    await tab.page.goto(served.web.address())
    await tab.page.get_by_role("link", name="logic", exact=True).click()
    await tab.page.get_by_role("link", name="Runs").last.click()
    await tab.page.get_by_role("link", name="answer").click()
    await expect(tab.page.locator(".failing mark")).to_contain_text("const total = prepared.data.payload.total;")
    await expect(tab.page.locator("#whole-script .code")).to_be_hidden()
    await tab.page.locator("summary", has_text="The whole script").click()
    await expect(tab.page.locator("#whole-script .code")).to_contain_text("export default Keep.workflow")
    await tab.page.locator("#call-1 > summary").click()
    await expect(tab.page.locator("#call-1")).to_contain_text('"messageId": "invoice-7"')
    await tab.page.locator("summary", has_text="Give it up").click()
    await tab.page.get_by_role("button", name="Yes: Give it up").click()
    await expect(tab.page.locator(".note.done")).to_contain_text("It was given up.")
    assert tab.page.url.endswith(f"/runs/{run.id}")
    await served.story.run()
    await expect(tab.page.locator("#standing .status")).to_have_text("✓ done")


async def test_a_run_that_only_waits_can_be_hurried_or_given_up(served: Served, tab: Tab) -> None:
    served.story.world.on("gmail.send").fail(Transient("The mail server is busy."))
    wf = await questions.asked(served.story, questions.acting("waits"))
    run = await last(served.story, wf)
    await tab.page.goto(served.web.address())
    await tab.page.goto(f"{served.web.origin}/runs/{run.id}")
    await expect(tab.page.locator("#standing")).to_contain_text("Then it is tried again. (in 30 s)")
    await tab.page.get_by_role("button", name="Try again").click()
    await served.story.run()
    await expect(tab.page.get_by_role("link", name="answer, ")).to_have_count(1)
    assert [m.status for m in await served.story.keep.mutations(wf)] == ["failed", "applied"]


# Places in a script and times on a picture


async def test_an_excerpt_has_the_lines_around_the_place_and_points_at_its_column() -> None:
    source = "\n".join(f"\tline {number}" for number in range(1, 21))
    found = excerpt(source, 10, 3, around=2)
    assert found is not None
    assert [(line.number, line.marked) for line in found.lines] == [
        (8, False), (9, False), (10, True), (11, False), (12, False)]
    assert found.pointer == "\t ^"


@pytest.mark.parametrize(("line", "column"), [(None, None), (0, 1), (21, 1)])
async def test_a_place_that_the_script_does_not_have_is_no_excerpt(line: int | None, column: int | None) -> None:
    assert excerpt("\n".join("abc" for _ in range(20)), line, column) is None


async def test_a_column_beyond_its_line_is_left_out() -> None:
    found = excerpt("abc\ndef", 2, 40)
    assert found is not None
    assert (found.column, [line.number for line in found.lines]) == (None, [1, 2])


async def test_a_long_wait_leaves_room_for_the_work() -> None:
    scale = Scale(Span(0, 1_000_400), [Span(200, 1_000_200)])
    before, wait, after = (scale.bar(span) for span in (Span(0, 200), Span(200, 1_000_200), Span(1_000_200, 1_000_400)))
    assert (before.left, before.width, wait.left, wait.width) == (0, 400, 400, 200)
    assert after.left + after.width == WIDTH


async def test_what_took_no_time_can_be_seen_and_stays_inside() -> None:
    scale = Scale(Span(5, 5), [])
    assert scale.bar(Span(5, 5)).width > 0
    late = Scale(Span(0, 100), []).bar(Span(90, 400))
    assert late.left + late.width <= WIDTH


@pytest.mark.parametrize(("ms", "said"), [
    (0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (60_000, "1 min"), (5_025_000, "1 h 23 min"),
    (90_000_000, "1 d 1 h"),
])
async def test_a_length_of_time_is_told_as_people_say_it(ms: int, said: str) -> None:
    assert duration_text(ms) == said


async def test_what_each_answer_leads_to_is_tried_when_somebody_asks(tmp_path: Path) -> None:
    async for served in serve(tmp_path, policy=POLICY):
        story = served.story
        wf = await story.deploy(workflow("faulty", producers={"poll": producer()}, consumers={
            "answer": consumer("\nnull.x;\n")}))
        story.feed.put("mail-1")
        await story.run()
        await served.sign_in()
        stopped = (await story.last(wf)).id
        assert f"/runs/{stopped}/tried" in (await served.get(f"/runs/{stopped}")).body
        told = await page(served, f"/runs/{stopped}/tried")
        assert "Try again no tried: it would fail again at line" in told
        assert "Give it up yes" in told
        assert len(await story.runs(wf)) == 2
