"""Who may come in by a proof of their own: agents by a token, the person at the terminal by the PIN."""

from __future__ import annotations

from ...model.principals import OWNER, Principal
from ..base import Tx
from .workflows import note


def add_agent(tx: Tx, agent: Principal, secret: str, actor: str) -> None:
    """An agent comes in with the token of this hash from now on."""
    assert agent.role is not None, agent
    tx.expect(
        "principal_add", f"there is an agent {agent.name!r} already", kind=str(agent.kind), name=agent.name,
        role=str(agent.role), secret=secret, actor=actor, now=tx.now,
    )
    note(tx, None, "agent_add", str(agent), actor, {"role": str(agent.role)})


def remove_agent(tx: Tx, agent: Principal, actor: str) -> None:
    """The token of an agent is worth nothing any more."""
    tx.expect(
        "principal_remove", f"there is no agent {agent.name!r}", kind=str(agent.kind), name=agent.name, actor=actor,
        now=tx.now,
    )
    note(tx, None, "agent_remove", str(agent), actor, None)


def set_pin(tx: Tx, secret: str, actor: str) -> None:
    """The PIN of whoever types at the terminal has this hash from now on."""
    tx.run(
        "principal_add", kind=str(OWNER.kind), name=OWNER.name, role=str(OWNER.role), secret=secret, actor=actor,
        now=tx.now,
    )
    note(tx, None, "set_pin", str(OWNER), actor, None)
