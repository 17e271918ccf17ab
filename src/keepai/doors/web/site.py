"""What a page uses: `show` reads the ledger in a thread and makes the page from it; `site` has the rest.

Each page reads in a thread of its own with a read-only connection, at one moment of the ledger. So a page never holds
up the host's loop, and nothing is written from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ...model.acts import has
from ...reading.activity import ActivityCounts
from ...reading.look import Look
from ..live import LiveUpdates
from ..presence import Presence
from .guard import Refusal
from .plans import BegunPlans
from .render import Renderer
from .sessions import BrowserSession, Sessions

if TYPE_CHECKING:
    from ...app import Keep
import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import local
from typing import TypeVar

from ...config import Settings
from ...model.clock import Clock
from ...reading.look import LastingLook
from ...reading.unknown_outcome import HostFacts

LIVE = "x-keep-live"  #: the header with which a page asks for itself again

Read = Callable[[Look, Request], Mapping[str, Any]]


@dataclass(frozen=True)
class NavLink:
    """One entry of the navigation. If its path has `{wf}`, it belongs to the navigation of that workflow."""

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
    presence: Presence
    renderer: Renderer
    links: tuple[NavLink, ...]
    activity: ActivityCounts
    plans: BegunPlans


def site(request: Request) -> Site:
    """What the routes of this app share."""
    return cast("Site", request.app.state.site)


def session(request: Request) -> BrowserSession:
    """The session of a request; the guard has made sure that there is one."""
    found = request.state.session
    assert isinstance(found, BrowserSession), "the guard lets no request pass without one"
    return found


def acting(request: Request) -> Keep:
    """The host, for the person whose session it is."""
    return site(request).keep.acting_as(session(request).principal)


def page(path: str, template: str, read: Read) -> Route:
    """The route of a page, which shows what `read` finds in its template."""

    async def shown(request: Request) -> Response:
        return await show(request, template, read)

    return Route(path, shown)


async def show(request: Request, template: str, read: Read, status: int = 200) -> Response:
    """A page: what `read` finds at one moment of the ledger, in its template."""
    here, who, seen = site(request), session(request), site(request).live.number
    notes = who.take_notes() if request.method == "GET" and LIVE not in request.headers else []

    def make(look: Look) -> str:
        frame = _frame(look, request, here.links)
        more = {"notes": notes, "seen": seen, "has": partial(has, who.principal.role), "role": who.principal.role}
        return here.renderer.page(template, {**frame, **more, **read(look, request)})

    return HTMLResponse(await here.looks.read(make), status)


def _frame(look: Look, request: Request, links: tuple[NavLink, ...]) -> dict[str, Any]:
    """What every page has around its own content."""
    return {
        "shown": look.views.version(), "now_ms": look.now_ms, "path": request.url.path, "links": links, "wf": None,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "asked": len(look.views.needs_you(look.now_ms)),
    }


async def tell(request: Request, refusal: Refusal) -> Response:
    """A page that says why a request was refused."""
    return await show(request, "refused.html", lambda look, request: vars(refusal), refusal.status)


# -- reading the ledger -------------------------------------------------------------------------------


T = TypeVar("T")

THREADS = 2


class LookThreads:
    """Looks at one ledger from several threads, each with a look of its own."""

    def __init__(self, settings: Settings, clock: Clock, host: HostFacts) -> None:
        self._settings, self._clock, self._host = settings, clock, host
        self.ledger = str(settings.ledger)  # an address may have a password in it
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="keep-page")
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="keep-page-watcher")
        self._own = local()
        self._looks: list[LastingLook] = []

    async def read(self, what: Callable[[Look], T]) -> T:
        """What `what` finds, all of it at one moment of the ledger."""
        def found(look: Look) -> T:
            with look.read.moment():
                return what(replace(look, now_ms=self._clock.now_ms()))

        return await asyncio.get_running_loop().run_in_executor(self._threads, self._asked, found)

    async def change(self) -> int:
        """A number that changes whenever somebody commits. It counts for one look, so one thread alone asks for it."""
        return await asyncio.get_running_loop().run_in_executor(
            self._watcher, self._asked, lambda look: look.read.change())

    def close(self) -> None:
        """Wait for the reads under way, then close the ledger."""
        for each in (self._threads, self._watcher):
            each.shutdown(wait=True, cancel_futures=True)
        for look in self._looks:
            look.close()

    def _asked(self, what: Callable[[Look], T]) -> T:
        """The answer of this thread's look."""
        if not hasattr(self._own, "look"):
            self._own.look = LastingLook(self._settings.ledger, self._settings.policy, self._host)
            self._looks.append(self._own.look)
        look: LastingLook = self._own.look
        return look.ask(what)
