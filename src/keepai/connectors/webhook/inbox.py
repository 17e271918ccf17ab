"""`ctx.<name>.list`: what others sent to this host. The host's listener hands each delivery to `accept`.

A delivery needs a signature over its id, its time and its body, made within the window. It is on disk before the sender
gets its answer, and a second delivery with the same id is not stored again. If the ledger
is in PostgreSQL, so are the deliveries: any host may take them in, and the host that runs the workflow reads them.
Nothing here opens a port.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NotRequired, TypedDict

from ...model.clock import Clock, SystemClock, iso
from ...model.codec import Json, check_size
from ...model.errors import (
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
from .signature import ID, SIGNATURE, TIME, fits
from .spool import Spool

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
ID_MAX = 200


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
    sentAt: str
    contentType: str
    body: Any


@dataclass(frozen=True)
class Receipt:
    """The answer to a sender."""

    status: int
    text: str
    retry_after_s: int | None = None


class Inbox(Connector):
    """Takes in what others send: `type = "webhook.inbox"`.

    Senders post to `/hooks/NAME` on the address of `[keep] hooks`.

    path: the folder of the deliveries, one file each; you may delete old ones; not used with a ledger in PostgreSQL
    create: make the folder if it does not exist
    window_s: how many seconds old a delivery may be
    bytes_max: how large a delivery may be
    per_minute: how many deliveries one host takes in a minute
    most: how many deliveries may be kept
    """

    input_types = ("delivery",)
    secrets = MappingProxyType({"secret": "The secret with which the sender signs"})

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, create: bool = False, window_s: int = 300,
        bytes_max: int = 262_144, per_minute: int = 300, most: int = 100_000, name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name=name)
        self.path = Path(path).expanduser().absolute() if path is not None else None
        self.account = str(self.path or "")
        self.bytes_max, self._window_s, self._per_minute = bytes_max, window_s, per_minute
        self._clock = clock or SystemClock()
        self.most = most
        self.deliveries: Deliveries | None = Spool(self.path, self._clock, most) if self.path else None
        self._accepted: deque[int] = deque()
        if create and self.path:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep_in(self, deliveries: Deliveries) -> None:
        """Keep deliveries there, where every host finds them, and not in the folder."""
        self.deliveries, self.account = deliveries, ""

    def close(self) -> None:
        """Close the store; the next delivery opens it again."""
        if self.deliveries is not None:
            self.deliveries.close()

    async def check(self) -> str:
        """Check that the secret and the place exist. Only a delivery shows whether senders can reach the host."""
        self.secret("secret")
        await asyncio.to_thread(self._place().check)
        place = "folder exist" if isinstance(self.deliveries, Spool) else "place in the ledger's database exist"
        return f"its secret and {place}; only a delivery shows whether senders can reach this host"

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
        id, sent, given = (headers.get(name, "") for name in (ID, TIME, SIGNATURE))
        if not (0 < len(id) <= ID_MAX and id.isprintable() and sent.isascii() and sent.isdecimal() and len(sent) < 14):
            return Receipt(400, f"{ID}, {TIME} and {SIGNATURE} are needed.")
        if len(body) > self.bytes_max:
            return Receipt(413, f"A delivery has at most {self.bytes_max:,} bytes.")
        try:
            genuine = fits(self.secret("secret"), id, int(sent), body, given)
        except PermissionDenied:
            return Receipt(503, "This host has no secret to check signatures with yet.", 60)
        if not genuine:
            return Receipt(401, "The signature is wrong.")
        if abs(self._clock.now_ms() / 1000 - int(sent)) > self._window_s:
            return Receipt(401, f"The delivery is older than {self._window_s} seconds, or from the future.")
        return await self._keep(id, int(sent), headers.get("content-type", ""), body)

    async def _keep(self, id: str, sent: int, kind: str, body: bytes) -> Receipt:
        if not self._has_room():
            return Receipt(429, f"At most {self._per_minute} deliveries a minute.", 60)
        now = self._clock.now_ms()
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            return Receipt(415, "A delivery must be text in UTF-8.")
        stored = {"id": id, "received": now, "sent": sent * 1000, "type": kind[:200], "body": text}
        try:
            added = await in_thread(lambda: self._place().add(id, stored))
        except (OSError, KeepError):
            added = "full"
        if added == "full":
            return Receipt(503, "The delivery cannot be stored now.", 60)
        return Receipt(202, "kept") if added == "new" else Receipt(200, "kept already")

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
        "sentAt": iso(stored["sent"]), "contentType": stored["type"], "body": body,
    }
