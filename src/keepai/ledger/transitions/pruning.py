"""Throwing away the content of work that ended long ago, some at a time; what happened stays on record.

What is thrown away: traces, recordings, PrepareResults, the payloads of events with their pinned and later forms. What
stays: every row of the account, every input, event, run, item and mutation with what names it, and what was sent and
answered outside. So nothing that was seen before is taken for new, and nothing that was done is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Reader, Row, Tx
from . import kept_bytes
from .workflows import note

#: How many numbers of a workflow's sequence are looked at, or emptied, in one go: it must be short.
WINDOW = 1_000
SUBJECT = "finished work"  #: what such an act is about


@dataclass(frozen=True)
class Window:
    """A stretch of one workflow's sequence, and the moment before which what ended is old enough."""

    workflow_id: str
    first: int
    until: int
    before: int


@dataclass(frozen=True)
class Emptied:
    """What can be, or was, thrown away."""

    runs: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    traces: int = 0
    bytes: int = 0  # of payloads, PrepareResults, traces and recordings
    run_bytes: int = 0  # of these, what runs kept


def windows(read: Reader, before: int) -> list[Window]:
    """Everything that there is, stretch by stretch."""
    return [
        Window(str(row["id"]), first, first + WINDOW, before)
        for row in read.all("workflow_all") for first in range(0, int(row["sequence"]) + 1, WINDOW)
    ]


def to_prune(read: Reader, window: Window) -> Emptied:
    """What of a stretch can be thrown away; nothing is changed."""
    runs, events = read.all("prune_runs", **vars(window)), read.all("prune_events", **vars(window))
    traced = [_traced(read, window.workflow_id, row["id"]) for row in runs]
    of_runs = sum(int(row["bytes"]) for row in (*runs, *traced))
    entries = sum(int(row["entries"]) for row in traced)
    recorded = sum(_bytes(read, "prune_recording_size", run_id=row["id"]) for row in runs)
    size = of_runs + recorded + sum(int(row["bytes"]) for row in events)
    return Emptied(_ids(runs), _ids(events), entries, size, of_runs)


def _traced(read: Reader, workflow_id: str, run_id: str) -> Row:
    row = read.one("prune_trace_size", workflow_id=workflow_id, run_id=run_id)
    assert row is not None, "a sum is always there"
    return row


def _bytes(read: Reader, query: str, **params: object) -> int:
    row = read.one(query, **params)
    return int(row["bytes"]) if row else 0


def _ids(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(str(row["id"]) for row in rows)


def prune(tx: Tx, window: Window, found: Emptied, actor: str) -> None:
    """Throw away what was found, but for events that somebody took up again meanwhile."""
    workflow_id = window.workflow_id
    for run_id in found.runs:
        tx.run("prune_trace", workflow_id=workflow_id, run_id=run_id)
        tx.run("prune_recorded_texts", workflow_id=workflow_id, run_id=run_id)
        tx.run("prune_recording", workflow_id=workflow_id, run_id=run_id)
        tx.run("prune_run", run_id=run_id)
    events, pinned = 0, 0
    for event_id in found.events:
        held = tx.row("prune_event_size", f"event {event_id} is gone", event_id=event_id, before=window.before)
        if tx.hits("prune_event", event_id=event_id, before=window.before):
            tx.run("prune_reservations", workflow_id=workflow_id, event_id=event_id)
            tx.run("prune_revisions", workflow_id=workflow_id, event_id=event_id, before=window.before)
            events += int(held["payload"]) + int(held["held"]) + kept_bytes.ROW * int(held["revisions"])
            pinned += int(held["pinned"])
    tx.count(workflow_id, 0, events=-events, runs=-pinned - found.run_bytes - kept_bytes.LINE * found.traces)
    note(tx, workflow_id, "prune", SUBJECT, actor, {
        "runs": len(found.runs), "events": len(found.events), "before": window.before,
    })
