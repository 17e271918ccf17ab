"""Limits of one page of results: how many items a script may ask for, and how many bytes a page may hold."""

from __future__ import annotations

from ...model.codec import encode
from ...model.errors import Rejected

#: A page ends once it holds this many bytes, so that hostile content cannot make a result too large for a script.
PAGE_BYTES = 1 << 20


def checked_limit(limit: int | None, default: int, most: int) -> int:
    """The `limit` of a script, or the default if it gave none; `Rejected` if it is out of range."""
    if limit is not None and not 1 <= limit <= most:
        raise Rejected(f"limit must be between 1 and {most:,}, not {limit}.")
    return limit or default


def size_of(item: object) -> int:
    """The size of an item as JSON, in bytes."""
    return len(encode(item).encode())
