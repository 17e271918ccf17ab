"""Open pages are told of every change, soon and not too often, and never hold up the end of the host."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from keepai.doors.live import PAUSE_S, STREAMS_MAX

from .conftest import LINES, PageServer, Served, Settings, Story

pytestmark = pytest.mark.asyncio(loop_scope="session")


@contextlib.asynccontextmanager
async def stream(served: Served, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """An open stream, past its headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.web.port)
    host = served.web.origin.removeprefix("http://")
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {served.cookie}\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def head(reader: asyncio.StreamReader) -> str:
    return (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()


async def event(reader: asyncio.StreamReader, seconds: float = 30) -> str:
    """The next event; what else is in the stream is passed over."""
    while True:
        line = (await asyncio.wait_for(reader.readline(), seconds)).decode().strip()
        if line.startswith("event: "):
            return line.removeprefix("event: ")


async def test_a_change_is_told_and_silence_is_silence(served: Served) -> None:
    async with stream(served, f"/live?seen={served.web.live.number}") as reader:
        told = await head(reader)
        assert "text/event-stream" in told
        assert "cache-control: no-store" in told
        assert "content-security-policy: default-src 'none'" in told
        with pytest.raises(TimeoutError):
            await event(reader, 0.6)
        await served.story.deploy(LINES)
        assert await event(reader) == "changed"


async def test_what_happened_between_the_page_and_its_stream_is_told(served: Served) -> None:
    seen = served.web.live.number
    await served.story.deploy(LINES)
    async with stream(served, f"/live?seen={seen}") as reader:
        await head(reader)
        assert await event(reader) == "changed"


async def test_many_changes_are_told_a_few_times_a_second(served: Served) -> None:
    wf = await served.story.deploy(LINES)
    async with stream(served, f"/live?seen={served.web.live.number}") as reader:
        await head(reader)
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            await served.story.keep.pause(wf)
            await served.story.keep.resume(wf)
            await asyncio.sleep(0.05)
        spans = (asyncio.get_running_loop().time() - began) / PAUSE_S
        assert await event(reader) == "changed"
        told = 1
        with contextlib.suppress(TimeoutError):
            while await event(reader, 2 * PAUSE_S):
                told += 1
    assert told <= spans + 2


async def test_only_so_many_streams_are_open_at_once(served: Served) -> None:
    served.web.live.streams = STREAMS_MAX
    assert (await served.get("/live")).status == 503


async def test_the_host_ends_although_pages_are_open(tmp_path) -> None:  # type: ignore[no-untyped-def]
    async with Story(tmp_path) as story:
        web = PageServer(story.keep, Settings(ledger=story.path), port=0)
        await web.__aenter__()
        served = Served(story, web)
        await served.sign_in()
        async with stream(served, f"/live?seen={web.live.number}") as one, stream(served, "/live") as two:
            await head(one)
            await head(two)
            async with asyncio.timeout(20):  # a page stays open for as long as somebody looks at it
                await web.__aexit__(None, None, None)
                rest = await one.read()
            assert rest.endswith(b"0\r\n\r\n"), "the stream was ended, not cut off"
