"""Home, with every workflow at a glance; what needs you; one workflow; and the versions of its script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....engine.next_step import manifest_of
from ....ledger.base import Row
from ....model.errors import NotFound
from ....model.operations import Kind
from ....reading import workflow_details
from ....reading.blast import blast
from ....reading.diffs import changes
from ....reading.graph_svg import svg
from ....reading.look import Look
from ....reading.offered_acts import CLASSES
from ....reading.overview import glances, standing_of
from ....reading.parked_runs import GOES_ON
from ....reading.shared_hosts import no_runner, place, runner
from ....reading.wording import kept_bytes
from ....reading.workflow_details import VersionInfo, schedule_text
from ....script.topic_graph import graph
from ..cards import cards
from ..site import LIVE, NavLink, page, show, site
from ..timeline import lines

LINKS = (
    NavLink("Home", "/", order=0), NavLink("Needs you", "/needs-you", order=10, counts=True),
    NavLink("Workflow", "/workflows/{wf}", order=5), NavLink("Needs you", "/workflows/{wf}/needs-you", order=10),
)
THINGS: Mapping[str, str] = {}

VERSIONS_SHOWN = 10
TOUCHED_SHOWN = 50


def _needs_you(look: Look, request: Request) -> Mapping[str, Any]:
    """Every question to a person, of all workflows or of one."""
    asked = request.path_params.get("wf")
    wf = look.views.workflow_row(asked) if asked else None
    found = look.views.needs_you(look.now_ms, wf["id"] if wf else None)
    return {"wf": wf, "cards": cards(look, found), "classes": CLASSES}


async def _workflow(request: Request) -> Response:
    parts = site(request).keep.parts
    own, surface, accounts = parts.ledger.host, parts.surface, {name: parts.account(name) for name in parts.connectors}

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        return {
            **_read_workflow(look, request), "own": own,
            "can_ask": lambda capability: surface.kind(capability) is Kind.MUTATION,
            "other_account": lambda each: each.other_account(accounts),
        }

    return await show(request, "workflow.html", read)


def _read_workflow(look: Look, request: Request) -> Mapping[str, Any]:
    row = look.views.workflow_row(request.path_params["wf"])
    manifest = manifest_of(look.read, row)
    made, run = graph(manifest), look.read.one("run_open", workflow_id=row["id"])
    said = workflow_details.graph_captions(made, workflow_details.waiting(look.read, row), run,
                                           workflow_details.parked_of(look.read, row))
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
        "held": run is not None, "shared": look.read.path is None, "runner": runner(look.read, row["id"]),
        "place": place, "no_runner": no_runner(look.read),
        "waiting": stands.waiting, "parked": stands.parked, "goes_on": GOES_ON,
        "has_schedule": any(each.kind != "consumer" for each in manifest.handlers),
    }


# -- versions --------------------------------------------------------------------------------------


def _versions(look: Look, request: Request) -> Mapping[str, Any]:
    row = look.views.workflow_row(request.path_params["wf"])
    known = workflow_details.versions(look.read, row)
    new = request.query_params.get("to") or next(each.version for each in known if each.active)
    old = request.query_params.get("from") or _before(known, new)
    before, after = _text_of(look, row, old), _text_of(look, row, new)
    return {"wf": row, "versions": known, "old": old, "new": new, "lines": changes(before, after), "text": after}


def _blast(look: Look, request: Request) -> Mapping[str, Any]:
    """All that a version touched may take seconds to gather: once, and not again at every change."""
    row = look.views.workflow_row(request.path_params["wf"])
    version = request.query_params.get("version") or f"{row['major']}.{row['minor']}"
    found = None if LIVE in request.headers else blast(look.read, row, version, most=TOUCHED_SHOWN)
    known = workflow_details.versions(look.read, row)
    return {"wf": row, "found": found, "version": version, "versions": known, "most": TOUCHED_SHOWN}


def _before(known: Sequence[VersionInfo], version: str) -> str:
    """The version before one; the first has none, and is compared with itself."""
    names = [each.version for each in known]  # the newest first
    return next(iter(names[names.index(version) + 1:]), version) if version in names else version


def _text_of(look: Look, row: Row, version: str) -> str:
    major, _, minor = version.partition(".")
    is_number = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in (major, minor))
    number = {"major": int(major), "minor": int(minor)} if is_number else None
    found = look.read.one("script_get", workflow_id=row["id"], **number) if number else None
    if found is None:
        raise NotFound(f"The workflow {row['name']!r} has no version {version[:40]!r}. Its page lists them.")
    return str(found["source"])


ROUTES = (
    page("/", "home.html", lambda look, _: {"glances": glances(look.read, look.views, look.now_ms)}),
    page("/needs-you", "needs_you.html", _needs_you), page("/workflows/{wf}/needs-you", "needs_you.html", _needs_you),
    Route("/workflows/{wf}", _workflow),
    page("/workflows/{wf}/versions", "versions.html", _versions), page("/workflows/{wf}/blast", "blast.html", _blast),
)
