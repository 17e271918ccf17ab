"""A ledger that is older than it was is noticed before anything of it is sent again (I38)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Keep, Transient, Verdict, mutation
from keepai.ledger.account import walk
from keepai.ledger.opening import open_reader
from keepai.model.errors import LedgerOlder, LedgerUnusable
from keepai.model.principals import Principal
from tests.harness import APPEND, FIRE, POLL, SEND, Story, consumer, producer, workflow
from tests.ledger.stores import reads

pytestmark = pytest.mark.both_stores

ADA = Principal.person("ada")
FLOW = workflow(producers={"poll": producer(POLL)})


async def worked(story: Story) -> str:
    """A host has worked on the ledger and ended."""
    wf = await story.deploy_and_run(FLOW, "a")
    await story.keep.close()
    return wf


async def works_on(story: Story) -> None:
    """Another host works on it, and ends."""
    await story.open()
    story.feed.put("b")
    await story.run(minutes=5)
    await story.keep.close()


def content(story: Story) -> list[Any]:
    """What is at the ledger's place: which tables, and the hosts and the account in them."""
    with story.store.raw() as place:
        if isinstance(story.path, Path):
            tables = [name for (name,) in place.execute("select name from sqlite_schema where type = 'table'")]
        else:
            tables = [name for (name,) in place.execute("select tablename from pg_tables where schemaname = 'keep'")]
        return [sorted(tables), *(list(place.execute(f"select * from {table} order by 1"))
                                  for table in ("host", "account") if table in tables)]


def what_is_told(story: Story) -> str:
    """What `keep status`, `keep doctor` and the page say of a ledger that no host has."""
    with closing(open_reader(story.path)) as read:
        return read.refused or ""


OLDER = r"older than it was.*would be sent again.*keep db accept-older"


async def test_a_ledger_that_was_put_back_from_a_backup_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    assert what_is_told(story) == ""
    backup = story.store.copied(tmp_path / "backup")
    await works_on(story)
    story.store.become(backup)
    before = content(story)
    for _ in range(2):  # a refusal is no acceptance
        with pytest.raises(LedgerUnusable, match=OLDER):
            await story.open()
        assert re.search(OLDER, what_is_told(story))
    assert content(story) == before


async def test_a_backup_that_has_come_further_elsewhere_is_refused_where_it_does_not_have_what_was_there(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Story(tmp_path / "elsewhere")
    elsewhere.store.become(story.store)
    await works_on(story)
    for _ in range(3):
        await works_on(elsewhere)
    story.store.become(elsewhere.store)
    with pytest.raises(LedgerOlder, match=r"older than it was.* then is not in it.*keep db accept-older"):
        await story.open()


async def test_a_backup_that_lacks_only_a_host_is_refused_because_another_would_get_its_number(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    backup = story.store.copied(tmp_path / "backup")
    await story.open()
    host = story.keep.parts.ledger.host
    await story.keep.close()
    story.store.become(backup)
    with pytest.raises(LedgerOlder, match=f"older than it was.*the host {host} is not in it"):
        await story.open()


async def test_a_person_may_go_on_with_it_and_the_account_says_so(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    wf = await worked(story)
    backup = story.store.copied(tmp_path / "backup")
    await works_on(story)
    story.store.become(backup)
    connectors = [*story.world.connectors(), story.feed]
    async with Keep(story.path, connectors=connectors, clock=story.clock, principal=ADA, accept_older=True) as keep:
        told = (await keep.explain(wf)).story[-1]
        assert (told.machine, told.target, told.by) == ("act", "accept_older", "person:ada")
    await story.open()  # from now on it is the ledger
    await story.keep.close()


@pytest.mark.parametrize("other", [False, True])
async def test_an_empty_or_other_ledger_in_the_place_of_one_that_has_worked_is_refused(
    tmp_path: Path, other: bool,
) -> None:
    story = Story(tmp_path)
    await story.open()
    await worked(story)
    story.store.vanish()
    if other:
        (tmp_path / "elsewhere").mkdir()
        elsewhere = Story(tmp_path / "elsewhere")
        await elsewhere.open()
        await worked(elsewhere)
        story.store.become(elsewhere.store)
    before = content(story) if other else None
    said = "is not the ledger that was here" if other else "There is no ledger at .* any more"
    for _ in range(2):
        with pytest.raises(LedgerOlder, match=f"{said}.*would be sent again.*keep db accept-older"):
            await story.open()
        with pytest.raises(LedgerOlder, match=said):
            raise LedgerOlder(what_is_told(story))  # of a place without a ledger the reader itself raises it
    assert content(story) == (before or [[]])
    async with Keep(story.path, clock=story.clock, principal=ADA, accept_older=True) as keep:
        assert len(await keep.workflows()) == int(other)
        assert [move["actor"] for move in walk(reads(keep.parts.ledger))][-1] == "person:ada"
    await story.open()  # from now on it is the ledger
    await story.keep.close()


async def test_a_ledger_that_vanished_before_it_had_done_anything_is_made_anew(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await story.keep.close()
    story.store.vanish()
    await story.open()
    await story.keep.close()


async def test_what_a_killed_host_had_synced_is_there_and_is_not_taken_for_older(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.open()
    await story.deploy(FLOW)
    story.feed.put("a")
    await story.crash("before:commit_producer")
    await story.run(hours=1)
    assert [w.status for w in await story.keep.workflows()] == ["active"]
    await story.keep.close()


# -- what was sent in the lost part is looked up before it is sent ------------------------------------


AGAIN = "await ctx.publish('out', { messageId: prepared.data.messageId, payload: mutationResult });"


def acting(mutate: str = SEND) -> str:
    """Polls the feed, and acts on each event in two steps."""
    second = consumer(subscribe=["out"], mutate=mutate.replace("messageId", "messageId + '-2'"))
    return workflow(
        producers={"poll": producer()},
        consumers={"act": consumer(mutate=mutate, publishes=["out"], next=AGAIN), "again": second},
    )


ROUTINE = """
export default Keep.workflow({
  name: "story", topics: {},
  routines: { all: { schedule: { interval: "5m" }, handler: async (ctx, state) => {
    for (const each of await ctx.feed.list({})) {
      await ctx.withItem(each.id, each.id, async ctx => {
        if (ctx.item.isDone) return;
        await ctx.gmail.send({ to: each.id });
      });
    }
  } } }
});
"""


def sent(story: Story) -> list[str]:
    """What the outside has seen, in order."""
    return [str(effect.params.get("to") or effect.params.get("of")) for effect in story.world.effects]


@asynccontextmanager
async def put_back(tmp_path: Path, flow: str, *more: Connector) -> AsyncIterator[tuple[Story, str]]:
    """A host on a ledger whose newest part, in which b and c were sent, is gone; a person accepted that."""
    story = Story(tmp_path, connectors=more)
    await story.open()
    wf = await story.deploy_and_run(flow, "a")
    await story.keep.close()
    backup = story.store.copied(tmp_path / "backup")
    await story.open()
    for name in ("b", "c"):
        story.feed.put(name)
        await story.run(minutes=5)
    await story.keep.close()
    story.store.become(backup)
    connectors = [*story.world.connectors(), story.feed, *more]
    story.keep = Keep(story.path, connectors=connectors, clock=story.clock, accept_older=True)
    await story.keep.__aenter__()
    try:
        yield story, wf
    finally:
        await story.keep.close()


@pytest.mark.parametrize("flow", [acting(), ROUTINE], ids=["consumers", "routine"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_can_be_looked_up_is_not_sent_again(tmp_path: Path, flow: str, restarted: bool) -> None:
    async with put_back(tmp_path, flow) as (story, wf):
        before = sent(story)
        assert len(before) >= 3
        if restarted:
            await story.reopen()
        story.feed.put("d")
        await story.run(minutes=5)
        assert sent(story)[:len(before)] == before
        new = sent(story)[len(before):]
        assert new == (["d"] if flow == ROUTINE else ["d", "d-2"])  # what is not there is sent
        states = [m.status for m in await story.keep.mutations(wf)]
        assert set(states) == {"applied"}
        assert len(states) == len(sent(story))
        assert await story.keep.needs_you() == []


async def test_a_script_is_given_the_result_that_was_looked_up(tmp_path: Path) -> None:
    async with put_back(tmp_path, acting()) as (story, wf):
        first = {str(e.params["to"]): e.result for e in story.world.effects}
        await story.run(minutes=5)
        assert {m.params["to"]: m.result for m in await story.keep.mutations(wf)} == first  # type: ignore[index,call-overload]


async def test_what_cannot_be_looked_up_is_a_question_and_goes_out_once_on_a_persons_word(tmp_path: Path) -> None:
    async with put_back(tmp_path, acting(FIRE)) as (story, wf):
        before = sent(story)
        await story.run(minutes=5)
        assert sent(story) == before
        [asked] = await story.keep.needs_you()
        assert asked.kind == "unknown_outcome"
        assert "was put back" in str(asked.facts)
        assert "did_not_happen" in asked.actions
        await story.keep.resolve(str(asked.mutation_id), "did_not_happen")
        await story.run()
        assert sent(story) == [*before, "b"]
        [asked] = await story.keep.needs_you()  # about the next thing, not about the same
        assert asked.mutation_id != (await story.keep.mutations(wf))[-2].id


async def test_a_look_up_that_cannot_tell_asks_a_person(tmp_path: Path) -> None:
    async with put_back(tmp_path, acting()) as (story, _):
        before = sent(story)
        story.world.on_reconcile("gmail.send").unknown()
        story.world.on_reconcile("gmail.send").unknown()
        await story.run(minutes=5)
        assert sent(story) == before
        assert [each.kind for each in await story.keep.needs_you()] == ["unknown_outcome"]


class Archive(Connector):
    """An outside system in which an effect may show ten minutes after the call ended."""

    def __init__(self) -> None:
        super().__init__()
        self.put_there: list[str] = []

    @mutation(settle=600)
    async def put(self, params: dict[str, Any], call: Call) -> None:
        """Keep a name."""
        self.put_there.append(params["to"])

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Whether it shows."""
        return Verdict.applied() if params["to"] in self.put_there else Verdict.failed()


PUT = "await ctx.archive.put({ to: prepared.data.messageId });"


async def test_that_it_is_not_there_counts_only_when_nothing_can_arrive_any_more(tmp_path: Path) -> None:
    archive = Archive()
    async with put_back(tmp_path, acting(PUT), archive) as (story, wf):
        story.feed.items = []
        story.feed.put("d")
        await story.run(minutes=5)
        assert archive.put_there.count("d") == 0
        assert [m.status for m in await story.keep.mutations(wf)][-1] == "needs_reconcile"
        for _ in range(4):
            await story.run(minutes=10)
        assert archive.put_there.count("d") == 1


async def test_nothing_is_looked_up_any_more_once_the_workflow_has_caught_up(tmp_path: Path) -> None:
    async with put_back(tmp_path, acting()) as (story, _):
        await story.run(minutes=5)  # it brings b and c again
        await story.run(minutes=5)  # and now nothing new
        asked = story.world.count("gmail.send", "reconcile")
        assert asked > 0
        story.feed.put("d")
        await story.run(minutes=5)
        assert sent(story)[-2:] == ["d", "d-2"]
        assert story.world.count("gmail.send", "reconcile") == asked


async def test_an_event_from_before_it_caught_up_is_looked_up_however_late_it_is_sent(tmp_path: Path) -> None:
    async with put_back(tmp_path, acting()) as (story, _):
        before = sent(story)
        story.world.on_reconcile("gmail.send").unknown()
        story.world.on_reconcile("gmail.send").unknown()
        await story.run(minutes=5)  # b is in question, c waits
        await story.run(days=3)
        [asked] = await story.keep.needs_you()
        await story.keep.resolve(str(asked.mutation_id), "happened", {"id": "x"})
        await story.run(minutes=5)
        assert sent(story) == before


async def test_a_producer_that_always_brings_something_new_has_caught_up_after_as_much_time_as_was_lost(
    tmp_path: Path,
) -> None:
    async with put_back(tmp_path, acting(FIRE)) as (story, _):
        async def answered(minutes: int) -> int:
            questions = 0
            await story.run(minutes=minutes)
            while asked := await story.keep.needs_you():
                questions += 1
                await story.keep.resolve(str(asked[0].mutation_id), "did_not_happen")
                await story.run()
            return questions

        for number in range(2):
            story.feed.put(f"n{number}")
            assert await answered(25) > 0
        story.feed.put("last")
        assert await answered(25) == 0
        assert sent(story)[-2:] == ["last", "last-2"]



async def test_what_was_refused_and_then_sent_in_the_lost_part_is_found_under_its_second_key(tmp_path: Path) -> None:
    # I2, DESIGN 6: what is refused is sent again under another key; the lost part says nothing of either
    story = Story(tmp_path)
    await story.open()
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=APPEND)}))
    await story.keep.close()
    backup = story.store.copied(tmp_path / "backup")
    await story.open()
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    story.feed.put("a")
    for _ in range(2):
        await story.run(minutes=6)
    assert [each.attempts for each in await story.keep.mutations(wf)] == [1, 2]
    await story.keep.close()
    story.store.become(backup)
    connectors = [*story.world.connectors(), story.feed]
    async with Keep(story.path, connectors=connectors, clock=story.clock, accept_older=True) as keep:
        for _ in range(6):
            story.clock.advance(minutes=10)
            await keep.run_until_idle()
        assert [each.status for each in await keep.mutations(wf)] == ["applied"]
    assert [row["values"] for row in story.world.rows["s"]] == [["a"]]
