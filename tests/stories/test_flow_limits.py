"""Limits on what is sent: no window of a rate holds more than it may, over kills and restarts; concurrency holds over
workflows; nothing is sent outside of the hours. What waits is no failure, and says until when and by which rule.

With KEEP_FLOW_CALLS=10000 in the environment, the test over kills makes so many calls.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, FlowLimit, Keep, PermissionDenied, Policy, Transient, mutation
from keepai.engine.approval import intent_of
from keepai.engine.host import Host
from keepai.engine.next_step import Now
from keepai.engine.next_turn import rules_of
from keepai.ledger.rows import approval_record, run_record
from keepai.ledger.transitions import approvals
from keepai.model.clock import iso, parse_iso
from keepai.model.errors import Conflict
from keepai.model.flow_limits import RateWindow
from tests.harness import APPEND, SEND, Story, acting
from tests.ledger.stores import PostgresStore


def policy(limits: Mapping[str, FlowLimit], **more: Any) -> Policy:
    return Policy(limits=limits, **more)


def times(story: Story) -> list[int]:
    """When effects took place."""
    return [effect.at for effect in story.world.effects]


def fullest(times: Sequence[int], window: RateWindow) -> int:
    """The most that was sent in any stretch of time as long as a window."""
    ordered = sorted(times)
    return max((bisect_left(ordered, at + window.ms) - place for place, at in enumerate(ordered)), default=0)


async def until_next_turn(story: Story) -> int | None:
    """How long until something that waits can go on; None if nothing waits."""
    found = []
    for run in await story.rows("run_open_all"):
        if run["status"] == "paused":
            found += [step.due_at for step in (await story.keep.explain(run["id"])).moved_by if step.due_at is not None]
    return max(1, min(found) - story.clock.now_ms()) if found else None


async def to_next_turn(story: Story) -> bool:
    """Let time pass until something that waits can go on, and run; False if nothing waits."""
    ms = await until_next_turn(story)
    if ms is not None:
        await story.run(ms=ms)
    return ms is not None


async def sent(story: Story, count: int) -> None:
    """Let time pass until that much is sent."""
    for _ in range(40 * count):
        if len(story.world.effects) >= count:
            return
        assert await to_next_turn(story), "nothing waits, and not all is sent"
    raise AssertionError(f"only {len(story.world.effects)} of {count} are sent")


# -- rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["connectors.gmail", "workflows.story"])
async def test_a_rate_lets_so_many_through_at_once_and_the_next_when_the_first_is_that_long_ago(
    tmp_path: Path, place: str,
) -> None:
    async with Story(tmp_path, policy=policy({place: FlowLimit(rate="3/10s")})) as story:
        wf = await story.deploy_and_run(acting(), *"abcde")
        begun = story.clock.now_ms()
        assert len(story.world.effects) == 3
        run = await story.last(wf)
        assert (run.status, run.phase, run.failures, run.exhausted) == ("paused:limit", "mutating", 0, False)
        assert [m.status for m in await story.keep.mutations(wf)] == ["applied"] * 3, "none is recorded before its turn"
        await story.run(ms=9_999)
        assert len(story.world.effects) == 3
        await story.run(ms=1)
        assert len(story.world.effects) == 5
        assert times(story) == [begun] * 3 + [begun + 10_000] * 2
        assert run.id in {r.id for r in await story.runs(wf, "act")}
        assert {(r.status, r.attempt) for r in await story.runs(wf, "act")} == {("committed", 1)}, "no run is a retry"


#: How many calls the test over kills makes.
CALLS = int(os.environ.get("KEEP_FLOW_CALLS", "150"))


@pytest.mark.parametrize("limit", [
    FlowLimit(rate="10/s"), FlowLimit(rate="10/s", burst=3), FlowLimit(rate="10/s", burst=25), FlowLimit(rate="1/3s"),
], ids=str)
async def test_no_window_of_a_rate_holds_more_than_it_may_over_kills_and_restarts(
    tmp_path: Path, limit: FlowLimit,
) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": limit})) as story:
        names = [f"i{n}" for n in range(CALLS)]
        await story.deploy_and_run(acting(next=None), *names)
        for death in ("before:send", "after:send", "before:apply", "after:apply", "after:stop"):
            await story.crash(death, ms=await until_next_turn(story) or 0)
            await story.run()
            await story.reopen()
        await sent(story, len(names))
        assert sorted(e.params["to"] for e in story.world.effects) == sorted(names)
        rows = await story.keep.mutations((await story.keep.workflows())[0].id)
        for window in limit.windows:
            assert fullest(times(story), window) <= window.most
            assert fullest([row.first_sent_at for row in rows], window) <= window.most




async def test_what_waits_says_by_which_rule_and_until_when_and_asks_nobody(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        wf = await story.deploy_and_run(acting(), "a", "b")
        turn_at = iso(story.clock.now_ms() + 3_600_000)
        run = await story.last(wf)
        assert run.error is not None
        assert run.error.code == "held_back"
        why = await story.keep.explain(run.id)
        assert '[connectors.gmail] rate = "1/h"' in why.because
        assert turn_at in why.because
        assert (why.moved_by[0].kind, why.moved_by[0].due_at) == ("time", story.clock.now_ms() + 3_600_000)
        of_workflow = await story.keep.explain(wf)
        assert [step.kind for step in of_workflow.moved_by] == ["run", "time", "person"]
        assert await story.keep.needs_you() == []
        assert (await story.workflow(wf)).blocked_status == "paused:limit"


async def test_what_waits_can_be_given_up_and_what_was_sent_stays(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        wf = await story.deploy_and_run(acting(), "a", "b", "c")
        waiting = await story.last(wf)
        await story.keep.retry(waiting.id)
        await story.run()
        retried = await story.last(wf)
        assert (retried.retry_of, retried.status) == (waiting.id, "paused:limit"), "a person cannot jump a limit so"
        await story.keep.skip_run(retried.id)
        await story.run(hours=1)
        assert [e.params["to"] for e in story.world.effects] == ["a", "c"]
        assert (await story.event(wf, "in", "b")).status == "skipped"


async def test_a_limit_that_is_changed_or_removed_holds_what_waits_no_longer(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/d")})) as story:
        await story.deploy_and_run(acting(), "a", "b", "c")
        await story.keep.close()
        story.policy = policy({"connectors.gmail": FlowLimit(rate="2/d")})
        await story.open()
        await story.run()
        assert len(story.world.effects) == 2, "what was sent before the change counts"
        await story.keep.close()
        story.policy = Policy()
        await story.open()
        await story.run()
        assert len(story.world.effects) == 3


async def test_a_new_version_takes_over_what_waits_and_waits_too(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        wf = await story.deploy_and_run(acting(), "a", "b")
        await story.deploy(acting(SEND + "/* mended */"))
        await story.run()
        run = await story.last(wf)
        assert (run.version, run.status) == ("2.0", "paused:limit")
        await story.run(hours=1)
        assert [e.params["to"] for e in story.world.effects] == ["a", "b"]


async def test_a_resend_obeys_too_and_its_wait_is_no_retry(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        story.world.on("gmail.send").fail(Transient("busy"))
        wf = await story.deploy_and_run(acting(), "a")
        await story.run(seconds=30)  # the backoff is over, and the call that failed was sent all the same
        run = await story.last(wf)
        assert (run.status, run.failures, run.attempt) == ("paused:limit", 1, 2)
        await story.run(minutes=59, seconds=29)
        assert story.world.effects == []
        await story.run(seconds=1)
        assert len(story.world.effects) == 1


async def test_an_approved_call_obeys_too(tmp_path: Path) -> None:
    grants = {"feed.list": "allow", "gmail.send": "ask"}
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        wf = await story.deploy_and_run(acting(), "a", "b", grants=grants)
        await story.keep.approve((await story.question()).id)
        await story.run()
        asked = await story.question()
        await story.keep.approve(asked.id)
        await story.run()
        assert len(story.world.effects) == 1
        assert await story.keep.needs_you() == [], "it was answered"
        why = await story.keep.explain(asked.id)
        assert [(s.kind, s.due_at) for s in why.moved_by][:1] == [("time", story.clock.now_ms() + 3_600_000)]
        await story.run(hours=1)
        assert [e.params["to"] for e in story.world.effects] == ["a", "b"]
        assert (await story.last(wf, "act")).id == asked.run_id


async def test_an_approval_is_not_used_up_if_others_were_quicker(tmp_path: Path) -> None:
    # another host may have sent since this one looked whether the turn has come
    grants = {"feed.list": "allow", "gmail.send": "ask"}
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        story.feed.put("a")
        for name in ("one", "two"):
            await story.deploy(acting(name=name), grants=grants)
        await story.run()
        ledger, limits, left = story.keep.parts.ledger, rules_of(story.keep.parts, "", "gmail"), []
        for asked in await story.keep.needs_you():
            await story.keep.approve(asked.id)
            [row] = await story.rows("approval_by_id", approval_id=asked.id)
            [run] = await story.rows("run_by_id", run_id=row["run_id"])
            approved = approval_record(row)
            sending = ledger.write(approvals.send, run_record(run), approved, intent_of(approved), limits)
            left += await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(left[1], Conflict)
        assert not isinstance(left[0], Conflict)
        assert [row["status"] for row in await story.rows("approval_by_id", approval_id=asked.id)] == ["approved"]


async def test_a_routine_obeys_and_sends_each_thing_once(tmp_path: Path) -> None:
    source = """
export default Keep.workflow({ name: "story", topics: {}, routines: { all: { schedule: { interval: "1d" },
  handler: async (ctx) => {
    for (let n = 0; n < 7; n++) await ctx.withItem(`i${n}`, `Item ${n}`, async (ctx) => {
      if (!ctx.item.isDone) await ctx.gmail.send({ to: `i${n}` });
    });
  } } } });"""
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="3/m")})) as story:
        wf = await story.deploy_and_run(source)
        assert len(story.world.effects) == 3
        await sent(story, 7)
        assert [e.params["to"] for e in story.world.effects] == [f"i{n}" for n in range(7)]
        assert fullest(times(story), RateWindow(3, 60_000)) == 3
        assert [(r.status, r.attempt) for r in await story.runs(wf)] == [("committed", 1)]


async def test_a_rate_of_a_connection_counts_what_all_workflows_send_and_each_has_its_turn(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="2/10s")})) as story:
        for number in range(12):
            story.feed.put(f"{number:02d}")
        wfs = [await story.deploy(acting(name=name)) for name in ("one", "two", "three")]
        await story.run()
        await sent(story, 18)
        assert fullest(times(story), RateWindow(2, 10_000)) == 2
        assert min([len(await story.keep.mutations(wf)) for wf in wfs]) >= 4, "nobody is kept from its turn"


@pytest.mark.parametrize("back", [{"seconds": -30}, {"hours": -1}, {"days": -3650}], ids=str)
async def test_a_clock_set_back_makes_nothing_wait_for_longer_than_two_windows(
    tmp_path: Path, back: dict[str, float],
) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/m")})) as story:
        await story.deploy_and_run(acting(), "a", "b")
        story.clock.jump(**back)
        await story.run(minutes=2)
        assert len(story.world.effects) == 2


# -- one at a time, over workflows -------------------------------------------------------------------------


class Counted(Connector):
    """An outside system that counts how many calls it has at once."""

    name = "counted"

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.all = 0
        self.hold: asyncio.Event | None = None

    @mutation
    async def post(self, params: dict[str, Any], call: Call) -> dict[str, int]:
        """Take a while."""
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        for _ in range(20):
            await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        self.now -= 1
        return {}


async def until(holds: Callable[[], bool]) -> None:
    """Let others go on until something holds."""
    for _ in range(200_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


POST = "await ctx.counted.post({ to: prepared.data.messageId });"


@pytest.mark.parametrize("most", [1, 2])
async def test_a_connection_has_as_many_calls_under_way_as_it_may_over_all_workflows(tmp_path: Path, most: int) -> None:
    counted, limits = Counted(), {"connectors.counted": FlowLimit(concurrency=most)}
    async with Story(tmp_path, connectors=[counted], policy=policy(limits)) as story:
        for item in "abcd":
            story.feed.put(item)
        wfs = [await story.deploy(acting(POST, name=f"w{number}")) for number in range(5)]
        await story.run()
        assert (counted.all, counted.most) == (20, most)
        for wf in wfs:
            assert {r.attempt for r in await story.runs(wf, "act")} == {1}


async def test_without_a_limit_calls_of_several_workflows_go_on_at_once(tmp_path: Path) -> None:
    counted = Counted()
    counted.hold = asyncio.Event()
    async with Story(tmp_path, connectors=[counted]) as story:
        story.feed.put("a")
        for number in range(4):
            await story.deploy(acting(POST, name=f"w{number}"))
        running = asyncio.ensure_future(story.keep.run_until_idle())
        await until(lambda: counted.now == 4)
        counted.hold.set()
        await running


async def test_while_a_call_is_under_way_another_workflow_waits_and_says_for_which(tmp_path: Path) -> None:
    counted, limits = Counted(), {"connectors.counted": FlowLimit(concurrency=1)}
    counted.hold = asyncio.Event()
    async with Story(tmp_path, connectors=[counted], policy=policy(limits)) as story:
        story.feed.put("a")
        first, second = [await story.deploy(acting(POST, name=name)) for name in ("one", "two")]
        running = asyncio.ensure_future(story.keep.run_until_idle())
        await until(lambda: bool(counted.now) and any(
            run["reason"] == "limit" for run in story.reader().all("run_open_all")))
        waits = [r for wf in (first, second) for r in await story.runs(wf) if r.status == "paused:limit"]
        [sent_] = [m for wf in (first, second) for m in await story.keep.mutations(wf)]
        assert f"concurrency = 1: {sent_.id} is under way" in (await story.keep.explain(waits[0].id)).because
        counted.hold.set()
        await running
        assert (counted.all, counted.most) == (2, 1)


# -- hours -------------------------------------------------------------------------------------------------

OFFICE = FlowLimit(hours="Mon-Fri 08:00-18:00 Europe/Berlin")


async def test_outside_of_its_hours_nothing_is_sent_and_reading_goes_on(tmp_path: Path) -> None:
    async with Story(tmp_path, start="2026-01-09T16:59:59Z", policy=policy({"workflows.story": OFFICE})) as story:
        wf = await story.deploy_and_run(acting(), "a")  # 17:59:59 on a Friday in Berlin
        assert len(story.world.effects) == 1
        story.feed.put("b")
        await story.run(minutes=5)
        assert len(story.world.effects) == 1
        run = await story.last(wf)
        assert run.error is not None
        assert '[workflows.story] hours = "Mon-Fri 08:00-18:00 Europe/Berlin"' in run.error.message
        assert "nothing is sent before 2026-01-12T07:00:00" in run.error.message
        await story.reopen()
        await story.run(ms=parse_iso("2026-01-12T06:59:59.999Z") - story.clock.now_ms())
        assert len(story.world.effects) == 1
        await story.run(ms=1)
        assert len(story.world.effects) == 2


async def test_an_approval_that_expires_while_its_call_waits_is_asked_afresh(tmp_path: Path) -> None:
    grants, start = {"feed.list": "allow", "gmail.send": "ask"}, "2026-01-09T17:30:00Z"
    async with Story(tmp_path, start=start, policy=policy({"workflows.story": OFFICE})) as story:
        await story.deploy_and_run(acting(), "a", grants=grants)
        asked = await story.question()
        await story.keep.approve(asked.id)
        await story.run(hours=25)
        afresh = await story.question()
        assert afresh.id != asked.id
        await story.run(ms=parse_iso("2026-01-12T07:00:00Z") - story.clock.now_ms())
        assert story.world.effects == [], "nobody has answered"


# -- several limits, several hosts ---------------------------------------------------------------------------


async def test_the_limit_that_lets_it_through_last_is_the_one_that_is_told(tmp_path: Path) -> None:
    limits = {"connectors.gmail": FlowLimit(rate="1/m"), "workflows.story": FlowLimit(rate="2/h")}
    async with Story(tmp_path, policy=policy(limits)) as story:
        wf = await story.deploy_and_run(acting(), "a", "b", "c")
        assert "[connectors.gmail]" in (await story.keep.explain((await story.last(wf)).id)).moved_by[0].what
        await story.run(minutes=1)
        assert len(story.world.effects) == 2
        assert "[workflows.story]" in (await story.keep.explain((await story.last(wf)).id)).moved_by[0].what


async def test_one_connection_without_a_limit_is_not_held_back_by_anothers(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/h")})) as story:
        await story.deploy_and_run(acting(APPEND), "a", "b", "c")
        assert len(story.world.effects) == 3


async def test_a_rate_holds_over_two_hosts_on_one_database(tmp_path: Path) -> None:
    store, limits = PostgresStore(), {"connectors.sheets": FlowLimit(rate="3/10s", concurrency=2)}
    store.make()
    story = Story(tmp_path, policy=policy(limits))
    story.path = store.url
    async with story:
        connectors = [*story.world.connectors(), story.feed]
        async with Keep(story.path, connectors=connectors, policy=story.policy, clock=story.clock) as second:
            for item in "abcde":
                story.feed.put(item)
            for name in ("a", "b", "c", "d"):
                await story.deploy(acting(APPEND, name=name))
            for _ in range(40):
                async with asyncio.TaskGroup() as both:
                    both.create_task(story.keep.run_until_idle())
                    both.create_task(second.run_until_idle())
                story.clock.advance(seconds=2.5)
            rows = [m for wf in await second.workflows() for m in await second.mutations(wf.id)]
            assert len(rows) == 20
            assert fullest([m.first_sent_at for m in rows], RateWindow(3, 10_000)) == 3
            assert len({m.sender for m in rows}) == 2, "both hosts have sent"


async def test_a_turn_that_comes_while_the_host_looks_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    look, all_sent = Host._now, asyncio.Event()
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/s")})) as story:

        async def look_slowly(self: Host, workflow_id: str) -> Now:
            now = await look(self, workflow_id)
            if now.stopped is not None and now.stopped.turn is not None:
                story.clock.advance(seconds=2)
            return now

        async def count(params: Any, call: Call) -> None:
            if story.world.count("gmail.send") == 3:
                all_sent.set()

        monkeypatch.setattr(Host, "_now", look_slowly)
        story.world.on("gmail.send").before(count)
        for item in "abc":
            story.feed.put(item)
        await story.deploy(acting())
        serving = asyncio.ensure_future(story.keep.serve())
        async with asyncio.timeout(30):
            await all_sent.wait()
        serving.cancel()
        await asyncio.wait([serving])


# -- limits and parked runs --------------------------------------------------------------------------------


BIG = {"feed.list": "allow", "gmail.send": {"mode": "allow", "ask_when": ['to = "big"']}}


async def test_a_parked_run_that_was_approved_has_its_turn_among_other_workflows(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=policy({"connectors.gmail": FlowLimit(rate="1/10s")})) as story:
        asks = await story.deploy(acting(name="asks"), grants=BIG)
        await story.keep.set(asks, "others")
        story.feed.put("big")
        await story.run()
        for name in ("one", "two"):
            await story.deploy(acting(name=name))
        for number in range(12):
            story.feed.put(f"{number:02d}")
        await story.run()
        asked = await story.question()
        assert (await story.keep.run(asked.run_id)).parked
        await story.keep.approve(asked.id)
        await story.run()
        await sent(story, 6)
        assert len(await story.keep.mutations(asks)) == 1, "nobody is kept from its turn"


async def test_a_call_that_waits_for_a_parked_run_has_no_place_among_other_workflows(tmp_path: Path) -> None:
    grants = {"feed.list": "allow", "gmail.send": "ask"}
    limit = FlowLimit(concurrency=1)
    async with Story(tmp_path, policy=policy({"connectors.gmail": limit})) as story:
        asks = await story.deploy(acting(name="asks", next=None), grants=grants)
        await story.keep.set(asks, "others")
        story.feed.put("a")
        story.feed.put("b")
        await story.run()
        first, second = await story.keep.needs_you()
        story.world.on("gmail.send").fail(PermissionDenied("The password was changed."))
        for asked in (first, second):
            await story.keep.approve(asked.id)
            await story.run()
        story.feed.items.clear()
        story.feed.put("c")
        await story.deploy_and_run(acting(name="one"))
        await story.run(seconds=5)
        assert [e.params["to"] for e in story.world.effects] == ["c"]
