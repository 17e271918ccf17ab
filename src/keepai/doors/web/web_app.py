"""Puts the page together: the routes of every module in pages/, the few that are no pages, and the guard around all."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ...model.errors import KeepError, LedgerUnusable, NotFound
from . import pages
from .act_route import act
from .assets import Assets
from .guard import SIGN_IN, Guard, PageNames, Refusal
from .live import STREAMS_MAX
from .site import NavLink, Site, session, site, tell

_NOT_THERE = Refusal(404, "There is no such page. The first page has links to everything.")


def modules() -> Iterator[ModuleType]:
    """Every page."""
    for found in pkgutil.iter_modules(pages.__path__):
        yield importlib.import_module(f"{pages.__name__}.{found.name}")


def links() -> tuple[NavLink, ...]:
    """The navigation, in its order."""
    every = [link for module in modules() for link in module.LINKS]
    return tuple(sorted(every, key=lambda link: link.order))


def things() -> dict[str, str]:
    """The beginning of an id → the path of the page for whatever has such an id."""
    return {prefix: path for module in modules() for prefix, path in module.THINGS.items()}


def make(here: Site, names: PageNames, assets: Assets, first: Sequence[Route] = ()) -> Guard:
    """The whole page, guarded; routes that come `first` stand before others of the same path."""
    handlers = {HTTPException: _http, KeepError: _keep, LedgerUnusable: _ledger}
    app = Starlette(routes=[*first, *app_routes(assets)], exception_handlers=handlers)
    guard = Guard(
        app, here.sessions, names, lambda request, refusal: _refused(here, request, refusal),
        lambda who: HTMLResponse(here.renderer.page("entered.html", {"csrf": who.csrf})),
    )
    app.state.site, app.state.guard = here, guard
    return guard


def app_routes(assets: Assets | None = None) -> list[Route]:
    """Everything that can be asked for."""
    return [
        *(route for module in modules() for route in module.routes()),
        Route("/live", _live),
        Route("/act", act, methods=["POST"]),
        Route(SIGN_IN, _sign_in, methods=["POST"]),
        Route("/sign-out", _sign_out, methods=["POST"]),
        Route("/static/{name}", (assets or Assets()).serve),
    ]


async def _live(request: Request) -> Response:
    """Events for as long as the page is open."""
    live, seen = site(request).live, request.query_params.get("seen", "")
    if live.streams >= STREAMS_MAX:
        return Response(status_code=503)
    number = int(seen) if seen.isascii() and seen.isdecimal() else -1
    return StreamingResponse(live.events(number), media_type="text/event-stream")


async def _sign_in(request: Request) -> Response:
    """From the right password to the first page; after wrong ones from the same address a try waits a few seconds."""
    here: Site = site(request)
    address = request.client.host if request.client else ""
    if not await here.sessions.tries.turn(address):
        told = "Too many tries from your address at one time: this one was not looked at. Try again."
        return _refused(here, request, Refusal(429, told))
    cookie = here.sessions.enter_with_password(request.state.form.get("password", ""))
    here.sessions.tries.judged(address, is_right=cookie is not None)
    if cookie is None:
        return _refused(here, request, Refusal(401, "That is not the password."))
    guard: Guard = request.app.state.guard
    return guard.signed_in(request, cookie)


async def _sign_out(request: Request) -> Response:
    """End this browser's session."""
    site(request).sessions.leave(session(request))
    return RedirectResponse("/", 303)


# -- what is no page -----------------------------------------------------------------------------


def _refused(here: Site, request: Request, refusal: Refusal) -> Response:
    """For somebody who is not signed in, or should not be: nothing of the ledger stands on it."""
    context = {
        **vars(refusal), "password": here.sessions.has_password and refusal.status in (401, 403, 429),
        "csrf": here.sessions.csrf, "sign_in": SIGN_IN, "outside": refusal.status == 401,
    }
    headers = {"hx-refresh": "true"} if "hx-request" in request.headers else {}
    return HTMLResponse(here.renderer.page("outside.html", context), refusal.status, headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), error
    if request.state.session is None:
        return Response(status_code=error.status_code)
    return await tell(request, _NOT_THERE if error.status_code == 404 else Refusal(error.status_code, error.detail))


async def _keep(request: Request, error: Exception) -> Response:
    assert isinstance(error, KeepError), error
    return await tell(request, Refusal(404 if isinstance(error, NotFound) else 409, error.message))


async def _ledger(request: Request, error: Exception) -> Response:
    """The ledger cannot be read: nothing more can be read to say so."""
    told = f"The ledger cannot be read now. {error} The terminal in which Keep runs says more."
    return _refused(site(request), request, Refusal(503, told))
