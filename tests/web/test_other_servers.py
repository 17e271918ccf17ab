"""Servers of other programs on the same machine: they get no cookie of the page, and a cookie alone does nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from keepai.doors.web.web_app import app_routes

from .conftest import LINES, Served, Tab, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Listener(ThreadingHTTPServer):
    """A server of another program, which notes what browsers bring along."""

    daemon_threads = True

    def __init__(self) -> None:
        self.got: list[str | None] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/":
                    got.append(self.headers.get("cookie"))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<title>other</title>")

            def log_message(self, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


@pytest.fixture
def other() -> Iterator[Listener]:
    """Another program's server at 127.0.0.1."""
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def asked(served: Served) -> str:
    """A call that waits for a person; the id of its question."""
    wf = await served.story.deploy(LINES)
    await served.story.keep.grant(wf, "sheets.appendRow", "ask")
    served.story.feed.put("one")
    await served.story.run()
    [question] = await served.story.keep.needs_you()
    return question.id


async def test_the_page_has_a_name_of_its_own_and_other_servers_get_no_cookie_of_it(
    served: Served, tab: Tab, other: Listener,
) -> None:
    await tab.page.goto(served.web.address())
    await expect(tab.page.get_by_role("heading", name="Nothing is deployed yet")).to_be_visible()
    assert re.fullmatch(r"http://[0-9a-f]{32}\.localhost:\d+", served.web.origin)
    assert await tab.page.evaluate("location.origin") == served.web.origin
    for name in ("127.0.0.1", "localhost", f"{'0' * 32}.localhost"):
        await tab.page.goto(f"http://{name}:{other.port}/")
        assert await tab.page.title() == "other"
    assert other.got == [None, None, None]


async def test_an_act_works_in_the_browser_that_signed_in(served: Served, tab: Tab) -> None:
    question = await asked(served)
    await tab.page.goto(served.web.address())
    await tab.page.get_by_role("link", name="Needs you").first.click()
    await tab.page.locator(f"#card-{question}").get_by_role("button", name="Approve").click()
    await expect(tab.page.locator(".note.done")).to_be_visible()
    assert await served.story.keep.needs_you() == []


async def test_with_the_cookie_alone_a_program_finds_no_token_on_any_page_and_cannot_act(served: Served) -> None:
    question = await asked(served)
    pages = ["/", "/needs-you", "/health", "/?token=x", *(r.path for r in app_routes() if "{" not in r.path)]
    for path in sorted({*pages} - {"/live"}):
        found = await served.get(path)
        assert served.csrf not in found.body + str(found.headers), path
        taken = re.search(r'name="csrf" value="([^"]+)"', found.body)
        if taken:
            answer = await served.post("/act", csrf=taken[1], act="approve", **{"p.id": question})
            assert answer.status == 403
    assert (await served.post("/act", csrf="", act="approve", **{"p.id": question})).status == 403
    assert [each.id for each in await served.story.keep.needs_you()] == [question]


async def test_the_token_of_another_session_is_refused(served: Served) -> None:
    mine, first = served.csrf, served.cookie
    await served.sign_in()
    assert served.cookie != first
    answer = await served.post("/act", csrf=mine)
    assert (answer.status, "Nothing was done" in answer.body) == (403, True)
    assert (await served.post("/act")).status == 303


# Where a browser does not know names below localhost


@pytest_asyncio.fixture(loop_scope="session")
async def plain(tmp_path: Path) -> AsyncIterator[Served]:
    """The page under an address that a person asked for."""
    async for each in serve(tmp_path, address="127.0.0.1"):
        await each.sign_in()
        yield each


async def test_under_a_plain_address_another_server_gets_the_cookie_and_cannot_act_with_it(
    plain: Served, tab: Tab, other: Listener,
) -> None:
    question = await asked(plain)
    await tab.page.goto(plain.web.address())
    await expect(tab.page.get_by_role("row", name="lines")).to_be_visible()
    assert plain.web.origin == f"http://127.0.0.1:{plain.web.port}"
    await tab.page.goto(f"http://127.0.0.1:{other.port}/")
    [stolen] = other.got
    assert stolen is not None
    plain.cookie = stolen
    page = await plain.get("/needs-you")
    assert (page.status, plain.csrf in page.body) == (200, False)
    assert (await plain.post("/act", csrf="", act="approve", **{"p.id": question})).status == 403
    assert await tab.page.evaluate("localStorage.length") == 0  # what the page keeps is not for other ports


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", f"{'0' * 32}.localhost"])
async def test_under_its_own_name_every_other_one_is_refused(standing: Served, name: str) -> None:
    answer = await standing.ask("GET", "/", headers={"Host": f"{name}:{standing.web.port}"})
    assert answer.status == 421
    assert standing.web.sessions.label not in answer.body + str(answer.headers)


async def test_under_a_plain_address_every_other_name_is_refused(plain: Served) -> None:
    for name in ("localhost", "[::1]", f"{plain.web.sessions.label}.localhost"):
        assert (await plain.ask("GET", "/", headers={"Host": f"{name}:{plain.web.port}"})).status == 421
