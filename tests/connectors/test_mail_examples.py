"""The examples on a real mailbox: every message arrives as written and once, even if answers are lost."""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path

import pytest

from keepai import Keep
from keepai.connectors.local.sheets import LocalSheets
from keepai.testing import ManualClock
from tests.connectors.conftest import Mailbox

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOW = "2030-01-05T09:00:00Z"


def arrive(mailbox: Mailbox, sender: str, subject: str, head: str = "") -> None:
    mailbox.imap.put(
        f"From: {sender}\r\nSubject: {subject}\r\nMessage-ID: <{subject}@example.com>\r\n"
        f"Date: Sat, 5 Jan 2030 08:00:00 +0000\r\n{head}\r\nHello\r\n".encode()
    )


@pytest.mark.parametrize("lose", ["", "after"])
async def test_the_auto_reply_answers_each_person_once_and_no_machine(
    mailbox: Mailbox, tmp_path: Path, lose: str
) -> None:
    source = (EXAMPLES / "mail" / "auto-reply.js").read_text("utf-8")
    clock = ManualClock(NOW)
    mailbox.post.orders.copies, mailbox.post.orders.lose = True, lose
    arrive(mailbox, '"Doe, Ann" <ann@example.com>', "one")
    arrive(mailbox, "robot@example.com", "two", "Auto-Submitted: auto-replied\r\n")
    gmail = mailbox.connector(sent_copy="server")
    async with Keep(tmp_path / "keep.db", connectors=[gmail], clock=clock) as keep:
        wf = (await keep.deploy(source, grants="all")).workflow_id
        await keep.run_until_idle()
        arrive(mailbox, "bob@example.com", "three")
        mailbox.imap.forget_numbers()
        clock.advance(minutes=5)
        await keep.run_until_idle()
        clock.advance(minutes=5)
        await keep.run_until_idle()
        assert await keep.needs_you() == []
        assert {str(m.status) for m in await keep.mutations(wf)} == {"applied"}
    answers = [message_from_bytes(each.data) for each in mailbox.post.taken]
    assert [(each["Subject"], each["In-Reply-To"]) for each in answers] == [
        ("Re: one", "<one@example.com>"), ("Re: three", "<three@example.com>"),
    ]
    assert [each.recipients for each in mailbox.post.taken] == [["ann@example.com"], ["bob@example.com"]]
    with mailbox.imap.client() as client:
        client.select("INBOX", readonly=True)
        assert len(client.uid("SEARCH", "ANSWERED KEYWORD keep")[1][0].split()) == 2


async def test_the_examples_of_the_seeds_run_on_a_real_mailbox_as_they_are(mailbox: Mailbox, tmp_path: Path) -> None:
    """R098: what was written for a local mailbox needs no change; `inReplyTo` takes an id of `search`."""
    arrive(mailbox, "Ann <ann@example.com>", "invoice")
    (tmp_path / "sheets").mkdir()
    sheets = LocalSheets(tmp_path / "sheets", name="sheets")
    async with Keep(tmp_path / "keep.db", connectors=[mailbox.connector(), sheets], clock=ManualClock(NOW)) as keep:
        for name in ("email-to-sheets.js", "routine-invoices.js"):
            source = (EXAMPLES / name).read_text("utf-8").replace('"..."', '"mails"')
            await keep.deploy(source, grants="all")
        await keep.run_until_idle()
        assert await keep.needs_you() == []
    assert "Ann <ann@example.com>" in (tmp_path / "sheets" / "mails.csv").read_text()
    [taken] = mailbox.post.taken
    assert taken.recipients == ["ann@example.com"]
    assert b"In-Reply-To: <invoice@example.com>" in taken.data
