"""What `explain` and `needs_you` must name: which attempt, which inputs, which repairs, what an answer would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from keepai import Policy, Rejected, Transient
from keepai.engine.repair import Evidence, evidence
from keepai.model.records import Escalation
from keepai.reading.offered_acts import meaning
from tests.harness import Story, consumer, producer, workflow
from tests.routines import MAIL, ROW, each, guarded, item, items, routine

SEND = "await ctx.gmail.send({ to: prepared.data.messageId });"
FIRE = "await ctx.webhook.fire({ of: prepared.data.messageId });"


def acting(mutate: str = SEND, **steps: str) -> str:
    """A workflow that polls the feed and acts on its events."""
    return workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=mutate, **steps)})


# -- the attempt that each run processed (R213) ------------------------------------------------------------------


async def test_the_runs_that_took_an_event_are_named_with_the_attempt_that_each_processed(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=30)
    event = await story.event(wf, "in", "a")
    await story.keep.reprocess(event.id)
    await story.run()
    first, second, third = [r for r in await story.runs(wf, "act") if '"in"' in (r.prepare_result or "")]
    found = await story.keep.explain(event.id)
    assert [(r.run_id, r.attempt, r.status) for r in found.processed_by] == [
        (first.id, 1, "superseded"), (second.id, 1, "committed"), (third.id, 2, "committed")]
    [selected] = [s for s in (await story.keep.explain(third.id)).selected if s.kind == "event"]
    assert selected.attempt == 2


async def test_the_runs_that_worked_on_an_item_are_named_with_the_attempt(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "a")
    await story.keep.reprocess((await item(story, wf)).id)
    await story.run()
    found = await story.keep.explain((await item(story, wf)).id)
    assert [r.attempt for r in found.processed_by] == [1, 2]
    assert [r.run_id for r in found.processed_by] == [r.id for r in await story.runs(wf)]


# -- the inputs of a run that failed in a done item (R311, R316) -------------------------------------------------

AGAIN = "if (ctx.item.isDone && item.payload === 'bad') { %s }"


@pytest.mark.parametrize("fault", [
    "await ctx.webhook.fire({ of: item.id });", "throw new Error('no');", "await ctx.gmail.search({ after: item });",
])
async def test_a_run_that_failed_in_a_done_item_names_it(story: Story, fault: str) -> None:
    wf = await story.deploy_and_run(routine(each(AGAIN % fault + "if (!ctx.item.isDone) " + ROW)), "a", "b")
    assert await items(story, wf) == {"a": "done", "b": "done"}
    story.feed.items[0]["payload"] = "bad"
    story.feed.put("c")  # a third item that is never reached
    story.world.on("gmail.search").fail(Rejected("no such cursor"))
    await story.run(minutes=5)
    run = await story.last(wf)
    assert run.status == "failed:logic"
    asked = await story.question(wf)
    assert asked.facts["inputs"] == ["Item a"]
    assert evidence(story.reader(), story.keep.parts, run).inputs == ("Item a",)
    assert "Item a" in [s.title for s in (await story.keep.explain(run.id)).selected]
    assert await items(story, wf) == {"a": "done", "b": "done"}, "what is done stays done"


async def test_a_run_that_failed_outside_of_its_items_names_none(story: Story) -> None:
    wf = await story.deploy_and_run(routine(guarded(ROW, after="throw new Error('no');")), "a")
    assert (await story.question(wf)).facts["inputs"] == []
    assert evidence(story.reader(), story.keep.parts, await story.last(wf)).inputs == ()


async def test_the_evidence_names_the_item_in_which_a_run_stopped_and_not_every_item_before_it(story: Story) -> None:
    wf = await story.deploy_and_run(routine(guarded("if (item.id === 'b') throw new Error('no');", ROW)), "a", "b")
    assert evidence(story.reader(), story.keep.parts, await story.last(wf)).inputs == ("Item b",)
    assert (await story.question(wf)).facts["inputs"] == ["Item b"]


# -- the repairs of a logic card ---------------------------------------------------------------------------------


async def test_a_logic_card_names_the_repairs_that_were_tried_and_what_became_of_them(tmp_path: Path) -> None:
    broken = acting("if (prepared) throw new Error('no'); " + SEND)
    answers: list[Any] = [None, acting("ctx.log(1); " + SEND).replace('"out"', '"elsewhere"'), broken + "// again\n"]

    async def hook(known: Evidence) -> Any:
        return answers.pop(0)

    async with Story(tmp_path, policy=Policy(repairs_max=3)) as story:
        story.keep.parts.repair = hook
        wf = await story.deploy_and_run(broken, "a")
        [asked] = await story.keep.needs_you(wf)
        [declined] = cast("list[dict[str, Any]]", asked.facts["repairs"])
        assert (declined["status"], declined["note"]) == ("declined", "the repair hook had nothing to offer")
        assert asked.facts["repairs_left"] == 2
        await story.keep.retry(asked.run_id)
        await story.run()
        [asked] = await story.keep.needs_you(wf)
        tried = cast("list[dict[str, Any]]", asked.facts["repairs"])
        assert [each["status"] for each in tried] == ["declined", "refused"]
        assert "A repair keeps the topics" in tried[1]["note"]
        await story.keep.retry(asked.run_id)
        await story.run()
        [waits] = await story.keep.needs_you(wf)
        await story.keep.reject(waits.id)
        [asked] = await story.keep.needs_you(wf)
        tried = cast("list[dict[str, Any]]", asked.facts["repairs"])
        assert [each["status"] for each in tried] == ["declined", "refused", "rejected"]
        assert asked.facts["repairs_left"] == 0
        explained = await story.keep.explain(asked.run_id)
        [person] = [m for m in explained.moved_by if m.kind == "person"]
        assert "3 repairs were tried (declined, refused, rejected); none is left" in person.what


async def test_a_logic_card_without_repairs_says_nothing_of_them(story: Story) -> None:
    wf = await story.deploy_and_run(acting("throw new Error('no');"), "a")
    [asked] = await story.keep.needs_you(wf)
    assert asked.facts["repairs"] == []


# -- what `reprocess` of a left item does ------------------------------------------------------------------------


async def left(story: Story) -> Escalation:
    """An item whose row was written, and that its routine does not come back to."""
    story.feed.put("a", "x")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine(guarded(ROW, MAIL)))
    story.feed.items = []
    await story.run(seconds=30)
    return await story.question(wf)


async def test_the_card_of_a_left_item_says_that_reprocess_sends_the_applied_part_again(story: Story) -> None:
    asked = await left(story)
    assert asked.facts["already_applied"] == ['sheets.appendRow: spreadsheetId="s", values=["a"]']
    assert "1 mutation that was applied for it is sent again" in meaning("reprocess", asked).comes
    explained = await story.keep.explain(str(asked.facts["item_id"]))
    [again] = [m for m in explained.moved_by if "reprocess" in m.acts]
    assert "1 mutation that was applied for it is sent again" in again.what
    story.feed.put("a", "x")
    await story.keep.reprocess(str(asked.facts["item_id"]), shown=asked.version)
    await story.run()
    assert [e.operation for e in story.world.effects] == ["sheets.appendRow"] * 2 + ["gmail.send"], "and so it is"


# -- `happened` without a result ---------------------------------------------------------------------------------


async def doubtful(story: Story, source: str) -> Escalation:
    """The question about a call of the webhook or of the mail whose answer was lost."""
    story.feed.put("a")
    for operation in ("webhook.fire", "gmail.send"):
        story.world.on(operation).lose_answer()
    story.world.on_reconcile("gmail.send").unknown()
    wf = await story.deploy_and_run(source)
    asked = await story.question(wf)
    assert asked.kind == "unknown_outcome"
    return asked


def lines_with(source: str, *texts: str) -> list[str]:
    """The lines of a script that hold one of these texts, as a card shows them."""
    numbered = enumerate(source.splitlines(), 1)
    return [f"line {number}: {line.strip()}" for number, line in numbered if any(text in line for text in texts)]


READS = {
    "a member": "\n  ctx.log(mutationResult.result.id); // READ\n",
    "optional": "\n  const id = mutationResult?.result?.id; // READ\n  ctx.log(id);\n",
    "taken apart": "\n  const { status, result } = mutationResult;\n  ctx.log(result.id, status); // READ\n",
    "renamed": "\n  const { result: got } = mutationResult;\n  ctx.log(got.id); // READ\n",
    "another name": "\n  const told = mutationResult;\n  ctx.log(told.result); // READ\n",
    "whole": "\n  ctx.log(JSON.stringify(mutationResult)); // READ\n",
}


@pytest.mark.parametrize("how", READS)
async def test_the_card_shows_where_the_script_reads_a_result_that_happened_would_leave_null(
    story: Story, how: str,
) -> None:
    source = acting(FIRE, next=READS[how])
    asked = await doubtful(story, source)
    assert asked.facts["result_read"] == lines_with(source, "// READ")
    said = meaning("happened", asked).comes
    assert "without one it gets null" in said
    assert "line " in said
    explained = await story.keep.explain(asked.run_id)
    assert any("`happened` without a result gives it null" in m.what for m in explained.moved_by)


@pytest.mark.parametrize("next", [
    None, "ctx.log(1);", "if (mutationResult.status === 'applied') ctx.log(1);",
    "const { status } = mutationResult; ctx.log(status);",
])
async def test_a_script_that_does_not_read_the_result_is_not_warned_about(story: Story, next: str | None) -> None:
    asked = await doubtful(story, acting(FIRE, **({"next": next} if next else {})))
    assert asked.facts["result_read"] == []
    assert "null" not in meaning("happened", asked).comes
    assert not any("null" in m.what for m in (await story.keep.explain(asked.run_id)).moved_by)


async def test_a_parameter_that_is_taken_apart_is_followed(story: Story) -> None:
    text = acting(FIRE, next="\n ctx.log(result.id); // READ\n")
    source = text.replace("next(ctx, prepared, mutationResult)", "next(ctx, prepared, { status, result })")
    assert (await doubtful(story, source)).facts["result_read"] == lines_with(source, "// READ")


@pytest.mark.parametrize(("work", "reads"), [
    ("const mail = await ctx.gmail.send({ to: item.id });\n ctx.log(mail.id); // READ\n", True),
    ("ctx.log((await ctx.gmail.send({ to: item.id })).id); // READ\n", True),
    ("await ctx.gmail.send({ to: item.id });\n", False),
    ("const mail = await ctx.gmail.send({ to: item.id });\n", False),
])
async def test_a_routine_that_reads_the_result_is_shown_too(story: Story, work: str, reads: bool) -> None:
    source = routine(guarded("\n" + work))
    asked = await doubtful(story, source)
    assert asked.facts["result_read"] == (lines_with(source, "// READ") if reads else [])


async def test_the_active_version_is_the_one_that_is_shown_for_it_gets_the_result(story: Story) -> None:
    await doubtful(story, acting(FIRE, next="ctx.log(1);"))
    source = acting(FIRE, next=READS["a member"])
    await story.deploy(source)
    [asked] = await story.keep.needs_you()
    assert asked.facts["result_read"] == lines_with(source, "// READ")


# -- results do not wait, and doubt is not work ------------------------------------------------------------------


async def test_an_event_that_nobody_takes_is_a_result_and_does_not_wait(story: Story) -> None:
    story.feed.put("a")
    publish = 'await ctx.publish("out", { messageId: "r", payload: 1 });'
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "act": consumer(publishes=("out",), next=publish)}))
    result = await story.event(wf, "out", "r")
    found = await story.keep.explain(result.id)
    assert "wait" not in found.because
    assert "It is a result: no handler takes events of topic 'out'" in found.because
    assert found.moved_by[0].kind == "nothing"
    [person] = [m for m in found.moved_by if m.kind == "person"]
    assert person.acts == ("skip_event",)
    [came] = await story.keep.inputs(wf)
    told = await story.keep.explain(came.id)
    assert (told.standing, "nothing of it waits" in told.because) == ("done", True)
    assert [m.kind for m in told.moved_by] == ["nothing"]


async def test_an_input_counts_only_the_events_that_wait_for_a_handler(story: Story) -> None:
    story.feed.put("a")
    both = """
  for (const item of await ctx.feed.list({})) {
const inputId = ctx.registerInput({ source: "feed", type: "item", id: item.id, title: "Item" });
await ctx.publish(["in", "out"], { messageId: item.id, inputId, payload: 1 });
  }"""
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer(both, publishes=("in", "out"))},
        consumers={"act": consumer("return { reservations: [], data: {} };")}))
    [came] = await story.keep.inputs(wf)
    assert "1 event not taken yet" in (await story.keep.explain(came.id)).because


@pytest.mark.parametrize("asked", [False, True])
async def test_an_item_in_doubt_is_not_processing(story: Story, asked: bool) -> None:
    story.feed.put("a", "x")
    story.world.on("gmail.send").lose_answer()
    on = story.world.on_reconcile("gmail.send")
    on.unknown() if asked else on.retry(3600)
    wf = await story.deploy_and_run(routine(guarded(ROW, MAIL)))
    found = await item(story, wf)
    assert found.status == "failed"
    told = await story.keep.explain(found.id)
    assert (told.standing, "Nobody" in told.because) == ("failed", True)
    if asked:
        await story.keep.resolve(str((await story.question(wf)).mutation_id), "happened")
    else:
        await story.run(hours=1)
    await story.run()
    assert await items(story, wf) == {"a": "done"}


async def test_a_card_from_a_host_that_died_in_the_call_says_so_of_its_item(story: Story) -> None:
    story.feed.put("a", "x")
    story.world.on_reconcile("gmail.send").unknown()
    wf = await story.deploy(routine(guarded(MAIL)))
    await story.crash("after:send")
    await story.run()
    assert (await story.question(wf)).facts["inputs"] == ["Item a"]
    assert await items(story, wf) == {"a": "failed"}
