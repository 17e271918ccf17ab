"""One thing that cannot be read is one thing: it is skipped, counted and shown, and the others are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ...model.errors import ConnectorError
from ..values import Call

T = TypeVar("T")
R = TypeVar("R")


def readable(items: Iterable[T], show: Callable[[T], R], call: Call, what: str) -> list[R]:
    """What `show` makes of each. One that it fails on is left out, and the run keeps a warning that names it."""
    shown: list[R] = []
    for item in items:
        try:
            shown.append(show(item))
        except (ConnectorError, OSError, MemoryError):
            raise  # not its fault: it may be read the next time
        except Exception as error:
            call.skip(f"{what} {str(_name(item))[:80]} ({type(error).__name__})")
    return shown


def _name(item: object) -> object:
    """What a person finds it by."""
    if isinstance(item, Mapping):
        return item.get("id") or item.get("ts") or "without an id"
    return getattr(item, "uid", item)
