"""The same thing with another content: never done again, and a person decides where the difference matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import Transient
from keepai.model.errors import Refused
from tests.harness import Story
from tests.routines import GUARD, Desk, item, items, routine, sent

FILED = "one two"


def filing(text: str, *, call: str = "file", more: str = "") -> str:
    """A routine whose item files a text, then sends a mail with what it was told, then does `more`."""
    return routine(f"""
      await ctx.withItem("a", "The letter", async (ctx) => {{
        {GUARD}
        const got = await ctx.desk.{call}({{ folder: "f", name: "n", text: `{text}` }});
        ctx.log(JSON.stringify(got));
        await ctx.gmail.send({{ to: "x", body: got.text }});
        {more}
      }});
      await ctx.withItem("b", "The next", async (ctx) => {{
        {GUARD}
        await ctx.webhook.fire({{ of: "b" }});
      }});
    """)


async def stopped_after_filing(story: Story, call: str = "file") -> str:
    """A workflow that filed its text and stopped before the mail."""
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(filing(FILED, call=call))
    assert await items(story, wf) == {"a": "failed"}
    return wf


@pytest.mark.parametrize("text", ["one   two", "ONE two"], ids=["equivalent", "minor"])
async def test_a_difference_that_does_not_matter_gives_the_kept_result(tmp_path: Path, text: str) -> None:
    # R278, R279, R283
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await stopped_after_filing(story)
        await story.deploy_and_run(filing(text), workflow_id=wf)
        assert await items(story, wf) == {"a": "done", "b": "done"}
        assert [params["text"] for params in desk.filed] == [FILED], "what was applied is final"
        assert desk.compared == [({"text": FILED}, {"text": text})]
        assert len({line for run in await story.runs(wf) for line in story.logs(run)}) == 1
        assert await story.keep.needs_you(wf) == []


async def test_the_same_content_is_never_compared(tmp_path: Path) -> None:
    # R282
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await stopped_after_filing(story)
        await story.deploy_and_run(filing(FILED, more="ctx.log('new');"), workflow_id=wf)
        assert (await items(story, wf), desk.compared) == ({"a": "done", "b": "done"}, [])


@pytest.mark.parametrize(("call", "text"), [("file", "three"), ("stamp", "one   two"), ("stamp", "three")])
async def test_a_difference_that_matters_stops_the_run_and_shows_a_person_both(
    tmp_path: Path, call: str, text: str,
) -> None:
    # R278, R280, R281: without a compare method any difference matters
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await stopped_after_filing(story, call)
        await story.deploy_and_run(filing(text, call=call), workflow_id=wf)
        run = await story.last(wf)
        assert run.status == "paused:approval"
        assert await items(story, wf) == {"a": "needs_attention"}, "what follows has not begun"
        asked = await story.question(wf)
        [filed] = [m for m in await story.keep.mutations(wf) if m.connector == "desk"]
        assert (asked.kind, asked.run_id, asked.mutation_id) == ("attention", run.id, filed.id)
        assert asked.actions == ("keep", "skip_run")
        assert asked.title == "The letter"
        assert asked.facts["applied"] == {"folder": "f", "name": "n", "text": FILED}
        assert asked.facts["wanted"] == {"folder": "f", "name": "n", "text": text}
        assert FILED in str(asked.facts["why"])
        assert text in str(asked.facts["why"])
        assert asked.facts["inputs"] == ["The letter"]
        assert [params["text"] for params in desk.filed] == [FILED]
        assert sent(story) == []
        assert (await story.inputs(wf))["a"].needs_you


async def in_question(story: Story) -> str:
    """A workflow whose new version wants another content."""
    wf = await stopped_after_filing(story)
    await story.deploy_and_run(filing("three"), workflow_id=wf)
    assert await items(story, wf) == {"a": "needs_attention"}
    return wf


async def test_time_restarts_and_retries_do_not_answer_the_question(tmp_path: Path) -> None:
    # R280, R294
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await in_question(story)
        await story.reopen()
        await story.run(days=2)
        asked = await story.question(wf)
        await story.keep.retry(asked.run_id)
        await story.run()
        assert (await story.question(wf)).kind == "attention"
        assert (await items(story, wf), len(desk.filed)) == ({"a": "needs_attention"}, 1)


async def test_keeping_what_was_applied_goes_on_with_its_result_and_is_not_asked_again(tmp_path: Path) -> None:
    # R279, R280, R283
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await in_question(story)
        story.world.on("gmail.send").fail(Transient("busy"))
        asked = await story.question(wf)
        await story.keep.resolve(str(asked.mutation_id), "keep")
        await story.run()
        assert (await story.last(wf)).status == "paused:transient", "the mail, not the letter"
        assert await story.keep.needs_you(wf) == []
        await story.reopen()
        await story.run(minutes=1)
        assert await items(story, wf) == {"a": "done", "b": "done"}
        assert len(desk.filed) == 1
        assert len({line for run in await story.runs(wf) for line in story.logs(run)}) == 1
        assert len(sent(story)) == 1
        with pytest.raises(Refused, match="no run asks"):
            await story.keep.resolve(str(asked.mutation_id), "keep")


async def test_a_third_content_is_asked_about_anew(tmp_path: Path) -> None:
    # R280: a person kept it instead of that content, not instead of any
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await in_question(story)
        story.world.on("gmail.send").fail(Transient("busy"))
        await story.keep.resolve(str((await story.question(wf)).mutation_id), "keep")
        await story.run()
        await story.deploy_and_run(filing("four"), workflow_id=wf)
        asked = await story.question(wf)
        assert (asked.kind, asked.facts["wanted"]["text"]) == ("attention", "four")  # type: ignore[index, call-overload]
        assert len(desk.filed) == 1


async def test_skipping_ends_the_item_and_the_routine_goes_on_with_the_others(tmp_path: Path) -> None:
    # R280: a person may skip an item during escalation
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await in_question(story)
        await story.keep.skip_run((await story.question(wf)).run_id)
        await story.run()
        assert await items(story, wf) == {"a": "skipped", "b": "done"}
        assert (len(desk.filed), sent(story)) == (1, [])
        assert [m.status for m in await story.keep.mutations(wf) if m.connector == "desk"] == ["applied"]
        assert await story.keep.needs_you(wf) == []


async def test_a_version_that_wants_the_old_content_again_answers_the_question(tmp_path: Path) -> None:
    # R282
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await in_question(story)
        await story.deploy_and_run(filing(FILED, more="ctx.log('as before');"), workflow_id=wf)
        assert (await items(story, wf), len(desk.filed)) == ({"a": "done", "b": "done"}, 1)
        assert await story.keep.needs_you(wf) == []


async def test_an_item_that_needs_attention_cannot_be_reprocessed_or_skipped_past_its_run(tmp_path: Path) -> None:
    async with Story(tmp_path, connectors=[Desk()]) as story:
        wf = await in_question(story)
        letter = await item(story, wf)
        with pytest.raises(Refused, match="holds it"):
            await story.keep.reprocess(letter.id)
        with pytest.raises(Refused, match="in hand"):
            await story.keep.skip_input(letter.input_id)
        assert await items(story, wf) == {"a": "needs_attention"}


async def test_two_different_contents_for_one_identity_in_one_item_are_not_passed_off_as_one(story: Story) -> None:
    # R270, R280: what a missing subkey would do in silence
    wf = await story.deploy_and_run(routine("""
      await ctx.withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.gmail.send({ to: "x", body: "First" });
        await ctx.gmail.send({ to: "x", body: "Second" });
      });
    """))
    assert [mail["body"] for mail in sent(story)] == ["First"]
    assert (await story.question(wf)).kind == "attention"
    assert await items(story, wf) == {"a": "needs_attention"}


async def test_a_compare_method_that_breaks_sends_nothing_and_is_the_connectors_fault(tmp_path: Path) -> None:
    # R294
    class Odd(Desk):
        name = "desk"

        def same(self, old: object, new: object) -> str:
            return "whatever"

    async with Story(tmp_path, connectors=[desk := Odd()]) as story:
        wf = await stopped_after_filing(story)
        await story.deploy_and_run(filing("three"), workflow_id=wf)
        assert (await story.last(wf)).status == "failed:internal"
        assert len(desk.filed) == 1
        assert (await story.question(wf)).kind == "internal"


async def test_a_changed_content_of_a_mutation_that_failed_is_simply_sent(tmp_path: Path) -> None:
    # R275: only what was applied is compared
    async with Story(tmp_path, connectors=[Desk()]) as story:
        wf = await stopped_after_filing(story)
        await story.deploy_and_run(filing(FILED).replace("body: got.text", 'body: "another"'), workflow_id=wf)
        assert [mail["body"] for mail in sent(story)] == ["another"]
        assert await items(story, wf) == {"a": "done", "b": "done"}
