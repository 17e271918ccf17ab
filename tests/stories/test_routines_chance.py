"""Time and chance in a routine: a replay sees what the first try saw, so that an id made from them is the same one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepai import Transient
from keepai.model.clock import iso
from tests.harness import START, Story
from tests.routines import each, items, routine, sent

#: What a script takes an id from, and where it takes it.
SOURCES = {
    "the time": "String(Date.now())",
    "the date": "new Date().toISOString()",
    "chance": "String(Math.random())",
}
SEND = 'await ctx.gmail.send({ to: "a@example.com", subkey: of });'
MAIL_THEN_ROW = (
    "const of = Date.now() + ' ' + Math.random();" + SEND
    + 'await ctx.sheets.appendRow({ spreadsheetId: "s", values: [1] });'
)


@pytest.mark.parametrize("of", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("point", ["after:apply", "before:end_item", "after:end_item", "before:commit_routine"])
async def test_an_item_named_by_time_or_chance_is_the_same_item_after_a_crash(
    story: Story, of: str, point: str,
) -> None:
    once = f"if (!ctx.item.isDone) {SEND}"
    work = f"const of = {of}; await ctx.withItem(of, `Mail ${{of}}`, async (ctx) => {{ {once} }});"
    wf = await story.deploy(routine(work))
    await story.crash(point)
    await story.run(minutes=3)
    assert list((await items(story, wf)).values()) == ["done"]
    assert len(sent(story)) == 1


@pytest.mark.parametrize("of", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("where", ["in the item", "before the items", "when the script is loaded"])
async def test_a_subkey_made_of_time_or_chance_sends_once_after_a_crash(story: Story, of: str, where: str) -> None:
    taken = f"const of = {of};"
    top, before, inside = (taken if where == place else "" for place in (
        "when the script is loaded", "before the items", "in the item"))
    body = f"{before} await ctx.withItem('a', 'Item a', async (ctx) => {{ {inside} {SEND} }});"
    wf = await story.deploy(top + routine(body))
    await story.crash("after:apply")
    await story.run(minutes=3)
    assert await items(story, wf) == {"a": "done"}
    assert len(sent(story)) == 1


async def test_after_a_transient_failure_and_a_new_version_a_replay_still_sees_the_same(story: Story) -> None:
    story.feed.put("a")
    story.world.on("sheets.appendRow").fail(Transient("Come later."), times=2)
    wf = await story.deploy_and_run(routine(each(MAIL_THEN_ROW)))
    await story.run(minutes=20)
    await story.deploy("// another version\n" + routine(each(MAIL_THEN_ROW)), workflow_id=wf)
    await story.run(minutes=20)
    assert await items(story, wf) == {"a": "done"}
    assert len(sent(story)) == 1


#: Logs what each place sees: before, in and after the items. A done item draws nothing.
LOOK = """
  const see = (where) => ctx.log(JSON.stringify([where, Date.now(), Math.random(), Math.random()]));
  see("before");
  for (const item of await ctx.feed.list({})) {
    await ctx.withItem(item.id, item.id, async (ctx) => {
      if (ctx.item.isDone) return;
      see(item.id);
      if (item.payload === "row") await ctx.sheets.appendRow({ spreadsheetId: "s", values: [1] });
      else await ctx.gmail.send({ to: item.id });
    });
    see("after " + item.id);
  }
"""


async def seen(story: Story, wf: str) -> list[dict[str, list[Any]]]:
    """What each run saw, by place."""
    runs = [[json.loads(line) for line in story.logs(run)] for run in await story.runs(wf)]
    return [{where: rest for where, *rest in lines} for lines in runs]


async def test_a_replay_that_passes_over_done_items_sees_the_same_elsewhere(story: Story) -> None:
    story.feed.put("a")
    story.feed.put("b")
    story.feed.put("c", "row")
    story.world.on("sheets.appendRow").fail(Transient("Come later."))
    wf = await story.deploy_and_run(routine(LOOK))
    await story.run(minutes=2)
    assert set((await items(story, wf)).values()) == {"done"}
    first, second = await seen(story, wf)
    assert list(first) == ["before", "a", "after a", "b", "after b", "c"]
    assert list(second) == ["before", "after a", "after b", "c", "after c"]
    assert {where: second[where] for where in first if where in second} == {
        where: first[where] for where in first if where in second}
    drawn = [number for told in (first | second).values() for number in told[1:]]
    assert len(set(drawn)) == len(drawn), "each place draws its own numbers"


async def test_the_time_is_when_the_lineage_began_and_the_next_one_sees_its_own(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("Come later."), times=1)
    wf = await story.deploy_and_run(routine(LOOK))
    await story.run(minutes=2)
    story.feed.put("b")
    await story.run(minutes=20)
    first, again, later = await seen(story, wf)
    runs = await story.runs(wf)
    assert iso(first["before"][0]) == iso(runs[0].created_at) == START.replace("Z", ".000Z")
    assert {told[0] for told in (*first.values(), *again.values())} == {runs[0].created_at}
    assert {told[0] for told in later.values()} == {runs[2].created_at}
    assert first["before"] != later["before"]
    assert first["a"] != later["b"]


async def test_a_new_attempt_of_an_item_draws_anew(story: Story) -> None:
    wf = await story.deploy_and_run(routine(LOOK), "a")
    [done] = await story.keep.items(wf)
    await story.keep.reprocess(done.id)
    await story.run(minutes=5)
    first, second = await seen(story, wf)
    assert first["a"] != second["a"]
    assert first["a"][1:] != second["a"][1:]
    assert len(sent(story)) == 2


async def test_an_item_that_a_later_lineage_finishes_sees_what_the_first_one_saw(story: Story) -> None:
    story.feed.put("a")
    story.world.on("sheets.appendRow").fail(Transient("Come later."), times=1)
    wf = await story.deploy_and_run(routine(each(MAIL_THEN_ROW)))
    story.feed.items.clear()  # it vanishes, so that its lineage ends without it
    await story.run(minutes=2)
    assert await items(story, wf) == {"a": "failed"}
    story.feed.put("a")
    await story.run(minutes=10)
    assert await items(story, wf) == {"a": "done"}
    assert len({run.lineage for run in await story.runs(wf)}) == 2
    assert len(sent(story)) == 1


async def test_an_attempt_that_was_skipped_before_it_began_does_not_stop_its_routine(story: Story) -> None:
    wf = await story.deploy_and_run(routine(LOOK), "a")
    [done] = await story.keep.items(wf)
    await story.keep.reprocess(done.id)
    await story.keep.skip_input((await story.inputs(wf))["a"].id)
    await story.run(minutes=5)
    assert await items(story, wf) == {"a": "skipped"}
    assert (await story.last(wf)).status == "committed"
