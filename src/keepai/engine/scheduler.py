"""What is due: pure functions of rows and the moment. Nothing here waits, reads or writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ledger.base import Row
from ..model.light import light
from ..model.policy import Policy
from ..model.records import Run
from ..model.states import Reason, Status
from ..script.manifest import Handler, Manifest
from ..script.schedule import next_time


@light
@dataclass(frozen=True)
class Due:
    """A handler that should run now, and why."""

    handler: str
    kind: str
    trigger: str
    gap: tuple[int, int] | None = None


@dataclass(frozen=True)
class Nearer:
    """A handler whose due times lie further ahead than they may, because the clock was set back."""

    handler: str
    next_run_at: int | None
    wake_at: int | None
    recheck_at: int | None


def due(handlers: Sequence[Row], manifest: Manifest, policy: Policy, now: int) -> Due | None:
    """The handler to run now: consumers before what runs by the clock, the oldest pending event first."""
    consumers = [(h["oldest"], h) for h in handlers if h["kind"] == "consumer"]
    ready = [(oldest, h, why) for oldest, h in consumers if (why := _consumer_why(h, now))]
    if ready:
        _, handler, why = min(ready, key=lambda r: (r[0] is None, r[0] or 0, r[1]["handler"]))
        return Due(handler["handler"], "consumer", why)
    scheduled = [h for h in handlers if h["kind"] != "consumer" and _time_due(h, now)]
    if not scheduled:
        return None
    first = min(scheduled, key=lambda h: (not h["queued"], h["next_run_at"] or 0, h["handler"]))
    why = "run_now" if first["queued"] else "schedule"
    return Due(first["handler"], first["kind"], why, _gap(first, manifest.handler(first["handler"]), policy, now))


def _consumer_why(handler: Row, now: int) -> str | None:
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


def _time_due(handler: Row, now: int) -> bool:
    return bool(handler["queued"]) or (handler["next_run_at"] is not None and handler["next_run_at"] <= now)


def _gap(row: Row, handler: Handler | None, policy: Policy, now: int) -> tuple[int, int] | None:
    """The time in which a handler should have looked and did not, if it is longer than twice its interval."""
    if row["ran_at"] is None or handler is None:
        return None
    interval = next_time(handler.schedule, row["ran_at"], _default_ms(policy)) - row["ran_at"]
    return (row["ran_at"], now) if now - row["ran_at"] > 2 * interval else None


def next_due_at(handlers: Sequence[Row], run: Run | None) -> int | None:
    """When something will be due by itself; None if only an event or a person can bring that about."""
    if run is not None:
        return run.retry_at
    times = [h["next_run_at"] for h in handlers] + [h["wake_at"] for h in handlers]
    times += [h["recheck_at"] for h in handlers if h["oldest"] is not None]
    return min((t for t in times if t is not None), default=None)


def retry_due(run: Run, now: int) -> bool:
    """Whether a run that was told "later" may be tried again."""
    if run.state is not Status.PAUSED or run.reason is not Reason.TRANSIENT:
        return False
    return time_has_come(run, now)


def time_has_come(run: Run, now: int) -> bool:
    """Whether a stopped run's own time has come; a clock set back must not make it wait longer."""
    return run.retry_at is not None and (run.retry_at <= now or now < run.updated_at)


def nearer(handlers: Sequence[Row], manifest: Manifest, policy: Policy, now: int) -> list[Nearer]:
    """Due times that are further ahead than their own interval allows, brought near."""
    wake_latest, recheck_latest = now + int(policy.wake_latest_s * 1000), now + int(policy.recheck_s * 1000)
    found = []
    for row in handlers:
        handler = manifest.handler(row["handler"])
        if handler is None:
            continue
        due = row["next_run_at"], row["wake_at"], row["recheck_at"]
        scheduled = next_time(handler.schedule, now, _default_ms(policy)) if row["kind"] != "consumer" else None
        near = _least(due[0], scheduled), _least(due[1], wake_latest), _least(due[2], recheck_latest)
        if near != due:
            found.append(Nearer(row["handler"], *near))
    return found


def _least(time: int | None, latest: int | None) -> int | None:
    return time if time is None or latest is None else min(time, latest)


def _default_ms(policy: Policy) -> int:
    return int(policy.producer_interval_s * 1000)
