"""`keep.verdict`: what a new version does to everything that is open, before it is deployed, and that it is so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from keepai.engine.verdict import DeployVerdict, OpenThing
from tests.harness import APPEND, FIRE, NOTHING, Story, acting, consumer, producer, workflow
from tests.routines import guarded, routine

ASK = {"gmail.send": "ask", "feed.list": "allow", "sheets.appendRow": "allow"}
LATER = "ctx.log('version two');"


def told(verdict: DeployVerdict, kind: str = "") -> list[tuple[str, str]]:
    """Kind and fate of everything, in order."""
    return [(each.kind, each.what.value) for each in verdict.things if kind in ("", each.kind)]


def tried(verdict: DeployVerdict) -> list[str | None]:
    """What came of each of them on the copy, in order."""
    return [each.tried and each.tried.value for each in verdict.things]


async def carried(story: Story, wf: str) -> Sequence[tuple[str, str, str]]:
    return [(run.handler, run.version, run.status) for run in await story.runs(wf, "act")]


async def test_a_call_that_waits_for_a_person_starts_again_and_its_card_becomes_void(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a", "b", grants=ASK)
    asked = await story.question(wf)
    new = acting(before=LATER)
    verdict = await story.keep.verdict(new)
    assert (verdict.version, verdict.before, verdict.refused) == ("2.0", "1.0", None)
    assert told(verdict) == [
        ("run", "starts_again"), ("approval", "void"), ("event", "starts_again"), ("event", "waits")]
    assert [each.id for each in verdict.things if each.kind == "approval"] == [asked.id]
    assert [each.title for each in verdict.things if each.kind == "event"] == ["Item a", "Item b"]
    # Nothing of it stayed: the card is there, the version is the old one, and the account is whole.
    assert [q.id for q in await story.keep.needs_you(wf)] == [asked.id]
    assert (await story.workflow(wf)).version == "1.0"
    done = await story.keep.deploy(new)
    assert done.verdict is not None
    assert told(done.verdict) == told(verdict)
    await story.run()
    assert [q.id for q in await story.keep.needs_you(wf)] != [asked.id]
    assert await carried(story, wf) == [("act", "1.0", "superseded"), ("act", "2.0", "paused:approval")]


async def test_a_call_whose_outcome_is_unknown_holds_its_run_under_the_old_version(story: Story) -> None:
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(acting(FIRE), "a")
    verdict = await story.keep.verdict(acting(FIRE, before=LATER))
    assert told(verdict) == [("run", "goes_on"), ("event", "goes_on")]
    assert "until it is known" in verdict.things[0].words
    await story.deploy(acting(FIRE, before=LATER))
    await story.run()
    assert await carried(story, wf) == [("act", "1.0", "paused:reconciliation")]


async def test_a_call_that_happened_is_finished_with_its_outcome_by_next_of_the_new_version(story: Story) -> None:
    wf = await story.deploy_and_run(acting(next="null.x;"), "a")
    new = acting(next="ctx.log('mended');")
    verdict = await story.keep.verdict(new)
    assert told(verdict) == [("run", "finishes"), ("event", "finishes")]
    assert verdict.things[0].came == "it would commit"
    await story.deploy(new)
    await story.run()
    assert len(story.world.effects) == 1
    assert await carried(story, wf) == [("act", "1.0", "superseded"), ("act", "2.0", "committed")]


async def test_events_that_nobody_takes_are_named_and_only_strand_deploys_that(story: Story) -> None:
    wf = await story.deploy_and_run(acting("null.x;"), "a", "b")
    gone = workflow(producers={"poll": producer()})
    verdict = await story.keep.verdict(gone)
    assert verdict.refused is not None
    assert "--strand" in verdict.refused
    assert told(verdict) == [("run", "given_up"), ("event", "nobody"), ("event", "nobody")]
    done = await story.keep.deploy(gone, strand=True)
    assert done.verdict is not None
    assert done.verdict.things == verdict.things
    await story.run()
    assert await carried(story, wf) == [("act", "1.0", "abandoned")]
    assert [event.status for event in await story.events(wf, "in")] == ["pending", "pending"]


async def test_results_that_a_new_handler_takes_become_work(story: Story) -> None:
    await story.deploy_and_run(workflow(producers={"poll": producer()}), "a", "b")
    verdict = await story.keep.verdict(acting(), grants="all")
    assert told(verdict) == [("event", "becomes_work"), ("event", "becomes_work")]
    assert tried(verdict) == ["taken", "taken"]
    assert [each.assumed for each in verdict.things] == [False, True]
    assert story.world.effects == []


async def test_a_new_workflow_and_the_same_script_have_nothing_open(story: Story) -> None:
    assert (await story.keep.verdict(acting())).workflow_id is None
    await story.deploy_and_run(acting("null.x;"), "a")
    same = await story.keep.verdict(acting("null.x;"))
    assert (same.changed, same.things) == (False, ())


async def test_a_verdict_is_not_remembered_by_the_host(story: Story) -> None:
    """Version 2.0 that was looked at and version 2.0 that is deployed are two scripts."""
    wf = await story.deploy_and_run(acting("null.x;"), "a")
    await story.keep.verdict(workflow(producers={"poll": producer()}))
    await story.deploy(acting(APPEND))
    await story.run()
    assert [effect.operation for effect in story.world.effects] == ["sheets.appendRow"]
    assert (await story.workflow(wf)).version == "2.0"


async def test_an_approval_that_has_expired_is_not_asked_for_again_under_a_new_version(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a", grants=ASK)
    story.clock.advance(hours=25)
    new = acting(FIRE)
    assert told(await story.keep.verdict(new, grants="all"))[:2] == [("run", "starts_again"), ("approval", "void")]
    await story.deploy(new)
    await story.run()
    assert [row["status"] for row in await story.rows("approval_all", workflow_id=wf)] == ["void"]


@pytest.mark.parametrize("held", ["paused", "stopped"])
async def test_a_workflow_that_a_person_holds_says_when_it_is_that_something_happens(story: Story, held: str) -> None:
    wf = await story.deploy_and_run(acting("null.x;"), "a")
    await (story.keep.pause if held == "paused" else story.keep.stop)(wf)
    [run] = [each for each in (await story.keep.verdict(acting())).things if each.kind == "run"]
    assert isinstance(run, OpenThing)
    assert f"when the workflow is resumed: it is {held}" in run.words


async def test_a_run_that_is_parked_starts_again_and_an_item_goes_with_its_run(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a", "b", grants=ASK)
    await story.keep.set(wf, "others")
    await story.run()
    new = acting(before=LATER)
    assert told(await story.keep.verdict(new), "parked run") == [("parked run", "starts_again")] * 2


async def test_an_item_that_a_routine_left_waits_for_it_or_for_nobody(story: Story) -> None:
    story.feed.put("a")
    source = routine(guarded("null.x;"))
    wf = await story.deploy_and_run(source)
    held = await story.keep.verdict(source + "// two")
    assert told(held) == [("run", "starts_again"), ("item", "starts_again")]
    await story.keep.skip_run((await story.last(wf)).id)
    story.feed.put("b")
    await story.deploy_and_run(source + "// three")
    other = await story.keep.verdict(source.replace("work:", "labour:"))
    assert told(other) == [("run", "given_up"), ("item", "nobody")]


async def test_a_run_that_works_at_this_moment_ends_under_its_version_and_nothing_is_tried(story: Story) -> None:
    sending = asyncio.Event()
    story.world.on("gmail.send").before(lambda params, call: sending.set()).hang(applied=True)
    story.feed.put("a")
    wf = await story.deploy(acting())
    working = asyncio.ensure_future(story.keep.run_until_idle())
    await sending.wait()
    verdict = await story.keep.verdict(acting(before=LATER), grants="all")
    assert told(verdict) == [("run", "under_way"), ("event", "under_way")]
    await story.deploy(acting(before=LATER))
    story.world.release()
    await working
    await story.run()
    assert await carried(story, wf) == [("act", "1.0", "committed")]


# -- what is tried on a copy ------------------------------------------------------------------------


async def test_an_event_on_which_the_new_script_fails_is_named_with_the_line(story: Story) -> None:
    await story.deploy_and_run(acting("null.x;"), "a", "b", "c")
    faulty = acting(before="const [first] = await ctx.peek('in');\nif (first?.messageId === 'b') null.x;\n")
    verdict = await story.keep.verdict(faulty, grants="all")
    events = [each for each in verdict.things if each.kind == "event"]
    line = next(n for n, text in enumerate(faulty.splitlines(), 1) if "null.x" in text)
    assert [each.tried for each in events] == ["taken", None, None]
    assert f"fail at line {line}" in verdict.because[0]
    assert verdict.not_tried == 2


async def test_what_reads_is_tried_only_if_that_is_wanted(story: Story) -> None:
    await story.deploy_and_run(acting("null.x;"), "a", "b")
    reading, before = acting(before="await ctx.feed.list({});"), story.feed.count
    verdict = await story.keep.verdict(reading, grants="all")
    assert (set(tried(verdict)), story.feed.count) == ({None}, before)
    assert (verdict.not_tried, verdict.because) == (3, ("it reads feed.list",))
    rehearsed = await story.keep.verdict(reading, grants="all", rehearse=True)
    assert (tried(rehearsed), story.feed.count > before) == (["taken", "taken", "taken"], True)
    assert story.world.effects == []


async def test_an_event_that_the_new_script_leaves_or_passes_is_told_apart(story: Story) -> None:
    await story.deploy_and_run(workflow(producers={"poll": producer()}), "a", "b")
    picky = acting("if (prepared.data.messageId === 'b') return;" + FIRE)
    assert tried(await story.keep.verdict(picky, grants="all")) == ["taken", "passed"]
    blind = workflow(producers={"poll": producer()}, consumers={"act": consumer(NOTHING)})
    assert tried(await story.keep.verdict(blind)) == ["left", "left"]


async def test_a_call_that_would_wait_for_a_person_is_foreseen(story: Story) -> None:
    await story.deploy_and_run(workflow(producers={"poll": producer()}), "a", "b")
    verdict = await story.keep.verdict(acting(), grants=ASK)
    assert tried(verdict) == ["asks", "asks"]
    assert "ask you whether “gmail.send" in str(verdict.things[0].came)
    assert await story.keep.needs_you() == []
