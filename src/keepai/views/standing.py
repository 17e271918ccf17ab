"""How an input stands, from what the ledger says of its events and its item."""

from __future__ import annotations

from ..ledger.base import Row
from ..model.codec import stored
from ..model.records import Event, Held, Input, Mutation
from ..model.states import EventStatus


def input_status(row: Row) -> str:
    """`pending` while something of it is not finished, then `skipped`, `late` or `done`."""
    if row["waiting"]:
        return "pending"
    if row["status"] == "skipped" or row["item_skipped"]:
        return "skipped"
    return "late" if row["late"] else "done"


def input_record(
    row: Row, outputs: tuple[Mutation, ...] | None = None, events: tuple[Event, ...] | None = None,
    held: tuple[Held, ...] | None = None,
) -> Input:
    """An input as it stands, with what came of it where that was looked up."""
    return Input(
        row["id"], row["workflow_id"], row["source"], row["type"], row["external_id"], row["title"], input_status(row),
        bool(row["needs_you"]), row["created_by"], row["created_at"], outputs, events, held,
    )


def event_record(row: Row, held: tuple[Held, ...] | None = None) -> Event:
    """An event as people see it."""
    return Event(
        id=row["id"], workflow_id=row["workflow_id"], topic=row["topic"], message_id=row["message_id"],
        payload=stored(row["payload"]) if row["payload"] else None, status=EventStatus(row["status"]),
        reserved_by=row["reserved_by"], created_by=row["created_by"], caused_by=_ids(row["causes"], row["joined"]),
        attempt=row["attempt"], revision=row["revision"], revisions_held=row["held"],
        revisions_dropped=row["newest"] - row["revision"] - row["held"], created_at=row["created_at"],
        pruned=not row["payload"], held=held,
    )


def held_record(row: Row) -> Held:
    """A payload that came too late for its event, as people see it."""
    return Held(
        row["event_id"], row["revision"], stored(row["payload"]) if row["payload"] else None, _ids(row["causes"]),
        row["created_by"], row["created_at"], pruned=not row["payload"],
    )


def _ids(*listed: str | None) -> tuple[str, ...]:
    return tuple(sorted({each for text in listed if text for each in text.split(",")}))
