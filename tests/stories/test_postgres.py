"""A host whose ledger is in PostgreSQL: work comes in, goes out once, and survives the host's death."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from keepai.ledger.checks import check
from keepai.ledger.opening import open_reader
from keepai.model.errors import NotFound
from tests import postgres
from tests.harness import POLL, Story, consumer, producer, take_first, workflow
from tests.ledger.stores import PostgresStore

SCRIPT = workflow(
    producers={"poll": producer(POLL)},
    consumers={"take": consumer(
        take_first(), publishes=["out"],
        mutate='await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data.messageId] });',
        next='await ctx.publish("out", { messageId: prepared.data.messageId, payload: {} });',
    )},
)


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


async def test_what_a_producer_finds_a_consumer_sends_once(story: Story, store: PostgresStore) -> None:
    wf = await story.deploy(SCRIPT)
    for name in ("a", "b", "c"):
        story.feed.put(name)
    await story.run()
    assert [row["values"] for row in story.world.rows["s"]] == [["a"], ["b"], ["c"]]
    assert await story.ids(wf, "in", "consumed") == ["a", "b", "c"]
    assert await story.ids(wf, "out") == ["a", "b", "c"]
    with closing(open_reader(store.url)) as read:
        before = read.change()
        assert [each.said for each in check(read) if not each.sound] == []
        await story.keep.pause(wf)
        assert read.change() != before


@pytest.mark.parametrize("point", [
    "before:prepare_and_send", "after:prepare_and_send", "before:apply", "after:apply", "before:commit_consumer",
    "after:commit_consumer", "before:commit_producer",
])
async def test_a_host_that_died_anywhere_goes_on_and_sends_nothing_twice(
    story: Story, store: PostgresStore, point: str,
) -> None:
    wf = await story.deploy(SCRIPT)
    story.feed.put("a")
    await story.crash(point)
    for _ in range(3):
        await story.run(minutes=30)
    assert [row["values"] for row in story.world.rows["s"]] == [["a"]]
    assert await story.ids(wf, "out") == ["a"]
    assert await story.keep.needs_you() == []
    with closing(open_reader(store.url)) as read:
        assert [each.said for each in check(read) if not each.sound] == []


def test_a_look_at_a_database_without_a_ledger_makes_none(store: PostgresStore) -> None:
    store.server.run("create database empty")
    url = store.url.replace(store.database, "empty")
    with pytest.raises(NotFound, match="There is no ledger at") as refused:
        open_reader(url)
    assert postgres.PASSWORD not in refused.value.message
    store.server.run("drop database empty with (force)")
