"""Skips items that cannot be read: each is counted and shown, and the other items are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ...model.errors import ConnectorError
from ..values import Call

T = TypeVar("T")
R = TypeVar("R")


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
