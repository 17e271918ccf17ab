"""People in front of the questions: honest, sometimes slow, acting on what they saw, not on what is true by then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from keepai import Keep
from keepai.ledger.account import walk
from keepai.model.errors import KeepError
from keepai.model.records import Escalation
from tests.prove.simulate.outside import Outside

MINUTE = 60.0

#: What somebody does about a card, with the version of it that they saw.
Act = Callable[..., Any]
#: Has the host that lives now do something; raises what it raises, or `HostGone`.
Asks = Callable[[Callable[[Keep], Awaitable[Any]]], Awaitable[Any]]


class HostGone(Exception):
    """The host died before it answered: what it was asked for may or may not have taken place."""


class Person:
    """Somebody who looks, looks outside, thinks and acts."""

    def __init__(
        self, keep: Callable[[], Keep | None], ask: Asks, outside: Outside, chance: random.Random, problems: list[str],
    ) -> None:
        self._keep, self._ask, self._outside, self._random, self._problems = keep, ask, outside, chance, problems

    async def deploy(self, source: str, grants: Any = None) -> None:
        """Bring a version in; if no host is there, try again."""
        while True:
            keep = self._open()
            if keep is not None:
                try:
                    await self._ask(lambda host: host.deploy(source, grants=grants))
                    return
                except KeepError:
                    return  # it does not fit now: the person lets it be
                except HostGone:
                    pass
            await asyncio.sleep(MINUTE / 6)

    async def set_waiting(self, waiting: str) -> None:
        """Say what goes on while a run waits; if no host is there, try again."""
        while True:
            if self._open() is not None:
                try:
                    await self._ask(lambda host: host.set("orders", waiting))
                    return
                except KeepError:
                    pass  # there is no such workflow yet
                except HostGone:
                    pass
            await asyncio.sleep(MINUTE / 6)

    async def watch(self, over: Callable[[], bool], reprocesses: int) -> None:
        """Look now and then, and act some time later on what was seen."""
        left = reprocesses
        while not over():
            await asyncio.sleep(self._random.expovariate(1 / (5 * MINUTE)))
            await self.turn(slow=self._random.choice([0.0, 5.0, 2 * MINUTE, 10 * MINUTE]))
            if left and self._random.random() < 0.3:
                left -= await self._reprocess()

    async def tidy(self) -> None:
        """In the quiet end somebody answers everything, promptly."""
        while True:
            await self.turn(slow=0.0, settle_all=True)
            await asyncio.sleep(10 * MINUTE)

    async def turn(self, slow: float, *, settle_all: bool = False) -> None:
        """Look, decide, think for `slow` seconds, act."""
        keep = self._open()
        if keep is None:
            return
        cards = await keep.needs_you()
        for card in cards if settle_all else cards[:2]:
            act = self._decide(card, settle_all=settle_all)
            await asyncio.sleep(slow)
            keep = self._open()
            if act is None or keep is None:
                continue
            moved = _told(keep, card)
            try:
                await self._ask(partial(act, shown=card.version))
            except (KeepError, HostGone):
                continue  # refused: something moved meanwhile
            if moved and len(_acts(_told(keep, card))) > len(_acts(moved)):  # the same answer once more does nothing
                self._problems.append(f"an answer to {card.title!r} had an effect after it had moved: {moved[-1]}")

    def _open(self) -> Keep | None:
        keep = self._keep()
        return keep if keep is not None and keep._shared.host is not None and keep._shared.parts is not None else None

    # -- deciding ----------------------------------------------------------------------------------

    def _decide(self, card: Escalation, *, settle_all: bool) -> Act | None:
        """What an honest person does about a card, having looked outside just now."""
        choose = self._random.choice
        if card.kind == "unknown_outcome":
            return self._about_doubt(card, settle_all=settle_all)
        if card.kind == "approval":
            said = "approve" if settle_all or self._random.random() < 0.8 else "reject"
            return lambda keep, shown: getattr(keep, said)(card.id, shown=shown)
        if card.id.startswith("ask_itm_"):
            item, input_id = str(card.facts["item_id"]), str(card.facts["input_id"])
            if choose([True, False]):
                return lambda keep, shown: keep.reprocess(item, shown=shown)
            return lambda keep, shown: keep.skip_input(input_id, shown=shown)
        if card.kind == "attention" and card.actions == ("seen",):
            return lambda keep, shown: keep.resolve(str(card.mutation_id), "seen", shown=shown)
        if settle_all and "grant" in card.actions:  # the deployment that should have brought it died with its host
            return lambda keep, shown: keep.grant(card.workflow_id, str(card.facts["capability"]))
        acts = [act for act in card.actions if act in ("retry", "skip_run", "finish", "keep")]
        if not acts:
            return None
        act = "retry" if "retry" in acts and (settle_all or self._random.random() < 0.7) else choose(acts)
        if act == "keep":
            return lambda keep, shown: keep.resolve(str(card.mutation_id), "keep", shown=shown)
        return lambda keep, shown: getattr(keep, act)(card.run_id, shown=shown)

    def _about_doubt(self, card: Escalation, *, settle_all: bool) -> Act | None:
        mutation_id, key = str(card.mutation_id), self._key(str(card.mutation_id))
        if key is None:
            return None
        found = self._outside.effect_of(key)
        offered = [a for a in card.actions if a in ("try_again", "did_not_happen", "happened", "skip")]
        wanted = "happened" if found else "did_not_happen"
        if wanted not in offered:
            return None  # not yet: a request may still arrive
        if not settle_all and self._random.random() < 0.3:
            wanted = self._random.choice([a for a in offered if a in ("try_again", "skip", wanted)])
        result = found.result if found else None
        said = result if wanted == "happened" else None
        return lambda keep, shown: keep.resolve(mutation_id, wanted, result=said, shown=shown)

    def _key(self, mutation_id: str) -> str | None:
        keep = self._open()
        if keep is None:
            return None
        row = keep.parts.ledger.reads.one("mutation_by_id", mutation_id=mutation_id)
        return str(row["idempotency_key"]) if row else None

    async def _reprocess(self) -> int:
        """Have something done once more; 1 if it was accepted."""
        keep = self._open()
        if keep is None:
            return 0
        try:
            events = [e.id for e in await keep.events("orders", "orders") if e.status != "pending"]
            items = [i.id for i in await keep.items("orders") if i.status in ("done", "skipped")]
            if not events + items:
                return 0
            chosen = self._random.choice(events + items)
            await self._ask(lambda host: host.reprocess(chosen))
        except (KeepError, HostGone):
            return 0
        return 1


def _acts(moved: list[str]) -> list[str]:
    """Those of people; a run that was answered and waits for its turn may go on meanwhile."""
    return [each for each in moved if each.startswith("act ")]


def _told(keep: Keep, card: Escalation) -> list[str]:
    """What the account says of a question's run, mutation or approval after it was shown; nothing if it stands."""
    shown, about = int(card.version), (card.id, card.run_id, card.mutation_id)
    return [f"{move['machine']} {move['target']}" for move in walk(keep.parts.ledger.reads, shown + 1)
            if move["subject"] in about]
