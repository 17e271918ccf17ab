"""Whether a person is there who acts: while agents are registered, a person at the terminal shows it by the PIN.

The host judges, so a command cannot leave it out. An act that an agent has too needs no PIN, and a look needs none. The
page needs none either: its session is a person's. The PIN stops an agent that uses the command `keep`. It is no wall
against a program of the same user that reads and writes the ledger's file itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..engine import tokens_and_pins
from ..model.acts import REQUESTS
from ..model.errors import PresenceNeeded
from ..model.principals import Role

if TYPE_CHECKING:
    from ..app import Keep


class Presence:
    """Judges the acts of people that come in without a session."""

    def __init__(self, keep: Keep) -> None:
        self._keep, self._tries = keep, tokens_and_pins.PinTries(lambda: asyncio.get_running_loop().time())

    async def judge(self, act: str, pin: object) -> None:
        """Refuse an act that needs the PIN, and comes without it."""
        if act not in REQUESTS or Role.PROPOSE in REQUESTS[act].roles:
            return
        ledger = self._keep.parts.ledger
        if not await ledger.look(tokens_and_pins.has_agents):
            return
        kept = await ledger.look(tokens_and_pins.pin_kept)
        if kept is None or not isinstance(pin, str):
            raise PresenceNeeded(
                "Agents are registered here, so an act of a person needs the PIN, typed at a terminal, or the page. "
                "Nothing was done."
            )
        await self._tries.judge(pin, kept)
