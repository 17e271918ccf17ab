"""Health: what the host is and stands on, what is wrong and what to do, and a close look on demand."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.async_api import expect

from .conftest import LINES, Served, Tab
from .test_workflow import held, texts

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_page_says_what_the_host_stands_on(standing: Served) -> None:
    page = texts((await standing.get("/health")).body)
    assert "Keep sees nothing wrong." in page
    assert str(standing.story.path.resolve()) in page
    for word in ("Runs since", "SQLite 3.", "Schema", "WAL", "ctx.sheets", "keep db backup FILE", "nothing waits"):
        assert word in page, word


async def test_what_waits_longest_and_hosts_that_died_are_shown(served: Served) -> None:
    await held(served)
    await served.story.run(hours=24 * 8)
    page = texts((await served.get("/health")).body)
    assert "an event of the topic in in lines , published 8 days ago" in page
    assert "2 events of lines waited for longer than policy.stale_s allows." in page


async def test_a_ledger_that_stopped_is_what_is_wrong(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = served.story.keep.parts.ledger
    monkeypatch.setattr(ledger, "stopped", lambda: "The disk is full.")
    page = texts((await served.get("/health")).body)
    assert "What is wrong, and what to do ✕ ledger The disk is full. Mend that" in page
    answer = await served.get("/healthz")
    assert (answer.status, json.loads(answer.body)["stopped"]) == (503, "The disk is full.")


async def test_programs_are_told_in_json_if_they_are_signed_in(served: Served) -> None:
    await held(served)
    answer = await served.get("/healthz")
    assert answer.status == 200
    told = json.loads(answer.body)
    assert set(told) == {"ok", "stopped", "version", "pid", "since", "workflows", "needs_you", "oldest_pending"}
    assert (told["ok"], told["workflows"], told["needs_you"]) == (True, 1, 1)
    assert told["oldest_pending"] == told["since"] == "2026-01-05T09:00:00.000Z"
    assert (await served.get("/healthz", signed_in=False)).status == 401


async def test_a_close_look_shows_how_far_it_is_and_what_it_found(served: Served, tab: Tab) -> None:
    await served.story.deploy(LINES)
    await tab.page.goto(served.web.address())
    await tab.page.get_by_role("link", name="Health").click()
    await tab.page.get_by_role("button", name="Look closely").click()
    await expect(tab.page.locator("#examined progress")).to_be_visible()
    await expect(tab.page.get_by_role("button", name="Look again")).to_be_visible(timeout=30_000)
    found = tab.page.locator("#examined li")
    await expect(found.filter(has_text="ledger:")).to_have_count(4)
    await expect(found.filter(has_text="ctx.sheets")).to_contain_text("was not tried")
    await expect(found.filter(has_text="sandbox").first).to_contain_text("protections of the system")
    await expect(found.filter(has_text="invariants")).to_contain_text("rules hold")


async def test_a_damaged_ledger_is_found_and_the_host_goes_on(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    served.story.feed.put("one")
    await served.story.run()
    break_account(served)
    assert (await served.post("/health/examine")).status == 303
    for _ in range(300):
        page = (await served.get("/health")).body
        if "Look again" in page:
            break
        await asyncio.sleep(0.1)
    assert "✕ ledger: account" in texts(page)
    assert "What is wrong, and what to do" in page
    await served.story.keep.pause(wf)


def break_account(served: Served) -> None:
    """Change an entry of the account behind Keep's back, as somebody with the file could."""
    import apsw

    connection = apsw.Connection(str(served.story.path))
    for (name,) in connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
        connection.execute(f'drop trigger "{name}"')
    connection.execute("update account set told = '[]' where seq = 3")
    connection.close()
