"""Reads the parts of a Gmail message, and writes a message with its marks.

There are two marks, because neither is reliable: Gmail sometimes gives messages that are sent over its API another
Message-ID, and it cannot search for a custom header.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from ...model.clock import iso
from ..kit.html_text import text_of_html
from ..kit.mail_parser import BODY_MAX, CPU_S, HEADER_MAX, READ_MAX, sender_of
from ..kit.mail_writer import Letter, written
from ..kit.mailbox import FoundMail, FullMail
from ..kit.parser_process import INSIDE_MAX, ParserProcess
from ..kit.texts import clean

KEY_HEADER = "X-Keep-Key"
DATA_MAX = READ_MAX // 3 * 4  #: characters of an encoded text that are read
#: Headers that are shown, and by which a message is found again.
SHOWN = ("From", "To", "Subject", "Date", "Message-ID")


class FoundGmail(FoundMail):
    """A message as a search shows it."""

    threadId: str


class FullGmail(FullMail):
    """A message with its text."""

    threadId: str
    labels: list[str]


def found_mail(message: Mapping[str, Any]) -> FoundGmail:
    """A message as a search shows it."""
    return {
        "id": str(message["id"]), "threadId": str(message.get("threadId", "")),
        "from": sender_of(_raw_header(message, "From")) or header(message, "From") or "(no sender)",
        "to": header(message, "To"),
        "subject": header(message, "Subject") or "(no subject)", "date": iso(date_ms(message)),
        "snippet": clean(str(message.get("snippet", ""))),
    }


def full_mail(message: Mapping[str, Any], skip: Callable[[str], None]) -> FullGmail:
    """A message with its text. If a large text takes too long, it is left out, and `skip` is called."""
    kind, data = _text_part(message.get("payload") or {})
    text: str | None = ""
    if len(data) <= INSIDE_MAX:
        text = text_of(data.encode(), kind)
    else:
        with ParserProcess(f"{__name__}:text_of", CPU_S) as parser:
            answer = parser.read(data[:DATA_MAX].encode(), kind)
        text = str(answer[0]) if answer else None
        if text is None:
            skip(f"the text of the message {str(message['id'])[:80]} (it takes more than {parser.limits})")
    return {
        **found_mail(message), "body": (text or "")[:BODY_MAX],
        "truncated": text is None or len(text) > BODY_MAX or len(data) > DATA_MAX,
        "labels": [str(label_id) for label_id in message.get("labelIds") or ()],
    }


def text_of(data: bytes, kind: str) -> str:
    """The text of a part as people read it, without HTML tags."""
    text = _decoded(data.decode("utf-8", "replace"))
    return clean(text if kind == "text/plain" else text_of_html(text))


def date_ms(message: Mapping[str, Any]) -> int:
    """When Gmail received it."""
    return int(message.get("internalDate") or 0)


def header(message: Mapping[str, Any], name: str) -> str:
    """One header as one line; empty if it is missing."""
    return " ".join(clean(_raw_header(message, name)).split())[:HEADER_MAX]


def _raw_header(message: Mapping[str, Any], name: str) -> str:
    headers = (message.get("payload") or {}).get("headers") or ()
    return next((str(entry["value"]) for entry in headers if str(entry["name"]).lower() == name.lower()), "")


def write(letter: Letter, key: str, domain: str, now_s: float) -> str:
    """A message as Gmail takes it (base64url), with its marks; `Rejected` says what is wrong with it."""
    marked = replace(letter, marks={KEY_HEADER: marker(key)}, shows_bcc=True)
    return base64.urlsafe_b64encode(written(marked, message_id(key, domain), formatdate(now_s))).decode()


def marker(key: str) -> str:
    """The value of Keep's own header for an idempotency key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def message_id(key: str, domain: str) -> str:
    """The Message-ID made from an idempotency key."""
    return f"<keep.{marker(key)}@{domain}>"


def _text_part(payload: Mapping[str, Any]) -> tuple[str, str]:
    """The part that people read: its type, and its encoded content."""
    texts = [part for part in _leaves(payload) if not part.get("filename")]
    for kind in ("text/plain", "text/html"):
        for part in texts:
            if part.get("mimeType") == kind:
                return kind, str((part.get("body") or {}).get("data") or "")
    return "text/plain", ""


def _leaves(payload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts without inner parts, in order. Not recursive, because the sender decides how deep parts are nested."""
    waiting = [payload]
    while waiting:
        part = waiting.pop()
        inner = part.get("parts") or ()
        if inner:
            waiting.extend(reversed(inner))
        else:
            yield part


def _decoded(data: str) -> str:
    try:
        return base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
