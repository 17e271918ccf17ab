"""How an input stands, from what the ledger says of its events and its item."""

from __future__ import annotations

from ..ledger.base import Row


def input_status(row: Row) -> str:
    """`pending` while something of it is not finished, then `skipped` or `done`."""
    if row["waiting"]:
        return "pending"
    return "skipped" if row["status"] == "skipped" or row["item_skipped"] else "done"
