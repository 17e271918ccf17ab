"""What the tests of the page share: a host with its page on a free port, plain HTTP to it, and a real browser.

Everything runs in one loop per worker, so that one browser serves all tests of it. `served` is a host of one's own
with nothing deployed; a browser test asks for `tab`, which fails if the page complained about anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from keepai.config import Settings
from keepai.doors.web.page_server import PageServer
from keepai.model.principals import Principal, Role
from tests.harness import Story, consumer, producer, workflow

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]
PATIENCE_MS = 30_000  #: for what a page shall show; a busy machine takes its time
APPEND = 'await ctx.sheets.appendRow({ spreadsheetId: "book", values: [prepared.data.messageId] });'
LINES = workflow(name="lines", producers={"poll": producer()}, consumers={"take": consumer(mutate=APPEND)})


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Served:
    """A host with its page."""

    story: Story
    web: PageServer
    cookie: str = ""
    _csrf: str = field(default="", repr=False)

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None,
        signed_in: bool = True,
    ) -> Answer:
        """One request, exactly as it is written; `Host` may be given, and is ours otherwise."""
        ours = {"Host": self.web.origin.removeprefix("http://")}
        given = {**ours, **({"Cookie": self.cookie} if signed_in and self.cookie else {}), **(headers or {})}
        return await asyncio.to_thread(self._ask, method, path, given, body)

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None and "Content-Length" not in headers:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    async def get(self, path: str, **options: bool) -> Answer:
        """A page."""
        return await self.ask("GET", path, **options)

    async def post(self, path: str, headers: Mapping[str, str] | None = None, **fields: str) -> Answer:
        """A form, as our own page sends it; `headers` may say otherwise."""
        given = {"Origin": self.web.origin, "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return await self.ask("POST", path, headers=given, body=urlencode({"csrf": self.csrf, **fields}).encode())

    async def sign_in(self) -> None:
        """Come in with a token, as a person does with the address that is printed."""
        answer = await self.get(self.web.address().removeprefix(self.web.origin), signed_in=False)
        assert answer.status == 200, answer.body
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    @contextlib.contextmanager
    def signed_in_as(self, role: Role) -> Iterator[None]:
        """The browser is somebody of this role, for a while."""
        session = self.web.sessions.session(self.cookie.partition("=")[2])
        before = session.principal
        object.__setattr__(session, "principal", Principal.person("ann", role))
        yield
        object.__setattr__(session, "principal", before)

    @property
    def csrf(self) -> str:
        """The token that stands in the forms of this session."""
        session = self.web.sessions.session(self.cookie.partition("=")[2])
        return session.csrf if session else self.web.sessions.csrf


async def serve(
    folder: Path, password: str | None = None, address: str | None = None, **options: Any,
) -> AsyncIterator[Served]:
    """A host on `folder` with its page, to be used in a fixture; `options` are those of the story."""
    settings = Settings(ledger=folder / "keep.db", password=password)
    async with Story(folder, **options) as story, PageServer(story.keep, settings, address, port=0) as web:
        yield Served(story, web)


@pytest_asyncio.fixture(loop_scope="session")
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A host with its page, and a browser signed in; nothing is deployed."""
    async for each in serve(tmp_path):
        await each.sign_in()
        yield each


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One host for all tests that change nothing: a workflow that has done two things."""
    async for each in serve(tmp_path_factory.mktemp("standing")):
        await each.story.deploy(LINES)
        each.story.feed.put("one")
        each.story.feed.put("two")
        await each.story.run()
        await each.sign_in()
        yield each


# -- the browser ---------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests of a worker."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no chromium on this machine: `make browser` installs one where it can")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        await started.close()


@dataclass
class Tab:
    """A window of the browser, and everything that it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Remember errors of scripts, of the policy and of requests."""
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    async def overflows(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(await self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[BrowserContext]:
    """A browser without a past; `@pytest.mark.parametrize("context", [{…}], indirect=True)` gives options."""
    made = await browser.new_context(**getattr(request, "param", {"viewport": {"width": 1000, "height": 800}}))
    made.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(context: BrowserContext) -> AsyncIterator[Tab]:
    """A window; whatever its pages complained about fails the test."""
    made = Tab(await context.new_page())
    made.listen()
    yield made
    assert made.complaints == []
