"""One page of results: how many items and bytes it may hold, and how items that cannot be read are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ...model.codec import encode
from ...model.errors import ConnectorError, Rejected
from ..values import Call

T = TypeVar("T")
R = TypeVar("R")

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


def readable(items: Iterable[T], show: Callable[[T], R], call: Call, noun: str) -> list[R]:
    """Apply `show` to each item. An item on which it fails is left out, and the run gets a warning that names it."""
    shown: list[R] = []
    for item in items:
        try:
            shown.append(show(item))
        except (ConnectorError, OSError, MemoryError):
            raise  # not the item's fault: it may be readable the next time
        except Exception as error:
            if isinstance(item, Mapping):
                id = item.get("id") or item.get("ts") or "without an id"
            else:
                id = getattr(item, "uid", item)
            call.skip(f"{noun} {str(id)[:80]} ({type(error).__name__})")
    return shown
