"""A backlog of any size can be worked through: `peek` gives a page, bounded by count and bytes, and goes on from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepai import Policy
from keepai.ledger.sqlite.connection import Statements
from keepai.model.records import Gap
from tests.harness import NOTHING, Story, consumer, js, producer, take_all, take_first, workflow

#: Walks through everything that waits, page by page, and logs what each page held and its cursor's presence.
WALK = """
  const pages = [];
  let after;
  do {
    const page = await ctx.peek("in", { limit: LIMIT, after });
    pages.push(page.map(e => e.messageId));
    after = page.cursor;
  } while (after !== undefined);
  ctx.log(JSON.stringify(pages));
  return { reservations: [], data: {} };
"""


def walking(limit: int | None = None) -> str:
    return workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(WALK.replace("LIMIT", "undefined" if limit is None else str(limit)))},
    )


async def pages(story: Story, wf: str) -> list[list[str]]:
    """The pages that the newest run of `take` saw."""
    run = await story.last(wf, "take")
    assert run.status == "committed", run.error
    found: list[list[str]] = json.loads(story.logs(run)[-1])
    return found


def fill(story: Story, sizes: list[int]) -> list[str]:
    """Events with payloads of these sizes; gives their ids in order."""
    for number, size in enumerate(sizes):
        story.feed.put(f"e{number:04}", "x" * size)
    return [f"e{number:04}" for number in range(len(sizes))]


async def test_a_hundred_events_of_50_kb_are_worked_through(story: Story) -> None:
    wf = await story.deploy(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(take_all().replace("data: data", "data: {}"))},
    ))
    fill(story, [50_000] * 70)  # one answer of the feed has 4 MiB at most
    await story.run()
    for number in range(70, 100):
        story.feed.items = []
        story.feed.put(f"e{number:04}", "x" * 50_000)
        await story.run(minutes=5)
    assert [r.error for r in await story.runs(wf) if r.status != "committed"] == []
    assert len(await story.ids(wf, "in", "consumed")) == 100


async def test_a_backlog_of_large_events_comes_in_pages_that_follow_on_each_other(story: Story) -> None:
    wf = await story.deploy(walking())
    ids = fill(story, [1_000_000, 1_000_000, 1_000_000])
    await story.run()
    assert await pages(story, wf) == [[id] for id in ids]


async def test_what_is_larger_than_the_bound_comes_alone(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(peek_bytes_max=1_000)) as story:
        wf = await story.deploy(walking())
        fill(story, [10, 2_000, 10, 10, 5_000, 3_000, 10])
        await story.run()
        assert await pages(story, wf) == [
            ["e0000"], ["e0001"], ["e0002", "e0003"], ["e0004"], ["e0005"], ["e0006"],
        ]


async def test_bytes_are_counted_and_not_letters(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(peek_bytes_max=1_000)) as story:
        wf = await story.deploy(walking())
        for name in ("a", "b"):
            story.feed.put(name, "é" * 300)  # 600 bytes each
        await story.run()
        assert await pages(story, wf) == [["a"], ["b"]]


async def test_the_last_of_a_long_backlog_is_reached(story: Story) -> None:
    wf = await story.deploy(walking(1_000))
    ids = fill(story, [1] * 1_001)
    await story.run()
    assert await pages(story, wf) == [ids[:1_000], ids[1_000:]]


@pytest.mark.parametrize(("waiting", "expected"), [(0, [0]), (9, [9]), (10, [10]), (11, [10, 1]), (20, [10, 10])])
async def test_there_is_a_cursor_only_when_more_waits(story: Story, waiting: int, expected: list[int]) -> None:
    wf = await story.deploy(walking(10))
    fill(story, [1] * waiting)
    await story.run()
    if waiting:
        assert [len(page) for page in await pages(story, wf)] == expected
    else:
        assert await story.runs(wf, "take") == []


async def test_what_was_taken_meanwhile_does_not_disturb_the_cursor(story: Story) -> None:
    """The cursor is kept in the state: the next run goes on from it, though what lay before it is gone."""
    prepare = """
      const page = await ctx.peek("in", { limit: 2, after: state?.after });
      ctx.log(JSON.stringify(page.map(e => e.messageId)));
      if (!page.length) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: page.map(e => e.messageId) }], data: { after: page.cursor } };
    """
    wf = await story.deploy(workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(prepare, next="return { after: prepared.data.after };")},
    ))
    ids = fill(story, [1] * 6)
    await story.run()
    logged = [json.loads(line) for run in await story.runs(wf, "take") for line in story.logs(run)]
    assert logged[:3] == [ids[:2], ids[2:4], ids[4:]]


@pytest.mark.parametrize("after", ["5", '"x"', '""', "{}", '"-1"', '"1e3"', '"9999999999999999999999"', "true"])
async def test_an_after_that_is_no_cursor_is_refused(story: Story, after: str) -> None:
    look = f'await ctx.peek("in", {{ after: {after} }}); {NOTHING}'
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"look": consumer(look)}), "a")
    run = await story.last(wf, "look")
    assert run.status == "failed:logic"
    assert run.error is not None
    assert "ctx.peek: after must be the cursor of an earlier page" in run.error.message


async def test_a_page_with_a_cursor_is_the_same_when_it_is_answered_ahead_of_time(story: Story) -> None:
    """From the second run on the first `peek` is foreseen; its cursor leads to the same rest."""
    prepare = """
      const first = await ctx.peek("in", { limit: 2 });
      const rest = first.cursor === undefined ? [] : await ctx.peek("in", { after: first.cursor });
      ctx.log(JSON.stringify([first.map(e => e.messageId), rest.map(e => e.messageId)]));
      if (!first.length) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [first[0].messageId] }], data: {} };
    """
    wf = await story.deploy(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(prepare, next="return {};")},
    ))
    ids = fill(story, [1] * 6)
    await story.run()
    logged = [json.loads(line) for run in await story.runs(wf, "take") for line in story.logs(run)]
    assert logged[:6] == [[ids[n : n + 2], ids[n + 2 :]] for n in range(6)]


async def test_a_large_first_page_is_bounded_when_it_is_answered_ahead_of_time(tmp_path: Path) -> None:
    prepare = """
      const page = await ctx.peek("in");
      ctx.log(`${page.length} ${page.cursor === undefined}`);
      if (!page.length) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: page.map(e => e.messageId) }], data: {} };
    """
    async with Story(tmp_path, policy=Policy(peek_bytes_max=1_000)) as story:
        wf = await story.deploy(workflow(
            producers={"poll": producer()}, consumers={"take": consumer(prepare, next="return {};")},
        ))
        fill(story, [400] * 6)
        await story.run()
        logged = [line for run in await story.runs(wf, "take") for line in story.logs(run)]
        assert logged[:3] == ["2 false", "2 false", "2 true"]


async def test_a_limit_that_is_lowered_is_warned_of_in_every_run(tmp_path: Path) -> None:
    look = """
      const page = await ctx.peek("in", { limit: 50 });
      await ctx.peek("in", { limit: 51 });
      if (!page.length) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [page[0].messageId] }], data: {} };
    """
    async with Story(tmp_path, policy=Policy(peek_max=10)) as story:
        wf = await story.deploy(workflow(
            producers={"poll": producer()}, consumers={"take": consumer(look, next="return {};")},
        ))
        fill(story, [1] * 3)
        await story.run()
        runs = await story.runs(wf, "take")
        assert len(runs) >= 3
        for run in runs:
            [warned] = story.warnings(run)
            assert "limit 50" in warned
            assert "10" in warned
            assert "cursor" in warned


@pytest.mark.sqlite("it counts the rows that its statements give")
async def test_no_more_is_read_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    iterate = Statements.iterate

    def counting(self: Statements, query: str, **params: object) -> Iterator[Any]:
        for row in iterate(self, query, **params):
            read.append(row["message_id"])
            yield row

    monkeypatch.setattr(Statements, "iterate", counting)
    async with Story(tmp_path, policy=Policy(peek_bytes_max=1_000)) as story:
        await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(
            f'await ctx.peek("in"); {NOTHING}')}))
        fill(story, [400] * 50)
        await story.run()
        assert len(read) == 3, "two fit, and the third says that there is more"


async def test_events_by_their_ids_are_bounded_too(tmp_path: Path) -> None:
    """R101: the script chose these ids, so it has to ask for fewer."""
    async with Story(tmp_path, policy=Policy(message_bytes_max=200_000)) as story:
        wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(
            f'await ctx.getByIds("in", {js([f"e{n:04}" for n in range(3)])}); {NOTHING}')}))
        for number in range(3):
            story.feed.items = []
            story.feed.put(f"e{number:04}", "x" * 90_000)
            await story.run(minutes=5)
        run = await story.last(wf, "take")
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "ctx.getByIds" in run.error.message
        assert "fewer ids" in run.error.message


# -- what nobody takes ---------------------------------------------------------------------------------------


async def left(story: Story, wf: str) -> list[Gap]:
    """What is said of consumers that leave what waits."""
    return [gap for gap in (await story.workflow(wf)).gaps if gap.looks is not None]


async def test_a_consumer_that_never_reserves_what_waits_is_shown_as_such(tmp_path: Path) -> None:
    picky = """
      const page = await ctx.peek("in");
      const wanted = page.filter(e => e.payload === "wanted");
      return { reservations: wanted.length ? [{ topic: "in", ids: wanted.map(e => e.messageId) }] : [], data: {} };
    """
    async with Story(tmp_path, policy=Policy(peek_default=2)) as story:
        wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"pick": consumer(picky)}))
        story.feed.put("a", "other")
        story.feed.put("b", "other")
        story.feed.put("c", "wanted")
        await story.run()
        await story.run(hours=2)
        [gap] = await left(story, wf)
        assert (gap.handler, gap.looks) == ("pick", 2)
        assert gap.since_at == (await story.event(wf, "in", "a")).created_at
        why = await story.keep.explain((await story.event(wf, "in", "c")).id)
        assert "'pick' has looked 2 times since it came and left it" in why.because
        whole = await story.keep.explain(wf)
        assert "'pick' has looked 2 times" in whole.because


async def test_a_consumer_that_works_through_its_backlog_has_no_gap(story: Story) -> None:
    first = take_first().replace("if (!event)", "if (!event || state?.count >= 3)")
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(
        first, next="return { count: (ctx.state?.count ?? 0) + 1 };",
    )}))
    fill(story, [1] * 3)
    await story.run()
    assert len(await story.ids(wf, "in", "consumed")) == 3
    assert await left(story, wf) == []
    story.feed.put("later", 1)
    await story.run(minutes=5)
    why = await story.keep.explain((await story.event(wf, "in", "later")).id)
    assert "'take' has looked 1 time since it came and left it" in why.because


async def test_a_consumer_that_says_when_it_looks_again_has_no_gap(story: Story) -> None:
    wait = "return { reservations: [], data: {}, wakeAt: new Date(Date.now() + 3600_000).toISOString() };"
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(wait)}))
    story.feed.put("a", 1)
    await story.run()
    await story.run(hours=1)
    assert await left(story, wf) == []


async def test_a_consumer_that_always_passes_over_the_oldest_is_shown(story: Story) -> None:
    newest = """
      const page = await ctx.peek("in");
      const event = page.filter(e => e.payload !== "old").at(-1);
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "in", ids: [event.messageId] }], data: {} };
    """
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(newest)}))
    story.feed.put("old", "old")
    await story.run()
    for number in range(12):
        story.feed.put(f"n{number}", 1)
        await story.run(minutes=5)
        story.feed.items = [i for i in story.feed.items if i["id"] == "old"]
    [gap] = await left(story, wf)
    assert gap.handler == "take"
    assert gap.looks is not None
    assert gap.looks >= 12
