"""Health: the host, its ledger, its sandbox and its connectors; what is wrong with them and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ....ledger.opening import library, schema
from ....model.clock import iso
from ....reading.look import Look
from ....reading.shared_hosts import heard, no_runner, state
from ....reading.wording import count, size
from ...health_checks import FAIL, OK, WARN, HealthLine, check_channels, check_clock, check_disk, check_hosts
from ..deep_checks import DeepChecks
from ..site import NavLink, show, site

LINKS = (NavLink("Health", "/health", order=90),)
THINGS: Mapping[str, str] = {}

HOSTS_SHOWN = 5


async def _health(request: Request) -> Response:
    stopped, examined = site(request).keep.parts.ledger.stopped(), _deep_checks(request)
    own = site(request).keep.parts.ledger.host
    connectors = [(each.name, each.account) for each in site(request).keep.parts.connectors.values()]

    def read(look: Look, request: Request) -> Mapping[str, Any]:
        found = [*_troubles(look, stopped), *(each for each in examined.found if each.state != OK)]
        return {"found": found, "examined": examined, "connectors": connectors, "stopped": stopped, **_facts(look, own)}

    return await show(request, "health.html", read)


async def _examine(request: Request) -> Response:
    here = site(request)
    _deep_checks(request).begin(here.keep, here.looks.ledger)
    return RedirectResponse("/health#examined", 303)


async def _healthz(request: Request) -> Response:
    stopped = site(request).keep.parts.ledger.stopped()
    own = site(request).keep.parts.ledger.host
    told = await site(request).looks.read(lambda look: _told(look, own, stopped))
    return JSONResponse(told, 503 if stopped else 200)


def _deep_checks(request: Request) -> DeepChecks:
    """The one of this app."""
    state = request.app.state
    if not hasattr(state, "deep_checks"):
        state.deep_checks = DeepChecks()
    found: DeepChecks = state.deep_checks
    return found


def _told(look: Look, own: str, stopped: str | None) -> dict[str, Any]:
    [host] = look.read.all("look_host", host=own)
    oldest = look.read.one("look_oldest_pending")
    return {
        "ok": stopped is None, "stopped": stopped, "version": version("keepai"), "pid": host["pid"],
        "since": iso(host["started_at"]), "workflows": len(look.read.all("workflow_all")),
        "needs_you": len(look.views.needs_you(look.now_ms)),
        "oldest_pending": iso(oldest["created_at"]) if oldest else None,
    }


def _facts(look: Look, own: str) -> dict[str, Any]:
    return {
        "this": look.read.one("look_host", host=own), "version": version("keepai"),
        "before": [row for row in look.read.all("look_hosts", limit=HOSTS_SHOWN) if row["id"] != own],
        "present": look.read.hosts(), "state": state, "heard": heard,
        "oldest": look.read.one("look_oldest_pending"), "name_of_ledger": look.read.name,
        "bytes": size(look.read.bytes()), "entries": look.views.version(),
        "file": _facts_of_file(look.read.path) if look.read.path else None,
    }


def _facts_of_file(file: Path) -> dict[str, Any]:
    wal = Path(f"{file}-wal")
    return {
        "wal": size(wal.stat().st_size) if wal.exists() else "none", "schema": schema(), "sqlite": library(),
        "disk": check_disk(file).said,
    }


def _troubles(look: Look, stopped: str | None) -> list[HealthLine]:
    """What is wrong as far as the ledger and this machine show, without asking a connector."""
    disk = [check_disk(look.read.path)] if look.read.path else []
    found = [each for each in (*disk, check_clock(look), *check_hosts(look), *check_channels(look)) if each.state != OK]
    if stopped:
        do = "Mend that, then end Keep and start it again: nothing that was recorded is lost."
        found.insert(0, HealthLine("ledger", FAIL, stopped, do))
    without_host = look.read.without_host()
    for workflow in look.views.workflows(look.now_ms):
        if workflow.stale:
            said = f"{count(workflow.stale, 'event')} of {workflow.name} waited for longer than policy.stale_s allows."
            found.append(HealthLine("events", WARN, said, "The page Events shows why no consumer takes them."))
        if workflow.id in without_host:
            said = f"No host runs the workflow {workflow.name}."
            found.append(HealthLine("workflow", WARN, said, no_runner(look.read)))
    return found


#: The page, the form that starts the thorough check, and the same for programs.
ROUTES = (
    Route("/health", _health), Route("/health/examine", _examine, methods=["POST"]), Route("/healthz", _healthz),
)
