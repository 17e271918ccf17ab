"""What the address of a list asks for, and the addresses of the next and the newest page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urlencode

from starlette.requests import Request

from ...model.clock import iso
from ...model.errors import NotFound
from ...reading.lists import ListFilter, ListPage

TEXT_MAX = 200

#: How far back a list can look, in the words of the form.
SPANS: Mapping[str, int | None] = {
    "": None, "1h": 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000,
}
SPAN_WORDS = {"": "any time", "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days"}


@dataclass(frozen=True)
class Filters:
    """What the form of a list says."""

    status: str
    time: str
    text: str
    before: int | None
    statuses: tuple[str, ...]
    handler: str
    handlers: Mapping[str, str]  # the choices with their words; a list without handlers has no such choice
    times: ClassVar[Mapping[str, str]] = SPAN_WORDS  # the choices of time, with their words

    @property
    def narrow(self) -> bool:
        """Whether anything is left out."""
        return bool(self.status or self.time or self.text or self.handler)

    def wanted(self, now_ms: int) -> ListFilter:
        """The same for the ledger."""
        span = SPANS[self.time]
        since = None if span is None else now_ms - span
        return ListFilter(self.status or None, since, self.text or None, self.before)


@dataclass(frozen=True)
class Paging:
    """The pages before and after this one."""

    newest: str | None
    older: str | None
    told: str


def filters(request: Request, statuses: tuple[str, ...], handlers: tuple[str, ...] = ()) -> Filters:
    """What the address asks for. A choice that the list does not have is refused: without it, the page would show
    everything under the name of a part."""
    asked = request.query_params
    return Filters(
        _choice(asked, "status", statuses), _choice(asked, "time", tuple(SPANS)),
        asked.get("text", "").strip()[:TEXT_MAX], place(asked.get("before", "")), statuses,
        _choice(asked, "handler", handlers), dict(zip(handlers, handlers, strict=True)),
    )


def _choice(asked: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    wanted = asked.get(name, "")
    if wanted and wanted not in known:
        choices = ", ".join(each for each in known if each) or "none"
        raise NotFound(f"This list has no {name} {wanted[:40]!r}. There are: {choices}.")
    return wanted


def place(text: str) -> int | None:
    """A place in a list, as an address has it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def paging(path: str, asked: Filters, listed: ListPage[Any], more: Mapping[str, str] = MappingProxyType({})) -> Paging:
    """The pages beside this one; `more` is what else the address asks for."""
    named = {**more, "status": asked.status, "handler": asked.handler, "time": asked.time, "text": asked.text}
    kept = {key: value for key, value in named.items() if value}
    here = f"{path}?{urlencode(kept)}" if kept else path
    older = f"{path}?{urlencode({**kept, 'before': listed.older})}" if listed.older is not None else None
    told = f"searched back to {iso(listed.searched_to_at)}" if listed.searched_to_at is not None else ""
    return Paging(here if asked.before is not None else None, older, told)
