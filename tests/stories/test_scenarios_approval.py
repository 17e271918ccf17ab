"""What people are shown is true, and what they allow is used for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepai import OutcomeUnknown, Transient
from keepai.model.codec import encode
from keepai.model.errors import Refused
from keepai.model.records import Escalation
from tests.harness import Story, consumer, producer, workflow

ASK = {"feed.list": "allow", "gmail.send": "ask", "webhook.fire": "ask"}
LIE = "Reminder to myself (only to me@example.com)"
PREPARE = f"""
  const [event] = await ctx.peek("in");
  if (!event) return {{ reservations: [], data: {{}} }};
  return {{ reservations: [{{ topic: "in", ids: [event.messageId] }}], data: event, ui: {{ title: "{LIE}" }} }};
"""
BODY = {
    "to": "mallory@example.net", "body": "ünï\u202ecode \u0000-free ✓", "n": 1.5, "deep": {"b": [1, None], "a": True},
}
SEND = f"await ctx.gmail.send({encode(BODY)});"


def acting(mutate: str = SEND) -> str:
    """A workflow whose title says something else than what it does."""
    return workflow(producers={"poll": producer()}, consumers={"act": consumer(PREPARE, mutate=mutate, next="")})


async def waiting(story: Story, mutate: str = SEND) -> tuple[str, Escalation]:
    """A call that waits for a person."""
    story.feed.put("a")
    wf = await story.deploy(acting(mutate), grants=ASK)
    await story.run()
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == "approval"
    return wf, asked


async def test_a_lying_title_stands_beside_the_true_recipient_when_approval_is_asked(tmp_path: Path) -> None:
    # I30, R305: the host's own words are made from the params
    async with Story(tmp_path) as story:
        _, asked = await waiting(story)
        assert asked.facts["title_by_script"] == LIE
        assert asked.facts["target"] == "mallory@example.net"
        assert "mallory@example.net" in str(asked.facts["attempted"])
        assert asked.facts["params"] == BODY
        assert LIE not in str(asked.facts["attempted"])


async def test_a_lying_title_stands_beside_the_true_recipient_when_the_outcome_is_unknown(tmp_path: Path) -> None:
    # I30, R243, R244
    async with Story(tmp_path) as story:
        story.feed.put("a")
        story.world.on("gmail.send").fail(OutcomeUnknown("lost"))
        story.world.on_reconcile("gmail.send").unknown()
        wf = await story.deploy(acting())
        await story.run()
        [asked] = await story.keep.needs_you(wf)
        assert (asked.kind, asked.facts["title_by_script"]) == ("unknown_outcome", LIE)
        assert asked.facts["target"] == "mallory@example.net"
        assert "mallory@example.net" in str(asked.facts["attempted"])


async def test_what_is_sent_is_byte_for_byte_what_was_shown(tmp_path: Path) -> None:
    # I29: also after a restart, and although the feed has changed meanwhile
    async with Story(tmp_path) as story:
        wf, asked = await waiting(story)
        shown = encode(asked.facts["params"])
        story.feed.put("a", {"to": "somebody else"})
        await story.reopen()
        await story.keep.approve(asked.id)
        await story.run()
        [effect] = story.world.effects
        assert encode(effect.params) == shown == encode(BODY)
        [row] = await story.keep.mutations(wf)
        assert encode(row.params) == shown


async def acts_again(story: Story, asked: Escalation) -> None:
    """Everything that a stale card could still be used for is refused and changes nothing."""
    before = await story.keep.needs_you()
    for act in (story.keep.approve, story.keep.reject):
        with pytest.raises(Refused):
            await act(asked.id)
    assert await story.keep.needs_you() == before


async def deploy_another(story: Story, wf: str, asked: Escalation) -> None:
    await story.deploy(acting("await ctx.gmail.send({ to: 'another@example.net' });"), grants=None)


async def approve_twice(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await acts_again(story, asked)


async def let_it_expire(story: Story, wf: str, asked: Escalation) -> None:
    story.clock.advance(hours=25)


async def approve_and_let_it_expire(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.pause(wf)
    await story.keep.approve(asked.id)
    story.clock.advance(hours=25)
    await story.keep.resume(wf)


async def approve_and_deny(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await story.keep.grant(wf, "gmail.send", "deny")


async def approve_and_narrow(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await story.keep.grant(wf, "gmail.send", {"mode": "ask", "match": {"to": "*@example.com"}})


async def approve_and_retry(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await story.keep.retry(asked.run_id)


async def approve_and_deploy(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    await deploy_another(story, wf, asked)


async def approve_and_change_the_account(story: Story, wf: str, asked: Escalation) -> None:
    await story.keep.approve(asked.id)
    story.keep.parts.connectors["gmail"].account = "mallory"  # type: ignore[misc]


#: What happens between the question and the send → how many sends may follow from this one answer.
BETWEEN: dict[Any, int] = {
    deploy_another: 0, let_it_expire: 0, approve_and_let_it_expire: 0, approve_and_deny: 0, approve_and_narrow: 0,
    approve_and_retry: 0, approve_and_deploy: 0, approve_and_change_the_account: 0, approve_twice: 1,
}


@pytest.mark.parametrize("between", BETWEEN, ids=lambda f: f.__name__.replace("_", " "))
async def test_an_approval_is_used_for_exactly_what_was_shown_or_not_at_all(tmp_path: Path, between: Any) -> None:
    # I24, I29, I31
    async with Story(tmp_path) as story:
        wf, asked = await waiting(story)
        await between(story, wf, asked)
        try:
            await story.keep.approve(asked.id)
        except Refused:
            pass  # one way or the other: what counts is what is sent
        await story.run()
        await story.run(minutes=1)
        assert len(story.world.asked) <= BETWEEN[between]
        assert all(effect.params == BODY for effect in story.world.effects)
        await acts_again(story, asked)


async def test_an_approval_of_one_run_is_not_spent_on_the_next_attempt_event_or_workflow(tmp_path: Path) -> None:
    # I29: single use, bound to run and attempt
    async with Story(tmp_path) as story:
        wf, asked = await waiting(story)
        story.world.on("gmail.send").fail(Transient("later"))
        await story.keep.approve(asked.id)
        story.feed.put("b")
        await story.run()
        await story.run(seconds=30)
        assert story.world.count("gmail.send") == 1
        [again] = await story.keep.needs_you(wf)
        assert again.id != asked.id
        assert again.run_id != asked.run_id
        await story.keep.approve(again.id)
        await story.run(minutes=5)
        assert story.world.count("gmail.send") == 2
        [other] = await story.keep.needs_you(wf)
        assert (other.kind, len(story.world.effects)) == ("approval", 1)
        for old in (asked, again):
            await acts_again(story, old)


@pytest.mark.parametrize("point", [
    "before:send", "after:send", "before:call", "after:call", "before:apply", "after:apply",
])
async def test_an_approval_is_not_used_twice_by_a_crash(tmp_path: Path, point: str) -> None:
    # I1, I2, I29
    async with Story(tmp_path) as story:
        wf, asked = await waiting(story)
        await story.keep.approve(asked.id)
        await story.crash(point)
        await story.run()
        await story.run(minutes=1)
        assert story.world.count("gmail.send") <= 1
        await acts_again(story, asked)
        for question in await story.keep.needs_you(wf):
            assert question.facts["params"] == BODY
            await story.keep.approve(question.id)
        await story.run()
        assert [e.params for e in story.world.effects] == [BODY]
