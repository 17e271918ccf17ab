"""Which rule asked, for which account a grant counts, and what keep.toml grants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keepai.ledger.transitions import workflows
from keepai.model.errors import Refused
from keepai.model.permissions import grant_of
from tests.harness import Story, consumer, producer, take_first, workflow

SEND = "await ctx.gmail.send({ to: prepared.data.messageId, amount: prepared.data.payload });"
READS = {"feed.list": "allow"}


def sending(name: str = "story") -> str:
    """A workflow that sends what comes in."""
    return workflow(name, producers={"poll": producer()}, consumers={"act": consumer(take_first(), mutate=SEND)})


# Which rule asked


@pytest.mark.parametrize(("rule", "because"), [
    ("ask", "gmail.send is set to ask"),
    ({"mode": "ask", "match": {"to": "*"}}, "gmail.send is set to ask"),
    ({"mode": "allow", "ask_when": ["amount > 1000"]}, "amount > 1000"),
    ({"mode": "allow", "ask_when": ["amount < 5", "amount > 1000"]}, "amount > 1000"),
    ({"mode": "allow", "ask_when": ["amount > 10", "amount > 1000"]}, "amount > 10"),
])
async def test_the_card_says_which_rule_asked(story: Story, rule: Any, because: str) -> None:
    story.feed.put("a", 2000)
    wf = await story.deploy_and_run(sending(), grants={**READS, "gmail.send": rule})
    [asked] = await story.keep.needs_you(wf)
    assert asked.facts["because"] == because
    told = f"waits for a person to approve it. It asks because {because}."
    assert str(asked.facts["why"]).endswith(told)
    run = await story.last(wf)
    assert run.error is not None
    assert run.error.message.endswith(told)


async def test_a_card_that_is_shown_afresh_names_the_rule_that_there_is_then(story: Story) -> None:
    story.feed.put("a", 2000)
    wf = await story.deploy_and_run(sending(), grants={**READS, "gmail.send": "ask"})
    await story.keep.grant(wf, "gmail.send", {"mode": "allow", "ask_when": ["amount > 1000"]})
    await story.run(hours=25)
    [asked] = await story.keep.needs_you(wf)
    assert asked.facts["because"] == "amount > 1000"
    assert str(asked.facts["why"]).endswith("It asks because amount > 1000.")


# For which account it counts


def point(story: Story, connector: str, account: str) -> None:
    """A connector acts for this account from now on, as after another line in keep.toml."""
    story.keep.parts.connectors[connector].account = account  # type: ignore[misc]


async def test_a_grant_does_not_cover_another_account_of_the_same_connector(story: Story) -> None:
    point(story, "gmail", "ann@example.com")
    wf = await story.deploy(sending())
    story.feed.put("a", 1)
    await story.run()
    assert story.world.count("gmail.send") == 1
    point(story, "gmail", "bob@example.com")
    story.feed.put("b", 1)
    await story.run(minutes=5)
    assert story.world.count("gmail.send") == 1
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == "permission"
    assert (asked.facts["capability"], "grant" in asked.actions) == ("gmail.send", True)
    assert str(asked.facts["why"]).startswith(
        "gmail.send was granted for the account ann@example.com, and its connector now has the account "
        "bob@example.com. Change it with `keep grant story gmail.send`"
    )
    await story.keep.grant(wf, "gmail.send", "allow")
    await story.run()
    assert [effect.params["to"] for effect in story.world.effects] == ["a", "b"]
    assert await story.keep.needs_you(wf) == []


@pytest.mark.parametrize(("before", "after"), [("ann@example.com", ""), ("", "ann@example.com")])
async def test_an_account_that_goes_or_comes_is_another_account(story: Story, before: str, after: str) -> None:
    point(story, "gmail", before)
    wf = await story.deploy(sending())
    point(story, "gmail", after)
    story.feed.put("a", 1)
    await story.run()
    assert story.world.asked == []
    [asked] = await story.keep.needs_you(wf)
    assert "(none)" in str(asked.facts["why"])


async def test_a_read_is_bound_to_its_account_too_and_other_connectors_are_not_concerned(story: Story) -> None:
    point(story, "feed", "one")
    wf = await story.deploy(sending())
    point(story, "feed", "two")
    await story.run()
    assert story.feed.count == 0
    [asked] = await story.keep.needs_you(wf)
    assert asked.facts["capability"] == "feed.list"
    await story.keep.grant(wf, "feed.list", "allow")
    story.feed.put("a", 1)
    await story.run()
    assert story.world.count("gmail.send") == 1


async def test_a_deny_holds_for_every_account(story: Story) -> None:
    point(story, "gmail", "ann@example.com")
    wf = await story.deploy(sending(), grants={**READS, "gmail.send": "deny"})
    point(story, "gmail", "bob@example.com")
    story.feed.put("a", 1)
    await story.run()
    [asked] = await story.keep.needs_you(wf)
    assert "is denied to this workflow" in str(asked.facts["why"])


async def test_a_deploy_says_that_what_was_granted_for_another_account_is_not_granted(story: Story) -> None:
    point(story, "gmail", "ann@example.com")
    await story.deploy(sending())
    point(story, "gmail", "bob@example.com")
    done = await story.keep.deploy(sending())
    assert (done.changed, done.not_granted) == (False, ("gmail.send",))
    again = await story.keep.deploy(sending(), grants="all")
    assert again.not_granted == ()


async def test_a_renewed_grant_is_an_act_of_its_own_in_the_account(story: Story) -> None:
    # the same words twice, for two accounts: neither is taken for a repetition of the other
    point(story, "gmail", "ann@example.com")
    wf = await story.deploy(sending())
    shown = await story.keep.version()
    await story.keep.grant(wf, "gmail.send", "ask", shown=shown)
    await story.keep.grant(wf, "gmail.send", "ask", shown=shown)  # sent once more: done once
    point(story, "gmail", "bob@example.com")
    with pytest.raises(Refused, match="has moved since"):
        await story.keep.grant(wf, "gmail.send", "ask", shown=shown)
    await story.keep.grant(wf, "gmail.send", "ask")
    acts = await story.rows("action_all", workflow_id=wf)
    assert [act["detail"] for act in acts if act["act"] == "grant"] == [
        '{"account":"ann@example.com","mode":"ask"}', '{"account":"bob@example.com","mode":"ask"}',
    ]


# What keep.toml says


async def test_a_grant_by_hand_that_comes_between_plan_and_commit_of_a_deploy_stays(story: Story) -> None:
    wf = await story.deploy(sending(), grants=READS, configured={"story": {"gmail.send": "allow"}})
    planned = {"gmail.send": replace(grant_of("ask", "gmail.send"), configured=True)}
    ledger, read = story.keep.parts.ledger, story.reader()
    await ledger.write(workflows.allow, wf, planned)
    assert [r["mode"] for r in read.all("grant_all", workflow_id=wf)] == ["allow", "ask"]
    await story.keep.grant(wf, "gmail.send", "deny")
    await ledger.write(workflows.allow, wf, planned)
    assert [r["mode"] for r in read.all("grant_all", workflow_id=wf)] == ["allow", "deny"]


async def test_what_keep_toml_grants_counts_for_its_workflow_alone(story: Story) -> None:
    done = await story.keep.deploy(sending("other"), grants=READS, configured={"story": {"gmail.send": "allow"}})
    assert (done.configured, done.not_granted) == ((), ("gmail.send",))
