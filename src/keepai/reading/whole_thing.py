"""Everything that is known of one thing, with the history of its moves. All doors show the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..ledger.base import Reader, Row
from ..ledger.rows import approval_record, mutation_record, run_record
from ..model.clock import iso
from ..model.errors import NotFound
from ..model.records import Traced
from .views import Views

Data = dict[str, Any]


def whole_thing(read: Reader, views: Views, id: str) -> Data:
    """A run, an input, an event, an item, a mutation or an approval, by its whole id."""
    if id[:4] not in THINGS:
        raise NotFound(f"{id!r} is no id of a run, an input, an event, an item, a mutation or an approval.")
    kind, shown = THINGS[id[:4]]
    return {"what": kind, **shown(read, views, id)}


def traced_line(traced: Traced) -> str:
    """One thing that a run did, on one line."""
    if traced.kind != "call":
        return f"{traced.kind} {traced.name}: {traced.answer or ''}"
    took = f"  {traced.duration_ms} ms" if traced.duration_ms is not None else ""
    answer = f"failed: {traced.error}" if traced.error else f"→ {traced.answer}"
    return f"{traced.name}({traced.args or ''}) {answer}{took}"


def history_of(views: Views, workflow_id: str, subject: str) -> list[Data]:
    """The moves of one thing."""
    rows = views.history(workflow_id, subject)
    return [{"machine": r["machine"], "from": r["source"], "to": r["target"], "at": iso(r["at"]), "why": r["why"],
             "actor": r["actor"]} for r in rows]


def acts_on(read: Reader, workflow_id: str, *subjects: str) -> list[Data]:
    """What people did to these things; without any, to the whole workflow."""
    rows = read.all("action_all", workflow_id=workflow_id)
    return [{"act": row["act"], "subject": row["subject"], "actor": row["actor"], "at": iso(row["at"]),
             "detail": json.loads(row["detail"])} for row in rows if not subjects or row["subject"] in subjects]


def _run(read: Reader, views: Views, id: str) -> Data:
    run = views.run(id)
    where = {"workflow_id": run.workflow_id, "run_id": id}
    sent = [mutation_record(row).to_json() for row in read.all("look_mutations_of_run", **where)]
    worked = [{**{name: row[name] for name in ("id", "external_id", "title", "status")},
               "attempt": row["worked_attempt"]} for row in read.all("look_items_of_run", **where)]
    one = run.kind != "routine"
    return {
        **run.to_json(), "reserved": [r["event_id"] for r in read.all("reservation_of_run", **where)],
        "mutation": sent[-1] if one and sent else None, "items": worked, "outputs": [] if one else sent,
        "trace": [{**t.to_json(), "at": iso(t.at), "told": traced_line(t)} for t in views.trace(id)],
        "history": history_of(views, run.workflow_id, id), "acts": acts_on(read, run.workflow_id, id),
    }


def _item(read: Reader, views: Views, id: str) -> Data:
    item, row = views.item(id), read.one("look_item", item_id=id)
    assert row is not None, "it was just found"
    runs = read.all("look_runs_of_item", workflow_id=item.workflow_id, item_id=id)
    sent = read.all("look_mutations_of_item", item_id=id)
    return {
        **item.to_json(), "held_by": row["held_by"], "runs": _processed(runs),
        "outputs": [mutation_record(each).to_json() for each in sent],
        "history": history_of(views, item.workflow_id, id), "acts": acts_on(read, item.workflow_id, id, item.input_id),
    }


def _processed(rows: list[Row]) -> list[Data]:
    """The runs that took an event or worked on an item, each with the attempt that it processed."""
    found = [(run_record(row), row["processed_attempt"]) for row in rows]
    return [{"id": r.id, "status": r.status, "version": r.version, "attempt": attempt} for r, attempt in found]


def _input(read: Reader, views: Views, id: str) -> Data:
    found = views.input(id)
    return {
        **found.to_json(), "history": history_of(views, found.workflow_id, id),
        "acts": acts_on(read, found.workflow_id, id),
    }


def _event(read: Reader, views: Views, id: str) -> Data:
    event = views.event(id)
    return {
        **event.to_json(), "causes": [views.input(each).title for each in event.caused_by],
        "runs": _processed(read.all("look_runs_of_event", workflow_id=event.workflow_id, event_id=id)),
        "history": history_of(views, event.workflow_id, id), "acts": acts_on(read, event.workflow_id, id),
    }


def _mutation(read: Reader, views: Views, id: str) -> Data:
    mutation = views.mutation(id)
    causes = [r["input_id"] for r in read.all("look_inputs_of_mutation", mutation_id=id)]
    return {
        **mutation.to_json(),
        "inputs": [{"id": each, "title": views.input(each).title} for each in causes],
        "history": history_of(views, mutation.workflow_id, id), "acts": acts_on(read, mutation.workflow_id, id),
    }


def _approval(read: Reader, views: Views, id: str) -> Data:
    row = read.one("approval_by_id", approval_id=id)
    assert row is not None, "it was just found"
    return {
        **approval_record(row).to_json(), "history": history_of(views, row["workflow_id"], id),
        "acts": acts_on(read, row["workflow_id"], id),
    }


#: The beginning of an id → what it is, and everything about it.
THINGS: Mapping[str, tuple[str, Callable[[Reader, Views, str], Data]]] = {
    "run_": ("run", _run), "inp_": ("input", _input), "evt_": ("event", _event), "mut_": ("mutation", _mutation),
    "itm_": ("item", _item), "apr_": ("approval", _approval),
}
