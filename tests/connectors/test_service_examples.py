"""The examples for Google, Slack and feeds, run by the real engine against services that lose answers."""

from __future__ import annotations

from pathlib import Path

from keepai import Keep
from keepai.connectors import make
from keepai.testing import ManualClock, loopback
from keepai.testing.loopback import HttpReply, Loopback, Request
from tests.connectors.google_subjects import connect
from tests.connectors.services.google import CalendarService, GmailService, SheetsService
from tests.connectors.services.slack import TOKEN, SlackService

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FEED = b"""<?xml version='1.0'?><rss version='2.0'><channel><title>N</title>
<item><guid>b</guid><title>Two &amp;lt;!channel&amp;gt;</title><link>https://example.com/b</link></item>
<item><guid>a</guid><title>One</title><link>https://example.com/a</link></item></channel></rss>"""


def ends(path: str) -> loopback.When:
    return lambda request: request.method != "GET" and request.path.endswith(path)


def clock() -> ManualClock:
    return ManualClock("2026-01-05T09:00:00Z")


async def test_every_email_becomes_one_row_though_answers_are_lost(tmp_path: Path) -> None:
    mail, book = GmailService(), SheetsService()
    for n in (1, 2):
        mail.receive(f"p{n}@example.com", f"Subject {n}", "")
    source = (EXAMPLES / "email-to-sheets.js").read_text("utf-8").replace('"..."', '"book-1"')
    with Loopback(mail.handle) as gmail, Loopback(book.handle) as sheets:
        connectors = [connect("google.gmail", "gmail", gmail.url, "/gmail/v1/"),
                      connect("google.sheets", "sheets", sheets.url, "/v4/")]
        async with Keep(tmp_path / "keep.db", connectors=connectors, clock=clock()) as keep:
            await keep.deploy(source, grants="all")
            with sheets.misbehaving(loopback.drop_after, ends(":batchUpdate")):
                await keep.run_until_idle()
            assert [each.status for each in await keep.mutations("email-to-sheets")] == ["applied", "applied"]
            assert await keep.needs_you() == []
    assert book.rows() == [["p1@example.com", "Subject 1"], ["p2@example.com", "Subject 2"]]


async def test_every_entry_of_a_feed_is_told_once_and_calls_nobody(tmp_path: Path) -> None:
    space = SlackService()

    def feed(request: Request) -> HttpReply:
        return HttpReply(200, content=FEED, headers={"Content-Type": "application/rss+xml"})

    with Loopback(feed) as news, Loopback(space.handle) as server:
        settings = {"account": "Example", "api": f"{server.url}/api/", "networks": ["127.0.0.1"]}
        slack = make("slack", "slack", {**settings, "channels": {"news": "C0GENERAL"}})
        slack.entrust({"token": TOKEN})
        connectors = [slack, make("rss", "news", {"url": f"{news.url}/feed", "networks": ["127.0.0.1"]})]
        async with Keep(tmp_path / "keep.db", connectors=connectors, clock=clock()) as keep:
            await keep.deploy((EXAMPLES / "feed-to-slack.js").read_text("utf-8"), grants="all")
            with server.misbehaving(loopback.drop_after, ends("/chat.postMessage")):
                await keep.run_until_idle()
            assert await keep.needs_you() == []
    assert [each["text"] for each in space.messages] == [
        "One\nhttps://example.com/a", "Two &lt;!channel&gt;\nhttps://example.com/b",
    ]


async def test_a_meeting_is_booked_answered_and_filed_once(tmp_path: Path) -> None:
    mail, diary = GmailService(), CalendarService()
    mail.receive("bob@example.com", "Meeting 2026-01-06T09:00:00Z", "?")
    with Loopback(mail.handle) as gmail, Loopback(diary.handle) as calendar:
        connectors = [connect("google.gmail", "gmail", gmail.url, "/gmail/v1/"),
                      connect("google.calendar", "calendar", calendar.url, "/calendar/v3/")]
        async with Keep(tmp_path / "keep.db", connectors=connectors, clock=clock()) as keep:
            await keep.deploy((EXAMPLES / "mail-to-calendar.js").read_text("utf-8"), grants="all")
            lost = loopback.drop_after
            with calendar.misbehaving(lost, ends("/events")), gmail.misbehaving(lost, ends("/messages/send")):
                await keep.run_until_idle()
            statuses = [each.status for each in await keep.mutations("mail-to-calendar")]
            assert statuses == ["applied"] * 3
            assert await keep.needs_you() == []
    [event] = diary.events.values()
    assert (event["summary"], event["end"]) == ("With bob@example.com", {"dateTime": "2026-01-06T09:30:00Z"})
    assert len(mail.sent) == 1
    assert mail.messages[0]["labelIds"] == ["UNREAD", "Label_2"]
