"""An input, an event or a late payload as people see it, from its row; and the consumers that leave what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engine.next_step import manifest_of
from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..model.codec import stored
from ..model.records import Event, Gap, Held, Input, Mutation
from ..model.states import EventStatus
from .wording import run_stands

#: A consumer that has taken newer events this often, and not the oldest, is shown as leaving it.
_PASSED_OVER_MIN = 10


def kept_row(read: Reader, statement: str, **by_id: str) -> Row:
    """The row with an id that another row names; such rows are never deleted."""
    row = read.one(statement, **by_id)
    assert row is not None, f"{by_id} is never deleted"
    return row


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
    """An input with its status, and with its outputs, events and late payloads where these were looked up."""
    return Input(
        row["id"], row["workflow_id"], row["source"], row["type"], row["external_id"], row["title"], input_status(row),
        bool(row["needs_you"]), row["created_by"], row["created_at"], outputs, events, held,
    )


def takers_of(read: Reader, workflow: Row) -> dict[str, str]:
    """Topic → the consumer that takes its events."""
    manifest = manifest_of(read, workflow)
    found = {topic: manifest.subscriber(topic) for topic in manifest.topics}
    return {topic: handler.name for topic, handler in found.items() if handler}


def waits_for(read: Reader, input: Input, takers: Mapping[str, str]) -> list[tuple[str, str]]:
    """What an input with its events still waits for: each time in words, and with the id of what to look at."""
    waiting = [event for event in input.events or ()
               if event.status is EventStatus.PENDING and event.topic in takers]  # others are results
    told = [_held_by(read, event.reserved_by) if event.reserved_by else (f"waits for {takers[event.topic]}", event.id)
            for event in waiting]
    item = read.one("look_item_of_input", input_id=input.id) if input.status == "pending" else None
    if item is not None and item["held_by"]:
        told.append(_held_by(read, item["held_by"]))
    elif item is not None:
        left = item["status"] == "failed"
        told.append((f"{item['handler']} left it unfinished" if left else f"waits for {item['handler']}", item["id"]))
    return told


def _held_by(read: Reader, run_id: str) -> tuple[str, str]:
    run = run_record(kept_row(read, "run_by_id", run_id=run_id))
    return f"{run.handler} {run_stands(run.status)}{f': {run.error.message}' if run.error else ''}", run.id


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


def looks_at(read: Reader, event: Row, consumer: str) -> Row:
    """How often a consumer has looked since a waiting event came and left it (`looks`), and when last (`last_at`)."""
    row = read.one(
        "look_left", workflow_id=event["workflow_id"], handler=consumer, seq=event["seq"], since_at=event["updated_at"],
    )
    assert row is not None, "a count is always one row"
    return row


def left_by_consumers(read: Reader, handlers: Sequence[Row]) -> list[Gap]:
    """The consumers that have seen their oldest waiting event and do not take it.

    One that says when it looks again (`wakeAt`) waits on purpose."""
    found = []
    for handler in handlers:
        if handler["kind"] != "consumer" or handler["oldest"] is None or handler["observed"] is None:
            continue
        event = read.one("look_event_at", workflow_id=handler["workflow_id"], seq=handler["oldest"])
        if event is None or event["seq"] > handler["observed"]:
            continue
        left = looks_at(read, event, handler["handler"])
        least = 1 if handler["wake_at"] is None and not handler["progressed"] else _PASSED_OVER_MIN
        if left["looks"] >= least:
            found.append(Gap(handler["handler"], event["updated_at"], left["last_at"], left["looks"]))
    return found
