"""Who acts: the words that ledgers keep, and which role has which act."""

from __future__ import annotations

import pytest

from keepai.model.acts import ACTS, REQUESTS, requests_of
from keepai.model.principals import HOST, MAINTAINER, OWNER, PLANNER, ROLES, Principal, PrincipalKind, Role

OPERATORS = {"owner", "operator"}
PROPOSERS = OPERATORS | {"propose"}

#: What is agreed: for every act, who has it.
AGREED = {
    "deploy": {"owner"}, "grant": {"owner"}, "host_dead": {"owner"}, "host_drain": {"owner"}, "prune": {"owner"},
    "agent_add": {"owner"}, "agent_remove": {"owner"}, "set_pin": {"owner"},
    "user_add": {"owner"}, "user_remove": {"owner"},
    "accept": {"owner"}, "decline": OPERATORS, "propose": PROPOSERS, "withdraw": PROPOSERS, "fix": PROPOSERS,
    "pause": PROPOSERS, "certify": PROPOSERS,
    "resume": OPERATORS, "stop": OPERATORS, "set": OPERATORS, "run_now": OPERATORS, "send": OPERATORS,
    "replay": OPERATORS, "approve": OPERATORS, "reject": OPERATORS, "retry": OPERATORS, "skip_run": OPERATORS,
    "skip_event": OPERATORS, "skip_input": OPERATORS, "reprocess": OPERATORS, "finish": OPERATORS,
    "resolve": OPERATORS, "try_again": OPERATORS, "did_not_happen": OPERATORS, "happened": OPERATORS,
    "skip": OPERATORS, "keep": OPERATORS, "seen": OPERATORS,
}


def test_the_words_that_ledgers_keep() -> None:
    assert [*PrincipalKind] == ["person", "agent", "planner", "maintainer", "host"]
    assert [*Role] == ["viewer", "operator", "owner", "look", "propose"]
    claude = Principal(PrincipalKind.AGENT, "claude", Role.LOOK)
    told = (Principal.person("ann"), claude, PLANNER, MAINTAINER, HOST, OWNER)
    assert [str(each) for each in told] == ["person:ann", "agent:claude", "planner", "maintainer", "host", "person"]


def test_every_act_is_had_by_the_roles_that_were_agreed() -> None:
    assert {name: {*act.roles} for name, act in ACTS.items()} == AGREED


def test_who_only_looks_and_who_has_no_role_has_no_act() -> None:
    for role in (Role.VIEWER, Role.LOOK, None):
        assert not set(requests_of(role)) & set(REQUESTS), role
    assert not requests_of(None)


@pytest.mark.parametrize("kind", PrincipalKind)
def test_a_principal_has_a_role_of_its_kind_or_is_none(kind: PrincipalKind) -> None:
    for role in {*Role, None} - (ROLES[kind] or {None}):
        with pytest.raises(ValueError, match="cannot have the role"):
            Principal(kind, "x", role)
