"""How an input stands, from what the ledger says of its events and its item."""

from __future__ import annotations

from ..ledger.base import Row
from ..model.records import Event, Input, Mutation


def input_status(row: Row) -> str:
    """`pending` while something of it is not finished, then `skipped` or `done`."""
    if row["waiting"]:
        return "pending"
    return "skipped" if row["status"] == "skipped" or row["item_skipped"] else "done"


def input_record(
    row: Row, outputs: tuple[Mutation, ...] | None = None, events: tuple[Event, ...] | None = None,
) -> Input:
    """An input as it stands, with what came of it where that was looked up."""
    return Input(
        row["id"], row["workflow_id"], row["source"], row["type"], row["external_id"], row["title"], input_status(row),
        bool(row["needs_you"]), row["created_by"], row["created_at"], outputs, events,
    )
