"""Which hosts have a place on a ledger in PostgreSQL, and what costs them that: nothing is assumed after an error."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from keepai.ledger.base import Share, Tx
from keepai.ledger.postgres import lease
from keepai.ledger.postgres.store import PostgresLedger
from keepai.ledger.rows import mutation_record
from keepai.ledger.transitions import mutations, runs, workflows
from keepai.ledger.transitions.mutations import Doubt, LateEvidence
from keepai.ledger.transitions.runs import Stop
from keepai.model.errors import Conflict, LedgerStopped, LedgerUnusable, Refused
from keepai.model.ledger_address import shown
from keepai.model.states import MutationStatus, Reason, Status, WorkflowStatus
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.ledger.stores import PostgresStore, Raw

CHILD = """
import asyncio, sys
from keepai.ledger.postgres.store import PostgresLedger
from tests.ledger.test_postgres_host import in_flight
ledger = PostgresLedger(sys.argv[1])
async def work():
    if sys.argv[2] == "True":
        await ledger.write(in_flight)
        await ledger.share(())
asyncio.run(work())
print(ledger.host, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store() -> PostgresStore:
    made = PostgresStore()
    made.make()
    return made


@pytest.fixture
async def ledger(store: PostgresStore) -> AsyncIterator[PostgresLedger]:
    opened = PostgresLedger(store.url)
    yield opened
    await opened.close()


def silent(tables: Raw, ledger: PostgresLedger, seconds: int = 20) -> None:
    """Nobody has heard the host for so long."""
    tables.execute("update heartbeat set beat_at = beat_at - ? where epoch = ?", (seconds * 1000, ledger.epoch))


def child(store: PostgresStore, *, in_flight: bool = False) -> subprocess.Popen[str]:
    """A host in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, store.url, str(in_flight)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("hst_")
    return process


def sleeping_with(fd: int) -> subprocess.Popen[bytes]:
    """The child process of a connector, which goes on when its host has ended."""
    return subprocess.Popen(["sleep", "60"], pass_fds=[fd])


def in_flight(tx: Tx, name: str = "demo") -> None:
    """A call is on its way."""
    workflow_id = rows.deploy(tx, name)
    rows.produce(tx, workflow_id, "m1")
    rows.send(tx, rows.mutating(tx, workflow_id, "m1"))


async def shares(ledger: PostgresLedger, *spare: str) -> Share:
    return await ledger.share(spare)


async def running(ledger: PostgresLedger) -> set[str]:
    """The workflows that a host runs."""
    return {row["workflow_id"] for row in await ledger.all("owner_of", epoch=ledger.epoch)}


async def test_hosts_have_about_as_many_workflows_each(ledger: PostgresLedger, store: PostgresStore) -> None:
    for name in "abcde":
        await ledger.write(rows.deploy, name)
    assert len((await shares(ledger)).claimed) == 5
    second = PostgresLedger(store.url)
    assert (await shares(second)).claimed == frozenset()
    own = sorted(await running(ledger))
    assert (await shares(ledger)).given == frozenset(), "it hands over only what rests"
    assert (await shares(ledger, *own[1:])).given == frozenset(own[1:3])
    assert (await shares(second)).claimed == frozenset(own[1:3])
    third = PostgresLedger(store.url)
    await shares(ledger, *own[3:])
    assert len((await shares(third)).claimed) == 1
    await second.close()
    assert len((await shares(third)).claimed | (await shares(ledger)).claimed) == 2
    await third.close()
    assert len(await running(ledger) | (await shares(ledger)).claimed) == 5


async def test_who_only_looks_and_acts_runs_no_workflow(ledger: PostgresLedger, store: PostgresStore) -> None:
    visitor = PostgresLedger(store.url, works=False)
    await visitor.write(rows.deploy)
    assert (await shares(visitor)).claimed == frozenset()
    assert len((await shares(ledger)).claimed) == 1
    await visitor.close()


async def test_the_host_that_runs_a_workflow_learns_of_what_others_change_in_it(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    workflow_id = await ledger.write(rows.deploy)
    await shares(ledger)
    assert (await shares(ledger)).touched == frozenset()
    visitor = PostgresLedger(store.url, works=False)
    await visitor.write(workflows.move, workflow_id, WorkflowStatus.PAUSED, "pause", "ann")
    await ledger.stirred()  # at once: it is told
    assert (await shares(ledger)).touched == {workflow_id}
    assert (await shares(ledger)).touched == frozenset()
    await visitor.close()


async def test_a_silent_host_loses_its_place_and_whatever_it_still_writes_is_refused(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    workflow_id = await ledger.write(rows.deploy)
    await shares(ledger)
    second = PostgresLedger(store.url)
    with store.raw() as tables:
        silent(tables, ledger)
    assert (await shares(second)).claimed == {workflow_id}
    with pytest.raises(LedgerStopped, match="has not heard this host for too long"):
        await ledger.write(rows.deploy, "other")
    with pytest.raises(LedgerStopped):
        ledger.check()
    assert len(await second.all("workflow_all")) == 1
    before, epoch = ledger.host, ledger.epoch
    await ledger.rejoin(())
    assert (ledger.host != before, ledger.epoch > second.epoch, ledger.was(epoch)) == (True, True, True)
    await ledger.write(rows.deploy, "other")
    await second.close()


async def test_a_host_that_comes_back_from_a_long_silence_does_not_get_its_place_back(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(rows.deploy)
    with store.raw() as tables:
        silent(tables, ledger)
        ledger._place._heard -= 4_000  # it is time to say that it lives
        while ledger.lost() is None:  # noqa: ASYNC110 -- a thread of the store knows it first
            await asyncio.sleep(0.01)
        assert list(tables.execute("select lost_at from heartbeat")) == [(None,)], "nobody else had to see it"


async def test_a_call_of_a_silent_host_is_not_taken_for_ended(ledger: PostgresLedger, store: PostgresStore) -> None:
    await ledger.write(in_flight)
    await shares(ledger)
    second = PostgresLedger(store.url)
    with store.raw() as tables:
        silent(tables, ledger)
    await shares(second)
    [call] = await second.all("mutation_of_epoch", epoch=ledger.epoch)
    assert await second.one("host_over", epoch=ledger.epoch) is None
    await second.write(mutations.close_dead)
    assert await second.all("mutation_of_epoch", epoch=ledger.epoch) == [call]
    await second.close()


async def test_a_killed_host_is_known_to_be_dead_at_once_on_its_machine(store: PostgresStore) -> None:
    second = PostgresLedger(store.url)
    with child(store, in_flight=True) as process:
        await shares(second)
        [(epoch,)] = [(row["epoch"],) for row in await second.all("heartbeat_all") if row["epoch"] != second.epoch]
        assert await running(second) == set()
        process.send_signal(signal.SIGKILL)
    assert len((await shares(second)).claimed) == 1
    assert await second.one("host_over", epoch=epoch) is not None
    assert await second.all("mutation_of_epoch", epoch=epoch) == [], "its call has ended with it"
    await second.close()


async def test_a_host_whose_lock_its_child_still_holds_is_not_dead(store: PostgresStore) -> None:
    first = PostgresLedger(store.url)
    await first.write(in_flight)
    await shares(first)
    assert first.lock_fd is not None
    sleeper = sleeping_with(first.lock_fd)
    await first.close(keep_lock=True)
    os.close(first.lock_fd)
    second = PostgresLedger(store.url)
    with store.raw() as tables:
        silent(tables, first)
    assert len((await shares(second)).claimed) == 1
    assert await second.one("host_over", epoch=first.epoch) is None
    sleeper.kill()
    sleeper.wait(10)
    await shares(second)
    assert await second.one("host_over", epoch=first.epoch) is not None
    await second.close()


async def test_a_person_may_say_that_a_silent_host_is_dead_and_not_of_one_that_lives(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(in_flight)
    await shares(ledger)
    second = PostgresLedger(store.url)
    with pytest.raises(Refused, match="is not dead: it was heard"):
        await second.write(lease.bury, ledger.host, "ann")
    with store.raw() as tables:
        silent(tables, ledger)
    await second.write(lease.bury, ledger.host, "ann")
    assert await second.all("mutation_of_epoch", epoch=ledger.epoch) == []
    share = await shares(second)
    assert len(share.claimed) == 1
    with pytest.raises(Refused, match="it has ended, or there never was one"):
        await second.write(lease.bury, ledger.host, "ann")
    with pytest.raises(LedgerStopped):
        await ledger.write(rows.deploy, "other")
    await second.close()


async def test_what_a_host_knows_of_its_call_reaches_the_one_that_runs_the_workflow_now(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(in_flight)
    await shares(ledger)
    [call] = await ledger.all("mutation_of_epoch", epoch=ledger.epoch)
    second = PostgresLedger(store.url)
    with store.raw() as tables:
        silent(tables, ledger)
    await shares(second)
    await second.write(taken_over, call["id"])
    await ledger.rejoin((call["id"],))
    it_happened = LateEvidence("1", True, "{}", '{"status":"applied"}')
    assert await ledger.write(mutations.close, call["id"], it_happened) is False
    assert [row["closed_at"] for row in await second.all("mutation_in_question")] == []
    share = await shares(second)
    assert share.touched == {call["workflow_id"]}
    row = await second.one("mutation_by_id", mutation_id=call["id"])
    assert row is not None
    assert (row["status"], row["closed_at"] is not None) == ("applied", True)
    assert (await shares(second)).touched == frozenset(), "it is told once"
    await second.close()


def taken_over(tx: Tx, mutation_id: str) -> None:
    """Do what a host does with a call of another that may be on its way."""
    row = tx.one("mutation_by_id", mutation_id=mutation_id)
    assert row is not None
    mutation = mutation_record(row)
    run = runs.adopt(tx, runs.get(tx, mutation.run_id))
    waits = Stop(Status.PAUSED, Reason.RECONCILIATION, '{"code":"outcome_unknown","message":"lost"}')
    mutations.doubt(tx, run, mutation, Doubt(MutationStatus.NEEDS_RECONCILE, waits), [])


async def test_of_the_calls_of_a_lost_place_only_those_under_way_stay_open(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(in_flight, "one")
    await ledger.write(in_flight, "two")
    calls, epoch = await ledger.all("mutation_of_epoch", epoch=ledger.epoch), ledger.epoch
    ended(store)
    await fails(ledger)
    await ledger.rejoin((calls[0]["id"],))
    assert await ledger.all("mutation_of_epoch", epoch=epoch) == calls[:1]
    assert await ledger.one("host_over", epoch=epoch) is None
    ended(store)
    await fails(ledger)
    await ledger.rejoin(())
    assert await ledger.all("mutation_of_epoch", epoch=epoch) == []
    assert await ledger.one("host_over", epoch=epoch) is not None


async def test_a_question_about_a_call_that_has_ended_is_looked_at_again(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(in_flight)
    await shares(ledger)
    [call] = await ledger.all("mutation_of_epoch", epoch=ledger.epoch)
    second = PostgresLedger(store.url)
    with store.raw() as tables:
        silent(tables, ledger)
    await shares(second)
    await second.write(taken_over, call["id"])
    await ledger.rejoin(())  # it knows that the call has ended
    assert (await shares(second)).touched == {call["workflow_id"]}
    await second.close()


async def test_what_is_known_of_a_call_waits_until_its_run_was_taken_over(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(in_flight)
    [call] = await ledger.all("mutation_of_epoch", epoch=ledger.epoch)
    ended(store)
    await fails(ledger)
    await ledger.rejoin((call["id"],))
    await shares(ledger)  # the workflow is its own again, and its run is still that of the lost place
    it_happened = LateEvidence("1", True, "{}", '{"status":"applied"}')
    assert await ledger.write(mutations.close, call["id"], it_happened) is False
    await shares(ledger)
    await ledger.write(taken_over, call["id"])
    await shares(ledger)
    row = await ledger.one("mutation_by_id", mutation_id=call["id"])
    assert row is not None
    assert row["status"] == "applied"


async def test_a_server_that_stands_still_holds_no_host_that_has_lost_its_place(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(rows.deploy)
    with store.raw() as tables:
        tables.execute("begin")
        tables.execute("select from ledger for update")  # nobody is answered
        waiting = asyncio.ensure_future(ledger.write(rows.deploy, "other"))
        await asyncio.sleep(0.05)
        ledger._place._heard -= 60_000
        with pytest.raises(LedgerStopped):
            ledger.check()
        with pytest.raises(LedgerStopped):
            await asyncio.wait_for(waiting, 5)  # and not the ten seconds for which it waits for a lock


async def fails(ledger: PostgresLedger) -> None:
    with pytest.raises(LedgerStopped):
        await ledger.write(rows.deploy, "never")


@pytest.mark.parametrize("act", ["write", "all", "look"])
async def test_a_connection_that_the_server_ends_costs_the_host_its_place(store: PostgresStore, act: str) -> None:
    ledger = PostgresLedger(store.url)
    await ledger.write(rows.deploy)
    assert await ledger.look(len_of_all) == 1  # the connection that looks is open
    assert ended(store)[0][0] >= 2
    with pytest.raises(LedgerStopped, match="writes nothing and sends nothing until it has another place"):
        await {"write": partial(ledger.write, rows.deploy, "other"), "all": partial(ledger.all, "workflow_all"),
               "look": partial(ledger.look, len_of_all)}[act]()
    await fails(ledger)
    assert ledger.stopped() is None
    await ledger.rejoin(())
    assert [row["name"] for row in await ledger.all("workflow_all")] == ["demo"]
    await ledger.close()


def len_of_all(read: Any) -> int:
    return len(read.all("workflow_all"))


def ended(store: PostgresStore) -> list[Any]:
    """The server ends every connection of Keep."""
    return store.server.run(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'keep'")


@pytest.mark.parametrize(("setting", "said"), [
    ("default_transaction_read_only=on", "read-only"), ("synchronous_commit=off", "synchronous_commit is off"),
    ("synchronous_commit=local", "synchronous_commit is local"),
])
def test_a_server_that_may_lose_what_it_acknowledged_is_refused(store: PostgresStore, setting: str, said: str) -> None:
    with pytest.raises(LedgerUnusable, match=said):
        PostgresLedger(f"{store.url}?options=-c%20{setting.replace('=', '%3D')}")


def test_a_server_without_fsync_is_refused(store: PostgresStore) -> None:
    fsync(store, "off")
    try:
        with pytest.raises(LedgerUnusable, match="fsync is off") as refused:
            PostgresLedger(store.url)
    finally:
        fsync(store, "on")
    assert "correct" not in refused.value.message


def fsync(store: PostgresStore, value: str) -> None:
    """Set it for all new connections."""
    store.server.run(f"alter system set fsync = {value}", "select pg_reload_conf()")
    until = time.monotonic() + 60
    while True:
        with store.server.connect() as connection:
            [(found,)] = connection.execute("show fsync")
        if found == value:
            return
        assert time.monotonic() < until
        time.sleep(0.01)


def test_nobody_at_the_address_is_said_in_words(store: PostgresStore) -> None:
    with pytest.raises(LedgerUnusable, match="Look at the server, then start again"):
        PostgresLedger("postgresql://nobody:secret@127.0.0.1:1/none")


def test_a_password_is_never_shown() -> None:
    assert shown("postgresql://ann:s3cret@db.example.com/books?sslmode=require&password=s3cret") == (
        "postgresql://ann@db.example.com/books?sslmode=require&password=…")


async def test_what_postgres_cannot_keep_is_refused_and_the_host_goes_on(ledger: PostgresLedger) -> None:
    with pytest.raises(Conflict):
        await ledger.write(rows.deploy, "a name with \0 in it")
    await ledger.write(rows.deploy)
    assert ledger.stopped() is None


async def test_what_was_wanted_from_a_lost_place_is_not_done_from_the_next(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    ended(store)
    await fails(ledger)
    rejoining = asyncio.ensure_future(ledger.rejoin(()))
    await asyncio.sleep(0)
    late = asyncio.ensure_future(ledger.write(rows.deploy, "late"))  # it comes while the next place is taken
    with pytest.raises(LedgerStopped):
        await late
    await rejoining
    assert await ledger.all("workflow_all") == []


async def test_who_asks_just_before_the_place_is_lost_is_told(ledger: PostgresLedger) -> None:
    asked = [asyncio.ensure_future(ledger.all("workflow_all")) for _ in range(3)]
    wanted = asyncio.ensure_future(ledger.write(rows.deploy))
    await asyncio.sleep(0)  # they wait for their turn
    ledger._place.lose(LedgerStopped("Others run its workflows."))
    async with asyncio.timeout(20):
        told = await asyncio.gather(*asked, wanted, return_exceptions=True)
    assert [type(each) for each in told] == [LedgerStopped] * 4


@pytest.mark.parametrize("turns", range(4))
def test_a_ledger_whose_loop_has_ended_is_closed_in_another(store: PostgresStore, turns: int) -> None:
    ledger = PostgresLedger(store.url)

    async def cut_off() -> None:
        asked = asyncio.create_task(ledger.all("workflow_all"))
        wanted = asyncio.create_task(ledger.write(rows.deploy))
        for _ in range(turns):  # nothing has begun, or the server is yet to answer
            await asyncio.sleep(0)
        assert not asked.done() or not wanted.done()

    async def close() -> None:
        async with asyncio.timeout(20):
            await ledger.close()

    asyncio.run(cut_off())
    asyncio.run(close())


async def test_hosts_of_two_ledgers_may_have_the_same_id(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.model.clock.os.urandom", bytes)
    other = PostgresStore()
    other.make()
    one, two = PostgresLedger(store.url, ManualClock()), PostgresLedger(other.url, ManualClock())
    assert one.host == two.host
    await two.close()
    one.check()
    await one.close()


async def test_verbs_that_wait_share_a_transaction_and_one_that_is_refused_hurts_no_other(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    with store.raw() as tables:
        tables.execute("begin")
        tables.execute("select from ledger for update")
        first = asyncio.ensure_future(ledger.write(rows.deploy, "first"))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(ledger.write(rows.deploy, name)) for name in "abcdefgh"]
        await asyncio.sleep(0)
        others[2].cancel()  # nobody waits for it any more
        await asyncio.sleep(0)
        tables.execute("commit")
        await asyncio.gather(first, *others, return_exceptions=True)
        assert sorted(row["name"] for row in await ledger.all("workflow_all")) == sorted([*"abdefgh", "first"])
        [(entries,)] = tables.execute("select count(*) from account")
        assert entries <= 2
    done = await asyncio.gather(*(ledger.write(rows.deploy, name) for name in "ijai"), return_exceptions=True)
    assert [isinstance(each, Conflict) for each in done] == [False, False, True, True]
    assert len(await ledger.all("workflow_all")) == 10
