"""`ctx.<name>.entries`: what is new in one RSS or Atom feed.

The request repeats what the feed sent last time (`ETag`, `Last-Modified`), so that an unchanged feed costs nothing. The
cursor holds the ids of the entries that were seen, so a feed that changes its order or drops old entries shows nothing
as new. Strangers wrote the feed: it is parsed in its own process (`feed_parser`), markup is removed, and no link in it
is opened.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from ...model.errors import OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected, Transient
from ..base import Call, Connector, Page, read
from ..egress import Client, Response, Rules
from ..kit.pages import checked_limit
from ..kit.params import normal_url
from .feed_parser import SEEN_MAX, FeedEntry, parsed

LIMIT_DEFAULT = 100
LIMIT_MAX = 500
FEED_MAX = 4 << 20
_ACCEPT = "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.8, */*;q=0.1"


class ListEntries(TypedDict):
    """Which entries."""

    after: NotRequired[str | None]  # a `lastCursor`
    limit: NotRequired[int | None]


class Rss(Connector):
    """One feed, in RSS or Atom: `type = "rss"`.

    url: the address of the feed
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    """

    name = "rss"
    input_types = ("entry",)

    def __init__(self, url: str, *, networks: list[str] | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        under = Rules.under([url], networks or ())
        # A feed may redirect elsewhere; every address is checked.
        schemes, ports = under.schemes | {"https"}, under.ports | {443}
        self._client = Client(Rules(schemes=schemes, ports=ports, networks=under.networks, bytes_max=FEED_MAX))
        self._url, self.account = url, normal_url(url)

    async def check(self) -> None:
        """Check that the address returns a feed."""
        call = Call()
        await parsed(await self._ask(FeedCursor(), call), call)

    @read
    async def entries(self, params: ListEntries, call: Call) -> Page[FeedEntry]:
        """Entries that are new since a cursor, oldest first; without a cursor, all entries of the feed.

        `lastCursor` is where to continue; `more` says whether `limit` left some out.
        """
        limit = checked_limit(params.get("limit"), LIMIT_DEFAULT, LIMIT_MAX)
        cursor = FeedCursor.read(params.get("after"))
        answer = await self._ask(cursor, call)
        if answer.status == 304:
            return Page([], lastCursor=cursor.text, more=False)
        present = await parsed(answer, call)
        fresh = [entry for entry in present if _mark(entry["id"]) not in cursor.seen]
        shown, more = fresh[:limit], len(fresh) > limit
        return Page(shown, lastCursor=_after(cursor, present, shown, None if more else answer).text, more=more)

    async def _ask(self, cursor: FeedCursor, call: Call) -> Response:
        headers = {"Accept": _ACCEPT}
        headers |= {"If-None-Match": cursor.etag} if cursor.etag else {}
        headers |= {"If-Modified-Since": cursor.modified} if cursor.modified else {}
        try:
            answer = await self._client.get(self._url, call, headers=headers)
        except OutcomeUnknown as error:
            raise Transient(f"The feed could not be read: {error.message}") from None
        if answer.ok or (answer.status == 304 and len(headers) > 1):
            return answer
        message = f"The feed was answered with {answer.status}."
        if answer.status in (404, 410):
            raise PreconditionFailed(f"{message} It no longer exists.")
        if answer.status in (401, 403):
            raise PermissionDenied(f"{message} Keep may not read it.")
        raise Transient(message, retry_after=answer.retry_after())


@dataclass(frozen=True)
class FeedCursor:
    """What the feed sent last time, and digests of the entries that were returned."""

    etag: str = ""
    modified: str = ""
    seen: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str | None) -> FeedCursor:
        """A cursor, as `lastCursor` gave it."""
        if text is None:
            return cls()
        try:
            fields = json.loads(text)
            return cls(str(fields["etag"]), str(fields["modified"]), tuple(map(str, fields["seen"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Rejected("after must be a lastCursor of an earlier call.") from None

    @property
    def text(self) -> str:
        """The cursor as text, for scripts."""
        fields = {"etag": self.etag, "modified": self.modified, "seen": self.seen}
        return json.dumps(fields, separators=(",", ":"))


def _after(cursor: FeedCursor, entries: list[FeedEntry], shown: list[FeedEntry], answer: Response | None) -> FeedCursor:
    """The next cursor. The feed may answer "nothing new" only once all entries were returned (`answer`).

    Of the entries seen before, those that the feed still has are always kept: otherwise they would be new again.
    """
    present = {_mark(entry["id"]) for entry in entries}
    former = [mark for mark in cursor.seen if mark not in present]
    kept = [mark for mark in cursor.seen if mark in present] + [_mark(mark["id"]) for mark in shown]
    seen = tuple((former + kept)[-max(SEEN_MAX, len(kept)):])
    if answer is None:
        return FeedCursor(seen=seen)
    return FeedCursor(_header(answer, "etag"), _header(answer, "last-modified"), seen)


def _header(answer: Response, name: str) -> str:
    value = answer.headers.get(name, "")
    return value if len(value) <= 500 and value.isascii() and value.isprintable() else ""


def _mark(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()[:12]
