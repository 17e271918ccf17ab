"""Items: what routines work through, each with its attempts and what was sent for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....model.states import ItemStatus
from ....reading import lists
from ....reading.left_items import left_actions
from ....reading.look import Look
from ..filters import filters, paging
from ..site import NavLink, show
from ..timeline import lines

LINKS = (NavLink("Items", "/workflows/{wf}/items", order=50),)
THINGS = {"itm_": "/items/{id}"}


def routes() -> list[Route]:
    """The list, and one of them."""
    return [Route("/workflows/{wf}/items", _items), Route("/items/{id}", _item)]


async def _items(request: Request) -> Response:
    return await show(request, "items.html", _read_list)


async def _item(request: Request) -> Response:
    return await show(request, "item.html", _read_one)


def _read_list(look: Look, request: Request) -> Mapping[str, Any]:
    wf = look.views.workflow_row(request.path_params["wf"])
    asked = filters(request, tuple(ItemStatus))
    listed = lists.items(look.read, wf["id"], asked.wanted(look.now_ms))
    handlers = look.read.all("handler_due", workflow_id=wf["id"])
    return {
        "wf": wf, "asked_for": asked, "listed": listed, "page": paging(request.url.path, asked, listed),
        "routines": any(row["kind"] == "routine" for row in handlers),
    }


def _read_one(look: Look, request: Request) -> Mapping[str, Any]:
    found = look.views.item(request.path_params["id"])
    explained = look.views.explain(found.id, look.now_ms)
    row = look.read.one("look_item", item_id=found.id)
    assert row is not None, "it was just found"
    return {
        "wf": look.views.workflow_row(found.workflow_id), "item": found, "explained": explained,
        "story": lines(explained.story), "outputs": lists.worked(look.read, found).outputs, "held_by": row["held_by"],
        "runs": look.read.all("look_runs_of_item", workflow_id=found.workflow_id, item_id=found.id),
        "acts": left_actions(look.read, row),
    }
