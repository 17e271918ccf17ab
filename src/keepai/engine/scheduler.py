"""What is due: functions of rows and the moment. Nothing here waits or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ledger.base import Reader, Row
from ..model.fast_record import fast_record
from ..model.policy import Policy
from ..model.records import Run
from ..script.manifest import Handler, Manifest
from ..script.schedule import next_time


@fast_record
@dataclass(frozen=True)
class Due:
    """A handler that should run now, and why."""

    handler: str
    kind: str
    trigger: str
    gap: tuple[int, int] | None = None
    due_at: int | None = None  # the cron time that the run is for
    next_run_at: int | None = None  # when the handler is due after that


TIMES_MAX = 100
#: What has queued a producer or routine (a person, what came in, an item that was parked) → the trigger of its run.
QUEUED = {1: "run_now", 2: "arrival", 3: "rest"}


@dataclass(frozen=True)
class Taken:
    """The cron times after a moment for which a handler has run already."""

    times: Sequence[int]  # oldest first, `TIMES_MAX` at most
    newest: int | None = None  # if there are as many as that


def taken(read: Reader, workflow_id: str, handler: Handler, after: int) -> Taken | None:
    """The same, as the ledger has it; None for a handler without a cron."""
    if not is_cron(handler):
        return None
    where = {"workflow_id": workflow_id, "handler": handler.name, "after": after}
    times = [int(row["due_at"]) for row in read.all("run_times", limit=TIMES_MAX, **where)]
    newest = read.one("run_time_newest", **where) if len(times) == TIMES_MAX else None
    return Taken(times, int(newest["due_at"]) if newest else None)


@dataclass(frozen=True)
class Nearer:
    """A handler whose due times lie further ahead than they may, because the clock was set back."""

    handler: str
    next_run_at: int | None
    wake_at: int | None
    recheck_at: int | None


def due(
    handlers: Sequence[Row], manifest: Manifest, policy: Policy, now: int, ran: Mapping[str, Taken],
) -> Due | None:
    """The handler to run now: consumers before what runs by the clock, the oldest pending event first."""
    consumers = [(h["oldest"], h) for h in handlers if h["kind"] == "consumer"]
    ready = [(oldest, h, why) for oldest, h in consumers if (why := consumer_due(h, now))]
    if ready:
        _, handler, why = min(ready, key=lambda r: (r[0] is None, r[0] or 0, r[1]["handler"]))
        return Due(handler["handler"], "consumer", why)
    scheduled = [
        h for h in handlers if h["kind"] != "consumer"
        and (h["queued"] or (h["next_run_at"] is not None and h["next_run_at"] <= now))
    ]
    if not scheduled:
        return None
    first = min(scheduled, key=lambda h: (h["queued"] != 1, h["next_run_at"] or 0, h["handler"]))
    why, at = QUEUED.get(first["queued"], "schedule"), first["next_run_at"]
    declared = manifest.handler(first["handler"])
    assert declared is not None, "a version declares every handler that is present"
    return Due(
        first["handler"], first["kind"], why, _gap(first, declared, policy, now),
        at if is_cron(declared) and at is not None and at <= now else None,
        next_run_at(declared, now, policy, ran.get(declared.name)),
    )


def next_run_at(handler: Handler, after: int, policy: Policy, ran: Taken | None) -> int:
    """The first due time after a moment. A cron time for which a run has begun (`ran`) never comes again.

    It could if the wall clock was set back. If it was set back over very many of them, the next lies after them all."""
    at = next_time(handler.schedule, after, _default_ms(policy))
    if ran is None:
        return at
    for each in ran.times:
        if each == at:
            at = next_time(handler.schedule, at, _default_ms(policy))
    if ran.newest is not None and at > ran.times[-1]:
        at = max(at, next_time(handler.schedule, ran.newest, _default_ms(policy)))
    return at


def first_run_at(handler: Handler, ran_at: int | None, policy: Policy, now: int, ran: Taken | None) -> int:
    """When a handler is due that is new, or has another schedule than before. `ran_at` is when it ran last.

    An interval counts from there; one that never ran is due at once. A cron is never due before its time."""
    if is_cron(handler):
        return next_run_at(handler, now, policy, ran)
    return now if ran_at is None else max(now, next_run_at(handler, ran_at, policy, None))


def is_cron(handler: Handler) -> bool:
    """Whether a handler runs at times of the calendar."""
    return handler.schedule is not None and handler.schedule.cron is not None


def consumer_due(handler: Row, now: int) -> str | None:
    """Why a consumer should look now, if it should."""
    if handler["oldest"] is not None:
        if handler["observed"] is None or handler["touched"] > handler["observed"]:
            return "event"
        if handler["progressed"]:
            return "event"
        if handler["recheck_at"] is not None and handler["recheck_at"] <= now:
            return "recheck"
    if handler["wake_at"] is not None and handler["wake_at"] <= now:
        return "wake"
    return None


def _gap(row: Row, handler: Handler, policy: Policy, now: int) -> tuple[int, int] | None:
    """The time in which a handler should have looked and did not, if that was due more than once.

    A run at another time, because of a person or of what came in, is a look like any other."""
    if row["ran_at"] is None:
        return None
    due_at = next_time(handler.schedule, row["ran_at"], _default_ms(policy))
    return (row["ran_at"], now) if now > next_time(handler.schedule, due_at, _default_ms(policy)) else None


def next_due_at(handlers: Sequence[Row], run: Run | None) -> int | None:
    """When something will be due by itself; None if only an event or a person can bring that about."""
    if run is not None:
        return run.retry_at
    times = [h["next_run_at"] for h in handlers] + [h["wake_at"] for h in handlers]
    times += [h["recheck_at"] for h in handlers if h["oldest"] is not None]
    return min((t for t in times if t is not None), default=None)


def time_has_come(run: Run, now: int) -> bool:
    """Whether a stopped run's own time has come; a clock set back must not make it wait longer."""
    return run.retry_at is not None and (run.retry_at <= now or now < run.updated_at)


def nearer(
    handlers: Sequence[Row], manifest: Manifest, policy: Policy, now: int, ran: Mapping[str, Taken],
) -> list[Nearer]:
    """Due times that are further ahead than their own schedule allows, brought near."""
    wake_latest, recheck_latest = now + int(policy.wake_latest_s * 1000), now + int(policy.recheck_s * 1000)
    found = []
    for row in handlers:
        handler = manifest.handler(row["handler"])
        if handler is None:
            continue
        due_at, wake_at, recheck_at = row["next_run_at"], row["wake_at"], row["recheck_at"]
        if due_at is not None and due_at > next_time(handler.schedule, now, _default_ms(policy)):
            due_at = min(due_at, next_run_at(handler, now, policy, ran.get(handler.name)))
        if wake_at is not None:
            wake_at = min(wake_at, wake_latest)
        if recheck_at is not None:
            recheck_at = min(recheck_at, recheck_latest)
        if (due_at, wake_at, recheck_at) != (row["next_run_at"], row["wake_at"], row["recheck_at"]):
            found.append(Nearer(row["handler"], due_at, wake_at, recheck_at))
    return found


def _default_ms(policy: Policy) -> int:
    return int(policy.producer_interval_s * 1000)
