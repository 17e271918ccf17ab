"""Scheduling: what runs when. Time is only what the test's clock says; nothing runs without a reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Keep, Policy, Transient, read
from keepai.engine import host
from keepai.engine.due_times import LONGEST_SLEEP_S
from keepai.engine.next_step import Wait
from keepai.engine.scheduler import TIMES_MAX, Taken, next_run_at
from keepai.model.clock import iso, parse_iso
from keepai.script.manifest import Handler, HandlerKind, Schedule
from tests.harness import FIRE, NOTHING, Story, consumer, js, producer, take_all, workflow
from tests.ledger.stores import place_in


async def due_times(story: Story, wf: str, handler: str, count: int) -> list[str]:
    """Go from due time to due time; at each the handler runs once, and a millisecond before it does not."""
    found = []
    for _ in range(count):
        before = len(await story.runs(wf, handler))
        due = (await story.workflow(wf)).next_due_at
        assert due is not None
        await story.run(ms=due - story.clock.now_ms() - 1)
        assert len(await story.runs(wf, handler)) == before, "too early"
        await story.run(ms=1)
        assert len(await story.runs(wf, handler)) == before + 1, "not at its time"
        found.append(iso(story.clock.now_ms())[:16])
    return found


async def order(story: Story, wf: str) -> list[str]:
    """The handlers of all runs, in order."""
    return [r.handler for r in await story.runs(wf)]


# -- producers ---------------------------------------------------------------------------------------------


async def test_a_producer_runs_after_deploy_and_then_at_every_interval(story: Story) -> None:
    """R326: nothing before somebody lets it run, nothing between."""
    wf = await story.deploy(workflow(producers={"poll": producer(interval="1h30m")}))
    assert (await story.runs(wf), story.feed.count) == ([], 0), "deploy runs nothing"
    await story.run()
    await story.run()
    assert story.feed.count == 1
    assert await due_times(story, wf, "poll", 3) == ["2026-01-05T10:30", "2026-01-05T12:00", "2026-01-05T13:30"]


async def test_a_cron_producer_runs_on_weekdays_at_nine_and_sees_no_gap_in_a_weekend(story: Story) -> None:
    """R067, R326."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(cron="0 9 * * 1-5")}))
    days = ("06", "07", "08", "09", "12", "13")
    assert await due_times(story, wf, "poll", 6) == [f"2026-01-{day}T09:00" for day in days]
    assert (await story.workflow(wf)).gaps == ()


async def test_cron_times_are_local_times_of_their_zone(story: Story) -> None:
    """R067: nine in New York is another moment than nine in Kolkata."""
    ids = [
        await story.deploy(workflow(tz, producers={"poll": producer(cron="0 9 * * *", tz=tz)}))
        for tz in ("America/New_York", "Asia/Kolkata", "UTC")
    ]
    await story.run()
    found = [iso((await story.workflow(wf)).next_due_at or 0)[:16] for wf in ids]
    assert found == ["2026-01-05T14:00", "2026-01-06T03:30", "2026-01-06T09:00"]


@pytest.mark.parametrize(("start", "times"), [
    ("2026-03-28T12:00:00Z", ["2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"]),
    ("2026-10-24T12:00:00Z", ["2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"]),
], ids=["an hour that is missing", "an hour that comes twice"])
async def test_a_daily_time_comes_once_a_day_also_when_the_clocks_change(
    tmp_path: Path, start: str, times: list[str],
) -> None:
    """I27: 02:30 in Berlin is jumped over in March and comes twice in October."""
    async with Story(tmp_path, start=start) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(cron="30 2 * * *", tz="Europe/Berlin")}))
        assert await due_times(story, wf, "poll", 3) == times


async def test_schedules_that_were_missed_run_once_and_the_gap_is_shown(story: Story) -> None:
    """DESIGN 8: three hours off, one run, and the time nobody looked; a short delay is none."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}))
    await story.run(minutes=9)
    assert (await story.workflow(wf)).gaps == ()
    await story.keep.close()
    story.clock.advance(hours=3)
    await story.open()
    await story.run()
    await story.run()
    assert story.feed.count == 3
    [gap] = (await story.workflow(wf)).gaps
    assert (gap.handler, iso(gap.since_at)[:16], iso(gap.until_at)[:16]) == (
        "poll", "2026-01-05T09:09", "2026-01-05T12:09",
    )
    assert await due_times(story, wf, "poll", 1) == ["2026-01-05T12:14"]


async def test_a_blocked_or_paused_producer_leaves_a_gap_too(story: Story) -> None:
    """DESIGN 8, I19: no time window goes by unseen."""
    blocked = await story.deploy(workflow("blocked", producers={"poll": producer()}, consumers={
        "take": consumer('throw new Error("no");'),
    }))
    paused = await story.deploy_and_run(workflow("paused", producers={"poll": producer()}), "a")
    await story.keep.pause(paused)
    await story.run(hours=1)
    await story.keep.resume(paused)
    await story.keep.skip_run((await story.last(blocked)).id)
    await story.deploy_and_run(workflow("blocked", producers={"poll": producer()}, consumers={"take": consumer()}))
    for wf in (blocked, paused):
        [gap] = (await story.workflow(wf)).gaps
        assert (iso(gap.since_at)[:16], iso(gap.until_at)[:16]) == ("2026-01-05T09:00", "2026-01-05T10:00")
        assert len(await story.runs(wf, "poll")) == 2


async def test_a_wall_clock_that_jumps_ahead_brings_one_run(story: Story) -> None:
    """I25, I27."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}))
    story.clock.jump(days=3650)
    await story.run()
    await story.run()
    assert story.feed.count == 2
    assert len(await due_times(story, wf, "poll", 2)) == 2


async def test_a_wall_clock_that_was_set_back_makes_nobody_wait_longer_than_an_interval(story: Story) -> None:
    """DESIGN 8: due times are clamped to now + interval; the run is neither lost for a year nor doubled."""
    await story.deploy_and_run(workflow(producers={"poll": producer()}))
    story.clock.jump(days=-365)
    await story.run()
    assert story.feed.count == 1
    await story.run(minutes=5)
    assert story.feed.count == 2
    await story.run(minutes=4)
    assert story.feed.count == 2
    await story.run(minutes=1)
    assert story.feed.count == 3


async def test_a_consumers_times_are_clamped_too_when_the_clock_was_set_back(story: Story) -> None:
    """DESIGN 8: the hourly re-check and a retry do not wait for the old time to come round again."""
    story.feed.put("a")
    poll = producer(interval="300d")
    idle = await story.deploy(workflow("idle", producers={"poll": poll}, consumers={"take": consumer(NOTHING)}))
    busy = await story.deploy(workflow("busy", producers={"poll": poll}, consumers={"take": consumer(mutate=FIRE)}))
    story.world.on("webhook.fire").fail(Transient("busy"))
    await story.run()
    story.clock.jump(days=-365)
    await story.run()
    await story.run(hours=1)
    assert len(await story.runs(idle, "take")) == 2
    assert (await story.last(busy, "take")).status == "committed"


async def test_order_goes_by_sequence_when_the_clock_runs_backwards(story: Story) -> None:
    """DESIGN 8, I25: a later event stays later; the list of runs too."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(take_all(), next="return prepared.data.events.map(e => e.messageId);"),
    }), "z-first")
    story.clock.jump(days=-2)
    story.feed.put("a-second")
    await story.keep.run_now(wf)
    await story.run()
    assert await story.ids(wf) == ["z-first", "a-second"]
    assert await order(story, wf) == ["poll", "take", "poll", "take"]


# -- cron ----------------------------------------------------------------------------------------------------

NOON = "0 12 * * *"


def timed(kind: str = "producers", **schedule: str) -> str:
    """A workflow of one handler, `poll`, that runs by a schedule and reads the feed."""
    handler = f"{{ schedule: {js(schedule)}, handler: async (ctx) => {{ await ctx.feed.list({{}}); }} }}"
    if kind == "producers":
        return workflow(producers={"poll": handler.replace("{", '{ publishes: ["in"],', 1)})
    return f"export default Keep.workflow({{ name: 'story', routines: {{ poll: {handler} }} }});"


def version(source: str, number: int) -> str:
    """The same script as another version."""
    return f"{source}// {number}\n"


@pytest.mark.parametrize("kind", ["producers", "routines"])
async def test_a_cron_is_never_due_before_its_time(tmp_path: Path, kind: str) -> None:
    """DESIGN 8: the New Year's mail is not sent in November."""
    async with Story(tmp_path, start="2026-11-18T10:00:00Z") as story:
        wf = await story.deploy_and_run(timed(kind, cron="0 9 1 1 *"))
        await story.run(days=40)
        assert story.feed.count == 0
        assert await due_times(story, wf, "poll", 2) == ["2027-01-01T09:00", "2028-01-01T09:00"]


async def test_deploying_a_weekday_job_on_a_saturday_does_not_run_it(tmp_path: Path) -> None:
    """DESIGN 8: however often it is deployed."""
    async with Story(tmp_path, start="2026-01-10T11:00:00Z") as story:
        for number in range(3):
            wf = await story.deploy(version(timed(cron="0 9 * * 1-5"), number))
            await story.run(hours=1)
        assert story.feed.count == 0
        assert await due_times(story, wf, "poll", 1) == ["2026-01-12T09:00"]


@pytest.mark.parametrize(("schedule", "due"), [
    ({"interval": "1h"}, "2026-01-05T10:00"), ({"cron": "30 9 * * *"}, "2026-01-05T09:30"),
], ids=["interval", "cron"])
async def test_a_new_version_keeps_the_due_time(story: Story, schedule: dict[str, str], due: str) -> None:
    """DESIGN 8: also one that was reached while nothing could run."""
    source = timed(**schedule)
    wf = await story.deploy_and_run(source)
    before = story.feed.count
    for number in range(3):
        await story.run(minutes=9)
        await story.deploy_and_run(version(source, number))
    assert story.feed.count == before
    assert await due_times(story, wf, "poll", 1) == [due]
    await story.keep.pause(wf)
    await story.run(days=1)
    await story.deploy(version(source, 9))
    await story.keep.resume(wf)
    await story.run()
    assert story.feed.count == before + 2, "it was due, and a new version does not make it wait"


@pytest.mark.parametrize(("before", "after", "due"), [
    ({"interval": "1h"}, {"interval": "30m"}, "2026-01-05T09:30"),
    ({"interval": "1h"}, {"interval": "2h"}, "2026-01-05T11:00"),
    ({"interval": "1h"}, {"interval": "5m"}, "2026-01-05T09:10"),
    ({"interval": "1h"}, {"cron": NOON}, "2026-01-05T12:00"),
    ({"cron": "0 10 * * *"}, {"cron": NOON}, "2026-01-05T12:00"),
    ({"cron": NOON, "tz": "UTC"}, {"cron": NOON, "tz": "Europe/Berlin"}, "2026-01-05T11:00"),
    ({"cron": NOON}, {"interval": "1h"}, "2026-01-05T09:10"),
], ids=["sooner", "later", "overdue", "to cron", "another cron", "another zone", "to an interval"])
async def test_a_changed_schedule_counts_from_the_last_run(
    story: Story, before: dict[str, str], after: dict[str, str], due: str,
) -> None:
    """DESIGN 8: an interval never makes it run sooner than one interval after the last; it never ran: at once."""
    wf = await story.deploy_and_run(timed(**before))
    await story.run(minutes=10)
    await story.deploy(timed(**after))
    assert iso((await story.workflow(wf)).next_due_at or 0)[:16] == due


async def test_a_handler_that_comes_back_is_scheduled_as_a_new_one(story: Story) -> None:
    """DESIGN 8: a version without it forgets when it was due."""
    wf = await story.deploy_and_run(timed(interval="1h"))
    await story.deploy(workflow(producers={"other": producer(interval="300d")}))
    await story.run(minutes=5)
    await story.deploy_and_run(timed(interval="1h"))
    assert len(await story.runs(wf, "poll")) == 2


@pytest.mark.parametrize("how", ["set back", "with a restart", "with a new version", "days"])
async def test_a_clock_set_back_over_a_cron_time_does_not_bring_it_twice(story: Story, how: str) -> None:
    """I27: one run per nominal time; then it goes on with the first time that has not come yet."""
    wf = await story.deploy(timed(cron=NOON))
    await story.run(hours=3, minutes=1)
    assert story.feed.count == 1
    if how == "days":
        await story.run(days=1)
        await story.run(days=1)
    count = story.feed.count
    story.clock.jump(hours=-51 if how == "days" else -3)
    if how == "with a restart":
        await story.reopen()
    if how == "with a new version":
        await story.deploy(version(timed(cron=NOON), 2))
    await story.run()
    for _ in range(3 if how == "days" else 1):
        await story.run(hours=17)
    assert story.feed.count == count
    tomorrow = "2026-01-08T12:00" if how == "days" else "2026-01-06T12:00"
    assert await due_times(story, wf, "poll", 1) == [tomorrow]


async def test_a_clock_set_back_while_a_cron_run_goes_on_does_not_bring_it_twice(story: Story) -> None:
    """I27: what counts is the time that the run was for, not the moment of its end."""
    source = workflow(producers={"poll": producer('await ctx.gmail.get({ id: "x" });', cron=NOON)})
    wf = await story.deploy(source)

    def set_back(params: Any, call: Call) -> None:
        if len(story.world.asked) == 1:
            story.clock.jump(minutes=-1)
    story.world.on("gmail.get").before(set_back)
    await story.run(hours=3)
    await story.run(minutes=10)
    assert len(await story.runs(wf)) == 1
    assert await due_times(story, wf, "poll", 1) == ["2026-01-06T12:00"]


async def test_an_hourly_cron_goes_on_where_it_was_when_the_clock_was_set_back(story: Story) -> None:
    """I27: 10, 11 and 12 o'clock have run; the next is 13."""
    wf = await story.deploy(timed(cron="0 * * * *"))
    assert len(await due_times(story, wf, "poll", 3)) == 3
    story.clock.jump(hours=-2, minutes=-30)
    await story.run()
    assert await due_times(story, wf, "poll", 2) == ["2026-01-05T13:00", "2026-01-05T14:00"]


async def test_a_clock_that_was_years_ahead_does_not_silence_a_cron_for_years(story: Story) -> None:
    """DESIGN 8, I27: the times in between have not run, and come as ever."""
    wf = await story.deploy(timed(cron="0 * * * *"))
    assert await due_times(story, wf, "poll", 1) == ["2026-01-05T10:00"]
    story.clock.jump(days=1461)
    await story.run()
    assert len(await due_times(story, wf, "poll", 3)) == 3
    story.clock.jump(days=-1461)
    await story.run()
    times = await due_times(story, wf, "poll", 3)
    assert times == sorted(times)
    assert times[0].startswith("2026-01-05"), "not in four years"
    due = [run.due_at for run in await story.runs(wf)]
    assert len(due) == len(set(due)) == 8


@pytest.mark.parametrize("count", [1, TIMES_MAX - 1, TIMES_MAX, TIMES_MAX + 1, 10 * TIMES_MAX])
def test_however_many_cron_times_have_run_the_next_is_the_first_that_has_not(count: int) -> None:
    """I27: also where only the first of them, and the newest, are looked at."""
    minute, handler = 60_000, Handler("poll", HandlerKind.PRODUCER, ("in",), schedule=Schedule(cron="* * * * *"))
    taken = [minute * (number + 1) for number in range(count)]
    ran = Taken(taken[:TIMES_MAX], taken[-1] if count >= TIMES_MAX else None)
    assert next_run_at(handler, 0, Policy(), ran) == taken[-1] + minute


async def test_a_version_deployed_while_a_cron_run_goes_on_does_not_bring_it_twice(story: Story) -> None:
    """I27, DESIGN 8: the run under way is the one of its time, whatever version is active when it ends."""
    source = workflow(producers={"poll": producer('await ctx.gmail.get({ id: "x" });', cron=NOON)})
    wf = await story.deploy(source)

    async def deploy(params: Any, call: Call) -> None:
        if len(story.world.asked) < 3:
            await story.deploy(version(source, len(story.world.asked)))
    story.world.on("gmail.get").before(deploy)
    await story.run(hours=3)
    await story.run(hours=1)
    assert len(await story.runs(wf)) == 1
    assert await due_times(story, wf, "poll", 1) == ["2026-01-06T12:00"]


@pytest.mark.parametrize("how", ["fails and is tried again", "is skipped", "dies with its host"])
async def test_a_cron_run_that_goes_wrong_does_not_bring_its_time_again(story: Story, how: str) -> None:
    """I27: the retry belongs to it."""
    source = workflow(producers={"poll": producer('await ctx.gmail.get({ id: "x" });', cron=NOON)})
    wf = await story.deploy(source)
    if how == "dies with its host":
        await story.crash("before:commit_producer", hours=3)
    else:
        story.world.on("gmail.get").fail(Transient("later"))
        await story.run(hours=3)
    if how == "is skipped":
        await story.keep.skip_run((await story.last(wf)).id)
    story.clock.jump(hours=-2)
    await story.run()
    await story.run(hours=4)
    assert len({run.lineage for run in await story.runs(wf)}) == 1
    assert await due_times(story, wf, "poll", 1) == ["2026-01-06T12:00"]


async def test_run_now_takes_no_cron_time_away(story: Story) -> None:
    """DESIGN 8: a person's run is one more; at the very time both are one."""
    wf = await story.deploy(timed(cron=NOON))
    await story.keep.run_now(wf)
    await story.run()
    assert story.feed.count == 1
    story.clock.advance(hours=3)
    await story.keep.run_now(wf)
    await story.run()
    assert story.feed.count == 2
    story.clock.jump(hours=-1)
    await story.run(hours=2)
    assert story.feed.count == 2
    assert await due_times(story, wf, "poll", 1) == ["2026-01-06T12:00"]


async def test_run_now_queues_every_producer_once_and_no_consumer(story: Story) -> None:
    """DESIGN 8: however often it was pressed; the next schedule counts from that run."""
    wf = await story.deploy_and_run(workflow(producers={
        "one": producer(), "two": producer(publishes=["out"], interval="1h"),
    }, consumers={"take": consumer()}))
    await story.run(minutes=2)
    assert sorted(await story.keep.run_now(wf)) == ["one", "two"]
    await story.keep.run_now(wf)
    assert story.feed.count == 2, "queued, not run"
    await story.reopen()
    await story.run()
    await story.run()
    assert Counter(await order(story, wf)) == {"one": 2, "two": 2}
    assert [r.trigger for r in await story.runs(wf, "one")] == ["schedule", "run_now"]
    assert await due_times(story, wf, "one", 1) == ["2026-01-05T09:07"]
    assert (await story.workflow(wf)).gaps == ()


# -- consumers ---------------------------------------------------------------------------------------------


async def test_a_consumer_goes_on_until_nothing_is_left(story: Story) -> None:
    """R088, DESIGN 8: a run that consumed something is followed by another, without a new event."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer()}))
    for number in range(5):
        story.feed.put(str(number))
    await story.run()
    assert await order(story, wf) == ["poll"] + ["take"] * 5
    assert await story.ids(wf, status="pending") == []


async def test_many_events_at_once_are_one_reason_to_run(story: Story) -> None:
    """DESIGN 8: triggers coalesce."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(take_all())}))
    for number in range(50):
        story.feed.put(str(number))
    await story.run()
    assert await order(story, wf) == ["poll", "take"]


async def test_a_wish_that_comes_during_a_run_is_fulfilled_once_after_it(story: Story) -> None:
    """DESIGN 8: three "run now" while a mutation is under way are one run."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(mutate=FIRE)}))
    story.feed.put("a")

    async def press(params: Any, call: Call) -> None:
        for _ in range(3):
            await story.keep.run_now(wf)
    story.world.on("webhook.fire").before(press)
    await story.run()
    assert await order(story, wf) == ["poll", "take", "poll"]


async def test_consumers_go_before_producers(story: Story) -> None:
    """DESIGN 8: what one producer brought is worked off before the next producer looks."""
    wf = await story.deploy_and_run(workflow(producers={
        "poll": producer(), "zpoll": producer("await ctx.feed.list({});", publishes=["out"]),
    }, consumers={"take": consumer()}), "a", "b")
    assert await order(story, wf) == ["poll", "take", "take", "zpoll"]


async def test_among_consumers_the_oldest_event_goes_first(story: Story) -> None:
    """DESIGN 8: by the event's place in the stream, not by the consumer's name or the topic's."""
    poll = producer(publishes=["a", "z"])
    wf = await story.deploy(workflow(topics=["a", "z"], producers={"poll": poll}, consumers={
        "a": consumer(subscribe=["a"]), "z": consumer(subscribe=["z"]),
    }))
    for id, topic in (("1", "z"), ("2", "a"), ("3", "a"), ("4", "z"), ("5", "a")):
        story.feed.put(id, topic=topic)
    await story.run()
    assert await order(story, wf) == ["poll", "z", "a", "a", "z", "a"]


async def test_a_consumer_that_takes_nothing_starves_nobody(story: Story) -> None:
    """R118: it holds the oldest event of all, and still runs only once."""
    poll = producer(publishes=["a", "z"])
    wf = await story.deploy(workflow(topics=["a", "z"], producers={"poll": poll}, consumers={
        "idle": consumer(NOTHING, subscribe=["a"]), "busy": consumer(subscribe=["z"]),
    }))
    story.feed.put("1", topic="a")
    story.feed.put("2", topic="z")
    story.feed.put("3", topic="z")
    await story.run()
    assert Counter(await order(story, wf)) == {"poll": 1, "idle": 1, "busy": 2}


async def test_empty_reservations_wait_for_something_new(story: Story) -> None:
    """R118: not for the same event published again with the same payload, but for a revised or a new one."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(NOTHING)}))
    story.feed.put("a", 1)
    await story.run()
    for _ in range(3):
        await story.run()
        await story.run(minutes=5)
    assert len(await story.runs(wf, "take")) == 1
    story.feed.put("a", 2)
    await story.run(minutes=5)
    assert len(await story.runs(wf, "take")) == 2
    story.feed.put("b")
    await story.run(minutes=5)
    assert len(await story.runs(wf, "take")) == 3
    await story.reopen()
    await story.run()
    assert len(await story.runs(wf, "take")) == 3, "a restart is no reason"


async def test_a_consumer_that_took_nothing_is_asked_again_after_an_hour(story: Story) -> None:
    """R329: as long as something waits; also after a restart."""
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer(interval="30d")}, consumers={"take": consumer(NOTHING)},
    ), "a")
    assert await due_times(story, wf, "take", 1) == ["2026-01-05T10:00"]
    await story.reopen()
    assert await due_times(story, wf, "take", 2) == ["2026-01-05T11:00", "2026-01-05T12:00"]
    assert (await story.last(wf, "take")).trigger == "recheck"
    await story.keep.skip_event((await story.events(wf))[0].id)
    await story.run(hours=5)
    assert len(await story.runs(wf, "take")) == 4, "nothing waits any more"


async def test_an_event_that_arrives_while_the_run_goes_on_is_seen_by_another(story: Story) -> None:
    """DESIGN 8: "since its last committed run began": next puts something into the consumer's own topic."""
    prepare = 'return { reservations: [], data: (await ctx.peek("in")).length };'
    emit = 'if (prepared.data < 3) await ctx.publish("in", { messageId: `own${prepared.data}`, payload: 1 });'
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(prepare, publishes=None, next=emit),
    }), "a")
    assert await story.ids(wf) == ["a", "own1", "own2"]
    assert len(await story.runs(wf, "take")) == 3


# -- wakeAt ------------------------------------------------------------------------------------------------

#: Does what the newest waiting event says.
OBEY = """
  const events = await ctx.peek("in");
  console.log(events.length);
  const wish = events.at(-1)?.payload;
  if (!wish) return { reservations: [], data: {} };
  const ids = wish.take ? events.map(e => e.messageId) : [];
  return { reservations: ids.length ? [{ topic: "in", ids }] : [], data: {}, wakeAt: wish.wakeAt };
"""


def obeying(name: str = "story", feed: str | None = None) -> str:
    """A workflow that obeys the feed, or one wish of its own."""
    body = f"""
      const inputId = ctx.registerInput({{ source: "feed", type: "item", id: "i", title: "I" }});
      await ctx.publish("in", {{ messageId: "m", inputId, payload: {feed} }});
    """
    poll = producer(interval="300d") if feed is None else producer(body, interval="300d")
    return workflow(name, producers={"poll": poll}, consumers={"take": consumer(OBEY)})


async def test_wake_at_wakes_a_consumer_that_took_nothing(story: Story) -> None:
    """R119, R328: at that time and not before; also after a restart."""
    wf = await story.deploy(obeying())
    story.feed.put("a", {"take": False, "wakeAt": "2026-01-05T09:10:00Z"})
    await story.run()
    await story.reopen()
    assert await due_times(story, wf, "take", 1) == ["2026-01-05T09:10"]
    assert (await story.last(wf, "take")).trigger == "wake"


async def test_wake_at_is_kept_beside_reservations_and_needs_no_event(story: Story) -> None:
    """R119, DESIGN 8: everything is consumed, and still it wakes, once."""
    wf = await story.deploy(obeying())
    story.feed.put("a", {"take": True, "wakeAt": "2026-01-05T11:10:00+02:00"})
    await story.run()
    assert await story.ids(wf, status="consumed") == ["a"]
    assert await due_times(story, wf, "take", 1) == ["2026-01-05T09:10"]
    assert [story.logs(run) for run in await story.runs(wf, "take")] == [["1"], ["0"]]
    await story.run(days=3)
    assert len(await story.runs(wf, "take")) == 2, "the wish of one run is not the wish of the next"


async def test_a_later_run_without_wake_at_takes_the_wish_back(story: Story) -> None:
    """DESIGN 8: not kept across runs."""
    wf = await story.deploy(obeying())
    story.feed.put("a", {"take": False, "wakeAt": "2026-01-05T09:10:00Z"})
    await story.run()
    story.feed.put("b", {"take": True})
    await story.keep.run_now(wf)
    await story.run(minutes=5)
    assert await story.ids(wf, status="consumed") == ["a", "b"]
    await story.run(minutes=5)
    await story.run(days=2)
    assert len(await story.runs(wf, "take")) == 2


WISHES: dict[str, tuple[str, str | None, bool]] = {  # wakeAt, what becomes of it, whether that is noted
    "in time": ('"2026-01-05T10:30:00Z"', "2026-01-05T10:30:00", False),
    "with an offset": ('"2026-01-05T12:30:00.000+02:00"', "2026-01-05T10:30:00", False),
    "past": ('"2020-01-01T00:00:00Z"', "2026-01-05T09:00:30", True),
    "at once": ('"2026-01-05T09:00:00Z"', "2026-01-05T09:00:30", True),
    "far": ('"2026-03-01T00:00:00Z"', "2026-01-06T09:00:00", True),
    "the end of time": ('"9999-12-31T23:59:59Z"', "2026-01-06T09:00:00", True),
    "beyond": ('"+275760-09-13T00:00:00.000Z"', None, True),
    "a word": ('"tomorrow"', None, True),
    "no such day": ('"2026-02-31T00:00:00Z"', None, True),
    "empty": ('""', None, True),
    "a number": ("1767607200000", None, True),
    "an object": ('{ at: "2026-01-05T10:30:00Z" }', None, True),
    "null": ("null", None, False),
}


async def test_wake_at_is_clamped_or_ignored_with_a_note_and_never_fails_the_run(story: Story) -> None:
    """R328, R318: 30 s … 24 h; what is no date is ignored; both leave a warning on the run."""
    ids = {
        name: await story.deploy(obeying(name, f"{{ take: true, wakeAt: {text} }}"))
        for name, (text, _, _) in WISHES.items()
    }
    await story.run()
    beyond_all = parse_iso("2026-02-01T00:00:00Z")
    found = {}
    for name, wf in ids.items():
        run, due = await story.last(wf, "take"), (await story.workflow(wf)).next_due_at
        assert (name, run.status) == (name, "committed")
        assert due is not None
        at = iso(due)[:19] if due < beyond_all else None
        found[name] = (at, any("wakeAt" in text for text in story.warnings(run)))
    assert found == {name: (at, noted) for name, (_, at, noted) in WISHES.items()}


async def test_a_wake_up_in_the_past_makes_no_busy_loop(story: Story) -> None:
    """R118, R328: it comes back every 30 s of the clock, not at once."""
    wf = await story.deploy(obeying())
    story.feed.put("a", {"take": False, "wakeAt": "2020-01-01T00:00:00Z"})
    await story.run()
    assert len(await story.runs(wf, "take")) == 1
    assert await due_times(story, wf, "take", 2) == ["2026-01-05T09:00", "2026-01-05T09:01"]


# -- people, and other workflows ----------------------------------------------------------------------------


async def test_a_paused_workflow_runs_nothing_and_then_goes_on_where_it_was(story: Story) -> None:
    """R331: neither producers, nor consumers, nor retries; over a restart too; what was missed runs once."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(mutate=FIRE)}))
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("webhook.fire").fail(Transient("busy"))
    await story.run()
    await story.keep.pause(wf)
    await story.reopen()
    await story.run(hours=2)
    assert (await story.workflow(wf)).status == "paused"
    assert (await story.workflow(wf)).next_due_at is None
    assert await order(story, wf) == ["poll", "take"]
    with pytest.raises(Exception, match="paused"):
        await story.keep.run_now(wf)
    with pytest.raises(Exception, match="paused"):
        await story.keep.pause(wf)
    await story.keep.resume(wf)
    with pytest.raises(Exception, match="active"):
        await story.keep.resume(wf)
    await story.run()
    assert Counter(await order(story, wf)) == {"poll": 2, "take": 3}
    assert await story.ids(wf, status="consumed") == ["a", "b"]


async def test_a_pause_lets_the_run_under_way_end_and_starts_no_other(story: Story) -> None:
    """R331, DESIGN 4: the mutation that was on its way is kept and its run commits."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(mutate=FIRE)}))
    story.feed.put("a")
    story.feed.put("b")

    async def pause(params: Any, call: Call) -> None:
        await story.keep.pause(wf)
    story.world.on("webhook.fire").before(pause)
    await story.run()
    assert [(r.handler, r.status) for r in await story.runs(wf)] == [("poll", "committed"), ("take", "committed")]
    assert await story.ids(wf, status="pending") == ["b"]


async def test_a_stopped_workflow_runs_nothing_and_its_history_stays(story: Story) -> None:
    """R331, R029."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"take": consumer()}), "a")
    await story.keep.stop(wf)
    await story.run(days=1)
    assert await order(story, wf) == ["poll", "take"]
    assert (await story.workflow(wf)).status == "stopped"
    assert await story.ids(wf) == ["a"]


async def test_a_blocked_workflow_waits_alone(story: Story) -> None:
    """R183, R331: none of its handlers runs; all others do; what blocks it is shown."""
    bad = await story.deploy(workflow("bad", topics=["in", "side"], producers={
        "poll": producer(), "other": producer("await ctx.feed.list({});", publishes=["side"]),
    }, consumers={"take": consumer('throw new Error("no");'), "side": consumer(subscribe=["side"])}))
    good = await story.deploy(workflow("good", producers={"poll": producer()}, consumers={"take": consumer()}))
    story.feed.put("a")
    await story.run()
    stopped, runs = await story.last(bad, "take"), len(await story.runs(bad))
    for _ in range(3):
        await story.run(minutes=5)
    assert len(await story.runs(bad)) == runs
    assert len(await story.runs(good, "poll")) == 4
    whole = await story.workflow(bad)
    assert (whole.status, whole.blocked_by, whole.blocked_status) == ("active", stopped.id, "failed:logic")
    assert (await story.workflow(good)).blocked_by is None


async def test_resolving_what_blocked_a_workflow_does_not_undo_a_persons_pause(story: Story) -> None:
    """DESIGN 4: "blocked" is derived; "paused" is a person's word."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(next='throw new Error("no");'),
    }), "a")
    await story.keep.pause(wf)
    runs = len(await story.runs(wf))
    await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer()}))
    await story.run(hours=1)
    assert ((await story.workflow(wf)).status, len(await story.runs(wf))) == ("paused", runs)
    await story.keep.resume(wf)
    await story.run()
    assert await story.ids(wf, status="consumed") == ["a"]


async def test_events_that_wait_for_a_week_are_flagged_stale(story: Story) -> None:
    """R330: counted while they wait for a subscriber; results and done ones are not."""
    pick = take_all().replace("await ctx.peek(topic)", '(await ctx.peek(topic)).filter(e => e.messageId === "eat")')
    wf = await story.deploy(workflow(
        producers={"poll": producer(interval="300d", publishes=["in", "out"])}, consumers={"take": consumer(pick)},
    ))
    story.feed.put("eat")
    story.feed.put("wait")
    story.feed.put("result", topic="out")
    await story.run()
    await story.run(days=6, hours=23)
    story.feed.put("fresh")
    await story.keep.run_now(wf)
    await story.run()
    whole = await story.workflow(wf)
    assert (whole.pending, whole.stale) == (2, 0)
    await story.run(hours=2)
    whole = await story.workflow(wf)
    assert (whole.pending, whole.stale) == (2, 1)


class Door(Connector):
    """`ctx.door.knock({})` counts who is inside at the same time; the first ones wait until `meet` are there."""

    name = "door"

    def __init__(self, meet: int = 1) -> None:
        super().__init__()
        self.meet, self.met = meet, asyncio.Event()
        self.on_knock: Callable[[], object] = lambda: None
        self.inside: Counter[str] = Counter()
        self.most = self.most_of_one = 0
        self.knocked = asyncio.Event()

    @read
    async def knock(self, params: dict[str, Any], call: Call) -> int:
        """Come in, let others come, go out."""
        self.inside[call.workflow_id] += 1
        self.on_knock()
        self.most = max(self.most, self.inside.total())
        self.most_of_one = max(self.most_of_one, *self.inside.values())
        if self.inside.total() >= self.meet:
            self.met.set()
        await self.met.wait()
        self.inside[call.workflow_id] -= 1
        self.knocked.set()
        return 1


async def test_workflows_run_side_by_side_and_each_one_run_at_a_time(tmp_path: Path) -> None:
    """R181, R183: all that is due runs, as many lanes at once as policy allows."""
    door, under_way = Door(meet=3), list[int]()
    knock = "await ctx.door.knock({});"
    async with Story(tmp_path, policy=Policy(runs_at_once_max=3), connectors=[door]) as story:
        ids = [
            await story.deploy(workflow(f"w{n}", producers={
                "one": producer(knock), "two": producer(knock, publishes=["out"]),
            })) for n in range(8)
        ]
        door.on_knock = lambda: under_way.append(len(story.reader().all("run_active_all")))
        await story.run()
        assert [[r.status for r in await story.runs(wf)] for wf in ids] == [["committed", "committed"]] * 8
        assert door.most_of_one == 1
        assert door.most == 3
        assert max(under_way) == 3, "a run is on record before its script begins: no fourth one had begun"


async def test_serve_runs_what_becomes_due_without_being_asked(tmp_path: Path) -> None:
    """DESIGN 8, 14: with real time; a deploy wakes it, and so does the next due time."""
    door = Door()
    async with Keep(place_in(tmp_path), connectors=[door]) as keep:
        serving = asyncio.ensure_future(keep.serve())
        poll = producer("await ctx.door.knock({});", interval="1s")
        done = await keep.deploy(workflow(producers={"poll": poll}), grants="all")
        async with asyncio.timeout(20):
            await door.knocked.wait()
            door.knocked.clear()
            await door.knocked.wait()
        await keep.pause(done.workflow_id)
        runs = await keep.runs(done.workflow_id)
        assert [r.trigger for r in runs][:2] == ["schedule", "schedule"]
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_a_time_that_came_and_changed_nothing_does_not_keep_the_host_awake(
    story: Story, monkeypatch: pytest.MonkeyPatch,
) -> None:
    await story.deploy_and_run(workflow(producers={"poll": producer()}))
    story.clock.advance(minutes=6)  # the producer is due, and something holds it up
    now = story.clock.now_ms()
    monkeypatch.setattr(host, "next_step", lambda seen: Wait(now))
    story.keep.host.wake()
    await story.keep.host._look(now)
    assert story.keep.host._agenda.sleep_s(now) == LONGEST_SLEEP_S


async def test_a_workflow_with_many_events_does_not_keep_others_from_their_first_run(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(runs_at_once_max=1)) as story:
        for name in ("a", "b", "c"):
            send = f'await ctx.gmail.send({{ to: "{name}", id: prepared.data.messageId }});'
            await story.deploy(workflow(
                name=name, producers={"poll": producer()}, consumers={"act": consumer(mutate=send)}))
        for number in range(10):
            story.feed.put(str(number))
        await story.run()
        order = [effect.params["to"] for effect in story.world.effects]
        assert sorted(order) == ["a"] * 10 + ["b"] * 10 + ["c"] * 10
        assert set(order[:6]) == {"a", "b", "c"}, order  # each has had a turn before one has a second
