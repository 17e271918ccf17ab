"""The outside world of a simulation: it delays, loses, applies late and hides, and it remembers what took effect.

A request lives in the world, not in the host that sent it: a killed host's request may still land. What a world may do
is bounded by what its connectors declare: `SETTLE_S` after a call has ended, everything of it has landed and shows.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keepai import (
    Call,
    Connector,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    Transient,
    Verdict,
    mutation,
    read,
)
from tests.prove.simulate.loop import HOST

SETTLE_S = 20.0
_LANDS_S = 12.0  # a request lands within this time, or never
_SHOWS_S = 6.0  # and shows to a look-up within this time after that

Params = dict[str, Any]

#: In every result: what a careless copy would change.
ODD = {"é": [0.5, None, {"z": 1, "a": "„“ 🎉"}]}


@dataclass(frozen=True)
class Effect:
    """Something that took place."""

    operation: str
    unit: str  # what it was for, in the script's own words
    key: str
    at: float
    shows_at: float
    result: Any


@dataclass(frozen=True)
class Manners:
    """How the world behaves in one schedule: chances, drawn once per seed (a swarm of kinds of weather)."""

    refuse: float = 0.0  # a definite error
    lose_request: float = 0.0
    lose_answer: float = 0.0
    late: float = 0.0  # lands after the caller was told that it is unknown
    odd: float = 0.0  # an error that no connector declares
    hang: float = 0.0  # no answer at all
    stubborn: float = 0.0  # of as many others: does not even end when cancelled, and sends after that
    ask_fails: float = 0.0  # a look-up that raises, hangs or cannot tell yet
    never_tells: float = 0.0  # a look-up that says "unknown"


class Outside:
    """Orders come in; rows, mails and hooks go out."""

    def __init__(self, seed: int, manners: Manners) -> None:
        self._random = random.Random(seed)
        self.manners = manners
        self.orders: list[str] = []
        self.hidden: set[str] = set()  # orders that are not listed just now
        self.effects: list[Effect] = []
        self.calls: Counter[str] = Counter()
        self.quiet = False  # from then on everything works
        self.alarm: Callable[[], None] = lambda: None  # somebody who happens to watch

    def order(self) -> None:
        """Somebody orders something."""
        self.orders.append(f"o{len(self.orders) + 1}")

    def effect_of(self, key: str, now: float | None = None) -> Effect | None:
        """What a key brought about, if that shows by now."""
        return next((e for e in self.effects if e.key == key and (now is None or e.shows_at <= now)), None)

    def count(self, operation: str, unit: str) -> int:
        """How often something took place for a unit."""
        return sum(e.operation == operation and e.unit == unit for e in self.effects)

    def draw(self, chance: float) -> bool:
        """Whether something of that chance happens now."""
        return not self.quiet and self._random.random() < chance

    def span(self, most: float) -> float:
        """A time up to `most`, most often short."""
        return 0.01 if self.quiet else min(self._random.expovariate(4 / most), most)

    # -- a request ---------------------------------------------------------------------------------

    async def send(self, operation: str, params: Params, call: Call, *, honours_key: bool) -> Any:
        """A side effect: what the caller is told is one thing, what happens is another."""
        self.calls[operation] += 1
        m, unit = self.manners, params["unit"]
        await asyncio.sleep(self.span(1.0))
        if self.draw(m.refuse):
            raise self._refusal()
        if self.draw(m.lose_request):
            raise OutcomeUnknown("The connection broke while the request was being sent.")
        if self.draw(m.stubborn * m.hang):
            await self._stubborn(operation, unit, call.idempotency_key, honours_key=honours_key)
        answer = self._launch(operation, unit, call.idempotency_key, honours_key=honours_key)
        if self.draw(m.late):
            self.alarm()
            raise OutcomeUnknown("The connection broke after the request was sent.")
        if self.draw(m.hang):
            await asyncio.Event().wait()
        result = await answer
        if self.draw(m.lose_answer):
            raise OutcomeUnknown("The connection broke before the answer came.")
        if self.draw(m.odd):
            raise ValueError("an answer that nobody can read")
        return result

    def _launch(self, operation: str, unit: str, key: str, *, honours_key: bool) -> asyncio.Future[Any]:
        """The request is on its way, whoever lives or dies."""
        loop = asyncio.get_running_loop()
        landed: asyncio.Future[Any] = loop.create_future()
        world = contextvars.copy_context()
        world.run(HOST.set, None)

        def land() -> None:
            known = self.effect_of(key) if honours_key else None
            effect = known or self._take_effect(operation, unit, key, loop.time())
            if not landed.done():
                landed.set_result(effect.result)

        loop.call_later(self.span(_LANDS_S), land, context=world)
        return landed

    def _take_effect(self, operation: str, unit: str, key: str, now: float) -> Effect:
        result = {"id": f"{operation}-{len(self.effects) + 1}", "unit": unit, **ODD}
        effect = Effect(operation, unit, key, now, now + self.span(_SHOWS_S), result)
        self.effects.append(effect)
        return effect

    async def _stubborn(self, operation: str, unit: str, key: str, *, honours_key: bool) -> None:
        """A call that does not end when it is told to, and sends its request only then, as a stuck thread may."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(self.span(90.0))
            self._launch(operation, unit, key, honours_key=honours_key)
            raise

    def _refusal(self) -> Exception:
        kind = self._random.randrange(10)
        if kind < 6:
            return Transient("Busy.", retry_after=self._random.choice([None, 1, 600]))
        rare = (Rejected("No."), PermissionDenied("Expired."), PreconditionFailed("Gone."), Transient("Down."))
        return rare[kind - 6]

    async def look_up(self, call: Call) -> Verdict:
        """Whether a key showed when the question arrived; the answer may take long."""
        await asyncio.sleep(self.span(1.0))
        found = self.effect_of(call.idempotency_key, asyncio.get_running_loop().time())
        await asyncio.sleep(self.span(25.0))
        if self.draw(self.manners.ask_fails):
            kind = self._random.randrange(3)
            if kind == 0:
                raise RuntimeError("the look-up broke")
            if kind == 1:
                await asyncio.Event().wait()
            return Verdict.retry(self._random.choice([None, 5, 300]))
        if self.draw(self.manners.never_tells):
            return Verdict.unknown("It keeps no record.")
        return Verdict.applied(found.result) if found else Verdict.failed()


def compared(old: Any, new: Any) -> str:
    """A text in other letters matters little; whatever else differs, a lot."""
    before, now = ({**params, "text": str(params.get("text")).lower()} for params in (old, new))
    return "significant" if before != now else "equivalent" if old == new else "minor"


class Orders(Connector):
    """The source."""

    input_types = ("order",)

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    @read
    async def list(self, params: Params, call: Call) -> Any:
        """Every order so far."""
        await asyncio.sleep(self._outside.span(0.5))
        if self._outside.draw(self._outside.manners.refuse / 2):
            raise Transient("Busy.")
        return [order for order in self._outside.orders if order not in self._outside.hidden]


class Rows(Connector):
    """Class B: a marker can be looked up."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    @mutation(identity=("unit",), target="unit", settle=SETTLE_S)
    async def add(self, params: Params, call: Call) -> Any:
        """Add a row."""
        return await self._outside.send("rows.add", params, call, honours_key=False)

    @add.reconcile
    async def find(self, params: Params, call: Call) -> Verdict:
        """Look for the row."""
        return await self._outside.look_up(call)

    @add.compare_payload
    def same(self, old: Any, new: Any) -> Any:
        """Compare two rows."""
        return compared(old, new)


class Mails(Connector):
    """Class A: the outside system honours the key."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    @mutation(identity=("unit",), target="unit", settle=SETTLE_S, key_window=86_400)
    async def send(self, params: Params, call: Call) -> Any:
        """Send a mail."""
        return await self._outside.send("mails.send", params, call, honours_key=True)

    @send.reconcile
    async def find(self, params: Params, call: Call) -> Verdict:
        """Look for the mail."""
        return await self._outside.look_up(call)

    @send.compare_payload
    def same(self, old: Any, new: Any) -> Any:
        """Compare two mails."""
        return compared(old, new)


class Hooks(Connector):
    """Class C: blind."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    @mutation(identity=("unit",), target="unit", settle=SETTLE_S)
    async def fire(self, params: Params, call: Call) -> Any:
        """Call a hook."""
        return await self._outside.send("hooks.fire", params, call, honours_key=False)

    @fire.compare_payload
    def same(self, old: Any, new: Any) -> Any:
        """Compare two calls."""
        return compared(old, new)


class Books(Connector):
    """Class B, and one book for several units: what is written to a book has an order."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    @mutation(identity=("unit",), target="to", settle=SETTLE_S)
    async def enter(self, params: Params, call: Call) -> Any:
        """Enter a line into a book."""
        return await self._outside.send("books.enter", params, call, honours_key=False)

    @enter.reconcile
    async def find(self, params: Params, call: Call) -> Verdict:
        """Look for the line."""
        return await self._outside.look_up(call)
