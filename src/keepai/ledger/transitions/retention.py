"""Throwing away the content of work that ended long ago, some at a time; what happened stays on record.

What is thrown away: traces, PrepareResults, the payloads of events with their pinned and later forms. What stays: every
row of the account, every input, event, run, item and mutation with what names it, and what was sent and answered
outside. So nothing that was seen before is taken for new, and nothing that was done is done again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..base import Reader, Row, Tx
from .workflows import note

#: How many runs or events one transaction empties: it must be short.
BATCH = 200
SUBJECT = "finished work"  #: what such an act is about


@dataclass(frozen=True)
class Emptied:
    """What one batch threw away, and where the next one begins; None if there is none."""

    runs: int = 0
    events: int = 0
    traces: int = 0
    bytes: int = 0
    after: int | None = None


def runs_to_prune(read: Reader, workflow_id: str, before: int, after: int) -> list[Row]:
    """The next runs that can be emptied."""
    return read.all("prune_runs", workflow_id=workflow_id, before=before, after=after, limit=BATCH)


def events_to_prune(read: Reader, workflow_id: str, before: int, after: int) -> list[Row]:
    """The next events that can be emptied."""
    return read.all("prune_events", workflow_id=workflow_id, before=before, after=after, limit=BATCH)


def size_of_runs(read: Reader, workflow_id: str, rows: list[Row]) -> Emptied:
    """How much emptying these runs throws away."""
    traced = [read.one("prune_trace_size", workflow_id=workflow_id, run_id=row["id"]) for row in rows]
    entries = sum(int(row["entries"]) for row in traced if row)
    size = sum(int(row["bytes"]) for row in (*rows, *traced) if row)
    return Emptied(runs=len(rows), traces=entries, bytes=size, after=_next(rows))


def size_of_events(rows: list[Row]) -> Emptied:
    """How much emptying these events throws away."""
    return Emptied(events=len(rows), bytes=sum(int(row["bytes"]) for row in rows), after=_next(rows))


def prune_runs(tx: Tx, workflow_id: str, before: int, after: int, actor: str) -> Emptied:
    """Empty some runs."""
    rows = runs_to_prune(tx, workflow_id, before, after)
    emptied = size_of_runs(tx, workflow_id, rows)
    for row in rows:
        tx.run("prune_trace", workflow_id=workflow_id, run_id=row["id"])
        tx.run("prune_run", run_id=row["id"])
    if rows:
        note(tx, workflow_id, "prune", SUBJECT, actor, {"runs": emptied.runs, "before": before})
    return emptied


def prune_events(tx: Tx, workflow_id: str, before: int, after: int, actor: str) -> Emptied:
    """Empty some events, however often they were pinned."""
    rows = events_to_prune(tx, workflow_id, before, after)
    for row in rows:
        where = {"workflow_id": workflow_id, "event_id": row["id"]}
        tx.run("prune_event", event_id=row["id"])
        tx.run("prune_reservations", **where)
        tx.run("prune_revisions", before=before, **where)
    if rows:
        note(tx, workflow_id, "prune", SUBJECT, actor, {"events": len(rows), "before": before})
    return size_of_events(rows)


def _next(rows: list[Row]) -> int | None:
    return int(rows[-1]["seq"]) if len(rows) == BATCH else None
