"""The rules for every request before a route sees it, and the headers of every answer. It surrounds the whole app.

Every web site in the same browser can reach a page on a loopback address: by name (DNS rebinding), by forms and scripts
(CSRF), in a frame. So the guard accepts only our own name in `Host` and only our own origin in a request that changes
something, and asks for a token in each form and a cookie that other sites cannot make the browser send.

A browser sends a cookie to every port of its host, and so to the server of any other program at 127.0.0.1. So the page
has a name of its own that cannot be guessed, `<random>.localhost`, and another one at each start. Browsers know that
such a name means this machine. A program that gets the cookie nevertheless can look but not act: an act needs a token
that the page gives out once, at sign-in, and that is in no cookie and no page (static/token.js).

`Referrer-Policy` is `same-origin`: with `no-referrer`, browsers would send `Origin: null` with our own forms.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..presence import Presence
from .sessions import BrowserSession, Sessions, same

BODY_BYTES_MAX = 1 << 20
METHODS = ("GET", "HEAD", "POST")
FORM = "application/x-www-form-urlencoded"
SIGN_IN = "/sign-in"
LOCALHOST = "localhost"

#: What may be seen without a session: style and script, which are the same everywhere, and the way in.
PUBLIC = ("/static/", SIGN_IN)

_CSP = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
))

#: Every answer carries these.
HEADERS: Mapping[str, str] = MappingProxyType({
    "content-security-policy": _CSP,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
})
NO_STORE = "no-store"


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    told: str
    token: str = ""  # with which somebody wants to sign in
    pin: bool = False  # whether the PIN is wanted for that


PIN_TOO = "Agents are registered here, so whoever signs in types the PIN as well."
STRANGER = Refusal(401, "Only you may see this page, and this browser is not signed in.")


@dataclass(frozen=True)
class PageNames:
    """The names that this server answers to: its own; if it is open to the network, also its addresses."""

    name: str
    port: int
    is_private: bool  # only this machine can reach the page

    def fit(self, given: str) -> bool:
        """Whether a `Host` header is ours."""
        name, port = _split(given)
        if port != self.port:
            return False
        if name == self.name.lower():
            return True
        return not self.is_private and (name in (LOCALHOST, socket.gethostname().lower()) or _is_address(name))

    @property
    def origin(self) -> str:
        """How an address of the page begins."""
        return f"http://{f'[{self.name}]' if ':' in self.name else self.name}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host == LOCALHOST or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    """Whether it is an address and not a name: only a name can be made to point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _split(host: str) -> tuple[str, int]:
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host.strip().lower(), "80"
    return name.removeprefix("[").removesuffix("]"), int(port) if port.isascii() and port.isdecimal() else -1


Refuse = Callable[[Request, Refusal], Response]
#: The page right after sign-in; it alone carries the token of the session.
Welcome = Callable[[BrowserSession], Response]


class Guard:
    """The middleware; `refuse` makes the page that tells why, `welcome` the one after signing in."""

    def __init__(
        self, app: ASGIApp, sessions: Sessions, presence: Presence, names: PageNames, refuse: Refuse, welcome: Welcome,
    ) -> None:
        self._app, self._sessions, self._presence, self._names = app, sessions, presence, names
        self._refuse, self._welcome = refuse, welcome
        # Cookies ignore ports. With the port and a random part in the name, two hosts on one machine do not sign each
        # other out, and no other program can set this cookie.
        self._of_port = f"keep_{names.port}_"
        self.cookie = self._of_port + sessions.label

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"The page speaks HTTP, not {scope['type']}.")
        request = Request(scope, receive)
        sending = _sealed(send, request.url.path)
        answer, receive = await self._judge(request, receive)
        await (answer or self._app)(scope, receive, sending)

    async def _judge(self, request: Request, receive: Receive) -> tuple[Response | None, Receive]:
        """The guard's own answer, if it stops the request."""
        wrong = self._misfit(request)
        if wrong:
            return self._refuse(request, wrong), receive
        session = self._sessions.session(request.cookies.get(self.cookie, ""))
        request.scope.setdefault("state", {})["session"] = session
        entered = await self._enter(request, session)
        if entered:
            return entered, receive
        if session is None and not request.url.path.startswith(PUBLIC):
            return self._refuse(request, STRANGER), receive
        if request.method != "POST":
            return None, receive
        body = await _body(request)
        wrong = body if isinstance(body, Refusal) else self._forged(request, session, body)
        return (self._refuse(request, wrong) if wrong else None), _replay(body)

    def _misfit(self, request: Request) -> Refusal | None:
        """What is wrong with a request, signed in or not."""
        if request.method not in METHODS:
            return Refusal(405, "This page accepts only GET, HEAD and POST.")
        if len(request.headers.getlist("host")) != 1 or not self._names.fit(request.headers["host"]):
            return Refusal(421, "This is not the address of the page. The terminal in which Keep runs has printed it.")
        if request.method == "POST" and not _is_own(request.headers):
            return Refusal(403, "This form was not sent from a page of Keep. Nothing was done.")
        return None

    async def _enter(self, request: Request, session: BrowserSession | None) -> Response | None:
        """Sign in a browser that has the token, or ask it for the PIN first. The token works once, and is removed from
        the address."""
        given = request.query_params.get("token")
        if request.method != "GET" or request.url.path != "/" or not given or self._sessions.has_password:
            return None
        if self._sessions.fits(given) and await self._presence.is_wanted():
            return self._refuse(request, Refusal(401, PIN_TOO, given, pin=True))
        cookie = self._sessions.enter(given)
        if cookie is not None:
            return self.signed_in(request, cookie)
        if session is not None:
            return RedirectResponse("/", 303)
        told = "This address was already used, or a newer one replaced it: each works once."
        return self._refuse(request, Refusal(401, told))

    def signed_in(self, request: Request, cookie: str) -> Response:
        """Give the browser the session: its cookie, and its token."""
        session = self._sessions.session(cookie)
        assert session is not None, "it has just begun"
        answer = self._welcome(session)
        answer.set_cookie(self.cookie, cookie, httponly=True, samesite="strict", path="/")
        for name in request.cookies:
            if name.startswith(self._of_port) and name != self.cookie:
                answer.delete_cookie(name)  # cookies of earlier hosts at this port: they would pile up
        return answer

    def _forged(self, request: Request, session: BrowserSession | None, body: bytes) -> Refusal | None:
        """Whether a form lacks the token that only our own pages have."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != FORM:
            return Refusal(415, "This address accepts only forms.")
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        request.scope["state"]["form"] = fields
        wanted = self._sessions.csrf if session is None or request.url.path == SIGN_IN else session.csrf
        if not same(fields.get("csrf", ""), wanted):
            return Refusal(403, "This form lacks the token of this visit. Nothing was done: sign in again.")
        return None


def _is_own(headers: Headers) -> bool:
    """Whether the browser says that one of our own pages sends this. Without such a header it is refused."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        return False
    if origin is None:
        return site == "same-origin"
    return origin == f"http://{headers['host']}"


async def _body(request: Request) -> bytes | Refusal:
    """The whole body, if it is not too large."""
    too_large = Refusal(413, f"A form has at most {BODY_BYTES_MAX:,} bytes.")
    given = request.headers.get("content-length", "0")
    if not given.isdecimal() or int(given) > BODY_BYTES_MAX:
        return too_large
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > BODY_BYTES_MAX:
            return too_large
    return bytes(read)


def _replay(body: bytes | Refusal) -> Receive:
    """The body once more, for the route."""
    left = [b"" if isinstance(body, Refusal) else body]

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else {"type": "http.disconnect"}

    return receive


def _sealed(send: Send, path: str) -> Send:
    """Adds what every answer carries."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if not path.startswith("/static/") or message["status"] != 200:
                headers["cache-control"] = NO_STORE
        await send(message)

    return sending
