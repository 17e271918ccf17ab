"""Feeds: new entries are returned once, an unchanged feed costs nothing, and no link in a feed is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from keepai import PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.connectors import make
from keepai.connectors.rss import feed_parser
from keepai.testing import loopback
from keepai.testing.loopback import HttpReply, Loopback, Request
from tests.connectors.cases import call


class Feed:
    """A feed on loopback, and its connector."""

    def __init__(self) -> None:
        self.items: list[str] = []  # newest first, as feeds are
        self.content: bytes | None = None
        self.server = Loopback(self.handle)
        self.connector = make("rss", "news", {"url": f"{self.server.url}/feed.xml", "networks": ["127.0.0.1"]})

    def publish(self, id: str, title: str = "", **parts: str) -> None:
        said = "".join(f"<{name}>{value}</{name}>" for name, value in {"title": title or id, **parts}.items())
        self.items.insert(0, f"<item><guid>{id}</guid>{said}</item>")

    def handle(self, request: Request) -> HttpReply:
        tag = f'"{hash(tuple(self.items))}"'
        if request.headers.get("if-none-match") == tag:
            return HttpReply(304, content=b"")
        body = f"<?xml version='1.0'?><rss version='2.0'><channel><title>N</title>{''.join(self.items)}</channel></rss>"
        headers = {"ETag": tag, "Last-Modified": "Mon, 05 Jan 2026 09:00:00 GMT", "Content-Type": "application/rss+xml"}
        return HttpReply(200, content=self.content if self.content is not None else body.encode(), headers=headers)

    async def __call__(self, **params: Any) -> Any:
        spec = self.connector.operations["entries"]
        return await spec.invoke(spec.parse(params), call())


@pytest.fixture
def feed() -> Iterator[Feed]:
    made = Feed()
    yield made
    made.server.close()


def ids(page: Any) -> list[str]:
    return [each["id"] for each in page]


async def test_an_entry_is_shown_without_markup(feed: Feed) -> None:
    text = "&lt;p&gt;Hello &lt;b&gt;you&lt;/b&gt;&lt;/p&gt;"
    feed.publish("a", "One", link="https://example.com/a", description=text, pubDate="Mon, 05 Jan 2026 09:00:00 GMT")
    [entry] = await feed()
    assert entry == {"id": "a", "title": "One", "link": "https://example.com/a", "author": "",
                     "date": "2026-01-05T09:00:00.000Z", "text": "Hello you"}


async def test_what_is_new_comes_once_and_in_order(feed: Feed) -> None:
    for id in "abc":
        feed.publish(id)
    first = await feed()
    assert ids(first) == ["a", "b", "c"]
    feed.publish("d")
    feed.publish("e")
    second = await feed(after=first.fields["lastCursor"])
    assert ids(second) == ["d", "e"]
    assert ids(await feed(after=second.fields["lastCursor"])) == []


async def test_a_feed_that_did_not_change_is_not_sent_again(feed: Feed) -> None:
    feed.publish("a")
    first = await feed()
    again = await feed(after=first.fields["lastCursor"])
    assert (ids(again), again.fields["lastCursor"]) == ([], first.fields["lastCursor"])
    assert feed.server.seen[-1].headers["if-modified-since"] == "Mon, 05 Jan 2026 09:00:00 GMT"


async def test_a_page_that_was_cut_goes_on_though_the_feed_did_not_change(feed: Feed) -> None:
    for id in "abcde":
        feed.publish(id)
    seen: list[str] = []
    cursor, more = None, True
    while more:
        page = await feed(after=cursor, limit=2)
        seen += ids(page)
        cursor, more = page.fields["lastCursor"], page.fields["more"]
    assert seen == list("abcde")


async def test_a_feed_that_is_sorted_anew_or_loses_its_old_entries_makes_nothing_new(feed: Feed) -> None:
    for id in "abcd":
        feed.publish(id)
    cursor = (await feed()).fields["lastCursor"]
    feed.items.reverse()
    feed.items.pop(0)
    page = await feed(after=cursor)
    assert ids(page) == []
    feed.publish("a")  # it comes back
    assert ids(await feed(after=page.fields["lastCursor"])) == []


async def test_atom_is_read_too(feed: Feed) -> None:
    feed.content = (b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>urn:1</id><title>One</title>"
                    b"<updated>2026-01-05T09:00:00Z</updated><content>Text</content></entry></feed>")
    [entry] = await feed()
    assert (entry["id"], entry["text"], entry["date"]) == ("urn:1", "Text", "2026-01-05T09:00:00.000Z")


@pytest.mark.parametrize("content", [b"", b"<html>no</html>", b"/etc/hostname", b"http://127.0.0.1/x", b"\xff\xfe\x00"])
async def test_what_is_no_feed_is_told_and_opens_nothing(feed: Feed, content: bytes) -> None:
    feed.content = content
    with pytest.raises(PreconditionFailed, match="not return a feed"):
        await feed()
    assert len(feed.server.seen) == 1


async def test_entities_from_outside_are_not_opened(feed: Feed) -> None:
    feed.content = (b"<?xml version='1.0'?><!DOCTYPE rss [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>"
                    b"<rss version='2.0'><channel><item><guid>a</guid><title>T&x;T</title></item></channel></rss>")
    [entry] = await feed()
    assert entry["title"].replace("&x;", "") == "TT"


@pytest.mark.parametrize(("status", "kind"), [
    (404, PreconditionFailed), (403, PermissionDenied), (429, Transient), (503, Transient), (304, Transient),
])
async def test_a_feed_that_cannot_be_read_says_who_can_help(feed: Feed, status: int, kind: type[Exception]) -> None:
    broken = feed.server.misbehaving(loopback.instead(HttpReply(status, content=b"")), loopback.is_read)
    with broken, pytest.raises(kind):
        await feed()


async def test_a_cursor_of_ones_own_making_is_refused(feed: Feed) -> None:
    for cursor in ("", "x", "[]", '{"etag": 1}'):
        with pytest.raises(Rejected):
            await feed(after=cursor)


async def test_a_feed_that_takes_for_ever_is_given_up_and_holds_nobody_up(
    feed: Feed, monkeypatch: pytest.MonkeyPatch,
) -> None:
    piece = b"&lt;!--"  # the parser begins anew at each of them
    feed.content = (b'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><entry><content type="html">'
                    + piece * ((1 << 20) // len(piece)) + b"</content></entry></feed>")
    monkeypatch.setattr(feed_parser, "CPU_S", 1)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    beside = asyncio.ensure_future(others())
    with pytest.raises(PreconditionFailed, match="could not be parsed within"):
        await feed()
    beside.cancel()
    assert turns > 5, "the loop went on meanwhile"
