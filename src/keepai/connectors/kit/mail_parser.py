"""Parses the bytes of a mail. No sequence of bytes makes it fail.

The newer header parser of the standard library raises on some malformed headers. So this module uses the older one and
decodes headers itself.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.utils import parseaddr, parsedate_to_datetime
from typing import Any, cast

from ...model.clock import iso
from .html_text import text_of_html
from .parser_process import INSIDE_MAX, ParserProcess
from .texts import clean

READ_MAX = 1 << 20  #: bytes of a message that are read
HEADER_MAX = 1_000  #: characters of one header that are shown
BODY_MAX = 200_000  #: characters of a body that are shown
SNIPPET_MAX = 200
CPU_S = 5  #: processor time that a large mail may take; a usual one takes a tenth of a second
_ADDRESS = re.compile(r"[^\s<>\",;@]{1,200}@[^\s<>\",;@]{1,253}")
_NOT_IN_NAMES = str.maketrans("", "", '"\\<>')


@dataclass(frozen=True)
class ParsedMail:
    """A message as people know it."""

    id: str
    sender: str
    to: str
    subject: str
    date_ms: int
    body: str
    truncated: bool

    @property
    def date(self) -> str:
        """When it was sent, as its own header says; without that header, when it was received."""
        return iso(self.date_ms)

    @property
    def snippet(self) -> str:
        """The first words of the body."""
        return " ".join(self.body[: SNIPPET_MAX * 4].split())[:SNIPPET_MAX]


def reader() -> ParserProcess:
    """The process that parses large mails; use it in `with`."""
    return ParserProcess(f"{__name__}:fields", CPU_S)


def read(data: bytes, id: str, received_ms: int, parser: ParserProcess, skip: Callable[[str], None]) -> ParsedMail:
    """The message in these bytes. If a large one takes too long, only its headers are read, and `skip` is called."""
    if len(data) <= INSIDE_MAX:
        return parse(data, id, received_ms)
    answer = parser.read(data[: READ_MAX + 1], id, received_ms)
    if answer is not None:
        return ParsedMail(**cast("dict[str, Any]", answer[0]))
    skip(f"the text of the message {id[:80]} (it takes more than {parser.limits})")
    head = re.split(rb"\r?\n\r?\n", data[:INSIDE_MAX], maxsplit=1)[0]
    return replace(parse(head, id, received_ms), body="", truncated=True)


def fields(data: bytes, id: str, received_ms: int) -> dict[str, object]:
    """What `parse` returns, as JSON for another process."""
    return asdict(parse(data, id, received_ms))


def parse(data: bytes, id: str, received_ms: int) -> ParsedMail:
    """The message in these bytes, cut to the limits."""
    raw, text = _parsed(data[:READ_MAX])
    body = clean(text)
    return ParsedMail(
        id=id,
        sender=sender_of(_raw_header(raw, "From")) or header(raw, "From") or "(no sender)",
        to=header(raw, "To"),
        subject=header(raw, "Subject") or "(no subject)",
        date_ms=_date_ms(header(raw, "Date"), received_ms),
        body=body[:BODY_MAX],
        truncated=len(data) > READ_MAX or len(body) > BODY_MAX,
    )


class _ShortHeaders(policy.Compat32):
    """Cuts each header as it is read, because Python's parser takes quadratic time on some headers."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[: HEADER_MAX * 8]


def _parsed(data: bytes) -> tuple[Message, str]:
    parser = BytesParser(policy=_ShortHeaders())
    try:
        raw = parser.parsebytes(data)
        return raw, _body(raw)
    except Exception:  # the parser is not made for hostile input: parts nested 1,000 deep break it
        return parser.parsebytes(data, headersonly=True), ""


def header(raw: Message, name: str) -> str:
    """One header as one line of text; empty if it is missing."""
    return " ".join(clean(decoded(_raw_header(raw, name))).split())[:HEADER_MAX]


def _raw_header(raw: Message, name: str) -> str:
    return next((str(value) for key, value in raw.raw_items() if key.lower() == name.lower()), "")


def sender_of(text: str) -> str:
    """The sender of a From header, in a form that can be used as a recipient: a name with a comma is quoted.

    Empty if the header contains no address."""
    try:
        name, address = parseaddr(text[: HEADER_MAX * 8])
    except Exception:  # the parser is not made for hostile input: brackets nested 1,000 deep break it
        return ""
    shown = " ".join(decoded(name).translate(_NOT_IN_NAMES).split())
    if not _ADDRESS.fullmatch(address):
        return ""
    quoted = f'"{shown}"' if set(",;:@()[]") & set(shown) else shown
    return clean(f"{quoted} <{address}>" if shown else address)[:HEADER_MAX]


def decoded(text: str) -> str:
    """A part of a header with its encoded words decoded."""
    whole = _text(text[: HEADER_MAX * 8].encode("utf-8", "surrogateescape"), None)
    try:
        pieces = decode_header(whole)
    except (HeaderParseError, binascii.Error, ValueError):
        return whole
    return "".join(piece if isinstance(piece, str) else _text(piece, charset) for piece, charset in pieces)


def _text(data: bytes, charset: str | None) -> str:
    for name in (charset, "utf-8"):
        try:
            return data.decode(name) if name else data.decode("utf-8")
        except (UnicodeError, LookupError, ValueError):
            continue
    return data.decode("latin-1")


def _date_ms(text: str, otherwise: int) -> int:
    try:
        moment = int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return otherwise
    return moment if 0 <= moment < 4_102_444_800_000 else otherwise  # 1970 to 2100


def _body(raw: Message) -> str:
    parts = [part for part in raw.walk() if not part.is_multipart() and part.get_content_maintype() == "text"]
    texts = [
        part for part in parts
        if not str(part.get("Content-Disposition", "")).strip().lower().startswith("attachment")
    ]
    for part in texts:
        if part.get_content_type() == "text/plain":
            return _content(part)
    return text_of_html(_content(texts[0])) if texts else ""


def _content(part: Message) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        charset = part.get_content_charset()
    except (ValueError, LookupError, TypeError):
        charset = None
    return _text(data, charset)
