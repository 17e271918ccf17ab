"""The box on Home: words begin a plan, its page follows the model, and it ends at the proposal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keepai.config import load
from keepai.doors.cli.wiring import make_channel, make_connector
from keepai.doors.host_process import new_host
from keepai.doors.web.page_server import PageServer
from keepai.model.principals import Role
from tests.cli.conftest import SETTINGS
from tests.planning import conversation
from tests.planning.conversation import answer
from tests.planning.model_server import ModelServer

from .conftest import Served, Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def planned(tmp_path: Path) -> AsyncIterator[tuple[Served, ModelServer]]:
    """A host with a model, which is wrong once."""
    with ModelServer("chat", answer(conversation.WRONG_CALL), answer(conversation.SCRIPT)) as server:
        (tmp_path / "keep.toml").write_text(SETTINGS + server.toml(attempts_max=2), "utf-8")
        settings = load(tmp_path / "keep.toml", tmp_path / "keep.db", {}, make_connector, make_channel)
        async with new_host(settings) as keep, PageServer(keep, settings, None, port=0) as web:
            served = Served(None, web)  # type: ignore[arg-type]
            await served.sign_in()
            yield served, server


async def test_a_person_writes_a_wish_and_ends_at_the_proposal(planned: Any, tab: Tab) -> None:
    served, _server = planned
    await tab.page.goto(served.web.address())
    await tab.page.get_by_label("What should happen?").fill("File receipts <b>daily</b>")
    await tab.page.get_by_role("button", name="Have it written").click()
    await expect(tab.page.get_by_text('has no operation "insertRow"')).to_be_visible()
    await expect(tab.page.get_by_text("File receipts <b>daily</b>")).to_be_visible()
    await served.web.plans.get(1).task
    await tab.page.get_by_role("link", name="Look at the proposal").click()
    await expect(tab.page.get_by_text(conversation.WHY).first).to_be_visible()
    assert "/proposals/prp_" in tab.page.url


async def test_a_plan_that_comes_to_nothing_says_why_and_shows_the_best_draft(planned: Any) -> None:
    served, server = planned
    server.script = [answer(conversation.WRONG_CALL)]
    begun = await served.post("/plans", words="anything")
    assert begun.headers["location"] == "/plans/1"
    await served.web.plans.get(1).task
    body = (await served.get("/plans/1")).body
    assert "Nothing was proposed: the model has had its 2 attempts" in body
    assert "ctx.sheets.insertRow" in body
    assert (await served.get("/plans/2")).status == 404


async def test_two_plans_run_at_once_and_no_third_begins(planned: Any) -> None:
    served, _server = planned
    for _ in range(3):
        await served.post("/plans", words="anything")
    assert "2 plans are under way" in (await served.get("/")).body
    assert (await served.get("/plans/3")).status == 404
    assert (await served.post("/plans", words="  ")).headers["location"] == "/"


async def test_who_may_not_propose_has_no_box(planned: Any) -> None:
    served, server = planned
    assert "What should happen?" in (await served.get("/")).body
    with served.signed_in_as(Role.VIEWER):
        assert "What should happen?" not in (await served.get("/")).body
        assert (await served.post("/plans", words="anything")).status == 404
    assert server.asked == []


async def test_without_a_model_there_is_no_box(served: Served) -> None:
    assert "What should happen?" not in (await served.get("/")).body
    assert (await served.post("/plans", words="anything")).status == 404
