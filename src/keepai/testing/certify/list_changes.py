"""How the outside's lists change between two attempts: what a script must bear, because real lists do it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from ...connectors.base import Page

_ID = re.compile(r"(?:^|_|(?<=[a-z]))(?:id|Id|ID|key|path|link|cursor|order)$")
_WORDS = frozenset({"subject", "title", "name", "text", "message"})
_ADDRESS = re.compile(r"[^@\s<>]+@[^@\s<>]+\.[a-z]+")
_MARK = "-later"


class Change(StrEnum):
    """What becomes of a list."""

    GROWN = "grown"  #: an entry came in at its end
    GROWN_FIRST = "grown_first"  #: an entry came in at its beginning
    SHRUNK = "shrunk"  #: its first entry is gone
    REORDERED = "reordered"  #: its entries stand the other way round
    DOUBLED = "doubled"  #: every entry stands in it twice
    AGAIN = "again"  #: what was given before is given again, whatever cursor is asked for


def later(entry: Any) -> Any:
    """Another entry that could have come in after this one."""
    return {name: _other(name, value) for name, value in entry.items()} if isinstance(entry, dict) else entry


def _other(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return later(value)
    if isinstance(value, list):
        return [_other("", each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and _ID.search(name):
        return value + 1_000
    if not isinstance(value, str) or name == "to":
        return value
    if _ID.search(name):
        return value + _MARK
    if _ADDRESS.fullmatch(value):
        return f"later-{value}"
    return f"{value} (later)" if name in _WORDS else value


def changed(
    base: list[Any], how: Change | None, after: str | None, first: list[Any], known: frozenset[str],
) -> list[Any]:
    """What a read gives instead of `base` once its list has changed.

    `first` is the first list with entries that it gave, and `known` are the cursors and values that it gave: a cursor
    that it never gave finds nothing."""
    if how is Change.AGAIN:
        return _like(base, first)
    if how in (Change.GROWN, Change.GROWN_FIRST):
        return _grown(base, how, after, first, known)
    if how is Change.SHRUNK:
        return _like(base, list(base)[1:])
    if how is Change.REORDERED:
        return _like(base, list(base)[::-1])
    return _like(base, [each for each in base for _ in range(2)])


def _grown(base: list[Any], how: Change, after: str | None, first: list[Any], known: frozenset[str]) -> list[Any]:
    new, cursor = later(first[0]), cursor_of(first)
    if cursor is None:
        return _like(base, [*base, new] if how is Change.GROWN else [new, *base])
    if after == cursor + _MARK:
        return _like(base, [], lastCursor=after)
    if after is not None and after not in known:
        return _like(base, [], lastCursor=after)
    return _like(base, [*base, new] if how is Change.GROWN else [new, *base], lastCursor=cursor + _MARK)


def cursor_of(given: list[Any]) -> str | None:
    """Where a page says that the next read continues, if it does."""
    cursor = given.fields.get("lastCursor") if isinstance(given, Page) else None
    return cursor if isinstance(cursor, str) else None


def values_in(given: list[Any]) -> set[str]:
    """Everything that a script may take for a cursor: the cursor, and the plain values of the entries."""
    cursor = cursor_of(given)
    plain = {str(value) for entry in given if isinstance(entry, Mapping) for value in entry.values()
             if isinstance(value, str | int)}
    return plain | ({cursor} if cursor is not None else set())


def is_list(given: Any) -> bool:
    """Whether an answer is a list of things, which may change."""
    return isinstance(given, list) and all(isinstance(each, dict) for each in given)


def _like(base: list[Any], entries: list[Any], **fields: Any) -> list[Any]:
    if not isinstance(base, Page):
        return entries
    told = {**base.fields, **fields}
    if "total" in told:
        told["total"] = len(entries)
    return Page(entries, **told)
