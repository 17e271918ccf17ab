"""What a page is given: `show` reads the ledger in a thread and makes the page from it; `site` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...reading.look import Look
from .guard import Refusal
from .live import LiveUpdates
from .look_threads import LookThreads
from .render import Renderer
from .sessions import BrowserSession, Sessions

if TYPE_CHECKING:
    from ...app import Keep

LIVE = "x-keep-live"  #: the header with which a page asks for itself again

Read = Callable[[Look, Request], Mapping[str, Any]]


@dataclass(frozen=True)
class NavLink:
    """One entry of the navigation: `{wf}` in its path stands for a workflow, whose navigation it then belongs to."""

    label: str
    path: str
    order: int
    counts: bool = False  # shows how many questions wait for a person


@dataclass(frozen=True)
class Site:
    """Everything that the routes share."""

    keep: Keep
    looks: LookThreads
    live: LiveUpdates
    sessions: Sessions
    renderer: Renderer
    links: tuple[NavLink, ...]


def site(request: Request) -> Site:
    """What the routes of this app share."""
    return cast("Site", request.app.state.site)


def session(request: Request) -> BrowserSession:
    """The session of a request; the guard has seen to it that there is one."""
    found = request.state.session
    assert isinstance(found, BrowserSession), "the guard lets nobody pass without one"
    return found


async def show(request: Request, template: str, read: Read, status: int = 200) -> Response:
    """A page: what `read` finds at one moment of the ledger, in its template."""
    here, who, seen = site(request), session(request), site(request).live.number
    notes = who.take_notes() if request.method == "GET" and LIVE not in request.headers else []

    def make(look: Look) -> str:
        frame = _frame(look, request, here.links)
        more = {"notes": notes, "seen": seen}
        return here.renderer.page(template, {**frame, **more, **read(look, request)})

    return HTMLResponse(await here.looks.read(make), status)


def _frame(look: Look, request: Request, links: tuple[NavLink, ...]) -> dict[str, Any]:
    """What stands around every page."""
    return {
        "shown": look.views.version(), "now_ms": look.now_ms, "path": request.url.path, "links": links, "wf": None,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "asked": len(look.views.needs_you(look.now_ms)),
    }


async def tell(request: Request, refusal: Refusal) -> Response:
    """A page that says why there is nothing to see here."""
    return await show(request, "refused.html", lambda look, request: vars(refusal), refusal.status)
