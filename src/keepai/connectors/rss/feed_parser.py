"""Parses a feed in its own process, because strangers wrote it (see `kit/parser_process.py`)."""

from __future__ import annotations

import asyncio
import calendar
import hashlib
import io
from collections.abc import Mapping
from typing import Any, TypedDict, cast

from ...model.clock import iso
from ...model.errors import PreconditionFailed
from ..egress import Response
from ..kit.html_text import text_of_html
from ..kit.pages import readable
from ..kit.parser_process import ParserProcess
from ..kit.texts import clean
from ..values import Call

CPU_S = 10  #: processor time that a feed may take; a large usual one takes one second
SEEN_MAX = 1_000  #: entries that are read from a feed, and that a cursor remembers
TEXT_MAX = 20_000
ID_MAX = 500


class FeedEntry(TypedDict):
    """An entry, with its text without markup."""

    id: str
    title: str
    link: str
    author: str
    date: str | None
    text: str


class ParsedFeed(TypedDict):
    """The content of a feed."""

    entries: list[FeedEntry]  # oldest first, each id once
    skipped: list[str]  # what could not be read


async def parsed(answer: Response, call: Call) -> list[FeedEntry]:
    """The entries of a feed, oldest first, each id once. Unreadable ones are skipped."""
    kind = answer.headers.get("content-type", "")[:200]
    with ParserProcess(f"{__name__}:entries_of", CPU_S) as parser:
        parsed_answer = await asyncio.to_thread(parser.read, answer.content, kind)
    if parsed_answer is None:
        raise PreconditionFailed(
            f"The feed could not be parsed within {parser.limits}. It may be broken on purpose: "
            "look at what its address returns, and use another feed."
        )
    if parsed_answer[0] is None:
        raise PreconditionFailed("The address does not return a feed.")
    feed = cast("ParsedFeed", parsed_answer[0])
    for skipped in feed["skipped"]:
        call.skip(skipped)
    return feed["entries"]


def entries_of(content: bytes, content_type: str) -> ParsedFeed | None:
    """The content of a feed; None if the bytes are not a feed."""
    import feedparser  # type: ignore[import-untyped]

    # As a stream: given bytes or text, the library guesses whether they name a file or a URL, and opens it.
    feed = feedparser.parse(io.BytesIO(content), response_headers={"content-type": content_type})
    if not feed.get("version"):
        return None
    skipped: list[str] = []
    by_id: dict[str, FeedEntry] = {}
    for entry in readable(feed.entries[:SEEN_MAX], _entry, Call(skip=skipped.append), "the entry"):
        by_id.setdefault(entry["id"], entry)
    dated = all(entry["date"] for entry in by_id.values())
    newest_first = list(by_id.values())
    ordered = sorted(newest_first, key=lambda e: e["date"] or "") if dated else newest_first[::-1]
    return {"entries": ordered, "skipped": skipped}


def _entry(entry: Mapping[str, Any]) -> FeedEntry:
    content = next((str(part.get("value", "")) for part in entry.get("content") or ()), str(entry.get("summary", "")))
    title, link = _line(entry.get("title")), _line(entry.get("link"))
    moment = entry.get("published_parsed") or entry.get("updated_parsed")
    given = clean(str(entry.get("id") or link or f"{title}\n{content}"))
    return {
        "id": given if len(given) <= ID_MAX else hashlib.sha256(given.encode()).hexdigest(),
        "title": title or "(no title)", "link": link, "author": _line(entry.get("author")),
        "date": iso(calendar.timegm(moment) * 1000) if moment else None,
        "text": clean(text_of_html(content))[:TEXT_MAX],
    }


def _line(value: Any) -> str:
    return " ".join(clean(text_of_html(str(value or ""))).split())[:1_000]
