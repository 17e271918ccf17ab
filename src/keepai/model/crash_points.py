"""Named places where a test may stop the process: before and after each commit and each outside call.

In production nobody listens and `reach` is one truth test.
"""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[str], None] | None = None


def listen(listener: Callable[[str], None] | None) -> None:
    """Have `listener` called with the name of every point that is reached; None ends it."""
    global _listener
    _listener = listener


def reach(name: str) -> None:
    """Say that execution is at the point `name`."""
    if _listener is not None:
        _listener(name)


def heard() -> bool:
    """Whether anybody listens: if not, no names need be made."""
    return _listener is not None
