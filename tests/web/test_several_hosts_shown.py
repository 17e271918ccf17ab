"""The page of a host on a database that several share: the hosts, which one runs what, and what is wrong with them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from socket import gethostname

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keepai import Keep
from keepai.config import Settings
from keepai.doors.web.page_server import PageServer
from tests.harness import Story, consumer, producer, workflow
from tests.ledger.stores import PostgresStore

from .conftest import LINES, Served, Tab
from .test_workflow import texts

pytestmark = pytest.mark.asyncio(loop_scope="session")

MORE = workflow(name="more", producers={"poll": producer()}, consumers={"take": consumer()})


@pytest.fixture
def store() -> PostgresStore:
    made = PostgresStore()
    made.make()
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def shared(store: PostgresStore, tmp_path: Path) -> AsyncIterator[Served]:
    """A host on a database with its page, and a browser signed in; nothing is deployed."""
    story = Story(tmp_path)
    story.path = store.url
    async with story, PageServer(story.keep, Settings(ledger=store.url), port=0) as web:
        found = Served(story, web)
        await found.sign_in()
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def second(shared: Served) -> AsyncIterator[Keep]:
    """Another host on the same database, which came later."""
    story = shared.story
    connectors = [*story.world.connectors(), story.feed]
    async with Keep(story.path, connectors=connectors, policy=story.policy, clock=story.clock) as keep:
        yield keep


def name_of(keep: Keep) -> str:
    return keep.parts.ledger.host


def silent(store: PostgresStore, keep: Keep) -> None:
    """Nobody has heard a host for longer than a lease."""
    with store.raw() as tables:
        tables.execute("update heartbeat set beat_at = beat_at - 240000 where epoch = ?", (keep.parts.ledger.epoch,))


async def hosts_shown(served: Served) -> list[str]:
    """The rows of the table of hosts, as a person reads them."""
    page = (await served.get("/health")).body
    section = page.partition('<section id="hosts"')[2].partition("</section>")[0]
    return [texts(row) for row in re.findall(r"<tr>.*?</tr>", section, re.DOTALL)][1:]


async def shown_of(served: Served, wf: str) -> str:
    return texts((await served.get(f"/workflows/{wf}")).body)


async def test_the_page_lists_every_host_and_says_which_is_this_one(shared: Served, second: Keep) -> None:
    await shared.story.deploy(LINES)
    await shared.story.deploy(MORE)
    await shared.story.run()
    await shared.story.keep.run_until_idle()  # what rests is handed over
    await second.run_until_idle()
    first, other = await hosts_shown(shared)
    where = rf"{os.getpid()} on {gethostname()} .*? (now|\d+ s ago)"
    assert re.fullmatch(rf"{name_of(shared.story.keep)} this one ● at work 1 {where}", first), first
    assert re.fullmatch(rf"{name_of(second)} ● at work 1 {where}", other), other
    assert "Keep sees nothing wrong." in texts((await shared.get("/health")).body)


async def test_what_is_said_of_this_host_is_not_said_of_one_that_came_later(
    shared: Served, second: Keep, store: PostgresStore,
) -> None:
    with store.raw() as tables:
        tables.execute("update host set machine = 'box-b', pid = 4711 where epoch = ?", (second.parts.ledger.epoch,))
    assert " 4711 on box-b " in (await hosts_shown(shared))[1]
    page = (await shared.get("/health")).body
    assert f"process {os.getpid()} on {gethostname()}" in page.partition('id="host"')[2].partition("</section>")[0]
    assert "Hosts before it" not in page
    assert json.loads((await shared.get("/healthz")).body)["pid"] == os.getpid()


async def test_a_host_that_hands_over_and_a_command_are_told_apart(shared: Served, second: Keep) -> None:
    await shared.story.keep.host_drain(name_of(second))
    async with Keep(shared.story.path, clock=shared.story.clock, works=False) as visitor:
        rows = await hosts_shown(shared)
        assert [name_of(shared.story.keep) in rows[0], name_of(second) in rows[1]] == [True, True]
        assert ["at work" in rows[0], "hands over" in rows[1]] == [True, True]
        assert rows[2].startswith(f"{name_of(visitor)} – a command 0 ")
    assert len(await hosts_shown(shared)) == 2


async def test_a_silent_host_is_a_trouble_until_somebody_says_that_it_is_dead(
    shared: Served, second: Keep, store: PostgresStore,
) -> None:
    silent(store, second)
    page = texts((await shared.get("/health")).body)
    assert f"{name_of(second)} (process {os.getpid()} on {gethostname()}) was last heard 4 min ago." in page
    assert "It is not known to be dead." in page
    assert f"say `keep host dead {name_of(second)}`" in page
    assert "○ silent" in (await hosts_shown(shared))[1]
    await shared.story.keep.host_dead(name_of(second))
    assert "Keep sees nothing wrong." in texts((await shared.get("/health")).body)
    assert len(await hosts_shown(shared)) == 1


async def test_the_page_of_a_workflow_says_which_host_runs_it(shared: Served, second: Keep) -> None:
    ours, theirs = await shared.story.deploy(LINES), await shared.story.deploy(MORE)
    await shared.story.run()
    await shared.story.keep.run_until_idle()
    await second.run_until_idle()
    told = {wf: await shown_of(shared, wf) for wf in (ours, theirs)}
    of_first = next(wf for wf in told if name_of(shared.story.keep) in told[wf])
    of_second = next(wf for wf in told if name_of(second) in told[wf])
    assert of_first != of_second
    where = f"process {os.getpid()} on {gethostname()}"
    assert f"This host {name_of(shared.story.keep)} runs it: {where}." in told[of_first]
    assert f"The host {name_of(second)} runs it: {where}." in told[of_second]
    home = texts((await shared.get("/")).body)
    for name in (name_of(shared.story.keep), name_of(second)):
        assert f"host {name}, {where}" in home


async def test_a_workflow_that_no_host_runs_is_a_trouble(shared: Served, second: Keep, store: PostgresStore) -> None:
    wf = await shared.story.deploy(LINES)
    await shared.story.run()
    silent(store, shared.story.keep)
    soon = "A host that is at work takes it over within seconds."
    assert f"○ no host No host runs it. {soon}" in await shown_of(shared, wf)
    assert f"No host runs the workflow lines. {soon}" in texts((await shared.get("/health")).body)
    assert "lines no host runs it" in texts((await shared.get("/")).body)
    silent(store, second)
    never = "Nothing happens in it until `keep dev` or `keep serve` starts a host."
    assert f"○ no host No host runs it. {never}" in await shown_of(shared, wf)
    assert f"No host runs the workflow lines. {never}" in texts((await shared.get("/health")).body)


async def test_the_page_of_a_file_says_nothing_of_several_hosts(standing: Served) -> None:
    [wf] = [each.id for each in await standing.story.keep.workflows()]
    told = " ".join([await shown_of(standing, wf), *[texts((await standing.get(p)).body) for p in ("/", "/health")]])
    for words in ("runs it", "host hst_", "No host", "All hosts", "Last heard"):
        assert words not in told, words


@pytest.mark.parametrize("context", [{"viewport": {"width": 360, "height": 700}}], indirect=True)
async def test_the_hosts_fit_on_a_telephone(shared: Served, second: Keep, store: PostgresStore, tab: Tab) -> None:
    silent(store, second)
    await tab.page.goto(shared.web.address())
    await tab.page.get_by_role("link", name="Health").click()
    await expect(tab.page.get_by_role("heading", name="All hosts of this database")).to_be_visible()
    assert not await tab.overflows()
