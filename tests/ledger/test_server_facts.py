"""`keep doctor` for a ledger in PostgreSQL: each thing that is wrong with a server is said, with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from keepai.doors.web import deep_checks
from keepai.ledger import opening
from keepai.ledger.checks import CHECKS
from keepai.ledger.postgres.server_facts import CONNECTIONS_PER_HOST, ServerFact, told_of_backends
from keepai.model.clock import SystemClock
from keepai.model.errors import Refused
from keepai.testing import ManualClock
from tests import postgres
from tests.ledger import rows
from tests.ledger.stores import PostgresStore


@pytest.fixture(scope="module")
def store() -> Iterator[PostgresStore]:
    """A database that belongs to a user who is nothing else."""
    made = PostgresStore()
    made.make()
    made.server.run(
        f"create role plain login password '{postgres.PASSWORD}'", f"alter database {made.database} owner to plain")
    with made.raw() as tables:
        tables.execute("alter schema keep owner to plain")
        for (name,) in list(tables.execute("select tablename from pg_tables where schemaname = 'keep'")):
            tables.execute(f"alter table {name} owner to plain")
    yield made
    made.drop()
    made.server.run("drop role plain")


def plain(store: PostgresStore) -> str:
    return store.server.url(database=store.database).replace("postgres@", f"plain:{quote(postgres.PASSWORD)}@", 1)


def facts(url: str, clock: SystemClock | ManualClock | None = None) -> dict[str, ServerFact]:
    return {each.name: each for each in opening.examine(url, clock or SystemClock())}


def test_a_server_that_is_fit_is_said_to_be_with_what_was_looked_at(store: PostgresStore) -> None:
    found = facts(plain(store))
    assert {name for name, each in found.items() if each.state == "ok"} >= {
        "PostgreSQL", "rights", "TLS", "pooler", "schema", "free connections", "database clock"}
    assert "fail" not in {each.state for each in found.values()}
    assert all(each.do for each in found.values() if each.state != "ok"), "what is wrong comes with what to do"
    assert postgres.PASSWORD not in repr(found)
    assert "a primary that syncs what it commits" in found["PostgreSQL"].said


def test_it_changes_nothing(store: PostgresStore) -> None:
    store.server.run("create database untouched")
    try:
        found = facts(store.url.replace(store.database, "untouched"))
        assert "no ledger yet" in found["schema"].said
        with store.server.connect(dbname="untouched") as judge:
            assert judge.execute("select to_regnamespace('keep')").fetchone() == (None,)
    finally:
        store.server.run("drop database untouched")


def test_commits_that_wait_for_no_standby_are_a_warning(store: PostgresStore) -> None:
    assert facts(plain(store))["standby"].state == "warn"
    assert "synchronous_standby_names" in facts(plain(store))["standby"].do


def test_a_superuser_is_a_warning_and_a_stranger_fails(store: PostgresStore) -> None:
    assert facts(store.url)["rights"].state == "warn"
    with store.raw() as tables:
        tables.execute("alter schema keep owner to postgres")
        try:
            found = facts(plain(store))["rights"]
            assert (found.state, "belongs to postgres" in found.said) == ("fail", True)
        finally:
            tables.execute("alter schema keep owner to plain")


@pytest.mark.parametrize("whose", ["role plain", "database {database}"])
def test_too_few_connections_for_a_host_are_a_warning(store: PostgresStore, whose: str) -> None:
    whose = whose.format(database=store.database)
    limit = "connection limit" if whose.startswith("role") else "with connection limit"
    store.server.run(f"alter {whose} {limit} {CONNECTIONS_PER_HOST - 1}")
    try:
        assert facts(plain(store))["free connections"].state == "warn"
    finally:
        store.server.run(f"alter {whose} {limit} -1")


def test_a_database_whose_clock_is_another_is_a_warning(store: PostgresStore) -> None:
    late = ManualClock("2020-01-01T00:00:00Z")
    assert "ahead of this machine's" in facts(plain(store), late)["database clock"].said
    late.advance(days=36_500)
    assert "behind this machine's" in facts(plain(store), late)["database clock"].said


def test_a_newer_ledger_and_an_unfit_server_fail(store: PostgresStore) -> None:
    with store.raw() as tables:
        tables.execute("update ledger set schema_needed = schema_needed + 1")
        try:
            assert facts(store.url)["schema"].state == "fail"
        finally:
            tables.execute("update ledger set schema_needed = schema_needed - 1")
    store.server.run(f"alter database {store.database} set synchronous_commit = off")
    try:
        [only] = facts(plain(store)).values()
        assert (only.state, "what it has acknowledged may be lost" in only.said) == ("fail", True)
    finally:
        store.server.run(f"alter database {store.database} reset synchronous_commit")


def test_a_server_that_is_not_there_fails() -> None:
    [only] = facts("postgresql://keep@127.0.0.1:1/keep").values()
    assert only.state == "fail"


@pytest.mark.parametrize(("backends", "state", "said"), [
    ((7, 7, 8, 7), "ok", "none"),
    ((99, 7, 8, 7), "ok", "keeps one connection for one client"),
    ((99, 7, 8, 9), "fail", "another connection for each transaction"),
    ((99, 7, 7, 8), "fail", "another connection for each transaction"),
])
def test_a_pooler_is_told_by_who_answers(backends: tuple[int, int, int, int], state: str, said: str) -> None:
    found = told_of_backends(*backends)
    assert (found.state, said in found.said) == (state, True)


def test_what_only_a_file_needs_says_what_to_use_with_a_server(store: PostgresStore, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"pg_dump .* pg_basebackup .* would be sent again"):
        opening.backup(store.url, tmp_path / "copy.db")
    with pytest.raises(Refused, match="autovacuum"):
        opening.vacuum(store.url)
    with closing(opening.open_reader(store.url)) as read:
        assert read.bytes() > 100_000


async def test_a_user_needs_nothing_but_a_schema_of_its_own(store: PostgresStore) -> None:
    store.server.run("create database bare")
    try:
        with store.server.connect(dbname="bare") as owner:
            owner.execute("create schema keep authorization plain")
            owner.execute("revoke create on database bare from plain, public")
        url = plain(store).replace(store.database, "bare")
        assert facts(url)["rights"].state == "ok"
        ledger = opening.open_ledger(url, SystemClock())
        await ledger.write(rows.deploy)
        await ledger.close()
        with closing(opening.open_reader(url)) as read:
            assert len(read.all("workflow_all")) == 1
    finally:
        store.server.run("drop database bare with (force)")


def test_the_page_looks_closely_at_a_database_too(store: PostgresStore, capsys: pytest.CaptureFixture[str]) -> None:
    deep_checks.main(store.url)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["name"], each["state"]) for each in told] == [(f"ledger: {name}", "ok") for name in CHECKS]


def test_a_pooler_that_gives_each_transaction_another_connection_is_found(store: PostgresStore) -> None:
    with postgres.TransactionPooler(store.server, store.database) as pooler:
        found = facts(store.url.replace(f":{store.server.port}/", f":{pooler.port}/"))
    assert (found["pooler"].state, "session pooling" in found["pooler"].do) == ("fail", True)
