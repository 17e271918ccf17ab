"""What keeps deliveries: a folder (`spool`), or the database that holds the ledger (ledger/postgres/deliveries.py).

Both promise the same: a delivery is on disk when `add` returns; a repeated delivery is kept once; and a cursor never
passes a delivery that becomes visible later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

Stored = Mapping[str, Any]

#: What became of a delivery: it is new, it was already there, or no more may be kept.
Added = Literal["new", "known", "full"]


class Deliveries(Protocol):
    """The deliveries of one connector."""

    def check(self) -> None:
        """Raise an error of Keep if nothing can be kept here."""
        ...

    def add(self, id: str, delivery: Stored) -> Added:
        """Keep a delivery. When it returns, the delivery is on disk; if it raises, it may be."""
        ...

    def put(self, cursor: str, delivery: Stored) -> None:
        """Keep a delivery from another store, under the cursor that it had there."""
        ...

    def after(self, cursor: str, most: int) -> tuple[list[str], bool]:
        """The cursors of the deliveries after a cursor, oldest first, and whether more follow."""
        ...

    def newest(self, most: int) -> list[str]:
        """The cursors of the newest deliveries, oldest first."""
        ...

    def cursor_of(self, id: str) -> str | None:
        """The cursor of the delivery with an id, if there is one."""
        ...

    def one(self, cursor: str) -> Stored | None:
        """One delivery, or None if it is gone; ValueError if it is damaged."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


def carry(there: Deliveries, here: Deliveries) -> int:
    """Copy every delivery to another store, in order and under its cursor; gives how many there were."""
    cursor, number, more = "", 0, True
    while more:
        cursors, more = there.after(cursor, 1_000)
        for cursor in cursors:
            delivery = there.one(cursor)
            if delivery is not None:
                here.put(cursor, delivery)
                number += 1
    return number
