"""Hosts of two neighbouring versions on one database: steps that add come at once, those that take away come last."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from keepai.ledger.opening import open_reader
from keepai.ledger.postgres import place, tables
from keepai.ledger.postgres.server_facts import examine
from keepai.ledger.postgres.store import PostgresLedger
from keepai.ledger.postgres.tables import SchemaStep, migrate
from keepai.model.errors import LedgerStopped, LedgerUnusable
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.ledger.stores import PostgresStore

pytestmark = pytest.mark.asyncio

OLD, NEXT, LATER = 1, 2, 3  #: versions, by the newest schema that each knows
STEPS = {
    **tables.migrations(),
    NEXT: SchemaStep("alter table workflow add column remark text; alter table topic add column spare bigint"),
    LATER: SchemaStep("alter table topic drop column spare", takes_away=True),
}


@contextmanager
def version(newest: int) -> Iterator[None]:
    """Inside, this process is a Keep that knows the schemas up to that one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "migrations", lambda: {step: STEPS[step] for step in STEPS if step <= newest})
        yield


@pytest.fixture
def store() -> PostgresStore:
    made = PostgresStore()
    made.make()
    return made


def host(store: PostgresStore, newest: int) -> PostgresLedger:
    with version(newest):
        return PostgresLedger(store.url, ManualClock())


def stands(store: PostgresStore) -> tuple[int, int, str]:
    """Which schema the ledger has, which one a host must know, and which triggers there are."""
    with store.raw() as raw:
        [found] = raw.execute("select schema, schema_needed, guards from ledger")
    return found  # type: ignore[no-any-return]


def refused(store: PostgresStore, newest: int) -> None:
    """Neither a host nor a look of that version comes in, and nothing is changed by trying."""
    before = stands(store)
    for come_in in (host, lambda *_: closing(open_reader(store.url))):
        with version(newest), pytest.raises(LedgerUnusable, match=r"written by a newer Keep.*Upgrade Keep"):
            come_in(store, newest)
    assert stands(store) == before


async def test_a_newer_host_adds_what_it_needs_and_older_ones_work_on_and_come_in(store: PostgresStore) -> None:
    first = host(store, OLD)
    newer = host(store, NEXT)
    before = stands(store)
    assert before[:2] == (NEXT, OLD)
    second = host(store, OLD)
    for number, ledger in enumerate((first, newer, second)):
        await ledger.write(rows.deploy, f"flow {number}")
    with version(OLD), closing(open_reader(store.url)) as read:
        assert len(read.all("workflow_all")) == 3
    assert stands(store) == before, "the older host has not put its own triggers in their place"
    for ledger in (first, newer, second):
        await ledger.close()


async def test_nothing_is_taken_away_while_an_older_host_lives_and_then_the_older_ones_are_refused(
    store: PostgresStore,
) -> None:
    older, newer = host(store, OLD), host(store, LATER)
    assert stands(store)[:2] == (NEXT, OLD)
    with version(LATER):
        [fact] = [each for each in examine(store.url, ManualClock()) if each.name == "schema"]
        assert (fact.state, older.host in fact.said, "when no older host is left" in fact.said) == ("ok", True, True)
        with closing(open_reader(store.url)) as read:
            assert read.all("workflow_all") == []
    for number, ledger in enumerate((older, newer)):
        await ledger.write(rows.deploy, f"flow {number}")
    await older.close()
    await newer.close()
    await host(store, NEXT).close()  # it comes and goes, and the next one no longer waits for it
    await host(store, LATER).close()
    assert stands(store)[:2] == (LATER, LATER)
    for newest in (OLD, NEXT):
        refused(store, newest)


async def test_an_older_host_that_was_silent_for_too_long_does_not_come_back_to_what_was_taken_away(
    store: PostgresStore,
) -> None:
    older = host(store, OLD)
    with store.raw() as raw:
        raw.execute("update heartbeat set beat_at = beat_at - 20000")
    newer = host(store, LATER)
    assert stands(store)[:2] == (LATER, LATER)
    with pytest.raises(LedgerStopped):
        await older.write(rows.deploy, "late")
    with version(OLD), pytest.raises(LedgerUnusable, match="written by a newer Keep"):
        await older.rejoin(())
    assert await newer.all("workflow_all") == []
    await newer.close()
    with version(OLD):
        await older.close()


async def test_an_older_host_that_had_looked_before_something_was_taken_away_does_not_come_in(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as ends:
        def overtaken(connection: tables.Connection, name: str) -> None:
            migrate(connection, name)
            ends.enter_context(version(LATER))
            store.migrate()
            ends.close()

        monkeypatch.setattr(place, "migrate", overtaken)
        with pytest.raises(LedgerUnusable, match="written by a newer Keep"):
            host(store, OLD)
    with store.raw() as raw:
        assert list(raw.execute("select * from heartbeat")) == []


async def test_a_ledger_that_a_newer_host_makes_needs_no_more_than_it_must(store: PostgresStore) -> None:
    store.vanish()
    await host(store, NEXT).close()
    assert stands(store)[:2] == (NEXT, OLD)
    await host(store, OLD).close()


async def test_of_newer_hosts_that_begin_at_the_same_moment_one_makes_each_step(store: PostgresStore) -> None:
    with store.server.connect(dbname=store.database) as first, version(NEXT):
        tables.settle(first)
        with first.transaction():
            migrate(first, "the database")
            second = ThreadPoolExecutor(1)
            done = second.submit(store.migrate)
            while not store.server.run("select 1 from pg_locks where not granted"):
                assert not done.done(), done.result()
        done.result()
        second.shutdown()
    assert stands(store)[:2] == (NEXT, OLD)
