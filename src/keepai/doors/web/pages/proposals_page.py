"""Proposals: all of them, and one as a card with everything that a person must know to accept or decline it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from ....reading.code_colours import coloured
from ....reading.graph_svg import svg
from ....reading.look import Look
from ....reading.proposal_card import proposal_card
from ....script.topic_graph import graph
from ..site import NavLink, page
from .workflow_pages import pieces_of

LINKS = (NavLink("Proposals", "/proposals", order=12),)
THINGS: Mapping[str, str] = {"prp_": "/proposals/{id}"}

LISTED_MAX = 100


def _proposals(look: Look, request: Request) -> Mapping[str, Any]:
    """Those that wait, then the newest of the others."""
    found = [proposal_card(look.read, each, look.now_ms) for each in look.views.proposals(limit=LISTED_MAX)]
    return {"cards": sorted(found, key=lambda each: each.status != "waiting")}


def _proposal(look: Look, request: Request) -> Mapping[str, Any]:
    """One, as it was shown to the host: whoever accepts names the digest of exactly this."""
    proposal = look.views.proposal(request.path_params["id"])
    card = proposal_card(look.read, proposal, look.now_ms)
    text, before = coloured(proposal.source), coloured(card.before)
    return {
        "card": card, "proposal": proposal, "lines": card.changes, "text": text,
        "pieces_of": lambda line: pieces_of(before if line.new is None else text, line),
        "graph": Markup(svg(graph(card.manifest), styled=False)),  # noqa: S704 - it escapes every name itself
        "name": request.path_params["id"],
    }


ROUTES = (
    page("/proposals", "proposals.html", _proposals), page("/proposals/{id}", "proposal.html", _proposal),
)
