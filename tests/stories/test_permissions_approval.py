"""Approval call by call: what is shown is what is sent, once, and only while it still fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai import Policy, Transient
from keepai.model.errors import NotFound, Refused
from keepai.model.records import Escalation
from tests.harness import Story, consumer, producer, take_first, workflow

SEND = "ctx.log('mutate'); await ctx.gmail.send({ to: prepared.data.messageId, body: prepared.data.payload });"
ASK = {"feed.list": "allow", "gmail.send": "ask"}


def acting(mutate: str = SEND, *, name: str = "story", prepare: str = "") -> str:
    """A workflow that polls the feed and asks before it sends."""
    return workflow(name, producers={"poll": producer()}, consumers={
        "act": consumer(prepare + take_first(), mutate=mutate, next="ctx.log(JSON.stringify(mutationResult));")})


async def waiting(story: Story, **more: Any) -> tuple[str, Escalation]:
    """A workflow whose call waits for a person."""
    story.feed.put("a", "hello")
    wf = await story.deploy_and_run(acting(**more), grants=ASK)
    [asked] = await story.keep.needs_you(wf)
    return wf, asked


async def test_the_call_is_held_and_shown_as_the_host_sees_it(story: Story) -> None:
    # R305–R307, I30: nothing is recorded as sent, nothing leaves
    wf, asked = await waiting(story)
    run = await story.last(wf)
    assert (run.status, run.phase) == ("paused:approval", "mutating")
    assert (asked.kind, asked.workflow_id, asked.run_id) == ("approval", wf, run.id)
    assert set(asked.actions) == {"approve", "reject"}
    assert asked.facts["params"] == {"to": "a", "body": "hello"}
    assert asked.facts["attempted"] == 'gmail.send: body="hello", to="a"'
    assert asked.facts["title_by_script"] == "a"
    assert asked.facts["inputs"] == ["Item a"]
    assert await story.keep.mutations(wf) == []
    assert story.world.asked == []
    assert (await story.event(wf, "in", "a")).reserved_by == run.id


@pytest.mark.parametrize("answered", [True, False])
async def test_a_clock_set_back_makes_no_approval_valid_for_longer(story: Story, answered: bool) -> None:
    # its term began in what is now the future: it is asked afresh
    wf, asked = await waiting(story)
    if answered:
        await story.keep.approve(asked.id)
    story.clock.jump(days=-30)
    await story.run()
    assert story.world.asked == []
    [again] = await story.keep.needs_you(wf)
    assert (again.kind, again.id == asked.id) == ("approval", False)
    await story.keep.approve(again.id)
    await story.run()
    assert len(story.world.effects) == 1


async def test_what_was_approved_is_sent_without_running_the_script_again(story: Story) -> None:
    # R308, I29
    wf, asked = await waiting(story)
    await story.keep.approve(asked.id)
    assert story.world.asked == []  # an act runs nothing by itself
    assert await story.keep.needs_you(wf) == []
    await story.run()
    [effect] = story.world.effects
    assert effect.params == {"to": "a", "body": "hello"}
    run = await story.last(wf, "act")
    assert (run.id, run.status) == (asked.run_id, "committed")
    assert story.logs(run) == ["mutate", '{"result":{"id":"sent-1"},"status":"applied"}']
    [row] = await story.keep.mutations(wf)
    assert (row.status, row.params) == ("applied", effect.params)


async def test_an_approval_is_good_for_one_call(story: Story) -> None:
    # I29: neither twice, nor for the next event
    wf, asked = await waiting(story)
    await story.keep.approve(asked.id)
    with pytest.raises(Refused, match="approved"):
        await story.keep.approve(asked.id)
    with pytest.raises(Refused, match="approved"):
        await story.keep.reject(asked.id)
    story.feed.put("b", "again")
    await story.run(minutes=5)
    assert [e.params["to"] for e in story.world.effects] == ["a"]
    [next_one] = await story.keep.needs_you(wf)
    assert (next_one.id != asked.id, next_one.facts["params"]) == (True, {"to": "b", "body": "again"})
    for act in (story.keep.approve, story.keep.reject):
        with pytest.raises(Refused, match="consumed"):
            await act(asked.id)


async def test_a_retry_after_a_failure_asks_again(story: Story) -> None:
    # I29: the approval was used up by the call that failed
    wf, asked = await waiting(story)
    story.world.on("gmail.send").fail(Transient("later"))
    await story.keep.approve(asked.id)
    await story.run()
    assert (await story.last(wf)).status == "paused:transient"
    await story.run(seconds=30)
    assert story.world.count("gmail.send") == 1
    [again] = await story.keep.needs_you(wf)
    assert (again.kind, again.id != asked.id) == ("approval", True)
    await story.keep.approve(again.id)
    await story.run()
    assert len(story.world.effects) == 1


async def test_reject_sends_nothing_and_ends_the_work_as_skipped(story: Story) -> None:
    # R309
    wf, asked = await waiting(story)
    await story.keep.reject(asked.id)
    await story.run()
    run = await story.last(wf, "act")
    assert (run.status, story.logs(run)[-1]) == ("committed", '{"status":"skipped"}')
    assert (await story.event(wf, "in", "a")).status == "skipped"
    assert (story.world.asked, await story.keep.mutations(wf), await story.keep.needs_you(wf)) == ([], [], [])
    with pytest.raises(Refused, match="rejected"):
        await story.keep.approve(asked.id)


async def test_a_restart_keeps_the_question_the_answer_and_the_reservation(story: Story) -> None:
    # R113, R310
    wf, asked = await waiting(story)
    await story.reopen()
    await story.run(hours=1)
    assert await story.keep.needs_you(wf) == [asked]
    assert (await story.event(wf, "in", "a")).reserved_by == asked.run_id
    await story.keep.approve(asked.id)
    await story.reopen()
    await story.run()
    assert [e.params for e in story.world.effects] == [{"to": "a", "body": "hello"}]
    assert story.logs(await story.last(wf, "act")).count("mutate") == 1


@pytest.mark.parametrize("point", ["before:send", "after:send", "after:call"])
async def test_a_crash_around_an_approved_call_sends_it_once_and_only_once(story: Story, point: str) -> None:
    # I1, I29, DESIGN 10: before in_flight it is still approved; afterwards it is looked up
    wf, asked = await waiting(story)
    await story.keep.approve(asked.id)
    await story.crash(point)
    await story.run()
    for question in await story.keep.needs_you(wf):  # a proven absence is sent anew, so it is asked anew
        assert point == "after:send"
        await story.keep.approve(question.id)
    await story.run(seconds=30)
    for question in await story.keep.needs_you(wf):
        assert point == "after:send"
        await story.keep.approve(question.id)
    await story.run()
    assert len(story.world.effects) == 1
    assert (await story.last(wf, "act")).status == "committed"


async def test_a_question_that_nobody_answers_is_asked_afresh(story: Story) -> None:
    # DESIGN 10, 14: approvals expire after 24 h
    wf, asked = await waiting(story)
    await story.run(hours=23)
    assert await story.keep.needs_you(wf) == [asked]
    story.clock.advance(hours=1)
    with pytest.raises(Refused, match="expired"):
        await story.keep.approve(asked.id)
    await story.run()
    [again] = await story.keep.needs_you(wf)
    assert (again.id != asked.id, again.facts["params"]) == (True, asked.facts["params"])
    with pytest.raises(Refused, match="expired"):
        await story.keep.approve(asked.id)
    await story.keep.approve(again.id)
    await story.run()
    assert len(story.world.effects) == 1


async def test_an_answer_that_was_not_used_in_time_is_not_used_later(tmp_path: Path) -> None:
    # I29: approved, then the workflow was paused for too long
    async with Story(tmp_path, policy=Policy(approval_s=3600)) as story:
        wf, asked = await waiting(story)
        await story.keep.pause(wf)
        await story.keep.approve(asked.id)
        story.clock.advance(hours=2)
        await story.keep.resume(wf)
        await story.run()
        assert story.world.effects == []
        [again] = await story.keep.needs_you(wf)
        assert again.id != asked.id


async def test_a_new_version_makes_the_question_void(story: Story) -> None:
    # R308, R334, I11: what was shown belonged to the old script
    wf, asked = await waiting(story)
    await story.deploy_and_run(acting("await ctx.gmail.send({ to: 'another' });"), grants=None)
    with pytest.raises(Refused, match="void"):
        await story.keep.approve(asked.id)
    [again] = await story.keep.needs_you(wf)
    assert again.facts["params"] == {"to": "another"}
    assert story.world.effects == []


async def test_a_new_version_between_the_answer_and_the_send_makes_the_answer_void(story: Story) -> None:
    # R308, I29
    _, asked = await waiting(story)
    await story.keep.approve(asked.id)
    await story.deploy_and_run(acting("await ctx.gmail.send({ to: 'another' });"), grants=None)
    assert "another" not in [e.params["to"] for e in story.world.effects]
    assert len(story.world.effects) <= 1


@pytest.mark.parametrize("approved", [False, True])
async def test_a_capability_that_is_denied_meanwhile_is_not_used(story: Story, approved: bool) -> None:
    # I24: grants are looked at again before the send
    wf, asked = await waiting(story)
    if approved:
        await story.keep.approve(asked.id)
    await story.keep.grant(wf, "gmail.send", "deny")
    if not approved:
        try:
            await story.keep.approve(asked.id)
        except Refused:
            pass
    await story.run()
    assert story.world.asked == []
    assert (await story.last(wf)).status == "paused:approval"


async def test_skipping_the_run_answers_its_question(story: Story) -> None:
    # I32: "unapproved" can be skipped
    wf, asked = await waiting(story)
    await story.keep.skip_run(asked.run_id)
    await story.run()
    assert (await story.event(wf, "in", "a")).status == "skipped"
    with pytest.raises(Refused, match="void"):
        await story.keep.approve(asked.id)
    assert story.world.asked == []


async def test_wrong_params_are_refused_before_anybody_is_asked(story: Story) -> None:
    wf = await story.deploy_and_run(acting("await ctx.gmail.send('no object'.trim());"), "a", grants=ASK)
    assert (await story.last(wf)).status == "failed:logic"
    assert [q.kind for q in await story.keep.needs_you(wf)] == ["logic"]


async def test_what_is_not_there_cannot_be_approved(story: Story) -> None:
    for act in (story.keep.approve, story.keep.reject):
        with pytest.raises(NotFound, match="apr_nothing"):
            await act("apr_nothing")
