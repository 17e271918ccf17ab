"""Reading and filing by IMAP: cursors that miss nothing, ids that do not depend on UIDs, labels and moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepai.connectors.base import Call, Page
from keepai.connectors.mail.mail_connector import Mail
from keepai.model.clock import SystemClock
from keepai.model.errors import OutcomeUnknown, PreconditionFailed, Rejected, Transient
from tests.connectors.cases import call
from tests.connectors.conftest import Mailbox
from tests.connectors.mail_servers import Post, running
from tests.connectors.mail_servers import settings as connection
from tests.connectors.test_local_mail import JUNK


def put(mailbox: Mailbox, subject: str, *, head: str = "", body: str = "Hello there") -> None:
    text = f"From: Ann <ann@example.com>\r\nTo: me@example.com\r\nSubject: {subject}\r\n{head}\r\n{body}\r\n"
    mailbox.imap.put(text.encode())


async def search(mailbox: Mailbox, **params: Any) -> Page[Any]:
    op = mailbox.op("search")
    page = await op.invoke(op.parse(params), call())
    assert isinstance(page, Page)
    return page


async def get(mailbox: Mailbox, id: str) -> Any:
    return await mailbox.op("get").invoke({"id": id}, call())


def subjects(page: Any) -> list[str]:
    return [mail["subject"] for mail in page]


# -- cursors ---------------------------------------------------------------------------------------


async def test_without_a_cursor_everything_is_found_and_with_it_only_what_is_newer(mailbox: Mailbox) -> None:
    empty = await search(mailbox)
    put(mailbox, "a")
    first = await search(mailbox, after=empty.fields["lastCursor"])
    put(mailbox, "b")
    second = await search(mailbox, after=first.fields["lastCursor"])
    third = await search(mailbox, after=second.fields["lastCursor"])
    assert [subjects(page) for page in (empty, first, second, third)] == [[], ["a"], ["b"], []]
    assert third.fields["lastCursor"] == second.fields["lastCursor"]
    assert subjects(await search(mailbox, after=None)) == ["a", "b"]


async def test_the_same_fields_as_a_local_mailbox_and_reading_marks_nothing(mailbox: Mailbox) -> None:
    put(mailbox, "a", head="Message-ID: <m@example.com>\r\nDate: Mon, 5 Jan 2026 08:00:00 +0000\r\n")
    [mail] = await search(mailbox)
    whole = await get(mailbox, mail["id"])
    assert mail | {"id": ""} == {
        "id": "", "from": "Ann <ann@example.com>", "to": "me@example.com", "subject": "a",
        "date": "2026-01-05T08:00:00.000Z", "snippet": "Hello there", "automatic": False,
        "messageId": "<m@example.com>",
    }
    assert (whole["body"].strip(), whole["truncated"], whole["labels"]) == ("Hello there", False, [])


async def test_a_page_that_is_cut_goes_on_without_a_gap(mailbox: Mailbox) -> None:
    for n in range(5):
        put(mailbox, f"m{n}")
    seen, cursor, more = [], None, True
    while more:
        page = await search(mailbox, after=cursor, limit=2)
        assert len(page) <= 2
        seen += subjects(page)
        cursor, more = page.fields["lastCursor"], page.fields["more"]
    assert seen == [f"m{n}" for n in range(5)]


async def test_a_message_that_came_while_the_folder_was_open_is_seen_with_the_next_poll(mailbox: Mailbox) -> None:
    """The numbers are frozen at the opening: nothing may slip between the list and the cursor."""
    put(mailbox, "a")
    connector: Any = mailbox.connector()
    box = connector._box(call())
    standing = box.open("INBOX")
    put(mailbox, "b")
    box._command("SEARCH", "ALL")  # the server tells this session of the newcomer
    assert standing.next_uid == 2
    box.close()
    page = await search(mailbox)
    assert subjects(page) == ["a", "b"]


async def test_numbers_made_anew_lose_nothing_and_no_message_becomes_another(mailbox: Mailbox) -> None:
    put(mailbox, "a", head="Message-ID: <a@example.com>\r\n")
    put(mailbox, "no-id")
    before = await search(mailbox)
    mailbox.imap.forget_numbers()
    put(mailbox, "c")
    after = await search(mailbox, after=before.fields["lastCursor"])
    assert after.fields["lastCursor"].split(".")[0] != before.fields["lastCursor"].split(".")[0]
    assert sorted(subjects(after)) == ["a", "c", "no-id"]
    assert {mail["id"] for mail in before} < {mail["id"] for mail in after}
    assert list(await search(mailbox, after=after.fields["lastCursor"])) == []
    for mail in before:
        assert (await get(mailbox, mail["id"]))["subject"] == mail["subject"]


async def test_a_cursor_ahead_of_the_folder_counts_as_the_beginning(mailbox: Mailbox) -> None:
    put(mailbox, "a")
    cursor = (await search(mailbox)).fields["lastCursor"]
    ahead = cursor.split(".")[0] + ".700"
    assert subjects(await search(mailbox, after=ahead)) == ["a"]


@pytest.mark.parametrize("after", ["x", "1", "1.2.3", "-1.2", "1.2\r\nA LOGOUT", "99999999999.1"])
async def test_a_cursor_that_search_never_returned_is_rejected(mailbox: Mailbox, after: str) -> None:
    with pytest.raises(Rejected, match="lastCursor"):
        await search(mailbox, after=after)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["put", "put", "poll", "poll", "delete", "anew"]), max_size=10), st.integers(1, 3))
def test_whatever_happens_between_polls_each_message_is_seen_once(
    mailbox: Mailbox, acts: list[str], limit: int
) -> None:
    mailbox.imap.fresh()
    waiting: set[str] = set()  # delivered, not seen, not deleted
    seen: dict[str, str] = {}
    cursor, more = None, True
    for number, act in enumerate([*acts, *["poll"] * 11]):
        if act == "put":
            waiting.add(f"m{number}")
            put(mailbox, f"m{number}")
            more = True
        elif act == "delete":
            waiting.clear()
            with mailbox.imap.client() as client:
                client.select("INBOX")
                client.uid("STORE", "1:*", "+FLAGS", "(\\Deleted)")
                client.expunge()
        elif act == "anew":
            mailbox.imap.forget_numbers()
        elif number < len(acts) or more:
            page = asyncio.run(search(mailbox, after=cursor, limit=limit))
            cursor, more = page.fields["lastCursor"], page.fields["more"]
            assert "anew" in acts or not {mail["id"] for mail in page} & seen.keys()
            seen |= {mail["id"]: mail["subject"] for mail in page}
            waiting -= set(subjects(page))
    assert not waiting
    assert len(set(seen.values())) == len(seen), "one message under two ids"


# -- messages --------------------------------------------------------------------------------------


async def test_no_message_breaks_the_search_and_each_is_found_by_its_id(mailbox: Mailbox) -> None:
    for data in JUNK.values():
        mailbox.imap.put(data.replace(b"\0", b"") or b"\r\n")
    page = await search(mailbox)
    assert len(page) == len(JUNK)
    assert len({mail["id"] for mail in page}) >= len(JUNK) - 2  # bytes without any header are all alike
    for mail in page:
        assert all(isinstance(value, str | bool) for value in mail.values())
        assert await get(mailbox, mail["id"]) is not None


async def test_two_messages_with_one_message_id_are_two(mailbox: Mailbox) -> None:
    for n in (1, 2):
        put(mailbox, "same", head=f"Message-ID: <m@example.com>\r\nReceived: {n}\r\n", body=f"text {n}")
    page = await search(mailbox)
    assert [(await get(mailbox, mail["id"]))["body"].strip() for mail in page] == ["text 1", "text 2"]


@pytest.mark.parametrize("id", [
    "", "x", "<>", "<no@example.com>", '<a" OR ALL@x>', "0" * 24 + '-a" OR ALL "', "0" * 24 + "-@2026-99-99",
    "0" * 24 + "-@2026-01-01", "<a\r\nA LOGOUT>", "0" * 24 + "-a\r\nB LOGOUT", "<ä@x>",
])
async def test_an_id_that_names_nothing_finds_nothing_and_is_no_command(mailbox: Mailbox, id: str) -> None:
    put(mailbox, "a", head="Message-ID: <a@example.com>\r\n")
    assert await get(mailbox, id) is None


async def test_a_message_is_found_wherever_it_was_moved(mailbox: Mailbox) -> None:
    put(mailbox, "a", head="Message-ID: <a@example.com>\r\n")
    [mail] = await search(mailbox)
    await mailbox.op("move").invoke({"id": mail["id"], "to": "Archive"}, call())
    op = mailbox.op("get", all_mail="Archive")
    assert (await op.invoke({"id": mail["id"]}, call()))["subject"] == "a"  # type: ignore[call-overload,index]
    assert (await op.invoke({"id": "<a@example.com>"}, call()))["subject"] == "a"  # type: ignore[call-overload,index]


@pytest.mark.parametrize(("sender", "told"), [
    ('"Doe, Joe" <joe@example.com>', '"Doe, Joe" <joe@example.com>'),
    ("=?utf-8?q?M=C3=BCller=2C_J=C3=B6rg?= <j@example.com>", '"Müller, Jörg" <j@example.com>'),
    ("ann@example.com", "ann@example.com"),
    ("=?utf-8?q?=22=3Cevil=40example=2Ecom=3E?= <ann@example.com>", '"evil@example.com" <ann@example.com>'),
])
async def test_a_sender_can_be_written_to_as_search_names_it(mailbox: Mailbox, sender: str, told: str) -> None:
    mailbox.imap.put(f"From: {sender}\r\nMessage-ID: <q@example.com>\r\n\r\n".encode())
    [mail] = await search(mailbox)
    assert mail["from"] == told
    params: Any = {"to": mail["from"], "body": "", "inReplyTo": mail["id"]}
    await mailbox.op("send").invoke(params, call())
    [taken] = mailbox.post.taken
    assert [f"<{each}>" in f"<{told}>" for each in taken.recipients] == [True]
    assert b"In-Reply-To: <q@example.com>" in taken.data


async def test_a_huge_message_is_cut_and_says_so(mailbox: Mailbox) -> None:
    put(mailbox, "big", body="x" * 3_000_000)
    [mail] = await search(mailbox)
    assert (await get(mailbox, mail["id"]))["truncated"] is True


@pytest.mark.parametrize(("head", "automatic"), [
    ("", False), ("Auto-Submitted: no\r\n", False), ("Auto-Submitted: auto-replied\r\n", True),
    ("Precedence: bulk\r\n", True), ("List-Id: <l.example.com>\r\n", True),
])
async def test_mail_from_machines_is_told_apart(mailbox: Mailbox, head: str, automatic: bool) -> None:
    put(mailbox, "a", head=head)
    assert (await search(mailbox))[0]["automatic"] is automatic


async def test_queries_mean_what_they_mean_in_a_local_mailbox(mailbox: Mailbox) -> None:
    put(mailbox, "Invoice 7", head="Date: Thu, 1 Jan 2015 09:00:00 +0000\r\n", body="please pay now")
    put(mailbox, "Lunch")
    for query, expected in {
        "from:ann": ["Invoice 7", "Lunch"], "subject:invoice": ["Invoice 7"], '"pay now"': ["Invoice 7"],
        "newer_than:24h": ["Lunch"], "older_than:1d": ["Invoice 7"], "newer_than:24h lunch": ["Lunch"],
    }.items():
        page = await search(mailbox, query=query)
        assert subjects(page) == expected, query
        assert page.fields["lastCursor"].endswith(".2"), "what does not fit is passed over for good"
    with pytest.raises(Rejected, match="It supports: from:"):
        await search(mailbox, query="has:attachment")


async def test_a_long_search_stops_in_time_and_goes_on_later(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.connectors.mail.messages.SCANNED_MAX", 2)
    monkeypatch.setattr("keepai.connectors.mail.messages.BATCH", 1)
    for n in range(3):
        put(mailbox, f"m{n}")
    first = await search(mailbox)
    second = await search(mailbox, after=first.fields["lastCursor"])
    assert (subjects(first), first.fields["more"]) == (["m0", "m1"], True)
    assert (subjects(second), second.fields["more"]) == (["m2"], False)
    op, hurried = mailbox.op("search"), Call(deadline=SystemClock().steady_ms() + 1_900)
    page: Any = await op.invoke({}, hurried)
    assert (subjects(page), page.fields["more"]) == (["m0"], True)


async def test_a_server_that_is_away_is_tried_later(mailbox: Mailbox) -> None:
    with pytest.raises(Transient):
        await mailbox.op("search", imap_port=1).invoke({}, call())


# -- labels and folders ------------------------------------------------------------------------------


async def one(mailbox: Mailbox) -> str:
    put(mailbox, "a", head="Message-ID: <a@example.com>\r\n")
    return str((await search(mailbox))[0]["id"])


async def test_labels_are_set_cleared_and_looked_up(mailbox: Mailbox) -> None:
    id = await one(mailbox)
    op = mailbox.op("label")
    params: Any = {"id": id, "add": ["seen", "Invoice"]}
    assert (await op.reconcile(params, call())).status == "failed"
    for _ in range(2):
        assert await op.invoke(params, call()) == {"id": id, "labels": ["Invoice", "seen"]}
    assert (await op.reconcile(params, call())).status == "applied"
    other: Any = {"id": id, "remove": ["seen"], "add": ["done"]}
    assert await op.invoke(other, call()) == {"id": id, "labels": ["Invoice", "done"]}
    assert (await op.reconcile(params, call())).status == "failed"
    assert (await op.reconcile(other, call())).result == {"id": id, "labels": ["Invoice", "done"]}
    assert (await get(mailbox, id))["labels"] == ["Invoice", "done"]


@pytest.mark.parametrize("params", [
    {}, {"add": []}, {"add": ["a"], "remove": ["a"]}, {"add": ["\\Deleted"]}, {"add": ["deleted"]}, {"add": ["a b"]},
    {"add": ["a\r\nB LOGOUT"]}, {"add": ["x" * 61]}, {"add": [f"l{n}" for n in range(21)]}, {"add": ["(a)"]},
])
async def test_what_cannot_be_a_label_is_rejected(mailbox: Mailbox, params: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        await mailbox.op("label").invoke({"id": "<a@example.com>", **params}, call())


async def test_labelling_deletes_nothing_that_somebody_else_marked(mailbox: Mailbox) -> None:
    id = await one(mailbox)
    mailbox.imap.put(b"Subject: marked\r\n\r\n", flags="(\\Deleted)")
    await mailbox.op("label").invoke({"id": id, "add": ["x"]}, call())
    await mailbox.op("move").invoke({"id": id, "to": "Archive"}, call())
    assert mailbox.imap.count("INBOX") == 1


async def test_a_message_is_moved_once_however_often_it_is_asked_for(mailbox: Mailbox) -> None:
    id = await one(mailbox)
    op = mailbox.op("move")
    params: Any = {"id": id, "to": "Archive"}
    assert (await op.reconcile(params, call())).status == "failed"
    for _ in range(2):
        assert await op.invoke(params, call()) == {"id": id, "folder": "Archive"}
        assert (await op.reconcile(params, call())).status == "applied"
    assert (mailbox.imap.count("INBOX"), mailbox.imap.count("Archive")) == (0, 1)
    back: Any = {"id": id, "to": "INBOX", "source": "Archive"}
    await op.invoke(back, call())
    assert (mailbox.imap.count("INBOX"), mailbox.imap.count("Archive")) == (1, 0)


async def test_a_move_that_stopped_half_way_is_finished_and_leaves_one(mailbox: Mailbox) -> None:
    id = await one(mailbox)
    mailbox.imap.put(mailbox.imap.messages("INBOX")[0], "Archive")
    params: Any = {"id": id, "to": "Archive"}
    assert (await mailbox.op("move").reconcile(params, call())).status == "failed"
    await mailbox.op("move").invoke(params, call())
    assert (mailbox.imap.count("INBOX"), mailbox.imap.count("Archive")) == (0, 1)


@pytest.mark.parametrize("operation", ["move", "label"])
async def test_what_is_gone_cannot_be_filed_and_nobody_can_say_what_became_of_it(
    mailbox: Mailbox, operation: str
) -> None:
    params: Any = {"id": "<no@example.com>", **({"to": "Archive"} if operation == "move" else {"add": ["x"]})}
    with pytest.raises(PreconditionFailed):
        await mailbox.op(operation).invoke(params, call())
    assert (await mailbox.op(operation).reconcile(params, call())).status == "unknown"


async def test_a_folder_that_does_not_exist_is_a_failed_precondition(mailbox: Mailbox) -> None:
    id = await one(mailbox)
    with pytest.raises(PreconditionFailed):
        await mailbox.op("move").invoke({"id": id, "to": "Nowhere"}, call())
    assert (await mailbox.op("move").reconcile({"id": id, "to": "Nowhere"}, call())).status == "failed"
    for params in ({"to": "INBOX"}, {"to": "Keep Outbox"}, {"to": "Archive", "source": "Keep Outbox"}):
        with pytest.raises(Rejected):
            await mailbox.op("move").invoke({"id": id, **params}, call())


async def test_a_message_id_that_two_messages_have_cannot_be_labelled(mailbox: Mailbox) -> None:
    for n in (1, 2):
        put(mailbox, "same", head=f"Message-ID: <m@example.com>\r\nReceived: {n}\r\n")
    with pytest.raises(PreconditionFailed, match="2 messages"):
        await mailbox.op("label").invoke({"id": "<m@example.com>", "add": ["x"]}, call())
    [first, _] = await search(mailbox)
    await mailbox.op("label").invoke({"id": first["id"], "add": ["x"]}, call())


async def test_a_lost_connection_after_a_command_is_unknown(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepai.connectors.mail.imap import ImapMailbox
    from keepai.connectors.mail.server_errors import ConnectionLost

    id = await one(mailbox)
    real = ImapMailbox._command

    def lossy(self: ImapMailbox, *words: str) -> Any:
        answer = real(self, *words)
        if words[0] in ("STORE", "MOVE"):
            raise ConnectionLost("the connection ended")
        return answer

    monkeypatch.setattr(ImapMailbox, "_command", lossy)
    for operation, params in (("label", {"add": ["x"]}), ("move", {"to": "Archive"})):
        with pytest.raises(OutcomeUnknown):
            await mailbox.op(operation).invoke({"id": id, **params}, call())
        assert (await mailbox.op(operation).reconcile({"id": id, **params}, call())).status == "applied"
        monkeypatch.setattr(ImapMailbox, "_command", lossy)


async def test_servers_without_move_are_served_by_copying_and_deleting_one(mail_servers: Any) -> None:
    with running("IMAP4rev1 SASL-IR LITERAL+ UIDPLUS AUTH=PLAIN") as (imap, _):
        imap.fresh()
        box = Mailbox(imap, Post(imap))
        id = await one(box)
        imap.put(b"Subject: marked\r\n\r\n", flags="(\\Deleted)")
        await box.op("move").invoke({"id": id, "to": "Archive"}, call())
        assert (imap.count("INBOX"), imap.count("Archive")) == (1, 1)
        box.post.close()


def test_what_scripts_may_call(mailbox: Mailbox) -> None:
    made = Mail(**connection(mailbox.imap, mailbox.post))
    assert sorted(made.operations) == ["get", "label", "move", "reply", "search", "send", "thread"]
    assert {name for name, op in made.operations.items() if op.can_reconcile} == {"label", "move", "reply", "send"}
    assert all(op.key_window_s is None for op in made.operations.values())
