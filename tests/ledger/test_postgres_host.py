"""Which host has a ledger in PostgreSQL, and what makes a host stop: nothing is assumed after an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from keepai.ledger.base import Tx
from keepai.ledger.postgres.connection import shown
from keepai.ledger.postgres.store import PostgresLedger
from keepai.model.errors import Conflict, LedgerStopped, LedgerUnusable
from tests import postgres
from tests.ledger import rows
from tests.ledger.stores import PostgresStore, Raw

CHILD = """
import sys
from keepai.ledger.postgres.store import PostgresLedger
ledger = PostgresLedger(sys.argv[1])
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


def silent(tables: Raw, seconds: int = 20) -> None:
    """Nobody has heard the host for so long."""
    tables.execute("update heartbeat set beat_at = beat_at - ?", (seconds * 1000,))


def child(store: PostgresStore) -> subprocess.Popen[str]:
    """A host in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


async def test_a_second_host_is_refused_with_the_first_ones_name(ledger: PostgresLedger, store: PostgresStore) -> None:
    with pytest.raises(LedgerUnusable, match=f"in use by host {ledger.host} .process {os.getpid()} on") as refused:
        PostgresLedger(store.url)
    assert postgres.PASSWORD not in refused.value.message
    await ledger.write(rows.deploy)


async def test_a_host_that_let_go_in_order_keeps_nobody_out(store: PostgresStore) -> None:
    first = PostgresLedger(store.url)
    await first.close()
    second = PostgresLedger(store.url)
    assert second.epoch == first.epoch + 1
    await second.close()


async def test_a_silent_host_is_replaced_and_whatever_it_still_writes_is_refused(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    with store.raw() as tables:
        silent(tables)
    second = PostgresLedger(store.url)
    with pytest.raises(LedgerStopped, match=f"Another host .{second.host}"):
        await ledger.write(rows.deploy)
    with pytest.raises(LedgerStopped):
        ledger.check()
    await second.write(rows.deploy)
    assert len(await second.all("workflow_all")) == 1
    await second.close()


async def test_a_silent_host_with_a_call_on_its_way_is_not_taken_for_dead(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(in_flight)
    with store.raw() as tables:
        silent(tables)
        with pytest.raises(LedgerUnusable, match="is not known to be dead: a call of it"):
            PostgresLedger(store.url)
    await ledger.write(rows.deploy, "still at work")


async def test_a_killed_host_is_replaced_at_once_on_its_machine_though_a_call_was_on_its_way(
    store: PostgresStore,
) -> None:
    before = PostgresLedger(store.url)
    await before.write(in_flight)
    await before.close()
    with child(store) as process:
        with pytest.raises(LedgerUnusable, match="in use by"):
            PostgresLedger(store.url)
        process.send_signal(signal.SIGKILL)
    after = PostgresLedger(store.url)
    assert after.epoch == before.epoch + 2
    await after.close()


async def test_a_host_whose_lock_its_child_still_holds_is_not_dead(store: PostgresStore) -> None:
    first = PostgresLedger(store.url)
    await first.write(in_flight)
    assert first.lock_fd is not None
    sleeper = sleeping_with(first.lock_fd)
    await first.close(keep_lock=True)
    os.close(first.lock_fd)
    with store.raw() as tables:
        silent(tables)
        with pytest.raises(LedgerUnusable, match="may be on its way"):
            PostgresLedger(store.url)
    sleeper.kill()
    sleeper.wait(10)
    second = PostgresLedger(store.url)
    await second.close()


@pytest.mark.parametrize("act", ["write", "all", "look"])
async def test_a_connection_that_the_server_ends_stops_the_host(store: PostgresStore, act: str) -> None:
    ledger = PostgresLedger(store.url)
    await ledger.write(rows.deploy)
    assert await ledger.look(len_of_all) == 1  # the connection that looks is open
    assert ended(store)[0][0] >= 2
    with pytest.raises(LedgerStopped, match="Until then nothing starts and nothing is sent"):
        await {"write": partial(ledger.write, rows.deploy, "other"), "all": partial(ledger.all, "workflow_all"),
               "look": partial(ledger.look, len_of_all)}[act]()
    with pytest.raises(LedgerStopped):
        await ledger.write(rows.deploy, "third")
    await ledger.close()
    again = PostgresLedger(store.url)
    assert [row["name"] for row in await again.all("workflow_all")] == ["demo"]
    await again.close()


def len_of_all(read: Any) -> int:
    return len(read.all("workflow_all"))


def ended(store: PostgresStore) -> list[Any]:
    """The server ends every connection of Keep."""
    return store.server.run(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'keep'")


async def test_something_else_that_writes_to_the_account_stops_the_host(
    ledger: PostgresLedger, store: PostgresStore,
) -> None:
    await ledger.write(rows.deploy)
    with store.raw() as tables:
        tables.execute("insert into account (seq, at, told, chain) select seq + 1, at, told, chain from account "
                       "order by seq desc limit 1")
    with pytest.raises(LedgerStopped, match="Something else has written to the account"):
        await ledger.write(rows.deploy, "other")


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
