"""Idle, slow and broken connections at every door: they are bounded, end by themselves, and starve nobody."""

from __future__ import annotations

import asyncio
import json
import logging
import select
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep, Policy
from keepai.connectors.webhook.inbox import Receipt
from keepai.doors import connections, control
from keepai.doors.cli import signing
from keepai.doors.connections import network_of
from keepai.doors.http_server import TOO_MANY, TOO_SLOW, HttpServer, http_bounds
from keepai.model.errors import Refused
from tests import doors
from tests.doors import HALF_BODY, HALF_HEAD, Open, hold, let_go, opened, still_open

SMALL = Policy(connections_max=6, connections_per_address_max=4, request_s=600)
DOORS = ("page", "webhooks", "control")
HTTP = ("page", "webhooks")


async def held(door: Open, count: int, first: bytes = b"", source: str | None = None) -> list[socket.socket]:
    return await asyncio.to_thread(hold, door.address, count, first, source)


# Idle ones


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("first", [b"", HALF_HEAD, HALF_BODY], ids=["silent", "half a head", "half a body"])
async def test_an_honest_request_is_answered_however_many_idle_connections_there_are(
    tmp_path: Path, door: str, first: bytes,
) -> None:
    async with opened(tmp_path, door, Policy(request_s=600)) as host:
        idle = await held(host, 70, first)
        assert await host.answers()
        let_go(idle)


@pytest.mark.parametrize("door", HTTP)
async def test_a_full_door_closes_the_oldest_silent_connection_before_one_that_asks(tmp_path: Path, door: str) -> None:
    async with opened(tmp_path, door, replace(SMALL, connections_per_address_max=6)) as host:
        asking = await held(host, 2, HALF_HEAD)
        silent = await held(host, 4)
        assert await host.answers()
        assert still_open(silent) == [1, 2, 3]
        later = await held(host, 5)
        assert await host.answers()
        assert still_open(silent) == []
        assert still_open(asking) == [0, 1]
        let_go([*asking, *silent, *later])


@pytest.mark.parametrize("door", HTTP)
async def test_one_address_cannot_take_the_connections_of_another(tmp_path: Path, door: str) -> None:
    async with opened(tmp_path, door, SMALL) as host:
        other = await held(host, 2, source="127.0.0.2")
        many = await held(host, 20)
        assert await host.answers(source="127.0.0.2")
        assert still_open(other) == [0, 1]
        assert still_open(many) == [17, 18, 19]
        let_go([*other, *many])


@pytest.mark.parametrize(("host", "counts_as"), [
    ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::/64"),
    ("2001:db8::ffff:1", "2001:db8::/64"), ("fe80::1%eth0", "fe80::/64"), ("::1", "::/64"), ("", ""), ("name", "name"),
])
def test_an_ipv6_network_counts_as_one_address(host: str, counts_as: str) -> None:
    assert network_of(host) == counts_as


# Slow ones


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("first", [b"", HALF_HEAD, HALF_BODY], ids=["silent", "half a head", "half a body"])
async def test_a_request_that_does_not_come_is_given_up(tmp_path: Path, door: str, first: bytes) -> None:
    async with opened(tmp_path, door, replace(SMALL, request_s=0.3)) as host:
        [idle] = await held(host, 1, first)
        answer = await asyncio.to_thread(doors.until_closed, idle)
        early = door == "page" and first == HALF_BODY  # the page refuses it before it reads the body
        assert doors.status_of(answer) == (421 if early else 408 if door == "webhooks" and first == HALF_BODY else 0)
        idle.close()
        assert await host.answers()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("first", [HALF_HEAD, HALF_BODY], ids=["head", "body"])
async def test_a_request_that_comes_byte_by_byte_gets_no_more_time(tmp_path: Path, door: str, first: bytes) -> None:
    async with opened(tmp_path, door, replace(SMALL, request_s=0.5)) as host:
        [slow] = await held(host, 1, first)

        def trickle() -> int:
            for sent in range(10_000):
                if not still_open([slow]):
                    doors.until_closed(slow)
                    return sent
                try:
                    slow.sendall(b"x")
                except OSError:
                    return sent
                select.select([], [], [], 0.02)  # leaves the processor to the server
            return 10_000

        assert await asyncio.to_thread(trickle) < 10_000
        slow.close()


async def test_a_second_request_on_a_connection_has_the_same_time_as_the_first(tmp_path: Path) -> None:
    async with opened(tmp_path, "webhooks", replace(SMALL, request_s=0.3)) as host:
        [kept] = await held(host, 1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + HALF_HEAD)
        answer = await asyncio.to_thread(doors.until_closed, kept)
        assert doors.status_of(answer) == 404
        assert answer.count(b"HTTP/1.1") == 1
        kept.close()


async def test_a_receiver_that_does_not_read_its_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "UNREAD_S", 0.3)

    gone = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * (64 << 20), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        gone.set()

    listener = connections.listening("127.0.0.1", 0)
    server = HttpServer(app, [listener], http_bounds("It", SMALL))
    server.begin()
    [deaf] = await asyncio.to_thread(hold, listener.getsockname(), 1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(gone.wait(), 20)
    assert not server.server_state.connections
    deaf.close()
    await server.end()


# What is being answered


async def test_a_request_that_is_being_answered_is_never_closed_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(tmp_path, "webhooks", SMALL) as host:
        begun, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def accept(headers: Any, body: bytes) -> Receipt:
            begun.release()
            await go_on.wait()
            return Receipt(202, "kept")

        monkeypatch.setattr(host.inbox, "accept", accept)
        whole = b"POST /hooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        busy = await held(host, 4, whole)
        for _ in range(4):
            await begun.acquire()
        refused = await asyncio.to_thread(doors.said, host.address, b"")
        assert (doors.status_of(refused), b"retry-after" in refused) == (503, True)
        assert await host.answers(source="127.0.0.2")
        go_on.set()
        answers = [await asyncio.to_thread(doors.until_closed, each) for each in busy]
        assert [doors.status_of(each) for each in answers] == [202] * 4
        let_go(busy)


async def test_acts_under_way_keep_their_connection_and_one_too_many_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control.ControlSocket, "at_once_max", 2)
    async with opened(tmp_path, "control", SMALL):
        begun, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def perform(keep: Keep, act: str, params: Any) -> Any:
            begun.release()
            await go_on.wait()
            return "done"

        monkeypatch.setattr(control, "perform", perform)
        ask = [asyncio.create_task(asyncio.to_thread(control.ask, tmp_path / "keep.db", "pause", {"wf": "x"}))
               for _ in range(2)]
        for _ in range(2):
            await begun.acquire()
        with pytest.raises(Refused, match="as many acts at one time as it can"):
            await asyncio.to_thread(control.ask, tmp_path / "keep.db", "pause", {"wf": "x"})
        go_on.set()
        assert await asyncio.gather(*ask) == ["done", "done"]


# What the log says


@pytest.mark.parametrize("door", HTTP)
async def test_a_sender_that_hangs_up_in_the_middle_leaves_no_line_in_the_log(
    tmp_path: Path, door: str, caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(tmp_path, door, SMALL) as host:
        form = (f"POST /sign-in HTTP/1.1\r\nHost: {host.name}\r\nOrigin: http://{host.name}\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nhalf")
        for first in (HALF_HEAD, HALF_BODY, form.encode()):
            let_go(await held(host, 3, first))
        assert await host.answers()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# Nothing about the server


@pytest.mark.parametrize("broken", doors.BROKEN_HTTP)
@pytest.mark.parametrize("door", HTTP)
async def test_no_answer_says_what_made_it(tmp_path: Path, door: str, broken: str) -> None:
    async with opened(tmp_path, door, replace(SMALL, request_s=0.5)) as host:
        answer = await asyncio.to_thread(doors.said, host.address, doors.BROKEN_HTTP[broken])
        assert doors.status_of(answer) >= 400 or not answer
        assert doors.betrays_server(answer) == []


async def test_the_answers_that_the_server_makes_by_itself_say_nothing_about_it(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("boom")

    listener = connections.listening("127.0.0.1", 0)
    server = HttpServer(app, [listener], http_bounds("It", replace(SMALL, request_s=0.3)))
    server.begin()
    address = listener.getsockname()
    for request, status in ((b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 500), (b"?\r\n\r\n", 400)):
        answer = await asyncio.to_thread(doors.said, address, request)
        assert (doors.status_of(answer), doors.betrays_server(answer)) == (status, [])
    await server.end()
    for answer in (TOO_MANY, TOO_SLOW):
        assert doors.betrays_server(answer) == []


def test_a_sign_in_answers_without_naming_itself() -> None:
    assert doors.betrays_server(signing._page("200 OK", "x")) == []


def test_a_refusal_is_a_line_of_json() -> None:
    assert json.loads(control._TOO_MANY)["error"]["code"] == "refused"
