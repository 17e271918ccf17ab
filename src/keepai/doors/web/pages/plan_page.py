"""A plan that a model is at: begun by the box on Home, followed here, and ended at the page of its proposal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ....model.acts import REQUESTS
from ....model.errors import KeepError, NotFound
from ....reading.look import Look
from ..sessions import ActNote
from ..site import LIVE, NavLink, session, show, site

LINKS: tuple[NavLink, ...] = ()
THINGS: Mapping[str, str] = {}


def may_plan(request: Request) -> bool:
    """Whether there is a model to ask, and this person may propose something."""
    return site(request).plans.has_model and session(request).principal.role in REQUESTS["propose"].roles


async def _begin(request: Request) -> Response:
    if not may_plan(request):
        raise NotFound("There is no such page.")
    try:
        plan = site(request).plans.begin(request.state.form.get("words", ""))
    except KeepError as error:
        session(request).notes.append(ActNote("refused", error.message))
        return RedirectResponse("/", 303)
    return RedirectResponse(f"/plans/{plan.number}", 303)


async def _plan(request: Request) -> Response:
    plan = site(request).plans.get(request.path_params["number"])
    offered = plan.result.offered if plan.result else None
    target = site(request).renderer.address(offered) if offered else None
    if target and LIVE not in request.headers:
        return RedirectResponse(target, 303)

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        return {"plan": plan, "target": target}

    return await show(request, "plan.html", read)


ROUTES = (Route("/plans", _begin, methods=["POST"]), Route("/plans/{number:int}", _plan))
