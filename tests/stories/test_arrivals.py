"""What comes in to a connector is looked at at once, by the producers and routines that read it, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Keep, Policy, Transient, read
from keepai.connectors.webhook.inbox import Inbox
from keepai.engine import arrivals
from keepai.testing import ManualClock
from tests.connectors.test_webhook import SECRET, signed
from tests.harness import START, Story, consumer, producer, take_first, workflow
from tests.ledger.stores import PostgresStore
from tests.routines import routine

LOOK = "await ctx.bell.look({});"
OTHER = "await ctx.other.look({});"
TAKE = """
  for (const each of await ctx.bell.look({})) {
    const inputId = ctx.registerInput({ source: "bell", type: "ring", id: each, title: each });
    await ctx.publish("in", { messageId: each, inputId, payload: {} });
  }
"""
FOREVER_S = 60


class Bell(Connector):
    """An outside system that says when something came in."""

    input_types = ("ring",)

    def __init__(self, name: str = "bell") -> None:
        super().__init__(name=name)
        self.came, self.looks, self.looked = asyncio.Event(), dict[str, int](), asyncio.Condition()
        self.rings: list[str] = []
        self.fails = 0
        self.on_look: Callable[[], Any] = lambda: None
        self.listened = 0

    def ring(self, *ids: str) -> None:
        """Something comes in."""
        self.rings += ids
        self.came.set()

    async def arrivals(self) -> AsyncGenerator[None]:
        self.listened += 1
        if self.fails:
            self.fails -= 1
            raise Transient("The line is down.")
        while True:
            yield
            await self.came.wait()
            self.came.clear()

    @read
    async def look(self, params: dict[str, Any], call: Call) -> list[str]:
        """Everything that came in."""
        self.on_look()
        async with self.looked:
            self.looks[call.workflow_id] = self.looks.get(call.workflow_id, 0) + 1
            self.looked.notify_all()
        return list(self.rings)

    async def until(self, wf: str, looks: int) -> None:
        """Wait until a workflow has looked so often."""
        async with asyncio.timeout(FOREVER_S), self.looked:
            await self.looked.wait_for(lambda: self.looks.get(wf, 0) >= looks)


@asynccontextmanager
async def serving(story: Story) -> AsyncIterator[None]:
    """While a host serves."""
    task = asyncio.ensure_future(story.keep.serve())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def triggers(story: Story, wf: str, handler: str | None = None) -> list[str]:
    """Why each run began."""
    return [run.trigger for run in await story.runs(wf, handler)]


async def committed(story: Story, wf: str) -> None:
    """Wait until nothing of a workflow is under way."""
    async with asyncio.timeout(FOREVER_S):
        while any(run.status == "active" for run in await story.runs(wf)):  # noqa: ASYNC110 -- it is in the ledger
            await asyncio.sleep(0.001)


async def test_what_comes_in_is_looked_at_at_once_and_the_run_says_why(tmp_path: Path) -> None:
    bell = Bell()
    async with Story(tmp_path, connectors=[bell]) as story:
        wf = await story.deploy_and_run(workflow(
            producers={"poll": producer(TAKE)}, consumers={"take": consumer(take_first())}))
        async with serving(story):
            bell.ring("a")
            await bell.until(wf, 2)
            await committed(story, wf)
        assert (await triggers(story, wf, "poll")) == ["schedule", "arrival"]
        assert (await story.ids(wf, "in")) == ["a"]
        assert story.clock.now_ms() == (await story.runs(wf))[0].created_at, "no time went by"
        assert (await story.workflow(wf)).gaps == ()
        told = await story.keep.explain((await story.last(wf, "poll")).id)
        assert "it begins because a connector that it reads may have something new" in [line.why for line in told.story]


async def test_only_producers_and_routines_that_read_there_and_have_no_fixed_times_are_woken(tmp_path: Path) -> None:
    bell, other = Bell(), Bell("other")
    async with Story(tmp_path, connectors=[bell, other]) as story:
        wf = await story.deploy_and_run(workflow(
            producers={
                "poll": producer(LOOK), "elsewhere": producer(OTHER, publishes=[]),
                "nightly": producer(LOOK, publishes=[], cron="0 3 * * *"),
            },
            consumers={"take": consumer(LOOK + take_first())},
        ))
        works = await story.deploy_and_run(routine(LOOK, name="works"))
        before = len(await story.runs(wf))
        async with serving(story):
            bell.ring()
            await bell.until(wf, 2)
            await bell.until(works, 2)
            await committed(story, wf)
        assert [(run.handler, run.trigger) for run in (await story.runs(wf))[before:]] == [("poll", "arrival")]
        assert await triggers(story, works) == ["schedule", "arrival"]


async def test_a_run_at_once_moves_the_schedule_on_and_leaves_no_gap(tmp_path: Path) -> None:
    bell = Bell()
    async with Story(tmp_path, connectors=[bell]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(LOOK, interval="10m")}))
        await story.run(minutes=9)
        async with serving(story):
            await bell.until(wf, 2)
            await committed(story, wf)
        await story.run(minutes=9)
        assert bell.looks[wf] == 2, "ten minutes had not gone by since it looked last"
        await story.run(minutes=1)
        assert await triggers(story, wf) == ["schedule", "arrival", "schedule"]
        assert (await story.workflow(wf)).gaps == ()


async def test_a_look_shortly_before_a_fixed_time_makes_no_gap_and_a_night_that_was_missed_does(story: Story) -> None:
    """A cron's period is not the time from whenever it ran last to its next time."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer("", cron="0 9 * * *")}))
    await story.run(hours=23, minutes=59, seconds=50)
    await story.keep.run_now(wf)
    await story.run()
    await story.run(minutes=2)
    assert await triggers(story, wf) == ["run_now", "schedule"]
    assert (await story.workflow(wf)).gaps == ()
    await story.run(days=2)
    [gap] = (await story.workflow(wf)).gaps
    assert gap.until_at - gap.since_at == 2 * 86_400_000


async def test_what_comes_to_a_paused_workflow_is_looked_at_when_it_is_resumed(tmp_path: Path) -> None:
    bell = Bell()
    async with Story(tmp_path, connectors=[bell]) as story:
        paused = await story.deploy(workflow("paused", producers={"poll": producer(LOOK)}))
        awake = await story.deploy_and_run(workflow("awake", producers={"poll": producer(LOOK)}))
        await story.keep.pause(paused)
        async with serving(story):
            bell.ring()
            await bell.until(awake, 2)
            assert bell.looks[paused] == 1
            await story.keep.resume(paused)
            await bell.until(paused, 2)
            await committed(story, paused)
        assert await triggers(story, paused) == ["schedule", "arrival"]


async def test_what_a_person_wanted_stays_what_a_person_wanted(tmp_path: Path) -> None:
    bell = Bell()
    async with Story(tmp_path, connectors=[bell]) as story:
        paused = await story.deploy(workflow("paused", producers={"poll": producer(LOOK)}))
        awake = await story.deploy_and_run(workflow("awake", producers={"poll": producer(LOOK)}))
        await story.keep.run_now(paused)
        await story.keep.pause(paused)
        async with serving(story):
            bell.ring()
            await bell.until(awake, 2)
        await story.keep.resume(paused)
        await story.run()
        assert await triggers(story, paused) == ["schedule", "run_now"]


async def test_what_comes_while_a_run_is_under_way_brings_one_more_run(tmp_path: Path) -> None:
    bell = Bell()
    async with Story(tmp_path, connectors=[bell]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(LOOK)}))
        last = await story.deploy_and_run(workflow("last", producers={"poll": producer(LOOK)}))
        rung = False

        def ring_often() -> None:
            nonlocal rung
            if not rung:
                rung = True
                for _ in range(100):
                    bell.ring()

        bell.on_look = ring_often
        async with serving(story):
            bell.ring()
            await bell.until(wf, 3)
            await bell.until(last, 3)
            await committed(story, wf)
        assert await triggers(story, wf) == ["schedule", "arrival", "arrival"]


async def test_a_storm_of_arrivals_keeps_no_other_workflow_from_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "PAUSE_S", 0)
    bell, other = Bell(), Bell("other")
    policy = Policy(runs_at_once_max=1)
    async with Story(tmp_path, connectors=[bell, other], policy=policy) as story:
        stormy = await story.deploy_and_run(workflow("stormy", producers={"poll": producer(LOOK)}))
        bell.on_look = bell.ring  # every look brings the next
        async with serving(story):
            bell.ring()
            await bell.until(stormy, 20)
            quiet = await story.deploy(workflow("quiet", producers={"poll": producer(OTHER)}))
            begun = bell.looks[stormy]
            await other.until(quiet, 1)
            assert bell.looks[stormy] - begun < 20
            bell.on_look = lambda: None


async def test_a_connector_that_cannot_listen_is_listened_to_again_and_nothing_else_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(arrivals, "RETRY_S", 0.001)
    bell, other = Bell(), Bell("other")
    bell.fails = 3
    async with Story(tmp_path, connectors=[bell, other]) as story:
        wf = await story.deploy_and_run(workflow(
            producers={"poll": producer(LOOK), "elsewhere": producer(OTHER, publishes=[])}))
        async with serving(story):
            other.ring()
            await other.until(wf, 2)
            bell.ring()
            await bell.until(wf, 2)
        assert bell.listened == 4
    told = [each.getMessage() for each in caplog.records if "ctx.bell" in each.getMessage()]
    assert told == ["Keep cannot see at once what comes in to ctx.bell. Until it can, the schedule counts. "
                    "The line is down."]


async def test_what_was_queued_when_a_host_died_is_looked_at_by_the_next(tmp_path: Path) -> None:
    bell = Bell()
    async with Story(tmp_path, connectors=[bell]) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(LOOK)}))
        task = asyncio.ensure_future(story.keep.serve())
        bell.on_look = task.cancel
        bell.ring()
        await bell.until(wf, 2)
        await asyncio.gather(task, return_exceptions=True)
        bell.on_look = lambda: None
        await story.reopen()
        await story.run()
        assert bell.looks[wf] >= 2
        assert (await story.last(wf)).status == "committed"


async def test_a_storm_keeps_no_other_handler_of_the_same_workflow_from_its_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "PAUSE_S", 0)
    bell, other = Bell(), Bell("other")
    async with Story(tmp_path, connectors=[bell, other]) as story:
        wf = await story.deploy_and_run(workflow(producers={
            "poll": producer(LOOK), "elsewhere": producer(OTHER, publishes=[], interval="1h")}))
        bell.on_look = bell.ring
        async with serving(story):
            bell.ring()
            await bell.until(wf, 10)
            story.clock.advance(hours=1)
            await other.until(wf, 2)
            bell.on_look = lambda: None
        assert (await triggers(story, wf, "elsewhere")) == ["schedule", "schedule"]


async def test_a_delivery_that_comes_in_at_one_host_wakes_the_workflow_of_another(tmp_path: Path) -> None:
    """With a ledger in PostgreSQL, deliveries and signals reach the host that runs the workflow."""
    store = PostgresStore()
    store.make()
    here, there = (Inbox(name="shop", clock=ManualClock(START)) for _ in range(2))
    for each in (here, there):
        each.entrust({"secret": SECRET})
    take = """
  for (const each of await ctx.shop.list({})) {
    const inputId = ctx.registerInput({ source: "shop", type: "delivery", id: each.id, title: each.id });
    await ctx.publish("in", { messageId: each.id, inputId, payload: {} });
  }
"""
    story = Story(tmp_path, connectors=[here])
    story.path = store.url
    async with story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(take)}))
        async with Keep(store.url, connectors=[there], clock=story.clock) as second, serving(story):
            other = asyncio.ensure_future(second.serve())
            for id in ("d1", "d2"):  # each host looks once when it begins, which may find the first
                assert (await there.accept(signed(id, b"{}", story.clock), b"{}")).status == 202
                async with asyncio.timeout(FOREVER_S):
                    while id not in await story.ids(wf, "in"):  # noqa: ASYNC110 -- it is in the ledger
                        await asyncio.sleep(0.01)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
        runs = await story.runs(wf)
        assert runs[-1].trigger == "arrival"
        assert {run.host for run in runs} == {runs[0].host}


async def test_what_came_while_no_host_ran_is_looked_for_once_when_one_begins(tmp_path: Path) -> None:
    bell, other = Bell(), Bell("other")
    async with Story(tmp_path, connectors=[bell, other]) as story:
        wf = await story.deploy_and_run(workflow(
            producers={"poll": producer(LOOK), "elsewhere": producer(OTHER, publishes=[])}))
        await story.reopen()
        story.clock.advance(minutes=1)
        async with serving(story):
            await bell.until(wf, 2)
            await other.until(wf, 2)
            await committed(story, wf)
        assert await triggers(story, wf, "poll") == ["schedule", "arrival"], "four minutes before its time"
        async with serving(story):  # it begins to listen again, and nobody has slept meanwhile
            await committed(story, wf)
            other.ring()
            await other.until(wf, 3)
            await committed(story, wf)
        assert await triggers(story, wf, "poll") == ["schedule", "arrival"]


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_host_wakes_its_own_workflows_and_those_of_others_only_if_no_other_host_notices(
    tmp_path: Path, everywhere: bool,
) -> None:
    bell = Bell()
    bell.tells_all_hosts = everywhere
    async with Story(tmp_path, connectors=[bell]) as story:
        ids = [await story.deploy(workflow(name, producers={"poll": producer(LOOK)})) for name in ("own", "other")]
        await story.run(seconds=1)
        listening = asyncio.ensure_future(arrivals.listen(story.keep.parts, bell, lambda wf: wf == ids[0]))
        bell.ring()
        async with asyncio.timeout(FOREVER_S):
            queued = False
            while bell.came.is_set() or not queued:
                await asyncio.sleep(0.001)
                queued = (await story.rows("handler_due", workflow_id=ids[0]))[0]["queued"]
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await story.run()
        assert [len(await story.runs(wf)) for wf in ids] == [2, 2 if everywhere else 1]
