"""Named places where a test may stop the process: before and after each commit and each outside call.

In production there is no listener, and `reach` is a single test.
"""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[str], None] | None = None


def listen(listener: Callable[[str], None] | None) -> None:
    """Call `listener` with the name of every point that is reached; None removes it."""
    global _listener
    _listener = listener


def reach(name: str) -> None:
    """Report that execution is at the point `name`."""
    if _listener is not None:
        _listener(name)


def heard() -> bool:
    """Whether there is a listener. If not, names need not be made."""
    return _listener is not None
