"""Everybody acts under their own name, and only in ways that their role has."""

from __future__ import annotations

import pytest

from keepai.engine.tokens_and_pins import agent_of, has_agents, principal_of
from keepai.ledger.account import walk
from keepai.model.acts import REQUESTS
from keepai.model.errors import NotFound, Refused
from keepai.model.principals import ROLES, Principal, PrincipalKind, Role
from tests.harness import POLL, Story, producer, workflow
from tests.ledger.stores import reads

pytestmark = pytest.mark.both_stores

FLOW = workflow(producers={"poll": producer(POLL)})
CLAUDE = Principal(PrincipalKind.AGENT, "claude", Role.PROPOSE)


async def test_keep_knows_no_act_that_its_principal_does_not_have(story: Story) -> None:
    for role in Role:
        kind = next(kind for kind, roles in ROLES.items() if role in roles)
        theirs = story.keep.acting_as(Principal(kind, "x", role))
        for name, act in REQUESTS.items():
            if role not in act.roles:
                needs = {key: "x" for key, param in act.params.items() if param.required}
                with pytest.raises(NotFound, match=f"There is no act '{name}'"):
                    await getattr(theirs, name)(**needs)
    assert await story.keep.version() == 0


async def test_what_an_agent_does_is_kept_under_its_name_and_the_host_stays_its_owners(story: Story) -> None:
    ann = story.keep.acting_as(Principal.person("ann"))
    wf = (await ann.deploy(FLOW)).workflow_id
    await story.keep.acting_as(CLAUDE).pause(wf)
    await ann.resume(wf)
    acts = await story.rows("action_all", workflow_id=wf)
    assert [(each["act"], each["actor"]) for each in acts] == [
        ("deploy", "person:ann"), ("pause", "agent:claude"), ("resume", "person:ann")]
    told = [each.by for each in (await story.keep.explain(wf)).story if each.by]
    assert "agent:claude" in told


async def test_an_agent_comes_in_with_its_token_until_it_is_removed(story: Story) -> None:
    keep, read = story.keep, story.keep.parts.ledger
    with pytest.raises(Refused, match="There is no PIN yet"):
        await keep.agent_add("claude")
    await keep.set_pin("123456")
    assert not await read.look(has_agents)
    token = await keep.agent_add("claude", "propose")
    assert await read.look(agent_of, token) == CLAUDE
    with pytest.raises(Refused, match="the agent 'claude' is there already"):
        await keep.agent_add("claude")
    for name in ("", "Claude", "a b", "x" * 41, "-a"):
        with pytest.raises(Refused, match="is no name: those of agents"):
            await keep.agent_add(name)
    with pytest.raises(Refused, match="roles of agents are look, propose"):
        await keep.agent_add("other", "owner")
    await keep.agent_remove("claude")
    assert await read.look(agent_of, token) is None
    assert not await read.look(has_agents)
    with pytest.raises(Refused, match="there is no agent 'claude'"):
        await keep.agent_remove("claude")
    again = await keep.agent_add("claude")
    assert (again != token, await read.look(agent_of, token)) == (True, None)
    told = [(move["target"] or move["why"], move["subject"]) for move in walk(reads(read)) if move["machine"] == "act"]
    assert [subject for _, subject in told] == ["person", "agent:claude", "agent:claude", "agent:claude"]
    assert "123456" not in str(told)


async def test_a_user_comes_in_with_a_token_until_they_are_removed_and_is_no_agent(story: Story) -> None:
    keep, read = story.keep, story.keep.parts.ledger
    token = await keep.user_add("ann", "operator")
    assert await read.look(principal_of, token) == Principal.person("ann", Role.OPERATOR)
    assert (await read.look(agent_of, token), await read.look(has_agents)) == (None, False)
    with pytest.raises(Refused, match="the user 'ann' is there already"):
        await keep.user_add("ann", "owner")
    for name, role in (("", "viewer"), ("a b", "viewer"), ("bob", "propose"), ("bob", "host")):
        with pytest.raises(Refused, match=r"is no name|The roles of users are operator, owner, viewer"):
            await keep.user_add(name, role)
    await keep.set_pin("123456")
    with pytest.raises(Refused, match="there is no user ''"):
        await keep.user_remove("")  # the PIN is nobody's name
    await keep.agent_add("ann", "look")
    await keep.user_remove("ann")
    assert await read.look(principal_of, token) is None
    assert await read.look(has_agents), "the agent of the same name stays"
    again = await keep.user_add("ann")
    assert await read.look(principal_of, again) == Principal.person("ann", Role.VIEWER)
    told = [(move["target"] or move["why"], move["subject"]) for move in walk(reads(read)) if move["machine"] == "act"]
    assert [subject for _, subject in told] == ["person:ann", "person", "agent:ann", "person:ann", "person:ann"]
    assert token not in str(told)
