"""`keep demo --ui`: the three buttons in a real browser, with a host that is really killed."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from .conftest import PATIENCE_MS, Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMMAND = (sys.executable, "-m", "keepai.doors.cli.main", "demo", "--ui", "--port", "0")


@dataclass
class Stage:
    """A running demo."""

    process: Process
    address: str
    said: list[str]

    async def listen(self) -> None:
        """Take what it says, so that it is never held up."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode())

    def killed(self) -> list[str]:
        """The hosts that died, by their process ids."""
        return re.findall(r"Process (\d+) was killed by signal 9", "".join(self.said))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a name that leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="keep-") as folder:
        yield Path(folder)


@pytest_asyncio.fixture(loop_scope="session")
async def stage(place: Path) -> AsyncIterator[Stage]:
    """A demo in a group of processes of its own, as a terminal gives it one."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, cwd=place, env={**os.environ, "TMPDIR": str(place)}, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    while not (said and "http://" in said[-1]):
        line = await asyncio.wait_for(process.stderr.readline(), PATIENCE_MS / 1000)
        assert line, f"it ended before it gave an address: {said}"
        said.append(line.decode())
    made = Stage(process, said[-1].split()[-1], said)
    listening = asyncio.ensure_future(made.listen())
    yield made
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await listening


async def press(page: Page, name: str, counted: str) -> None:
    """Press a button, and wait until the page has followed by itself."""
    await page.get_by_role("button", name=name).click()
    await expect(page.locator("#counted")).to_have_text(counted)


async def test_mail_is_filed_a_killed_host_comes_back_and_a_lost_answer_is_asked_about(stage: Stage, tab: Tab) -> None:
    page = tab.page
    await page.goto(stage.address)
    newest = page.locator("#happened li").first
    await expect(page.locator("#counted")).to_have_text("5 e-mails, 5 rows.")
    await expect(page.locator("#happened")).not_to_contain_text("died")
    await page.evaluate("window.sameDocument = true")

    await press(page, "Send a test e-mail", "6 e-mails, 6 rows.")
    await expect(newest).to_contain_text("Its row was written. In the sheet’s own file: 1 row.")

    await press(page, "Pull the plug", "7 e-mails, 7 rows.")
    await expect(newest).to_contain_text("checked the sheet: it had happened. In the sheet’s own file: 1 row.")
    assert len(stage.killed()) == 1
    await expect(page.locator("#happened")).to_contain_text(f"before it, {stage.killed()[0]} died")
    await expect(page.locator("#offline")).to_be_hidden()
    tab.complaints.clear()  # the browser's own remarks on a server that was gone

    await press(page, "Lose the answer", "8 e-mails, 8 rows.")
    await expect(newest).to_contain_text("Did this happen?")
    await page.get_by_role("button", name="Pull the plug").click()
    await expect(page.locator("#said")).to_contain_text("waits for your answer")
    assert len(stage.killed()) == 1
    assert await page.evaluate("window.sameDocument"), "the page was never loaded again"

    await newest.get_by_role("link", name="Answer").click()
    await page.locator("summary", has_text="It happened").click()
    await page.get_by_role("button", name="Yes, it happened").click()
    await expect(page.locator(".note.done")).to_be_visible()
    await page.get_by_role("link", name="Home").click()
    await expect(newest).to_contain_text("You said what became of it")
    await expect(page.locator("#counted")).to_have_text("8 e-mails, 8 rows.")
    await page.close()  # it would complain about the end of the demo, too


@pytest.mark.parametrize("context", [{"viewport": {"width": 320, "height": 640}}], indirect=True)
async def test_the_buttons_are_for_whoever_was_let_in_and_no_host_outlives_its_parent(stage: Stage, tab: Tab) -> None:
    origin = stage.address.partition("/?")[0]
    for path in ("/", "/demo/mail", "/demo/plug", "/demo/lose"):
        answer = await asyncio.to_thread(ask, origin, "GET" if path == "/" else "POST", path)
        assert answer == 401, path
    await tab.page.goto(stage.address)
    await expect(tab.page.locator("#counted")).to_have_text("5 e-mails, 5 rows.")
    assert not await tab.overflows()
    assert stage.killed() == []
    await tab.page.close()
    stage.process.kill()
    await all_ended(stage)


def ask(origin: str, method: str, path: str) -> int:
    """What a program without a session is answered."""
    host = origin.removeprefix("http://")
    connection = http.client.HTTPConnection("127.0.0.1", int(host.rpartition(":")[2]), timeout=10)
    headers = {"Host": host, "Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request(method, path, "", headers)
    answer = connection.getresponse()
    connection.close()
    return answer.status


async def test_ctrl_c_ends_parent_and_host_at_once_and_leaves_nothing(stage: Stage, place: Path) -> None:
    assert made(place) == ["keep-demo"]
    os.killpg(stage.process.pid, signal.SIGINT)
    assert await asyncio.wait_for(stage.process.wait(), 30) == 0
    assert made(place) == []
    await all_ended(stage)


async def all_ended(stage: Stage) -> None:
    """Wait until nothing is left of a demo: whoever lost its parent notices that by itself, and soon."""
    for _ in range(600):
        if not alive(stage.process.pid):
            break
        await asyncio.sleep(0.05)
    assert alive(stage.process.pid) == []


def made(folder: Path) -> list[str]:
    """The folders that demos made there, without the part of their names that differs each time."""
    return [path.name.rpartition("-")[0] for path in folder.iterdir() if (path / "keep.db").exists()]


def alive(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
