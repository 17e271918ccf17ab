"""Search over everything, the palette's entries, and the way from an id to its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ....model.acts import ACTS, has
from ....model.ids import number_of
from ....reading import lists
from ....reading.look import Look
from ....reading.reasons import TRIGGERS
from ....reading.waterfall import duration_text
from ..filters import TEXT_MAX
from ..site import NavLink, session, show, site

LINKS: tuple[NavLink, ...] = ()
THINGS = {
    "wf_": "/workflows/{id}",
    **dict.fromkeys(("ask_", "apr_", "fix_"), "/needs-you?q={id}"),
}

ROWS = 10  #: of each kind
WORKFLOWS_MAX = 200  #: in the palette


async def _search(request: Request) -> Response:
    sought = request.query_params.get("text", "").strip()[:TEXT_MAX]
    target = site(request).renderer.address(sought) if number_of(sought) or sought.startswith("ask_") else None
    return RedirectResponse(target, 303) if target else await show(request, "search.html", _found)


def _found(look: Look, request: Request) -> Mapping[str, Any]:
    sought = request.query_params.get("text", "").strip()[:TEXT_MAX]
    if not sought:
        return {"sought": ""}
    wanted, rows = lists.ListFilter(text=sought), look.read.all("workflow_all")
    return {
        "sought": sought, "names": {row["id"]: str(row["name"]) for row in rows},
        "workflows": [row for row in rows if sought.casefold() in str(row["name"]).casefold()][:ROWS],
        "inputs": lists.inputs(look.read, lists.ALL, wanted, ROWS),
        "outputs": lists.outputs(look.read, lists.ALL, wanted, ROWS),
        "runs": lists.runs(look.read, lists.ALL, wanted, rows=ROWS),
        "triggers": TRIGGERS, "lasting": duration_text,
    }


async def _palette(request: Request) -> Response:
    """Everything that the palette offers: pages, workflows with their pages, and what can be done to them."""
    links = site(request).links
    rows, shown = await site(request).looks.read(
        lambda look: (look.read.all("workflow_all")[:WORKFLOWS_MAX], look.views.version()))
    entries: list[dict[str, Any]] = [
        {"label": link.label, "kind": "page", "href": link.path} for link in links if "{wf}" not in link.path]
    for row in rows:
        name, id = str(row["name"]), str(row["id"])
        entries += [{"label": f"{name}: {link.label}" if link.path != "/workflows/{wf}" else name, "kind": "workflow",
                     "href": link.path.replace("{wf}", id)} for link in links if "{wf}" in link.path]
        acts = ("pause", "run_now") if row["status"] == "active" else ("resume",)
        for act in [each for each in acts if has(session(request).principal.role, each)]:
            fields = {"act": act, "p.wf": id, "p.shown": str(shown), "told": f"{name}: {ACTS[act].done}"}
            entries.append({"label": f"{ACTS[act].label}: {name}", "kind": "act", "act": fields})
    return JSONResponse(entries)


ROUTES = (Route("/search", _search), Route("/palette", _palette))
