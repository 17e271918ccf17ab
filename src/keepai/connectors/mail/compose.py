"""Makes the bytes of a message from the params of a script, or refuses them.

Python's own header classes read what they are given: an encoded word in a subject may become a line break on the
way out. So the headers are written here, from parts that were checked, and the result is read back: a message with
any header that was not meant is not sent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email import policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from typing import NotRequired, TypedDict

from ...model.errors import Rejected
from .addresses import Address, encoded, one_line

SUBJECT_MAX = 500
TEXT_MAX = 1_000_000
ATTACHMENTS_MAX = 10
MESSAGE_BYTES_MAX = 15 << 20
_POLICY = policy.SMTP.clone(cte_type="7bit")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_FILE_NAME = re.compile(r'[^"\\/\x00-\x1f\x7f]{1,150}')
_CONTENT = frozenset({"content-type", "content-transfer-encoding", "mime-version"})


class Attachment(TypedDict):
    """A file: its bytes as `base64`, or its characters as `text`."""

    name: str
    type: NotRequired[str]
    text: NotRequired[str]
    base64: NotRequired[str]


@dataclass(frozen=True)
class Letter:
    """What is to be sent, checked but not yet written."""

    sender: Address
    to: Sequence[Address]
    cc: Sequence[Address]
    bcc: Sequence[Address]
    subject: str
    body: str
    html: str = ""
    attachments: Sequence[Attachment] = ()
    in_reply_to: str = ""
    references: Sequence[str] = ()
    automatic: str = "auto-generated"  # RFC 3834: no other machine should answer

    @property
    def recipients(self) -> list[str]:
        """Everybody, each once, in the envelope's form."""
        return list(dict.fromkeys(each.mailbox for each in [*self.to, *self.cc, *self.bcc]))


def written(letter: Letter, message_id: str, date: str) -> bytes:
    """The message as it goes over the wire, without Bcc; `Rejected` if it cannot be one."""
    if not letter.recipients:
        raise Rejected("to must name somebody.")
    fields = _fields(letter, message_id, date)
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    data = head.encode("ascii") + _lines(_content(letter))
    _read_back(data, fields)
    if len(data) > MESSAGE_BYTES_MAX:
        raise Rejected(f"The message has {len(data):,} bytes; at most {MESSAGE_BYTES_MAX:,} are allowed.")
    return data


def _fields(letter: Letter, message_id: str, date: str) -> dict[str, str]:
    subject = one_line("subject", letter.subject)
    if len(subject) > SUBJECT_MAX:
        raise Rejected(f"subject has {len(subject)} characters; at most {SUBJECT_MAX} are allowed.")
    fields = {
        "From": letter.sender.header, "To": _list(letter.to), "Cc": _list(letter.cc),
        "Subject": encoded(subject, "Subject"), "Date": date, "Message-ID": message_id,
        "In-Reply-To": letter.in_reply_to, "References": "\r\n ".join(letter.references),
        "Auto-Submitted": letter.automatic,
    }
    return {name: value for name, value in fields.items() if value or name == "Subject"}


def _list(addresses: Sequence[Address]) -> str:
    return ",\r\n ".join(each.header for each in addresses)


def _content(letter: Letter) -> bytes:
    for name, text in (("body", letter.body), ("html", letter.html)):
        if len(text) > TEXT_MAX or "\0" in text:
            raise Rejected(f"{name} must be text of at most {TEXT_MAX:,} characters, without NUL.")
    mail = EmailMessage(policy=_POLICY)
    try:
        mail.set_content(letter.body, charset="utf-8")
        if letter.html:
            mail.add_alternative(letter.html, subtype="html", charset="utf-8")
        for each in _checked(letter.attachments):
            mail.add_attachment(each[2], maintype=each[1][0], subtype=each[1][1], filename=each[0])
        return mail.as_bytes()
    except (UnicodeError, ValueError, LookupError) as error:
        raise Rejected(f"The message cannot be written as mail: {error}.") from None


def _checked(attachments: Sequence[Attachment]) -> list[tuple[str, tuple[str, str], bytes]]:
    if len(attachments) > ATTACHMENTS_MAX:
        raise Rejected(f"There are {len(attachments)} attachments; at most {ATTACHMENTS_MAX} are allowed.")
    return [(_file_name(each["name"]), _file_type(each.get("type")), file_bytes(each)) for each in attachments]


def _file_name(name: str) -> str:
    one_line("The name of an attachment", name)
    if not _FILE_NAME.fullmatch(name) or "=?" in name:
        raise Rejected(f"{name[:80]!r} cannot be the name of an attachment.")
    return name


def _file_type(given: str | None) -> tuple[str, str]:
    kind = (given or "application/octet-stream").lower()
    if not _TYPE.fullmatch(kind) or kind.startswith(("multipart/", "message/")):
        raise Rejected(f"{kind[:80]!r} cannot be the type of an attachment.")
    first, _, second = kind.partition("/")
    return first, second


def file_bytes(attachment: Attachment) -> bytes:
    """The bytes of an attachment."""
    if ("text" in attachment) == ("base64" in attachment):
        raise Rejected(f"The attachment {attachment['name'][:80]!r} needs either text or base64.")
    if "text" in attachment:
        return attachment["text"].encode("utf-8", "replace")
    try:
        return base64.b64decode(attachment["base64"], validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(f"The attachment {attachment['name'][:80]!r} is not base64.") from None


def _lines(data: bytes) -> bytes:
    """The bytes with the one line end that mail knows: a lone CR or LF could be read as one by some servers."""
    whole = re.sub(rb"\r\n|\r|\n", b"\r\n", data)
    return whole if whole.endswith(b"\r\n") else whole + b"\r\n"


def _read_back(data: bytes, fields: dict[str, str]) -> None:
    """The last look: exactly the headers that were meant, each once."""
    read = BytesHeaderParser(policy=policy.compat32).parsebytes(data)
    names = [name.lower() for name in read.keys()]  # noqa: SIM118 (each once, repeats too)
    meant = {name.lower() for name in fields} | _CONTENT
    if len(names) != len(set(names)) or not set(names) <= meant or read.defects:
        raise Rejected("The message cannot be written as mail: its headers would not be read as they were meant.")
