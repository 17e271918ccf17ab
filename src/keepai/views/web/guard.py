"""What every request must keep before a route sees it, and what every answer carries. It stands around the whole app.

A page on a loopback address is reached by every web site that the same browser shows: by name (DNS rebinding), by
forms and scripts (CSRF), in a frame. So: only our own names in `Host`, only our own origin in what changes
something, a token in each form, and a cookie that other sites cannot make the browser send.

`Referrer-Policy` is `same-origin` and not `no-referrer`: with that, browsers send `Origin: null` with our own forms.
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

from .door import Door, Session, same

BODY_BYTES_MAX = 1 << 20
METHODS = ("GET", "HEAD", "POST")
FORM = "application/x-www-form-urlencoded"
SIGN_IN = "/sign-in"

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


STRANGER = Refusal(401, "This page is yours alone, and this browser is not signed in.")


@dataclass(frozen=True)
class Names:
    """By which names this server may be called."""

    host: str
    port: int

    def fit(self, given: str) -> bool:
        """Whether a `Host` header is ours: a loopback name; where the network may come in, an address or our name."""
        name, port = _split(given)
        if port != self.port:
            return False
        if name == "localhost" or is_loopback(name):
            return True
        own = {self.host.lower(), socket.gethostname().lower()}
        return not is_loopback(self.host) and (name in own or _is_address(name))


def is_loopback(host: str) -> bool:
    """Whether nobody outside this machine can reach an address."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    """Whether it is an address and no name: only names can be made to point elsewhere."""
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


class Guard:
    """The middleware; `refuse` makes the page that tells why."""

    def __init__(self, app: ASGIApp, door: Door, names: Names, refuse: Refuse) -> None:
        self._app, self._door, self._names, self._refuse = app, door, names, refuse
        #: Cookies know no ports: two hosts on one machine must not sign each other out.
        self.cookie = f"keep_session_{names.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"The page speaks HTTP, not {scope['type']}.")
        request = Request(scope, receive)
        sending = _sealed(send, request.url.path)
        answer, receive = await self._judge(request, receive)
        await (answer or self._app)(scope, receive, sending)

    async def _judge(self, request: Request, receive: Receive) -> tuple[Response | None, Receive]:
        """The answer of the guard itself, if it lets the request go no further."""
        wrong = self._misfit(request)
        if wrong:
            return self._refuse(request, wrong), receive
        session = self._door.session(request.cookies.get(self.cookie, ""))
        request.scope.setdefault("state", {})["session"] = session
        entered = self._enter(request, session)
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
        """What is wrong with a request whoever sends it."""
        if request.method not in METHODS:
            return Refusal(405, "Only GET, HEAD and POST are understood here.")
        if len(request.headers.getlist("host")) != 1 or not self._names.fit(request.headers["host"]):
            return Refusal(421, "This server is not the one that this address names.")
        if request.method == "POST" and not _is_own(request.headers):
            return Refusal(403, "This form was not sent from a page of Keep. Nothing was done.")
        return None

    def _enter(self, request: Request, session: Session | None) -> Response | None:
        """Let in whoever has the token, once, and take it out of the address."""
        given = request.query_params.get("token")
        if request.method != "GET" or request.url.path != "/" or not given or self._door.has_password:
            return None
        if session is not None:
            return RedirectResponse("/", 303)
        cookie = self._door.enter_with_token(given)
        if cookie is None:
            told = "The address was used already, or is an older one: each works once."
            return self._refuse(request, Refusal(401, told))
        return self.signed_in(cookie)

    def signed_in(self, cookie: str) -> Response:
        """Go to the first page with a session."""
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self.cookie, cookie, httponly=True, samesite="strict", path="/")
        return answer

    def _forged(self, request: Request, session: Session | None, body: bytes) -> Refusal | None:
        """Whether a form lacks the token that only our own pages have."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != FORM:
            return Refusal(415, "Only forms are understood here.")
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        request.scope["state"]["form"] = fields
        wanted = session.csrf if session else self._door.csrf
        if not same(fields.get("csrf", ""), wanted):
            return Refusal(403, "This form is from an earlier visit. Nothing was done: load the page again.")
        return None


def _is_own(headers: Headers) -> bool:
    """Whether a browser says that one of our own pages sends this; one that says nothing is not believed."""
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
