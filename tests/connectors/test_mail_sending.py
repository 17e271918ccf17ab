"""Sending by SMTP: the message is as it was meant, and the reported outcome is true."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import traceback
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import pytest

from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.connectors.mail.imap import ImapMailbox
from keepai.connectors.mail.server_errors import IMAP_REFUSED, SMTP_REFUSED
from keepai.model import crash_points
from keepai.model.clock import SystemClock
from keepai.model.errors import (
    ConfigError,
    ConnectorError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    RuleBroken,
    Transient,
)
from tests.connectors.cases import call
from tests.connectors.conftest import Mailbox
from tests.connectors.mail_servers import Post, free_port, make_certificates, settings

HELLO = {"to": "bob@example.com", "subject": "Hi", "body": "Hello\n"}


def parsed(data: bytes) -> EmailMessage:
    return cast(EmailMessage, message_from_bytes(data, policy=policy.default))


async def send(mailbox: Mailbox, params: dict[str, Any] | None = None, key: str = "key-1", **more: Any) -> Any:
    op = mailbox.op("send", **more)
    return await op.invoke(op.parse({**HELLO, **(params or {})}), call(key))


async def look(mailbox: Mailbox, key: str = "key-1", **more: Any) -> Any:
    return await mailbox.op("send", **more).reconcile(HELLO, call(key))


# -- what is sent ----------------------------------------------------------------------------------


async def test_a_message_arrives_as_it_was_meant_and_its_copy_is_filed(mailbox: Mailbox) -> None:
    body = "Grüße ✓\n.\n..dots\nFrom here\n" + "long " * 400 + "\n"
    people = {"to": ["Änn Müller <ann@bücher.example>", '"Doe, Joe" <joe@example.com>'], "cc": "c@example.com"}
    result = await send(mailbox, {**people, "subject": "Grüße ✓ " * 20, "body": body}, from_name="Keep & Co")
    [taken] = mailbox.post.taken
    mail = parsed(taken.data)
    assert taken.recipients == ["ann@xn--bcher-kva.example", "joe@example.com", "c@example.com"]
    assert [a.display_name for a in mail["To"].addresses] == ["Änn Müller", "Doe, Joe"]
    assert (mail["Subject"], mail["From"].addresses[0].display_name) == (("Grüße ✓ " * 20), "Keep & Co")
    assert mail.get_content().replace("\r\n", "\n") == body
    assert mail["Message-ID"] == result["id"]
    assert mail["Auto-Submitted"] == "auto-generated"
    assert max(map(len, taken.data.split(b"\r\n"))) <= 998
    assert mailbox.imap.messages("Sent") == [taken.data]
    assert mailbox.records == 0


async def test_a_copy_for_a_hidden_recipient_does_not_show_it_to_the_others(mailbox: Mailbox) -> None:
    await send(mailbox, {"bcc": "boss@example.com"})
    [taken] = mailbox.post.taken
    assert taken.recipients == ["bob@example.com", "boss@example.com"]
    assert b"boss" not in taken.data


async def test_html_and_attachments_come_along(mailbox: Mailbox) -> None:
    files = [
        {"name": "Rechnung März.txt", "type": "text/plain", "text": "100 €"},
        {"name": "b.bin", "base64": base64.b64encode(bytes(range(256))).decode()},
    ]
    await send(mailbox, {"html": "<p>Hello</p>", "attachments": files})
    mail = parsed(mailbox.post.taken[0].data)
    assert mail.get_body(("html",)).get_content().strip() == "<p>Hello</p>"  # type: ignore[union-attr]
    attached = {part.get_filename(): part.get_payload(decode=True) for part in mail.iter_attachments()}
    assert attached == {"Rechnung März.txt": "100 €".encode(), "b.bin": bytes(range(256))}


SMUGGLED = [
    {"to": "a@example.com\r\nBcc: evil@example.com"},
    {"to": ["a@example.com\n"]},
    {"to": "a@example.com\0"},
    {"subject": "s\r\nX-Evil: 1"},
    {"subject": "s\u2028X-Evil: 1"},
    {"subject": "s\x85X-Evil: 1"},
    {"cc": '"a\r\nX-Evil: 1" <a@example.com>'},
    {"bcc": "a@example.com>\r\nRCPT TO:<evil@example.com"},
    {"inReplyTo": "<a@b>\r\nX-Evil: 1"},
    {"inReplyTo": "not an id"},
    {"inReplyTo": "0" * 24 + "-a\r\nX-Evil: 1"},
    {"attachments": [{"name": "a\r\nX-Evil: 1", "text": ""}]},
    {"attachments": [{"name": "=?utf-8?q?a=0D=0AX-Evil:1?=", "text": ""}]},
    {"attachments": [{"name": "a", "type": "text/plain\r\nX-Evil: 1", "text": ""}]},
    {"body": "a\0b"},
    {"html": "a\0b"},
]
NO_ADDRESS = [
    "", "nobody", "a@b@c.example", "a@", "@example.com", "a b@example.com", "a@exa mple.com", "<a@example.com",
    "a@example.com>", "a@example.com; b@example.com", "a@-bad.example", "a@" + "x" * 64 + ".example",
    "Ann: a@example.com;", "x" * 65 + "@example.com", "alice@example.org)bob@evil.example", "jörg@example.com",
    "a@faß.example", "a..b@example.com",
    ".a@example.com", '"a b"@example.com', "a@[127.0.0.1]", "Ann <a@example.com> evil@example.com",
]
TOO_MUCH = [
    {"to": [f"u{n}@example.com" for n in range(51)]} | {"cc": ", ".join(f"c{n}@example.com" for n in range(51))},
    {"subject": "s" * 501},
    {"body": "b" * 1_000_001},
    {"attachments": [{"name": f"f{n}", "text": ""} for n in range(11)]},
    {"attachments": [{"name": "f", "text": "a", "base64": ""}]},
    {"attachments": [{"name": "f"}]},
    {"attachments": [{"name": "f", "base64": "%%%"}]},
    {"attachments": [{"name": "../../f", "text": ""}]},
    {"attachments": [{"name": "f", "type": "message/rfc822", "text": ""}]},
    {"attachments": [{"name": "f", "text": "x" * 1_900_000} for _ in range(9)]},
]


@pytest.mark.parametrize(
    "params", [*SMUGGLED, *({"to": each} for each in NO_ADDRESS), *TOO_MUCH], ids=lambda p: ascii(p)[:50],
)
async def test_what_cannot_be_a_message_is_rejected_before_any_server_is_asked(params: dict[str, Any]) -> None:
    nowhere = {"address": "me@example.com", "imap_host": "127.0.0.1", "imap_port": 1, "smtp_host": "127.0.0.1"}
    connector = make("mail", "gmail", nowhere)
    connector.entrust({"password": "x"})
    with pytest.raises((Rejected, RuleBroken)):
        await connector.operations["send"].invoke({**HELLO, **params}, call())


async def test_a_message_beyond_what_the_server_takes_is_not_offered(mailbox: Mailbox) -> None:
    with pytest.raises(Rejected, match="accepts at most 2,000,000"):
        await send(mailbox, {"attachments": [{"name": "f", "text": "x" * 1_900_000}]})
    assert mailbox.post.taken == []
    assert (mailbox.sent, mailbox.records) == (0, 0)


@pytest.mark.parametrize("subject", [
    "=?utf-8?q?a=0D=0ABcc:_evil@example.com?=", "=?utf-8?b?DQpYLUV2aWw6IDE=?=", "x " * 249, "", "a: b", "é" * 500,
])
async def test_a_subject_that_looks_encoded_is_taken_by_the_letter(mailbox: Mailbox, subject: str) -> None:
    await send(mailbox, {"subject": subject})
    mail = message_from_bytes(mailbox.post.taken[0].data)
    assert len(mail.keys()) == len(set(mail.keys()))
    assert "Bcc" not in mail
    assert "X-Evil" not in mail
    shown = parsed(mailbox.post.taken[0].data)["Subject"]
    assert "".join(shown.split()) == "".join(subject.split())


async def test_one_person_named_twice_gets_one_copy(mailbox: Mailbox) -> None:
    await send(mailbox, {"to": ["a@example.com", "A <a@Example.com>"], "cc": "a@example.com"})
    assert mailbox.post.taken[0].recipients == ["a@example.com"]


# -- order and outcomes -----------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "answer", "error"), [
    ("greeting", "554 go away", PermissionDenied),
    ("greeting", "421 busy", Transient),
    ("login", "535 5.7.8 wrong", PermissionDenied),
    ("login", "454 4.7.0 later", Transient),
    ("login", "534 5.7.9 use an app password", PermissionDenied),
    ("MAIL", "550 not your address", PermissionDenied),
    ("MAIL", "451 later", Transient),
    ("MAIL", "552 too big", Rejected),
    ("RCPT", "550 no such user", Rejected),
    ("RCPT", "450 4.2.0 greylisted", Transient),
    ("RCPT", "452 4.5.3 too many", Transient),
    ("DATA", "554 no", Rejected),
    ("DATA", "421 shutting down", Transient),
    ("end", "554 5.7.1 spam", Rejected),
    ("end", "550 5.7.1 no", Rejected),
    ("end", "552 too big", Rejected),
    ("end", "451 4.3.0 later", Transient),
    ("end", "421 4.7.0 rate limited", Transient),
    ("end", "530 log in", PermissionDenied),
])
async def test_every_refusal_proves_that_nothing_was_sent_and_leaves_no_record(
    mailbox: Mailbox, step: str, answer: str, error: type[ConnectorError]
) -> None:
    mailbox.post.orders.refuse[step] = answer
    with pytest.raises(ConnectorError) as caught:
        await send(mailbox)
    assert type(caught.value) is error
    assert answer[:3] in str(caught.value)
    assert mailbox.post.taken == []
    assert (mailbox.sent, mailbox.records) == (0, 0)
    assert (await look(mailbox)).status == "failed"


def test_the_table_of_refusals_covers_every_code_and_nothing_else() -> None:
    assert {code for step, code in SMTP_REFUSED if not step and code < 10} == {4, 5}
    assert set(SMTP_REFUSED.values()) | set(IMAP_REFUSED.values()) <= {
        PermissionDenied, PreconditionFailed, Rejected, Transient,
    }


async def test_a_strange_answer_to_the_end_proves_nothing(mailbox: Mailbox) -> None:
    mailbox.post.orders.refuse["end"] = "354 go on"
    with pytest.raises(OutcomeUnknown):
        await send(mailbox)
    assert (await look(mailbox)).status == "unknown"


async def test_when_one_recipient_is_refused_nobody_gets_it(mailbox: Mailbox) -> None:
    mailbox.post.orders.refuse["RCPT"] = "550 no such user"
    mailbox.post.orders.refuse_recipient = "b@example.com"
    with pytest.raises(Rejected):
        await send(mailbox, {"to": ["a@example.com", "b@example.com"]})
    assert mailbox.post.taken == []
    assert mailbox.records == 0


@pytest.mark.parametrize("lose", ["before", "after"])
async def test_a_lost_answer_is_unknown_and_stays_so_where_no_server_keeps_copies(mailbox: Mailbox, lose: str) -> None:
    mailbox.post.orders.lose = lose
    with pytest.raises(OutcomeUnknown):
        await send(mailbox)
    assert len(mailbox.post.taken) == (lose == "after")
    verdict = await look(mailbox)
    assert verdict.status == "unknown"
    assert "Keep Outbox" in verdict.why
    assert mailbox.records == 1


async def test_a_lost_answer_is_found_where_the_server_keeps_copies(mailbox: Mailbox) -> None:
    """R221: found by key → applied with id."""
    mailbox.post.orders.copies, mailbox.post.orders.lose = True, "after"
    with pytest.raises(OutcomeUnknown):
        await send(mailbox, sent_copy="server")
    verdict = await look(mailbox, sent_copy="server")
    assert (verdict.status, verdict.result) == ("applied", {"id": mailbox.post.taken[0].message_id})


async def test_what_a_copying_server_did_not_take_is_never_called_failed(mailbox: Mailbox) -> None:
    mailbox.post.orders.copies, mailbox.post.orders.lose = True, "before"
    with pytest.raises(OutcomeUnknown):
        await send(mailbox, sent_copy="server")
    assert (await look(mailbox, sent_copy="server")).status == "retry"


async def test_a_server_that_wrongly_counts_as_copying_never_leads_to_a_second_mail(mailbox: Mailbox) -> None:
    await send(mailbox, sent_copy="server")
    assert (mailbox.sent, mailbox.records) == (0, 1)
    assert (await look(mailbox, sent_copy="server")).status == "applied"


async def test_the_record_of_a_message_whose_copy_came_late_is_swept_with_the_next(mailbox: Mailbox) -> None:
    await send(mailbox, sent_copy="server")
    mailbox.imap.put(mailbox.post.taken[0].data, "Sent")
    mailbox.post.orders.copies = True
    await send(mailbox, key="key-2", sent_copy="server")
    assert (mailbox.sent, mailbox.records) == (2, 0)


@pytest.mark.parametrize("sent_copy", ["keep", "server"])
async def test_sending_again_with_one_key_sends_nothing(mailbox: Mailbox, sent_copy: str) -> None:
    mailbox.post.orders.copies = sent_copy == "server"
    first = await send(mailbox, sent_copy=sent_copy)
    assert await send(mailbox, sent_copy=sent_copy) == first
    assert len(mailbox.post.taken) == 1
    assert mailbox.sent == 1


async def test_after_a_person_said_that_it_did_not_happen_it_is_sent_and_the_doubt_is_gone(mailbox: Mailbox) -> None:
    mailbox.post.orders.lose = "before"
    with pytest.raises(OutcomeUnknown):
        await send(mailbox)
    mailbox.post.orders.lose = ""
    await send(mailbox)
    assert len(mailbox.post.taken) == 1
    assert (mailbox.sent, mailbox.records) == (1, 0)
    assert (await look(mailbox)).status == "applied"


async def test_a_record_is_never_taken_for_the_message(mailbox: Mailbox) -> None:
    """A provider may show one message in several folders; the record must not pass for a sent one."""
    mailbox.post.orders.lose = "before"
    with pytest.raises(OutcomeUnknown):
        await send(mailbox)
    [record] = mailbox.imap.messages("Keep Outbox")
    mailbox.imap.put(record, "Sent")
    mailbox.imap.put(record, "Archive")
    assert (await look(mailbox, all_mail="Archive")).status == "unknown"


async def test_a_sent_message_that_was_moved_to_the_archive_is_found_there(mailbox: Mailbox) -> None:
    await send(mailbox)
    with mailbox.imap.client() as client:
        client.select("Sent")
        client.uid("MOVE", "1", "Archive")
    assert (await look(mailbox, all_mail="Archive")).status == "applied"


def forbid(mailbox: Mailbox, folder: str, mode: int) -> None:
    for path in (mailbox.imap.home / "mail" / mailbox.imap.user / f".{folder}").glob("*"):
        if path.is_dir():
            path.chmod(mode)


async def test_when_the_copy_cannot_be_filed_it_was_sent_all_the_same(mailbox: Mailbox) -> None:
    await send(mailbox, key="key-0")
    mailbox.post.reset()
    forbid(mailbox, "Sent", 0o500)
    lines: list[str] = []
    try:
        result = await mailbox.op("send").invoke(HELLO, Call(idempotency_key="key-1", log=lines.append))
    finally:
        forbid(mailbox, "Sent", 0o700)
    assert result == {"id": mailbox.post.taken[0].message_id}
    assert "could not be filed" in lines[0]
    assert mailbox.records == 1


async def test_without_a_record_the_end_is_not_sent(mailbox: Mailbox) -> None:
    await mailbox.connector().check()
    forbid(mailbox, "Keep Outbox", 0o500)
    try:
        with pytest.raises((PermissionDenied, PreconditionFailed, Transient)):
            await send(mailbox)
    finally:
        forbid(mailbox, "Keep Outbox", 0o700)
    assert mailbox.post.taken == []
    assert not mailbox.post.offered.is_set()
    assert (await look(mailbox)).status == "failed"


async def test_while_the_mailbox_is_away_nothing_is_sent_and_nothing_is_said_about_what_was(mailbox: Mailbox) -> None:
    gone = {"imap_port": free_port()}
    with pytest.raises(Transient):
        await send(mailbox, **gone)
    assert mailbox.post.taken == []
    assert (await look(mailbox, **gone)).status == "retry"


async def test_while_the_mail_server_is_away_nothing_is_sent_and_no_record_is_left(mailbox: Mailbox) -> None:
    with pytest.raises(Transient):
        await send(mailbox, smtp_port=free_port())
    assert mailbox.records == 0
    assert (await look(mailbox)).status == "failed"


async def test_a_call_whose_time_is_over_sends_nothing(mailbox: Mailbox) -> None:
    with pytest.raises(Transient):
        await mailbox.op("send").invoke(HELLO, call(deadline=0))
    assert mailbox.post.taken == []


async def test_time_that_runs_out_before_the_end_sends_nothing(mailbox: Mailbox) -> None:
    deadline = SystemClock().steady_ms() + 60_000
    late = Call(idempotency_key="key-1", deadline=deadline)

    def stall(name: str) -> None:
        if name == "mail.recorded":
            object.__setattr__(late, "deadline", 0)

    crash_points.listen(stall)
    try:
        with pytest.raises(Transient):
            await mailbox.op("send").invoke(HELLO, late)
    finally:
        crash_points.listen(None)
    assert mailbox.post.taken == []
    assert mailbox.records == 0


@pytest.mark.parametrize("sent_copy", ["keep", "server"])
async def test_a_cancelled_call_ends_at_once_and_leaves_the_doubt_on_record(mailbox: Mailbox, sent_copy: str) -> None:
    orders = mailbox.post.orders
    orders.copies, orders.answer_s = sent_copy == "server", 60
    task = asyncio.create_task(send(mailbox, sent_copy=sent_copy))
    await asyncio.to_thread(mailbox.post.accepted.wait, 30)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=30)
    assert done
    assert task.cancelled()
    assert len(mailbox.post.taken) == 1
    verdict = await look(mailbox, sent_copy=sent_copy)
    assert verdict.status == ("applied" if sent_copy == "server" else "unknown")


async def test_a_call_cancelled_before_the_end_leaves_nothing(mailbox: Mailbox) -> None:
    task: asyncio.Task[Any]

    def cancel(name: str) -> None:
        if name == "mail.offered":
            task.cancel()

    crash_points.listen(cancel)
    try:
        task = asyncio.create_task(send(mailbox))
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        crash_points.listen(None)
    assert mailbox.post.taken == []
    assert mailbox.records == 0
    assert (await look(mailbox)).status == "failed"


async def test_twenty_messages_at_once_do_not_disturb_each_other(mailbox: Mailbox) -> None:
    await mailbox.connector().check()
    await asyncio.gather(*(send(mailbox, key=f"key-{n}") for n in range(8)))
    assert len({taken.message_id for taken in mailbox.post.taken}) == 8
    assert (mailbox.sent, mailbox.records) == (8, 0)


async def test_an_outbox_full_of_doubts_stops_the_sending(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.connectors.mail.delivery.RECORDS_MAX", 2)
    await mailbox.connector().check()
    for n in range(3):
        mailbox.imap.put(f"Message-ID: <x{n}@x>\r\n\r\n".encode(), "Keep Outbox")
    with pytest.raises(PreconditionFailed, match="messages whose sending is unknown"):
        await send(mailbox)
    assert mailbox.post.taken == []


# -- answers to messages ----------------------------------------------------------------------------

ASKED = (
    b"From: Ann <ann@example.com>\r\nReply-To: evil@example.com\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    b"Message-ID: <q@example.com>\r\nReferences: <p@example.com>\r\n\r\nA question\r\n"
)


async def test_an_answer_belongs_to_the_conversation_and_goes_to_whom_the_script_says(mailbox: Mailbox) -> None:
    mailbox.imap.put(ASKED)
    [asked] = cast(Any, await mailbox.op("search").invoke({}, call()))
    params = {"id": asked["id"], "to": asked["from"], "body": "An answer"}
    result: Any = await mailbox.op("reply").invoke(params, call())
    [taken] = mailbox.post.taken
    mail = parsed(taken.data)
    assert taken.recipients == ["ann@example.com"]
    assert (mail["Subject"], mail["In-Reply-To"]) == ("Re: Grüße", "<q@example.com>")
    assert mail["References"].split() == ["<p@example.com>", "<q@example.com>"]
    assert mail["Auto-Submitted"] == "auto-replied"
    whole: Any = await mailbox.op("thread").invoke({"id": asked["id"]}, call())
    assert [each["messageId"] for each in whole] == ["<q@example.com>", result["id"]]
    assert (await mailbox.op("reply").reconcile(params, call())).status == "applied"


async def test_a_hostile_subject_cannot_add_headers_to_the_answer(mailbox: Mailbox) -> None:
    mailbox.imap.put(b"From: a@example.com\r\nSubject: =?utf-8?q?a=0D=0ABcc:_evil@example.com?=\r\n"
                     b"Message-ID: <q\"@example.com>\r\n\r\nx")
    [asked] = cast(Any, await mailbox.op("search").invoke({}, call()))
    await mailbox.op("reply").invoke({"id": asked["id"], "to": "a@example.com", "body": "b"}, call())
    mail = message_from_bytes(mailbox.post.taken[0].data)
    assert "Bcc" not in mail
    assert mailbox.post.taken[0].recipients == ["a@example.com"]


async def test_a_message_that_is_gone_cannot_be_answered(mailbox: Mailbox) -> None:
    with pytest.raises(PreconditionFailed, match="gone"):
        await mailbox.op("reply").invoke({"id": "<no@example.com>", "to": "a@example.com", "body": "b"}, call())
    assert mailbox.post.taken == []


# -- protection and secrets -------------------------------------------------------------------------


async def test_an_outbox_that_another_call_made_meanwhile_is_as_good_as_an_own(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed, list_now = [], ImapMailbox.folders

    def list_before(box: ImapMailbox) -> dict[str, frozenset[str]]:
        """What a call sees that looked just before the other one made the folder."""
        listed.append(box)
        there = list_now(box)
        return {k: v for k, v in there.items() if k != "Keep Outbox"} if len(listed) == 1 else there

    await mailbox.connector().check()
    monkeypatch.setattr(ImapMailbox, "folders", list_before)
    await mailbox.connector().check()
    assert len(listed) == 2


async def test_check_logs_in_at_both_servers_and_makes_the_outbox(mailbox: Mailbox) -> None:
    await mailbox.connector().check()
    with mailbox.imap.client() as client:
        assert "Keep Outbox" in str(client.list())
    assert mailbox.post.logins[-1] == mailbox.imap.user.encode()
    with pytest.raises(PreconditionFailed, match="There is no folder 'Nowhere'"):
        await mailbox.connector(sent="Nowhere").check()
    with pytest.raises(Transient):
        await mailbox.connector(smtp_port=free_port()).check()


@pytest.mark.parametrize("side", ["imap", "smtp"])
async def test_a_wrong_password_is_told_without_the_password(mailbox: Mailbox, side: str) -> None:
    canary = "canary-of-the-test-é"
    connector = mailbox.connector()
    if side == "imap":
        connector.entrust({"password": canary})
    else:
        mailbox.post.orders.refuse["login"] = f"535 5.7.8 {mailbox.imap.password} is wrong"
        canary = mailbox.imap.password
    with pytest.raises(PermissionDenied) as caught:
        await connector.operations["send"].invoke(HELLO, call())
    told = "".join(traceback.format_exception(caught.value, chain=True))
    assert canary not in told
    assert base64.b64encode(canary.encode()).decode() not in told


async def test_without_a_password_the_way_to_give_it_is_told(mailbox: Mailbox) -> None:
    connector = mailbox.connector()
    connector.entrust({})
    with pytest.raises(PermissionDenied, match="keep secrets set gmail password"):
        await connector.operations["send"].invoke(HELLO, call())


async def test_a_certificate_of_an_unknown_authority_is_refused(mailbox: Mailbox, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    with pytest.raises(PreconditionFailed, match="certificate is not trusted"):
        await send(mailbox, certificates=str(tmp_path / "ca.pem"))
    with pytest.raises(PreconditionFailed, match="certificate is not trusted"):
        await send(mailbox, certificates="")
    assert mailbox.post.logins == [] or mailbox.imap.user.encode() not in mailbox.post.logins


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_the_mail_server_must_prove_who_it_is_too(mailbox: Mailbox, tmp_path: Path, security: str) -> None:
    make_certificates(tmp_path)
    post = Post(mailbox.imap, security=security)
    plain = {"imap_port": mailbox.imap.port, "imap_security": "none", "certificates": str(tmp_path / "ca.pem")}
    try:
        with pytest.raises(PreconditionFailed, match="certificate is not trusted"):
            await send(mailbox, smtp_port=post.port, smtp_security=security, **plain)
        assert post.logins == []
    finally:
        post.close()
    assert mailbox.records == 0


async def test_a_certificate_for_another_host_is_refused(mailbox: Mailbox, tmp_path: Path) -> None:
    """The certificate names localhost and 127.0.0.1; 127.0.0.2 is the same machine under another name."""
    context = ssl.create_default_context(cafile=mailbox.imap.certificates)
    assert context.check_hostname
    with pytest.raises((PreconditionFailed, Transient)):
        await send(mailbox, imap_host="127.0.0.2")


async def test_a_server_that_offers_no_encryption_gets_no_password(mailbox: Mailbox) -> None:
    plain = Post(mailbox.imap, security="none")
    try:
        with pytest.raises(PermissionDenied):
            await send(mailbox, smtp_port=plain.port, smtp_security="starttls")
        assert plain.logins == []
        await send(mailbox, smtp_port=plain.port, smtp_host="127.0.0.1", smtp_security="none")
        assert len(plain.taken) == 1
    finally:
        plain.close()


async def test_the_three_ways_to_connect_work(mailbox: Mailbox) -> None:
    tls = Post(mailbox.imap, security="tls")
    try:
        plain = {"imap_port": mailbox.imap.port}
        await send(mailbox, smtp_port=tls.port, smtp_security="tls", imap_security="starttls", **plain)
        await send(mailbox, key="key-2", imap_security="none", **plain)
    finally:
        tls.close()
    assert (len(tls.taken), len(mailbox.post.taken)) == (1, 1)


@pytest.mark.parametrize(("wrong", "told"), [
    ({"imap_host": "mail.example.com", "imap_security": "none"}, "only for a server on this machine"),
    ({"smtp_host": "10.0.0.1", "smtp_security": "none"}, "only for a server on this machine"),
    ({"smtp_security": "ssl"}, "smtp_security must be tls, starttls or none"),
    ({"imap_port": 0}, "imap_port must be between"),
    ({"imap_host": ""}, "imap_host must be the name"),
    ({"sent_copy": "maybe"}, "sent_copy must be keep or server"),
    ({"outbox": "INBOX"}, "outbox must be a folder of its own"),
    ({"address": "nobody"}, "address must be one address"),
    ({"address": "a@example.com, b@example.com"}, "address must be one address"),
    ({"from_name": "a\r\nb"}, "one line"),
    ({"imap_port": "993"}, "must be a whole number"),
    ({"passwort": "x"}, "the setting 'passwort' is unknown"),
])
def test_settings_that_cannot_be_right_are_told(wrong: dict[str, Any], told: str) -> None:
    right = {"address": "me@example.com", "imap_host": "imap.example.com", "smtp_host": "smtp.example.com"}
    make("mail", "gmail", right)
    with pytest.raises(ConfigError, match=re.escape(told)):
        make("mail", "gmail", {**right, **wrong})


# -- what people see --------------------------------------------------------------------------------


def test_the_preview_shows_everybody_everything_and_what_hides() -> None:
    right = {"address": "me@example.com", "imap_host": "imap.example.com", "smtp_host": "smtp.example.com"}
    send_op = make("mail", "gmail", right).operations["send"]
    text = send_op.preview({
        "to": "Ann <ann@bücher.example>", "cc": ["c@example.com"], "bcc": "boss@example.com",
        "subject": "a\nTo: b\u202ec",
        "body": "first\n\u200bsecond", "html": "<p>x</p>", "attachments": [{"name": "f.txt", "text": "abc"}],
    })
    assert text == (
        "gmail.send\nTo: Ann <ann@bücher.example (ann@xn--bcher-kva.example)>\nCc: c@example.com\n"
        "Bcc: boss@example.com\nSubject: a‹U+000A›To: b‹U+202E›c\n"
        "Attachment: f.txt (application/octet-stream, 3 bytes, sha256 ba7816bf8f01cfea…)\n\nfirst\n‹U+200B›second\n\n"
        "As HTML:\n<p>x</p>"
    )


def test_payloads_are_compared_by_what_a_reader_would_notice() -> None:
    right = {"address": "me@example.com", "imap_host": "imap.example.com", "smtp_host": "smtp.example.com"}
    compare = make("mail", "gmail", right).operations["send"].compare
    old: Any = {"subject": "s", "body": "a\nb\n"}
    assert compare(old, dict(old)) == "equivalent"
    assert compare(old, {"subject": "s ", "body": "a  \r\nb"}) == "minor"
    assert compare(old, {**old, "body": "a\nc\n"}) == "significant"
    assert compare(old, {**old, "bcc": "x@example.com"}) == "significant"


def test_unknown_params_are_the_mistake_of_the_script() -> None:
    right = {"address": "me@example.com", "imap_host": "imap.example.com", "smtp_host": "smtp.example.com"}
    with pytest.raises(RuleBroken, match='did you mean "subject"'):
        make("mail", "gmail", right).operations["send"].parse({**HELLO, "subjekt": "x"})


def test_the_libraries_are_not_loaded_before_they_are_needed() -> None:
    import subprocess
    import sys

    code = "import sys, keepai.connectors.mail.mail_connector; print({'imap_tools', 'aiosmtplib'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "set()"


def test_settings_of_the_tests_are_those_of_keep_toml(mailbox: Mailbox) -> None:
    assert make("mail", "gmail", settings(mailbox.imap, mailbox.post)).account == mailbox.imap.user
