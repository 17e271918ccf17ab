# ruff: noqa: E501 (an attack is read best on one line)
"""Mail, feeds and headers that strangers wrote: one bad message stops no search, and no text costs more than its length."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keepai.connectors.base import Call
from keepai.connectors.kit import mail_parser
from keepai.connectors.local.mail import LocalMail
from keepai.model.errors import ConnectorError
from tests.attack.base import Area, Attack, Planted, must
from tests.connectors.test_rss import Feed
from tests.connectors.test_strangers import HOSTILE, PARSERS

SIZE = 48 << 10
TIMES_MAX = 60  # as long as plain text of the same length; a parser that looks back takes thousands
SENDERS = {"brackets": "(" * 5_000, "quotes": '"' * 5_000, "an endless name": "a" * 9_000 + "@", "arrows": "<" * 5_000,
           "at signs": "@" * 3_000, "encoded words": "=?utf-8?q?" * 900, "a charset that is none": "=?x\x00y?q?a?= <a@b>",
           "comments": "(a" * 4_000 + ")" * 4_000, "groups": "a:b;" * 2_000, "routes": "<@a,@b:c@d>" * 900}
MAILS: dict[str, bytes] = {
    **{f"a sender of {name}": f"From: {text}\r\nSubject: x\r\n\r\nx".encode() for name, text in SENDERS.items()},
    "parts in parts": b"".join(f"Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n".encode() for n in range(1_000)),
    "mails in mails": b"Content-Type: message/rfc822\r\n\r\n" * 1_500,
    "no header at all": b"\x00\xff" * 2_000,
    "nothing": b"",
    "ten thousand headers": b"X: y\r\n" * 10_000 + b"\r\n",
    "a charset that is none": b"Content-Type: text/plain; charset=\x00\xffnothing\r\n\r\nx",
    "a charset that is a codec": b"Content-Type: text/plain; charset=zlib_codec\r\n\r\nx",
    "an encoding that is none": b"Content-Type: text/html\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\nbegin 0 x\nM\n",
    "parameters in pieces": b"Content-Type: text/plain; " + b"".join(b"a*%d*=x;" % n for n in range(2_000)) + b"\r\n\r\nx",
    "a date without end": b"Date: " + b"9" * 9_000 + b"\r\n\r\nx",
    "half of base64": b"Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\n=\x80A",
    "a header of a megabyte": b"Subject: " + b"=?utf-8?b?" * 90_000 + b"\r\n\r\nx",
    "html of brackets": b"Content-Type: text/html\r\n\r\n" + b"<!--<" * 30_000,
}
FEEDS: dict[str, bytes] = {
    "entities that grow": b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "' + b"a" * 1000 + b'">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 20) for n in range(8)) + b"]><rss><channel>&i;</channel></rss>",
    "a file of this machine": b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    b"<rss><channel><item><guid>1</guid><title>&a;</title></item></channel></rss>",
    "elements in elements": b"<rss><channel><item>" + b"<a>" * 60_000,
    "brackets": b"<" * 300_000,
}


@dataclass
class Post:
    """A mailbox with an honest message, and what plain text costs each parser."""

    box: LocalMail
    folder: Path
    plain_s: dict[str, float]

    async def search(self) -> list[str]:
        """The subjects that a script is shown."""
        spec = self.box.operations["search"]
        found: Any = await spec.invoke(spec.parse({}), Call())
        return [each["subject"] for each in found]


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Post]:
    box = LocalMail(folder / "mail", create=True)
    (folder / "mail" / "new" / "0.honest").write_bytes(b"From: ann@example.com\r\nSubject: honest\r\n\r\nHello")
    plain = "Hello, how are you? " * (SIZE // 20)
    yield Post(box, folder / "mail", {name: min(_cpu_s(parse, plain) for _ in range(3)) for name, parse in PARSERS.items()})


def attacks(post: Post) -> Iterator[Attack]:
    for name, data in MAILS.items():
        yield Attack(f"a mail stops the search of a mailbox: {name}", lambda data=data: _mail(post, data))
    for name, parse in PARSERS.items():
        for piece, make in HOSTILE.items():
            yield Attack(f"text that costs more than its length: {name} of {piece!r}",
                         lambda name=name, parse=parse, make=make: _linear(post, name, parse, make(SIZE)))
    for name, data in FEEDS.items():
        yield Attack(f"a feed holds the host up or reads a file: {name}", lambda data=data: _feed(data))


async def _mail(post: Post, data: bytes) -> None:
    file = post.folder / "new" / f"1.bad{len(data)}"
    file.write_bytes(data)
    begun = time.process_time()
    try:
        found = await post.search()
    finally:
        file.unlink()
    must("honest" in found, f"the search shows only {found}")
    took_s = time.process_time() - begun
    must(took_s < 1.0, f"it took {took_s:.1f} s of processor time")


def _cpu_s(parse: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    parse(text)
    return time.process_time() - begun


def _linear(post: Post, name: str, parse: Callable[[str], object], text: str) -> None:
    most = TIMES_MAX * (post.plain_s[name] + 0.002)
    took = _cpu_s(parse, text)
    if took > most:
        took = min(took, _cpu_s(parse, text), _cpu_s(parse, text))  # a disturbed one does not count
    must(took <= most, f"{took:.2f} s for {len(text):,} characters; plain text takes {post.plain_s[name]:.3f} s")


async def _feed(data: bytes) -> None:
    feed = Feed()
    feed.content = data
    try:
        found = await feed()
    except ConnectorError:
        return
    finally:
        feed.server.close()
    must("root:" not in str(list(found)), "an entry shows a file of this machine")
    must(len(str(list(found))) < 10 * len(data), "it grew")


def drawn(post: Post, chance: Random) -> Attack:
    """Pieces of markup and headers, over and over, with something before and after; or a mail of changed bytes."""
    if chance.random() < 0.4:
        data = bytearray(chance.choice(list(MAILS.values()))[:20_000])
        for _ in range(chance.randint(1, 20)):
            at = chance.randrange(len(data) + 1)
            data[at:at + chance.choice([0, 1, 5])] = chance.choice(
                [b"\r\n", b"\x00", b"=?utf-8?b?", b"boundary=", b"--", b"(", b":", b"<", b";", b"charset=", b"\xff", b"\r\n\r\n"])
        return Attack("a mail of changed bytes stops the search of a mailbox", lambda: _mail(post, bytes(data)))
    name = chance.choice(list(PARSERS))
    pieces = chance.sample([piece for piece in HOSTILE if len(piece) < 12], 3)
    unit = "".join(pieces[:chance.randint(1, 3)]) * chance.choice([1, 1, 7])
    text = "".join([chance.choice(pieces), unit * (SIZE // len(unit)), chance.choice([*pieces, ""])])
    return Attack(f"text that costs more than its length: {name} of {unit!r}",
                  lambda: _linear(post, name, PARSERS[name], text))


def _looks_back(text: str) -> int:
    """Each bracket looks for its end, to the end of the text."""
    return sum(re.search(">", text[at:]) is None for at in range(len(text)) if text[at] == "<")


def _stops(text: str) -> str:
    if "((((" in text:
        raise RecursionError("brackets nested too deep")
    return ""


AREA = Area(
    "strangers", "parsers in the host, by mail, feeds and headers of strangers", place, attacks, drawn,
    (
        Planted("HTML is scanned again at each bracket", lambda: patch.dict(PARSERS, {"HTML": _looks_back}), "HTML of '<'"),
        Planted("a sender that cannot be read stops the search", lambda: patch.object(mail_parser, "sender_of", _stops),
                "a mail stops"),
    ),
)
