"""Events by topic, for whoever wants to see what flows inside a workflow; one event's page has its payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....reading import lists
from ....reading.look import Look
from ..filters import filters, paging
from ..site import NavLink, show
from ..timeline import lines

LINKS = (NavLink("Events", "/workflows/{wf}/events", order=60),)
THINGS = {"evt_": "/events/{id}"}


def routes() -> list[Route]:
    """The list, and one of them."""
    return [Route("/workflows/{wf}/events", _events), Route("/events/{id}", _event)]


async def _events(request: Request) -> Response:
    return await show(request, "events.html", _read_list)


async def _event(request: Request) -> Response:
    return await show(request, "event.html", _read_one)


def _read_list(look: Look, request: Request) -> Mapping[str, Any]:
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


def _read_one(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.event(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    inputs = look.read.all("look_inputs_of_event", workflow_id=found.workflow_id, event_id=found.id)
    runs = look.read.all("look_runs_of_event", workflow_id=found.workflow_id, event_id=found.id)
    return {
        "wf": look.views.workflow_row(found.workflow_id), "event": found, "explained": explained,
        "story": lines(explained.story), "inputs": inputs, "runs": runs,
    }
