"""Which version of a thing a person was shown, and what has moved since.

A version is a place in the account, `transition.seq`: of a thing, that of its newest row; of a question, the highest of
everything that it is about. Whoever was shown any version of the account has seen all that stands before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .base import Reader, Row

#: The beginning of an id → the statement that finds the thing, and its parameter.
_BY_ID = {
    "wf": ("workflow_by_id", "workflow_id"), "run": ("run_by_id", "run_id"), "mut": ("mutation_by_id", "mutation_id"),
    "apr": ("approval_by_id", "approval_id"), "fix": ("repair_by_id", "repair_id"), "evt": ("event_by_id", "event_id"),
    "inp": ("input_by_id", "input_id"), "itm": ("item_by_id", "item_id"),
}

#: What is a part of the question that its run puts.
_OF_A_RUN = ("mut", "apr", "fix")


def things(read: Reader, id: str) -> tuple[str, ...]:
    """Everything that is shown with a thing: a run, what it sent, and what people are asked for it are one question."""
    prefix = id.partition("_")[0]
    if prefix == "run":
        return _of_run(read, id)
    if prefix not in _OF_A_RUN:
        return (id,)
    row = _find(read, id)
    return (id, *_of_run(read, row["run_id"])) if row else (id,)


def _of_run(read: Reader, run_id: str) -> tuple[str, ...]:
    run = _find(read, run_id)
    if run is None:
        return (run_id,)
    found = (
        read.one("mutation_of_lineage", workflow_id=run["workflow_id"], lineage=run["lineage"]),
        read.one("approval_open", run_id=run_id), read.one("repair_of_run", run_id=run_id),
    )
    return (run_id, *(str(row["id"]) for row in found if row))


def version(read: Reader, workflow_id: str, ids: Sequence[str]) -> int:
    """The version of what these things are."""
    last = last_row(read, workflow_id, ids)
    return int(last["seq"]) if last else 0


def newest(read: Reader) -> int:
    """The version of everything: what is read after it is at least as new."""
    row = read.one("transition_newest")
    return int(row["seq"]) if row and row["seq"] is not None else 0


def last_row(read: Reader, workflow_id: str, ids: Sequence[str]) -> Row | None:
    """The newest row of the account about any of these things."""
    return _newest(read.one("transition_last", workflow_id=workflow_id, subject=each) for each in dict.fromkeys(ids))


def last_act(read: Reader, workflow_id: str, ids: Sequence[str]) -> Row | None:
    """The newest act of a person on any of these things."""
    where = {"workflow_id": workflow_id}
    return _newest(read.one("transition_last_act", subject=each, **where) for each in dict.fromkeys(ids))


def _newest(rows: Iterable[Row | None]) -> Row | None:
    return max((row for row in rows if row), key=lambda row: int(row["seq"]), default=None)


def standing(read: Reader, id: str) -> str | None:
    """How a thing stands now, in a word."""
    row = _find(read, id)
    if row is None:
        return None
    return f"{row['status']}:{row['reason']}" if id.startswith("run_") and row["reason"] else str(row["status"])


def _find(read: Reader, id: str) -> Row | None:
    statement = _BY_ID.get(id.partition("_")[0])
    return read.one(statement[0], **{statement[1]: id}) if statement else None
