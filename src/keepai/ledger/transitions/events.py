"""Publishing, reserving, releasing and ending events; used inside other verbs' transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from ...model.codec import same, size
from ...model.errors import KeepError, LimitExceeded, Overtaken, Refused, RuleBroken
from ...model.fast_record import fast_record
from ...model.policy import Policy
from ...model.states import EventStatus, InputStatus
from ..account import as_facts
from ..base import Row, Tx
from . import kept_bytes, parking

#: Events that a ledger is asked to reserve before it is seen whether the first of them could be.
_RESERVED_AT_ONCE = 32

#: Why an event may begin as skipped.
BORN_SKIPPED = "every input behind it was skipped before it came"


@fast_record
@dataclass(frozen=True)
class Publication:
    """An event that a handler wants in a topic."""

    topic: str
    message_id: str
    payload: str
    causes: tuple[str, ...] = ()
    depth: int = 0  # how many consumers lie between it and the producer that began its chain


@fast_record
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
    known, new = 0, sum([kept_bytes.of_input(each.external_id, each.title) for each in inputs])
    inserted = [(entry, tx.hit_early(
        "input_insert", workflow_id=workflow_id, seq=seq, input_id=entry.input_id, source=entry.source, type=entry.type,
        external_id=entry.external_id, title=entry.title, run_id=run_id, now=tx.now,
    )) for seq, entry in _counted(tx, workflow_id, inputs, inputs=new)]
    for entry, is_new in inserted:
        if not is_new():
            known += kept_bytes.of_input(entry.external_id, entry.title)
            continue
        tx.tell(workflow_id, "input", entry.input_id, None, InputStatus.ACTIVE, facts=as_facts({
            "source": entry.source, "type": entry.type, "external_id": entry.external_id, "title": entry.title,
            "run": run_id,
        }))
    if known:
        tx.count(workflow_id, 0, inputs=-known)


def publish(
    tx: Tx, workflow_id: str, run_id: str, publications: Sequence[Publication],
    revisions_max: int = Policy.revisions_max, first: int | None = None, skipped: Set[str] = frozenset(),
) -> None:
    """Put events into topics: last write wins until a run has taken the event. Their numbers may be taken already,
    from `first` on, and their bytes counted as new. A new event whose inputs are all `skipped` is skipped from its
    beginning."""
    touched: dict[str, int] = {}
    numbered = enumerate(publications, first) if first is not None else _counted(
        tx, workflow_id, publications, events=bytes_of(publications))
    inserted = [_insert(tx, workflow_id, run_id, seq, entry, skipped) for seq, entry in numbered]
    for each in inserted:
        if _put(tx, workflow_id, run_id, each, revisions_max):
            touched[each.entry.topic] = each.seq
    for topic, seq in touched.items():
        tx.run("topic_touch", workflow_id=workflow_id, topic=topic, sequence=seq)
    if publications:
        _hold_for_parked(tx, workflow_id)


def bytes_of(publications: Sequence[Publication]) -> int:
    """How much these take if each is new in its topic."""
    return sum([kept_bytes.of_event(each.message_id, each.payload) for each in publications])


def skipped_causes(tx: Tx, workflow_id: str, publications: Sequence[Publication]) -> Set[str]:
    """The skipped inputs behind what a producer publishes."""
    if not publications or tx.one("input_skipped_any", workflow_id=workflow_id) is None:
        return frozenset()
    rows = [tx.one("input_by_id", input_id=each) for each in {cause for p in publications for cause in p.causes}]
    return {str(row["id"]) for row in rows if row and row["status"] == InputStatus.SKIPPED}


Entry = TypeVar("Entry")


def _counted(
    tx: Tx, workflow_id: str, entries: Sequence[Entry], *, events: int = 0, inputs: int = 0,
) -> Iterable[tuple[int, Entry]]:
    """Each with a number of the workflow's own sequence; their bytes are counted with it."""
    if not entries:
        return ()
    last = tx.tick(workflow_id, len(entries), events=events, inputs=inputs)
    return enumerate(entries, last - len(entries) + 1)


@fast_record
@dataclass(frozen=True)
class _Inserted:
    """An event as it was put into its topic, if there was none of that address."""

    entry: Publication
    seq: int
    event_id: str
    status: EventStatus
    is_new: Callable[[], int]


def _insert(
    tx: Tx, workflow_id: str, run_id: str, seq: int, entry: Publication, skipped: Set[str],
) -> _Inserted:
    is_skipped = bool(entry.causes) and skipped >= set(entry.causes)
    event_id, status = tx.new_id("evt"), EventStatus.SKIPPED if is_skipped else EventStatus.PENDING
    return _Inserted(entry, seq, event_id, status, tx.hit_early(
        "event_insert", workflow_id=workflow_id, seq=seq, event_id=event_id, topic=entry.topic,
        message_id=entry.message_id, payload=entry.payload, run_id=run_id, depth=entry.depth, now=tx.now, status=status,
    ))


def _put(tx: Tx, workflow_id: str, run_id: str, inserted: _Inserted, revisions_max: int) -> bool:
    """Whether there is something new to look at for the consumer of its topic."""
    entry, event_id, skip = inserted.entry, inserted.event_id, inserted.status is EventStatus.SKIPPED
    if inserted.is_new():
        facts = {"topic": entry.topic, "message_id": entry.message_id, "run": run_id}
        tx.tell(workflow_id, "event", event_id, None, inserted.status,
                facts=as_facts({**facts, "message": BORN_SKIPPED} if skip else facts))
        tx.many("cause_insert", [_cause(workflow_id, event_id, 1, each, 1) for each in entry.causes])
        return not skip
    known = tx.one("event_find", workflow_id=workflow_id, topic=entry.topic, message_id=entry.message_id)
    assert known is not None, "what was in the way of an insert is there"
    new = kept_bytes.of_event(entry.message_id, entry.payload)
    if known["status"] != EventStatus.PENDING or known["reserved_by"] is not None:
        grown = _hold(tx, known, run_id, entry, revisions_max)
        tx.count(workflow_id, 0, events=grown - new)
        return False
    revised, differs = _revise(tx, known, entry)
    grown = size(entry.payload) - size(known["payload"]) if revised else 0
    tx.count(workflow_id, 0, events=grown - new)
    return differs


def _tie(tx: Tx, workflow_id: str, event_id: str, causes: Sequence[str], attempt: int, revision: int) -> int:
    """Tie an event to the inputs behind it; how many it was not tied to yet."""
    return sum(
        tx.hits("cause_insert", **_cause(workflow_id, event_id, attempt, each, revision)) for each in causes)


def _cause(workflow_id: str, event_id: str, attempt: int, input_id: str, revision: int) -> dict[str, object]:
    return {"workflow_id": workflow_id, "event_id": event_id, "attempt": attempt, "input_id": input_id,
            "revision": revision}


def _revise(tx: Tx, event: Row, entry: Publication) -> tuple[bool, bool]:
    """Publish over an event that waits: whether that makes a revision, and whether its payload is another one.

    A further input makes a revision of its own even with the same payload: a run that had reserved the event and was
    given up was not caused by it."""
    workflow_id, event_id = event["workflow_id"], str(event["id"])
    joined = _tie(tx, workflow_id, event_id, entry.causes, event["attempt"], event["newest"] + 1)
    differs = not same(event["payload"], entry.payload)
    if joined or differs:
        _keep_pinned(tx, event)
        tx.expect(
            "event_revise", f"event {event_id} is taken", event_id=event_id, payload=entry.payload, depth=entry.depth,
            now=tx.now,
        )
        tx.tell(workflow_id, "revision", event_id, str(event["revision"]), str(event["newest"] + 1))
    return bool(joined or differs), differs


def _keep_pinned(tx: Tx, event: Row) -> None:
    """Before an event gets another revision, have the runs that had pinned it keep the payload that it has."""
    kept = tx.hits("reservation_keep", workflow_id=event["workflow_id"], event_id=event["id"])
    if kept:
        tx.count(event["workflow_id"], 0, runs=kept * size(event["payload"]))


def _hold(tx: Tx, event: Row, run_id: str, entry: Publication, revisions_max: int) -> int:
    """Keep a payload that came too late, with the inputs behind it, beside the frozen one: how many bytes more that
    makes, or fewer, because older ones go."""
    where = {"workflow_id": event["workflow_id"], "event_id": event["id"]}
    latest = tx.one("event_revision_latest", revision=event["revision"], **where)
    revision = int(latest["revision"] if latest else event["revision"])
    newest = (latest or event)["payload"]
    is_known = bool(newest) and same(newest, entry.payload)  # one that was pruned is empty
    if latest is None and is_known and all(
        tx.one("cause_known", attempt=event["attempt"], input_id=each, **where) for each in entry.causes
    ):
        return 0
    grown = 0
    if latest is None or not is_known:
        revision = event["newest"] + 1
        tx.run("event_revision_insert", revision=revision, payload=entry.payload, run_id=run_id, now=tx.now, **where)
        tx.run("event_number", event_id=event["id"], revision=revision)
        tx.tell(event["workflow_id"], "revision", event["id"], None, str(revision), run_id)
        dropped = tx.all("event_revision_trim", revisions_max=revisions_max, **where)
        grown = kept_bytes.ROW + size(entry.payload) - sum(kept_bytes.ROW + int(row["bytes"]) for row in dropped)
    attempt = event["attempt"] if event["reserved_by"] else 0
    for each in entry.causes:
        tx.run("held_cause_insert", revision=revision, input_id=each, attempt=attempt, **where)
    return grown


def touch(tx: Tx, workflow_id: str, topic: str) -> None:
    """Tell a topic's consumer that there is something to look at."""
    tx.run("topic_touch", workflow_id=workflow_id, topic=topic, sequence=tx.tick(workflow_id))


def skip(tx: Tx, workflow_id: str, event_id: str) -> bool:
    """Skip a waiting event; False if it does not wait. It is counted: whoever knows what waits at one
    number of the workflow knows that it is the same as long as nothing was."""
    if not tx.hits("event_skip", event_id=event_id, now=tx.now):
        return False
    tx.tell(workflow_id, "event", event_id, EventStatus.PENDING, EventStatus.SKIPPED)
    tx.tick(workflow_id)
    return True


def reserve(
    tx: Tx, workflow_id: str, run_id: str, wanted: Sequence[tuple[str, str]],
    bytes_max: int = Policy.run_bytes_max,
) -> list[Row]:
    """Pin every (topic, messageId), or none: the first that cannot be pinned, or for which there is no room, refuses
    them all. Gives what is pinned."""
    pinned: list[Row] = []
    left = bytes_max
    for position, (topic, message_id) in enumerate(wanted):
        address = {"workflow_id": workflow_id, "topic": topic, "message_id": message_id}
        if not position % _RESERVED_AT_ONCE:
            asked = [
                tx.ask_early("event_reserve", workflow_id=workflow_id, run_id=run_id, now=tx.now, topic=each[0],
                             message_id=each[1]) for each in wanted[position : position + _RESERVED_AT_ONCE]]
        event = next(iter(asked[position % _RESERVED_AT_ONCE]()), None)
        if event is None:
            raise _why_not(tx, run_id, tx.one("event_find", **address), topic, message_id)
        left -= size(message_id) + size(event["payload"])
        if left < 0:
            raise LimitExceeded(
                f"prepare reserved {len(wanted):,} events, and the first {len(pinned) + 1:,} of them have more than "
                f"{bytes_max:,} bytes, the limit (policy run_bytes_max). Reserve fewer per run."
            )
        tx.run("reservation_insert", workflow_id=workflow_id, run_id=run_id, position=position, **event)
        pinned.append(event)
    return pinned


def _why_not(tx: Tx, run_id: str, event: Row | None, topic: str, message_id: str) -> KeepError:
    """A person may skip an event while `prepare` runs; anything else is the script's fault."""
    if event is None:
        why = "there is no such event in this workflow"
    elif event["reserved_by"]:
        why = f"it is reserved by {event['reserved_by']}"
    elif event["held_by"]:
        why = f"it waits for run {event['held_by']}, which is parked"
    else:
        why = f"it is {event['status']}, not pending"
    said = f"prepare reserved {message_id!r} of topic {topic!r}, but {why}."
    if event is not None and event["status"] == EventStatus.SKIPPED and tx.one(
        "event_skipped_since", workflow_id=event["workflow_id"], event_id=event["id"], run_id=run_id,
    ) is not None:
        return Overtaken(f"{said} A person skipped it after this run had begun.", str(event["id"]))
    return RuleBroken(f"{said} Reserve only events that ctx.peek or ctx.getByIds returned in this run.")


def release(tx: Tx, workflow_id: str, run_id: str) -> None:
    """Let go of a run's events: they wait again, with the newest payload and all the inputs that came meanwhile."""
    for event in sorted(tx.all("event_release", run_id=run_id, now=tx.now), key=lambda row: row["id"]):
        latest = _newest(tx, workflow_id, event)
        if latest is not None:
            _adopt(tx, workflow_id, event, latest, reserved_in=event["attempt"])
        touch(tx, workflow_id, event["topic"])
        _hold_for_parked(tx, workflow_id)


def _hold_for_parked(tx: Tx, workflow_id: str) -> None:
    """What has become free, or has further inputs, may share one with a parked run. The workflow was counted in."""
    if tx.parked[workflow_id]:
        parking.hold_events(tx, workflow_id)


def reprocess(tx: Tx, workflow_id: str, event_id: str) -> bool:
    """Have an ended event processed once more, as a new attempt; False if it has not ended.

    It takes the newest payload that came meanwhile, with the inputs behind that; without one it is as it was."""
    before = tx.row("event_by_id", f"event {event_id} is gone", event_id=event_id)
    _check_content(tx, workflow_id, before)
    event = tx.one("event_reprocess", event_id=event_id, now=tx.now)
    if event is None:
        return False
    tx.tell(workflow_id, "event", event_id, before["status"], EventStatus.PENDING)
    _check_taken(tx, workflow_id, event_id, event["topic"])
    latest = _newest(tx, workflow_id, event)
    if latest is not None:
        _adopt(tx, workflow_id, event, latest, reserved_in=None)
    else:
        tx.run("cause_repeat", workflow_id=workflow_id, event_id=event_id, attempt=event["attempt"] - 1)
    taken_up = {"workflow_id": workflow_id, "event_id": event_id, "attempt": event["attempt"]}
    for taken in tx.all("input_take_up_of_event", now=tx.now, **taken_up):
        tx.tell(workflow_id, "input", taken["id"], InputStatus.SKIPPED, InputStatus.ACTIVE)
    touch(tx, workflow_id, event["topic"])
    _hold_for_parked(tx, workflow_id)
    return True


def _newest(tx: Tx, workflow_id: str, event: Row) -> Row | None:
    """The newest payload that came after the one that an event has, if it is still kept."""
    return tx.one(
        "event_revision_latest", workflow_id=workflow_id, event_id=event["id"], revision=event["revision"],
    )


def _adopt(tx: Tx, workflow_id: str, event: Row, latest: Row, reserved_in: int | None) -> None:
    """An event takes the newest payload with the inputs behind it, and those that came while it was reserved in an
    attempt."""
    revision, event_id = latest["revision"], event["id"]
    before = tx.one("event_by_id", event_id=event_id)
    assert before is not None, f"event {event_id} is being released"
    _keep_pinned(tx, before)
    tx.run("event_adopt", event_id=event_id, payload=latest["payload"], revision=revision, now=tx.now)
    tx.tell(workflow_id, "revision", event_id, str(before["revision"]), str(revision))
    tx.count(workflow_id, 0, events=size(latest["payload"]) - size(before["payload"]))
    held = {"workflow_id": workflow_id, "event_id": event_id, "revision": revision, "reserved_in": reserved_in}
    tx.run("held_cause_take", attempt=event["attempt"], **held)
    tx.run("held_cause_taken", **held)


def _check_taken(tx: Tx, workflow_id: str, event_id: str, topic: str) -> None:
    """An event that nobody takes would wait for ever, and nothing would say so."""
    row = tx.one("topic_get", workflow_id=workflow_id, topic=topic)
    if row is None or row["subscriber"] is None:
        raise Refused(
            f"Event {event_id} cannot be reprocessed: the active version has no consumer that takes {topic!r}. "
            "Deploy one that does, then say it again."
        )


def _check_content(tx: Tx, workflow_id: str, event: Row) -> None:
    """What a script would be given must still be there."""
    if event["payload"]:
        return
    if _newest(tx, workflow_id, event) is None:
        raise Refused(
            f"The payload of event {event['id']} was pruned, so it cannot be processed once more. "
            "If its producer publishes it again, it can."
        )
