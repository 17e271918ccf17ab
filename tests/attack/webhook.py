# ruff: noqa: E501 (an attack is read best on one line)
"""The door for webhooks, by whoever can reach its port: nothing is kept that the shared secret did not sign."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keepai.config import Settings
from keepai.connectors.webhook import signature_check
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME
from keepai.doors.webhooks import WebhookPort
from keepai.testing import ManualClock
from tests import doors
from tests.attack.base import Area, Attack, Planted, must
from tests.attack.wire import said, status
from tests.connectors.test_webhook import NOW, SECRET, inbox, listed, signed

BODY = b'{"a": 1}'
BYTES_MAX = 10_000
FORGED: dict[str, dict[str, str]] = {
    "a signature that is none": {SIGNATURE: "v1,AAAA"}, "no signature": {SIGNATURE: ""}, "another time": {TIME: "1"},
    "no time": {TIME: ""}, "a time before all time": {TIME: "-5"}, "no id": {ID: ""}, "an id without end": {ID: "x" * 500},
    "another id": {ID: "other"}, "an id of two lines": {ID: "a\tb"}, "many signatures": {SIGNATURE: "v1,AAAA " * 500},
    "a signature of another version": {SIGNATURE: "v2,AAAA"}, "a time in other digits": {TIME: "١٧٠٠٠٠٠٠٠٠"},
}
def _mac(text: bytes) -> str:
    return hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()


#: Sender → the headers of a genuine delivery with a body, at a second.
GENUINE: dict[str, Callable[[bytes, int], dict[str, str]]] = {
    "github": lambda body, at: {"x-github-delivery": "d1", "x-hub-signature-256": "sha256=" + _mac(body)},
    "stripe": lambda body, at: {"stripe-signature": f"t={at},v1={_mac(b'%d.' % at + body)}"},
    "slack": lambda body, at: {"x-slack-request-timestamp": str(at), "x-slack-signature": "v0=" + _mac(b"v0:%d:" % at + body)},
    "shopify": lambda body, at: {"x-shopify-webhook-id": "d1",
                                 "x-shopify-hmac-sha256": base64.b64encode(bytes.fromhex(_mac(body))).decode()},
}
#: How a value of a header is made one that nobody signed.
SPOILT: dict[str, Callable[[str], str]] = {
    "nothing": lambda value: "", "its half": lambda value: value[: len(value) // 2], "more": lambda value: value + "0",
    "a name alone": lambda value: "v1=", "zeros": lambda value: re.sub("[0-9a-zA-Z]", "0", value),
    "one letter": lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"), "lists": lambda value: ",,;;  ,",
    "strange letters": lambda value: value[:-2] + "\u00e9\u00df", "very much": lambda value: (value[:-1] + "x,") * 200,
}
PATHS = ("/", "/hooks/", "/hooks/other", "/hooks/../hooks/other", "/hooks/shop/..", "//hooks/shop", "/hooks/%2e%2e/", "/needs-you",
         "/static/keep.css", "/hooks/shop%00", "/hooks/shop/", "/HOOKS/shop", "/act", "/hooks//shop", "/hooks/shop;x", "*",
         "http://evil.test/hooks/other")
RAW: dict[str, bytes] = {
    **doors.BROKEN_HTTP,
    "a length and chunks": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length without end": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n{}",
    "chunks without end": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 30,
    "a chunk of a strange size": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    "many headers": b"POST /hooks/shop HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    "two requests in one": b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" * 2,
    "a method of its own": b"PROPFIND /hooks/shop HTTP/1.1\r\nHost: x\r\n\r\n",
}


class Credulous:
    """Computes signatures, and takes any for the right one."""

    new = staticmethod(hmac.new)
    compare_digest = staticmethod(lambda *_: True)


@dataclass
class Door:
    """A host that takes webhooks in, and what was signed for it."""

    hooks: WebhookPort
    box: Inbox
    others: Mapping[str, Inbox]  # by sender
    clock: ManualClock
    genuine: set[tuple[str, str]] = field(default_factory=set)

    @property
    def port(self) -> int:
        assert self.hooks.port
        return self.hooks.port

    def sign(self, id: str, body: bytes) -> dict[str, str]:
        """The headers of a sender that has the secret."""
        self.genuine.add((id, body.decode("utf-8", "replace")))
        return signed(id, body, self.clock)

    async def post(self, given: Mapping[str, str], body: bytes, path: str = "/hooks/shop", method: str = "POST") -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        return await said(self.port, head.encode("utf-8") + body)

    async def sound(self) -> None:
        """Only what was signed is kept, and an honest delivery is taken."""
        self.clock.advance(minutes=2)
        id = f"honest-{len(self.genuine)}"
        answer = await self.post(self.sign(id, b"{}"), b"{}")
        must(status(answer) == 202, f"an honest delivery was answered with {answer[:80]!r}")
        kept: list[Any] = await listed(self.box, limit=1000)
        odd = [each["id"] for each in kept if each["id"] not in {one for one, _ in self.genuine}]
        must(not odd, f"{odd} was kept, and nobody signed it")
        for file in self.box.path.glob("*.json"):
            file.unlink()
        for sender, box in self.others.items():
            must(not await listed(box), f"something was kept that {sender} did not sign")


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Door]:
    clock = ManualClock(NOW)
    box = inbox(folder / "spool", clock, bytes_max=BYTES_MAX, per_minute=20)
    others = {sender: Inbox(folder / sender, create=True, name=sender, sender=sender, clock=clock) for sender in GENUINE}
    for each in others.values():
        each.entrust({"secret": SECRET})
    async with WebhookPort(Settings(connectors=(box, *others.values()), hooks=("127.0.0.1", 0))) as hooks:
        yield Door(hooks, box, others, clock)


def attacks(door: Door) -> Iterator[Attack]:
    for name, change in FORGED.items():
        yield Attack(f"a forged delivery: {name}", lambda change=change: _forged(door, change))
    yield Attack("a delivery with the body of another", lambda: _forged(door, {}, b'{"a": 2}'))
    yield Attack("a delivery signed with another secret", lambda: _other_secret(door))
    yield Attack("the same delivery again and again", lambda: _again(door))
    yield Attack("an old delivery, and one from the future", lambda: _old(door))
    yield Attack("a delivery that is too large", lambda: _large(door))
    yield Attack("more deliveries than a minute allows", lambda: _many(door))
    for sender in GENUINE:
        for how in SPOILT:
            yield Attack(f"what {sender} signs, spoilt: {how}", lambda sender=sender, how=how: _spoilt(door, sender, how))
        yield Attack(f"what {sender} signs, with another body", lambda sender=sender: _spoilt(door, sender, None))
        for other in GENUINE.keys() - {sender}:
            yield Attack(f"what {other} signs, to an inbox of {sender}",
                         lambda sender=sender, other=other: _spoilt(door, sender, None, other))
    for path in PATHS:
        yield Attack(f"another path: {path}", lambda path=path: _path(door, path))
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "TRACE"):
        yield Attack(f"another method: {method}", lambda method=method: _method(door, method))
    for name, data in RAW.items():
        yield Attack(f"a raw request: {name}", lambda data=data: _raw(door, data))


async def _forged(door: Door, change: Mapping[str, str], body: bytes = BODY) -> None:
    answer = await door.post({**signed("forged", BODY, door.clock), **change}, body)
    must(400 <= status(answer) < 500, f"it was answered with {answer[:80]!r}")
    await door.sound()


async def _spoilt(door: Door, sender: str, how: str | None, signer: str = "") -> None:
    """The signature is spoilt, or the body is another one, or another service's form."""
    genuine = GENUINE[signer or sender](BODY, door.clock.now_ms() // 1000)
    body = BODY if signer or how else BODY + b" "
    if how is not None:
        signature = next(name for name in genuine if "signature" in name or "hmac" in name)
        genuine[signature] = SPOILT[how](genuine[signature])
    answer = await door.post(genuine, body, f"/hooks/{sender}")
    must(status(answer) in (400, 401), f"it was answered with {answer[:80]!r}")
    _quiet(answer)
    await door.sound()


async def _other_secret(door: Door) -> None:
    answer = await door.post(signed("forged", BODY, door.clock, "another secret"), BODY)
    must(status(answer) == 401, f"it was answered with {answer[:80]!r}")
    await door.sound()


async def _again(door: Door) -> None:
    given = door.sign("again", BODY)
    answers = [status(await door.post(given, BODY)) for _ in range(5)]
    kept = [each["id"] for each in await listed(door.box)]
    must(kept.count("again") == 1, f"it was kept {kept.count('again')} times, and answered with {answers}")
    await door.sound()


async def _old(door: Door) -> None:
    given = signed("old", BODY, door.clock)
    door.clock.advance(seconds=301)
    must(status(await door.post(given, BODY)) == 401, "an old one was taken")
    ahead = ManualClock(NOW)
    ahead.advance(days=30)
    must(status(await door.post(signed("ahead", BODY, ahead), BODY)) == 401, "one from the future was taken")
    await door.sound()


async def _large(door: Door) -> None:
    body = b"x" * (BYTES_MAX + 1)
    must(status(await door.post(signed("large", body, door.clock), body)) in (0, 413), "it was taken")
    await door.sound()


async def _many(door: Door) -> None:
    door.clock.advance(minutes=2)
    found = [status(await door.post(door.sign(f"many-{number}", BODY), BODY)) for number in range(25)]
    must(found.count(202) <= 20 and found[-1] == 429, f"they were answered with {found}")
    await door.sound()


async def _path(door: Door, path: str) -> None:
    answer = await door.post(signed("forged", BODY, door.clock), BODY, path)
    must(status(answer) in (400, 404), f"it was answered with {answer[:80]!r}")
    _quiet(answer)
    await door.sound()


async def _method(door: Door, method: str) -> None:
    answer = await door.post(signed("forged", BODY, door.clock), BODY, method=method)
    must(status(answer) in (400, 405), f"it was answered with {answer[:80]!r}")
    _quiet(answer)
    await door.sound()


async def _raw(door: Door, data: bytes) -> None:
    answer = await asyncio.wait_for(said(door.port, data, 1.0), 5)
    must(status(answer) in (0, 501) or 400 <= status(answer) < 500, f"it was answered with {answer[:80]!r}")
    _quiet(answer)
    await door.sound()


def _quiet(answer: bytes) -> None:
    must(not doors.betrays_server(answer) and b"traceback" not in answer.lower(), f"it says too much: {answer[:200]!r}")


def drawn(door: Door, chance: Random) -> Attack:
    """A genuine delivery with bytes changed: it is refused, or it is exactly the one that was signed."""
    id, body = f"drawn-{chance.getrandbits(60)}", BODY
    given = signed(id, body, door.clock)
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    data = bytearray(f"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        if chance.random() < 0.5:
            data[at] = chance.randrange(256)
        else:
            data[at:at + chance.choice([0, 1, 4])] = chance.choice(
                [b"\r\n", b"\n", b"\x00", b":", b" ", b"0", b"chunked", b"\r\n\r\n", b"{}", b"%2e", b"webhook-id: x\r\n"])

    async def attack() -> None:
        await asyncio.wait_for(said(door.port, bytes(data), 0.3), 5)
        for each in await listed(door.box, limit=1000):
            must(each["id"] != id or each["body"] == {"a": 1}, f"{each['body']} was kept under {id}")
        door.genuine.add((id, body.decode()))  # that it may have been left whole is fine
        await door.sound()

    return Attack("a genuine delivery with some bytes changed", attack)


AREA = Area(
    "webhook", "the door for webhooks, by forged deliveries and raw requests", place, attacks, drawn,
    (
        Planted("every signature fits", lambda: patch.object(signature_check, "hmac", Credulous), "a forged delivery"),
        Planted("every signature fits, seen by drawn deliveries", lambda: patch.object(signature_check, "hmac", Credulous),
                rounds=60),
    ),
)
