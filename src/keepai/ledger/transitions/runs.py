"""The life of a run: begin, prepare, go on, stop, carry on, commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...model.codec import size, stored
from ...model.errors import Conflict, KeepError
from ...model.fast_record import fast_record
from ...model.policy import Policy
from ...model.records import Mutation, Run, Traced
from ...model.states import (
    ApprovalStatus,
    EventStatus,
    ItemStatus,
    Phase,
    Reason,
    RepairStatus,
    Status,
    WorkflowStatus,
)
from ..account import as_facts, brief
from ..base import Reader, Row, Tx
from ..rows import open_runs, run_record
from . import events, items, kept_bytes, parking, recordings
from .events import Publication, Registration
from .recordings import Recorded


@fast_record
@dataclass(frozen=True)
class Begin:
    """A first attempt at a handler."""

    workflow_id: str
    handler: str
    kind: str
    version: tuple[int, int]
    phase: Phase
    trigger: str
    gap: tuple[int, int] | None = None
    due_at: int | None = None  # the cron time that it is for
    next_run_at: int | None = None  # when its handler is due after that


@fast_record
@dataclass(frozen=True)
class Prepared:
    """What prepare decided."""

    at: int  # when it began to: the time that `mutate` sees
    text: str  # the PrepareResult
    wanted: Sequence[tuple[str, str]]  # what it reserves: (topic, messageId)
    bytes_max: int = Policy.run_bytes_max  # that these may have together
    recorded: Recorded | None = None  # what it was given


@dataclass(frozen=True)
class Stop:
    """Why and how a run stops."""

    status: Status
    reason: Reason
    error: str
    retry_at: int | None = None
    failures: int = 0
    exhausted: bool = False
    item: ItemStatus | None = None  # what the item becomes in which it stops; None: it stays as it is


@dataclass(frozen=True)
class Carry:
    """How a new run carries on from an old one."""

    leaves: Status  # what the old run becomes
    version: tuple[int, int]
    phase: Phase
    keep: bool  # PrepareResult and reservations move along; otherwise the events are released
    trigger: str
    failures: int = 0


@fast_record
@dataclass(frozen=True)
class ConsumerEnd:
    """What a consumer's committed run leaves behind."""

    publications: tuple[Publication, ...] = ()
    depth: int = 0  # of what it publishes, in its chain of events
    revisions_max: int = Policy.revisions_max  # how many payloads that came too late are kept of one event
    state: str | None = None
    state_grows: int = 0  # by so many bytes
    wake_at: int | None = None
    recheck_at: int | None = None
    trace: Sequence[Traced] = field(default=())
    recorded: Recorded | None = None  # what `next` was given


@fast_record
@dataclass(frozen=True)
class Follows:
    """What begins in the commit in which a run ends, if nobody has counted in the workflow since it was decided."""

    new: Begin
    sequence: int  # of the workflow when it was decided


#: Numbers of its workflow's sequence that a run takes: its own, and the one after it for a consumer's one mutation.
NUMBERS = 2


def begin(tx: Tx, new: Begin, counted: Row | None = None) -> Run:
    """Start a handler: the run exists before any of its code runs. Its numbers may have been `counted` before in the
    same transaction."""
    at = counted or tx.count(new.workflow_id, NUMBERS)
    if (at["status"], at["major"], at["minor"]) != (WorkflowStatus.ACTIVE, *new.version):
        raise Conflict("Nothing was changed: the workflow is no longer active at that version.")
    parking.check_begin(tx, at, new.handler, new.kind)
    run_id, sequence = tx.new_id("run"), _own_number(at["sequence"])
    run = _insert(tx, Run(
        id=run_id, workflow_id=new.workflow_id, seq=sequence, handler=new.handler, kind=new.kind,
        version=f"{new.version[0]}.{new.version[1]}", trigger=new.trigger, retry_of=None, lineage=run_id, attempt=1,
        phase=new.phase, state=Status.ACTIVE, reason=None, prepare_result=None, prepared_at=None, outcome=None,
        error=None, retry_at=None, failures=0, exhausted=False, observed=sequence, host=tx.host, epoch=tx.epoch,
        created_at=tx.now, updated_at=tx.now, due_at=new.due_at,
    ))
    if new.kind != "consumer":
        since, until = new.gap or (None, None)
        tx.run(
            "handler_started", workflow_id=new.workflow_id, handler=new.handler, now=tx.now,
            gap_since_at=since, gap_until_at=until, next_run_at=new.next_run_at,
        )
    return run


def _own_number(last: int) -> int:
    return last - NUMBERS + 1


def last_number(run: Run) -> int:
    """The workflow's sequence when a run began. While it is still there, nobody has counted in the workflow: grants,
    events and what was sent are as they were."""
    return run.seq + NUMBERS - 1


def _insert(tx: Tx, run: Run) -> Run:
    run = moved(run, bytes=run.bytes + kept_bytes.of_run(run))
    tx.run("run_insert", **vars(run), **_version(run))
    begun = as_facts({"handler": run.handler, "version": run.version, "trigger": run.trigger, "retry_of": run.retry_of})
    tx.tell(run.workflow_id, "status", run.id, None, run.state, facts=begun)
    tx.tell(run.workflow_id, "phase", run.id, None, run.phase)
    return run


def prepare(
    tx: Tx, run: Run, prepared: Prepared, trace: Sequence[Traced], target: Phase = Phase.PREPARED,
    outcome: str | None = None,
) -> tuple[Run, list[Row]]:
    """Pin what prepare decided: its result, its reservations and the phase, or nothing; then go on to `target`. Gives
    the events as they are pinned too."""
    try:
        pinned = events.reserve(tx, run.workflow_id, run.id, prepared.wanted, prepared.bytes_max)
    except KeepError:
        now = get(tx, run.id)
        if (now.state, now.phase, now.epoch) != (Status.ACTIVE, Phase.PREPARING, tx.epoch):
            why = _no_longer(run)  # then it does not matter what it wanted
            raise Conflict(f"Nothing was changed: {why}.") from None
        raise
    kept = run.bytes + size(prepared.text) + kept_bytes.of_pinned(pinned) + size(outcome) + kept_bytes.of_trace(trace)
    decided = {"prepare_result": prepared.text, "prepared_at": prepared.at, "outcome": outcome, "bytes": kept}
    _expect(tx, "run_prepared", run, target=target, **decided)
    tx.tell(run.workflow_id, "phase", run.id, Phase.PREPARING, Phase.PREPARED, facts=brief(prepared.text))
    if target is not Phase.PREPARED:
        tx.tell(run.workflow_id, "phase", run.id, Phase.PREPARED, target)
    keep_trace(tx, run.workflow_id, trace)
    recordings.keep(tx, run, prepared.recorded)
    return moved(run, phase=target, updated_at=tx.now, **decided), pinned


def advance(
    tx: Tx, run: Run, target: Phase, outcome: str | None = None, trace: Sequence[Traced] = (),
    through: Phase | None = None,
) -> Run:
    """Go forward one phase, or two: `through` another."""
    kept = run.bytes + size(outcome) + kept_bytes.of_trace(trace)
    _expect(tx, "run_phase", run, source=run.phase, target=target, outcome=outcome, bytes=kept)
    if through is not None:
        tx.tell(run.workflow_id, "phase", run.id, run.phase, through)
    if target is not run.phase:
        tx.tell(run.workflow_id, "phase", run.id, through or run.phase, target)
    keep_trace(tx, run.workflow_id, trace)
    new = run.outcome if outcome is None else outcome
    return moved(run, phase=target, outcome=new, updated_at=tx.now, bytes=kept)


def moved(run: Run, **changed: object) -> Run:
    """A run as its row is now, put together as one: `replace` would take ten times as long, and every run moves some
    five times."""
    moved = object.__new__(Run)
    moved.__dict__.update({**run.__dict__, **changed})
    return moved


def stop(
    tx: Tx, run: Run, why: Stop, trace: Sequence[Traced] = (), recorded: Recorded | None = None,
) -> None:
    """A failure: the status says why, the phase stays. A run whose call is on record is in doubt, and stops as that."""
    if tx.one("mutation_under_way", workflow_id=run.workflow_id, run_id=run.id) is not None:
        raise Conflict(f"Nothing was changed: a call of run {run.id} is on record without an outcome.")
    halt(tx, moved(run, bytes=run.bytes + kept_bytes.of_trace(trace)), why)
    keep_trace(tx, run.workflow_id, trace)
    recordings.keep(tx, run, recorded)


def halt(tx: Tx, run: Run, why: Stop) -> None:
    """The part of `stop` that other verbs share."""
    _expect(
        tx, "run_stop", run, status=why.status, reason=why.reason, error=why.error, retry_at=why.retry_at,
        failures=why.failures, exhausted=int(why.exhausted), phase=run.phase, bytes=run.bytes,
    )
    _tell_stop(tx, run, Status.ACTIVE, why)
    items.stop(tx, run, why.item)


def rest(tx: Tx, run: Run, why: Stop) -> None:
    """A run that waits for an outcome waits for something else from now on."""
    tx.expect(
        "run_restop", f"run {run.id} no longer waits for an outcome", run_id=run.id, status=why.status,
        reason=why.reason, error=why.error, retry_at=why.retry_at, failures=why.failures,
        exhausted=int(why.exhausted), now=tx.now,
    )
    if why.status is not Status.PAUSED:
        _tell_stop(tx, run, Status.PAUSED, why)
    elif why.reason is not Reason.RECONCILIATION:
        tx.tell(run.workflow_id, "reason", run.id, Reason.RECONCILIATION, why.reason, facts=why.error)
    items.stop(tx, run, why.item)


def _tell_stop(tx: Tx, run: Run, source: Status, why: Stop) -> None:
    error = stored(why.error)
    assert isinstance(error, dict), why
    tx.tell(run.workflow_id, "status", run.id, source, why.status, facts=as_facts({**error, "reason": why.reason}))


def carry_on(tx: Tx, run: Run, how: Carry) -> Run:
    """A new run takes the place of a stopped one, with its pinned inputs or without, in one step."""
    tx.expect(
        "run_leave", f"run {run.id} is no longer {run.state}", run_id=run.id, source=run.state,
        target=how.leaves, parked=run.parked, now=tx.now,
    )
    tx.tell(run.workflow_id, "status", run.id, run.state, how.leaves)
    void(tx, run)
    if not how.keep:
        events.release(tx, run.workflow_id, run.id)  # before the count that says what the new run has seen
    sequence = _own_number(tx.tick(run.workflow_id, NUMBERS, runs=run.bytes))
    new = _insert(tx, replace(
        run, id=tx.new_id("run"), seq=sequence, version=f"{how.version[0]}.{how.version[1]}", trigger=how.trigger,
        retry_of=run.id, attempt=run.attempt + 1, phase=how.phase, state=Status.ACTIVE, reason=None,
        prepare_result=run.prepare_result if how.keep else None, prepared_at=run.prepared_at if how.keep else None,
        outcome=run.outcome if how.keep else None, error=None, retry_at=None, failures=how.failures, exhausted=False,
        observed=_observed(run, how, sequence), host=tx.host, epoch=tx.epoch, created_at=tx.now,
        updated_at=tx.now, due_at=None, bytes=_pinned_by(tx, run) if how.keep else 0,
        parked=sequence if run.parked else 0,
    ))
    if how.keep:
        tx.run("reservation_copy", workflow_id=run.workflow_id, run_id=run.id, new_run_id=new.id)
        tx.run("event_hand_over", run_id=run.id, new_run_id=new.id, now=tx.now)
    if run.parked:
        parking.hand_over(tx, run, new.id)
    return new


def _observed(run: Run, how: Carry, sequence: int) -> int:
    """What `prepare` has seen: nothing yet, if the new run's version only finishes what an earlier one began."""
    if not how.keep:
        return sequence
    return run.observed if how.version == run.number else 0


def _pinned_by(tx: Tx, run: Run) -> int:
    """How many bytes the events take that a run has pinned; a run that carries on pins them again."""
    found = tx.row("reservation_bytes", "a sum is always there", workflow_id=run.workflow_id, run_id=run.id)
    return int(found["bytes"]) + kept_bytes.ROW * int(found["events"])


def abandon(tx: Tx, run: Run) -> None:
    """Give a run up: its events wait again."""
    tx.expect(
        "run_leave", f"run {run.id} is no longer {run.state}", run_id=run.id, source=run.state,
        target=Status.ABANDONED, parked=run.parked, now=tx.now,
    )
    tx.tell(run.workflow_id, "status", run.id, run.state, Status.ABANDONED)
    tx.count(run.workflow_id, 0, runs=run.bytes)
    void(tx, run)
    events.release(tx, run.workflow_id, run.id)
    items.leave(tx, run)
    if run.parked:
        parking.leave(tx, run)


def look_later(tx: Tx, run: Run, again_at: int | None) -> None:
    """A handler whose run was given up before it pinned anything is not due again at once."""
    if run.item_id is not None:
        return  # others do the rest of its routine
    if run.kind != "consumer":
        tx.run(
            "handler_scheduled", workflow_id=run.workflow_id, handler=run.handler, next_run_at=again_at, now=tx.now,
            **_version(run),
        )
    else:
        tx.run(
            "handler_committed", workflow_id=run.workflow_id, handler=run.handler, observed=run.observed, progressed=0,
            wake_at=None, recheck_at=again_at, now=tx.now, **_version(run),
        )


def void(tx: Tx, run: Run) -> None:
    """What a person was asked about this run no longer exists."""
    asked = tx.one("approval_open", run_id=run.id)
    if asked is not None:
        tx.run("approval_move", approval_id=asked["id"], source=asked["status"], target=ApprovalStatus.VOID,
               decided_by=None, now=tx.now)
        tx.tell(run.workflow_id, "approval", asked["id"], asked["status"], ApprovalStatus.VOID)
    for repair in tx.all("repair_void", run_id=run.id, now=tx.now):
        tx.tell(run.workflow_id, "repair", repair["id"], RepairStatus.WAITING, RepairStatus.REFUSED, repair["note"])


def resume(tx: Tx, run: Run, phase: Phase, outcome: str | None = None) -> Run:
    """Go on with a stopped run in its place."""
    tx.expect(
        "run_resume", f"run {run.id} is no longer {run.state} in {run.phase}", run_id=run.id, source=run.state,
        source_phase=run.phase, phase=phase, outcome=outcome, host=tx.host, epoch=tx.epoch, parked=run.parked,
        now=tx.now,
    )
    tx.tell(run.workflow_id, "status", run.id, run.state, Status.ACTIVE)
    if phase is not run.phase:
        tx.tell(run.workflow_id, "phase", run.id, run.phase, phase)
    return get(tx, run.id)


def adopt(tx: Tx, run: Run) -> Run:
    """A dead host's run now belongs to this one."""
    tx.expect(
        "run_adopt", f"run {run.id} is no longer active under host {run.host}", run_id=run.id,
        source_epoch=run.epoch, host=tx.host, epoch=tx.epoch, now=tx.now,
    )
    if run.host != tx.host:
        tx.tell(run.workflow_id, "host", run.id, run.host, tx.host)
    return get(tx, run.id)


def commit_consumer(tx: Tx, run: Run, end: ConsumerEnd, follows: Follows | None = None) -> Run | None:
    """next returned: events, state, wake-up and the run itself, in one step; and what follows begins in it."""
    kept = run.bytes + kept_bytes.of_trace(end.trace)
    numbers = len(end.publications) + NUMBERS
    reserved = tx.ask_early("event_reserved_by", run_id=run.id)
    behind = tx.ask_early("cause_of_run", workflow_id=run.workflow_id, run_id=run.id) if end.publications else list
    counted = tx.count(  # of all that it brings about, at once
        run.workflow_id, numbers, events=events.bytes_of(end.publications),
        runs=kept + end.state_grows,
    )
    if end.publications:
        causes = tuple(dict.fromkeys([str(row["input_id"]) for row in behind()]))  # several events may share one
        publications = [Publication(p.topic, p.message_id, p.payload, causes, end.depth) for p in end.publications]
        first = _own_number(counted["sequence"]) - len(publications)
        events.publish(tx, run.workflow_id, run.id, publications, end.revisions_max, first)
    outcome: Any = stored(run.outcome) if run.outcome else {}
    become = EventStatus.SKIPPED if outcome.get("status") == "skipped" else EventStatus.CONSUMED
    tx.run("event_end_reserved", run_id=run.id, target=become, now=tx.now)
    ended = reserved()
    for event in ended:
        tx.tell(run.workflow_id, "event", event["id"], EventStatus.PENDING, become, run.id)
    tx.run(
        "handler_committed", workflow_id=run.workflow_id, handler=run.handler, observed=run.observed,
        progressed=int(bool(ended)), wake_at=end.wake_at, recheck_at=end.recheck_at, now=tx.now, **_version(run),
    )
    _commit(tx, run, kept, end.state, end.trace, end.recorded)
    if run.parked:
        parking.leave(tx, run)
    return _followed(tx, follows, counted, numbers)


def _commit(
    tx: Tx, run: Run, kept: int, state: str | None, trace: Sequence[Traced], recorded: Recorded | None,
) -> None:
    """The part of a run's end that all kinds of handlers share: the state that it leaves, its trace, its row."""
    recordings.keep(tx, run, recorded)
    if state is not None:
        tx.run("handler_store", workflow_id=run.workflow_id, handler=run.handler, state=state, now=tx.now)
    keep_trace(tx, run.workflow_id, trace)
    _expect(tx, "run_commit", run, source=run.phase, bytes=kept)
    tx.tell(run.workflow_id, "status", run.id, run.state, Status.COMMITTED,
            facts=None if run.outcome is None else brief(run.outcome))
    tx.tell(run.workflow_id, "phase", run.id, run.phase, Phase.COMMITTED)


def commit_producer(
    tx: Tx, run: Run, inputs: Sequence[Registration], publications: Sequence[Publication],
    state: str | None, next_run_at: int, trace: Sequence[Traced], follows: Follows | None = None,
    state_grows: int = 0, revisions_max: int = Policy.revisions_max, recorded: Recorded | None = None,
) -> Run | None:
    """The handler returned: inputs, events, state and the next due time, in one step; and what follows begins in it."""
    events.register(tx, run.workflow_id, run.id, inputs)
    skipped = events.skipped_causes(tx, run.workflow_id, publications)
    events.publish(tx, run.workflow_id, run.id, publications, revisions_max, skipped=skipped)
    numbers = len(inputs) + len(publications)
    return commit_routine(tx, run, state, next_run_at, trace, follows, state_grows, numbers, recorded)


def commit_routine(
    tx: Tx, run: Run, state: str | None, next_run_at: int, trace: Sequence[Traced], follows: Follows | None = None,
    state_grows: int = 0, numbers: int = 0, recorded: Recorded | None = None,
) -> Run | None:
    """The handler returned: state, by how many bytes it grows, and the next due time, in one step; an item that it left
    open is left behind. So many `numbers` were counted for it before in the same transaction."""
    tx.run(
        "handler_scheduled", workflow_id=run.workflow_id, handler=run.handler, next_run_at=next_run_at, now=tx.now,
        **_version(run),
    )
    items.pass_over(tx, run)
    kept = run.bytes + kept_bytes.of_trace(trace)
    _commit(tx, run, kept, state, trace, recorded)
    return _followed(tx, follows, tx.count(run.workflow_id, NUMBERS, runs=kept + state_grows), numbers + NUMBERS)


def commit_item(tx: Tx, run: Run, trace: Sequence[Traced]) -> None:
    """A run that carried on one item has ended; others did the rest, and leave the state and the due time of the
    routine. If the item is unfinished, because the script did not come to it, it is left behind."""
    items.leave(tx, run)
    kept = run.bytes + kept_bytes.of_trace(trace)
    _commit(tx, run, kept, None, trace, None)
    tx.count(run.workflow_id, 0, runs=kept)


def _followed(tx: Tx, follows: Follows | None, counted: Row, numbers: int) -> Run | None:
    """Begin what was decided to follow, if the workflow is as it was then, but for the numbers of this commit."""
    if follows is None or counted["sequence"] != follows.sequence + numbers:
        return None
    if (counted["status"], counted["major"], counted["minor"]) != (WorkflowStatus.ACTIVE, *follows.new.version):
        return None
    return begin(tx, follows.new, counted)


def keep_trace(tx: Tx, workflow_id: str, trace: Sequence[Traced]) -> None:
    """Keep what a run did beside it."""
    if trace:
        tx.many("trace_insert", [{"workflow_id": workflow_id, **vars(line)} for line in trace])


def _version(run: Run) -> dict[str, int]:
    return {"major": run.number[0], "minor": run.number[1]}


def _expect(tx: Tx, query: str, run: Run, **params: object) -> None:
    tx.expect(query, _no_longer(run), run_id=run.id, epoch=tx.epoch, now=tx.now, **params)


def _no_longer(run: Run) -> str:
    return f"run {run.id} is no longer {run.state} in {run.phase} under this host"


def asking_about(read: Reader, mutation: Mutation) -> Run | None:
    """The open run that asks whether a mutation is kept, though the script wants another content by now."""
    found = open_runs(read, mutation.workflow_id)
    return next((run for run in found if run.differs and run.differs["mutation_id"] == mutation.id), None)


def get(tx: Tx, run_id: str) -> Run:
    """A run as it is inside this transaction."""
    row = tx.one("run_by_id", run_id=run_id)
    assert row is not None, f"run {run_id} is never deleted"
    return run_record(row)
