"""Which version of a thing a person was shown, and what has moved since.

A version is the number of an entry of the account: of a thing, the newest that tells of it; of a question, the highest
of everything that it is about. A person who was shown a version has seen every entry before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.records import Run
from . import account
from .base import Reader, Row
from .rows import open_runs, run_record

#: The beginning of an id → the statement that finds the thing, and its parameter.
_BY_ID = {
    "wf": ("workflow_by_id", "workflow_id"), "run": ("run_by_id", "run_id"), "mut": ("mutation_by_id", "mutation_id"),
    "apr": ("approval_by_id", "approval_id"), "fix": ("repair_by_id", "repair_id"),
    "prp": ("proposal_by_id", "proposal_id"), "evt": ("event_by_id", "event_id"),
    "inp": ("input_by_id", "input_id"), "itm": ("item_by_id", "item_id"),
}

#: The beginning of an id → what else moves what is shown of it: the statement that finds the newest entry of the
#: account about that, its parameter, and the column that names what the entry tells of.
_ALSO = {
    "inp": ("account_last_of_input", "input_id", "event_id"), "itm": ("account_last_of_item", "item_id", "id"),
}


def things(read: Reader, id: str) -> tuple[str, ...]:
    """Everything that is shown with a thing, by id: an act on it is refused if any of this has moved since."""
    prefix = id.partition("_")[0]
    row = _find(read, id)
    if row is None:
        return (id,)
    if prefix == "wf":
        return _of_workflow(row)
    if prefix == "run":
        return _of_run(read, run_record(row))
    if prefix == "mut":
        return (id, *_of_mutation(read, row))
    if prefix in ("apr", "fix"):
        return (id, *_of_run(read, _run(read, row["run_id"])))
    if prefix == "inp":
        item = read.one("item_of_input", input_id=id)
        return (id, *([str(item["id"])] if item else []))
    if prefix == "evt":
        causes = read.all("look_inputs_of_event", workflow_id=row["workflow_id"], event_id=id)
        return (id, *(str(each["id"]) for each in causes))
    return (id, str(row["input_id"])) if prefix == "itm" else (id,)


def _of_workflow(row: Row) -> tuple[str, ...]:
    """A workflow and its active version: a deploy stands in the account under both."""
    return str(row["id"]), f"{row['id']} {row['major']}.{row['minor']}"


def _of_run(read: Reader, run: Run) -> tuple[str, ...]:
    """A run, what it sent, what people are asked for it, the permission it is about, and its workflow."""
    where = {"workflow_id": run.workflow_id}
    workflow, asked = read.one("workflow_by_id", **where), read.one("approval_open", run_id=run.id)
    found = (
        read.one("mutation_of_lineage", lineage=run.lineage, **where), asked, read.one("repair_of_run", run_id=run.id),
    )
    named = (
        run.differs["mutation_id"] if run.differs else None, asked["capability"] if asked else None, run.lacks,
    )
    assert workflow is not None, f"{run.workflow_id} is never deleted"
    ids = (run.id, *(each["id"] for each in found if each), *(each for each in named if each))
    return tuple(str(each) for each in (*ids, *_of_workflow(workflow)))


def _of_mutation(read: Reader, row: Row) -> tuple[str, ...]:
    """The run that sent it, the same thing sent again, and the open run if that asks about it."""
    again = read.all("mutation_same", workflow_id=row["workflow_id"], mutation_key=row["mutation_key"])
    of_asking = [
        each for asks in open_runs(read, row["workflow_id"])
        if asks.differs and asks.differs["mutation_id"] == row["id"] for each in _of_run(read, asks)
    ]
    return (*_of_run(read, _run(read, row["run_id"])), *(str(each["id"]) for each in again), *of_asking)


def _run(read: Reader, run_id: str) -> Run:
    row = _find(read, run_id)
    assert row is not None, f"{run_id} is never deleted"
    return run_record(row)


def version(read: Reader, workflow_id: str, ids: Sequence[str]) -> int:
    """The version of what these things are."""
    last = last_row(read, workflow_id, ids)
    return int(last["seq"]) if last else 0


def newest(read: Reader) -> int:
    """The version of everything: what is read after it is at least as new."""
    row = read.one("account_newest")
    return int(row["seq"]) if row and row["seq"] is not None else 0


def last_row(read: Reader, workflow_id: str, ids: Sequence[str]) -> Row | None:
    """The newest move that the account tells of any of these things."""
    subjects = list(dict.fromkeys(ids))
    for each in tuple(subjects):
        statement, parameter, names = _ALSO.get(each.partition("_")[0], (None, "", ""))
        row = read.one(statement, workflow_id=workflow_id, **{parameter: each}) if statement else None
        if row is not None:
            subjects.append(str(row[names]))
    return _newest(account.last_of(read, workflow_id, each) for each in subjects)


def last_act(read: Reader, workflow_id: str, ids: Sequence[str]) -> Row | None:
    """The newest act of a person on any of these things."""
    return _newest(account.last_of(read, workflow_id, each, only="act") for each in dict.fromkeys(ids))


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
