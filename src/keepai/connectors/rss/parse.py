"""Parses a feed in a process of its own, which has little time, little memory and no secret.

A feed is a stranger's text, and the library that knows all kinds of feeds takes quadratic time on some: parsed in the
host, one feed of 4 MB would hold every workflow for minutes.
"""

from __future__ import annotations

import asyncio
import calendar
import hashlib
import io
import json
import sys
from collections.abc import Mapping
from typing import Any, TypedDict

from ...model.clock import iso
from ...model.errors import PreconditionFailed
from ..egress import Answer
from ..kit.markup import text_of_html
from ..kit.message import clean

CPU_S = 10  #: processor time that a feed may take; a large one of the usual kind takes one second
WAIT_S = 25.0  #: for its end, on a busy machine
MEMORY_BYTES = 1 << 30
SEEN_MAX = 1_000  #: entries that are read of a feed, and that a cursor remembers
TEXT_MAX = 20_000
ID_MAX = 500


class Entry(TypedDict):
    """An entry; its text is without markup."""

    id: str
    title: str
    link: str
    author: str
    date: str | None
    text: str


async def parsed(answer: Answer) -> list[Entry]:
    """The entries of a feed, oldest first, each id once."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", __name__, answer.headers.get("content-type", "")[:200], env={},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            said, _ = await process.communicate(answer.content)
    except TimeoutError:
        said = b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise PreconditionFailed(
            f"The feed could not be read within {CPU_S} s and {MEMORY_BYTES >> 20:,} MiB. It may be broken on purpose: "
            "look at what its address gives, and name another feed."
        )
    found: list[Entry] | None = json.loads(said)
    if found is None:
        raise PreconditionFailed("What the address gives is no feed.")
    return found


def _main() -> None:
    """Read a feed from stdin, under limits, and write its entries, or null if it is none."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    json.dump(entries_of(sys.stdin.buffer.read(), sys.argv[1]), sys.stdout)


def entries_of(content: bytes, content_type: str) -> list[Entry] | None:
    """What stands in a feed; None if it is none."""
    import feedparser  # type: ignore[import-untyped]

    # As a stream: of bytes and texts it would guess whether they name a file or an address, and open that.
    feed = feedparser.parse(io.BytesIO(content), response_headers={"content-type": content_type})
    if not feed.get("version"):
        return None
    found: dict[str, Entry] = {}
    for each in feed.entries[:SEEN_MAX]:
        entry = _entry(each)
        found.setdefault(entry["id"], entry)
    dated = all(each["date"] for each in found.values())
    newest_first = list(found.values())
    return sorted(newest_first, key=lambda e: e["date"] or "") if dated else newest_first[::-1]


def _entry(each: Mapping[str, Any]) -> Entry:
    content = next((str(part.get("value", "")) for part in each.get("content") or ()), str(each.get("summary", "")))
    title, link = _line(each.get("title")), _line(each.get("link"))
    moment = each.get("published_parsed") or each.get("updated_parsed")
    given = clean(str(each.get("id") or link or f"{title}\n{content}"))
    return {
        "id": given if len(given) <= ID_MAX else hashlib.sha256(given.encode()).hexdigest(),
        "title": title or "(no title)", "link": link, "author": _line(each.get("author")),
        "date": iso(calendar.timegm(moment) * 1000) if moment else None,
        "text": clean(text_of_html(content))[:TEXT_MAX],
    }


def _line(value: Any) -> str:
    return " ".join(clean(text_of_html(str(value or ""))).split())[:1_000]


if __name__ == "__main__":
    _main()
