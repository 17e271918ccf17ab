"""Everybody acts under their own name, and only in ways that their role has."""

from __future__ import annotations

import pytest

from keepai.model.acts import REQUESTS
from keepai.model.errors import NotFound
from keepai.model.principals import ROLES, Principal, PrincipalKind, Role
from tests.harness import POLL, Story, producer, workflow

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
