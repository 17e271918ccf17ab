"""Plans that were begun on the page: each runs beside the host, and its page follows it; a proposal ends it.

They are kept in memory: what came of a plan is a proposal in the ledger, or nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...app import Keep
from ...config import Settings
from ...engine.certificate import Certification
from ...model.codec import Json
from ...model.errors import KeepError, NotFound, Refused, in_words
from ...model.principals import PLANNER

if TYPE_CHECKING:  # who looks at the page need not load what tries a draft
    from ...planning.drafts import ScriptDraft
    from ...planning.plan_loop import PlanNews, PlanResult

AT_ONCE_MAX = 2
KEPT_MAX = 50
WORDS_MAX = 20_000  #: characters


@dataclass
class BegunPlan:
    """One plan: its words, what has happened so far, and what came of it."""

    number: int
    words: str
    news: list[PlanNews] = field(default_factory=list)
    result: PlanResult | None = None
    trouble: str = ""  # why it broke off
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the model is still at it."""
        return self.result is None and not self.trouble


class BegunPlans:
    """The plans of this page."""

    def __init__(self, keep: Keep, settings: Settings) -> None:
        self._keep, self._settings = keep.acting_as(PLANNER), settings
        self.has_model = settings.model is not None
        self.changes = 0  # grows with everything that happens: open pages look again
        self._plans: dict[int, BegunPlan] = {}
        self._last = 0

    def begin(self, words: str) -> BegunPlan:
        """Have the model write what a person wants; it goes on after this returns."""
        words = words.strip()
        if not words or len(words) > WORDS_MAX:
            raise Refused(f"Say what should happen, in at most {WORDS_MAX:,} characters.")
        if sum(plan.is_running for plan in self._plans.values()) >= AT_ONCE_MAX:
            raise Refused(f"{AT_ONCE_MAX} plans are under way. Wait until one of them has ended.")
        self._last += 1
        plan = self._plans[self._last] = BegunPlan(self._last, words)
        for old in [number for number in self._plans if number <= self._last - KEPT_MAX]:
            del self._plans[old]
        plan.task = asyncio.ensure_future(self._run(plan))
        plan.task.add_done_callback(lambda task: self._ended(plan, task))
        return plan

    def _ended(self, plan: BegunPlan, task: asyncio.Task[None]) -> None:
        """Whatever it ended by, its page says so."""
        error = None if task.cancelled() else task.exception()
        if plan.is_running:
            plan.trouble = in_words(error) if error else "the host ended"
        self.changes += 1

    def get(self, number: int) -> BegunPlan:
        """A plan that was begun since this host started."""
        if number not in self._plans:
            raise NotFound(f"There is no plan {number}. Plans are forgotten when the host ends; proposals stay.")
        return self._plans[number]

    async def close(self) -> None:
        """End them all."""
        running = [plan.task for plan in self._plans.values() if plan.task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, plan: BegunPlan) -> None:
        from ..model_plans import PlanDesk  # here, because it loads what tries a draft

        taken = frozenset(each.name for each in await self._keep.workflows())

        async def certify(source: str, cases: str | None, script: str) -> Certification:
            return await self._keep.certify(source, cases=cases, script=script)

        async def offer(draft: ScriptDraft, work: dict[str, Json]) -> str:
            made = await self._keep.propose(
                draft.source, cases=draft.cases, grants=loop.trials.grants_of(draft), why=draft.why, work=work)
            return str(made.id)

        def tell(news: PlanNews) -> None:
            plan.news.append(news)
            self.changes += 1

        try:
            loop = PlanDesk(self._settings, certify, tell).loop(offer, taken=taken)
            plan.result = await loop.plan(plan.words)
        except KeepError as error:
            plan.trouble = error.message
