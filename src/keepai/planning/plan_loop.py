"""The loop: the model drafts, Keep tries, what is wrong goes back, until nothing is wrong or the budget is used up.

A draft that passes is offered: to a person as a proposal, or as a repair that the host's rules judge. A draft that does
not pass is never offered. Everything that was asked and answered is kept, without secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..connectors.typescript import declare
from ..model.clock import Clock, SystemClock
from ..model.codec import Json
from ..model.errors import KeepError, Refused
from ..model.records import Record
from ..model.redaction import Redactor
from .budget import PlanBudget
from .drafts import STEPS, DraftFault, DraftTrials, ScriptDraft, draft_of
from .prompts import prompt, quoted, quoted_json, system_prompt
from .wires import ModelConnection, ModelTurn

KEPT_MAX = 20_000  #: characters of a request or a reply that are kept
ATTEMPTS_KEPT_MAX = 30  #: of those, the last are kept


@dataclass(frozen=True)
class PlanNews(Record):
    """What is going on, in a sentence, and what it has cost so far."""

    attempt: int
    attempts_max: int
    words: str
    tokens: int
    money: float

    @property
    def used(self) -> str:
        """What it has cost so far, for people; empty if nothing yet."""
        cost = f", {self.money:.2f} in money" if self.money else ""
        return f"{self.tokens:,} tokens{cost}" if self.tokens else ""


@dataclass(frozen=True)
class PlanResult(Record):
    """How a plan ended: with what the host made of the draft that was offered, or with the best draft and why."""

    offered: str | None  # the id of the proposal, or of the repair, if one was made
    draft: ScriptDraft | None  # the one that was offered, or else the one that came furthest
    fault: DraftFault | None  # what is wrong with it
    ended: str  # why there was no other attempt; empty if one was offered
    work: dict[str, Json]  # everything that was asked, answered and found


#: Offers a draft that passed, with how it came about; gives the id of the proposal or repair.
Offer = Callable[[ScriptDraft, dict[str, Json]], Awaitable[str]]


@dataclass
class PlanLoop:
    """One plan, or one repair."""

    model: ModelConnection
    trials: DraftTrials
    folder: Path | None  # of keep.toml, where the owner's prompts may be
    offer: Offer
    tell: Callable[[PlanNews], None] = lambda news: None
    needs_cases: bool = True
    clock: Clock = field(default_factory=SystemClock)
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._budget = PlanBudget(self.model.settings, self.clock)
        self._redactor = Redactor([*self.trials.connectors, self.model])
        by_id = self.trials.policy.mutate_reads == "by_id"
        types = declare(self.trials.connectors, mutate_reads=by_id)
        self._system = self._redactor.text(system_prompt(self.folder, types))
        self._best: tuple[ScriptDraft, DraftFault] | None = None
        self._faults: list[DraftFault] = []
        self._attempts: list[Json] = []

    async def plan(self, words: str, before: ScriptDraft | None = None) -> PlanResult:
        """A script for a person's words; `before` is the draft or proposal to go on from."""
        began = "Go on from this script and these cases, and change what was asked for:\n\n" + "\n\n".join(
            quoted(text) for text in (before.source, before.cases or "no cases")) if before else ""
        taken = ", ".join(sorted(self.trials.taken)) or "none"
        return await self._run(prompt("plan.txt", self.folder, words=words, before=began, taken=quoted(taken)), words)

    async def mend(self, evidence: dict[str, Json], cases: str | None, words: str = "") -> PlanResult:
        """A mended script for a run that failed; `evidence` is an `Evidence` as JSON."""
        facts = {name: value for name, value in evidence.items() if name != "source"}
        said = f"The person adds: {words}" if words else ""
        asked = prompt(
            "repair.txt", self.folder, evidence=quoted_json(facts), script=quoted(str(evidence["source"])),
            cases=quoted(cases) if cases else "It has none.", words=said)
        return await self._run(asked, words, cases)

    async def _run(self, first: str, words: str, cases: str | None = None) -> PlanResult:
        first = self._redactor.text(first)
        turns = [ModelTurn("user", first)]
        while (ended := self._budget.used_up(self._size(turns))) is None:
            self._budget.attempts += 1
            try:
                draft, fault, answer = await self._attempt(turns, cases)
            except KeepError as error:
                ended = error.message
                break
            if fault is None and isinstance(draft, ScriptDraft):
                try:
                    return PlanResult(
                        await self.offer(draft, self._work(words)), draft, None, "", self._work(words))
                except Refused as error:  # the host's rules have the last word, and the model may hear why
                    fault = DraftFault("offer", error.message)
                    self._note(fault)
            assert fault is not None
            self._remember(draft, fault)
            self._say(f"{fault.step}: {fault.words}")
            turns = [turns[0], ModelTurn("assistant", answer or "(nothing)"), ModelTurn("user", self._again(fault))]
        best, wrong = self._best or (None, self._faults[-1] if self._faults else None)
        return PlanResult(None, best, wrong, ended, self._work(words))

    async def _attempt(
        self, turns: list[ModelTurn], cases: str | None,
    ) -> tuple[ScriptDraft | None, DraftFault | None, str]:
        """Ask once, and try what comes."""
        asked = self._size(turns)
        self._say(f"asking {self.model.settings.name}")
        reply = await self.model.ask(
            self._system, turns, self._budget.reply_tokens(asked), lambda: self._budget.seconds_left, self.wait,
            self._say)
        self._budget.add(reply, asked)
        text = self._redactor.text(reply.text)
        self._attempts.append({
            "asked": turns[-1].text[:KEPT_MAX], "answered": text[:KEPT_MAX], "cut": reply.cut,
            "tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out, "found": None})
        found = draft_of(replace(reply, text=text), needs_cases=self.needs_cases)
        if isinstance(found, DraftFault):
            self._note(found)
            return None, found, text
        draft = ScriptDraft(found.source, found.cases if found.cases is not None else cases, found.why)
        self._say("checking the draft")
        try:
            async with asyncio.timeout(max(1.0, self._budget.seconds_left)):
                fault = await self.trials.first_fault(draft, self._say)
        except TimeoutError:
            fault = DraftFault("certify", "the time of the budget ended before the draft was tried")
        if fault is not None:
            self._note(fault)
        return draft, fault, text

    def _again(self, fault: DraftFault) -> str:
        told = prompt("again.txt", self.folder, fault=quoted_json(fault.to_json()), earlier=quoted(self._earlier()))
        return self._redactor.text(told)

    def _earlier(self) -> str:
        return "; ".join(f"{each.step}: {each.words}"[:500] for each in self._faults[:-1]) or "nothing"

    def _remember(self, draft: ScriptDraft | None, fault: DraftFault) -> None:
        """Keep the draft that came furthest; of two, the later one."""
        self._faults.append(fault)
        if draft is not None and (
                self._best is None or STEPS.index(fault.step) >= STEPS.index(self._best[1].step)):
            self._best = draft, fault

    def _note(self, fault: DraftFault) -> None:
        last = self._attempts[-1]
        assert isinstance(last, dict)
        last["found"] = self._redactor.value(fault.to_json())

    def _size(self, turns: list[ModelTurn]) -> int:
        return len(self._system) + sum(len(turn.text) for turn in turns)

    def _say(self, words: str) -> None:
        budget = self._budget
        self.tell(PlanNews(budget.attempts, budget.settings.attempts_max, self._redactor.text(words), budget.tokens,
                           budget.money))

    def _work(self, words: str) -> dict[str, Json]:
        """How the draft came about."""
        each = self.model.settings
        return {"words": self._redactor.text(words), "model": each.name, "wire": each.wire,
                "used": self._budget.to_json(), "attempts": self._attempts[-ATTEMPTS_KEPT_MAX:]}
