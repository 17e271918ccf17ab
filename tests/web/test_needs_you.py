"""Needs you: every question with its facts, every button in a real browser, and nothing done by accident."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keepai.model.acts import ACTS, requests_of
from keepai.model.principals import Role
from keepai.reading.questions import ACTIONS
from tests.harness import js

from . import questions
from .conftest import Served, Tab, serve
from .questions import ASKS, POLICY, last

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 320, "height": 640}}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def asking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One host for all that is answered, each in a workflow of its own."""
    async for each in serve(tmp_path_factory.mktemp("asking"), policy=POLICY, connectors=questions.connectors()):
        await each.sign_in()
        yield each


async def opened(served: Served, tab: Tab, wf: str) -> None:
    """The questions of a workflow, in a browser that is signed in already."""
    name, _, value = served.cookie.partition("=")
    await tab.page.context.add_cookies([{"name": name, "value": value, "url": served.web.origin}])
    await tab.page.add_init_script(f"localStorage.setItem('keep.token', '{served.csrf}')")
    await tab.page.goto(f"{served.web.origin}/workflows/{wf}/needs-you")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def every(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, dict[str, str]]]:
    """One host with every kind of question at once, for what changes nothing; and the workflow of each."""
    async for each in serve(tmp_path_factory.mktemp("every"), policy=POLICY, connectors=questions.connectors()):
        await each.sign_in()
        yield each, {name: await ask(each.story) for name, ask in ASKS.items()}


def text(body: str) -> str:
    """What a page says, without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def buttons(body: str) -> set[str]:
    """The acts that a page has a form for."""
    return set(re.findall(r'name="act" value="(\w+)"', body))


async def test_a_page_offers_only_what_the_role_of_who_looks_has(every: tuple[Served, dict[str, str]]) -> None:
    served, flows = every
    pages = [f"/workflows/{wf}{part}" for wf in flows.values() for part in ("", "/needs-you")]
    with served.signed_in_as(Role.VIEWER):
        for path in pages:
            page = await served.get(path)
            assert (page.status, buttons(page.body)) == (200, set()), path
        assert "this question is not yours to answer" in page.body
        assert '"act"' not in (await served.get("/palette")).body
    with served.signed_in_as(Role.OPERATOR):
        offered = {path: buttons((await served.get(path)).body) for path in pages}
    assert not {act for each in offered.values() for act in each} - set(requests_of(Role.OPERATOR))
    assert offered[f"/workflows/{flows['approval']}/needs-you"] == {"approve", "reject"}
    assert offered[f"/workflows/{flows['repair']}/needs-you"] == {"reject"}, "only an owner lets a script in"


async def test_the_card_of_an_approval_says_which_rule_asked(every: tuple[Served, dict[str, str]]) -> None:
    served, flows = every
    page = text((await served.get(f"/workflows/{flows['approval']}/needs-you")).body)
    assert re.search(r"waits for a person to approve it\. It asks because \w+\.\w+ is set to ask\.", page)


async def test_home_plans_no_check_before_the_answer(every: tuple[Served, dict[str, str]]) -> None:
    served, flows = every
    rows = (await served.get("/")).body.split("<tr>")
    [row] = [each for each in rows if f"/workflows/{flows['approval']}/inputs" in each]
    assert "after your answer" in text(row)


# What stands on a card

#: Question → what its card must say.
SAYS = {
    "unknown_blind": (
        "Did this happen?", 'webhook.fire: amount=120, of="invoice-7"', "The script calls this: “Answer to invoice-7”",
        "The connection was lost", "Because of “Invoice 7 of Ann”", "Look in webhook whether",
        "class C: it cannot be asked",
        "May still arrive no longer", '"amount": 120', "If it did happen, it will have happened twice.",
        "the script reads it, and without one it gets null: line",
    ),
    "unknown_looked_up": ("gmail.send can be looked up.", "asked about 1 time", "Look again", "ann@example.com"),
    "unknown_at_once": ("for 60 seconds", "Not yet: It didn’t happen — possible in 1 min"),
    "approval": ("May this be sent?", '"body": "Thank you."', "Answer until", "exactly this is done, once"),
    "permission": ("May it do this?", "Permission sheets.appendRow", "keep grant permission sheets.appendRow"),
    "precondition": ("Something outside is missing.", "The spreadsheet “book” does not exist."),
    "exhausted": ("It was tried too often.", "The mail server is busy."),
    "logic": ("The script failed.", "line 20 failed: const total = prepared.data.payload.total;", "keep deploy FILE"),
    "logic_after": ("Stands as ✓ applied", "end it: what happened stays"),
    "internal": ("The host or a connector failed.", "division by zero"),
    "repair": (
        "May this repair become the active version?", "The repair says: “There is no total in a mail.”",
        "Version 1.0 touched 1 input",
        "- const total = prepared.data.payload.total;", "the repair becomes the active version",
    ),
    "attention": ("It was done before with another", 'text "Dear Bob" "Dear Robert"', "2 other fields the same"),
    "left": ("This was begun and not finished.", "Already done, and stays: nothing"),
    "contradicted": ("Later evidence contradicts", "On record: A person chose to go on", "the call returned"),
}


@pytest.mark.parametrize("name", ASKS)
async def test_a_card_says_what_a_person_must_know(every: tuple[Served, dict[str, str]], name: str) -> None:
    served, workflows = every
    said = text((await served.get(f"/workflows/{workflows[name]}/needs-you")).body)
    assert [each for each in SAYS[name] if each not in said] == []


async def test_the_card_of_a_failed_script_lists_the_repairs_that_were_tried(asking: Served) -> None:
    wf = await questions.repair(asking.story, "tried")
    [asked] = await asking.story.keep.needs_you(wf)
    await asking.story.keep.reject(asked.id)
    said = text((await asking.get(f"/workflows/{wf}/needs-you")).body)
    assert "Repairs that were tried" in said
    assert f"rejected by person {asked.id}" in said
    assert "2 more repairs may be tried." in said
    await asking.story.keep.skip_run(asked.run_id)


async def test_all_questions_stand_in_one_list_and_the_one_in_hand_beside_it(
    every: tuple[Served, dict[str, str]],
) -> None:
    served, workflows = every
    page = (await served.get("/needs-you")).body
    asked = re.findall(r'data-question="(\w+)"', page)
    assert (len(asked), page.count('<article class="card question"')) == (len(ASKS), 1)
    chosen = (await served.get(f"/needs-you?q={asked[3]}")).body
    assert f'id="card-{asked[3]}"' in chosen
    assert f'name="back" value="/needs-you?q={asked[4]}"' in chosen, "the next question follows an answer"
    assert "no longer open" not in chosen
    assert "no longer open" in (await served.get("/needs-you?q=apr_answered")).body
    one = await served.get(f"/workflows/{workflows['logic']}/needs-you")
    assert (one.body.count('<article class="card question"'), "data-question" in one.body) == (1, False)


async def test_where_nothing_is_asked_the_page_says_so(standing: Served) -> None:
    assert "Nothing needs you." in (await standing.get("/needs-you")).body
    assert "lines has no question for you" in text((await standing.get("/workflows/lines/needs-you")).body)


async def test_what_a_script_chose_cannot_pose_as_the_page(asking: Served) -> None:
    title = "\u202e<b>Approved</b>\u200b"
    asking.story.feed.put("invoice-7", title=title)
    source = questions.acting("posing").replace("`Answer to ${event.messageId}`", js(title))
    wf = await asking.story.deploy(source, grants={"feed.list": "allow", "gmail.send": "ask"})
    await asking.story.run()
    body = (await asking.get(f"/workflows/{wf}/needs-you")).body
    assert "&lt;b&gt;Approved" in body
    assert not any(each in body for each in ("<b>Approved", "\u202e", "\u200b"))


# Every button, in a browser

#: Question and button → how the run, its outputs and the world stand afterwards.
ANSWERS: dict[tuple[str, str], tuple[str, list[str], int]] = {
    ("unknown_looked_up", "Look again"): ("committed", ["applied"], 1),
    ("unknown_blind", "It didn’t happen"): ("committed", ["failed", "applied"], 1),
    ("unknown_blind", "It happened"): ("committed", ["applied"], 0),
    ("unknown_blind", "Skip it"): ("committed", ["skipped"], 0),
    ("approval", "Approve"): ("committed", ["applied"], 1),
    ("approval", "Reject"): ("committed", [], 0),
    ("permission", "Allow it"): ("committed", ["applied"], 1),
    ("permission", "Give it up"): ("committed", [], 0),
    ("precondition", "Try again"): ("committed", ["failed", "applied"], 1),
    ("exhausted", "Try again"): ("committed", ["failed", "failed", "applied"], 1),
    ("logic", "Give it up"): ("committed", [], 0),
    ("logic_after", "End it here"): ("committed", ["applied"], 1),
    ("internal", "Try again"): ("committed", ["applied"], 1),
    ("repair", "Activate it"): ("committed", ["applied"], 1),
    ("repair", "Reject"): ("failed:logic", [], 0),
    ("attention", "Keep what was done"): ("committed", ["applied", "failed", "applied"], 1),
    ("left", "Skip this input"): ("committed", ["failed"], 0),
    ("left", "Work on it once more"): ("committed", ["failed", "applied"], 1),
    ("contradicted", "I have seen it"): ("committed", ["skipped"], 0),
}


@pytest.mark.parametrize(("name", "label"), ANSWERS, ids=str)
async def test_a_button_does_what_it_says_and_its_card_goes(asking: Served, tab: Tab, name: str, label: str) -> None:
    story, before = asking.story, len(asking.story.world.effects)
    wf = await ASKS[name](story, f"{name}, {label}")
    await opened(asking, tab, wf)
    heading = await tab.page.locator("article.question").get_by_role("heading", level=2).inner_text()
    await press(tab, label)
    await expect(tab.page.locator(".note.done")).to_be_visible()
    if label == "Work on it once more":
        story.feed.put("invoice-7", title="Invoice 7 of Ann")
    await story.run(minutes=5 if name == "left" else 0)
    await expect(tab.page.get_by_role("heading", name=heading)).to_have_count(0)
    run, sent = await last(story, wf), await story.keep.mutations(wf)
    assert (run.status, [m.status for m in sent], len(story.world.effects) - before) == ANSWERS[name, label]


async def press(tab: Tab, label: str) -> None:
    """Press a button of the only card; a risky one asks whether one is sure."""
    risky = tab.page.locator("summary", has_text=label)
    if not await risky.count():
        await tab.page.get_by_role("button", name=label, exact=True).click()
        return
    await risky.click()
    await tab.page.locator("details[open].sure").get_by_role("button").click()


async def test_every_act_has_its_button_tried() -> None:
    tried = {label for _, label in ANSWERS}
    acts = {act for acts in ACTIONS.values() for act in acts} | {"finish", "seen", "reprocess", "skip_input"}
    assert {ACTS[act].label for act in acts - {"deploy", "accept", "decline"}} <= tried, "see test_proposals.py"


async def test_a_result_given_by_hand_is_what_the_script_goes_on_with(asking: Served, tab: Tab) -> None:
    wf = await questions.unknown_blind(asking.story, "by hand")
    await opened(asking, tab, wf)
    await tab.page.locator("summary", has_text="It happened").click()
    await tab.page.get_by_label("Its result as JSON").fill("{ no JSON")
    await tab.page.get_by_role("button", name="Yes, it happened").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text("result must be JSON")
    await expect(tab.page.get_by_label("Its result as JSON")).to_have_value("{ no JSON")
    await tab.page.get_by_label("Its result as JSON").fill('{"id": 7}')
    await tab.page.get_by_role("button", name="Yes, it happened").click()
    await expect(tab.page.get_by_text("has no question for you")).to_be_visible()
    await asking.story.run()
    assert (await questions.sent(asking.story, wf)).result == {"id": 7}
    assert asking.story.logs(await last(asking.story, wf)) == ['{"result":{"id":7},"status":"applied"}']


async def test_a_stale_click_is_refused_with_the_new_state(asking: Served, tab: Tab) -> None:
    wf, before = await questions.approval(asking.story, "stale"), len(asking.story.world.effects)
    await opened(asking, tab, wf)
    await tab.page.locator("summary", has_text="Reject").click()  # while one hesitates, the card stays
    [asked] = await asking.story.keep.needs_you(wf)
    await asking.story.keep.approve(asked.id)
    await asking.story.run()
    await asyncio.sleep(0.5)
    await tab.page.get_by_role("button", name="Yes: Reject").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text(f"{asked.id} is consumed")
    await expect(tab.page.get_by_text("has no question for you")).to_be_visible()
    assert (len(asking.story.world.effects) - before, (await last(asking.story, wf)).status) == (1, "committed")


async def test_a_card_in_which_somebody_types_stays_and_others_follow(asking: Served, tab: Tab) -> None:
    one, other = await questions.unknown_blind(asking.story, "typed"), await questions.permission(asking.story, "other")
    [asked] = await asking.story.keep.needs_you(one)
    await tab.page.goto(asking.web.address())
    await tab.page.goto(f"{asking.web.origin}/needs-you?q={asked.id}")
    before = await tab.page.locator("#nav-all .count").inner_text()
    await tab.page.locator(f"#card-{asked.id} summary", has_text="It happened").click()
    await tab.page.get_by_label("Its result as JSON").press_sequentially('{"id"')
    await asking.story.keep.skip_run((await last(asking.story, other)).id)
    await asking.story.run()
    await expect(tab.page.locator("#nav-all .count")).not_to_have_text(before)
    await expect(tab.page.get_by_label("Its result as JSON")).to_have_value('{"id"')
    await expect(tab.page.get_by_label("Its result as JSON")).to_be_focused()


async def test_a_question_can_be_answered_with_the_keyboard_alone(asking: Served, tab: Tab) -> None:
    await opened(asking, tab, await questions.unknown_blind(asking.story, "keys"))
    for _ in range(30):
        await tab.page.keyboard.press("Tab")
        if "Skip it" in await tab.page.evaluate("document.activeElement.textContent"):
            break
    assert await tab.page.evaluate("document.activeElement.tagName") == "SUMMARY"
    for key in ("Enter", "Tab", "Enter"):
        await tab.page.keyboard.press(key)
    await expect(tab.page.locator(".note.done")).to_contain_text("given up without knowing")


@pytest.mark.parametrize("context", [PHONE], indirect=True)
async def test_on_a_phone_cards_and_runs_are_no_wider_than_the_window(
    every: tuple[Served, dict[str, str]], tab: Tab,
) -> None:
    served, workflows = every
    run = await last(served.story, workflows["logic"])
    await tab.page.goto(served.web.address())
    for path in ("/needs-you", f"/workflows/{run.workflow_id}/runs", f"/runs/{run.id}"):
        await tab.page.goto(served.web.origin + path)
        await tab.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert not await tab.overflows(), path


# Many at once, and the keyboard

ROW = 'await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [prepared.data.messageId, 1250] });'


@pytest_asyncio.fixture(loop_scope="session")
async def six(tmp_path: Path) -> AsyncIterator[Served]:
    """A host on which six workflows ask whether a row may be added."""
    async for each in serve(tmp_path, policy=POLICY, connectors=questions.connectors()):
        await each.sign_in()
        for number in range(6):
            source = questions.acting(f"orders-{number}", ROW)
            await questions.asked(each.story, source, grants={"feed.list": "allow", "sheets.appendRow": "ask"})
        yield each


async def entered(served: Served, tab: Tab, path: str) -> None:
    """A page, in a browser that is signed in already."""
    name, _, value = served.cookie.partition("=")
    await tab.page.context.add_cookies([{"name": name, "value": value, "url": served.web.origin}])
    await tab.page.add_init_script(f"localStorage.setItem('keep.token', '{served.csrf}')")
    await tab.page.goto(served.web.origin + path)


async def test_a_call_stands_in_the_words_of_a_person_and_exactly_below(six: Served) -> None:
    said = text((await six.get("/needs-you")).body)
    assert "Add a row to orders: invoice-7 · 1,250" in said
    assert 'sheets.appendRow: spreadsheetId="orders", values=["invoice-7",1250]' in said


async def test_six_questions_are_answered_from_the_keyboard_alone(six: Served, tab: Tab) -> None:
    await entered(six, tab, "/")
    await tab.page.keyboard.press("g")
    await tab.page.keyboard.press("n")
    await expect(tab.page.locator("[data-question]")).to_have_count(6)
    for left in range(5, -1, -1):
        await tab.page.wait_for_load_state()
        await tab.page.keyboard.press("1")
        await expect(tab.page.get_by_role("button", name="Approve", exact=True)).to_be_focused()
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.locator("[data-question]")).to_have_count(left if left > 1 else 0)
        await expect(tab.page.locator("article.question")).to_have_count(1 if left else 0)
    await six.story.run()
    assert len(six.story.world.effects) == 6


async def test_several_calls_are_looked_at_and_approved_each_by_itself(six: Served, tab: Tab) -> None:
    await entered(six, tab, "/needs-you?text=orders")
    first = [each.id for each in await six.story.keep.needs_you()][:3]
    for id in first:
        await tab.page.locator(f"input[type=checkbox][value={id}]").check()
    await six.story.keep.approve(first[0])  # somebody else was quicker
    await tab.page.get_by_role("button", name="Review the chosen").click()
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Approve 2 calls?")
    await six.story.keep.reject(first[1])
    await tab.page.get_by_role("button", name="Approve the chosen").click()
    await expect(tab.page.locator(".note.done")).to_contain_text("1 call approved")
    refused = f"1 call not answered. Nothing was changed: {first[1]} has moved"
    await expect(tab.page.get_by_role("alert")).to_contain_text(refused)
    await six.story.run()
    assert len(six.story.world.effects) == 2


async def test_only_calls_can_be_answered_together_and_only_as_they_were_shown(six: Served) -> None:
    asked = await six.story.keep.needs_you()
    run = {"act": "approve", f"v.{asked[0].run_id}": "9"}
    for fields in ({"act": "approve"}, {"act": "stop", f"v.{asked[0].id}": "9"}, run, {f"v.{asked[0].id}": "x", **run},
                   {"act": "approve", f"v.{asked[0].id}": "1"}):
        await six.post("/needs-you/answer-several", **fields)
    assert await six.story.keep.needs_you() == asked


@pytest.mark.parametrize("context", [PHONE], indirect=True)
async def test_on_a_phone_the_answers_are_in_reach_of_any_question(
    every: tuple[Served, dict[str, str]], tab: Tab,
) -> None:
    served, _ = every
    await entered(served, tab, "/needs-you")
    for each in await served.story.keep.needs_you():
        await tab.page.goto(f"{served.web.origin}/needs-you?q={each.id}")
        await expect(tab.page.locator(".answers .button, .answers button").first).to_be_in_viewport()
