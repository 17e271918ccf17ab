"""Letters as Gmail gives and takes them: reads the parts of a message, and writes one that carries its marks.

Two marks, because neither is promised: Gmail has been seen to give messages that are sent by its API another
Message-ID, and a header of one's own cannot be searched for. No header takes a line end or another control character.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any, TypedDict

from ...model.clock import iso
from ...model.errors import Rejected
from ..local.message import BODY_MAX, HEADER_MAX, clean, without_tags

KEY_HEADER = "X-Keep-Key"
#: Headers that a message is shown by, and by which it is found again.
SHOWN = ("From", "To", "Subject", "Date", "Message-ID")
LETTER_MAX = 20 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

Found = TypedDict("Found", {
    "id": str, "threadId": str, "from": str, "to": str, "subject": str, "date": str, "snippet": str,
})
Whole = TypedDict("Whole", {
    "id": str, "threadId": str, "from": str, "to": str, "subject": str, "date": str, "snippet": str,
    "body": str, "truncated": bool, "labels": list[str],
})


def found(message: Mapping[str, Any]) -> Found:
    """A message as a search shows it."""
    return {
        "id": str(message["id"]), "threadId": str(message.get("threadId", "")),
        "from": header(message, "From") or "(no sender)", "to": header(message, "To"),
        "subject": header(message, "Subject") or "(no subject)", "date": iso(date_ms(message)),
        "snippet": clean(str(message.get("snippet", ""))),
    }


def whole(message: Mapping[str, Any]) -> Whole:
    """A message with its text."""
    text = clean(_body(message.get("payload") or {}))
    return {
        **found(message), "body": text[:BODY_MAX], "truncated": len(text) > BODY_MAX,
        "labels": [str(each) for each in message.get("labelIds") or ()],
    }


def date_ms(message: Mapping[str, Any]) -> int:
    """When Gmail got it."""
    return int(message.get("internalDate") or 0)


def header(message: Mapping[str, Any], name: str) -> str:
    """One header on one line; empty when it is missing."""
    headers = (message.get("payload") or {}).get("headers") or ()
    said = next((str(each["value"]) for each in headers if str(each["name"]).lower() == name.lower()), "")
    return " ".join(clean(said).split())[:HEADER_MAX]


def write(fields: Mapping[str, str], body: str, key: str, domain: str, now_s: float) -> str:
    """A letter as Gmail takes it (base64url), or `Rejected` with what is wrong with it."""
    every = {**fields, "Date": formatdate(now_s), "Message-ID": message_id(key, domain), KEY_HEADER: marker(key)}
    wrong = [name for name, value in every.items() if _CONTROL.search(value)]
    if wrong or not fields["To"].strip():
        raise Rejected(f"{wrong[0]} must be one line of text." if wrong else "to must name somebody.")
    mail = EmailMessage(policy=SMTP)
    try:
        for name, value in every.items():
            if value:
                mail[name] = value
        mail.set_content(body, charset="utf-8")
        data = mail.as_bytes()
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # odd addresses upset the parser
        raise Rejected(f"The letter cannot be written as mail: {type(error).__name__}.") from None
    if len(data) > LETTER_MAX:
        raise Rejected(f"The letter has more than {LETTER_MAX:,} bytes.")
    return base64.urlsafe_b64encode(data).decode()


def marker(key: str) -> str:
    """What the header of our own says of an idempotency key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def message_id(key: str, domain: str) -> str:
    """The Message-ID made from an idempotency key."""
    return f"<keep.{marker(key)}@{domain}>"


def _body(payload: Mapping[str, Any]) -> str:
    texts = [each for each in _leaves(payload) if not each.get("filename")]
    for kind in ("text/plain", "text/html"):
        for each in texts:
            if each.get("mimeType") == kind:
                text = _decoded(str((each.get("body") or {}).get("data") or ""))
                return text if kind == "text/plain" else without_tags(text)
    return ""


def _leaves(payload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts that have no parts, in order; not by calling itself, for a sender says how deep they are nested."""
    waiting = [payload]
    while waiting:
        each = waiting.pop()
        inner = each.get("parts") or ()
        if inner:
            waiting.extend(reversed(inner))
        else:
            yield each


def _decoded(data: str) -> str:
    try:
        return base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
