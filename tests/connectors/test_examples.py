"""The examples for connectors, run by the real engine against real servers on loopback that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from keepai import Keep
from keepai.connectors import make
from keepai.connectors.sql import sqlite
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME, sign
from keepai.model.errors import OutcomeUnknown
from keepai.testing import ManualClock, loopback
from keepai.testing.loopback import HttpReply, Loopback, Request

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HERE = ["127.0.0.1"]


@pytest.fixture
def entries() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def books(entries: list[dict[str, Any]]) -> Iterator[Loopback]:
    def handle(request: Request) -> HttpReply:
        if request.method == "POST":
            entries.append({**request.json(), "key": request.headers["idempotency-key"]})
            return HttpReply(201, entries[-1])
        return HttpReply(200, [each for each in entries if each["key"] == request.query["key"]])

    with Loopback(handle) as server:
        yield server


@pytest.fixture
def shop() -> Iterator[Loopback]:
    orders = [{"id": f"o{n}", "customer": "Ann", "total": n * 10} for n in (1, 2)]
    with Loopback(lambda _request: HttpReply(200, {"data": orders}, {"Content-Type": "application/json"})) as server:
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
    with Loopback(lambda _request: HttpReply(204, content=b"")) as team:
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


async def test_every_order_gets_one_invoice_though_the_answer_to_commit_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = apsw.Connection(str(tmp_path / "books.db"))
    db.execute("create table orders (id integer primary key, total decimal);"
               "insert into orders values (1, 5), (2, 0), (3, 7);"
               "create table invoices (order_id integer primary key, total decimal)")
    commit = sqlite._commit

    def lost(connection: apsw.Connection) -> None:
        commit(connection)
        raise OutcomeUnknown("The answer is lost.")

    books = make("sql", "books", {"path": str(tmp_path / "books.db"), "tables": ["orders", "invoices"]})
    clock = ManualClock("2026-01-05T09:00:00Z")
    async with Keep(tmp_path / "keep.db", connectors=[books], clock=clock) as keep:
        await keep.deploy((EXAMPLES / "orders-to-invoices.js").read_text("utf-8"), grants="all")
        monkeypatch.setattr(sqlite, "_commit", lost)
        await keep.run_until_idle()
        db.execute("insert into orders values (4, 9)")
        clock.advance(minutes=5)
        monkeypatch.undo()
        await keep.run_until_idle()
        mutations = await keep.mutations("orders-to-invoices")
        assert [(each.status, each.preview) for each in mutations] == [
            ("applied", f"Insert into invoices: order_id={n}, total={total}") for n, total in ((1, 5), (3, 7), (4, 9))
        ]
        assert [each.status for each in await keep.inputs("orders-to-invoices")] == ["done"] * 3
    assert list(db.execute("select * from invoices")) == [(1, 5), (3, 7), (4, 9)]


async def test_a_file_that_is_dropped_is_noted_and_put_away_once(tmp_path: Path) -> None:
    inbox = tmp_path / "drive" / "inbox"
    inbox.mkdir(parents=True)
    (inbox / "a.txt").write_text("first")
    (inbox / "b.txt").write_text("second")
    drive = make("files", "drive", {"path": str(tmp_path / "drive")})
    clock = ManualClock("2026-01-05T09:00:00Z")
    async with Keep(tmp_path / "keep.db", connectors=[drive], clock=clock) as keep:
        await keep.deploy((EXAMPLES / "file-drop.js").read_text("utf-8"), grants="all")
        await keep.run_until_idle()
        (inbox / "a.txt").write_text("another of that name")
        clock.advance(minutes=5)
        await keep.run_until_idle()
        assert await keep.needs_you() == []
        assert [item.status for item in await keep.items("file-drop")] == ["done"] * 3
    noted = (tmp_path / "drive" / "journal.txt").read_text().splitlines()
    assert [line.split()[1:] for line in noted] == [["a.txt", "5"], ["b.txt", "6"], ["a.txt", "20"]]
    done = sorted(path.name[13:] for path in (tmp_path / "drive" / "done").iterdir())
    assert (done, list(inbox.iterdir())) == (["a.txt", "a.txt", "b.txt"], [])
