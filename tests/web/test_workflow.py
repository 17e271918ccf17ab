"""A workflow's page: its graph with what waits, when it runs, what it may do, its versions and what they touched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect

from tests.harness import consumer, producer, workflow

from .conftest import APPEND, LINES, Answer, Served, Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 320, "height": 640}}
CHANGED = LINES.replace("values: [prepared.data.messageId]", 'values: [prepared.data.messageId, "<b>checked</b>"]')


async def act(served: Served, name: str, back: str, rule: dict[str, str] | None = None, **params: str) -> Answer:
    """An act as the page sends it, and the page that follows."""
    version = str(await served.story.keep.version())
    fields = {"act": name, "back": back, "told": "It is done.", "p.shown": version}
    fields |= {f"p.{key}": value for key, value in params.items()}
    fields |= {f"rule.{key}": value for key, value in (rule or {}).items()}
    answer = await served.post("/act", None, **fields)
    assert (answer.status, answer.headers["location"]) == (303, back), answer.body
    return await served.get(back)


def texts(page: str) -> str:
    """What a reader sees of a page, with single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def held(served: Served) -> str:
    """A workflow of which one event waits and one is in the hands of a run that waits for a person."""
    wf = await served.story.deploy(LINES)
    await served.story.keep.grant(wf, "sheets.appendRow", "ask")
    served.story.feed.put("one")
    served.story.feed.put("two")
    await served.story.run()
    return wf


async def test_the_graph_says_what_waits_and_which_run_is_open(served: Served) -> None:
    wf = await held(served)
    page = (await served.get(f"/workflows/{wf}")).body
    drawn = page.partition('class="keep-graph"')[2].partition("</svg>")[0]
    assert re.search(r'class="topic"><title>topic in</title>.*?>2 waiting<', drawn, re.S)
    assert re.search(r'class="consumer paused"><title>consumer take</title>.*?>waits for approval<', drawn, re.S)
    assert drawn
    assert "style" not in drawn
    assert "1 question for you" in texts(page)


async def test_the_page_says_how_much_the_ledger_keeps_for_it(served: Served) -> None:
    wf = await held(served)
    page = texts((await served.get(f"/workflows/{wf}")).body)
    assert re.search(r"The ledger keeps \d+\.\d kB of 4\.0 GB: events .+? kB, runs .+? kB, inputs .+? for it\.", page)


async def test_a_name_from_a_script_cannot_become_markup_in_the_graph(served: Served) -> None:
    wf = await served.story.deploy(workflow(name="odd", topics=("in", "<b>'\"&"), producers={"poll": producer()}))
    page = (await served.get(f"/workflows/{wf}")).body
    assert "<b>'" not in page
    assert ">&lt;b&gt;&#x27;&quot;&amp;</text>" in page


async def test_when_each_handler_runs(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    await served.story.run()
    told = texts((await served.get(f"/workflows/{wf}")).body)
    assert "poll producer every 5m now in 5 min" in told
    assert "take consumer when events wait – when an event comes" in told
    served.story.feed.put("one")
    await served.story.run(minutes=5)
    told = texts((await served.get(f"/workflows/{wf}")).body)
    assert "take consumer when events wait now when an event comes" in told
    await served.story.keep.pause(wf)
    assert "after it is resumed" in texts((await served.get(f"/workflows/{wf}")).body)


async def test_an_input_that_waits_says_for_what_and_its_page_has_the_card(served: Served) -> None:
    wf = await held(served)
    listed = await served.get(f"/workflows/{wf}/inputs")
    assert "take waits for approval: “sheets.appendRow:" in texts(listed.body)
    assert "waits for take" in texts(listed.body)
    pages = [(await served.get(f"/inputs/{each.id}")).body for each in await served.story.keep.inputs(wf)]
    assert ["May this be sent?" in page for page in pages] == [True, False]
    assert "value=\"approve\"" in pages[0]


async def test_a_list_refuses_a_choice_that_it_does_not_have(served: Served) -> None:
    wf = await held(served)
    for asked in ("status=bogus", "time=soon"):
        answer = await served.get(f"/workflows/{wf}/inputs?{asked}")
        assert answer.status == 404
        assert "This list has no" in texts(answer.body)


async def test_pause_resume_stop_and_run_now(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    await served.story.run()
    page = f"/workflows/{wf}"
    assert "Its producers" in (await served.get(page)).body
    await act(served, "run_now", page, wf=wf)
    asked = served.story.feed.count
    await served.story.run()
    assert served.story.feed.count == asked + 1
    for name, status, offers in (
        ("pause", "paused", "resume"), ("resume", "active", "pause"), ("stop", "stopped", "resume"),
    ):
        shown = await act(served, name, page, wf=wf)
        assert "It is done." in shown.body
        assert (await served.story.workflow(wf)).status == status
        assert f'name="act" value="{offers}"' in shown.body
        assert ('name="act" value="stop"' in shown.body) == (status != "stopped")


async def test_what_goes_on_while_a_run_waits_is_set_and_shown_with_what_is_parked(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    page = f"/workflows/{wf}"
    assert "Nothing else of it runs (stop)" in texts((await served.get(page)).body)
    shown = await act(served, "set", page, wf=wf, waiting="others")
    assert "Whatever does not depend on that run goes on (others)" in texts(shown.body)
    await served.story.keep.grant(wf, "sheets.appendRow", "ask")
    served.story.feed.put("a", "first")
    await served.story.run()
    [asked] = await served.story.keep.needs_you(wf)
    page_now = (await served.get(page)).body
    assert asked.run_id in page_now
    assert "1 reserved event" in page_now
    drawn = page_now.partition('class="keep-graph"')[2].partition("</svg>")[0]
    assert f'<a href="/runs/{asked.run_id}"><g class="consumer paused">' in drawn, "the graph leads to it"
    assert f"consumer take: {asked.run_id} waits for approval, holds 1 reserved event" in drawn
    assert ">1 parked<" in drawn
    assert "While a run waits for a person, whatever does not depend on that run goes on by person" in texts(page_now)


async def test_a_rule_is_shown_in_words_before_it_is_saved_or_why_it_cannot_be(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    rule = {"rule.mode": "ask", "rule.match": "spreadsheetId=bo*", "rule.per_day": "20"}
    asked = {"capability": "sheets.appendRow", **rule}
    before = await served.story.keep.version()
    told = texts((await served.get(f"/permissions/words?{urlencode(asked)}")).body)
    assert told == ("Once it is saved: sheets.appendRow is asked about, call by call, only where spreadsheetId is like "
                    "bo*, at most 20 per day.")
    wrong = {**asked, "rule.match": "spreadsheetId"}
    assert "It cannot be saved so." in texts((await served.get(f"/permissions/words?{urlencode(wrong)}")).body)
    assert (await served.get(f"/permissions/words?{urlencode(asked)}", signed_in=False)).status == 401
    assert await served.story.keep.version() == before, "nothing is written"
    page = texts((await served.get(f"/workflows/{wf}")).body)
    assert "sheets.appendRow ✓ allow set" in page


async def test_a_permission_says_who_set_it_and_is_changed_with_limits(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    page = f"/workflows/{wf}"
    first = (await served.get(page)).body
    assert "sheets.appendRow ✓ allow set now by person" in texts(first)
    assert first.count("ask a person each time") == 1, "feed.list is a read, of which nobody can be asked"
    shown = texts((await act(served, "grant", page, wf=wf, capability="sheets.appendRow", mode="ask")).body)
    assert "sheets.appendRow ○ ask set now by person" in shown
    rule = {"mode": "allow", "match": "spreadsheetId=bo*\r\n\r\n", "ask_when": "values[2] > 1000", "per_day": "20",
            "deny_when": "", "per_run": ""}
    body = (await act(served, "grant", page, rule, wf=wf, capability="sheets.appendRow")).body
    limits = "only where spreadsheetId is like bo*, a person is asked when values[2] &gt; 1000, at most 20 per day"
    assert f"sheets.appendRow ✓ allow {limits} set now" in texts(body)
    assert "spreadsheetId=bo*" in body, "the form shows the rule, to be changed"
    wrong = {"mode": "allow", "match": "spreadsheetId"}
    refused = (await act(served, "grant", page, wrong, wf=wf, capability="sheets.appendRow")).body
    assert "Not done" in refused
    assert "is not PARAM=PATTERN" in refused


async def test_a_grant_for_another_account_is_shown_as_none_and_can_be_renewed(served: Served) -> None:
    connectors = served.story.keep.parts.connectors
    connectors["sheets"].account = "ann@example.com"  # type: ignore[misc]
    wf = await served.story.deploy(LINES)
    assert "allow was granted" not in (await served.get(f"/workflows/{wf}")).body
    connectors["sheets"].account = "bob@example.com"  # type: ignore[misc]
    page = texts((await served.get(f"/workflows/{wf}")).body)
    assert "allow was granted for the account ann@example.com, and the connector now has bob@example.com" in page
    assert page.count("not granted") == 1
    again = await act(served, "grant", f"/workflows/{wf}", wf=wf, capability="sheets.appendRow", mode="allow")
    assert "allow was granted" not in again.body


async def test_a_rule_of_keep_toml_is_shown_as_its_own(served: Served) -> None:
    configured = {"lines": {"sheets.appendRow": {"mode": "allow", "per_day": 3}}}
    wf = await served.story.deploy(LINES, grants={"feed.list": "allow"}, configured=configured)
    page = texts((await served.get(f"/workflows/{wf}")).body)
    assert re.search(r"sheets\.appendRow \S+ allow at most 3 per day set \S+ by keep\.toml", page)


async def test_what_nobody_granted_is_shown_as_refused(served: Served) -> None:
    wf = await served.story.deploy(LINES, grants=None)
    told = texts((await served.get(f"/workflows/{wf}")).body)
    assert "sheets.appendRow · not granted nobody has decided yet, so it is refused" in told


async def test_each_version_says_whether_it_is_certified(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    told = texts((await served.get(f"/workflows/{wf}")).body)
    assert "not certified: nobody has tried what happens to it when something goes wrong" in told


@pytest.mark.parametrize(("query", "head"), [
    ("", "From 1.0 to 2.0"), ("?from=2.0&to=1.0", "From 2.0 to 1.0"), ("?to=1.0", "Version 1.0"),
])
async def test_any_two_versions_are_compared_line_by_line(served: Served, query: str, head: str) -> None:
    wf = await served.story.deploy(LINES)
    await served.story.deploy(CHANGED)
    page = (await served.get(f"/workflows/{wf}/versions{query}")).body
    assert head in texts(page)
    assert "<b>checked" not in page
    marks: Mapping[str, tuple[int, int]] = {"": (1, 1), "?from=2.0&to=1.0": (1, 1), "?to=1.0": (0, 0)}
    assert (page.count('<tr class="new">'), page.count('<tr class="gone">')) == marks[query]
    if not query:
        number = CHANGED[:CHANGED.index("checked")].count("\n") + 1
        added = rf'<tr class="new"><td class="at"></td><td class="at">{number}</td>.*?&lt;b&gt;checked'
        assert re.search(added, page, re.S)
        assert f"{number - 4} lines the same" in page


@pytest.mark.parametrize("query", ["to=9.9", "from=x", "from=1.0&to=1.", "to=%00", "to=99999999999.0"])
async def test_a_version_that_does_not_exist_is_said_so(standing: Served, query: str) -> None:
    answer = await standing.get(f"/workflows/lines/versions?{query}")
    assert answer.status == 404
    assert "has no version" in answer.body


async def test_the_blast_radius_of_a_version_names_what_its_runs_touched(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    served.story.feed.put("one")
    await served.story.run()
    await served.story.deploy(CHANGED)
    served.story.feed.put("two")
    await served.story.run(minutes=5)
    old = texts((await served.get(f"/workflows/{wf}/blast?version=1.0")).body)
    assert "touched 1 input, 0 items and 1 output" in old
    assert ("Item one" in old, "Item two" in old) == (True, False)
    new = texts((await served.get(f"/workflows/{wf}/blast")).body)
    assert "Blast radius of version 2.0" in new
    assert "Item two" in new
    assert (await served.get(f"/workflows/{wf}/blast?version=3.0")).status == 404


async def test_what_another_version_would_do_with_recorded_runs_is_shown_beside_it(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    await served.story.deploy(CHANGED)
    served.story.feed.put("one")
    await served.story.run()
    at = f"/workflows/{wf}/versions?from=2.0&to=1.0"
    assert "Try the text of 1.0 on the recorded runs" in texts((await served.get(at)).body)
    tried = texts((await served.get(f"{at}&shadow=yes")).body)
    assert "In short: of 2 recorded runs: 1 the same, 1 changed." in tried
    assert "values[1] &#34;&lt;b&gt;checked&lt;/b&gt;&#34; (absent)" in tried
    assert len(served.story.world.effects) == 1


async def test_the_graph_follows_and_stopping_wants_a_confirmation(served: Served, tab: Tab) -> None:
    wf = await held(served)
    await tab.page.goto(served.web.address())
    await tab.page.goto(f"{served.web.origin}/workflows/{wf}")
    await expect(tab.page.locator(".keep-graph .topic .count")).to_have_text("2 waiting")
    [question] = await served.story.keep.needs_you()
    await served.story.keep.approve(question.id)
    await served.story.run()
    await expect(tab.page.locator(".keep-graph .topic .count")).to_have_text("1 waiting")
    await tab.page.locator("summary", has_text="Stop it").click()
    stop = tab.page.get_by_role("button", name="Stop this workflow")
    await stop.click()
    assert (await served.story.workflow(wf)).status == "active", "the box was not ticked"
    await tab.page.get_by_label("Yes, stop it").check()
    await stop.click()
    await expect(tab.page.locator(".note.done")).to_contain_text("The workflow is stopped.")
    assert (await served.story.workflow(wf)).status == "stopped"


@pytest.mark.parametrize("context", [PHONE], indirect=True)
async def test_on_a_phone_a_workflow_and_its_versions_are_no_wider_than_the_window(served: Served, tab: Tab) -> None:
    chain = {f"step{n}": consumer(mutate=APPEND) for n in range(1)}
    wf = await served.story.deploy(workflow(name="n" * 60, producers={"poll": producer()}, consumers=chain))
    await served.story.deploy(workflow(name="n" * 60, producers={"poll": producer()}, consumers={}), strand=True)
    await tab.page.goto(served.web.address())
    for page in ("", "/versions", "/blast", "/events", "/items"):
        await tab.page.goto(f"{served.web.origin}/workflows/{wf}{page}")
        assert not await tab.overflows(), page


async def test_a_person_sends_something_in_by_hand_and_a_form_sent_twice_sends_it_once(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    page = f"/workflows/{wf}"
    body = (await served.get(page)).body
    [form] = re.findall(r'<form[^>]*>(?:(?!</form>).)*name="act" value="send".*?</form>', body, re.S)
    [to] = re.findall(r'<option value="([^"]+/in)"', form)
    [id] = re.findall(r'name="p.id" value="([^"]+)"', form)
    for _ in range(2):
        shown = await act(served, "send", page, to=to, id=id, data='{"n": 1}', title="Ann, by phone")
        assert "It is done." in shown.body
    [event] = await served.story.events(wf, "in")
    assert (event.message_id, event.payload, event.revision) == (id, {"n": 1}, 1)
    listed = texts((await served.get(f"/workflows/{wf}/inputs")).body)
    assert "Ann, by phone" in listed
    refused = (await act(served, "send", page, to=to, data="{n: 1}")).body
    assert "must be JSON" in refused
    assert len(await served.story.events(wf, "in")) == 1


async def test_a_rule_is_typed_into_fields_read_in_words_and_still_there_if_it_was_refused(
    served: Served, tab: Tab,
) -> None:
    wf = await served.story.deploy(LINES)
    await tab.page.goto(served.web.address())
    await tab.page.goto(f"{served.web.origin}/workflows/{wf}")
    form = tab.page.locator("[id='grant-sheets.appendRow']")
    await form.locator("summary").click()
    await form.get_by_label("Mode").select_option("ask a person each time")
    await form.get_by_label("At most per day").fill("20")
    await expect(form.locator(".words")).to_contain_text("asked about, call by call, at most 20 per day")
    await form.get_by_label("Only where").fill("spreadsheetId")
    await expect(form.locator(".words")).to_contain_text("It cannot be saved so.")
    await form.get_by_role("button", name="Save this rule").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text("is not PARAM=PATTERN")
    await expect(form.get_by_label("Only where")).to_have_value("spreadsheetId")
    await expect(form.get_by_label("At most per day")).to_have_value("20")
    await form.get_by_label("Only where").fill("spreadsheetId=bo*")
    await form.get_by_role("button", name="Save this rule").click()
    await expect(tab.page.locator(".note.done")).to_contain_text("sheets.appendRow has a new rule.")
    await expect(tab.page.locator("#permissions")).to_contain_text("is like bo*, at most 20 per day")
