"""`keep.remedies`: what a person could do is tried on a copy, and nothing of it reaches the ledger or the outside."""

from __future__ import annotations

from keepai import PreconditionFailed
from tests.harness import APPEND, FIRE, Story, acting

ASK = {"gmail.send": "ask", "feed.list": "allow"}


async def came(story: Story, wf: str) -> dict[str, tuple[bool | None, str]]:
    """Act → whether it leads on, and in which words, for the run that holds the workflow."""
    held = (await story.workflow(wf)).blocked_by or wf
    before = await story.keep.version()
    found = await story.keep.remedies(held)
    assert await story.keep.version() == before  # nothing of it is on record
    return {each.act: (each.leads_on, each.words) for each in found}


async def test_a_fault_of_the_script_fails_again_so_trying_again_is_no_remedy(story: Story) -> None:
    source = acting(before="\nnull.x;\n")
    wf = await story.deploy_and_run(source, "a")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "null.x" in text)
    tried = await came(story, wf)
    assert tried["retry"] == (False, f"tried: it would fail again at line {line}, the same way")
    assert tried["skip_run"][0] is True
    assert tried["deploy"][0] is None


async def test_a_fault_of_the_outside_may_be_over_and_the_call_is_named(story: Story) -> None:
    story.world.on("gmail.send").fail(PreconditionFailed("gone"))
    wf = await story.deploy_and_run(acting(), "a")
    leads_on, words = (await came(story, wf))["retry"]
    assert leads_on is True
    assert "“gmail.send: to=\"a\"” would be sent; if it is taken, the run would commit" in words
    assert story.world.effects == []


async def test_what_reads_cannot_be_known_on_a_copy(story: Story) -> None:
    wf = await story.deploy_and_run(acting(before="await ctx.feed.list({}); null.x;"), "a")
    counted = story.feed.count
    assert (await came(story, wf))["retry"] == (None, "not tried to its end: it reads feed.list")
    assert story.feed.count == counted


async def test_saying_that_it_happened_leads_on_only_if_next_gets_through_without_a_result(story: Story) -> None:
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(acting(FIRE, next="mutationResult.result.id.toString();"), "a")
    tried = await came(story, wf)
    assert tried["happened"][0] is False
    assert "it would fail" in tried["happened"][1]
    assert tried["skip"][0] is False  # it is given no result either


async def test_a_held_call_that_is_approved_or_rejected_lets_the_run_commit(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a", grants=ASK)
    tried = await came(story, wf)
    assert [tried[act][0] for act in ("approve", "reject")] == [True, True]
    assert "the run would commit" in tried["approve"][1]
    assert story.world.effects == []


async def test_a_grant_that_is_missing_lets_the_run_go_on(story: Story) -> None:
    wf = await story.deploy_and_run(acting(APPEND), "a", grants={"feed.list": "allow"})
    assert (await came(story, wf))["grant"][0] is True
    assert story.world.effects == []
