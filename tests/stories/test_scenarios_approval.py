"""What people are shown is true, and what they allow is used for nothing else."""

from __future__ import annotations

from keepai import OutcomeUnknown, Transient
from keepai.model.codec import encode
from tests.attack.approvals import BODY, LIE, acting, acts_again, waiting
from tests.harness import Story


async def test_a_lying_title_stands_beside_the_true_recipient_when_approval_is_asked(story: Story) -> None:
    # I30, R305: the host's own words are made from the params
    _, asked = await waiting(story)
    assert asked.facts["title_by_script"] == LIE
    assert asked.facts["target"] == "mallory@example.net"
    assert "mallory@example.net" in str(asked.facts["attempted"])
    assert asked.facts["params"] == BODY
    assert LIE not in str(asked.facts["attempted"])


async def test_a_lying_title_stands_beside_the_true_recipient_when_the_outcome_is_unknown(story: Story) -> None:
    # I30, R243, R244
    story.feed.put("a")
    story.world.on("gmail.send").fail(OutcomeUnknown("lost"))
    story.world.on_reconcile("gmail.send").unknown()
    wf = await story.deploy_and_run(acting())
    [asked] = await story.keep.needs_you(wf)
    assert (asked.kind, asked.facts["title_by_script"]) == ("unknown_outcome", LIE)
    assert asked.facts["target"] == "mallory@example.net"
    assert "mallory@example.net" in str(asked.facts["attempted"])


async def test_what_is_sent_is_byte_for_byte_what_was_shown(story: Story) -> None:
    # I29: also after a restart, and although the feed has changed meanwhile
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


async def test_an_approval_of_one_run_is_not_spent_on_the_next_attempt_event_or_workflow(story: Story) -> None:
    # I29: single use, bound to run and attempt
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
