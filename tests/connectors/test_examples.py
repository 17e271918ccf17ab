"""The examples for http and webhooks, run by the real engine against real servers on loopback that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep
from keepai.connectors import make
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME, sign
from keepai.testing import ManualClock, loopback
from keepai.testing.loopback import Loopback, Reply, Request

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HERE = ["127.0.0.1"]


@pytest.fixture
def entries() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def books(entries: list[dict[str, Any]]) -> Iterator[Loopback]:
    def handle(request: Request) -> Reply:
        if request.method == "POST":
            entries.append({**request.json(), "key": request.headers["idempotency-key"]})
            return Reply(201, entries[-1])
        return Reply(200, [each for each in entries if each["key"] == request.query["key"]])

    with Loopback(handle) as server:
        yield server


@pytest.fixture
def shop() -> Iterator[Loopback]:
    orders = [{"id": f"o{n}", "customer": "Ann", "total": n * 10} for n in (1, 2)]
    with Loopback(lambda _request: Reply(200, {"data": orders}, {"Content-Type": "application/json"})) as server:
        yield server


async def test_an_order_is_booked_once_though_the_answer_is_lost(
    tmp_path: Path, shop: Loopback, books: Loopback, entries: list[dict[str, Any]],
) -> None:
    source = (EXAMPLES / "orders-to-books.js").read_text("utf-8")
    source = source.replace("https://shop.example.com", shop.url).replace("https://books.example.com", books.url)
    rule = {"on": f"POST {books.url}/v1/entries", "url": f"{books.url}/v1/entries?key={{key}}", "match": "key"}
    connectors = [
        make("http", "shop", {"allow": [f"{shop.url}/v1/"], "networks": HERE}),
        make("http", "books", {"allow": [f"{books.url}/v1/"], "networks": HERE, "lookup": [rule]}),
    ]
    async with Keep(tmp_path / "keep.db", connectors=connectors, clock=ManualClock("2026-01-05T09:00:00Z")) as keep:
        await keep.deploy(source, grants="all")
        with books.misbehaving(loopback.drop_after):
            await keep.run_until_idle()
        mutations = await keep.mutations("orders-to-books")
        assert [each.status for each in mutations] == ["applied", "applied"]
        assert await keep.needs_you() == []
    assert sorted(each["order"] for each in entries) == ["o1", "o2"]


async def test_a_payment_that_comes_in_is_told_once_and_a_lost_answer_is_a_question(tmp_path: Path) -> None:
    clock = ManualClock("2026-01-05T09:00:00Z")
    inbox = Inbox(tmp_path / "payments", create=True, name="payments", clock=clock)
    inbox.entrust({"secret": "s"})
    with Loopback(lambda _request: Reply(204, content=b"")) as team:
        tell = make("webhook", "team", {"url": f"{team.url}/in", "networks": HERE})
        tell.entrust({"secret": "t"})
        async with Keep(tmp_path / "keep.db", connectors=[inbox, tell], clock=clock) as keep:
            await keep.deploy((EXAMPLES / "webhook-relay.js").read_text("utf-8"), grants="all")
            for _ in range(2):
                await deliver(inbox, "d1", b'{"data": {"id": "p1", "amount": 5}}', clock)
            await keep.run_until_idle()
            assert [request.json()["data"]["id"] for request in team.seen] == ["p1"]
            await deliver(inbox, "d2", b'{"data": {"id": "p2", "amount": 7}}', clock)
            clock.advance(minutes=1)
            with team.misbehaving(loopback.drop_after):
                await keep.run_until_idle()
            [question] = await keep.needs_you()
            assert question.kind == "unknown_outcome"
            assert [each.status for each in await keep.inputs("webhook-relay")] == ["done", "pending"]
    assert len(team.seen) == 2


async def deliver(inbox: Inbox, id: str, body: bytes, clock: ManualClock) -> None:
    seconds = clock.now_ms() // 1000
    receipt = await inbox.accept({ID: id, TIME: str(seconds), SIGNATURE: sign("s", id, seconds, body)}, body)
    assert receipt.status in (200, 202)
