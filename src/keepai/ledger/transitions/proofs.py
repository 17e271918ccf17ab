"""Who may come in by a proof of their own: agents and users by a token, whoever types at the terminal by the PIN."""

from __future__ import annotations

from ...model.principals import LET_IN, OWNER, Principal, PrincipalKind
from ..base import Tx
from .workflows import note


def add(tx: Tx, who: Principal, secret: str, actor: str) -> None:
    """An agent or a user comes in with the token of this hash from now on."""
    word = LET_IN[who.kind]
    tx.expect(
        "principal_add", f"the {word} {who.name!r} is there already", kind=str(who.kind), name=who.name,
        role=str(who.role), secret=secret, actor=actor, now=tx.now,
    )
    note(tx, None, f"{word}_add", str(who), actor, {"role": str(who.role)})


def remove(tx: Tx, kind: PrincipalKind, name: str, actor: str) -> None:
    """The token of an agent or a user is worth nothing any more."""
    word = LET_IN[kind]
    tx.expect(
        "principal_remove", f"there is no {word} {name!r}", kind=str(kind), name=name, actor=actor, now=tx.now)
    note(tx, None, f"{word}_remove", f"{kind}:{name}", actor, None)


def set_pin(tx: Tx, secret: str, actor: str) -> None:
    """The PIN of whoever types at the terminal has this hash from now on."""
    tx.run(
        "principal_pin", kind=str(OWNER.kind), name=OWNER.name, role=str(OWNER.role), secret=secret, actor=actor,
        now=tx.now,
    )
    note(tx, None, "set_pin", str(OWNER), actor, None)
