"""Several hosts on one ledger: each workflow is run by one of them, and nothing happens twice when that one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, closing
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from keepai import Connector, Keep
from keepai.doors.cli.narrator import Narrator
from keepai.engine import host
from keepai.engine.host_parts import Parts
from keepai.ledger.account import Head
from keepai.ledger.checks import check
from keepai.ledger.opening import open_reader
from keepai.ledger.postgres import lease
from keepai.ledger.postgres.store import PostgresLedger
from keepai.ledger.transitions import workflows
from keepai.model.errors import LedgerStopped
from keepai.reading.look import open_look
from tests.harness import POLL, Story, consumer, producer, take_first, workflow
from tests.ledger.stores import PostgresStore


def script(name: str, mutate: str) -> str:
    """One workflow of several."""
    return workflow(
        name=name, producers={"poll": producer(POLL)},
        consumers={"take": consumer(take_first(), mutate=mutate)},
    )


def appends(name: str) -> str:
    """Writes what comes in into a sheet of its own."""
    row = f'{{ spreadsheetId: "{name}", values: [prepared.data.messageId] }}'
    return script(name, f"await ctx.sheets.appendRow({row});")


@pytest.fixture
def store() -> PostgresStore:
    made = PostgresStore()
    made.make()
    return made


@pytest.fixture
async def story(store: PostgresStore, tmp_path: Path) -> AsyncIterator[Story]:
    made = Story(tmp_path)
    made.path = store.url  # type: ignore[assignment]
    async with made:
        yield made
    with closing(open_reader(store.url)) as read:
        assert [each.said for each in check(read) if not each.sound] == []


@pytest.fixture
async def second(story: Story) -> AsyncIterator[Keep]:
    """Another host on the same ledger, before the same world."""
    connectors = [*story.world.connectors(), story.feed]
    async with Keep(story.path, connectors=connectors, policy=story.policy, clock=story.clock) as keep:
        yield keep


def silent(story: Story, store: PostgresStore) -> None:
    """Nobody has heard the first host for longer than a lease."""
    with store.raw() as tables:
        epoch = story.keep.parts.ledger.epoch
        tables.execute("update heartbeat set beat_at = beat_at - 20000 where epoch = ?", (epoch,))


def rows(story: Story, sheet: str) -> list[str]:
    return [row["values"][0] for row in story.world.rows.get(sheet, [])]


async def test_two_hosts_run_a_part_of_the_workflows_each_and_all_is_done_once(story: Story, second: Keep) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        await story.deploy(appends(name))
    story.feed.put("1")
    await story.run()
    await story.keep.run_until_idle()  # what rests is handed over
    story.feed.put("2")
    story.clock.advance(minutes=10)
    await second.run_until_idle()
    assert sorted(len(rows(story, name)) for name in names) == [1, 1, 2, 2]
    await story.keep.run_until_idle()
    assert [rows(story, name) for name in names] == [["1", "2"]] * 4
    hosts = {run.host for wf in await second.workflows() for run in await second.runs(wf.id)}
    assert hosts == {story.keep.parts.ledger.host, second.parts.ledger.host}


async def test_a_host_that_joins_takes_nothing_from_one_that_is_at_work(story: Story, second: Keep) -> None:
    await story.deploy(appends("a"))
    story.feed.put("1")
    await second.run_until_idle()
    assert rows(story, "a") == []
    await story.run()
    assert rows(story, "a") == ["1"]


async def test_each_host_reports_what_it_did_and_what_comes_of_a_run_whose_host_is_gone(
    story: Story, second: Keep,
) -> None:
    first, logs = story.keep, (Narrator(), Narrator())
    names = [keep.parts.ledger.host for keep in (first, second)]

    def told(number: int) -> list[str]:
        with open_look(story.path, second.parts.policy) as look:
            return [f"{line.kind} {line.text}" for line in logs[number].news(look, names[number])]

    story.world.on("sheets.appendRow").lose_answer()
    story.world.on_reconcile("sheets.appendRow").retry(after=7 * 3600, times=None)
    await story.deploy(appends("a"))
    story.feed.put("1")
    assert told(1) == []
    await story.run()
    assert "unknown whether it happened" in " ".join(told(0))
    await first.close()
    await second.run_until_idle()  # it has the workflow from now on
    assert told(1) == [], "the first one has reported that"
    for _ in range(4):
        story.clock.advance(hours=7)
        await second.run_until_idle()
    assert "needs_you paused:reconciliation" in " ".join(told(1))
    await story.open()


@pytest.mark.usefixtures("at_work")
async def test_a_host_that_takes_another_place_reports_what_it_did_before(
    story: Story, second: Keep, store: PostgresStore,
) -> None:
    narrator, ledger = Narrator(), story.keep.parts.ledger

    def told() -> list[str]:
        with open_look(story.path, second.parts.policy) as look:
            return [line.text for line in narrator.news(look, ledger.host)]

    wf, before = await story.deploy(appends("a")), ledger.host
    told()  # what was before
    story.feed.put("1")
    await story.keep.run_now(wf)
    await until(lambda: rows(story, "a"))

    async def committed() -> bool:
        return [run.status for run in await second.runs(wf)][-1] == "committed"

    await until(committed)
    silent(story, store)
    await until(lambda: ledger.host != before)
    assert "committed" in told()


async def test_the_work_of_a_host_that_ends_in_order_goes_on_elsewhere(story: Story, second: Keep) -> None:
    await story.deploy(appends("a"))
    story.feed.put("1")
    await story.keep.close()
    await second.run_until_idle()
    assert rows(story, "a") == ["1"]
    await story.open()


@pytest.fixture
async def at_work(story: Story, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The first host serves, and notices at once what becomes of it."""
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    monkeypatch.setattr(host, "WATCH_S", 0.02)
    serving = asyncio.ensure_future(story.keep.serve())
    yield
    story.world.release()
    await story.keep.host.close(1)
    await serving


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what other tasks and threads do."""
    async with asyncio.timeout(30):
        while not (await found if isawaitable(found := is_so()) else found):  # noqa: ASYNC110 -- threads among them
            await asyncio.sleep(0.02)


async def in_the_midst_of_a_call(story: Story, source: str, sent: Callable[[], object]) -> str:
    """The first host, which serves, has sent something and waits for the answer."""
    wf = await story.deploy(source)
    story.feed.put("1")
    await story.keep.run_now(wf)
    await until(sent)
    return wf


@pytest.mark.usefixtures("at_work")
async def test_a_call_of_a_host_that_was_cut_off_is_not_sent_again_while_it_may_still_happen(
    story: Story, second: Keep, store: PostgresStore,
) -> None:
    story.world.on("sheets.appendRow").hang(stubborn=True, applied=True)
    story.world.on_reconcile("sheets.appendRow").not_found(times=2)  # it shows late
    wf = await in_the_midst_of_a_call(story, appends("a"), lambda: story.world.count("sheets.appendRow"))
    sender = story.keep.parts.ledger.host
    silent(story, store)
    await second.run_until_idle()
    for _ in range(4):
        story.clock.advance(minutes=10)
        await second.run_until_idle()
    assert story.world.count("sheets.appendRow") == 1
    [question] = await second.needs_you(wf)
    assert f"keep host dead {sender}" in str(question.facts["may_arrive_until"])
    [mutation] = await second.mutations(wf)
    assert (mutation.status, mutation.closed_at) == ("indeterminate", None)
    story.world.release()  # the host that sent it says so, from another place

    async def is_applied() -> bool:
        await second.run_until_idle()
        return [each.status for each in await second.mutations(wf)] == ["applied"]

    await until(is_applied)
    assert (await second.needs_you(wf), rows(story, "a")) == ([], ["1"])


@pytest.mark.usefixtures("at_work")
async def test_a_call_that_ends_without_an_effect_is_made_again_by_the_host_that_took_over(
    story: Story, second: Keep, store: PostgresStore,
) -> None:
    story.world.on("sheets.appendRow").hang()  # it ends when it is told to, and nothing has happened
    wf = await in_the_midst_of_a_call(story, appends("a"), lambda: story.world.count("sheets.appendRow"))
    silent(story, store)
    await second.run_until_idle()

    async def is_sent_again() -> list[str]:
        story.clock.advance(minutes=2)
        await second.run_until_idle()
        return rows(story, "a")

    await until(is_sent_again)
    assert rows(story, "a") == ["1"]
    assert [each.status for each in await second.mutations(wf)] == ["failed", "applied"]
    assert await second.needs_you(wf) == []


@pytest.mark.usefixtures("at_work")
async def test_a_person_who_says_that_a_host_is_dead_lets_its_call_be_looked_up(
    story: Story, second: Keep, store: PostgresStore,
) -> None:
    story.world.on("sheets.appendRow").hang(stubborn=True, applied=True)
    story.world.on_reconcile("sheets.appendRow").not_found(times=2)  # it shows late
    wf = await in_the_midst_of_a_call(story, appends("a"), lambda: story.world.count("sheets.appendRow"))
    sender = story.keep.parts.ledger.host
    silent(story, store)
    await second.run_until_idle()
    for _ in range(4):
        story.clock.advance(minutes=10)
        await second.run_until_idle()
    assert [each.kind for each in await second.needs_you(wf)] == ["unknown_outcome"]
    await second.host_dead(sender)
    await second.run_until_idle()
    assert [each.status for each in await second.mutations(wf)] == ["applied"]
    assert (await second.needs_you(wf), rows(story, "a")) == ([], ["1"])


@pytest.mark.usefixtures("at_work")
async def test_a_host_whose_connections_are_cut_goes_on_by_itself(story: Story, store: PostgresStore) -> None:
    await story.deploy(appends("a"))
    story.feed.put("1")
    await until(lambda: rows(story, "a"))
    before = story.keep.parts.ledger.host
    store.server.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'keep'")
    await until(lambda: story.keep.parts.ledger.host != before)
    story.feed.put("2")
    story.clock.advance(minutes=10)
    story.keep.host.wake()
    await until(lambda: rows(story, "a") == ["1", "2"])


@pytest.mark.usefixtures("at_work")
async def test_what_a_person_does_at_another_host_is_seen_at_once_by_the_one_that_runs_it(
    story: Story, second: Keep,
) -> None:
    wf = await story.deploy(appends("a"), grants={"feed.list": "allow", "sheets.appendRow": "ask"})
    story.feed.put("1")
    await story.keep.run_now(wf)
    await until(lambda: second.needs_you(wf))
    [question] = await second.needs_you(wf)
    await second.approve(question.id)
    await until(lambda: rows(story, "a") == ["1"])


@pytest.mark.parametrize("at_work", [True, False], ids=["it runs the workflow", "it takes it over"])
async def test_what_was_lost_is_looked_up_too_by_a_host_that_was_told_of_nothing_that_is_lost(
    story: Story, store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_work: bool,
) -> None:
    def be(machine: str) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / machine))

    def connectors() -> list[Connector]:
        return [*story.world.connectors(), story.feed]

    await story.deploy(appends("a"))
    await story.keep.close()
    backup = store.copied(tmp_path)
    be("one machine")
    await story.open()
    story.feed.put("lost")
    await story.run()
    await story.keep.close()
    store.become(backup)
    be("another machine")
    async with Keep(story.path, connectors=connectors(), clock=story.clock) as other:
        if at_work:
            story.feed.items = []
            await other.run_until_idle()
            story.feed.put("lost")
        be("one machine")
        async with Keep(story.path, connectors=connectors(), clock=story.clock, accept_older=True):
            pass  # a person goes on with it
        story.clock.advance(minutes=10)
        await other.run_until_idle()
        assert rows(story, "a") == ["lost"]
        assert await other.needs_you() == []
    await story.open()


@pytest.mark.usefixtures("at_work")
async def test_what_comes_up_while_hosts_share_out_the_work_is_not_forgotten(
    story: Story, store: PostgresStore,
) -> None:
    wf = await story.deploy(appends("a"))
    story.feed.put("1")
    await until(lambda: rows(story, "a"))
    with store.raw() as tables:
        await until(lambda: not story.keep.host._lanes)
        story.feed.put("2")
        await story.keep.parts.ledger.write(workflows.run_now, wf, "ann")  # the host does not know of it yet
        tables.execute("begin")
        tables.execute("select from ledger for update")  # the next share waits for this
        await until(lambda: story.keep.host._handing_over)
        story.keep.host.wake(wf)
        await asyncio.sleep(0.1)  # it looks, and must not begin now
        tables.execute("commit")
    await until(lambda: rows(story, "a") == ["1", "2"])


async def test_who_stops_waiting_while_hosts_share_out_the_work_loses_no_workflow(
    story: Story, second: Keep, store: PostgresStore,
) -> None:
    await story.deploy(appends("a"))
    story.feed.put("1")
    await story.keep.close()
    with store.raw() as tables:
        tables.execute("begin")
        tables.execute("select from ledger for update")
        waits = asyncio.ensure_future(second.run_until_idle())
        await asyncio.sleep(0.05)
        waits.cancel()
        tables.execute("commit")
    with pytest.raises(asyncio.CancelledError):
        await waits
    await second.run_until_idle()
    assert rows(story, "a") == ["1"]
    await story.open()


async def test_a_workflow_that_cannot_be_taken_over_holds_up_no_other(
    story: Story, second: Keep, store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
    good, bad = await story.deploy(appends("a")), await story.deploy(appends("b"))
    story.feed.put("1")
    await story.keep.close()

    async def recover(parts: Parts, claimed: Collection[str]) -> None:
        if bad in claimed:
            raise ValueError("a manifest of a newer Keep")
        await as_it_is(parts, claimed)

    as_it_is = host.recover
    monkeypatch.setattr(host, "recover", recover)
    await second.run_until_idle()
    assert (rows(story, "a"), rows(story, "b")) == (["1"], [])
    assert any(f"could not take over {bad}." in each for each in told)
    assert not any(f"could not take over {good}." in each for each in told)
    monkeypatch.setattr(host, "recover", as_it_is)
    await second.run_until_idle()
    assert rows(story, "b") == ["1"]
    await story.open()


@pytest.mark.usefixtures("at_work")
async def test_a_host_that_misses_what_it_had_acknowledged_rests_and_says_so_once(
    story: Story, store: PostgresStore, caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = story.keep.parts.ledger
    assert isinstance(ledger, PostgresLedger)
    place = ledger._place
    ledger._mark.tell(place._ledger, place.host, place.epoch, Head(1_000, bytes(32)), story.clock.now_ms())
    store.server.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'keep'")
    await until(ledger.stopped)
    await asyncio.sleep(0.2)  # if it does not rest, it says thousands of lines in this time
    assert "older than it was" in str(ledger.stopped())
    assert len(caplog.records) < 10


@pytest.mark.usefixtures("at_work")
async def test_what_was_claimed_from_a_place_that_is_lost_at_once_is_not_run_from_the_next(
    story: Story, store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("a", "b"):
        await story.deploy(appends(name))
    ledger = story.keep.parts.ledger
    assert isinstance(ledger, PostgresLedger)
    before, as_it_is = ledger.host, host.recover
    async with AsyncExitStack() as others:
        async def recover(parts: Parts, claimed: Collection[str]) -> None:
            monkeypatch.setattr(host, "recover", as_it_is)
            assert len(claimed) == 2
            connectors = [*story.world.connectors(), story.feed]
            await others.enter_async_context(
                Keep(story.path, connectors=connectors, policy=story.policy, clock=story.clock))
            raise ledger._place.lose(LedgerStopped("lost again"))

        monkeypatch.setattr(host, "recover", recover)
        store.server.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'keep'")
        await until(lambda: ledger.host != before and ledger.lost() is None and len(story.keep.host._own) > 0)
        assert story.keep.host._own == await ledger.own()
        assert len(story.keep.host._own) == 1


@pytest.mark.usefixtures("at_work")
async def test_what_the_ledger_says_is_what_a_host_runs_whatever_it_believed(
    story: Story, store: PostgresStore,
) -> None:
    wf = await story.deploy(appends("a"))
    with store.raw() as tables:
        tables.execute("delete from owner")  # as if an answer of the ledger had been lost
    await story.keep.host.join()
    assert story.keep.host._own == {wf}
    story.keep.host._own.add("wf_000000000000")
    await story.keep.host.join()
    assert story.keep.host._own == {wf}
