"""Long lists: only what can hurt counts against a limit, not what a replay is answered from the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import Policy, Transient
from tests.harness import Story, consumer, producer, workflow
from tests.routines import each, items, routine, sent

MAIL = "if (!ctx.item.isDone) await ctx.gmail.send({ to: item.id });"


def names(count: int) -> list[str]:
    return [f"i{n:05}" for n in range(count)]


def fill(story: Story, count: int) -> None:
    story.feed.items = [{"id": name} for name in names(count)]


async def test_items_and_their_ends_are_no_calls(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(script_calls_max=10)) as story:
        fill(story, 10)  # one read, ten mutations, twenty borders of items
        wf = await story.deploy_and_run(routine(each(MAIL)))
        assert (await story.last(wf)).status == "committed"
        assert len(sent(story)) == 10


async def test_what_a_replay_is_answered_from_the_ledger_does_not_count(tmp_path: Path) -> None:
    twice = MAIL + "if (!ctx.item.isDone) await ctx.sheets.appendRow({ spreadsheetId: 's', values: [item.id] });"
    async with Story(tmp_path, policy=Policy(script_calls_max=8)) as story:
        fill(story, 4)
        story.world.on("sheets.appendRow").fail(Transient("Come later."), times=3)
        wf = await story.deploy(routine(each(twice)))
        for _ in range(4):
            await story.run(minutes=10)
        assert set((await items(story, wf)).values()) == {"done"}
        assert len(sent(story)) == len(sent(story, "sheets.appendRow")) == 4
        assert all(run.reason != "logic" for run in await story.runs(wf))


async def test_a_replay_that_repeats_more_than_the_limit_gets_through(tmp_path: Path) -> None:
    calls = "".join(f"await ctx.gmail.send({{ to: 'a', subkey: '{n}' }});" for n in range(9))
    async with Story(tmp_path, policy=Policy(script_calls_max=9)) as story:
        fill(story, 1)
        story.world.on("sheets.appendRow").fail(Transient("Come later."))
        more = "await ctx.sheets.appendRow({ spreadsheetId: 's', values: [1] });"
        wf = await story.deploy_and_run(routine(each(calls)))
        assert len(sent(story)) == 9
        [done] = await story.keep.items(wf)
        await story.deploy(routine(each(calls + more)), workflow_id=wf)
        await story.keep.reprocess(done.id)
        await story.run(minutes=5)  # nine mails more, and no room for the row
        run = await story.last(wf)
        assert (run.status, len(sent(story))) == ("failed:logic", 18)
        await story.keep.retry(run.id)
        await story.run()  # the mails are in the ledger: the row is sent, and fails once
        await story.run(minutes=10)
        assert await items(story, wf) == {"i00000": "done"}
        assert (len(sent(story)), len(sent(story, "sheets.appendRow"))) == (18, 1)


async def test_a_run_that_wants_to_send_too_much_stops_and_names_the_limit(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(script_calls_max=5)) as story:
        fill(story, 6)
        wf = await story.deploy_and_run(routine(each(MAIL)))
        run = await story.last(wf)
        assert (run.status, len(sent(story))) == ("failed:logic", 5)
        assert run.error is not None
        assert "more than 5 mutations" in run.error.message
        assert run.error.line is not None


async def test_a_routine_that_begins_too_many_items_is_stopped(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(items_per_run_max=20)) as story:
        fill(story, 20)
        wf = await story.deploy_and_run(routine(each("")))
        assert (await story.last(wf)).status == "committed"
        fill(story, 21)
        await story.run(minutes=5)
        run = await story.last(wf)
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "20" in run.error.message


def publishing(body: str) -> str:
    return workflow(producers={"poll": producer(body)}, consumers={"take": consumer()})


MANY = """
  for (let n = 0; n < COUNT; n++) {
    const inputId = ctx.registerInput({ source: "feed", type: "item", id: "i" + n, title: "Item " + n });
    await ctx.publish("in", { messageId: "m" + n, inputId, payload: "x".repeat(SIZE) });
  }
"""


def many(count: int, size: int = 1) -> str:
    return publishing(MANY.replace("COUNT", str(count)).replace("SIZE", str(size)))


async def test_a_producer_publishes_as_many_events_as_it_may(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(script_calls_max=1, events_per_run_max=40)) as story:
        wf = await story.deploy_and_run(many(40))
        assert (await story.runs(wf, "poll"))[0].status == "committed"
        assert len(await story.ids(wf, "in")) == 40


async def test_ten_thousand_events_in_one_run_are_within_the_limits(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(script_s=300)) as story:  # its time is not what is tried here
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(
            MANY.replace("COUNT", "10000").replace("SIZE", "1"))}))
        assert (await story.last(wf)).status == "committed"
        with story.store.raw() as tables:
            assert [count for (count,) in tables.execute("select count(*) from event where topic = 'in'")] == [10_000]


REFUSED = {
    "one event too many": (
        many(41).replace('id: "i" + n', 'id: "i"'), Policy(events_per_run_max=40), "40 events"),
    "one input too many": (publishing("""
      for (let n = 0; n < 41; n++) ctx.registerInput({ source: "feed", type: "item", id: "i" + n, title: "x" });
    """), Policy(events_per_run_max=40), "40 inputs"),
    "payloads that are too large together": (many(5, 300), Policy(run_bytes_max=1000), "1,000 bytes"),
}


@pytest.mark.parametrize(("source", "policy", "said"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_a_run_may_hold_in_memory_has_a_limit(
    tmp_path: Path, source: str, policy: Policy, said: str,
) -> None:
    async with Story(tmp_path, policy=policy) as story:
        wf = await story.deploy_and_run(source)
        run = await story.last(wf, "poll")
        assert run.status == "failed:logic"
        assert run.error is not None
        assert said in run.error.message
        assert await story.ids(wf, "in") == []
