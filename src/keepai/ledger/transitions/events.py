"""Publishing, reserving, releasing and ending events; used inside other verbs' transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...model.errors import Refused, RuleBroken
from ...model.light import light
from ..base import Row, Tx


@light
@dataclass(frozen=True)
class Publication:
    """An event that a handler wants in a topic."""

    topic: str
    message_id: str
    payload: str
    causes: tuple[str, ...] = ()


@light
@dataclass(frozen=True)
class Registration:
    """An input that a producer tells of."""

    input_id: str
    source: str
    type: str
    external_id: str
    title: str


def register(tx: Tx, workflow_id: str, run_id: str, inputs: Sequence[Registration]) -> None:
    """Keep inputs; one that is known already keeps its id and first title."""
    for seq, entry in _counted(tx, workflow_id, inputs):
        tx.run(
            "input_insert", workflow_id=workflow_id, seq=seq, input_id=entry.input_id,
            source=entry.source, type=entry.type, external_id=entry.external_id, title=entry.title,
            run_id=run_id, now=tx.now,
        )


def publish(
    tx: Tx, workflow_id: str, run_id: str, publications: Sequence[Publication], first: int | None = None,
) -> None:
    """Put events into topics: last write wins until somebody has taken the event. Their numbers may be taken already,
    from `first` on."""
    touched: dict[str, int] = {}
    numbered = _counted(tx, workflow_id, publications) if first is None else enumerate(publications, first)
    for seq, entry in numbered:
        event_id, is_news = _put(tx, workflow_id, run_id, seq, entry)
        for input_id in entry.causes:
            tx.run("cause_insert", workflow_id=workflow_id, event_id=event_id, input_id=input_id)
        if is_news:
            touched[entry.topic] = seq
    for topic, seq in touched.items():
        tx.run("topic_touch", workflow_id=workflow_id, topic=topic, sequence=seq)


Entry = TypeVar("Entry")


def _counted(tx: Tx, workflow_id: str, entries: Sequence[Entry]) -> Iterable[tuple[int, Entry]]:
    """Each with a number of the workflow's own sequence."""
    return enumerate(entries, tx.tick(workflow_id, len(entries)) - len(entries) + 1) if entries else ()


def _put(tx: Tx, workflow_id: str, run_id: str, seq: int, entry: Publication) -> tuple[str, bool]:
    """The event's id, and whether there is something to look at for whoever takes its topic."""
    event_id = tx.new_id("evt")
    if tx.run(
        "event_insert", workflow_id=workflow_id, seq=seq, event_id=event_id, topic=entry.topic,
        message_id=entry.message_id, payload=entry.payload, run_id=run_id, now=tx.now,
    ):
        return event_id, True
    return _put_again(tx, workflow_id, run_id, entry)


def _put_again(tx: Tx, workflow_id: str, run_id: str, entry: Publication) -> tuple[str, bool]:
    known = tx.one("event_find", workflow_id=workflow_id, topic=entry.topic, message_id=entry.message_id)
    assert known is not None, "what was in the way of an insert is there"
    event_id = str(known["id"])
    if known["status"] != "pending" or known["reserved_by"] is not None:
        _hold(tx, known, run_id, entry.payload)
        return event_id, False
    if known["payload"] == entry.payload:
        return event_id, False
    tx.expect("event_revise", f"event {event_id} is taken", event_id=event_id, payload=entry.payload, now=tx.now)
    return event_id, True


def _hold(tx: Tx, event: Row, run_id: str, payload: str) -> None:
    """Keep a payload that came too late beside the frozen one."""
    workflow_id, event_id = event["workflow_id"], event["id"]
    latest = tx.one("event_revision_latest", workflow_id=workflow_id, event_id=event_id)
    newest = latest["payload"] if latest else event["payload"]
    if payload == newest:
        return
    revision = (latest["revision"] if latest else event["revision"]) + 1
    tx.run(
        "event_revision_insert", workflow_id=workflow_id, event_id=event_id, revision=revision,
        payload=payload, run_id=run_id, now=tx.now,
    )


def touch(tx: Tx, workflow_id: str, topic: str) -> None:
    """Tell a topic's consumer that there is something to look at."""
    tx.run("topic_touch", workflow_id=workflow_id, topic=topic, sequence=tx.tick(workflow_id))


def skip(tx: Tx, workflow_id: str, event_id: str) -> bool:
    """Nothing shall come of a waiting event; False if it does not wait. It is counted: whoever knows what waits at one
    number of the workflow knows that it is the same as long as nothing was."""
    if not tx.run("event_skip", event_id=event_id, now=tx.now):
        return False
    tx.tick(workflow_id)
    return True


def reserve(
    tx: Tx, workflow_id: str, run_id: str, wanted: Sequence[tuple[str, str]],
) -> list[Row]:
    """Pin every (topic, messageId), or none: the first that cannot be pinned refuses them all. Gives what is pinned."""
    pinned = []
    for position, (topic, message_id) in enumerate(wanted):
        address = {"workflow_id": workflow_id, "topic": topic, "message_id": message_id}
        event = tx.one("event_waiting", **address)
        if event is None or not tx.run("event_reserve", event_id=event["event_id"], run_id=run_id, now=tx.now):
            raise RuleBroken(_why_not(tx.one("event_find", **address), topic, message_id))
        tx.run("reservation_insert", workflow_id=workflow_id, run_id=run_id, position=position, **event)
        pinned.append(event)
    return pinned


def _why_not(event: Row | None, topic: str, message_id: str) -> str:
    if event is None:
        why = "there is no such event in this workflow"
    elif event["reserved_by"]:
        why = f"it is reserved by {event['reserved_by']}"
    else:
        why = f"it is {event['status']}, not pending"
    return (
        f"prepare reserved {message_id!r} of topic {topic!r}, but {why}. "
        "Reserve only events that ctx.peek or ctx.getByIds returned in this run."
    )


def release(tx: Tx, workflow_id: str, run_id: str) -> None:
    """Let go of a run's events: they wait again, with the newest payload that came meanwhile."""
    for event in tx.all("event_release", run_id=run_id, now=tx.now):
        _offer_again(tx, workflow_id, event["id"], event["topic"])


def reprocess(tx: Tx, workflow_id: str, event_id: str) -> bool:
    """Have an ended event processed once more, as a new attempt; False if it has not ended."""
    _check_content(tx, workflow_id, event_id)
    event = tx.one("event_reprocess", event_id=event_id, now=tx.now)
    if event is None:
        return False
    _check_taken(tx, workflow_id, event_id, event["topic"])
    _offer_again(tx, workflow_id, event_id, event["topic"])
    return True


def _check_taken(tx: Tx, workflow_id: str, event_id: str, topic: str) -> None:
    """An event that nobody takes would wait for ever, and nothing would say so."""
    row = tx.one("topic_get", workflow_id=workflow_id, topic=topic)
    if row is None or row["subscriber"] is None:
        raise Refused(
            f"Event {event_id} cannot be reprocessed: the active version has no consumer that takes {topic!r}. "
            "Deploy one that does, then say it again."
        )


def _check_content(tx: Tx, workflow_id: str, event_id: str) -> None:
    """What a script would be given must still be there."""
    event = tx.one("event_by_id", event_id=event_id)
    if event is None or event["payload"]:
        return
    later = tx.one("event_revision_latest", workflow_id=workflow_id, event_id=event_id)
    if later is None or later["revision"] <= event["revision"]:
        raise Refused(
            f"The payload of event {event_id} was pruned, so it cannot be processed once more. "
            "If its producer publishes it again, it can."
        )


def _offer_again(tx: Tx, workflow_id: str, event_id: str, topic: str) -> None:
    latest = tx.one("event_revision_latest", workflow_id=workflow_id, event_id=event_id)
    if latest:
        tx.run("event_adopt", event_id=event_id, payload=latest["payload"], revision=latest["revision"], now=tx.now)
    touch(tx, workflow_id, topic)
