"""Whether a person is there who acts: while agents are registered, a person shows it by the PIN.

The host judges, so a command cannot leave it out. What an agent has too needs no PIN. The page asks for it once, when a
browser signs in: whoever can start a host sees the address and chooses the password. A command that changes files
beside the ledger, such as `keep secrets set`, asks for `confirm_presence` first (`cli/ask_host.py`). The PIN stops an
agent that uses the command `keep`. It is no wall against a program of the same user that reads and writes the ledger's
file itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..engine import tokens_and_pins
from ..model.acts import requests_of
from ..model.errors import PresenceNeeded
from ..model.principals import Role

if TYPE_CHECKING:
    from ..app import Keep


class Presence:
    """Judges the acts of people that come in without a session, and who begins a session."""

    def __init__(self, keep: Keep) -> None:
        self._keep, self._tries = keep, tokens_and_pins.PinTries(lambda: asyncio.get_running_loop().time())

    async def judge(self, act: str, pin: object) -> None:
        """Refuse an act that needs the PIN, and comes without it."""
        if act in requests_of(Role.OWNER) and act not in requests_of(Role.PROPOSE):
            await self.show(pin)

    async def is_wanted(self) -> bool:
        """Whether there is an agent, so that a person must show that they are one."""
        return await self._keep.parts.ledger.look(tokens_and_pins.has_agents)

    async def show(self, pin: object) -> None:
        """Refuse whoever does not show that they are a person, if that is wanted."""
        if not await self.is_wanted():
            return
        kept = await self._keep.parts.ledger.look(tokens_and_pins.pin_kept)
        if kept is None or not isinstance(pin, str):
            raise PresenceNeeded(
                "Agents are registered here, so an act of a person needs the PIN, typed at a terminal, or a page on "
                "which somebody has signed in with it. Nothing was done."
            )
        await self._tries.judge(pin, kept)
