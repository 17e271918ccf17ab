"""Who acts: a person, an agent, one of Keep's own models, or the host itself; and which role decides what there is.

A role never refuses. What it does not have is not there: a door offers only the acts and looks of its principal's role
(`model/acts.py`), and `Keep` knows no other for it. The account keeps the text of a principal, "person:ann"; a script,
a request or a form never names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from .codec import sound

#: The variable from which the command `keep` takes the token of the agent as which it acts.
ENV_AGENT_TOKEN = "KEEP_AGENT_TOKEN"  # noqa: S105 (the name of one)


class PrincipalKind(StrEnum):
    """What somebody who acts is. These words are stored."""

    PERSON = "person"  #: somebody who answers for what they do
    AGENT = "agent"  #: a program that a person gave a token
    PLANNER = "planner"  #: the model that drafts workflows
    MAINTAINER = "maintainer"  #: the model, or the program, behind the repair hook
    HOST = "host"  #: Keep itself


class Role(StrEnum):
    """What a principal may do. These words are stored."""

    VIEWER = "viewer"  #: a person who looks
    OPERATOR = "operator"  #: a person who also answers questions, pauses and retries
    OWNER = "owner"  #: a person who also deploys and grants, and has secrets, users and agents
    LOOK = "look"  #: an agent that looks
    PROPOSE = "propose"  #: an agent that also certifies, offers changes and pauses


#: Kind → the roles that it can have. The host has none: it follows the policy, and acts on nobody's behalf.
ROLES: Mapping[PrincipalKind, frozenset[Role]] = MappingProxyType({
    PrincipalKind.PERSON: frozenset({Role.VIEWER, Role.OPERATOR, Role.OWNER}),
    PrincipalKind.AGENT: frozenset({Role.LOOK, Role.PROPOSE}),
    PrincipalKind.PLANNER: frozenset({Role.PROPOSE}),
    PrincipalKind.MAINTAINER: frozenset({Role.PROPOSE}),
    PrincipalKind.HOST: frozenset(),
})


#: Whom an owner lets in by a token → the word for them.
LET_IN: Mapping[PrincipalKind, str] = MappingProxyType({PrincipalKind.AGENT: "agent", PrincipalKind.PERSON: "user"})


@dataclass(frozen=True)
class Principal:
    """Somebody who acts. Its text is what the account keeps, and what people see."""

    kind: PrincipalKind
    name: str = ""
    role: Role | None = None

    def __post_init__(self) -> None:
        has_role = self.role in ROLES[self.kind] if ROLES[self.kind] else self.role is None
        if not has_role:
            raise ValueError(f"A {self.kind} cannot have the role {self.role}.")

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @classmethod
    def person(cls, name: str = "", role: Role = Role.OWNER) -> Principal:
        """A person; who opens a ledger with their own hands owns it."""
        return cls(PrincipalKind.PERSON, sound(name), role)


#: Whoever opens a ledger without saying who they are.
OWNER = Principal.person()
PLANNER = Principal(PrincipalKind.PLANNER, role=Role.PROPOSE)
MAINTAINER = Principal(PrincipalKind.MAINTAINER, role=Role.PROPOSE)
HOST = Principal(PrincipalKind.HOST)
#: Keep's own models, by their text.
MODELS: Mapping[str, Principal] = MappingProxyType({str(each): each for each in (PLANNER, MAINTAINER)})
