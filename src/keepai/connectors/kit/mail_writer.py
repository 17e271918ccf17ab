"""Makes the bytes of a message, or refuses to. Every connector and channel that sends mail uses this module.

Python's own header classes interpret their input: an encoded word in a subject may become a line break in the message.
So this module writes the headers itself, from parts that it has checked. Then it parses the result: a message with a
header that was not meant is not sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from typing import Any, NotRequired, TypedDict

from ...model.errors import Rejected
from .addresses import Address, encoded, one_line, read

SUBJECT_MAX = 500
TEXT_MAX = 1_000_000
ATTACHMENTS_MAX = 10
MESSAGE_BYTES_MAX = 15 << 20
_POLICY = policy.SMTP.clone(cte_type="7bit")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_FILE_NAME = re.compile(r'[^"\\/\x00-\x1f\x7f]{1,150}')
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,250}>")
_MARK = re.compile(r"[!-~]{1,250}")
_CONTENT = frozenset({"content-type", "content-transfer-encoding", "mime-version"})


class Attachment(TypedDict):
    """A file: its bytes as `base64`, or its characters as `text`."""

    name: str
    type: NotRequired[str]
    text: NotRequired[str]
    base64: NotRequired[str]


@dataclass(frozen=True)
class Letter:
    """A message to send, checked but not yet written."""

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
    automatic: str = "auto-generated"  # RFC 3834: other programs should not answer
    marks: Mapping[str, str] = field(default_factory=dict)  # Keep's own headers, by which it finds the message again
    shows_bcc: bool = False  # for a service that reads Bcc from the message and removes it

    @property
    def recipients(self) -> list[str]:
        """All recipients, each once, as the envelope names them."""
        return list(dict.fromkeys(address.mailbox for address in [*self.to, *self.cc, *self.bcc]))


def letter_of(sender: Address, params: Any, subject: str, past: Sequence[str] = ()) -> Letter:
    """The message that the params describe. `past` are the Message-IDs of its conversation, oldest first."""
    to, cc, bcc = (read(name, params.get(name)) for name in PEOPLE)
    return Letter(
        sender, to, cc, bcc, subject, params["body"], html=params.get("html") or "",
        attachments=params.get("attachments") or (), in_reply_to=past[-1] if past else "", references=past,
    )


def reply_subject(subject: str) -> str:
    """The subject of a reply to a message with this subject."""
    return (subject if subject[:3].lower() == "re:" else f"Re: {subject}").strip()[:400]


def written(letter: Letter, message_id: str, date: str) -> bytes:
    """The message as it is sent; `Rejected` if it cannot be a message."""
    if not letter.recipients:
        raise Rejected("to must name at least one recipient.")
    fields = _fields(letter, message_id, date)
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    # Mail has CR and LF at the end of each line. Some servers would read a lone CR or LF as a line end.
    content = re.sub(rb"\r\n|\r|\n", b"\r\n", _content(letter))
    data = head.encode("ascii") + (content if content.endswith(b"\r\n") else content + b"\r\n")
    _read_back(data, fields)
    if len(data) > MESSAGE_BYTES_MAX:
        raise Rejected(f"The message has {len(data):,} bytes; at most {MESSAGE_BYTES_MAX:,} are allowed.")
    return data


def _fields(letter: Letter, message_id: str, date: str) -> dict[str, str]:
    subject = one_line("subject", letter.subject)
    if len(subject) > SUBJECT_MAX:
        raise Rejected(f"subject has {len(subject)} characters; at most {SUBJECT_MAX} are allowed.")
    for named_id in (message_id, letter.in_reply_to, *letter.references):
        if named_id and not is_message_id(named_id):
            raise Rejected(f"{named_id[:80]!r} is not a Message-ID. One looks like <id@example.com>.")
    if not all(_MARK.fullmatch(value) for value in letter.marks.values()):
        raise Rejected("A mark of a message must be plain text without spaces.")
    fields = {
        "From": letter.sender.header, "To": _list(letter.to), "Cc": _list(letter.cc),
        "Bcc": _list(letter.bcc) if letter.shows_bcc else "", "Subject": encoded(subject, "Subject"), "Date": date,
        "Message-ID": message_id,
        "In-Reply-To": letter.in_reply_to, "References": "\r\n ".join(letter.references),
        "Auto-Submitted": letter.automatic, **letter.marks,
    }
    return {name: value for name, value in fields.items() if value or name == "Subject"}


def is_message_id(text: str) -> bool:
    """Whether a text can be a Message-ID in a header."""
    return _MESSAGE_ID.fullmatch(text) is not None


def _list(addresses: Sequence[Address]) -> str:
    return ",\r\n ".join(address.header for address in addresses)


def _content(letter: Letter) -> bytes:
    for name, text in (("body", letter.body), ("html", letter.html)):
        if len(text) > TEXT_MAX or "\0" in text:
            raise Rejected(f"{name} must be text of at most {TEXT_MAX:,} characters, without NUL.")
    if len(letter.attachments) > ATTACHMENTS_MAX:
        raise Rejected(f"There are {len(letter.attachments)} attachments; at most {ATTACHMENTS_MAX} are allowed.")
    mail = EmailMessage(policy=_POLICY)
    try:
        mail.set_content(letter.body, charset="utf-8")
        if letter.html:
            mail.add_alternative(letter.html, subtype="html", charset="utf-8")
        for file in letter.attachments:
            name, (maintype, subtype) = _file_name(file["name"]), _file_type(file.get("type"))
            mail.add_attachment(file_bytes(file), maintype=maintype, subtype=subtype, filename=name)
        return mail.as_bytes()
    except (UnicodeError, ValueError, LookupError) as error:
        raise Rejected(f"The message cannot be written as mail: {error}.") from None


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


def _read_back(data: bytes, fields: dict[str, str]) -> None:
    """Refuse a message whose headers are not exactly the ones that were meant, each once."""
    read = BytesHeaderParser(policy=policy.compat32).parsebytes(data)
    names = [name.lower() for name in read.keys()]  # noqa: SIM118 (each once, repeats too)
    meant = {name.lower() for name in fields} | _CONTENT
    if len(names) != len(set(names)) or not set(names) <= meant or read.defects:
        raise Rejected("The message cannot be written as mail: its headers would be read as other headers.")


def previewed(title: str, params: Any, *, answers: str | None = None) -> str:
    """A whole message for people: every address as the server sees it, nothing shortened."""
    lines = [title]
    for name in PEOPLE:
        if params.get(name):
            lines.append(f"{name.capitalize()}: {', '.join(address.shown for address in read(name, params[name]))}")
    if answers is not None:
        lines.append(f"Answer to: {_line(answers)}")
    if answers is None or params.get("subject"):
        lines.append(f"Subject: {_line(params.get('subject') or '')}")
    if params.get("inReplyTo"):
        lines.append(f"In-Reply-To: {_line(params['inReplyTo'])}")
    lines += [_attached(attachment) for attachment in params.get("attachments") or ()]
    lines += ["", params["body"]]
    return "\n".join([*lines, "", "As HTML:", params["html"]] if params.get("html") else lines)


#: The params that name recipients.
PEOPLE = ("to", "cc", "bcc")


def _line(text: str) -> str:
    """One line of a preview. A line feed in it must not look like the next line."""
    return text.replace("\n", "‹U+000A›")


def _attached(attachment: Attachment) -> str:
    kind = attachment.get("type") or "application/octet-stream"
    try:
        data = file_bytes(attachment)
    except Rejected as error:
        return f"Attachment: {_line(attachment['name'])} (cannot be sent: {_line(str(error))})"
    digest = hashlib.sha256(data).hexdigest()[:16]
    return f"Attachment: {_line(attachment['name'])} ({_line(kind)}, {len(data):,} bytes, sha256 {digest}…)"
