# ruff: noqa: E501 (an attack is read best on one line)
"""The page, by other sites in the same browser, other servers on this machine, stolen cookies, and texts that are markup."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode, urlsplit

from markupsafe import Markup

from keepai.config import Settings
from keepai.doors.web import guard, render
from keepai.doors.web.page_server import PageServer
from keepai.doors.web.web_app import app_routes
from tests.attack.base import Area, Attack, Planted, must
from tests.attack.webhook import RAW
from tests.attack.wire import headers, said, status
from tests.harness import Story, consumer, producer, take_first, workflow
from tests.web.conftest import Answer, Served

PATHS = sorted({route.path for route in app_routes()})
POSTS = sorted(route.path for route in app_routes() if "POST" in (route.methods or ()))
#: What must not be seen without a session: words of the workflow, ids, tokens.
WORDS = ("canary", "appendRow", "feed", "wf_", "inp_", "run_", "csrf\" value")
HOSTS = ("evil.example:{port}", "127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "other.localhost:{port}", "127.0.0.1",
         "localhost:1", "{own}.evil.example:{port}", "{own}:1", "{own}", "x@{own}:{port}", "{own}:{port}@evil.example", "", "{own}:+{port}",
         "evil.{own}:{port}", "{own}.:{port}", "{own}:{port},evil.example")
ORIGINS: tuple[dict[str, str], ...] = (
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "https://{own}:{port}"}, {"Origin": "http://127.0.0.1:{port}"},
    {"Origin": "http://{own}:1"}, {"Origin": ""}, {"Origin": "http://{own}.evil.example:{port}"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://localhost:{port}"},
)
BACKS = ("//evil.test/", "https://evil.test/", "/\\evil.test", "\\\\evil.test", "javascript:canary()", "/ /evil.test", "///evil.test",
         "/\t/evil.test", "http:evil.test", "\x00//evil.test", "/%09/evil.test/../..//evil.test")
MARKUP = ('<xss-canary>', '"><img src=x onerror=canary()>', "' onmouseover='canary()", "</title></textarea></script><script>canary()</script>",
          "javascript:canary()", "{{ 7 * 7 }}{% for x in y %}", "<svg/onload=canary()>", "&lt;xss-canary&gt;", "\u202e\u2066<b>", "]]><xss-canary>",
          "<!--", "<a href=javascript:canary()>", "\\u003cxss-canary\\u003e", "<style>*{}</style>", "<base href=//evil.test>")
PAGES_MAX = 80


@dataclass
class Site:
    """A host with its page, a signed-in browser, and a workflow whose every text is hostile."""

    served: Served
    wf: str
    expected: int = 0

    @property
    def own(self) -> str:
        """The name of the page."""
        return str(urlsplit(self.served.web.origin).hostname)

    def fill(self, text: str) -> str:
        return text.replace("{own}", self.own).replace("{port}", str(self.served.web.port))

    def path(self, route: str) -> str:
        """A route's path with something in its places."""
        return re.sub(r"\{(\w+)\}", lambda found: {"name": "keep.css", "wf": self.wf}.get(found[1], "x"), route)

    async def version(self) -> int:
        """The number of the last thing that anybody did or that happened."""
        return int(await self.served.story.keep.version())


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Site]:
    settings = Settings(ledger=folder / "keep.db")
    async with Story(folder) as story, PageServer(story.keep, settings, port=0) as web:
        served = Served(story, web)
        await served.sign_in()
        yield Site(served, await _hostile(story))


async def _hostile(story: Story) -> str:
    """A workflow that has done things, waits for a person, and failed; all of its texts are markup."""
    import json

    text = json.dumps(" ".join(MARKUP))
    head = f"const canary = {text};\n"
    prepare = take_first() .replace("return {", "console.log(canary); return {", 1)
    source = workflow(
        "canary", topics=("in", "<xss-canary>'\"&"), head=head, producers={"poll": producer()},
        consumers={"take": consumer(
            prepare.replace("ui: { title: event.messageId }", "ui: { title: canary }"),
            mutate="if (prepared.data.payload.bad) throw new Error(canary); await ctx.sheets.appendRow({ spreadsheetId: canary, values: [canary, { [canary]: 1 }] });",
        )})
    wf = await story.deploy(source)
    whole = " ".join(MARKUP)
    story.feed.put("one <xss-canary>", {"subject": whole, whole[:40]: [whole]}, title=whole)
    await story.run()
    await story.keep.grant(wf, "sheets.appendRow", {"mode": "ask", "match": {"spreadsheetId": "*<xss-canary>*"}})
    story.feed.put("two", {"bad": False}, title=f"two {whole}")
    await story.run(minutes=5)
    other = workflow("failing canary", head=head, producers={"poll": producer()}, consumers={
        "take": consumer(prepare, mutate="throw new Error(canary);")})
    await story.deploy(other)
    await story.run(minutes=5)
    return wf


def attacks(site: Site) -> Iterator[Attack]:
    for route in PATHS:
        yield Attack(f"a stranger asks for {route}", lambda route=route: _stranger(site, route))
    for cookie in ("", "x", "keep_1_x=abc", "{own}=", "{own}=abc", "{own}=ä", "{own}", "{own}=; {own}="):
        yield Attack(f"a stranger makes up a cookie: {cookie}", lambda cookie=cookie: _made_up(site, cookie))
    for host in HOSTS:
        yield Attack(f"another name leads to the page: Host {host}", lambda host=host: _host(site, host))
    for route in POSTS:
        for given in ORIGINS:
            yield Attack(f"another site sends a form to {route}: {given}", lambda r=route, g=given: _cross_site(site, r, g))
        yield Attack(f"a stolen cookie without a token acts by {route}", lambda route=route: _without_token(site, route))
        yield Attack(f"looking at {route} does something", lambda route=route: _by_looking(site, route))
        for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
            yield Attack(f"a body of another kind goes to {route}: {kind or 'none'}", lambda r=route, k=kind: _kind(site, r, k))
    yield Attack("the server of another program on this machine gets the cookie", lambda: _other_port(site))
    yield Attack("a stolen cookie reads a token out of some page, and acts with it", lambda: _token_in_a_page(site))
    yield Attack("an address that was used once is used again", lambda: _address_again(site))
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
        yield Attack(f"another method: {method}", lambda method=method: _method(site, method))
    for name, data in RAW.items():
        yield Attack(f"a raw request: {name}", lambda data=data: _raw(site, data))
    for back in BACKS:
        yield Attack(f"a form leads the browser elsewhere: {back!r}", lambda back=back: _leads(site, back))
    yield Attack("a form is larger than the host's memory likes", lambda: _large(site))
    yield Attack("a file outside of the page's own is asked for", lambda: _static(site))
    yield Attack("a text of a script, an input or an outside system becomes markup on some page", lambda: _markup(site))
    yield Attack("a text in an address becomes markup on some page", lambda: _reflected(site))
    for name in MARKUP:
        yield Attack(f"a text of a form becomes markup: {name!r}", lambda name=name: _noted(site, name))


async def _post(site: Site, route: str, given: Mapping[str, str] | None = None, **fields: str) -> Answer:
    """The form that a person would send to pause the workflow, to any route."""
    return await site.served.post(site.path(route), given, **{"act": "pause", "back": "/", "p.wf": site.wf, **fields})


async def _unmoved(site: Site, answer: Answer, before: int) -> None:
    must(400 <= answer.status < 500, f"it was answered with {answer.status}")
    must(await site.version() == before, "something was done")


async def _stranger(site: Site, route: str) -> None:
    method, body = ("POST", b"") if route in POSTS else ("GET", None)
    given = {"Origin": site.served.web.origin, "Content-Type": guard.FORM}
    answer = await site.served.ask(method, site.path(route), headers=given, body=body, signed_in=False)
    must(answer.status in (401, 403) or route.startswith("/static/"), f"it was answered with {answer.status}")
    seen = [word for word in WORDS if word in answer.body]
    must(not seen or route.startswith("/static/"), f"the answer has {seen}")
    _closed(answer)


def _closed(answer: Answer) -> None:
    """What every answer must carry."""
    policy = answer.headers.get("content-security-policy", "")
    must("default-src 'none'" in policy and "unsafe" not in policy, f"the policy is {policy!r}")
    must(answer.headers.get("x-frame-options") == "DENY", "it may be shown in a frame")
    must(answer.headers.get("x-content-type-options") == "nosniff", "its type may be guessed")
    must("server" not in answer.headers, f"it names its server: {answer.headers.get('server')}")
    must("access-control-allow-origin" not in answer.headers, "other origins may read it")


async def _made_up(site: Site, cookie: str) -> None:
    name = site.served.cookie.partition("=")[0]
    given = cookie.replace("{own}", name).encode().decode("latin-1")
    answer = await site.served.ask("GET", "/", headers={"Cookie": given}, signed_in=False)
    must(answer.status == 401, f"it was answered with {answer.status}")


async def _host(site: Site, host: str) -> None:
    answer = await site.served.ask("GET", "/", headers={"Host": site.fill(host)})
    must(answer.status in (400, 421) and "canary" not in answer.body, f"it was answered with {answer.status}")


async def _cross_site(site: Site, route: str, given: Mapping[str, str]) -> None:
    before = await site.version()
    await _unmoved(site, await _post(site, route, {name: site.fill(each) for name, each in given.items()}), before)


async def _without_token(site: Site, route: str) -> None:
    before = await site.version()
    for csrf in ("", "wrong", site.served.csrf[:-1], site.served.cookie.partition("=")[2], site.served.web.sessions.csrf):
        if route != "/sign-in":
            await _unmoved(site, await _post(site, route, csrf=csrf), before)


async def _by_looking(site: Site, route: str) -> None:
    before = await site.version()
    query = urlencode({"act": "pause", "p.wf": site.wf, "csrf": site.served.csrf})
    await _unmoved(site, await site.served.get(f"{site.path(route)}?{query}"), before)


async def _kind(site: Site, route: str, kind: str) -> None:
    before = await site.version()
    await _unmoved(site, await _post(site, route, {"Content-Type": kind}), before)


async def _other_port(site: Site) -> None:
    """A cookie is sent to every port of its host, so the host must be one that no other program has."""
    web = site.served.web
    token = await site.served.get(web.address().removeprefix(web.origin), signed_in=False)
    cookie = token.headers["set-cookie"].lower()
    await site.served.sign_in()
    must("domain" not in cookie and "httponly" in cookie and "samesite=strict" in cookie, f"the cookie is {cookie}")
    name, _, rest = site.own.partition(".")
    must(rest == "localhost" and len(name) >= 12, f"the page is at {site.own}, where other servers may be as well")
    async with PageServer(site.served.story.keep, Settings(ledger=site.served.story.path), port=0) as other:
        must(str(urlsplit(other.origin).hostname) != site.own, "each start has the same name")


async def _token_in_a_page(site: Site) -> None:
    token = site.served.csrf
    async for path, answer in _pages(site):
        must(token not in answer.body, f"{path} has the token of the session")


async def _address_again(site: Site) -> None:
    path = site.served.web.address().removeprefix(site.served.web.origin)
    first = await site.served.ask("GET", path, signed_in=False)
    again = await site.served.ask("GET", path, signed_in=False)
    must(first.status in (200, 303) and again.status == 401, f"it was answered with {first.status} and {again.status}")
    must("set-cookie" not in again.headers, "it gave a second session")


async def _method(site: Site, method: str) -> None:
    before = await site.version()
    await _unmoved(site, await site.served.ask(method, "/"), before)


async def _raw(site: Site, data: bytes) -> None:
    before = await site.version()
    answer = await said(site.served.web.port, data.replace(b"Host: x", f"Host: {site.own}:{site.served.web.port}".encode()), 1.0)
    must(status(answer) in (0, 501) or 400 <= status(answer) < 500, f"it was answered with {answer[:80]!r}")
    must("server" not in headers(answer) and b"traceback" not in answer.lower(), f"it says too much: {answer[:200]!r}")
    must(await site.version() == before, "something was done")


async def _leads(site: Site, back: str) -> None:
    answer = await _post(site, "/act", act="none", back=back)
    where = answer.headers.get("location", "/")
    must(re.match(r"/(?![/\\\s])", where) is not None or where == "/", f"it leads to {where!r}")


async def _large(site: Site) -> None:
    before = await site.version()
    answer = await _post(site, "/act", {"Content-Length": str(guard.BODY_BYTES_MAX + 1)})
    await _unmoved(site, answer, before)


async def _static(site: Site) -> None:
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "/etc/passwd", "keep.css/../../app.py", "..\\app.py", "%00"):
        answer = await site.served.get(f"/static/{name}")
        must(answer.status in (400, 404) and "import" not in answer.body, f"{name} was answered with {answer.status}")


class Marks(HTMLParser):
    """Finds what a page would do beyond showing text."""

    def __init__(self) -> None:
        super().__init__()
        self.odd: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("xss-canary", "img", "iframe", "object", "embed", "base", "style") or (tag == "script" and "src" not in given):
            self.odd.append(f"<{tag} {given}>")
        for name, value in given.items():
            target = name in ("href", "src", "action", "formaction", "hx-get", "hx-post", "xlink:href")
            if name.startswith(("on", "hx-on")) or name == "style" or (target and not re.match(r"[/#?]|$", value)):
                self.odd.append(f"<{tag} {name}={value!r}>")
        if tag == "a" and given.get("href", "").startswith("/"):
            self.links.append(given["href"].partition("#")[0])


async def _pages(site: Site) -> AsyncIterator[tuple[str, Answer]]:
    """Every page that a person can reach by links, up to a limit."""
    waiting, seen = ["/", "/needs-you", "/health"], set[str]()
    while waiting and len(seen) < PAGES_MAX:
        path = waiting.pop(0)
        if path in seen or path.startswith("/static/"):
            continue
        seen.add(path)
        answer = await site.served.get(path)
        must(answer.status < 500, f"{path} was answered with {answer.status}")
        yield path, answer
        found = Marks()
        found.feed(answer.body)
        waiting += [link for link in found.links if link not in seen]


def _plain(path: str, body: str) -> None:
    found = Marks()
    found.feed(body)
    must(not found.odd, f"{path} has {found.odd[:3]}")


async def _markup(site: Site) -> None:
    shown = 0
    async for path, answer in _pages(site):
        _plain(path, answer.body)
        _closed(answer)
        shown += "xss-canary" in answer.body
    must(shown >= 8, f"only {shown} pages show the hostile texts: the attack looks at the wrong ones")


async def _reflected(site: Site) -> None:
    for text in MARKUP:
        for path in (f"/{quote(text)}", f"/runs/{quote(text, safe='')}", f"/workflows/{quote(text, safe='')}",
                     f"/workflows/{site.wf}/inputs?search={quote(text)}", f"/?token={quote(text)}", f"/workflows/{site.wf}/versions?to={quote(text)}"):
            answer = await site.served.get(path)
            must(answer.status < 500, f"{path} was answered with {answer.status}")
            _plain(path, answer.body)


async def _noted(site: Site, text: str) -> None:
    """What a form says of itself is shown on the next page."""
    await _post(site, "/act", act=text, told=text, back=f"/workflows/{site.wf}")
    await _post(site, "/act", act="run_now", told=text, back="/", **{"p.wf": text})
    _plain("/", (await site.served.get("/")).body)


_METHODS = ("GET", "POST", "HEAD", "PUT", "OPTIONS")
_ODD_VALUES = ("", "x", "null", "http://evil.test", "same-origin", "cross-site", "\x00", "ü", "a" * 9000, "1", "-1", "chunked", "{own}:{port}",
               "127.0.0.1:{port}", "application/x-www-form-urlencoded", "{cookie}", "{cookie}x", "*/*", "bytes=0-", "evil.test")
_NAMES = ("Host", "Origin", "Cookie", "Content-Type", "Content-Length", "Sec-Fetch-Site", "Referer", "X-Forwarded-Host", "X-HTTP-Method-Override",
          "Transfer-Encoding", "If-None-Match", "Range", "X-Original-URL", "Forwarded", "Connection", "Upgrade", "Accept", "HX-Request")


def drawn(site: Site, chance: Random) -> Attack:
    """A request of any kind with the cookie but never with the token: it does nothing, and fails in order."""
    route = site.path(chance.choice(PATHS if chance.random() < 0.6 else POSTS))
    path = chance.choice([route, route, route + chance.choice(["/", "?x=1", "/..", "%00", "//", "?token=x", "#"]), "/" + quote(chance.choice(MARKUP))])
    method = "POST" if route in POSTS and chance.random() < 0.7 else chance.choice(_METHODS)
    given = {"Host": f"{site.own}:{site.served.web.port}", "Origin": site.served.web.origin, "Content-Type": guard.FORM, "Connection": "close"}
    if chance.random() < 0.6:
        given["Cookie"] = site.served.cookie
    for _ in range(chance.choice([0, 0, 1, 2, 3])):
        given[chance.choice(_NAMES)] = site.fill(chance.choice(_ODD_VALUES)).replace("{cookie}", site.served.cookie)
    body = urlencode({"act": chance.choice(["pause", "resume", "pause", "resume", "approve", "x"]), "p.wf": site.wf,
                      "csrf": chance.choice(["", "x", site.served.web.sessions.csrf])}).encode() if method == "POST" else b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Content-Length": str(len(body)), **given}.items())
    data = f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("utf-8", "replace") + body
    session = given.get("Cookie", "") == site.served.cookie and "Host" in given

    async def attack() -> None:
        if path.startswith("/live"):
            return  # it lasts; what it says is only that something changed
        before = await site.version()
        answer = await said(site.served.web.port, data, 0.5)
        must(status(answer) < 500, f"it was answered with {answer[:100]!r}")
        must(await site.version() == before, "something was done without the token")
        must(site.served.web.sessions.session(site.served.cookie.partition("=")[2]), "the session was ended without the token")
        must(session or b"canary" not in answer.lower() or path.startswith("/%"), "a stranger was shown the workflow")
        must(b"traceback" not in answer.lower() and "server" not in headers(answer), f"it says too much: {answer[:200]!r}")

    return Attack(f"{method} {path} with {sorted(given)}", attack)


def _no_token(self: Any, request: Any, session: Any, body: bytes) -> None:
    from urllib.parse import parse_qsl

    request.scope["state"]["form"] = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


AREA = Area(
    "page", "the page, by other sites, other servers, stolen cookies and texts that are markup", place, attacks, drawn,
    (
        Planted("a form needs no token", lambda: patch.object(guard.Guard, "_forged", _no_token), "without a token"),
        Planted("any origin counts as our own", lambda: patch.object(guard, "_is_own", lambda _: True), "another site sends"),
        Planted("any name is ours", lambda: patch.object(guard.PageNames, "fit", lambda *_: True), "another name leads"),
        Planted("texts go into pages as they are", lambda: patch.object(
            render, "shown", lambda value: Markup(value) if isinstance(value, str) else value), "becomes markup on some page"),
        Planted("a form needs no token, seen by drawn requests", lambda: patch.object(guard.Guard, "_forged", _no_token), rounds=800),
    ),
)
