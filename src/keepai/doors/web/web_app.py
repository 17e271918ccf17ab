"""Puts the page together: the routes of every page, the other routes, and the guard around all of them.

`/live` tells open pages that something changed. `/act` is the one form that does anything: its fields are an act of
`model/acts.py` and that act's parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ...model.acts import Param, requests_of
from ...model.errors import KeepError, LedgerUnusable, NotFound, PresenceNeeded, Refused
from .. import control
from ..live import STREAMS_MAX
from .guard import PIN_TOO, SIGN_IN, Guard, PageNames, Refusal
from .pages import (
    health_page,
    lists_pages,
    needs_you_page,
    permissions_page,
    plan_page,
    proposals_page,
    runs_page,
    search_page,
    workflow_pages,
)
from .pages.permissions_page import rule_of
from .render import Assets
from .sessions import ActNote
from .site import Site, acting, session, site, tell

_NOT_THERE = Refusal(404, "There is no such page. The first page has links to everything.")


#: The modules with pages.
PAGES = (
    workflow_pages, needs_you_page, proposals_page, lists_pages, runs_page, search_page, plan_page, permissions_page,
    health_page,
)
#: The navigation, in its order.
LINKS = tuple(sorted((link for pages in PAGES for link in pages.LINKS), key=lambda link: link.order))
#: The beginning of an id → the path of its page.
THINGS = {prefix: path for pages in PAGES for prefix, path in pages.THINGS.items()}


def make(here: Site, names: PageNames, assets: Assets, first: Sequence[Route] = ()) -> Guard:
    """The whole page, guarded. Routes in `first` come before others of the same path."""
    handlers = {HTTPException: _http, KeepError: _keep, LedgerUnusable: _ledger}
    app = Starlette(routes=[*first, *app_routes(assets)], exception_handlers=handlers)
    guard = Guard(
        app, here.sessions, here.presence, names, lambda request, refusal: _refused(here, request, refusal),
        lambda who: HTMLResponse(here.renderer.page("entered.html", {"csrf": who.csrf})),
    )
    app.state.site, app.state.guard = here, guard
    return guard


def app_routes(assets: Assets | None = None) -> list[Route]:
    """Every route."""
    return [
        *(route for pages in PAGES for route in pages.ROUTES),
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
    """Sign in with the right password, or the token of an address; once there is an agent, with the PIN as well.

    After wrong tries from the same address, a try waits a few seconds."""
    here: Site = site(request)
    form, address = request.state.form, request.client.host if request.client else ""
    if not await here.sessions.tries.turn(address):
        told = "Too many sign-ins from your address at the same time: Keep did not check this one. Try again."
        return _refused(here, request, Refusal(429, told))
    given = form.get("password" if here.sessions.has_password else "token", "")
    here.sessions.tries.judged(address, is_right=here.sessions.fits(given))
    if not here.sessions.fits(given):
        told = "That is not the password." if here.sessions.has_password else "Each address works once."
        return _refused(here, request, Refusal(401, told))
    try:
        await here.presence.show(form.get("pin"))
    except PresenceNeeded:
        return _refused(here, request, Refusal(401, PIN_TOO, form.get("token", ""), pin=True))
    except Refused as error:
        return _refused(here, request, Refusal(401, error.message, form.get("token", ""), pin=True))
    cookie = here.sessions.enter(given)
    if cookie is None:
        return _refused(here, request, Refusal(401, "Another browser has signed in with this address meanwhile."))
    guard: Guard = request.app.state.guard
    return guard.signed_in(request, cookie)


async def _sign_out(request: Request) -> Response:
    """End this browser's session."""
    site(request).sessions.leave(session(request))
    return RedirectResponse("/", 303)


# -- what is no page -----------------------------------------------------------------------------


def _refused(here: Site, request: Request, refusal: Refusal) -> Response:
    """A page for people who are not signed in, or may not be. It shows nothing from the ledger."""
    context = {
        **vars(refusal), "password": here.sessions.has_password and refusal.status in (401, 403, 429),
        "csrf": here.sessions.csrf, "sign_in": SIGN_IN, "outside": refusal.status == 401,
        "wanted": refusal.status == 401 and request.method == "GET" and request.url.path != "/",
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
    """Say that the ledger cannot be read, on a page that reads nothing from it."""
    told = f"The ledger cannot be read now. {error} The terminal in which Keep runs says more."
    return _refused(site(request), request, Refusal(503, told))


# -- acts ---------------------------------------------------------------------------------------------


PARAM = "p."  #: what the names of parameters begin with
GRANT = "grant."  #: what the names of the fields begin with that say what a proposal may do


async def act(request: Request) -> Response:
    """Do it, then go back to the page, which says what came of it."""
    form: Mapping[str, str] = request.state.form
    try:
        await _perform(request, form)
        note = ActNote("done", form.get("told") or "Done.")
    except KeepError as error:
        note = ActNote("refused", error.message)
    session(request).notes.append(note)
    back = form.get("stay") if note.kind == "refused" else None
    return RedirectResponse(_local(back or form.get("back", "")), 303)


async def _perform(request: Request, form: Mapping[str, str]) -> None:
    name, keep = form.get("act", ""), acting(request)
    there = requests_of(keep.principal.role)
    if name not in there:
        raise Refused(f"There is no act {name[:40]!r}.")
    given = {key.removeprefix(PARAM): text for key, text in form.items() if key.startswith(PARAM)}
    grants = {key.removeprefix(GRANT): text for key, text in form.items() if key.startswith(GRANT) and text}
    known = there[name]
    needs = [key for key, param in known.items() if param.required]
    params = {key: _typed(known, key, text) for key, text in given.items() if text or key in needs}
    rule = rule_of(form)
    if rule:
        params["mode"] = rule
    if grants:
        params["grants"] = grants
    await control.perform(keep, name, params)


def _typed(known: Mapping[str, Param], name: str, text: str) -> Any:
    """A field as the act wants it; a form has only texts."""
    types = known[name].types if name in known else (str,)
    if str in types and not (dict in types and text.lstrip().startswith("{")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise Refused(f"{name} must be JSON, such as {{\"rowId\": 3}}. Nothing was done.") from None


def _local(back: str) -> str:
    """An address of this page, even if the form names another."""
    fits = back.startswith("/") and not back.startswith("//") and "\\" not in back and back.isprintable()
    return back if fits else "/"
