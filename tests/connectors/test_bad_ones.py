"""An item that cannot be read is skipped, counted and named, and the items after it are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from keepai import Transient
from keepai.connectors import make
from keepai.connectors.base import Call, Connector
from keepai.connectors.kit import mail_parser
from keepai.connectors.kit.pages import readable
from keepai.connectors.local.mail import LocalMail
from keepai.connectors.local.sheets import LocalSheets
from keepai.connectors.rss import feed_parser
from keepai.connectors.webhook.inbox import Inbox
from keepai.testing import ManualClock
from keepai.testing.loopback import HttpReply, Loopback, Request
from tests.connectors import google_subjects, slack_subjects
from tests.connectors.conftest import Mailbox
from tests.connectors.services.google import CalendarService, GmailService
from tests.connectors.services.slack import SlackService
from tests.connectors.test_webhook import signed


@dataclass
class Asked:
    """Asks a connector, and gathers what it skips."""

    connector: Connector
    skipped: list[str] = field(default_factory=list)

    async def __call__(self, operation: str, **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.invoke(spec.parse(params), Call(skip=self.skipped.append))


def test_what_is_not_the_things_own_fault_stops_the_read() -> None:
    for error in (Transient("later"), OSError("disk"), MemoryError()):
        def show(_each: int, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            readable([1], show, Call(), "the thing")


# Mail

HEAD = b"From: eve@example.com\r\nSubject: Bad\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
TOO_MUCH = HEAD + b"--b\r\n\r\n" * 150_000  # a second or so


def plain(subject: str) -> bytes:
    return f"From: ann@example.com\r\nSubject: {subject}\r\n\r\nHello {subject}".encode()


@pytest.fixture
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_parser, "CPU_S", 0)


async def test_a_mail_that_takes_too_much_to_read_is_shown_without_its_text(tmp_path: Path, little_time: None) -> None:
    ask = Asked(LocalMail(tmp_path / "mail", create=True))
    for name, data in {"1": plain("a"), "2": TOO_MUCH, "3": plain("b")}.items():
        (tmp_path / "mail" / "new" / name).write_bytes(data)
    found = await ask("search")
    assert [(each["subject"], each["snippet"]) for each in found] == [("a", "Hello a"), ("Bad", ""), ("b", "Hello b")]
    assert found.fields["more"] is False
    assert len(ask.skipped) == 1
    assert "the text of the message 2" in ask.skipped[0]
    whole = await ask("get", id="2")
    assert (whole["subject"], whole["body"], whole["truncated"]) == ("Bad", "", True)
    assert len(ask.skipped) == 2


async def test_a_search_that_has_no_more_time_ends_where_it_is_and_goes_on_there(tmp_path: Path) -> None:
    box = LocalMail(tmp_path / "mail", create=True)
    for name in "123":
        (tmp_path / "mail" / "new" / name).write_bytes(plain(name))
    spec, seen, cursor = box.operations["search"], [], None
    for _ in range(3):  # its time is over as it begins; each search still reads one message
        page: Any = await spec.invoke({"after": cursor}, Call(deadline=0))
        seen += [each["subject"] for each in page]
        cursor = page.fields["lastCursor"]
    assert (seen, page.fields["more"]) == (["1", "2", "3"], False)


async def test_one_message_that_no_code_can_read_does_not_stop_a_search_by_imap(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Asked(mailbox.connector())
    for subject in ("a", "Bad", "b"):
        mailbox.imap.put(plain(subject))
    real = mail_parser.parse

    def parse_all_but_one(data: bytes, id: str, received_ms: int) -> mail_parser.Mail:
        if b"Subject: Bad" in data:
            raise RecursionError
        return real(data, id, received_ms)

    monkeypatch.setattr(mail_parser, "parse", parse_all_but_one)
    page = await ask("search")
    assert [each["subject"] for each in page] == ["a", "b"]
    assert len(ask.skipped) == 1
    assert "UID 2 (RecursionError)" in ask.skipped[0]
    assert list(await ask("search", after=page.fields["lastCursor"])) == []


async def test_a_large_mail_is_read_by_imap_as_a_small_one_is(mailbox: Mailbox) -> None:
    ask = Asked(mailbox.connector())
    head = b"From: ann@example.com\r\nSubject: Large\r\nContent-Type: text/html\r\n\r\n"
    mailbox.imap.put(head + b"<p>Hello</p>\r\n" * 10_000)
    [found] = await ask("search")
    whole = await ask("get", id=found["id"])
    assert (found["subject"], found["snippet"][:11]) == ("Large", "Hello Hello")
    assert whole["body"].startswith("Hello\n")
    assert ask.skipped == []


# Google, Slack


class OddGmail(GmailService):
    """Gives some messages without sense."""

    odd: frozenset[str] = frozenset()

    def _get(self, request: Request, id: str) -> HttpReply:
        reply = super()._get(request, id)
        if id in self.odd:
            reply.json["payload"]["headers"] = [{"value": "without a name"}]
        return reply


async def test_messages_without_sense_do_not_stop_a_search_in_gmail() -> None:
    service = OddGmail()
    with Loopback(service.handle) as server:
        ask = Asked(google_subjects.connect("google.gmail", "gmail", server.url, "/gmail/v1/"))
        service.receive("ann@example.com", "first", "x")
        cursor = (await ask("search")).fields["lastCursor"]
        for n in range(6):
            service.receive("ann@example.com", f"m{n}", "x")
        service.odd = frozenset(each["id"] for each in service.messages[1:5])
        seen: list[str] = []
        for _ in range(4):
            page = await ask("search", after=cursor, limit=2)
            seen += [each["subject"] for each in page]
            cursor = page.fields["lastCursor"]
    assert [each for each in seen if each != "first"] == ["m4", "m5"]
    assert len(set(ask.skipped)) == 4


async def test_a_large_text_in_gmail_is_read_outside_and_one_that_takes_too_much_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = GmailService()
    with Loopback(service.handle) as server:
        ask = Asked(google_subjects.connect("google.gmail", "gmail", server.url, "/gmail/v1/"))
        large = service.receive("ann@example.com", "large", "Hello " * 50_000)
        whole = await ask("get", id=large["id"])
        assert (whole["body"][:12], len(whole["body"]), whole["truncated"]) == ("Hello Hello ", 200_000, True)
        assert ask.skipped == []
        monkeypatch.setattr("keepai.connectors.kit.parser_process.ParserProcess.read", lambda *_: None)
        thread = await ask("thread", id=large["threadId"])
    [shown] = thread["messages"]
    assert (shown["subject"], shown["body"], shown["truncated"]) == ("large", "", True)
    assert len(ask.skipped) == 1


async def test_one_event_without_sense_does_not_stop_a_calendar() -> None:
    service = CalendarService()
    times = {"start": {"dateTime": "2099-01-01T09:00:00Z"}, "end": {"dateTime": "2099-01-01T10:00:00Z"}}
    with Loopback(service.handle) as server:
        ask = Asked(google_subjects.connect("google.calendar", "calendar", server.url, "/calendar/v3/"))
        cursor = (await ask("list", start="2026-01-01T00:00:00Z")).fields["lastCursor"]
        for id in ("a", "bad", "b"):
            service.put({"id": id, "summary": id, **times})
        service.events["bad"]["attendees"] = ["no object"]
        assert [each["title"] for each in await ask("list", start="2026-01-01T00:00:00Z")] == ["a", "b"]
        assert [each["title"] for each in await ask("list", after=cursor)] == ["a", "b"]
    assert ask.skipped == ["the event bad (AttributeError)"] * 2


async def test_one_message_without_sense_does_not_stop_a_channel() -> None:
    service = SlackService()
    with Loopback(service.handle) as server:
        ask = Asked(slack_subjects.connect(server.url))
        for text in ("a", "bad", "b"):
            service.say(text)
        service._public = lambda each, query: {**each, "ts": "soon"} if each["text"] == "bad" else each
        page = await ask("history", channel="general")
    assert [each["text"] for each in page] == ["a", "b"]
    assert ask.skipped == ["the message soon (ValueError)"]


# Webhooks, tables, feeds


async def test_one_damaged_delivery_does_not_stop_those_after_it(tmp_path: Path) -> None:
    clock = ManualClock("2026-01-05T09:00:00Z")
    box = Inbox(tmp_path, create=True, name="shop", clock=clock)
    box.entrust({"secret": "shared secret"})
    for id in ("a", "b", "c"):
        assert (await box.accept(signed(id, b"{}", clock), b"{}")).status == 202
    first, second, third = sorted(tmp_path.glob("*.json"))  # noqa: ASYNC240
    second.write_text("{ torn")
    third.write_text('{"id": "c"}')
    ask = Asked(box)
    page = await ask("list")
    assert [each["id"] for each in page] == ["a"]
    assert len(ask.skipped) == 2
    assert page.fields["lastCursor"] == third.name.partition("-")[0], "it does not come again"
    assert list(await ask("list", after=page.fields["lastCursor"])) == []
    assert await ask("get", cursor=second.name.partition("-")[0]) is None
    assert (await ask("get", cursor=first.name.partition("-")[0]))["id"] == "a"


async def test_a_row_of_a_table_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("a,1\n" + "x" * 200_000 + ",2\nb,3\n" + '"torn,4\n' + "c,5\n" * 50_000)
    ask = Asked(LocalSheets(tmp_path))
    page = await ask("getRows", spreadsheetId="book", limit=4)
    assert [row["values"] for row in page] == [["a", "1"], ["b", "3"], ["c", "5"], ["c", "5"]]
    assert [each.partition(" (")[0] for each in ask.skipped] == ["line 2", "line 4"]


def test_one_entry_that_cannot_be_read_does_not_stop_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = feed_parser._entry

    def entry(each: Any) -> feed_parser.Entry:
        if each["id"] == "b":
            raise RecursionError
        return real(each)

    monkeypatch.setattr(feed_parser, "_entry", entry)
    items = "".join(f"<item><guid>{id}</guid><title>{id}</title></item>" for id in "cba")
    read = feed_parser.entries_of(f"<rss version='2.0'><channel>{items}</channel></rss>".encode(), "")
    assert read is not None
    assert [each["id"] for each in read["entries"]] == ["a", "c"]
    assert read["skipped"] == ["the entry b (RecursionError)"]


async def test_what_a_feed_skips_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"entries": [], "skipped": ["the entry b (RecursionError)"]}
    monkeypatch.setattr("keepai.connectors.kit.parser_process.ParserProcess.read", lambda *_: (said,))
    with Loopback(lambda _request: HttpReply(200, content=b"<rss/>")) as server:
        ask = Asked(make("rss", "news", {"url": f"{server.url}/feed", "networks": ["127.0.0.1"]}))
        assert list(await ask("entries")) == []
    assert ask.skipped == said["skipped"]
