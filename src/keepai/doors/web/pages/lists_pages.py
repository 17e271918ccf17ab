"""The lists of a workflow or of all, newest first, and the page of one entry: inputs, outputs, items, events.

An input's page tells its story in order; an output's leads back to every input behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from ....ledger.base import Row
from ....model.states import ItemStatus, MutationStatus
from ....reading import lists
from ....reading.inputs_and_events import takers_of, waits_for
from ....reading.left_items import left_actions
from ....reading.look import Look
from ..cards import cards
from ..filters import filters, paging, place
from ..site import NavLink, page, session
from ..timeline import lines

LINKS = (
    NavLink("Inputs", "/inputs", order=20), NavLink("Outputs", "/outputs", order=30),
    NavLink("Inputs", "/workflows/{wf}/inputs", order=20), NavLink("Outputs", "/workflows/{wf}/outputs", order=30),
    NavLink("Items", "/workflows/{wf}/items", order=50), NavLink("Events", "/workflows/{wf}/events", order=60),
)
THINGS = {"inp_": "/inputs/{id}", "mut_": "/outputs/{id}", "itm_": "/items/{id}", "evt_": "/events/{id}"}


def of_one_or_all(look: Look, request: Request) -> tuple[Row | None, dict[str, str] | None]:
    """The workflow that a list is of; or, for that of all workflows, their names by their ids."""
    named = request.path_params.get("wf")
    if named:
        return look.views.workflow_row(named), None
    return None, {row["id"]: str(row["name"]) for row in look.read.all("workflow_all")}


def _inputs(look: Look, request: Request) -> Mapping[str, Any]:
    wf, names = of_one_or_all(look, request)
    asked = filters(request, lists.INPUT_STATUSES)
    listed = lists.inputs(look.read, wf["id"] if wf else lists.ALL, asked.wanted(look.now_ms))
    return {
        "wf": wf, "names": names, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed),
    }


def _input(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.input(request.path_params["id"])
    explained, wf = look.views.explain(found.id, look.now_ms), look.views.workflow_row(found.workflow_id)
    waits = {id for _, id in waits_for(look.read, found, takers_of(look.read, wf))}
    asked = [question for question in look.views.needs_you(look.now_ms, wf["id"])
             if waits & {question.run_id, question.facts.get("item_id")}]
    return {
        "wf": wf, "input": found, "explained": explained, "cards": cards(look, asked, session(request).principal.role),
        "story": lines(look.read, explained.story),
    }


def _outputs(look: Look, request: Request) -> Mapping[str, Any]:
    wf, names = of_one_or_all(look, request)
    asked = filters(request, tuple(MutationStatus))
    listed = lists.outputs(look.read, wf["id"] if wf else lists.ALL, asked.wanted(look.now_ms))
    return {
        "wf": wf, "names": names, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed),
    }


def _output(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.mutation(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    after = place(request.query_params.get("after", "")) or 0
    return {
        "wf": look.views.workflow_row(found.workflow_id), "output": found, "explained": explained,
        "story": lines(look.read, explained.story), "causes": lists.causes(look.read, found, after), "after": after,
        "fan_in": lists.fan_in(look.read, found.id), "fan_max": lists.FAN_MAX,
    }


def _items(look: Look, request: Request) -> Mapping[str, Any]:
    wf = look.views.workflow_row(request.path_params["wf"])
    asked = filters(request, tuple(ItemStatus))
    listed = lists.items(look.read, wf["id"], asked.wanted(look.now_ms))
    handlers = look.read.all("handler_due", workflow_id=wf["id"])
    return {
        "wf": wf, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed),
        "routines": any(row["kind"] == "routine" for row in handlers),
    }


def _item(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.item(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    row = look.read.one("look_item", item_id=found.id)
    assert row is not None, "it was just found"
    return {
        "wf": look.views.workflow_row(found.workflow_id), "item": found, "explained": explained,
        "story": lines(look.read, explained.story), "outputs": lists.worked(look.read, found).outputs,
        "held_by": row["held_by"],
        "runs": look.read.all("look_runs_of_item", workflow_id=found.workflow_id, item_id=found.id),
        "acts": left_actions(look.read, row),
    }


def _events(look: Look, request: Request) -> Mapping[str, Any]:
    wf = look.views.workflow_row(request.path_params["wf"])
    topics = look.read.all("look_topics", workflow_id=wf["id"])
    waiting = {row["topic"]: row["pending"] for row in look.read.all("topic_stranded", workflow_id=wf["id"])}
    topic = request.query_params.get("topic") or None
    asked = filters(request, lists.EVENT_STATUSES)
    listed = lists.events(look.read, wf["id"], topic, asked.wanted(look.now_ms))
    return {
        "wf": wf, "topics": topics, "waiting": waiting, "topic": topic, "asked_for": asked, "listed": listed,
        "page": paging(request.url.path, asked, listed, {"topic": topic} if topic else {}),
        "of_topic": lambda name: f"{request.url.path}?{urlencode({'topic': name})}",
    }


def _event(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.event(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    inputs = look.read.all("look_inputs_of_event", workflow_id=found.workflow_id, event_id=found.id)
    runs = look.read.all("look_runs_of_event", workflow_id=found.workflow_id, event_id=found.id)
    return {
        "wf": look.views.workflow_row(found.workflow_id), "event": found, "explained": explained,
        "story": lines(look.read, explained.story), "inputs": inputs, "runs": runs,
    }


ROUTES = (
    page("/inputs", "inputs.html", _inputs), page("/outputs", "outputs.html", _outputs),
    page("/workflows/{wf}/inputs", "inputs.html", _inputs), page("/inputs/{id}", "input.html", _input),
    page("/workflows/{wf}/outputs", "outputs.html", _outputs), page("/outputs/{id}", "output.html", _output),
    page("/workflows/{wf}/items", "items.html", _items), page("/items/{id}", "item.html", _item),
    page("/workflows/{wf}/events", "events.html", _events), page("/events/{id}", "event.html", _event),
)
