"""DESIGN 13: what a workflow does next is decided once; what `needs_you` and `explain` say is what the host does."""

from __future__ import annotations

import pytest

from keepai.engine.next_step import CarryOn, Wait, look, next_step
from keepai.model.policy import Policy
from tests.harness import SEND, Story, consumer, producer, workflow

SENDING = workflow(producers={"poll": producer()}, consumers={"act": consumer(mutate=SEND)})


async def movers(story: Story, id: str) -> list[str]:
    return [f"{mover.kind}: {mover.what}" for mover in (await story.keep.explain(id)).moved_by]


async def test_an_approved_call_whose_grant_is_denied_meanwhile_is_neither_sent_nor_said_to_be(story: Story) -> None:
    wf = await story.deploy_and_run(SENDING, "a", grants={"feed.list": "allow", "gmail.send": "ask"})
    [asked] = await story.keep.needs_you()
    await story.keep.approve(asked.id)
    assert "sends the approved call" in str(await movers(story, asked.run_id))
    await story.keep.grant(wf, "gmail.send", "deny")
    said = await movers(story, asked.run_id)
    assert "sends" not in str(said)
    assert "no longer fits" in str(said)
    assert await story.keep.needs_you() == []  # the host goes on first, and then asks
    await story.run()
    assert story.world.effects == []
    assert [each.kind for each in await story.keep.needs_you()] == ["permission"]


async def test_a_call_that_waits_for_approval_and_is_denied_meanwhile_asks_for_permission(story: Story) -> None:
    wf = await story.deploy_and_run(SENDING, "a", grants={"feed.list": "allow", "gmail.send": "ask"})
    await story.keep.grant(wf, "gmail.send", "deny")
    await story.run()
    [asked] = await story.keep.needs_you()
    assert (asked.kind, asked.actions) == ("permission", ("grant", "retry", "skip_run"))


async def test_a_missing_capability_that_is_granted_with_ask_is_no_question_any_more(story: Story) -> None:
    wf = await story.deploy_and_run(SENDING, "a", grants={"feed.list": "allow"})
    [asked] = await story.keep.needs_you()
    assert asked.kind == "permission"
    await story.keep.grant(wf, "gmail.send", "ask")
    assert await story.keep.needs_you() == []
    assert "gmail.send has been granted since" in str(await movers(story, asked.run_id))
    await story.run()
    assert [each.kind for each in await story.keep.needs_you()] == ["approval"]


async def test_a_read_that_is_granted_with_ask_stays_a_question(story: Story) -> None:
    wf = await story.deploy_and_run(SENDING, grants={"gmail.send": "allow"})
    [asked] = await story.keep.needs_you()
    runs = len(await story.runs(wf))
    await story.keep.grant(wf, "feed.list", "ask")
    assert [each.id for each in await story.keep.needs_you()] == [asked.id]
    await story.run()
    assert len(await story.runs(wf)) == runs


@pytest.mark.parametrize(("mode", "kind"), [("allow", CarryOn), ("deny", Wait)])
async def test_a_look_without_a_host_decides_by_what_the_ledger_says(
    story: Story, mode: str, kind: type[object],
) -> None:
    wf = await story.deploy_and_run(SENDING, "a", grants={"feed.list": "allow"})
    await story.keep.grant(wf, "gmail.send", mode)
    now = look(story.reader(), wf, story.clock.now_ms(), Policy(), None)
    assert isinstance(next_step(now), kind)
