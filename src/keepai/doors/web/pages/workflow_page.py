"""A workflow: its graph with live counts, what it waits for, its handlers, what it may do, and its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....engine.next_step import manifest_of
from ....model.operations import Kind
from ....reading import workflow_details
from ....reading.graph_svg import svg
from ....reading.look import Look
from ....reading.overview import standing_of
from ....reading.wording import kept_bytes
from ....reading.workflow_details import schedule_text
from ....script.topic_graph import graph
from ..site import NavLink, show, site
from ..timeline import lines

LINKS = (NavLink("Workflow", "/workflows/{wf}", order=5),)
THINGS: Mapping[str, str] = {}

VERSIONS_SHOWN = 10


def routes() -> list[Route]:
    """One page."""
    return [Route("/workflows/{wf}", _workflow)]


async def _workflow(request: Request) -> Response:
    parts = site(request).keep.parts
    surface, accounts = parts.surface, {name: parts.account(name) for name in parts.connectors}

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        return {
            **_read(look, request), "can_ask": lambda capability: surface.kind(capability) is Kind.MUTATION,
            "other_account": lambda each: each.other_account(accounts),
        }

    return await show(request, "workflow.html", read)


def _read(look: Look, request: Request) -> Mapping[str, Any]:
    row = look.views.workflow_row(request.path_params["wf"])
    manifest = manifest_of(look.read, row)
    made, run = graph(manifest), look.read.one("run_open", workflow_id=row["id"])
    said = workflow_details.graph_captions(made, workflow_details.waiting(look.read, row), run)
    explained = look.views.explain(row["id"], look.now_ms)
    asked = look.views.needs_you(look.now_ms, row["id"])
    stands = look.views.workflow(row["id"], look.now_ms)
    return {
        "wf": row, "explained": explained, "story": lines(explained.story), "schedule": schedule_text,
        "questions": len(asked), "kept": kept_bytes(stands.bytes), "standing": standing_of(stands, asked, run)[0],
        "graph": Markup(svg(made, said, styled=False)),  # noqa: S704 - it escapes every name itself
        "handlers": workflow_details.handler_times(look.read, row, manifest),
        "versions": workflow_details.versions(look.read, row),
        "permissions": workflow_details.permissions(look.read, row, manifest), "most": VERSIONS_SHOWN,
        "held": run is not None,
        "has_schedule": any(each.kind != "consumer" for each in manifest.handlers),
    }
