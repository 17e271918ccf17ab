"""The connector `sql` beyond the common contract: names, values, pages, conditions, and what an error proves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from keepai.app import Keep
from keepai.connectors import make
from keepai.connectors.base import Call, Connector
from keepai.connectors.sql import postgres
from keepai.model.clock import SystemClock
from keepai.model.errors import (
    ConfigError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    RuleBroken,
    Transient,
)
from keepai.testing import kill_self_at
from tests.postgres import PASSWORD, Proxy, binaries, shared

BILL = """create table bill (
    id integer primary key, total decimal(10,2), due text, paid boolean, version int default 1, keep_key text unique)"""


class Place:
    """A database for one test, and a connection to it that the connector knows nothing of."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "bills.db"
        self.schema = f"t_{os.getpid()}_{folder.name}".lower().replace("-", "_")[-60:]
        if kind == "postgres":
            shared().run(f"drop schema if exists {self.schema} cascade", f"create schema {self.schema}")

    def connector(self, tables: tuple[str, ...] = ("bill",), port: int | None = None, **settings: Any) -> Connector:
        if self.kind == "sqlite":
            return make("sql", "books", {"path": str(self.path), "tables": list(tables), **settings})
        named = [f"{self.schema}.{each}" for each in tables]
        url = f"{shared().url(port)}?options=-csearch_path%3D{self.schema}"
        connector = make("sql", "books", {"url": url, "tables": [*tables, *named], **settings})
        connector.entrust({"password": PASSWORD})
        return connector

    def run(self, *texts: str) -> list[Any]:
        if self.kind == "postgres":
            return shared().run(f"set search_path = {self.schema}", *texts)
        with contextlib.closing(apsw.Connection(str(self.path))) as db:
            found: list[Any] = []
            for text in texts:
                found = list(db.execute(text))
            return found

    async def query(self, *, tables: tuple[str, ...] = ("bill",), **params: Any) -> Any:
        spec = self.connector(tables).operations["query"]
        return await spec.invoke(spec.parse({"table": "bill", **params}), call())


async def until(true: Callable[[], object]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


def call(key: str = "k1", seconds: float = 10) -> Call:
    return Call(idempotency_key=key, deadline=SystemClock().steady_ms() + seconds * 1000)


@pytest.fixture(params=["sqlite", *(["postgres"] if binaries() else [])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, tmp_path)
    made.run(BILL)
    yield made
    if made.kind == "postgres":
        shared().run(f"drop schema {made.schema} cascade")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Place]:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL here")
    made = Place("postgres", tmp_path)
    made.run(BILL)
    yield made
    shared().run(f"drop schema {made.schema} cascade")


@pytest.fixture
def file(tmp_path: Path) -> Place:
    made = Place("sqlite", tmp_path)
    made.run(BILL)
    return made


# Reading


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({}, [1, 2, 3, 4]),
        ({"due": "may"}, [1, 2]),
        ({"due": None}, [4]),
        ({"due": {"!=": None}}, [1, 2, 3]),
        ({"id": {">": 1, "<=": 3}}, [2, 3]),
        ({"id": {"in": [1, 4]}, "due": {"=": "may"}}, [1]),
        ({"due": {"like": "m%"}}, [1, 2]),
        ({"due": {"!=": "may"}}, [3]),
        ({"total": "1.50"}, [1]),
        ({"total": {">=": 2.5}}, [2, 3, 4]),
        ({"due": "' or 1=1 --"}, []),
    ],
)
async def test_rows_are_found_by_conditions(place: Place, where: dict[str, Any], ids: list[int]) -> None:
    place.run(
        "insert into bill (id, total, due) values (1, 1.5, 'may'), (2, 2.5, 'may'), (3, 3.5, 'june'), (4, 4, null)"
    )
    found = await place.query(where=where, columns=["id"], order=["id"])
    assert [row["id"] for row in found] == ids
    assert all(row.keys() == {"id"} for row in found)


@pytest.mark.parametrize("order", [[], ["total"], ["-total"], ["due", "-total"], ["-due", "total", "-id"]])
async def test_a_cursor_goes_through_all_rows_without_a_gap_or_a_repeat(place: Place, order: list[str]) -> None:
    rows = ", ".join(
        f"({n}, {n % 3 if n % 4 else 'null'}, {repr('d' + str(n % 2)) if n % 5 else 'null'})" for n in range(1, 31)
    )
    place.run(f"insert into bill (id, total, due) values {rows}")
    seen: list[int] = []
    cursor, more = None, True
    while more:
        page = await place.query(order=order, limit=7, after=cursor, columns=["id"])
        seen += [row["id"] for row in page]
        cursor, more = page.fields["lastCursor"], page.fields["more"]
    by = ", ".join(f"{each.lstrip('-')} {'desc' if each[0] == '-' else 'asc'} nulls last" for each in [*order, "id"])
    assert seen == [row[0] for row in place.run(f"select id from bill order by {by}")]
    later = await place.query(order=order, after=cursor)
    assert (list(later), later.fields["lastCursor"]) == ([], cursor)  # nothing new: the cursor stays good


async def test_a_page_ends_by_size_before_it_ends_by_number(place: Place) -> None:
    rows = ", ".join(f"({n}, '{'x' * 300_000}')" for n in range(1, 9))
    place.run(f"insert into bill (id, due) values {rows}")
    page = await place.query()
    assert 3 <= len(page) <= 5
    assert page.fields["more"] is True
    rest = await place.query(after=page.fields["lastCursor"])
    assert rest[0]["id"] == page[-1]["id"] + 1


@pytest.mark.parametrize(
    "params",
    [
        {"table": "keep_applied"},
        {"table": "sqlite_schema"},
        {"table": "pg_class"},
        {"table": "BILL"},
        {"table": 'bill"; drop table bill; --'},
        {"columns": ["nope"]},
        {"columns": ['id" from bill; --']},
        {"where": {"nope": 1}},
        {"where": {"id": {"regexp": "x"}}},
        {"where": {"id": {">": None}}},
        {"where": {"id": {"in": []}}},
        {"order": ["nope"]},
        {"order": ["id; drop table bill"]},
        {"after": "garbage"},
        {"limit": 5000},
        {"where": {"id": {"in": list(range(1001))}}},
    ],
)
async def test_what_is_not_in_the_catalog_or_on_the_list_is_refused(place: Place, params: dict[str, Any]) -> None:
    place.run("insert into bill (id) values (1)")
    with pytest.raises(Rejected):
        await place.query(**params)
    assert place.run("select count(*) from bill") == [(1,)]


async def test_a_cursor_of_another_order_is_refused(place: Place) -> None:
    place.run("insert into bill (id) values (1)")
    page = await place.query(order=["total"])
    with pytest.raises(Rejected, match="lastCursor"):
        await place.query(order=["-total"], after=page.fields["lastCursor"])


async def test_one_row_is_got_by_any_unique_key_and_by_nothing_else(place: Place) -> None:
    place.run("insert into bill (id, keep_key) values (7, 'a')")
    get = place.connector().operations["get"]
    for key in ({"id": 7}, {"keep_key": "a"}):
        found = await get.invoke({"table": "bill", "key": key}, call())
        assert isinstance(found, dict)
        assert found["id"] == 7
    assert await get.invoke({"table": "bill", "key": {"id": 8}}, call()) is None
    for wrong in ({"due": "x"}, {}, {"id": None}):
        with pytest.raises(Rejected):
            await get.invoke({"table": "bill", "key": wrong}, call())


async def test_names_that_need_quotes_are_quoted(place: Place) -> None:
    place.run('create table "odd %s ""t" (id int primary key, "a ""b"" %s" text)')
    name = 'odd %s "t'
    key, values = {"id": 1}, {'a "b" %s': "x%s'"}
    operations = place.connector((name,)).operations
    assert await operations["upsert"].invoke({"table": name, "key": key, "values": values}, call()) == {"key": key}
    assert await operations["get"].invoke({"table": name, "key": key}, call()) == {**key, **values}


async def test_a_table_without_a_primary_key_can_be_read_but_has_no_cursor(place: Place) -> None:
    place.run("create table log (word text)", "insert into log values ('a'), ('b')")
    page = await place.query(table="log", tables=("log",), limit=1, order=["word"])
    assert (list(page), page.fields) == ([{"word": "a"}], {"lastCursor": None, "more": True})


# Values


async def test_postgres_values_come_and_go_as_json_can_carry_them(server: Place) -> None:
    server.run(
        "create table v (id int primary key, big bigint, amount numeric, price numeric(6,2), f float8, "
        "r real, ok bool, at timestamptz, day date, local timestamp, doc jsonb, old json, raw bytea, "
        "who uuid, short varchar(3), tags text[])"
    )
    given = {
        "big": "9007199254740993",
        "amount": "0.1000000000000000000001",
        "price": 1.255,
        "f": 0.1,
        "r": 0.1,
        "ok": True,
        "at": "2026-03-01T12:00:00+02:00",
        "day": "2026-03-01",
        "local": "2026-03-01 12:00",
        "doc": {"n": [1, None, "ü"]},
        "old": "text",
        "raw": "AP8=",
        "who": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "short": "abc",
    }
    spec = server.connector(("v",)).operations["insert"]
    await spec.invoke({"table": "v", "key": {"id": 1}, "values": given}, call())
    assert (await spec.reconcile({"table": "v", "key": {"id": 1}, "values": given}, call())).status == "applied"
    server.run("update v set tags = '{a,b}'")
    found = await server.connector(("v",)).operations["get"].invoke({"table": "v", "key": {"id": 1}}, call())
    assert found == given | {
        "id": 1,
        "price": "1.26",
        "at": "2026-03-01T10:00:00Z",
        "local": "2026-03-01T12:00:00",
        "tags": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"f": "NaN"}, "JSON can hold"),
        ({"amount": "-Infinity"}, "JSON can hold"),
        ({"ok": 1}, "does not accept [17]"),
        ({"short": "abcd"}, "too long"),
        ({"short": 7}, "does not accept [17]"),
        ({"raw": "no base64!"}, "base64"),
        ({"short": "a\0b"}, "NUL"),
        ({"doc": {"a": "\0"}}, "NUL"),
        ({"tags": ["a"]}, "does not accept an array"),
        ({"amount": "x"}, "invalid"),
        ({"day": "2026-02-30"}, "out of range"),
    ],
)
async def test_postgres_values_that_do_not_fit_are_refused(server: Place, values: dict[str, Any], why: str) -> None:
    server.run(
        "create table v (id int primary key, f float8, amount numeric, ok bool, short varchar(3), raw bytea, "
        "doc jsonb, tags text[], day date)"
    )
    with pytest.raises(Rejected, match=why):
        await (
            server.connector(("v",))
            .operations["insert"]
            .invoke({"table": "v", "key": {"id": 1}, "values": values}, call())
        )
    assert server.run("select count(*) from v") == [(0,)]


async def test_a_stored_value_that_json_cannot_carry_is_an_error_and_not_a_guess(place: Place) -> None:
    inf = "9e999" if place.kind == "sqlite" else "'NaN'::float8"
    place.run("create table v (id int primary key, f double precision)", f"insert into v values (1, {inf})")
    with pytest.raises(PreconditionFailed, match="JSON cannot hold"):
        await place.connector(("v",)).operations["get"].invoke({"table": "v", "key": {"id": 1}}, call())


async def test_a_number_that_javascript_would_round_comes_as_text(place: Place) -> None:
    place.run("create table v (id int primary key, f double precision, doc json)")
    place.run("""insert into v values (1, 1e300, '{"id": 9007199254740993}')""")
    found = await place.connector(("v",)).operations["get"].invoke({"table": "v", "key": {"id": 1}}, call())
    assert found == {"id": 1, "f": "1e+300", "doc": {"id": "9007199254740993"}}


async def test_sqlite_values_follow_the_declared_type(file: Place) -> None:
    file.run("create table v (id integer primary key, big int, ok boolean, doc json, raw blob, amount decimal)")
    values = {"big": "9007199254740993", "ok": True, "doc": {"n": [1]}, "raw": "AP8=", "amount": "12.50"}
    spec = file.connector(("v",)).operations
    await spec["insert"].invoke({"table": "v", "key": {"id": 1}, "values": values}, call())
    assert file.run("select typeof(big), ok, raw from v") == [("integer", 1, b"\0\xff")]
    found = await spec["get"].invoke({"table": "v", "key": {"id": 1}}, call())
    assert found == values | {"id": 1, "amount": 12.5}
    assert (
        await spec["insert"].reconcile({"table": "v", "key": {"id": 1}, "values": values}, call())
    ).status == "applied"
    with pytest.raises(Rejected, match="does not accept a list or an object"):
        await spec["update"].invoke({"table": "v", "key": {"id": 1}, "values": {"amount": [1]}}, call())


# Changing


async def test_an_insert_returns_the_key_that_the_database_made(place: Place) -> None:
    if place.kind == "postgres":
        place.run("drop table bill", BILL.replace("integer primary key", "serial primary key"))
    assert await place.connector().operations["insert"].invoke({"table": "bill", "values": {"total": 5}}, call()) == {
        "key": {"id": 1}
    }


async def test_a_row_that_is_there_with_other_content_stops_an_insert_and_puts_its_lookup_in_doubt(
    place: Place,
) -> None:
    place.run("insert into bill (id, total) values (7, 1)")
    spec = place.connector().operations["insert"]
    params = {"table": "bill", "key": {"id": 7}, "values": {"total": 2}}
    with pytest.raises(PreconditionFailed, match="already has a row"):
        await spec.invoke(params, call())
    verdict = await spec.reconcile(params, call())
    assert (verdict.status, "other content" in verdict.why) == ("unknown", True)
    assert place.run("select id from bill") == [(7,)]


@pytest.mark.parametrize("settings", [{"receipts": True}, {"marker": "keep_key"}])
async def test_with_a_trace_an_equal_row_of_somebody_else_is_not_taken_for_ones_own(
    place: Place,
    settings: dict[str, Any],
) -> None:
    place.run("insert into bill (id, total) values (7, 2)")
    spec = place.connector(**settings).operations["insert"]
    params = {"table": "bill", "key": {"id": 7}, "values": {"total": 2}}
    with pytest.raises(PreconditionFailed):
        await spec.invoke(params, call())
    assert (await spec.reconcile(params, call())).status != "applied"


async def test_an_insert_without_key_marker_or_receipt_is_never_called_failed_or_applied(place: Place) -> None:
    place.run("create table log (word text)")
    spec = place.connector(("log",)).operations["insert"]
    for _ in range(2):
        verdict = await spec.reconcile({"table": "log", "values": {"word": "a"}}, call())
        assert (verdict.status, "receipts = true" in verdict.why) == ("unknown", True)
        await spec.invoke({"table": "log", "values": {"word": "a"}}, call())


@pytest.mark.parametrize("operation", ["update", "upsert"])
async def test_without_receipts_an_update_is_never_called_failed_or_applied(place: Place, operation: str) -> None:
    place.run("insert into bill (id, total) values (1, 2)")
    spec = place.connector().operations[operation]
    verdict = await spec.reconcile({"table": "bill", "key": {"id": 1}, "values": {"total": 2}}, call())
    assert verdict.status == "unknown"
    assert not spec.can_reconcile  # so that people are told the truth: nobody can look it up
    assert spec.key_window_s is None


async def test_an_update_changes_its_row_only_if_that_is_as_expected(place: Place) -> None:
    place.run("insert into bill (id, total) values (1, 1), (2, 1)")
    spec = place.connector().operations["update"]
    done = await spec.invoke(
        {
            "table": "bill",
            "key": {"id": 1},
            "values": {"total": 5, "version": 2},
            "expect": {"version": 1, "due": None},
        },
        call(),
    )
    assert done == {"key": {"id": 1}}
    with pytest.raises(PreconditionFailed, match="not as expected"):
        await spec.invoke({"table": "bill", "key": {"id": 1}, "values": {"total": 6}, "expect": {"version": 1}}, call())
    with pytest.raises(PreconditionFailed, match="no row"):
        await spec.invoke({"table": "bill", "key": {"id": 9}, "values": {"total": 6}}, call())
    assert [(row[0], float(row[1])) for row in place.run("select id, total from bill order by id")] == [
        (1, 5.0),
        (2, 1.0),
    ]


@pytest.mark.parametrize(
    "params",
    [
        {"key": {"total": 1}, "values": {"due": "x"}},
        {"key": {}, "values": {"due": "x"}},
        {"key": {"id": None}, "values": {"due": "x"}},
        {"key": {"id": 1}, "values": {}},
        {"key": {"id": 1}, "values": {"nope": 1}},
        {"key": {"id": 1, "total": 1}, "values": {"due": "x"}},
        {"key": {"id": 1}, "values": {"due": "x"}, "expect": {"nope": 1}},
    ],
)
async def test_an_update_that_could_hit_other_rows_is_refused(place: Place, params: dict[str, Any]) -> None:
    place.run("insert into bill (id, total) values (1, 1), (2, 1)")
    with pytest.raises(Rejected):
        await place.connector().operations["update"].invoke({"table": "bill", **params}, call())
    assert place.run("select count(*) from bill where due is not null") == [(0,)]


async def test_with_receipts_a_second_send_changes_nothing_whatever_has_happened_since(place: Place) -> None:
    place.run("insert into bill (id, total) values (1, 1)")
    spec = place.connector(receipts=True).operations["update"]
    params = {"table": "bill", "key": {"id": 1}, "values": {"total": 5}}
    first = await spec.invoke(params, call())
    place.run("update bill set total = 9")
    assert await spec.invoke(params, call()) == first
    assert await spec.invoke(params, call("k1")) == first
    assert float(place.run("select total from bill")[0][0]) == 9
    place.run("delete from bill")
    verdict = await spec.reconcile(params, call())
    assert (verdict.status, verdict.result) == ("applied", first)
    assert spec.key_window_s is not None


async def test_a_change_that_was_undone_leaves_no_receipt(place: Place) -> None:
    place.run("create table checked (id int primary key, total int check (total < 10))")
    spec = place.connector(("checked",), receipts=True).operations["upsert"]
    params = {"table": "checked", "key": {"id": 1}, "values": {"total": 50}}
    with pytest.raises(Rejected):
        await spec.invoke(params, call())
    assert (await spec.reconcile(params, call())).status == "failed"
    with pytest.raises(Rejected):
        await spec.invoke(params, call())


async def test_the_table_of_receipts_is_made_only_if_that_is_allowed(place: Place) -> None:
    here = (
        "select count(*) from sqlite_schema where name = 'keep_applied'"
        if place.kind == "sqlite"
        else f"select count(*) from pg_tables where tablename = 'keep_applied' and schemaname = '{place.schema}'"
    )
    await place.connector().operations["upsert"].invoke({"table": "bill", "key": {"id": 1}, "values": {}}, call())
    assert place.run(here) == [(0,)]
    await (
        place.connector(receipts=True)
        .operations["upsert"]
        .invoke({"table": "bill", "key": {"id": 1}, "values": {}}, call())
    )
    assert place.run(here) == [(1,)]


async def test_a_marker_is_keeps_own_and_needs_a_unique_index(place: Place) -> None:
    spec = place.connector(marker="keep_key").operations["insert"]
    with pytest.raises(Rejected, match="Keep's own"):
        await spec.invoke({"table": "bill", "values": {"id": 1, "keep_key": "mine"}}, call())
    loose = place.connector(marker="due").operations["insert"]
    with pytest.raises(PreconditionFailed, match="unique index"):
        await loose.invoke({"table": "bill", "values": {"id": 1}}, call())
    assert place.run("select count(*) from bill") == [(0,)]
    with pytest.raises(PreconditionFailed, match="unique index"):
        await place.connector(marker="due").check()


async def test_foreign_keys_hold_and_are_a_matter_for_a_person(place: Place) -> None:
    place.run("create table line (id int primary key, bill int references bill (id))")
    spec = place.connector(("line",)).operations["insert"]
    with pytest.raises(PreconditionFailed):
        await spec.invoke({"table": "line", "key": {"id": 1}, "values": {"bill": 404}}, call())


# What an error proves


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("23502", Rejected),
        ("23514", Rejected),
        ("23505", PreconditionFailed),
        ("23503", PreconditionFailed),
        ("42601", Rejected),
        ("42501", PermissionDenied),
        ("28P01", PermissionDenied),
        ("40001", Transient),
        ("40P01", Transient),
        ("57014", Transient),
        ("57P01", Transient),
        ("08006", Transient),
        ("53300", Transient),
        ("55P03", Transient),
        ("25006", PermissionDenied),
        ("42P01", PreconditionFailed),
        ("ZZ999", PreconditionFailed),
        (None, Transient),
    ],
)
def test_before_commit_every_error_is_definite_and_its_state_says_what_follows(state: str | None, kind: type) -> None:
    error = psycopg.OperationalError("x")
    error.sqlstate = state
    assert postgres.translated(error) is kind


@pytest.mark.parametrize("manner", ["after", "late"])
async def test_a_commit_that_may_still_arrive_is_not_called_failed(server: Place, manner: str) -> None:
    spec = server.connector().operations["insert"]
    params = {"table": "bill", "key": {"id": 1}, "values": {"total": 5}}
    with Proxy(shared().port, manner) as proxy:
        with pytest.raises(OutcomeUnknown):
            await server.connector(port=proxy.port).operations["insert"].invoke(params, call())
        if manner == "late":
            assert server.run("select count(*) from bill") == [(0,)]
            assert (await spec.reconcile(params, call())).status == "retry"
            proxy.release.set()
            assert proxy.committed.wait(10)
            proxy.settled()
        assert (await spec.reconcile(params, call())).status == "applied"
        assert PASSWORD.encode() not in proxy.seen


async def test_a_server_that_ends_the_session_while_it_commits_leaves_the_outcome_unknown(server: Place) -> None:
    server.run(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(5); return null; end $$",
        "create constraint trigger slow after insert on bill deferrable initially deferred "
        "for each row execute function slow()",
    )
    spec = server.connector().operations["insert"]
    params = {"table": "bill", "key": {"id": 1}, "values": {}}
    sending = asyncio.ensure_future(spec.invoke(params, call()))
    asked = "select pg_terminate_backend(pid) from pg_stat_activity where query = 'commit' and state = 'active'"
    await until(lambda: server.run(asked))
    with pytest.raises(OutcomeUnknown):
        await sending
    assert (await spec.reconcile(params, call())).status == "failed"


async def test_a_cancelled_call_ends_at_once_although_the_server_says_nothing(server: Place) -> None:
    params = {"table": "bill", "key": {"id": 1}, "values": {}}
    with Proxy(shared().port, "silent") as proxy:
        spec = server.connector(port=proxy.port).operations["insert"]
        task = asyncio.ensure_future(spec.invoke(params, call()))
        await until(proxy.committed.is_set)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=20)
        assert done
        assert task.cancelled()
    assert (await server.connector().operations["insert"].reconcile(params, call())).status == "applied"


async def test_questions_asked_at_the_same_moment_do_not_stand_in_each_others_way(server: Place) -> None:
    spec = server.connector().operations["insert"]
    params = {"table": "bill", "key": {"id": 1}, "values": {"total": 5}}
    for expected in ("failed", "applied"):
        verdicts = await asyncio.gather(*(spec.reconcile(params, call()) for _ in range(4)))
        assert [verdict.status for verdict in verdicts] == [expected] * 4
        await spec.invoke(params, call())


async def test_two_sends_with_one_key_at_the_same_moment_have_one_effect(server: Place) -> None:
    server.run("create table log (id serial primary key, word text)")
    spec = server.connector(("log",), receipts=True).operations["insert"]
    await spec.invoke({"table": "log", "values": {"word": "first"}}, call("k0"))
    params = {"table": "log", "values": {"word": "a"}}
    results = await asyncio.gather(*(spec.invoke(params, call()) for _ in range(5)))
    assert [each == results[0] for each in results] == [True] * 5
    assert server.run("select count(*) from log where word = 'a'") == [(1,)]


async def test_a_question_that_takes_too_long_is_ended(place: Place) -> None:
    slow = (
        "select pg_sleep(120)::text as id"
        if place.kind == "postgres"
        else "with recursive n(x) as (select 1 union all select x + 1 from n) select max(x) as id from n"
    )
    place.run(f"create view slow as {slow}")
    spec = place.connector(("slow",), timeout=0.3).operations["query"]
    with pytest.raises(Transient):
        await asyncio.wait_for(spec.invoke({"table": "slow"}, call()), 60)


@pytest.mark.parametrize(("point", "happened"), [("sql.before_commit", False), ("sql.committed", True)])
def test_a_process_killed_around_commit_leaves_a_truth_that_reconcile_tells(
    file: Place,
    point: str,
    happened: bool,
) -> None:
    params = {"table": "bill", "key": {"id": 1}, "values": {"total": 5}}
    spec = file.connector(receipts=True).operations["upsert"]

    def send() -> None:
        kill_self_at(point)
        asyncio.run(spec.invoke(params, call()))

    child = os.fork()
    if child == 0:
        try:
            send()
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert asyncio.run(spec.reconcile(params, call())).status == ("applied" if happened else "failed")
    assert file.run("select count(*) from bill") == [(int(happened),)]


# Settings and words


async def test_a_ledger_of_keep_is_no_outside_system(tmp_path: Path) -> None:
    async with Keep(tmp_path / "keep.db", connectors=[]):
        pass
    connector = make("sql", "books", {"path": str(tmp_path / "keep.db"), "tables": ["mutation"]})
    with pytest.raises(PermissionDenied, match="ledger of Keep"):
        await connector.operations["query"].invoke({"table": "mutation"}, call())
    with pytest.raises(PermissionDenied):
        await connector.operations["update"].invoke(
            {"table": "mutation", "key": {"id": "x"}, "values": {"status": "failed"}}, call()
        )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tables": ["a"]}, "either `path`"),
        ({"tables": ["a"], "path": "x", "url": "postgresql://h/d"}, "either `path`"),
        ({"tables": [], "path": "x"}, "tables must name"),
        ({"tables": ["keep_applied"], "path": "x"}, "keep_applied"),
        ({"tables": ["s.keep_applied"], "path": "x"}, "keep_applied"),
        ({"tables": "a", "path": "x"}, "list of strings"),
        ({"tables": ["a"], "url": "mysql://h/d"}, "postgresql://"),
        ({"tables": ["a"], "path": "x", "timeout": 0}, "timeout"),
        ({"tables": ["a"], "url": "postgresql://u:hunter2@h/d"}, "must not contain a password"),
        ({"tables": ["a"], "url": "postgresql://u@h/d?password=hunter2"}, "must not contain a password"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as told:
        make("sql", "books", settings)
    assert "hunter2" not in told.value.message


def test_only_a_server_is_entrusted_with_a_password(tmp_path: Path) -> None:
    assert not make("sql", "books", {"path": str(tmp_path / "x.db"), "tables": ["bill"]}).secrets
    assert list(make("sql", "books", {"url": "postgresql://h/d", "tables": ["bill"]}).secrets) == ["password"]


async def test_check_says_what_is_missing(place: Place) -> None:
    await place.connector().check()
    with pytest.raises(PreconditionFailed, match="no table 'nope'"):
        await place.connector(("nope",)).check()


def test_people_see_every_value_that_will_be_written(tmp_path: Path) -> None:
    operations = make("sql", "books", {"path": str(tmp_path / "x.db"), "tables": ["bill"]}).operations
    key, values = {"id": 7}, {"total": "12.50", "due": "may\n"}
    assert (
        operations["insert"].preview({"table": "bill", "key": key, "values": values})
        == 'Insert into bill: due="may\\n", id=7, total="12.50"'
    )
    assert (
        operations["update"].preview({"table": "bill", "key": key, "values": values, "expect": {"version": 3}})
        == 'Update bill where id=7: due="may\\n", total="12.50" (only if version=3)'
    )
    assert (
        operations["upsert"].preview({"table": "bill", "key": key, "values": {"total": 1}})
        == "Insert or update bill where id=7: total=1"
    )


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ({"total": 12.5}, {"total": "12.50"}, "equivalent"),
        ({"total": 12.5}, {"total": 13}, "significant"),
        ({"note": "07"}, {"note": "7"}, "significant"),
        ({"a": 1}, {"a": 1, "b": 2}, "significant"),
        ({"a": True}, {"a": "1"}, "significant"),
        ({"a": None}, {"a": None}, "equivalent"),
    ],
)
def test_payloads_are_compared_by_value(old: dict[str, Any], new: dict[str, Any], verdict: str, tmp_path: Path) -> None:
    spec = make("sql", "books", {"path": str(tmp_path / "x.db"), "tables": ["bill"]}).operations["insert"]
    assert spec.compare({"values": old}, {"values": new}) == verdict


def test_a_script_can_hand_over_no_sql(tmp_path: Path) -> None:
    spec = make("sql", "books", {"path": str(tmp_path / "x.db"), "tables": ["bill"]}).operations["query"]
    with pytest.raises(RuleBroken, match=r"params\.sql is unknown"):
        spec.parse({"table": "bill", "sql": "drop table bill"})
