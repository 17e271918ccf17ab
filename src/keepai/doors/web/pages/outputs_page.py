"""Outputs: what went out of a workflow; one output's page leads back to every input behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....model.states import MutationStatus
from ....reading import lists
from ....reading.look import Look
from ..filters import filters, paging, place
from ..site import NavLink, show
from ..timeline import lines

LINKS = (NavLink("Outputs", "/workflows/{wf}/outputs", order=30),)
THINGS = {"mut_": "/outputs/{id}"}


def routes() -> list[Route]:
    """The list, and one of them."""
    return [Route("/workflows/{wf}/outputs", _outputs), Route("/outputs/{id}", _output)]


async def _outputs(request: Request) -> Response:
    return await show(request, "outputs.html", _read_list)


async def _output(request: Request) -> Response:
    return await show(request, "output.html", _read_one)


def _read_list(look: Look, request: Request) -> Mapping[str, Any]:
    wf = look.views.workflow_row(request.path_params["wf"])
    asked = filters(request, tuple(MutationStatus))
    listed = lists.outputs(look.read, wf["id"], asked.wanted(look.now_ms))
    return {"wf": wf, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed)}


def _read_one(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.mutation(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    after = place(request.query_params.get("after", "")) or 0
    return {
        "wf": look.views.workflow_row(found.workflow_id), "output": found, "explained": explained,
        "story": lines(explained.story), "causes": lists.causes(look.read, found, after), "after": after,
        "fan_in": lists.fan_in(look.read, found.id), "fan_max": lists.FAN_MAX,
    }
