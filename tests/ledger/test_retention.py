"""Retention: the content of finished work goes, what happened stays, and nothing is done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai import Keep, Policy, Transient
from keepai.ledger import guards
from keepai.ledger.checks import check
from keepai.model.errors import Refused
from tests.harness import POLL, Story, consumer, producer, take_first, workflow
from tests.ledger.stores import REFUSED, columns, reads

pytestmark = pytest.mark.both_stores
SCRIPT = workflow(
    producers={"poll": producer(POLL)},
    consumers={"take": consumer(
        take_first(), publishes=["out"],
        mutate='await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.messageId] });',
        next='await ctx.publish("out", { messageId: prepared.data.messageId, payload: { big: "x".repeat(50) } });',
    )},
)
LONG_AGO = {"days": 100}


@pytest.fixture
async def story(tmp_path: Path) -> Any:
    """Two items are worked off; a hundred days later nothing else has happened."""
    async with Story(tmp_path) as made:
        wf = await made.deploy(SCRIPT)
        made.feed.put("a", {"secret": "plain text"})
        made.feed.put("b", {"secret": "plain text"})
        await made.run()
        await made.keep.pause(wf)
        made.clock.advance(**LONG_AGO)
        yield made


def sound(keep: Keep) -> bool:
    return all(each.sound for each in check(reads(keep.parts.ledger)))


def content(story: Story) -> dict[str, int]:
    """How much content there is, by table."""
    with story.store.raw() as connection:
        def one(text: str) -> int:
            return int(connection.execute(text).fetchone()[0] or 0)
        return {
            "trace": one("select count(*) from trace"),
            "run": one("select sum(length(prepare_result)) from run"),
            "event": one("select sum(length(payload)) from event where status <> 'pending'"),
            "reservation": one("select sum(length(coalesce(r.payload, e.payload))) "
                               "from reservation r join event e on e.id = r.event_id"),
        }


async def test_content_goes_and_what_happened_stays(story: Story) -> None:
    keep, wf = story.keep, "story"
    before = [await keep.inputs(wf), await keep.mutations(wf), await keep.outputs(wf)]
    runs = [(r.id, r.status, r.outcome) for r in await keep.runs(wf)]
    assert all(content(story).values())
    done = await keep.prune(days=90)
    assert (done.runs, done.events) == (len(runs), 2)
    assert not any(content(story).values())
    assert [await keep.inputs(wf), await keep.mutations(wf), await keep.outputs(wf)] == before
    assert [(r.id, r.status, r.outcome) for r in await keep.runs(wf)] == runs
    events = [(e.message_id, e.status.value, e.payload, e.pruned) for e in await keep.events(wf, "in")]
    assert events == [("a", "consumed", None, True), ("b", "consumed", None, True)]
    assert sound(keep)


async def test_a_dry_run_says_what_would_go_and_changes_nothing(story: Story) -> None:
    before = content(story)
    measured = await story.keep.prune(days=90, dry_run=True)
    assert content(story) == before
    assert await story.keep.prune(days=90) == measured
    assert measured.bytes > 100
    assert (await story.keep.prune(days=90)).runs == 0


async def test_what_is_younger_stays(story: Story) -> None:
    assert (await story.keep.prune(days=101)).runs == 0
    assert (await story.keep.prune()).runs == 0  # by default it is kept for a hundred years
    assert all(content(story).values())


async def test_nothing_that_was_seen_is_taken_for_new(story: Story) -> None:
    await story.keep.prune(days=90)
    await story.keep.resume("story")
    await story.run(minutes=10)
    assert len(story.world.effects) == 2
    assert len(await story.keep.inputs("story")) == 2
    assert sound(story.keep)


async def test_a_pruned_event_is_processed_again_only_if_it_was_published_again(story: Story) -> None:
    await story.keep.prune(days=90)
    [event, _] = await story.keep.events("story", "in")
    assert [m.acts for m in (await story.keep.explain(event.id)).moved_by] == [()]  # so it is not offered either
    with pytest.raises(Refused, match="was pruned"):
        await story.keep.reprocess(event.id)
    await story.keep.resume("story")
    await story.run(minutes=10)  # the producer publishes what it finds, as ever
    assert ("reprocess",) in [m.acts for m in (await story.keep.explain(event.id)).moved_by]
    await story.keep.reprocess(event.id)
    await story.run()
    assert len(story.world.effects) == 3
    assert sound(story.keep)


async def test_what_waits_or_is_in_doubt_is_never_touched(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        await story.deploy(SCRIPT)
        story.feed.put("a", {"n": 1})
        story.feed.put("b", {"n": 2})
        story.world.on("sheets.appendRow").lose_answer(times=None)
        story.world.on_reconcile("sheets.appendRow").unknown(times=None)
        await story.run()
        assert [q.kind for q in await story.keep.needs_you()] == ["unknown_outcome"]
        await story.keep.pause("story")
        story.clock.advance(**LONG_AGO)
        done = await story.keep.prune(days=90)
        assert (done.runs, done.events) == (1, 0)  # the producer's own, which has committed
        assert [e.payload for e in await story.keep.events("story", "in")] == [{"n": 1}, {"n": 2}]
        await story.keep.resume("story")
        [question] = await story.keep.needs_you()
        await story.keep.resolve(str(question.mutation_id), "happened", {"rowId": "r"})
        await story.run()
        assert sound(story.keep)


async def test_a_chain_of_runs_is_emptied_as_a_whole(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        await story.deploy(SCRIPT)
        story.feed.put("a", {"n": 1})
        story.world.on("sheets.appendRow").fail(Transient("busy"), times=2)
        await story.run()
        await story.run(minutes=1)
        await story.crash("before:apply", minutes=5)
        await story.run(minutes=5)
        assert [r.status for r in await story.runs("story", "take")][-1] == "committed"
        await story.keep.pause("story")
        story.clock.advance(**LONG_AGO)
        await story.keep.prune(days=90)
        assert not any(content(story).values())
        assert sound(story.keep)


async def test_a_run_that_left_an_item_unfinished_keeps_its_trace(tmp_path: Path) -> None:
    script = """export default Keep.workflow({ name: "story", routines: { go: { schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        for (const item of await ctx.feed.list({})) {
          await ctx.withItem(item.id, item.id, async (ctx) => {
            if (ctx.item.isDone) return;
            if (item.id === "bad") throw new Error("bad");
            await ctx.sheets.appendRow({ spreadsheetId: "s", values: [item.id] });
          });
        } return state; } } } });"""
    async with Story(tmp_path) as story:
        await story.deploy(script)
        story.feed.put("good")
        await story.run()
        story.feed.put("bad")
        await story.run(minutes=5)
        await story.deploy(script.replace("ctx.feed.list({})", "[]"))  # the mended script offers it no more
        await story.run(minutes=5)
        assert [i.status.value for i in await story.keep.items("story")] == ["done", "failed"]
        await story.keep.pause("story")
        story.clock.advance(**LONG_AGO)
        ended = {r.id for r in await story.runs("story") if not r.status.startswith("failed")}
        assert 0 < (await story.keep.prune(days=90)).runs < len(ended)
        assert content(story)["trace"] > 0
        [question] = await story.keep.needs_you()
        await story.keep.skip_input(str(question.facts["input_id"]))
        story.clock.advance(**LONG_AGO)
        await story.keep.prune(days=90)
        assert content(story)["trace"] == 0
        assert sound(story.keep)


async def test_more_than_one_stretch_is_looked_at(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.ledger.transitions.pruning.WINDOW", 3)
    await story.keep.prune(days=90)
    assert not any(content(story).values())
    assert sound(story.keep)


async def test_the_account_tells_that_it_was_done_and_by_whom(story: Story) -> None:
    await story.keep.prune(days=90)
    acts = story.reader().all("action_all", workflow_id=(await story.keep.workflows())[0].id)
    assert [a["actor"] for a in acts if a["act"] == "prune"] == ["person"]


async def test_a_serving_host_prunes_by_itself(tmp_path: Path) -> None:
    import asyncio

    async with Story(tmp_path, policy=Policy(retention_days=90)) as story:
        wf = await story.deploy(SCRIPT)
        story.feed.put("a", {"n": 1})
        await story.run()
        await story.keep.pause(wf)
        story.clock.advance(**LONG_AGO)
        serving = asyncio.ensure_future(story.keep.serve())
        for _ in range(2000):
            await asyncio.sleep(0.01)
            if not any(content(story).values()):
                break
        await story.keep.host.close()
        await serving
        assert not any(content(story).values())


# -- the database refuses too ----------------------------------------------------------------------


async def test_only_ended_content_can_be_emptied_and_nothing_else_changed(story: Story) -> None:
    await story.keep.close()
    with story.store.raw() as connection:
        for text in (
            "update run set prepare_result = '{}' where status = 'committed'",
            "update run set prepare_result = '', outcome = null where status = 'committed'",
            "update reservation set payload = '{}'",
            "update reservation set payload = '', attempt = attempt + 1",
        ):
            with pytest.raises(REFUSED):
                connection.execute(text)
        taken_up = "update event set status = 'pending', payload = 'x', attempt = 2 where message_id = 'a'"
        with pytest.raises(REFUSED, match="pinned"):
            connection.execute(taken_up)
        connection.execute("update reservation set payload = (select payload from event e where e.id = event_id)")
        connection.execute(taken_up)
        with pytest.raises(REFUSED):
            connection.execute("update reservation set payload = '' where message_id = 'a'")
    await story.open()


@pytest.mark.parametrize(("table", "column"), [("run", "prepare_result"), ("reservation", "payload")])
async def test_the_triggers_know_every_column(story: Story, table: str, column: str) -> None:
    with story.store.raw() as connection:
        names = {name for name, _, _ in columns(connection, table)}
    assert {*guards._REST[table], column} == names
