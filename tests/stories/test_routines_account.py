"""The account of routines: which output came from which item, why each item stands where it stands, and that a
routine and a consumer that do the same job give the same account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai import PreconditionFailed, Rejected, Transient
from tests.harness import Story, consumer, producer, workflow
from tests.routines import (
    FIRE,
    MAIL,
    Desk,
    each,
    guarded,
    item,
    items,
    last_mutation,
    routine,
    sent,
)


async def account(story: Story, wf: str) -> dict[str, list[str]]:
    """Title of an input → previews of what was applied because of it."""
    found: dict[str, list[str]] = {each.title: [] for each in await story.keep.inputs(wf)}
    for output in await story.keep.outputs(wf):
        for cause in output.inputs:
            if output.mutation.status == "applied":
                found[cause.title].append(output.mutation.preview)
    return {title: sorted(previews) for title, previews in found.items()}


# -- inputs → outputs ----------------------------------------------------------------------------------


async def test_an_item_is_an_input_and_its_mutations_are_the_outputs(story: Story) -> None:
    story.feed.put("a", title="Letter from Ann")
    story.feed.put("b", title="Letter from Bob")
    wf = await story.deploy_and_run(routine())
    inputs = await story.inputs(wf)
    assert [(i.source, i.type, i.external_id, i.title, i.status) for i in inputs.values()] == [
        ("workflow", "item", "a", "Letter from Ann", "done"), ("workflow", "item", "b", "Letter from Bob", "done")]
    for name, row in (("a", "row-1"), ("b", "row-2")):
        whole = await story.keep.input(inputs[name].id)
        assert whole.outputs is not None
        assert [m.operation for m in whole.outputs] == ["appendRow", "send"]
        assert whole.outputs[0].result == {"rowId": row, "row": int(row[-1])}
        assert {m.item_id for m in whole.outputs} == {(await item(story, wf, name)).id}
        assert {m.title for m in whole.outputs} == {inputs[name].title}
    outputs = await story.keep.outputs(wf)
    assert [[i.external_id for i in output.inputs] for output in outputs] == [["a"], ["a"], ["b"], ["b"]]


async def test_an_input_is_pending_while_its_item_is_not_finished(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine())
    [found] = await story.keep.inputs(wf)
    assert (found.status, found.needs_you) == ("pending", False)
    assert await story.keep.inputs(wf, "pending") == [found]
    await story.run(minutes=1)
    assert [i.status for i in await story.keep.inputs(wf)] == ["done"]


async def test_an_item_keeps_its_first_title(story: Story) -> None:
    story.feed.put("a", title="First")
    wf = await story.deploy_and_run(routine(guarded(FIRE)))
    story.feed.put("a", title="Second")
    await story.run(minutes=5)
    assert [(i.title, i.external_id) for i in await story.keep.items(wf)] == [("First", "a")]
    assert [i.title for i in await story.keep.inputs(wf)] == ["First"]


async def test_both_attempts_of_an_item_are_outputs_of_its_one_input(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "a")
    a = await item(story, wf)
    await story.keep.reprocess(a.id)
    assert (await story.inputs(wf))["a"].status == "pending"
    await story.run()
    whole = await story.keep.input(a.input_id)
    assert whole.status == "done"
    assert whole.outputs is not None
    assert [m.operation for m in whole.outputs] == ["appendRow", "send", "appendRow", "send"]
    assert len(await story.keep.inputs(wf)) == 1


async def test_an_input_that_is_found_by_search_shows_how_it_stands(story: Story) -> None:
    story.feed.put("a", title="Letter from Ann")
    story.feed.put("b", title="Bill from Bob")
    wf = await story.deploy_and_run(routine(guarded(FIRE)))
    assert [i.external_id for i in await story.keep.inputs(wf, search="bill")] == ["b"]


# -- the same job, told in both ways -------------------------------------------------------------------

ROW = 'await ctx.sheets.appendRow({ spreadsheetId: "s", values: [EVENT.messageId] });'
MAIL_OF = "await ctx.gmail.send({ to: `${EVENT.messageId}@example.com`, body: EVENT.payload });"


def by_consumers() -> str:
    """Poll the feed; one row per element, then one mail for it."""
    next_one = "await ctx.publish('rowed', { messageId: prepared.data.messageId, payload: prepared.data.payload });"
    return workflow(
        "consumers", topics=("in", "rowed"), producers={"poll": producer()},
        consumers={
            "row": consumer(mutate=ROW.replace("EVENT", "prepared.data"), publishes=["rowed"], next=next_one),
            "mail": consumer(subscribe=["rowed"], mutate=MAIL_OF.replace("EVENT", "prepared.data")),
        },
    )


def by_routine() -> str:
    work = "const EVENT = { messageId: item.id, payload: item.payload };" + ROW + MAIL_OF
    return routine(guarded(work), name="routine")


async def test_a_consumer_and_a_routine_that_do_the_same_job_give_the_same_account(story: Story) -> None:
    for name in ("a", "b", "c"):
        story.feed.put(name, f"Hello {name}")
    wfs = [await story.deploy(source) for source in (by_consumers(), by_routine())]
    await story.run()
    told = [await account(story, wf) for wf in wfs]
    assert told[0] == told[1]
    assert set(told[1]) == {"Item a", "Item b", "Item c"}
    assert all(len(previews) == 2 for previews in told[1].values())
    assert [{i.status for i in await story.keep.inputs(wf)} for wf in wfs] == [{"done"}, {"done"}]


async def test_the_same_when_the_world_fails_loses_answers_and_hosts_die(tmp_path: Path) -> None:
    # R293
    told: list[dict[str, list[str]]] = []
    for source in (by_consumers(), by_routine()):
        folder = tmp_path / str(len(told))
        folder.mkdir()
        async with Story(folder) as story:
            for name in ("a", "b", "c"):
                story.feed.put(name, f"Hello {name}")
            story.world.on("sheets.appendRow").fail(Transient("busy")).lose_answer().fail(OSError("reset"))
            story.world.on("gmail.send").lose_answer().fail(Transient("busy"))
            wf = await story.deploy_and_run(source)
            await story.crash("after:call", minutes=1)
            for _ in range(12):
                await story.run(minutes=2)
            assert await story.keep.needs_you(wf) == []
            told.append(await account(story, wf))
            assert len(story.world.effects) == 6
    assert told[0] == told[1]


async def test_the_same_when_a_person_skips_one(tmp_path: Path) -> None:
    told: list[dict[str, list[str]]] = []
    for source in (by_consumers(), by_routine()):
        folder = tmp_path / str(len(told))
        folder.mkdir()
        async with Story(folder) as story:
            for name in ("a", "b"):
                story.feed.put(name, f"Hello {name}")
            story.world.on("gmail.send").fail(Rejected("no such address"))
            wf = await story.deploy_and_run(source)
            await story.keep.skip_run((await story.question(wf)).run_id)
            await story.run()
            told.append(await account(story, wf))
            assert len(story.world.effects) == 3
    assert told[0] == told[1]
    assert {title: len(previews) for title, previews in told[0].items()} == {"Item a": 1, "Item b": 2}


# -- why an item stands where it stands ----------------------------------------------------------------


async def explained(story: Story, wf: str, external_id: str = "a") -> Any:
    found = await item(story, wf, external_id)
    told = await story.keep.explain(found.id)
    assert (told.id, told.kind, told.workflow_id, told.standing) == (found.id, "item", wf, found.status)
    assert told.because.endswith((".", ")."))
    assert told.moved_by
    assert told.story
    assert [s.id for s in told.selected] == [found.input_id]
    of_input = await story.keep.explain(found.input_id)
    assert of_input.kind == "input"
    return told


def acts(told: Any) -> set[str]:
    return {act for mover in told.moved_by for act in mover.acts}


async def test_a_done_item_is_explained(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "a")
    told = await explained(story, wf)
    assert "Its handler returned; 2 outputs went out for it in all." in told.because
    assert [(a.call, a.status) for a in told.attempted] == [
        ("sheets.appendRow", "applied"), ("gmail.send", "applied")]
    assert told.moved_by[0].kind == "nothing"


async def test_a_failed_item_in_backoff_is_explained(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("the mailbox is busy"))
    wf = await story.deploy_and_run(routine())
    told = await explained(story, wf)
    assert "the mailbox is busy" in told.because
    assert "1 output went out for it" in told.because
    assert any(m.kind == "time" and m.due_at == story.clock.now_ms() + 30_000 for m in told.moved_by)


async def test_an_item_whose_script_is_wrong_is_explained(story: Story) -> None:
    wf = await story.deploy_and_run(routine(each("throw new Error('no idea');")), "a")
    told = await explained(story, wf)
    assert "no idea" in told.because
    assert {"deploy", "retry", "skip_run"} <= acts(told)


async def test_an_item_that_needs_attention_is_explained(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Desk()]) as story:
        story.feed.put("a", "one")
        story.world.on("gmail.send").fail(Transient("busy"))
        wf = await story.deploy(routine(guarded('await ctx.desk.stamp({ folder: "f", text: item.payload });', MAIL)))
        await story.run()
        story.feed.put("a", "two")
        await story.run(minutes=1)
        told = await explained(story, wf)
        assert told.standing == "needs_attention"
        assert "was applied before for the same work" in told.because
        assert {"keep", "skip_run"} <= acts(told)


async def test_an_item_in_doubt_is_explained(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(3600)
    story.world.on_reconcile("gmail.send").unknown()
    wf = await story.deploy_and_run(routine())
    told = await explained(story, wf)
    assert told.standing == "failed"
    assert any(m.kind == "reconciliation" for m in told.moved_by)
    await story.run(hours=1)
    told = await explained(story, wf)
    assert {"try_again", "happened", "skip"} <= acts(told)


async def test_an_item_that_waits_for_an_approval_is_explained(story: Story) -> None:
    story.feed.put("a")
    grants = {"feed.list": "allow", "sheets.appendRow": "allow", "gmail.send": "ask"}
    wf = await story.deploy_and_run(routine(), grants=grants)
    told = await explained(story, wf)
    assert {"approve", "reject"} <= acts(told)


async def test_a_precondition_of_an_item_is_explained(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(PreconditionFailed("the mailbox was deleted"))
    wf = await story.deploy_and_run(routine())
    assert "the mailbox was deleted" in (await explained(story, wf)).because


async def test_a_skipped_item_is_explained(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Rejected("no"))
    wf = await story.deploy_and_run(routine())
    await story.keep.skip_run((await story.last(wf)).id)
    await story.run()
    told = await explained(story, wf)
    assert "A person skipped it; 1 output went out for it" in told.because
    assert told.moved_by[0].kind == "nothing"
    assert (await story.keep.explain(told.selected[0].id)).standing == "skipped"


async def test_an_item_that_is_to_be_worked_on_once_more_is_explained(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "a")
    await story.keep.reprocess((await item(story, wf)).id)
    told = await explained(story, wf)
    assert "waits for its routine 'work' to come to it" in told.because
    assert "This is attempt 2" in told.because
    await story.keep.pause(wf)
    assert "resume" in acts(await explained(story, wf))


async def test_an_item_that_waits_behind_a_stopped_run_is_explained_by_that_run(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "b")
    await story.keep.reprocess((await item(story, wf, "b")).id)
    story.feed.items.insert(0, {"id": "a"})
    story.world.on("gmail.send").fail(Rejected("no"))
    await story.run()
    assert await items(story, wf) == {"a": "failed", "b": "processing"}
    run = await story.last(wf)
    told = await explained(story, wf, "b")
    assert run.id in {mover.subject for mover in told.moved_by}


async def left_behind(story: Story) -> str:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine())
    story.feed.items = []
    await story.run(minutes=1)
    assert await items(story, wf) == {"a": "failed"}
    return wf


async def test_an_item_that_was_left_behind_is_explained(story: Story) -> None:
    wf = await left_behind(story)
    told = await explained(story, wf)
    assert "ended without finishing it" in told.because
    assert {"reprocess", "skip_input"} <= acts(told)


async def test_the_question_about_an_item_that_was_left_behind_is_explained_as_the_item(story: Story) -> None:
    # explain "takes the id of … a question"
    wf = await left_behind(story)
    asked = await story.question(wf)
    assert (await story.keep.explain(asked.id)).standing == "failed"


async def test_a_run_and_a_mutation_of_a_routine_are_explained(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "a")
    run = await story.keep.explain((await story.last(wf)).id)
    assert (run.standing, run.because) == ("committed", "It is finished: its handler returned.")
    assert [(s.kind, s.title) for s in run.selected] == [("input", "Item a")]
    mutation = await story.keep.explain((await last_mutation(story, wf)).id)
    assert mutation.standing == "applied"
    assert (await story.keep.explain(wf)).kind == "workflow"


@pytest.mark.parametrize("reconcile", [True, False])
async def test_nobody_is_asked_during_backoff_and_reconciliation(story: Story, reconcile: bool) -> None:
    story.feed.put("a")
    if reconcile:
        story.world.on("gmail.send").lose_answer()
        story.world.on_reconcile("gmail.send").retry(times=3)
    else:
        story.world.on("gmail.send").fail(Transient("busy"), times=3)
    wf = await story.deploy_and_run(routine())
    for _ in range(3):
        assert await story.keep.needs_you(wf) == []
        assert not (await story.inputs(wf))["a"].needs_you
        assert (await story.workflow(wf)).blocked_by == (await story.last(wf)).id
        await story.run(minutes=3)
    assert await items(story, wf) == {"a": "done"}
    assert len(sent(story)) == 1


async def test_what_is_asked_is_also_marked_on_the_input_and_is_gone_when_it_is_answered(story: Story) -> None:
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(routine(guarded(FIRE)))
    assert (await story.inputs(wf))["a"].needs_you
    await story.keep.resolve((await last_mutation(story, wf)).id, "happened")
    await story.run()
    found = (await story.inputs(wf))["a"]
    assert (found.needs_you, found.status) == (False, "done")


async def test_an_input_that_is_explained_says_what_of_it_waits(story: Story) -> None:
    # an input that stands for an item has no events to count
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine())
    told = await story.keep.explain((await item(story, wf)).input_id)
    assert told.standing == "pending"
    assert "0 events not taken yet" not in told.because
