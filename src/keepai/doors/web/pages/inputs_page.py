"""Inputs: what came into a workflow and what came of each; one input's page tells its story in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....reading import lists
from ....reading.look import Look
from ..filters import filters, paging
from ..site import NavLink, show
from ..timeline import lines

LINKS = (NavLink("Inputs", "/workflows/{wf}/inputs", order=20),)
THINGS = {"inp_": "/inputs/{id}"}


def routes() -> list[Route]:
    """The list, and one of them."""
    return [Route("/workflows/{wf}/inputs", _inputs), Route("/inputs/{id}", _input)]


async def _inputs(request: Request) -> Response:
    return await show(request, "inputs.html", _read_list)


async def _input(request: Request) -> Response:
    return await show(request, "input.html", _read_one)


def _read_list(look: Look, request: Request) -> Mapping[str, Any]:
    wf = look.views.workflow_row(request.path_params["wf"])
    asked = filters(request, lists.INPUT_STATUSES)
    listed = lists.inputs(look.read, wf["id"], asked.wanted(look.now_ms))
    return {"wf": wf, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed)}


def _read_one(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.input(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    return {
        "wf": look.views.workflow_row(found.workflow_id), "input": found, "explained": explained,
        "story": lines(explained.story),
    }
