"""Doing something to the ledger and taking it back: what a verb would do, found out by the verb itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .base import Ledger, Tx

T = TypeVar("T")


class _TakenBack(Exception):
    """Ends the transaction so that nothing of it stays; `result` is what it had come to."""

    def __init__(self, result: Any) -> None:
        super().__init__("it was only tried")
        self.result = result


async def taken_back(ledger: Ledger, verb: Callable[..., T], *args: Any) -> T:
    """What `verb` gives in a transaction that is rolled back. What the verb raises is raised."""
    def tried(tx: Tx) -> None:
        raise _TakenBack(verb(tx, *args))

    try:
        await ledger.write(tried)
    except _TakenBack as done:
        result: T = done.result
        return result
    raise AssertionError("a verb that raises is never committed")
