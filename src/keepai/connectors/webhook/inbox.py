"""`ctx.<name>.list`: what others sent to this host. The host's listener hands each delivery to `accept`.

A delivery needs the signature of its sender, made within the window if that sender signs a time (`senders`). It is on
disk before the sender gets its answer, and a second delivery with the same id is not stored again. If the ledger
is in PostgreSQL, so are the deliveries: any host may take them in, and the host that runs the workflow reads them.
Nothing here opens a port.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NotRequired, TypedDict

from ...model.clock import Clock, SystemClock, iso
from ...model.codec import Json, check_size
from ...model.errors import (
    ConfigError,
    KeepError,
    LedgerError,
    PermissionDenied,
    PreconditionFailed,
    Refused,
    Rejected,
    Transient,
)
from ..base import Call, Connector, Page, read
from ..kit.blocking import in_thread
from ..kit.disk import nothing_happened
from ..kit.lenient_json import parse_json
from ..kit.pages import PAGE_BYTES, readable, size_of
from .base import Deliveries, Stored
from .senders import rule_of
from .signature_check import ID_MAX, GenuineDelivery, RefusedDelivery, judged, misspelt
from .spool import Spool

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
SECRETS_MAX = 5  #: that an inbox may have, each of which is tried
#: Of deliveries that were refused, one is told in the log in this time.
TOLD_EVERY_MS = 60_000

_log = getLogger(__name__)


class ListDeliveries(TypedDict):
    """After which cursor, and how many."""

    after: NotRequired[str | None]
    limit: NotRequired[int | None]


class GetDelivery(TypedDict):
    """Which delivery."""

    cursor: str


class Delivery(TypedDict):
    """What somebody sent: its body as JSON, or as text if it is not JSON."""

    id: str
    cursor: str
    receivedAt: str
    sentAt: str | None  # null if its sender does not sign a time
    contentType: str
    headers: dict[str, str]  # that say what it is, such as x-github-event; most senders do not sign them
    body: Any


@dataclass(frozen=True)
class Receipt:
    """The answer to a sender."""

    status: int
    text: str
    retry_after_s: int | None = None
    challenge: str | None = None  # what the sender asked to hear, in place of the text


class Inbox(Connector):
    """Takes in what others send: `type = "webhook.inbox"`.

    Senders post to `/hooks/NAME` on the address of `[keep] hooks`.

    path: the folder of the deliveries, one file each; you may delete old ones; not used with a ledger in PostgreSQL
    create: make the folder if it does not exist
    sender: who signs: standard (Standard Webhooks), github, stripe, slack, shopify, or hmac for any other
    hmac: how any other sender signs, such as { header = "x-signature", prefix = "sha256=" }
    signed_with: the names of its secrets; what is signed with any of them is taken, as while a secret is changed
    window_s: how many seconds old a delivery may be, if its sender signs a time
    bytes_max: how large a delivery may be
    per_minute: how many deliveries one host takes in a minute
    most: how many deliveries may be kept
    """

    input_types = ("delivery",)
    secrets: Mapping[str, str] = MappingProxyType({  # type: ignore[misc]
        "secret": "The secret with which the sender signs",
    })

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, create: bool = False, sender: str = "standard",
        hmac: dict[str, Any] | None = None, signed_with: list[str] | None = None, window_s: int = 300,
        bytes_max: int = 262_144, per_minute: int = 300, most: int = 100_000, name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name=name)
        if signed_with is not None:
            if not 0 < len(set(signed_with)) == len(signed_with) <= SECRETS_MAX:
                raise ConfigError(f"{self.name}: signed_with names one secret to {SECRETS_MAX}, each once.")
            self.secrets = dict.fromkeys(signed_with, type(self).secrets["secret"])
        self.sender, self._rule = sender, rule_of(self.name, sender, hmac)
        self.path = Path(path).expanduser().absolute() if path is not None else None
        self.account = str(self.path or "")
        self.bytes_max, self._window_s, self._per_minute = bytes_max, window_s, per_minute
        self._clock = clock or SystemClock()
        self.most = most
        self.deliveries: Deliveries | None = Spool(self.path, self._clock, most) if self.path else None
        self._accepted: deque[int] = deque()
        self._told_at: int | None = None
        self._came: asyncio.Event | None = None  # while a host listens
        if create and self.path:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep_in(self, deliveries: Deliveries) -> None:
        """Keep deliveries there, where every host finds them, and not in the folder."""
        self.deliveries, self.account, self.tells_all_hosts = deliveries, "", True

    def close(self) -> None:
        """Close the store; the next delivery opens it again."""
        if self.deliveries is not None:
            self.deliveries.close()

    async def check(self) -> str:
        """Check that the secret and the place exist. Only a delivery shows whether senders can reach the host."""
        for wrong in (misspelt(self._rule, self.secret(name)) for name in self.secrets):
            if wrong:
                raise PreconditionFailed(f"{wrong} Change one of them.")
        await asyncio.to_thread(self._place().check)
        place = "folder exist" if isinstance(self.deliveries, Spool) else "place in the ledger's database exist"
        its = "its secret" if len(self.secrets) == 1 else f"its secrets ({', '.join(self.secrets)})"
        signer = {"standard": "Standard Webhooks", "hmac": "its rule"}.get(self.sender, self.sender)
        return (f"it takes what is signed as by {signer}; {its} and {place}; only a delivery shows whether "
                "senders can reach this host")

    async def arrivals(self) -> AsyncGenerator[None]:
        """Yield when a delivery was stored."""
        self._came = came = asyncio.Event()
        while True:
            yield
            await came.wait()
            came.clear()

    def _place(self) -> Deliveries:
        if self.deliveries is None:
            raise PreconditionFailed(f"ctx.{self.name} has no place for deliveries. Name a folder: path, in keep.toml.")
        return self.deliveries

    @read
    async def list_(self, params: ListDeliveries, call: Call) -> Page[Delivery]:
        """Deliveries after a cursor, oldest first; `lastCursor` is where to continue; `more`: some follow."""
        after, limit = params.get("after") or "", params.get("limit") or LIMIT_DEFAULT
        if not 1 <= limit <= LIMIT_MAX or not (after == "" or (after.isascii() and after.isdecimal())):
            raise Rejected(f"limit must be between 1 and {LIMIT_MAX:,}, and after must be an earlier lastCursor.")
        return await asyncio.to_thread(self._listed, after, limit, call)

    @read(by_id=True)
    async def get(self, params: GetDelivery, call: Call) -> Delivery | None:
        """One delivery, or null if it is gone."""
        def look() -> Delivery | None:
            with _unharmed():
                shown = readable([params["cursor"]], self._shown, call, "the delivery")
            return shown[0] if shown else None
        return await asyncio.to_thread(look)

    async def accept(self, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Check and store a delivery. Header names are in lower case."""
        if len(body) > self.bytes_max:
            return Receipt(413, f"A delivery has at most {self.bytes_max:,} bytes.")
        secrets = self._secrets()
        if not secrets:
            return Receipt(503, "This host has no secret to check signatures with yet.", 60)
        found = judged(self._rule, secrets, headers, body)
        if isinstance(found, GenuineDelivery) and self._is_late(found):
            found = RefusedDelivery(401, f"The delivery is older than {self._window_s} seconds, or from the future.")
        if isinstance(found, RefusedDelivery):
            self._tell_owner(found)
            return Receipt(found.status, found.text)
        if found.challenge is not None:
            return Receipt(200, "", challenge=found.challenge)
        return await self._keep(found, headers.get("content-type", ""), body)

    def _secrets(self) -> dict[str, str]:
        """Those of its secrets that are stored, by name: while one is changed, the other may not be there yet."""
        stored = dict[str, str]()
        for name in self.secrets:
            with suppress(PermissionDenied):
                stored[name] = self.secret(name)
        return stored

    def _is_late(self, found: GenuineDelivery) -> bool:
        return found.sent_s is not None and abs(self._clock.now_ms() / 1000 - found.sent_s) > self._window_s

    def _tell_owner(self, refused: RefusedDelivery) -> None:
        """Say in the host's log what its sender heard: mostly, a secret was not copied right."""
        now = self._clock.steady_ms()
        if self._told_at is not None and now - self._told_at < TOLD_EVERY_MS:
            return
        self._told_at = now
        secret = next(iter(self.secrets))
        do = f"give its sender's secret anew (`keep secrets set {self.name} {secret}`) and look at this machine's clock"
        if refused.status == HTTPStatus.BAD_REQUEST:
            do = f"look whether its sender is {self.sender}, as keep.toml says"
        _log.warning("A delivery to ctx.%s was refused: %s If it was genuine, %s.", self.name, refused.text, do)

    async def _keep(self, found: GenuineDelivery, kind: str, body: bytes) -> Receipt:
        if not self._has_room():
            return Receipt(429, f"At most {self._per_minute} deliveries a minute.", 60)
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            return Receipt(415, "A delivery must be text in UTF-8.")
        sent = None if found.sent_s is None else found.sent_s * 1000
        stored = {"id": found.id, "received": self._clock.now_ms(), "sent": sent, "type": kind[:200],
                  "headers": dict(found.headers), "body": text, "signed_with": found.signed_with}
        try:
            added = await in_thread(lambda: self._place().add(found.id, stored))
        except (OSError, KeepError):
            added = "full"
        if added == "full":
            return Receipt(503, "The delivery cannot be stored now.", 60)
        self.tell_arrival()
        if self._rule.silent:
            return Receipt(200, "")
        return Receipt(202, "kept") if added == "new" else Receipt(200, "kept already")

    def tell_arrival(self) -> None:
        """Something was kept: who reads it runs at once."""
        if self._came is not None:
            self._came.set()

    def put_in(self, id: str, delivery: Stored) -> Literal["new", "known"]:
        """Keep what a person puts in by hand: it needs no signature, and comes now unless it says when it was sent."""
        text = delivery["body"]
        if len(id) > ID_MAX or not id.isprintable():
            raise Refused(f"The id of a delivery has at most {ID_MAX} characters, and can be printed.")
        check_size(text, "the data", self.bytes_max)
        now = self._clock.now_ms()
        added = self._place().add(id, {"sent": now, **delivery, "id": id, "received": now})
        if added == "full":
            raise Refused(f"ctx.{self.name} keeps {self.most:,} deliveries, as many as it may. Remove old ones first.")
        return added

    def find(self, named: str) -> Stored | None:
        """The delivery with an id or a cursor, if it is still kept."""
        place = self._place()
        return place.one(place.cursor_of(named) or named)

    def newest(self, most: int) -> list[Stored]:
        """The newest deliveries, oldest first."""
        place = self._place()
        return [found for cursor in place.newest(most) if (found := place.one(cursor)) is not None]

    def _has_room(self) -> bool:
        """Whether fewer than the allowed number came in the last minute. Only those with a right signature count."""
        now = self._clock.steady_ms()
        while self._accepted and self._accepted[0] <= now - 60_000:
            self._accepted.popleft()
        if len(self._accepted) >= self._per_minute:
            return False
        self._accepted.append(now)
        return True

    def _listed(self, after: str, limit: int, call: Call) -> Page[Delivery]:
        deliveries: list[Delivery] = []
        position, size = 0, 0
        with _unharmed():
            cursors, more = self._place().after(after, limit)
            while position < len(cursors) and size < PAGE_BYTES:
                for shown in readable(cursors[position : position + 1], self._shown, call, "the delivery"):
                    if shown is not None:  # otherwise it was deleted in the meantime
                        deliveries.append(shown)
                        size += size_of(shown)
                position += 1
        return Page(deliveries, lastCursor=cursors[position - 1] if position else after or None,
                    more=more or position < len(cursors))

    def _shown(self, cursor: str) -> Delivery | None:
        stored = self._place().one(cursor)
        return _delivery(stored) if stored else None


@contextmanager
def _unharmed() -> Iterator[None]:
    """Use around reads: a failed read is tried again later."""
    with nothing_happened("Deliveries cannot be read"):
        try:
            yield
        except LedgerError as error:
            raise Transient(f"Deliveries cannot be read: {error.message}") from error


def _delivery(stored: Stored) -> Delivery:
    body: Json = stored["body"]
    try:
        body = parse_json(stored["body"])
    except ValueError:
        pass
    return {
        "id": stored["id"], "cursor": stored["cursor"], "receivedAt": iso(stored["received"]),
        "sentAt": None if stored["sent"] is None else iso(stored["sent"]), "contentType": stored["type"],
        "headers": stored.get("headers", {}), "body": body,
    }
