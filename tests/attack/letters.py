# ruff: noqa: E501 (an attack is read best on one line)
"""What strangers write becomes no header: every composer of mail, with encoded words, line breaks and made-up ids."""

from __future__ import annotations

import ast
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from email import policy
from email.parser import BytesParser
from email.utils import getaddresses
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import keepai
from keepai.connectors.base import Call
from keepai.connectors.google import gmail_messages
from keepai.connectors.google.gmail import Gmail
from keepai.connectors.kit import addresses, mail_parser, mail_writer
from keepai.connectors.local.mail import LocalMail
from keepai.connectors.mail.mail_connector import Mail
from keepai.model.errors import BadValue, Rejected, RuleBroken
from keepai.notices.base import Message
from keepai.notices.email import Email
from tests.attack.base import Area, Attack, Planted, must, refused, together

SOURCE = Path(keepai.__file__).parent
WORDS = ("=?utf-8?q?Hi=0d=0aBcc:_evil@attacker.test?=", "=?utf-8?b?SGkNCkJjYzogZXZpbEBhdHRhY2tlci50ZXN0?=",
         "=?us-ascii?q?Hi=0aX-Evil:_1?=", "=?utf-8?q?=00?=", "=?utf-8?q?a?= =?utf-8?q?=0d=0aTo:_evil@attacker.test?=")
LINES = ("Hi\r\nBcc: evil@attacker.test", "Hi\nBcc: evil@attacker.test", "Hi\rBcc: evil@attacker.test", "Hi\x0bBcc: x@y.test",
         "Hi\x85Bcc: evil@attacker.test", "Hi\u2028Bcc: evil@attacker.test", "Hi\u2029\x00Bcc: evil@attacker.test",
         "Hi\r\n\r\nanother body", "Hi\r\n Bcc: evil@attacker.test", "Hi\x1c\x1d\x1eX: y")
IDS = ("<1@x>\r\nBcc: evil@attacker.test", "1@x", "<a b@x>", "=?utf-8?q?<1@x>?=", "<1@x> <2@x>", "<1@x>\u2028X: y")
HEADERS = {
    "from", "to", "cc", "subject", "date", "message-id", "auto-submitted", "x-keep-key", "content-type", "in-reply-to",
    "references", "content-transfer-encoding", "mime-version",
}
PEOPLE = {"ann@example.com", "bob@example.com"}
LETTER = {"to": "ann@example.com", "body": "Hello", "subject": "Hi"}
Writer = Callable[[dict[str, Any]], Awaitable[bytes]]


def _sender() -> addresses.Address:
    return addresses.own_address("x", "me@example.com")


class Composers:
    """Every way in which Keep writes mail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.box = LocalMail(folder / "mail", create=True)
        self.writers: dict[str, Writer] = {
            "local.mail": self.local, "gmail": self.gmail, "mail": self.mail, "a notice": self.notice}

    async def local(self, params: dict[str, Any]) -> bytes:
        spec = self.box.operations["send"]
        given = {name: params[name] for name in ("to", "cc", "subject", "body", "inReplyTo") if name in params}
        await spec.invoke(spec.parse(given), Call(idempotency_key="key"))
        [file] = (self.folder / "mail" / ".Sent" / "cur").iterdir()
        data = file.read_bytes()
        file.unlink()
        return data

    async def gmail(self, params: dict[str, Any]) -> bytes:
        past = [params["inReplyTo"]] if "inReplyTo" in params else []
        letter = mail_writer.letter_of(_sender(), params, params["subject"], past)
        return base64.urlsafe_b64decode(gmail_messages.write(letter, "key", "example.com", 0))

    async def mail(self, params: dict[str, Any]) -> bytes:
        past = [params["inReplyTo"]] if "inReplyTo" in params else []
        letter = replace(mail_writer.letter_of(_sender(), params, params["subject"], past), automatic="auto-replied")
        return mail_writer.written(letter, "<1@example.com>", "Mon, 5 Jan 2026 09:00:00 +0000")

    async def notice(self, params: dict[str, Any]) -> bytes:
        channel = Email("localhost", "keep@example.com", ["ann@example.com"], "ops")
        return channel._written(Message("question", params["subject"], params["body"], 0, "key"))


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Composers]:
    yield Composers(folder)


def attacks(composers: Composers) -> Iterator[Attack]:
    for name, write in composers.writers.items():
        for subject in (*WORDS, *LINES):
            yield Attack(f"a subject brings a header into mail by {name}: {subject!r}",
                         lambda write=write, subject=subject: _write(write, {**LETTER, "subject": subject}))
        if name != "a notice":
            for each in IDS:
                yield Attack(f"a Message-ID brings a header into mail by {name}: {each!r}",
                             lambda write=write, each=each: _write(write, {**LETTER, "inReplyTo": each}))
            for each in (*WORDS, *LINES):
                yield Attack(f"a name brings a header into mail by {name}: {each!r}",
                             lambda write=write, each=each: _write(write, {**LETTER, "to": f'"{each}" <ann@example.com>'}))
    for name in ("a.txt\r\nBcc: evil@attacker.test", 'a"\r\nX: y', "=?utf-8?q?a=0d=0aX:_y?=", "a\u2028b"):
        yield Attack(f"the name of an attachment brings a header: {name!r}", lambda name=name: _write(
            composers.mail, {**LETTER, "attachments": [{"name": name, "text": "x"}]}))
    for kind in ("text/html\r\nBcc: evil@attacker.test", "multipart/mixed; boundary=x", "message/rfc822"):
        yield Attack(f"the type of an attachment brings a header: {kind!r}", lambda kind=kind: _write(
            composers.mail, {**LETTER, "attachments": [{"name": "a", "type": kind, "text": "x"}]}))
    yield Attack("another module than the one composer makes messages", _one_composer)
    for domain in ("ex\u0430mple.com", "b\u00fccher.example", "\u0430\u0440\u0440\u04cf\u0435.com", "xn--80ak6aa92e.com"):
        yield Attack(f"a card shows a domain that looks like another: {domain}", lambda domain=domain: _looks_alike(composers, domain))
    yield Attack("an answer goes to a stranger's Reply-To that no card shows", _replies)


async def _write(write: Writer, params: dict[str, Any]) -> None:
    try:
        data = await write(params)
    except (Rejected, RuleBroken, BadValue):
        return
    _sound(data, params["subject"])


def _sound(data: bytes, subject: str) -> None:
    """Only the headers and recipients that were meant, and the subject as it was given."""
    for how in (policy.compat32, policy.default):
        read = BytesParser(policy=how).parsebytes(data)
        names = [name.lower() for name in read.keys()]  # noqa: SIM118 (each once, repeats too)
        odd = set(names) - HEADERS
        must(not odd and len(names) == len(set(names)), f"the message has the headers {sorted(odd) or sorted(names)}")
        lines = [str(value) for name in ("To", "Cc", "Bcc") for value in read.get_all(name, [])]
        people = {box for _, box in getaddresses([line.replace("\r\n", "") for line in lines])}
        must(people <= PEOPLE, f"it goes to {people}")
    must(b"\r" not in data.replace(b"\r\n", b"") and b"\n" not in data.replace(b"\r\n", b""), "a lone line break")
    head = BytesParser(policy=policy.compat32).parsebytes(data, headersonly=True)
    said = mail_parser.decoded(str(head["Subject"]).replace("\r\n", "").replace("\n", ""))
    shown = "".join(each if each.isprintable() else " " for each in subject)
    must(said.split() in (subject.split(), shown.split()), f"the subject became {said!r}")


def _one_composer() -> None:
    makers = {"EmailMessage", "MIMEText", "MIMEMultipart", "MIMEBase", "Message"}
    found = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if _imports(path.read_text("utf-8"), makers)]
    must(found == ["connectors/kit/mail_writer.py"], f"messages are made in {found}")


def _imports(text: str, names: set[str]) -> bool:
    """Whether a module imports one of these from Python's package for mail, outside of what types alone need."""
    tree = ast.parse(text)
    found = {each.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             and (node.module or "").startswith("email.m") for each in node.names} & names
    return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in found
               for node in ast.walk(tree))


def _looks_alike(composers: Composers, domain: str) -> None:
    """What a person reads has the spelling by which the server is found."""
    spec = composers.box.operations["send"]
    shown = spec.preview(spec.parse({**LETTER, "to": f"ann@{domain}"}))
    must("xn--" in shown, f"the card says {shown!r}")


def _replies() -> None:
    """Who gets an answer is a param: a rule judges it, and what a person approves names it."""
    gmail = Gmail("ann@example.com", "client", name="gmail")
    mail = Mail("ann@example.com", "localhost", "localhost", name="mail")
    for spec in (gmail.operations["reply"], mail.operations["reply"]):
        with refused("an answer without recipients was taken", RuleBroken):
            spec.parse({"id": "1", "body": "Hello"})
        params = spec.parse({"id": "1", "to": "evil@attacker.test", "cc": "bob@example.com", "body": "Hello"})
        shown = spec.preview(params)
        must("evil@attacker.test" in shown and "bob@example.com" in shown, f"the card says only {shown!r}")


_PIECES = ("\r\n", "\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "=?utf-8?q?", "=?utf-8?b?", "?=", "=0d=0a", "=0D=0A", "Bcc: ",
           "evil@attacker.test", ":", ",", "<", ">", '"', "\\", " ", "\t", "SGkNCg==", "a", "ü", "\u202e", "\x00", "=", "_", "?",
           "@", "ann@example.com", ";", "(", ")", "To:", "x" * 80, "日本", "=?", "\ufeff", "=20")


def drawn(composers: Composers, chance: Random) -> Attack:
    """Pieces of headers in every field of a letter."""
    def text() -> str:
        return "".join(chance.choice(_PIECES) for _ in range(chance.randint(1, 8)))

    params: dict[str, Any] = {**LETTER, "subject": text()}
    if chance.random() < 0.5:
        params["to"] = chance.choice([f'"{text()}" <ann@example.com>', f"{text()} <ann@example.com>",
                                      [f"{text()} <ann@example.com>", "bob@example.com"]])
    if chance.random() < 0.3:
        params["inReplyTo"] = chance.choice([f"<{text()}@x>", text()])
    if chance.random() < 0.3:
        params["body"] = text()
    if chance.random() < 0.2:
        params["attachments"] = [{"name": text(), "type": chance.choice([text(), "text/plain"]), "text": text()}]
    name = chance.choice(list(composers.writers))
    return Attack(f"a letter by {name}: {params!r:.200}", lambda: _write(composers.writers[name], params))


def _as_it_is() -> Any:
    return together(
        patch.object(mail_writer, "encoded", lambda text, header_name="": text),
        patch.object(mail_writer, "one_line", lambda field, text: text),
        patch.object(mail_writer, "_read_back", lambda data, fields: None),
    )


AREA = Area(
    "letters", "who composes mail, by what strangers wrote", place, attacks, drawn,
    (
        Planted("a subject is written as it is", _as_it_is, "a subject brings"),
        Planted("a subject is written as it is, seen by drawn letters", _as_it_is, rounds=100),
        Planted("any text may be a Message-ID", lambda: together(
            patch.object(mail_writer, "is_message_id", lambda text: True), patch.object(mail_writer, "_read_back", lambda *_: None),
        ), "a Message-ID brings"),
    ),
)
