"""`type = "http"`: what scripts may ask for, what the owner allows, and look-ups by rules."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from keepai import OutcomeUnknown, PermissionDenied, Rejected, Transient
from keepai.connectors import make
from keepai.connectors.base import Call, Connector, Page
from keepai.model.errors import ConfigError
from keepai.testing import loopback
from keepai.testing.loopback import HttpReply, Loopback, Request

JSON = {"Content-Type": "application/json; charset=utf-8"}


@pytest.fixture
def server() -> Iterator[Loopback]:
    def handle(request: Request) -> HttpReply:
        return HttpReply(200, {"method": request.method, "query": dict(request.query), "headers": dict(request.headers),
                           "body": request.body.decode()}, JSON)

    with Loopback(handle) as made:
        yield made


def http(server: Loopback, **settings: Any) -> Connector:
    made = make("http", "web", {"allow": [f"{server.url}/v1/"], "networks": ["127.0.0.1"], **settings})
    made.entrust({"token": "t0ken", "password": "pa55"})
    return made


async def ask(connector: Connector, operation: str, key: str = "key-1", **params: Any) -> Any:
    spec = connector.operations[operation]
    return await spec.invoke(spec.parse(params), Call(idempotency_key=key))


async def test_a_read_gives_status_and_body(server: Loopback) -> None:
    got = await ask(http(server), "get", url=f"{server.url}/v1/x", query={"a": "ä b", "n": 1, "yes": True})
    assert got["status"] == 200
    assert got["body"]["query"] == {"a": "ä b", "n": "1", "yes": "true"}


async def test_what_is_not_there_is_null_and_what_fails_is_told(server: Loopback) -> None:
    url = f"{server.url}/v1/x"
    said: dict[int, type[Exception]] = {500: Transient, 503: Transient, 429: Transient, 401: PermissionDenied,
                                        403: PermissionDenied, 400: Rejected, 406: Rejected}
    for status in (404, 410):
        with server.misbehaving(loopback.instead(HttpReply(status)), loopback.is_read):
            assert await ask(http(server), "get", url=url) is None
    for status, kind in said.items():
        with server.misbehaving(loopback.instead(HttpReply(status)), loopback.is_read), pytest.raises(kind):
            await ask(http(server), "get", url=url)


async def test_text_stays_text_and_broken_json_is_not_taken_for_text(server: Loopback) -> None:
    url = f"{server.url}/v1/x"
    with server.misbehaving(loopback.instead(HttpReply(content=b"hello")), loopback.is_read):
        assert (await ask(http(server), "get", url=url))["body"] == "hello"
    broken = HttpReply(content=b'{"a": ', headers=JSON)
    with server.misbehaving(loopback.instead(broken), loopback.is_read), pytest.raises(OutcomeUnknown):
        await ask(http(server), "get", url=url)


async def test_a_list_comes_with_the_address_of_its_next_part(server: Loopback) -> None:
    url = f"{server.url}/v1/x"
    body = {"data": {"items": [1, 2]}, "paging": {"next": f"{url}?page=2"}}
    with server.misbehaving(loopback.instead(HttpReply(200, body, JSON)), loopback.is_read):
        page: Page[Any] = await ask(http(server), "list", url=url, items="data.items", next="paging.next")
        assert list(page) == [1, 2]
        assert page.fields["next"] == f"{url}?page=2"
        with pytest.raises(Rejected, match=r"no list at 'data\.wrong'"):
            await ask(http(server), "list", url=url, items="data.wrong")
    linked = HttpReply(200, [7], {**JSON, "Link": f'<{url}?page=1>; rel="prev", <{url}?page=3>; rel="next"'})
    with server.misbehaving(loopback.instead(linked), loopback.is_read):
        page = await ask(http(server), "list", url=url)
        assert (list(page), page.fields["next"]) == ([7], f"{url}?page=3")


async def test_a_url_that_is_not_allowed_is_not_asked(server: Loopback) -> None:
    for operation in ("get", "post"):
        with pytest.raises(Rejected, match="not below any prefix"):
            await ask(http(server), operation, url=f"{server.url}/admin")
    assert server.seen == []


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
async def test_a_mutation_carries_its_key_and_its_body(server: Loopback, method: str) -> None:
    got = await ask(http(server), method, key="k-9", url=f"{server.url}/v1/x", body={"a": [1, None]})
    assert got["body"]["method"] == method.upper()
    assert got["body"]["body"] == '{"a": [1, null]}'
    assert got["body"]["headers"]["idempotency-key"] == "k-9"


async def test_credentials_come_from_secrets(server: Loopback) -> None:
    url = f"{server.url}/v1/x"
    basic = base64.b64encode(b"ann:pa55").decode()
    ways: list[tuple[dict[str, Any], str, str]] = [
        ({"auth": "bearer"}, "authorization", "Bearer t0ken"),
        ({"auth": "basic", "user": "ann"}, "authorization", f"Basic {basic}"),
        ({"auth": "header", "header": "X-Api-Key"}, "x-api-key", "t0ken"),
    ]
    for settings, name, value in ways:
        got = await ask(http(server, **settings), "get", url=url)
        assert got["body"]["headers"][name] == value
    assert "authorization" not in (await ask(http(server), "get", url=url))["body"]["headers"]
    bare = make("http", "web", {"allow": [f"{server.url}/v1/"], "networks": ["127.0.0.1"], "auth": "bearer"})
    with pytest.raises(PermissionDenied, match="keep secrets set web token"):
        await ask(bare, "post", url=url)


async def test_the_owners_headers_go_along(server: Loopback) -> None:
    web = http(server, headers={"X-Version": "2"}, key_header="X-Request-Id")
    got = await ask(web, "post", url=f"{server.url}/v1/x")
    assert got["body"]["headers"]["x-version"] == "2"
    assert got["body"]["headers"]["x-request-id"] == "key-1"


def test_the_preview_shows_all_of_it(server: Loopback) -> None:
    spec = http(server).operations["post"]
    told = spec.preview({"url": f"{server.url}/v1/x", "query": {"a": 1}, "body": {"text": "x" * 500}})
    assert told.startswith(f"POST {server.url}/v1/x?a=1\n")
    assert "x" * 500 in told


def test_class_and_target_are_told(server: Loopback) -> None:
    plain, ruled = http(server), http(server, key_window_s=3600, lookup=[rule(server)])
    assert not plain.operations["post"].can_reconcile
    assert ruled.operations["post"].can_reconcile
    assert not ruled.operations["put"].can_reconcile
    assert ruled.operations["post"].key_window_s == 3600
    assert plain.operations["post"].key_window_s is None
    assert plain.operations["post"].target({"url": "u"}) == "u"


# -- look-up rules -----------------------------------------------------------------------------------


def rule(server: Loopback, **changes: Any) -> dict[str, Any]:
    return {"on": f"POST {server.url}/v1/orders", "url": f"{server.url}/v1/orders?key={{key}}", "items": "data",
            "match": "key", **changes}


async def look(server: Loopback, reply: HttpReply, **changes: Any) -> Any:
    spec = http(server, lookup=[rule(server, **changes)]).operations["post"]
    params = {"url": f"{server.url}/v1/orders", "body": {"reference": "r/7"}}
    with server.misbehaving(loopback.instead(reply), loopback.is_read):
        return await spec.reconcile(params, Call(idempotency_key="k 1"))


async def test_what_is_found_is_applied_with_what_was_found(server: Loopback) -> None:
    verdict = await look(server, HttpReply(200, {"data": [{"key": "k 1", "id": 3}]}))
    assert (verdict.status, verdict.result) == ("applied", {"status": 200, "body": {"key": "k 1", "id": 3}})
    assert server.seen[-1].query == {"key": "k 1"}


async def test_only_an_empty_list_says_that_it_did_not_happen(server: Loopback) -> None:
    assert (await look(server, HttpReply(200, {"data": []}))).status == "failed"
    others = await look(server, HttpReply(200, {"data": [{"key": "k2"}]}))
    assert others.status == "unknown"


@pytest.mark.parametrize("reply", [
    *(HttpReply(status) for status in (404, 401, 403, 500, 503, 429)), HttpReply(200, {"wrong": []}),
    HttpReply(200, []), HttpReply(content=b"<html>"), HttpReply(204, content=b""),
    HttpReply(302, headers={"Location": "/login"}),
])
async def test_an_answer_that_says_nothing_is_asked_for_again(server: Loopback, reply: HttpReply) -> None:
    try:
        assert (await look(server, reply)).status == "retry"
    except Rejected:
        assert reply.status == 302  # leads out of what is allowed; the engine asks again, too


async def test_a_status_can_mean_that_it_is_not_there(server: Loopback) -> None:
    assert (await look(server, HttpReply(404), missing=[404])).status == "failed"
    assert (await look(server, HttpReply(403), missing=[404])).status == "retry"


async def test_a_rule_can_look_by_what_was_sent(server: Loopback) -> None:
    url = f"{server.url}/v1/by/{{body.reference}}"
    assert (await look(server, HttpReply(200, {"id": 1}), url=url, items="", match="")).status == "applied"
    assert server.seen[-1].path == "/v1/by/r%2F7"
    missing = await look(server, HttpReply(200, {"id": 1}), url=f"{server.url}/v1/by/{{body.other}}")
    assert missing.status == "unknown"


async def test_a_request_that_no_rule_is_about_is_a_question_to_a_person(server: Loopback) -> None:
    spec = http(server, lookup=[rule(server)]).operations["post"]
    for path in ("/v1/ordersx", "/v1/other"):
        assert (await spec.reconcile({"url": f"{server.url}{path}"}, Call(idempotency_key="k"))).status == "unknown"


@pytest.mark.parametrize(("settings", "told"), [
    ({"allow": []}, "at least one prefix"),
    ({"allow": ["no url"]}, "cannot be used"),
    ({"allow": "https://x.test/"}, "a list of strings"),
    ({"allow": ["https://x.test/"], "auth": "magic"}, "bearer, basic or header"),
    ({"allow": ["https://x.test/"], "networks": ["everything"]}, "is not a network"),
    ({"allow": ["https://x.test/"], "headers": {"Host": "y"}}, "belongs to the request itself"),
    ({"allow": ["https://x.test/"], "headers": {"A": 1}}, "a table of strings"),
    ({"allow": ["https://x.test/"], "lookup": [{"on": "GET x"}]}, "needs a method and a URL"),
    ({"allow": ["https://x.test/"], "lookup": [{"on": "POST https://x.test/", "url": "https://x.test/all"}]}, "{key}"),
    ({"allow": ["https://x.test/"], "lookup": [{"on": "POST x", "url": "{key}", "missing": [500]}]}, "404 or 410"),
    ({"allow": ["https://x.test/"], "lookup": [{"on": "POST https://x.test/", "url": "https://y.test/{key}"}]},
     "not below any prefix"),
    ({"allow": ["https://x.test/"], "lookup": [{"onn": "POST x"}]}, "'onn' is unknown"),
])
def test_settings_that_make_no_sense_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make("http", "web", settings)
    assert told in caught.value.message


async def test_check_finds_missing_secrets_and_a_host_that_does_not_answer(server: Loopback) -> None:
    await http(server, auth="bearer").check()
    with server.misbehaving(loopback.instead(HttpReply(401)), loopback.is_read), pytest.raises(PermissionDenied):
        await http(server, auth="bearer").check()
    gone = http(server)
    server.close()
    with pytest.raises(Transient):
        await gone.check()
