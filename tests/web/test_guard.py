"""The page keeps strangers out: other sites in the same browser, other names, other programs, forged forms."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import expect
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from keepai import Keep
from keepai.doors.presence import Presence
from keepai.doors.web import sessions
from keepai.doors.web.guard import BODY_BYTES_MAX, PUBLIC, Guard, PageNames, Refusal
from keepai.doors.web.page_server import PageServer, bind
from keepai.doors.web.sessions import SESSIONS_MAX, Sessions
from keepai.doors.web.web_app import app_routes
from keepai.model.errors import ConfigError
from tests import doors
from tests.harness import Story

from .conftest import Served, Settings, Tab, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUTES = app_routes()
PATHS = sorted({route.path for route in ROUTES})
POSTS = sorted(route.path for route in ROUTES if "POST" in (route.methods or ()))


def filled(path: str) -> str:
    """A route's path with something in its places."""
    return re.sub(r"\{(\w+)\}", lambda found: {"name": "keep.css"}.get(found[1], "lines"), path)


# Which server a request means


async def test_a_request_with_two_host_headers_is_refused_whichever_comes_first() -> None:
    # a proxy and we might each believe another one
    names, asked = PageNames("127.0.0.1", 8000, is_private=True), list[int]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the guard let it in")

    def refuse(request: Request, refusal: Refusal) -> Response:
        asked.append(refusal.status)
        return Response(refusal.told, refusal.status)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        pass

    guard = Guard(
        app, Sessions(None, lambda: 0.0), Presence(Keep()), names, refuse, lambda session: Response())
    ours, other = (b"host", b"127.0.0.1:8000"), (b"host", b"evil.example")
    for headers, status in (([ours], 401), ([ours, other], 421), ([other, ours], 421), ([ours, ours], 421), ([], 421)):
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers,
                 "server": ("127.0.0.1", 8000), "scheme": "http", "root_path": "", "http_version": "1.1"}
        asked.clear()
        await guard(scope, receive, send)
        assert asked == [status], headers


# Who may come in


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_session_every_route_says_how_to_get_in_and_nothing_else(standing: Served, path: str) -> None:
    method, body = ("POST", b"") if path in POSTS else ("GET", None)
    headers = {"Origin": standing.web.origin, "Content-Type": "application/x-www-form-urlencoded"}
    answer = await standing.ask(method, filled(path), headers=headers, body=body, signed_in=False)
    if path.startswith("/static/"):
        assert answer.status == 200
    elif path in PUBLIC:
        assert answer.status == 403
    else:
        assert answer.status == 401
        assert "How to get in" in answer.body
        assert "keep dev" in answer.body
    assert not any(word in answer.body for word in ("lines", "appendRow", "feed", "wf_", "inp_", "csrf"))


async def test_what_is_public_is_style_and_the_way_in() -> None:
    assert PUBLIC == ("/static/", "/sign-in")


async def test_a_token_works_once_and_leaves_the_address(served: Served) -> None:
    path = served.web.address().removeprefix(served.web.origin)
    first = await served.ask("GET", path, signed_in=False)
    assert first.status == 200
    cookie, name = first.headers["set-cookie"], f"keep_{served.web.port}_{served.web.sessions.label}"
    assert re.fullmatch(rf"{name}=[\w-]{{40,}}; HttpOnly; Path=/; SameSite=strict", cookie)
    assert first.headers["cache-control"] == "no-store"
    again = await served.ask("GET", path, signed_in=False)
    assert again.status == 401
    assert "set-cookie" not in again.headers
    assert "each works once" in again.body


async def test_a_new_address_ends_the_one_before(served: Served) -> None:
    old, new = served.web.address(), served.web.address()
    assert (await served.get(old.removeprefix(served.web.origin), signed_in=False)).status == 401
    assert (await served.get(new.removeprefix(served.web.origin), signed_in=False)).status == 200


@pytest.mark.parametrize("cookie", ["", "x", "keep_session_1=abc", "{own}=", "{own}=abc", "{own}=ä"])
async def test_a_made_up_cookie_opens_nothing(standing: Served, cookie: str) -> None:
    name = standing.cookie.partition("=")[0]
    given = cookie.format(own=name).encode().decode("latin-1")
    answer = await standing.ask("GET", "/", headers={"Cookie": given}, signed_in=False)
    assert answer.status == 401


async def test_signing_out_ends_the_session(served: Served) -> None:
    assert (await served.get("/")).status == 200
    assert (await served.post("/sign-out")).status == 303
    assert (await served.get("/")).status == 401


async def test_too_many_sessions_end_the_oldest(served: Served) -> None:
    first = served.cookie
    for _ in range(SESSIONS_MAX):
        await served.sign_in()
    assert (await served.get("/")).status == 200
    served.cookie = first
    assert (await served.get("/")).status == 401


# With a password


@pytest_asyncio.fixture(loop_scope="session")
async def locked(tmp_path: Path) -> AsyncIterator[Served]:
    """A page with a password."""
    async for each in serve(tmp_path, password="correct horse"):
        yield each


async def test_a_password_opens_a_session_and_a_wrong_one_does_not(locked: Served) -> None:
    form = await locked.get("/")
    assert form.status == 401
    assert '<input id="password" type="password"' in form.body
    wrong = await locked.post("/sign-in", password="correct hors")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    right = await locked.post("/sign-in", password="correct horse")
    assert right.status == 200
    locked.cookie = right.headers["set-cookie"].partition(";")[0]
    assert (await locked.get("/")).status == 200


async def test_whoever_lost_the_token_of_a_session_signs_in_again(locked: Served) -> None:
    right = await locked.post("/sign-in", password="correct horse")
    locked.cookie = right.headers["set-cookie"].partition(";")[0]
    refused = await locked.post("/act", csrf="")
    assert refused.status == 403
    [form] = re.findall(r'name="csrf" value="([^"]+)"', refused.body)
    again = await locked.post("/sign-in", csrf=form, password="correct horse")
    assert again.status == 200
    assert "set-cookie" in again.headers


async def test_a_new_address_opens_a_new_session_where_one_was_already(served: Served) -> None:
    first, path = served.cookie, served.web.address().removeprefix(served.web.origin)
    again = await served.get(path)
    assert again.status == 200
    assert not again.headers["set-cookie"].startswith(first)
    assert (await served.get(path)).headers["location"] == "/"  # loaded once more: it was used, and a session is there


async def test_cookies_of_earlier_hosts_on_the_same_port_are_taken_back(served: Served) -> None:
    port, path = served.web.port, served.web.address().removeprefix(served.web.origin)
    mine = served.cookie.partition("=")[0]
    headers = {"Cookie": f"{served.cookie}; keep_{port}_old=x; keep_1_other=y; theirs=z"}
    answer = await asyncio.to_thread(raw, port, path, {"Host": served.web.origin.removeprefix("http://"), **headers})
    gone = [each.partition("=")[0] for each in answer if "Max-Age=0" in each]
    assert gone == [f"keep_{port}_old"]
    assert mine in [each.partition("=")[0] for each in answer]


def raw(port: int, path: str, headers: dict[str, str]) -> list[str]:
    """Every cookie that an answer sets."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=headers)
    found = connection.getresponse().headers.get_all("set-cookie") or []
    connection.close()
    return found


async def with_an_agent(served: Served) -> None:
    await served.story.keep.set_pin("314159")
    await served.story.keep.agent_add("claude", "propose")


async def test_once_there_is_an_agent_the_address_of_the_page_opens_no_session_without_the_pin(served: Served) -> None:
    await with_an_agent(served)
    assert (await served.get("/")).status == 200  # whoever is signed in stays so
    served.cookie = ""
    form = await served.get(served.web.address().removeprefix(served.web.origin))
    assert (form.status, "set-cookie" in form.headers) == (401, False)
    [token] = re.findall(r'name="token" value="([^"]+)"', form.body)
    for wrong in ((token, ""), (token, "271828"), ("x", "314159"), ("", "314159")):
        refused = await served.post("/sign-in", token=wrong[0], pin=wrong[1])
        assert (refused.status, "set-cookie" in refused.headers) == (401, False), wrong
    right = await served.post("/sign-in", token=token, pin="314159")
    served.cookie = right.headers["set-cookie"].partition(";")[0]
    assert (await served.get("/")).status == 200
    served.cookie = ""
    assert (await served.post("/sign-in", token=token, pin="314159")).status == 401  # it works once


async def test_a_person_signs_in_in_a_browser_and_lands_where_they_wanted_to_go(locked: Served, tab: Tab) -> None:
    await tab.page.goto(f"{locked.web.origin}/inputs")
    await tab.page.get_by_label("Password").fill("correct horse")
    await tab.page.get_by_role("button", name="Sign in").click()
    await expect(tab.page.get_by_role("heading", name="Inputs")).to_be_visible()
    assert tab.page.url == f"{locked.web.origin}/inputs"
    tab.complaints.clear()  # that it was not signed in before


async def test_once_there_is_an_agent_a_password_opens_no_session_without_the_pin(locked: Served) -> None:
    await with_an_agent(locked)
    form = await locked.post("/sign-in", password="correct horse")
    assert (form.status, "set-cookie" in form.headers) == (401, False)
    assert '<input id="pin" type="password"' in form.body
    assert (await locked.post("/sign-in", password="correct hors", pin="314159")).status == 401
    assert "set-cookie" in (await locked.post("/sign-in", password="correct horse", pin="314159")).headers


async def test_with_a_password_there_is_no_token(locked: Served) -> None:
    assert "token" not in locked.web.address()
    token = locked.web.sessions.token()
    assert (await locked.get(f"/?token={token}")).status == 401


async def test_after_many_wrong_passwords_the_right_one_from_the_same_address_still_works(
    locked: Served, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(sessions, "LONGEST_S", 0.02)
    for _ in range(12):
        assert (await locked.post("/sign-in", password="guess")).status == 401
    assert "set-cookie" in (await locked.post("/sign-in", password="correct horse")).headers


async def test_wrong_passwords_of_one_address_do_not_delay_another(
    locked: Served, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("FREE", 1), ("FIRST_S", 600.0), ("LONGEST_S", 600.0)):
        monkeypatch.setattr(sessions, name, value)
    assert (await locked.post("/sign-in", password="guess")).status == 401
    body = urlencode({"csrf": locked.csrf, "password": "correct horse"})
    origin = locked.web.origin
    form = (f"POST /sign-in HTTP/1.1\r\nHost: {origin.removeprefix('http://')}\r\nOrigin: {origin}\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}")
    answer = await asyncio.to_thread(doors.said, ("127.0.0.1", locked.web.port), form.encode(), "127.0.0.2")
    assert b"\r\nset-cookie: " in answer


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
async def test_an_address_that_others_reach_needs_a_password(story: Story, host: str) -> None:
    with pytest.raises(ConfigError, match="KEEP_PASSWORD"):
        PageServer(story.keep, Settings(ledger=story.path), host=host)


# Other names, other sites


@pytest.mark.parametrize("host", [
    "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example:{port}", "127.0.0.1", "localhost:1",
    "192.0.2.1:{port}", "127.0.0.1:{port}@evil.example", "[::ffff:192.0.2.1]:{port}", "", "127.0.0.1:+{port}",
])
async def test_a_host_header_that_is_not_ours_is_refused(standing: Served, host: str) -> None:
    answer = await standing.ask("GET", "/", headers={"Host": host.format(port=standing.web.port)})
    assert answer.status in (400, 421)
    assert "lines" not in answer.body


async def test_the_name_that_is_printed_is_ours_in_any_case(standing: Served) -> None:
    host = standing.web.origin.removeprefix("http://")
    for each in (host, host.upper()):
        assert (await standing.ask("GET", "/", headers={"Host": each})).status == 200


@pytest.mark.parametrize(("given", "port", "ours"), [
    ("[::1]", 80, True), ("[::1]:80", 80, True), ("[::1]", 8000, False), ("[::1]:8000", 8000, True),
    ("127.0.0.1", 80, False), ("localhost", 80, False), ("[::1]:", 80, False), ("[::1]:80x", 80, False),
])
async def test_a_host_without_a_port_means_port_80(given: str, port: int, ours: bool) -> None:
    assert PageNames("::1", port, is_private=True).fit(given) is ours


async def test_on_the_network_addresses_are_ours_and_names_are_not() -> None:
    names = PageNames("0.0.0.0", 7777, is_private=False)
    assert names.fit("192.0.2.1:7777")
    assert names.fit("localhost:7777")
    assert not names.fit("evil.example:7777")


async def test_the_page_has_both_loopback_addresses_or_another_port() -> None:
    # a browser tries ::1 first: another program there would be handed the address with its token
    try:
        taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with taken, pytest.raises(ConfigError, match="Address already in use"):
        bind(None, taken.getsockname()[1])
    listeners = bind(None, 0)
    assert {each.getsockname()[0] for each in listeners} == {"127.0.0.1", "::1"}
    assert len({each.getsockname()[1] for each in listeners}) == 1
    for each in listeners:
        each.close()


async def test_a_machine_without_ipv6_has_the_page_at_its_one_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.doors.web.page_server.LOOPBACK", ("127.0.0.1", "2001:db8::1"))  # this machine lacks it
    [listener] = bind(None, 0)
    assert listener.getsockname()[0] == "127.0.0.1"
    listener.close()


@pytest.mark.parametrize("headers", [
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "https://127.0.0.1"}, {"Origin": "http://127.0.0.1:1"},
    {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"},
])
@pytest.mark.parametrize("path", POSTS)
async def test_a_form_from_elsewhere_is_refused_everywhere(
    standing: Served, path: str, headers: dict[str, str],
) -> None:
    answer = await standing.post(filled(path), headers)
    assert answer.status == 403
    assert "Nothing was done" in answer.body


@pytest.mark.parametrize("path", POSTS)
async def test_a_form_without_its_token_is_refused_everywhere(standing: Served, path: str) -> None:
    for csrf in ("", "wrong", standing.csrf[:-1]):
        answer = await standing.post(filled(path), csrf=csrf)
        assert answer.status == 403
        assert "lacks the token of this visit" in answer.body


async def test_a_form_that_says_nothing_of_its_origin_is_refused(standing: Served) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await standing.ask("POST", "/act", headers=headers, body=f"csrf={standing.csrf}".encode())
    assert answer.status == 403


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
async def test_only_forms_are_understood(standing: Served, kind: str) -> None:
    assert (await standing.post("/act", {"Content-Type": kind})).status == 415


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(standing: Served) -> None:
    answer = await standing.post("/act", {"Content-Length": str(BODY_BYTES_MAX + 1)})
    assert answer.status == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(standing: Served, method: str) -> None:
    assert (await standing.ask(method, "/")).status == 405


@pytest.mark.parametrize("path", POSTS)
async def test_what_changes_something_is_not_done_by_looking(standing: Served, path: str) -> None:
    assert (await standing.get(filled(path))).status == 405


# What every answer carries


@pytest.mark.parametrize(("path", "signed_in"), [
    (path, signed_in) for path in [*map(filled, PATHS), "/nowhere", "/?token=x"] for signed_in in (True, False)
    if (path, signed_in) != ("/live", True)  # it lasts; test_live.py has it
])
async def test_every_answer_carries_the_headers_that_close_it(standing: Served, path: str, signed_in: bool) -> None:
    answer = await standing.ask("GET", path, signed_in=signed_in)
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers
    if path.startswith("/static/"):
        assert answer.headers["cache-control"] == "no-cache"
    else:
        assert answer.headers["cache-control"] == "no-store"


async def test_style_and_script_are_kept_for_ever_by_their_hash(standing: Served) -> None:
    home = (await standing.get("/")).body
    for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', home):
        answer = await standing.get(address)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        again = await standing.ask("GET", address, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, "")
    assert (await standing.get("/static/../app.py")).status == 404
    assert (await standing.get("/static/nothing.js")).status == 404


async def test_nothing_is_loaded_from_elsewhere(standing: Served) -> None:
    for path in (await standing.get("/")).body, (await standing.get("/", signed_in=False)).body:
        assert re.findall(r'(?:src|href|action)="(?!/|#|")', path) == []
        assert "style=" not in path
        assert re.findall(r"<script(?! src)", path) == []
