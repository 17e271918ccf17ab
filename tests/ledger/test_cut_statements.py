"""A connection that is lost anywhere in a transaction: nothing is assumed, and what the server has is what goes on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepai.ledger.checks import check
from keepai.ledger.postgres.store import PostgresLedger
from keepai.model.errors import LedgerStopped
from keepai.model.records import Run
from tests.ledger import rows
from tests.ledger.stores import PostgresStore, chosen, reads
from tests.postgres import StatementCutter

MANNERS = ("before", "torn", "after", "late", "silent")

#: More requests than the transaction has.
NEVER = 1_000


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    with chosen("postgres"):
        made = PostgresStore()
        made.make()
        yield made


@pytest.fixture
def cutter(store: PostgresStore) -> Iterator[StatementCutter]:
    with StatementCutter(store.server.port) as made:
        yield made


def through(cutter: StatementCutter, store: PostgresStore) -> str:
    """The address of the ledger by way of the cutter."""
    return re.sub(r":\d+/", f":{cutter.port}/", store.url)


async def about_to_send(url: str) -> tuple[PostgresLedger, Run]:
    """A host with a run that is about to send."""
    ledger = PostgresLedger(url)
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1")
    return ledger, await ledger.write(rows.mutating, workflow_id, "m1")


async def requests(store: PostgresStore, cutter: StatementCutter) -> int:
    """How many the transaction has that records what is about to be sent."""
    ledger, run = await about_to_send(through(cutter, store))
    cutter.cut(NEVER, "before")
    await ledger.write(rows.send, run)
    counted = cutter.counted()
    await ledger.close()
    return counted


async def cut(store: PostgresStore, cutter: StatementCutter, number: int, manner: str) -> bool:
    """Cut that request; whether the call is on record afterwards."""
    ledger, run = await about_to_send(through(cutter, store))
    cutter.cut(number, manner)
    sending = asyncio.create_task(ledger.write(rows.send, run))
    assert await asyncio.to_thread(cutter.met.wait, 30)
    if manner == "silent":  # who waits for an answer is not told that it was done
        assert not sending.done()
        cutter.release.set()
    with pytest.raises(LedgerStopped, match=r"was lost.*sends nothing until it has another place"):
        await sending
    for act in (ledger.write(rows.deploy, "other"), ledger.barrier()):
        with pytest.raises(LedgerStopped):
            await act
    with pytest.raises(LedgerStopped):
        ledger.check()
    cutter.release.set()
    assert await asyncio.to_thread(cutter.over.wait, 30)
    await ledger.close()
    again = PostgresLedger(store.url)
    found = await again.all("mutation_of_run", workflow_id=run.workflow_id, run_id=run.id)
    assert all(each.sound for each in check(reads(again)))
    if not found:
        await again.write(rows.send, run)
    await again.write(rows.deploy, "goes on")
    assert all(each.sound for each in check(reads(again)))
    await again.close()
    return bool(found)


@pytest.mark.parametrize("manner", MANNERS)
async def test_a_request_that_is_cut_undoes_its_transaction_and_a_commit_is_done_or_not(
    store: PostgresStore, cutter: StatementCutter, tmp_path: Path, manner: str,
) -> None:
    empty = store.copied(tmp_path)
    last = await requests(store, cutter)
    assert last > 1
    for number in range(1, last + 1):
        is_there = await cut(empty.copied(tmp_path), cutter, number, manner)
        assert is_there == (number == last and manner not in ("before", "torn")), number
