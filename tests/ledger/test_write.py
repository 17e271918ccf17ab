"""Writing: a verb is whole or nothing, alone or in a group, and readers see only what is committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keepai.ledger.base import Ledger, Tx
from keepai.ledger.opening import open_reader
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.sqlite.write_ahead_log import Log
from keepai.ledger.transitions import mutations, workflows
from keepai.model import crash_points
from keepai.model.errors import Conflict, Refused
from tests.ledger import rows
from tests.ledger.rows import raw
from tests.ledger.stores import Store


def note(tx: Tx, subject: object) -> str:
    workflows.note(tx, None, "test", str(subject), "ann", None)
    return str(subject)


def refuse(tx: Tx, subject: object, error: Exception) -> None:
    note(tx, subject)
    raise error


def clash(tx: Tx, subject: object, name: str) -> None:
    """Writes a row, then breaks a unique constraint."""
    note(tx, subject)
    tx.run("workflow_insert", workflow_id=tx.new_id("wf"), name=name, major=1, minor=0, now=tx.now)


def noted(where: Path | Store) -> list[str]:
    with raw(where) if isinstance(where, Path) else where.raw() as tables:
        return [row[0] for row in tables.execute("select subject from action where act = 'test' order by seq")]


@pytest.mark.parametrize("crew", [0, 1, 50])
async def test_a_refused_verb_is_undone_and_the_others_of_its_group_stand(
    any_ledger: Ledger, store: Store, crew: int,
) -> None:
    ledger = any_ledger
    await ledger.write(rows.deploy, "taken")
    acts = []
    for number in range(50):
        if number % 5 == 1:
            acts.append(ledger.write(refuse, number, Refused("No."), barrier=True))
        elif number % 5 == 2:
            acts.append(ledger.write(clash, number, "taken", barrier=number % 2 == 0))
        elif number % 5 == 3:
            acts.append(ledger.write(refuse, number, ValueError("odd"), barrier=False))
        else:
            acts.append(ledger.write(note, number, barrier=number % 2 == 0))
    with rows.under_way(ledger, crew):
        answers = await asyncio.gather(*acts, return_exceptions=True)
    kinds = {1: Refused, 2: Conflict, 3: ValueError}
    for number, answer in enumerate(answers):
        assert isinstance(answer, kinds[number % 5]) if number % 5 in kinds else answer == str(number)
    assert sorted(map(int, noted(store))) == [n for n in range(50) if n % 5 not in kinds]
    assert ledger.stopped() is None


async def test_a_group_of_refusals_writes_nothing(any_ledger: Ledger, store: Store) -> None:
    with rows.under_way(any_ledger, 4):
        answers = await asyncio.gather(
            *(any_ledger.write(refuse, n, Refused("No."), barrier=True) for n in range(4)), return_exceptions=True,
        )
    assert [type(answer) for answer in answers] == [Refused] * 4
    assert noted(store) == []
    assert await any_ledger.write(note, "after") == "after"


async def test_a_group_commits_in_the_order_in_which_it_was_asked(any_ledger: Ledger, store: Store) -> None:
    with rows.under_way(any_ledger, 30):
        await asyncio.gather(*(any_ledger.write(note, number, barrier=True) for number in range(30)))
    assert noted(store) == [str(n) for n in range(30)]


async def test_a_verb_whose_caller_gave_up_is_still_whole(any_ledger: Ledger, store: Store) -> None:
    with rows.under_way(any_ledger, 3):
        first = asyncio.ensure_future(any_ledger.write(note, "left", barrier=True))
        await asyncio.sleep(0)
        first.cancel()
        others = (any_ledger.write(note, n, barrier=True) for n in range(2))
        await asyncio.gather(first, *others, return_exceptions=True)
    assert set(noted(store)) in ({"left", "0", "1"}, {"0", "1"})


async def test_plain_commits_do_not_wait_for_a_group_of_barriers(ledger: SqliteLedger) -> None:
    ledger._writer.crew = 64
    waiting = asyncio.ensure_future(ledger.write(note, "barrier", barrier=True))
    await asyncio.sleep(0)
    for number in range(3):
        assert await ledger.write(note, number) == str(number)
    assert await waiting == "barrier"


async def test_a_verb_sees_the_moment_the_host_and_its_own_writes(any_ledger: Ledger) -> None:
    def look(tx: Tx) -> tuple[object, ...]:
        workflow_id = rows.deploy(tx)
        return tx.now, tx.host, tx.epoch, tx.tick(workflow_id), tx.tick(workflow_id)

    now, host, epoch, *ticks = await any_ledger.write(look)
    assert (host, epoch) == (any_ledger.host, any_ledger.epoch)
    assert now == 1_767_603_600_000
    assert ticks[1] == ticks[0] + 1


async def test_readers_do_not_see_what_is_not_committed(any_ledger: Ledger, store: Store) -> None:
    with store.raw() as reader:
        def look(tx: Tx) -> tuple[int, int]:
            rows.deploy(tx)
            return len(tx.all("workflow_all")), len(list(reader.execute("select id from workflow")))

        assert await any_ledger.write(look) == (1, 0)
        assert len(list(reader.execute("select id from workflow"))) == 1


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A disk that answers when it is let: (it was asked, let it)."""
    asked, leave, sync = threading.Event(), threading.Event(), Log.sync

    def hold(log: Log) -> None:
        asked.set()
        assert leave.wait(10)
        sync(log)

    monkeypatch.setattr(Log, "sync", hold)
    yield asked, leave
    leave.set()


async def test_a_barrier_waits_for_the_disk_and_nobody_else_does(
    ledger: SqliteLedger, held: tuple[threading.Event, threading.Event],
) -> None:
    asked, leave = held
    ledger._writer.crew = 2
    barrier = asyncio.ensure_future(ledger.write(rows.deploy, barrier=True))
    await asyncio.to_thread(asked.wait, 10)
    async with asyncio.timeout(5):
        await ledger.write(note, "plain")
    assert len(ledger.reads.all("workflow_all")) == 1
    assert not barrier.done()
    leave.set()
    await barrier


async def test_a_barrier_that_comes_during_a_sync_is_committed_and_waits_for_the_next(
    ledger: SqliteLedger, path: Path, held: tuple[threading.Event, threading.Event], monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, leave = held
    ledger._writer.crew = 2
    first = asyncio.ensure_future(ledger.write(note, "first", barrier=True))
    await asyncio.to_thread(asked.wait, 10)
    second = asyncio.ensure_future(ledger.write(note, "second", barrier=True))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await ledger.write(note, "plain")
    assert noted(path) == ["first", "second", "plain"]
    syncs: list[bool] = []
    hold = Log.sync

    def sync(log: Log) -> None:
        syncs.append(second.done())
        hold(log)

    monkeypatch.setattr(Log, "sync", sync)
    leave.set()
    await asyncio.gather(first, second)
    assert syncs == [False], "one more sync, and before it nobody was told"


async def test_what_is_asked_for_while_a_commit_waits_for_the_disk_comes_after_it(
    ledger: SqliteLedger, path: Path,
) -> None:
    ledger._writer.crew = 2
    asked = [asyncio.ensure_future(ledger.write(note, n, barrier=n % 3 == 0)) for n in range(40)]
    for _ in range(5):
        await asyncio.sleep(0)
    asked += [asyncio.ensure_future(ledger.write(note, n, barrier=n % 3 == 0)) for n in range(40, 80)]
    await asyncio.gather(*asked)
    assert noted(path) == [str(n) for n in range(80)]


async def test_the_writer_does_not_wait_for_readers(ledger: SqliteLedger, path: Path) -> None:
    await ledger.write(rows.deploy)
    with raw(path) as reader:
        reader.execute("begin")
        assert reader.execute("select count(*) from workflow").fetchall() == [(1,)]
        async with asyncio.timeout(5):
            for number in range(20):
                await ledger.write(rows.deploy, f"more-{number}", barrier=True)
        assert reader.execute("select count(*) from workflow").fetchall() == [(1,)], "a reader's view stands still"
        reader.execute("rollback")


async def test_looking_cannot_write(ledger: SqliteLedger) -> None:
    with pytest.raises(Exception, match="attempt to write a readonly database"):
        ledger.reads.all("host_insert", id="x", machine="m", pid=1, now=1)
    assert ledger.stopped() is None


async def test_a_question_sees_one_moment_and_cannot_write(any_ledger: Ledger) -> None:
    def look(read: Any) -> int:
        first = len(read.all("workflow_all"))
        with closing(read.iterate("workflow_all")) as one_by_one:
            assert next(one_by_one)["name"] == "demo"
        return first

    await any_ledger.write(rows.deploy)
    assert await any_ledger.look(look) == 1
    with pytest.raises(Exception, match=r"read.?only"):
        await any_ledger.look(lambda read: read.all("host_insert", id="x", machine="m", pid=1, now=1))
    assert await any_ledger.look(look) == 1


async def test_all_that_is_read_inside_a_moment_is_as_it_was_when_the_first_of_it_was_read(
    any_ledger: Ledger, store: Store,
) -> None:
    with closing(open_reader(store.path)) as read:
        with read.moment():
            assert read.all("workflow_all") == []
            await any_ledger.write(rows.deploy, barrier=True)
            assert read.all("workflow_all") == []
            with closing(read.iterate("workflow_all")) as one_by_one:
                assert list(one_by_one) == []
        assert len(read.all("workflow_all")) == 1
        with read.moment(), closing(read.iterate("workflow_all")) as one_by_one:
            assert len(list(one_by_one)) == 1
            await any_ledger.write(rows.deploy, "another", barrier=True)
            assert len(read.all("workflow_all")) == 1


async def test_points_are_named_after_their_verbs(any_ledger: Ledger) -> None:
    heard: list[str] = []
    crash_points.listen(heard.append)
    try:
        await any_ledger.write(note, 1)
        with pytest.raises(Refused):
            await any_ledger.write(refuse, 1, Refused("No."))
    finally:
        crash_points.listen(None)
    assert heard == ["before:note", "after:note"], "a verb that was undone has no points"


async def test_a_run_its_mutation_and_what_comes_of_it_have_numbers_in_this_order(
    any_ledger: Ledger, store: Store,
) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1", "m2")
    run = await any_ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await any_ledger.write(rows.send, run)
    run = await any_ledger.write(mutations.apply, run, mutation, '{"rowId":1}', '{"status":"applied"}', [])
    await any_ledger.write(rows.finish, run, "o1")
    after = await any_ledger.write(rows.mutating, workflow_id, "m2")
    with store.raw() as tables:
        [(number,)] = tables.execute("select seq from mutation")
        [(event,)] = tables.execute("select seq from event where message_id = 'o1'")
    numbers = [run.seq, number, event, after.seq]
    assert numbers == sorted(set(numbers))
