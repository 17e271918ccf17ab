"""Gmail: searching without gaps, reading, and what a message must not contain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from keepai import PreconditionFailed, Rejected
from keepai.connectors.base import Page
from keepai.connectors.google.google_cursor import GoogleCursor
from keepai.model.errors import RuleBroken
from keepai.testing.loopback import Loopback
from tests.connectors.cases import call
from tests.connectors.google_subjects import connect
from tests.connectors.services.google import GmailService

MINUTE = 60_000


class Box:
    """A mailbox and its connector."""

    def __init__(self, server: Loopback, service: GmailService) -> None:
        self.server, self.service = server, service
        self.connector = connect("google.gmail", "gmail", server.url, "/gmail/v1/")

    async def __call__(self, operation: str, key: str = "key-1", **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.invoke(spec.parse(params), call(key))

    async def look(self, operation: str, key: str = "key-1", since_ms: int | None = None, **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.reconcile(spec.parse(params), dataclasses.replace(call(key), since_ms=since_ms))


@pytest.fixture
def box() -> Iterator[Box]:
    service = GmailService()
    with Loopback(service.handle) as server:
        yield Box(server, service)


def subjects(page: Page[Any]) -> list[str]:
    return [each["subject"] for each in page]


async def test_a_search_shows_what_the_local_mailbox_shows(box: Box) -> None:
    box.service.receive("Bob <bob@example.com>", "An invoice", "Please pay.")
    [found] = await box("search")
    assert found == {
        "id": "19a0000000000000", "threadId": "19a0000000000000", "from": "Bob <bob@example.com>",
        "to": "ann@example.com", "subject": "An invoice", "date": "2026-01-05T08:00:01.000Z", "snippet": "Please pay.",
    }


async def test_a_search_goes_on_from_its_cursor_without_gap_or_repeat(box: Box) -> None:
    for n in range(3):
        box.service.receive("b@example.com", f"m{n}", "")
    first = await box("search")
    assert subjects(first) == ["m0", "m1", "m2"]
    assert subjects(await box("search", after=first.fields["lastCursor"])) == []
    box.service.receive("b@example.com", "m3", "")
    second = await box("search", after=first.fields["lastCursor"])
    assert subjects(second) == ["m3"]
    assert subjects(await box("search", after=second.fields["lastCursor"])) == []


async def test_a_message_that_shows_up_late_is_not_passed_over(box: Box) -> None:
    for n in range(2):
        box.service.receive("b@example.com", f"m{n}", "")
    seen = await box("search")
    box.service.receive("b@example.com", "late", "", ms=box.service.now_ms - 5 * MINUTE)
    assert subjects(await box("search", after=seen.fields["lastCursor"])) == ["late"]


async def test_pages_of_two_walk_through_a_burst_in_order_and_over_pages_of_gmail(box: Box) -> None:
    box.service.page_max = 3
    cursor = (await box("search")).fields["lastCursor"]
    box.service.now_ms += 10**12  # long after what the clock here says
    for n in range(7):
        box.service.receive("b@example.com", f"m{n}", "")
    seen: list[str] = []
    for _ in range(10):
        page = await box("search", after=cursor, limit=2)
        seen += subjects(page)
        cursor = page.fields["lastCursor"]
        if not page.fields["more"]:
            break
    assert seen == [f"m{n}" for n in range(7)]


async def test_the_first_search_gives_the_newest_and_nothing_older_later(box: Box) -> None:
    for n in range(10):
        box.service.receive("b@example.com", f"m{n}", "")
    first = await box("search", limit=2)
    assert subjects(first) == ["m8", "m9"]
    assert subjects(await box("search", after=first.fields["lastCursor"])) == []


def test_a_cursor_stays_small_and_steps_over_nothing_in_a_flood() -> None:
    start = GoogleCursor(1_000)
    flood = {f"19a{n:013x}": 2_000 + n for n in range(230)}
    passed = GoogleCursor.read(start.with_(flood).cursor)
    assert len(passed.cursor) < 10_000
    assert all(passed.has(id, ms) for id, ms in flood.items())
    assert not passed.has("another", 2_229)
    assert not passed.has("another", 2_030)  # as old as the oldest that is remembered by its name


async def test_a_cursor_of_ones_own_making_is_refused(box: Box) -> None:
    for cursor in ("5", "{}", '{"from": "x", "seen": []}'):
        with pytest.raises(Rejected, match="lastCursor"):
            await box("search", after=cursor)


async def test_a_message_and_its_thread_are_read_with_their_texts(box: Box) -> None:
    box.service.receive("b@example.com", "Hi", "Grüße\nBob")
    whole = await box("get", id="19a0000000000000")
    assert whole["body"] == "Grüße\nBob"
    assert whole["labels"] == ["INBOX", "UNREAD"]
    thread = await box("thread", id="19a0000000000000")
    assert [each["body"] for each in thread["messages"]] == ["Grüße\nBob"]
    assert await box("get", id="19affffffffffff") is None
    assert await box("thread", id="19affffffffffff") is None


async def test_an_id_cannot_lead_elsewhere(box: Box) -> None:
    for id in ("../profile", "a/b", "..", "a?format=raw"):
        with pytest.raises(Rejected):
            await box("get", id=id)
    assert box.server.seen == []


async def test_a_letter_arrives_as_it_was_meant(box: Box) -> None:
    to = ["Bob <bob@example.com>", "c@example.com"]
    await box("send", to=to, subject="Grüße", body="Zeile\nzwei", cc="d@example.com")
    [sent] = box.service.sent
    headers = {each["name"]: each["value"] for each in sent["headers"]}
    assert headers["To"] == "Bob <bob@example.com>, c@example.com"
    assert (headers["From"], headers["Cc"], headers["Subject"]) == ("ann@example.com", "d@example.com", "Grüße")
    assert sent["text"] == "Zeile\r\nzwei\r\n"


@pytest.mark.parametrize("params", [
    {"subject": "Hi\r\nBcc: eve@example.com"}, {"to": "bob@example.com\nBcc: eve@example.com"},
    {"to": ["bob@example.com", "x\r\n\r\nbody"]}, {"cc": "a\x00b"}, {"inReplyTo": "<a>\nX: y"}, {"to": ""}, {"to": []},
    {"subject": "Hi\u2028Bcc: eve@example.com"},
])
async def test_a_header_takes_no_second_line(box: Box, params: dict[str, Any]) -> None:
    with pytest.raises((Rejected, RuleBroken)):
        await box("send", **{"to": "bob@example.com", "subject": "Hi", "body": "", **params})
    assert box.service.sent == []


async def test_a_reply_goes_to_the_people_it_names_in_the_same_thread(box: Box) -> None:
    more = [("Cc", "carl@example.com"), ("Reply-To", "evil@attacker.test"),
            ("References", "<0@x> =?utf-8?q?x=0d=0ay?=")]
    box.service.receive("bob@example.com", "Question", "?", headers=more)
    await box("reply", id="19a0000000000000", to="Bob <bob@example.com>", cc=["ann@example.com"], body="Answer")
    [sent] = box.service.sent
    headers = {each["name"]: each["value"] for each in sent["headers"]}
    assert sent["threadId"] == "19a0000000000000"
    assert (headers["To"], headers["Cc"]) == ("Bob <bob@example.com>", "ann@example.com")
    assert (headers["Subject"], headers["In-Reply-To"]) == ("Re: Question", "<0@elsewhere>")
    assert headers["References"].split() == ["<0@x>", "<0@elsewhere>"]


def test_the_preview_of_a_reply_names_everybody_who_gets_it(box: Box) -> None:
    params = {"id": "19a0000000000000", "to": "bob@example.com", "cc": "ann@example.com", "body": "Answer"}
    shown = box.connector.operations["reply"].preview(params)
    assert "To: bob@example.com\nCc: ann@example.com\nAnswer to: 19a0000000000000" in shown


async def test_a_reply_to_what_is_gone_says_so(box: Box) -> None:
    with pytest.raises(PreconditionFailed):
        await box("reply", id="19affffffffffff", to="bob@example.com", body="Answer")


async def test_labels_are_named_as_people_name_them(box: Box) -> None:
    box.service.receive("b@example.com", "Hi", "")
    made = await box("label", id="19a0000000000000", add=["Invoices"], remove=["UNREAD"])
    assert made == {"id": "19a0000000000000", "labels": ["INBOX", "Invoices"]}
    with pytest.raises(PreconditionFailed, match="no label"):
        await box("label", id="19a0000000000000", add=["Nowhere"])
    with pytest.raises(Rejected):
        await box("label", id="19a0000000000000")


LETTER = {"to": "bob@example.com", "subject": "Hi", "body": "Hi"}


async def test_a_sent_letter_is_found_while_the_search_lags_behind(box: Box) -> None:
    made = await box("send", **LETTER)
    box.service.index_lags = True
    verdict = await box.look("send", **LETTER)
    assert (verdict.status, verdict.result) == ("applied", made)


def send_many(box: Box, count: int) -> None:
    """What others send by Keep meanwhile."""
    for n in range(count):
        box.service.now_ms += 1000
        id = "<CA@mail.gmail.com>" if box.service.rewrites_ids else f"<keep.other{n}@example.com>"
        headers = [("Message-ID", id), ("X-Keep-Key", f"other{n}")]
        box.service.add(headers, "", ["SENT"], None, box.service.now_ms)


async def test_it_is_not_said_to_be_absent_where_nobody_can_know(box: Box) -> None:
    box.service.rewrites_ids = True
    await box("send", **LETTER)
    send_many(box, 101)
    verdict = await box.look("send", **LETTER)
    assert verdict.status == "unknown"
    now = box.service.now_ms
    assert (await box.look("send", since_ms=now - 10_000, **LETTER)).status == "unknown"
    box.service.now_ms += 2 * 86_400_000
    send_many(box, 1)
    assert (await box.look("send", "key-2", since_ms=box.service.now_ms, **LETTER)).status == "failed"


async def test_where_gmail_keeps_message_ids_the_search_is_proof_enough(box: Box) -> None:
    send_many(box, 101)
    assert (await box.look("send", "key-never", **LETTER)).status == "failed"


def test_spaces_make_no_other_letter(box: Box) -> None:
    compare = box.connector.operations["send"].compare
    assert compare({"body": "a b"}, {"body": "a b"}) == "equivalent"
    assert compare({"body": "a b"}, {"body": "a  b\n"}) == "minor"
    assert compare({"body": "a b"}, {"body": "a c"}) == "significant"


def test_people_see_the_whole_letter(box: Box) -> None:
    told = box.connector.operations["send"].preview({**LETTER, "bcc": ["eve@example.com"], "body": "One\nTwo"})
    assert "To: bob@example.com" in told
    assert "Bcc: eve@example.com" in told
    assert "One\nTwo" in told
