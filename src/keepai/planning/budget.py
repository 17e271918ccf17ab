"""How much one plan may cost: drafts, tokens, minutes, money. The loop asks before it spends."""

from __future__ import annotations

from ..config import ModelSettings
from ..model.clock import Clock
from ..model.codec import Json
from .wires import ModelReply

CHARACTERS_PER_TOKEN = 3  #: fewer than in any usual text, so that an estimate is rather too high
REPLY_TOKENS_LEAST = 500  #: with fewer no script can be written


class PlanBudget:
    """What the owner allows for one plan, and what it has used so far."""

    def __init__(self, settings: ModelSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._began_ms = clock.steady_ms()
        self.attempts = self.tokens_in = self.tokens_out = 0

    @property
    def tokens(self) -> int:
        """Read and written together."""
        return self.tokens_in + self.tokens_out

    @property
    def money(self) -> float:
        """What they cost by the owner's prices."""
        each = self.settings
        return (self.tokens_in * each.price_in + self.tokens_out * each.price_out) / 1e6

    @property
    def seconds_left(self) -> float:
        """Until the minutes are used up."""
        used_ms = self._clock.steady_ms() - self._began_ms
        return max(0.0, self.settings.minutes_max * 60 - used_ms / 1000)

    def add(self, reply: ModelReply, asked: int) -> None:
        """Count a reply to so many characters; what the service does not count is estimated."""
        self.tokens_in += reply.tokens_in or asked // CHARACTERS_PER_TOKEN
        self.tokens_out += reply.tokens_out or len(reply.text) // CHARACTERS_PER_TOKEN

    def reply_tokens(self, asked: int) -> int:
        """How many tokens the next reply may have, if `asked` characters are sent; 0 if there is no room for one."""
        each, reads = self.settings, asked // CHARACTERS_PER_TOKEN
        room = min(each.reply_tokens_max, each.tokens_max - self.tokens - reads)
        if each.money_max is not None and each.price_out:
            left = each.money_max - self.money - reads * each.price_in / 1e6
            room = min(room, int(left * 1e6 / each.price_out))
        elif each.money_max is not None and self.money + reads * each.price_in / 1e6 > each.money_max:
            return 0
        return room if room >= min(REPLY_TOKENS_LEAST, each.reply_tokens_max) else 0

    def used_up(self, asked: int) -> str | None:
        """Why no other draft is asked for, in a sentence; None if one may be."""
        each = self.settings
        if self.attempts >= each.attempts_max:
            return f"the model has had its {each.attempts_max} attempts ([model] attempts_max)"
        if not self.seconds_left:
            return f"its {each.minutes_max:g} minutes are over ([model] minutes_max)"
        if not self.reply_tokens(asked):
            money = f" or {each.money_max:g} in money (money_max)" if each.money_max is not None else ""
            return f"another reply could exceed {each.tokens_max:,} tokens ([model] tokens_max){money}"
        return None

    def to_json(self) -> dict[str, Json]:
        """What it has used."""
        return {"attempts": self.attempts, "tokens_in": self.tokens_in, "tokens_out": self.tokens_out,
                "money": round(self.money, 6)}
