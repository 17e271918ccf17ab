"""Home: every workflow at a glance, inputs on the left, outputs on the right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....reading.look import Look
from ....reading.overview import glances
from ..site import NavLink, show

LINKS = (NavLink("Home", "/", order=0),)
THINGS: Mapping[str, str] = {}


def routes() -> list[Route]:
    """The first page."""
    return [Route("/", _home)]


async def _home(request: Request) -> Response:
    return await show(request, "home.html", _read)


def _read(look: Look, request: Request) -> Mapping[str, Any]:
    return {"glances": glances(look.read, look.views, look.now_ms)}
