"""Questions to people: one per open question, none while Keep can still go on by itself, each with the facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, PermissionDenied, Policy, PreconditionFailed, Rejected, Transient
from keepai.model.records import Escalation
from tests.harness import FIRE, Story, acting

#: How a run stops → (its script's parts, what the world does, the kind, an act that must be offered).
STOPS: dict[str, tuple[dict[str, str], Any, str, str]] = {
    "not granted": ({}, None, "permission", "grant"),
    "access expired": ({}, PermissionDenied("expired"), "permission", "retry"),
    "something is gone": ({}, PreconditionFailed("gone"), "precondition", "retry"),
    "refused": ({}, Rejected("wrong"), "logic", "skip_run"),
    "thrown": ({"mutate": "throw new Error('no');"}, None, "logic", "skip_run"),
    "thrown in prepare": ({"before": "throw new Error('no');"}, None, "logic", "retry"),
    "thrown after it happened": ({"next": "throw new Error('no');"}, None, "logic", "finish"),
    "retries used up": ({}, Transient("later"), "exhausted", "retry"),
    "unknown": ({"mutate": FIRE}, OutcomeUnknown("lost"), "unknown_outcome", "happened"),
}


async def stopped(story: Story, how: str) -> tuple[str, list[Escalation]]:
    """A workflow that stopped in this way, and what people are asked."""
    parts, error, _, _ = STOPS[how]
    story.feed.put("a")
    if error is not None:
        operation = "webhook.fire" if parts.get("mutate") == FIRE else "gmail.send"
        story.world.on(operation).fail(error, times=2 if how == "retries used up" else 1)
    source = acting(**parts)  # type: ignore[arg-type]
    wf = await story.deploy_and_run(source, grants={"feed.list": "allow"} if how == "not granted" else "all")
    if how == "retries used up":
        await story.run(seconds=30)
    return wf, await story.keep.needs_you(wf)


@pytest.mark.parametrize("how", STOPS)
async def test_a_stop_that_only_a_person_can_end_is_one_question_with_its_facts(tmp_path: Path, how: str) -> None:
    # R241–R245, R299, R311–R313, R316, DESIGN 14
    _, _, kind, act = STOPS[how]
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        wf, questions = await stopped(story, how)
        assert [q.kind for q in questions] == [kind]
        [question] = questions
        run = await story.last(wf)
        assert (question.workflow_id, question.run_id) == (wf, run.id)
        assert act in question.actions
        assert run.error is not None
        assert run.error.message in str(question.facts["why"])
        if run.prepare_result is not None:
            assert question.facts["inputs"] == ["Item a"]
        json.dumps(question.to_json())
        assert await story.keep.needs_you() == questions
        await story.reopen()
        await story.run()
        assert await story.keep.needs_you(wf) == questions  # the same question, not a new one


@pytest.mark.parametrize("how", STOPS)
async def test_no_act_is_offered_that_would_be_refused(tmp_path: Path, how: str) -> None:
    # R248, I32, I33: each offered act is tried on a stop of its own
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        wf, [question] = await stopped(story, how)
        for act in question.actions:
            assert act in {
                "try_again", "did_not_happen", "happened", "skip", "grant", "retry", "skip_run", "finish", "deploy",
            }
        assert ("skip_run" in question.actions) is not (
            "finish" in question.actions or question.kind == "unknown_outcome")
        assert "try_again" not in question.actions  # the webhook cannot be asked, the others have nothing to ask for
        assert (question.mutation_id is not None) is (question.kind == "unknown_outcome")
        last = question.actions[-1]
        if last == "skip":
            assert question.mutation_id is not None
            await story.keep.resolve(question.mutation_id, "skip")
        else:
            await {"skip_run": story.keep.skip_run, "finish": story.keep.finish}[last](question.run_id)
        assert [q.run_id for q in await story.keep.needs_you(wf)] == []


async def test_nobody_is_asked_while_keep_can_go_on_by_itself(story: Story) -> None:
    # DESIGN 14: none during backoff or reconciliation
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    one = await story.deploy_and_run(acting(name="one"))
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(times=2)
    two = await story.deploy_and_run(acting(name="two"))
    assert [(await story.last(wf)).status for wf in (one, two)] == ["paused:transient", "paused:reconciliation"]
    assert await story.keep.needs_you() == []
    await story.run(minutes=5)
    await story.run(minutes=5)
    assert [(await story.last(wf, "act")).status for wf in (one, two)] == ["committed", "committed"]
    assert await story.keep.needs_you() == []


async def test_the_question_about_an_unknown_outcome_says_what_a_person_must_know(story: Story) -> None:
    # R243–R247, R306, R314, R316, DESIGN 6
    story.feed.put("a", title="Invoice of Ann")
    story.world.on("gmail.send").lose_answer(OutcomeUnknown("the line went dead"))
    story.world.on_reconcile("gmail.send").unknown("The sent folder is empty.")
    wf = await story.deploy_and_run(acting())
    [question] = await story.keep.needs_you(wf)
    [row] = await story.keep.mutations(wf)
    assert (question.kind, question.mutation_id) == ("unknown_outcome", row.id)
    shown = json.dumps(question.facts, ensure_ascii=False)
    assert "gmail" in shown  # the tool
    assert question.facts["target"] == "a"
    assert question.facts["attempted"] == row.preview  # the host's words
    assert question.facts["title_by_script"] == row.title  # the script's, marked as such
    assert "The sent folder is empty" in str(question.facts["why"])
    assert question.facts["inputs"] == ["Invoice of Ann"]
    assert "try_again" in question.actions
    assert question.facts["can_verify"] is True
    assert question.facts["check_by_hand"]


async def test_the_question_says_when_the_outside_system_cannot_be_asked(story: Story) -> None:
    # R246–R248
    wf, [question] = await stopped(story, "unknown")
    assert question.facts["can_verify"] is False
    assert "try_again" not in question.actions
    assert set(question.actions) == {"did_not_happen", "happened", "skip"}
    assert question.facts["check_by_hand"]
    assert (await story.last(wf)).status == "paused:reconciliation"


async def test_it_did_not_happen_is_not_offered_while_the_request_may_still_arrive(tmp_path: Path) -> None:
    # I33
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("webhook.fire").hang(stubborn=True)
        wf = await story.deploy_and_run(acting(FIRE))
        [question] = await story.keep.needs_you(wf)
        story.world.release()  # whatever follows, the call must be able to end
        assert "did_not_happen" not in question.actions
        assert {"happened", "skip"} <= set(question.actions)


async def test_questions_of_several_workflows_are_listed_oldest_first(story: Story) -> None:
    story.feed.put("a")
    names = ["zeta", "alpha", "mid"]
    for name in names:
        await story.deploy_and_run(acting("throw new Error('no');", name=name))
        story.clock.advance(seconds=1)
    wfs = {w.id: w.name for w in await story.keep.workflows()}
    assert [wfs[q.workflow_id] for q in await story.keep.needs_you()] == names
