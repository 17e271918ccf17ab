"""Needs you: every question that only a person can answer, as a card with the facts and a form for each answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....reading.look import Look
from ....reading.offered_acts import CLASSES
from ..cards import cards
from ..site import NavLink, show

LINKS = (
    NavLink("Needs you", "/needs-you", order=10, counts=True),
    NavLink("Needs you", "/workflows/{wf}/needs-you", order=10),
)
THINGS: Mapping[str, str] = {}


def routes() -> list[Route]:
    """All questions, and those of one workflow."""
    return [Route("/needs-you", _cards), Route("/workflows/{wf}/needs-you", _cards)]


async def _cards(request: Request) -> Response:
    return await show(request, "needs_you.html", _read)


def _read(look: Look, request: Request) -> Mapping[str, Any]:
    asked = request.path_params.get("wf")
    wf = look.views.workflow_row(asked) if asked else None
    found = look.views.needs_you(look.now_ms, wf["id"] if wf else None)
    return {"wf": wf, "cards": cards(look, found), "classes": CLASSES}
