"""Deliveries of webhooks are kept in a folder, or in the database of the ledger: the promises are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep, Transient
from keepai.connectors.base import Call
from keepai.connectors.webhook.base import Deliveries, carry
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.spool import Spool
from keepai.doors.webhooks import carry_deliveries
from keepai.ledger import opening
from keepai.ledger.postgres.deliveries import PostgresDeliveries
from keepai.model.errors import ConfigError, LedgerUnusable
from keepai.model.policy import Policy
from keepai.reading.everything_shown import everything_shown
from keepai.testing import ManualClock
from tests.connectors.test_webhook import NOW, SECRET, signed
from tests.harness import producer, workflow
from tests.ledger.stores import PostgresStore
from tests.postgres import Proxy

Open = Callable[[], Deliveries]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store() -> PostgresStore:
    made = PostgresStore()
    made.make()
    return made


@pytest.fixture(params=["folder", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens one place, as each of several hosts does, or one that was started again."""
    opened: list[Deliveries] = []
    url = request.getfixturevalue("store").url if request.param == "database" else ""

    def open_place() -> Deliveries:
        opened.append(PostgresDeliveries(url, "shop", 100, clock) if url else Spool(tmp_path, clock, 100))
        return opened[-1]

    yield open_place
    for each in opened:
        each.close()


def delivery(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "received": 1, "sent": 2, "type": "", "body": '{"a":"\\u0000 ½"}', **more}


def ids(deliveries: Deliveries, cursor: str = "") -> list[str]:
    found = [deliveries.one(each) for each in deliveries.after(cursor, 100)[0]]
    return [each["id"] for each in found if each]


def test_one_is_kept_as_it_came_and_found_by_another_host(place: Open) -> None:
    assert place().add("d1", delivery("d1")) == "new"
    other = place()
    [cursor], more = other.after("", 5)
    assert other.one(cursor) == delivery("d1", cursor=cursor)
    assert (other.one("1"), more) == (None, False)


def test_the_same_is_kept_once_at_whichever_host_it_comes_again(place: Open) -> None:
    first, second = place(), place()
    assert [first.add("d1", delivery("d1")), second.add("d1", delivery("d1")), first.add("d1", delivery("d1"))] == [
        "new", "known", "known"]
    assert ids(second) == ["d1"]


def test_one_is_found_by_its_id_and_the_newest_are_listed(place: Open) -> None:
    first = place()
    for number in range(5):
        first.add(f"d{number}", delivery(f"d{number}"))
    other = place()
    cursor = other.cursor_of("d3")
    assert cursor is not None
    assert (other.one(cursor) or {})["id"] == "d3"
    assert other.cursor_of("d9") is None
    found = [other.one(each) for each in other.newest(2)]
    assert [each["id"] for each in found if each] == ["d3", "d4"]
    assert other.newest(99) == other.after("", 99)[0]


def test_there_are_never_more_than_there_may_be(place: Open) -> None:
    deliveries = place()
    said = [deliveries.add(f"d{number}", delivery(f"d{number}")) for number in range(102)]
    assert said == ["new"] * 100 + ["full"] * 2
    assert deliveries.add("d7", delivery("d7")) == "known"


def test_a_cursor_goes_on_behind_what_was_deleted_and_behind_a_clock_that_was_set_back(
    place: Open, clock: ManualClock,
) -> None:
    deliveries = place()
    deliveries.add("d1", delivery("d1"))
    [cursor], _ = deliveries.after("", 5)
    clock.jump(hours=-1)
    deliveries.add("d2", delivery("d2"))
    assert ids(place(), cursor) == ["d2"]


async def test_whoever_follows_the_cursor_misses_nothing_that_several_hosts_take_at_once(place: Open) -> None:
    hosts, reader = [place() for _ in range(3)], place()
    seen: list[str] = []
    done = False

    async def follow() -> None:
        cursor = ""
        while True:
            last = done  # what was added before this was set is visible now
            cursors, _ = await asyncio.to_thread(reader.after, cursor, 100)
            seen.extend(cursors)
            cursor = cursors[-1] if cursors else cursor
            if last:
                return

    def add(host: Deliveries, names: range) -> None:
        for number in names:
            host.add(f"d{number}", delivery(f"d{number}"))

    following = asyncio.create_task(follow())
    await asyncio.gather(*(asyncio.to_thread(add, host, range(n * 25, n * 25 + 35)) for n, host in enumerate(hosts)))
    done = True
    await following
    assert len(seen) == 85
    assert seen == sorted(set(seen)) == place().after("", 100)[0]


def test_all_are_carried_to_another_place_in_order_and_under_their_cursors(
    store: PostgresStore, tmp_path: Path, clock: ManualClock,
) -> None:
    folder, database = Spool(tmp_path, clock, 100), PostgresDeliveries(store.url, "shop", 100, clock)
    for number in range(5):
        folder.add(f"d{number}", delivery(f"d{number}"))
    with closing(database):
        assert (carry(folder, database), carry(folder, database)) == (5, 5)
        assert database.after("", 9) == folder.after("", 9)
        [*_, last] = database.after("", 9)[0]
        assert database.add("d3", delivery("d3")) == "known"
        clock.jump(hours=-1)
        database.add("new", delivery("new"))
        assert ids(database, last) == ["new"]
        (tmp_path / "back").mkdir()
        back = Spool(tmp_path / "back", clock, 100)
        assert carry(database, back) == 6
        assert back.after("", 9) == database.after("", 9)
        assert back.one(last) == database.one(last) == folder.one(last)


@pytest.mark.parametrize("manner", ["before", "after"])
def test_a_connection_that_is_lost_in_the_commit_loses_and_doubles_nothing(
    manner: str, store: PostgresStore, clock: ManualClock,
) -> None:
    with Proxy(store.server.port) as proxy:
        url = store.url.replace(f":{store.server.port}/", f":{proxy.port}/")
        with closing(PostgresDeliveries(url, "shop", 100, clock)) as deliveries:
            deliveries.add("d1", delivery("d1"))
            deliveries.close()
            proxy.manner = manner
            with suppress(LedgerUnusable):  # the second try is cut too
                deliveries.add("d2", delivery("d2"))
            proxy.manner = "well"
            assert deliveries.add("d2", delivery("d2")) == ("known" if manner == "after" else "new")
            assert ids(deliveries) == ["d1", "d2"]


async def test_a_database_that_does_not_answer_takes_nothing_and_says_so(clock: ManualClock) -> None:
    box = Inbox(name="shop", clock=clock)
    box.entrust({"secret": SECRET})
    assert (await box.accept(signed("d1", b"{}", clock), b"{}")).status == 503, "it has no place at all"
    box.keep_in(PostgresDeliveries("postgresql://keep@127.0.0.1:1/keep", "shop", 100, clock))
    assert (await box.accept(signed("d1", b"{}", clock), b"{}")).status == 503
    spec = box.operations["list"]
    with pytest.raises(Transient, match="Deliveries cannot be read"):
        await spec.invoke(spec.parse({}), Call())


def test_a_database_whose_ledger_was_moved_away_takes_nothing(store: PostgresStore, clock: ManualClock) -> None:
    with store.raw() as tables:
        tables.execute("insert into moved (mover, went, place, at) values ('hst_1', 1, 'elsewhere', 1)")
    with closing(PostgresDeliveries(store.url, "shop", 100, clock)) as deliveries:
        with pytest.raises(LedgerUnusable, match="was moved to elsewhere"):
            deliveries.add("d1", delivery("d1"))
        assert deliveries.after("", 5) == ([], False)


TAKES = workflow(producers={"poll": producer(
    'for (const each of await ctx.shop.list({ after: state?.cursor })) {'
    '  const id = ctx.registerInput({ source: "shop", type: "delivery", id: each.id, title: each.id });'
    '  await ctx.publish("in", { messageId: each.id, inputId: id, payload: each.body });'
    '  state = { cursor: each.cursor };'
    '}'
    'return state;')})


async def test_what_came_in_at_another_host_is_read_by_the_one_that_runs_the_workflow(
    store: PostgresStore, clock: ManualClock,
) -> None:
    elsewhere = Inbox(name="shop", clock=clock)
    elsewhere.entrust({"secret": SECRET})
    elsewhere.keep_in(opening.open_deliveries(store.url, "shop", 100, clock))
    with closing(elsewhere):
        here = Inbox(name="shop", clock=clock)
        here.entrust({"secret": SECRET})
        async with Keep(store.url, connectors=[here], clock=clock) as keep:
            wf = (await keep.deploy(TAKES, grants="all")).workflow_id
            for number in range(3):
                body = json.dumps({"n": number}).encode()
                taken = await (elsewhere if number % 2 else here).accept(signed(f"d{number}", body, clock), body)
                assert taken.status == 202
                clock.advance(minutes=10)
                await keep.run_until_idle()
            assert [each.payload for each in await keep.events(wf)] == [{"n": 0}, {"n": 1}, {"n": 2}]
            assert opening.inboxes(store.url) == ["shop"]


def move(there: str | Path, here: str | Path, box: Inbox, clock: ManualClock) -> None:
    opening.move(
        there, here, clock, lambda read: everything_shown(read, Policy(), 0), lambda *_: None,
        lambda: carry_deliveries([box], there, here, clock))


async def test_deliveries_go_along_when_a_ledger_is_moved_and_each_is_read_once(
    store: PostgresStore, clock: ManualClock, tmp_path: Path,
) -> None:
    file, back, read = tmp_path / "keep.db", tmp_path / "back.db", []
    for place, id in ((file, "d1"), (store.url, "d2"), (back, "d3")):
        box = Inbox(tmp_path / "shop", create=True, name="shop", clock=clock)
        box.entrust({"secret": SECRET})
        async with Keep(place, connectors=[box], clock=clock) as keep:
            wf = (await keep.deploy(TAKES, grants="all")).workflow_id
            clock.advance(minutes=10)
            await keep.run_until_idle()
            read = [each.message_id for each in await keep.events(wf)]
            assert (await box.accept(signed(id, b"{}", clock), b"{}")).status == 202
        if place is not back:
            folder = Inbox(tmp_path / "shop", name="shop", clock=clock)
            move(place, store.url if place is file else back, folder, clock)
    assert read == ["d1", "d2"]


async def test_a_ledger_leaves_no_delivery_behind(store: PostgresStore, clock: ManualClock, tmp_path: Path) -> None:
    box = Inbox(name="shop", clock=clock)
    box.entrust({"secret": SECRET})
    async with Keep(store.url, connectors=[box], clock=clock):
        await box.accept(signed("d1", b"{}", clock), b"{}")
    with pytest.raises(ConfigError, match=r"Deliveries to ctx\.shop would be left behind"):
        move(store.url, tmp_path / "back.db", Inbox(name="shop", clock=clock), clock)
    async with Keep(store.url, connectors=[box], clock=clock):
        pass
