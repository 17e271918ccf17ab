"""The versions of a workflow's script: any two side by side, and what the runs of one have touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....ledger.base import Row
from ....model.errors import NotFound
from ....reading import workflow_details
from ....reading.blast import blast
from ....reading.diffs import changes
from ....reading.look import Look
from ....reading.workflow_details import VersionInfo
from ..site import LIVE, NavLink, show

LINKS: tuple[NavLink, ...] = ()
THINGS: Mapping[str, str] = {}

TOUCHED_SHOWN = 50


def routes() -> list[Route]:
    """The comparison, and the blast radius."""
    return [Route("/workflows/{wf}/versions", _versions), Route("/workflows/{wf}/blast", _blast)]


async def _versions(request: Request) -> Response:
    return await show(request, "versions.html", _read_versions)


async def _blast(request: Request) -> Response:
    return await show(request, "blast.html", _read_blast)


def _read_versions(look: Look, request: Request) -> Mapping[str, Any]:
    row = look.views.workflow_row(request.path_params["wf"])
    known = workflow_details.versions(look.read, row)
    new = request.query_params.get("to") or next(each.version for each in known if each.active)
    old = request.query_params.get("from") or _before(known, new)
    before, after = _text(look, row, old), _text(look, row, new)
    return {"wf": row, "versions": known, "old": old, "new": new, "lines": changes(before, after), "text": after}


def _read_blast(look: Look, request: Request) -> Mapping[str, Any]:
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


def _text(look: Look, row: Row, version: str) -> str:
    major, _, minor = version.partition(".")
    number = {"major": int(major), "minor": int(minor)} if _is_number(major) and _is_number(minor) else None
    found = look.read.one("script_get", workflow_id=row["id"], **number) if number else None
    if found is None:
        raise NotFound(f"The workflow {row['name']!r} has no version {version[:40]!r}. Its page lists them.")
    return str(found["source"])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
