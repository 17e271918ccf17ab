"""One pair: the first version works until much is open, the verdict on the second is asked, then it is deployed, and
what really became of each thing is compared with what was said."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from keepai import Keep, OutcomeUnknown, PermissionDenied, Policy, PreconditionFailed, Rejected, Transient
from keepai.engine.verdict import DeployVerdict, Fate, OpenThing, Tried
from keepai.model.errors import KeepError, Refused
from keepai.model.states import DOUBTFUL, MutationStatus
from keepai.runtime.base import Runtime
from keepai.testing import ManualClock, World
from tests.harness import START, Feed, acting
from tests.ledger.stores import reads
from tests.verdicts.pairs import CAPABILITIES, changed, drawn, grants

FAULTS = (OutcomeUnknown("lost"), OutcomeUnknown("lost"), Transient("busy"), PermissionDenied("no"),
          PreconditionFailed("gone"), Rejected("bad"))
STARTED = ("preparing", "executing")


@dataclass
class Judged:
    """What one pair came to."""

    fates: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    moved: int = 0  # things that the load moved between the verdict and the deploy
    wrong: list[str] = field(default_factory=list)
    stranded: list[str] = field(default_factory=list)


async def judge(seed: int, runtime: Runtime, folder: str | None = None) -> Judged:
    """Draw a pair, and judge the verdict on it."""
    with tempfile.TemporaryDirectory(prefix="keep-verdict-", dir=folder) as home:
        return await _Pair(Random(seed), Path(home), runtime).run()


class _Pair:
    def __init__(self, chance: Random, home: Path, runtime: Runtime) -> None:
        self.chance, self.clock = chance, ManualClock(START)
        self.world, self.feed = World(self.clock), Feed()
        self.keep = Keep(home / "keep.db", connectors=[*self.world.connectors(), self.feed], clock=self.clock,
                         policy=Policy(parked_max=5), runtime=runtime)
        self.judged = Judged()
        self.first = drawn(chance)
        self.second = changed(self.first, chance)
        self.granted: dict[str, str] = {}
        self.wf = ""

    async def run(self) -> Judged:
        async with self.keep:
            await self._work()
            load = await self._load()
            verdict = await self.keep.verdict(self.second.source("pair"), workflow_id=self.wf)
            if verdict.changed:
                verdict = await self._deploy(verdict)
                self.world._plans.clear()  # from now on the outside does what it is asked
                self.world.release()
                await self._until_idle(load)
                both = (*verdict.things, *self.real.values())
                at_work = any(each.what is Fate.UNDER_WAY for each in both)
                for thing in verdict.things:
                    self._compare(thing, at_work=at_work)
            else:
                self.world.release()
                await self._until_idle(load)
            await self._to_the_end()
        return self.judged

    # -- before ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """The first version works, with faults, and people who answer some of its questions."""
        chance = self.chance
        self.granted = grants(chance)
        done = await self.keep.deploy(self.first.source("pair"), grants=self.granted)
        self.wf = done.workflow_id
        await self.keep.set(self.wf, chance.choice(("stop", "intake", "others", "others")))
        for number in range(chance.randint(1, 3)):
            for each in range(chance.randint(1, 3)):
                self.feed.put(f"m{number}{each}")
            if chance.random() < 0.6:
                on = self.world.on(chance.choice(CAPABILITIES))
                on.lose_answer() if chance.random() < 0.4 else on.fail(chance.choice(FAULTS))
            if chance.random() < 0.4:
                on_reconcile = self.world.on_reconcile(chance.choice(CAPABILITIES[:2]))
                on_reconcile.unknown() if chance.random() < 0.5 else on_reconcile.retry(times=3)
            self.clock.advance(minutes=5)
            await self.keep.run_until_idle()
            if chance.random() < 0.3:
                await self._answer_one()
        if chance.random() < 0.1:
            await self.keep.pause(self.wf)
        if chance.random() < 0.1:
            self.clock.advance(hours=25)  # approvals expire

    async def _answer_one(self) -> None:
        for question in (await self.keep.needs_you(self.wf))[:1]:
            act = self.chance.choice(question.actions) if question.actions else ""
            with suppress(KeepError):
                await self._act(question, act)

    async def _act(self, question: Any, act: str) -> None:
        if act in ("approve", "reject"):
            await getattr(self.keep, act)(question.id)
        elif act in ("retry", "skip_run", "finish"):
            await getattr(self.keep, act)(question.run_id)
        elif act in ("try_again", "did_not_happen", "happened", "skip", "keep"):
            await self.keep.resolve(question.mutation_id, act)
        elif act == "grant":
            await self.keep.grant(self.wf, question.facts["capability"])

    async def _load(self) -> asyncio.Task[None]:
        """Another workflow works in the same ledger all the while; now and then a call of the pair's hangs."""
        if self.chance.random() < 0.25:
            self.world.on(self.chance.choice(CAPABILITIES)).hang()
        await self.keep.deploy(acting(name="busy"), grants="all")
        for number in range(10):
            self.feed.put(f"load{number}")
        working = asyncio.ensure_future(self.keep.run_until_idle())
        for _ in range(self.chance.randint(0, 40)):
            await asyncio.sleep(0)
        return working

    # -- the verdict, and what came ----------------------------------------------------------------

    async def _deploy(self, verdict: DeployVerdict) -> DeployVerdict:
        """Deploy it as a person does; gives the last verdict before that: the load may move things meanwhile."""
        source, strand = self.second.source("pair"), False
        while True:
            try:
                done = await self.keep.deploy(source, workflow_id=self.wf, strand=strand)
                break
            except Refused:
                if not verdict.refused:
                    verdict = await self.keep.verdict(source, workflow_id=self.wf)
                    assert verdict.refused, "what is refused is foreseen"
                strand = True
        assert done.verdict is not None
        self.real = {(each.kind, each.id): each for each in done.verdict.things}
        events = [each for each in done.verdict.things if each.kind == "event"]
        if verdict.refused and not strand and any(each.what is Fate.NOBODY for each in events):
            self.judged.wrong.append("it was to be refused, and was not")
        return verdict

    async def _until_idle(self, load: asyncio.Task[None]) -> None:
        await load
        if (await self._workflow()).status != "active":
            await self.keep.resume(self.wf)
        await self.keep.run_until_idle()

    def _compare(self, thing: OpenThing, *, at_work: bool) -> None:
        """What was said of a thing against what is on record now. What the load moved between the verdict and the
        deploy is judged by what the deploy itself said of it, in its own transaction."""
        now = self.real.get((thing.kind, thing.id))
        if now is None:
            self.judged.moved += 1  # it was done with when the deploy came
            return
        if now.what is not thing.what:
            if not at_work and now.run_id == thing.run_id:
                self._wrong(thing, f"the deploy itself said {now.what}")
            self.judged.moved += 1
            thing = now
        self.judged.fates[f"{thing.kind}: {thing.what.value}"] += 1
        told = {"run": self._of_run, "parked run": self._of_run, "approval": self._of_approval,
                "event": self._of_event, "item": self._of_item}.get(thing.kind, lambda each: None)(thing)
        if told:
            self._wrong(thing, told)
        if thing.tried and thing.kind == "event":
            self._of_trial(thing)

    def _wrong(self, thing: OpenThing, why: str) -> None:
        self.judged.wrong.append(f"{thing.kind} {thing.id} {thing.what.value} ({thing.words}): {why}")

    def _of_run(self, thing: OpenThing) -> str | None:
        run = self._row("run_by_id", run_id=thing.id)
        [after] = [each for each in self._lineage(run) if each["retry_of"] == thing.id] or [None]
        began = self._began(after["id"]) if after else None
        match thing.what:
            case Fate.STARTS_AGAIN:
                right = after is not None and self._is_new(after) and began in STARTED
            case Fate.FINISHES:
                right = after is not None and self._is_new(after) and began == "emitting"
            case Fate.GIVEN_UP:
                right = run["status"] == "abandoned"
            case Fate.NOBODY:
                right = run["status"] in ("paused", "failed")
            case Fate.GOES_ON:
                right = run["status"] in ("paused", "failed") or self._known_since(run)
            case _:  # under way: it ended under its own version, or stopped by itself
                right = after is None or bool(after["trigger"])
        return None if right else f"it is {run['status']}, then {began}"

    def _known_since(self, run: Any) -> bool:
        """Whether what was in doubt is known by now: then the run goes on by that."""
        sent = self._row("mutation_of_lineage", workflow_id=self.wf, lineage=run["lineage"])
        return sent is not None and sent["status"] not in DOUBTFUL

    def _of_approval(self, thing: OpenThing) -> str | None:
        status = self._row("approval_by_id", approval_id=thing.id)["status"]
        voided = status == "void"
        return None if voided == (thing.what is Fate.VOID) else f"it is {status}"

    def _of_event(self, thing: OpenThing) -> str | None:
        event = self._row("event_by_id", event_id=thing.id)
        free = event["status"] == "pending" and event["reserved_by"] is None
        taker = self._row("look_topic", workflow_id=self.wf, topic=event["topic"])["subscriber"]
        match thing.what:
            case Fate.NOBODY:
                left = event["status"] == "pending" and (taker is None or event["reserved_by"] is not None)
                right = left or "which is under way" in thing.words
            case Fate.FINISHES:
                right = not free
            case Fate.GOES_ON | Fate.UNDER_WAY:
                run = self._row("run_by_id", run_id=thing.run_id)
                right = not free or self._known_since(run) or run["status"] != "paused"
            case _:
                right = taker is not None
        return None if right else f"it is {event['status']}, reserved by {event['reserved_by']}, taker {taker}"

    def _of_item(self, thing: OpenThing) -> str | None:
        item = self._row("item_by_id", item_id=thing.id)
        there = self._row("handler_get", workflow_id=self.wf, handler=item["handler"])
        present = there is not None and bool(there["present"])
        if thing.what is Fate.NOBODY and thing.run_id is None:
            return "its routine is there" if present else None
        return None if present or thing.what is not Fate.WAITS else "its routine is not there"

    def _of_trial(self, thing: OpenThing) -> None:
        """What was tried, against the run of the new version that really had the event in hand, if one has."""
        rows = self._rows("look_runs_of_event", workflow_id=self.wf, event_id=thing.id)
        here = [row for row in rows if self._is_new(row)]
        if not here or thing.assumed:
            return
        last = self._lineage(here[0])[-1]
        sent = self._row("mutation_of_lineage", workflow_id=self.wf, lineage=last["lineage"])
        applied = sent is not None and sent["status"] == MutationStatus.APPLIED
        match thing.tried:
            case Tried.TAKEN:
                right = last["status"] == "committed" and applied and sent["preview"] in str(thing.came)
            case Tried.PASSED:
                right = last["status"] == "committed" and not applied
            case Tried.FAILS:
                right = (last["status"], last["reason"]) == ("failed", "logic")
            case Tried.ASKS:
                right = last["reason"] == "approval"
            case Tried.STOPS:
                right = last["status"] in ("paused", "failed")
            case _:
                right = False
        self.judged.tried[str(thing.tried)] += 1
        if not right:
            self._wrong(thing, f"tried: {thing.came}; really {last['status']} {last['reason']}")

    # -- to the end --------------------------------------------------------------------------------

    async def _to_the_end(self) -> None:
        """A last version takes everything, people answer every question: nothing may be left."""
        last = acting(before="// the last\n", name="pair").replace('publishes: ["in"]', 'publishes: ["in", "out"]', 1)
        await self.keep.deploy(last, workflow_id=self.wf, grants="all", strand=True)
        for _ in range(40):
            await self.keep.run_until_idle()
            questions = await self.keep.needs_you(self.wf)
            for question in questions:
                for act in ("approve", "finish", "happened", "skip", "skip_run", "retry"):
                    if act in question.actions:
                        with suppress(KeepError):
                            await self._act(question, act)
                            break
            workflow = await self._workflow()
            if not questions and not workflow.blocked_status and not workflow.parked:
                break
            self.clock.advance(hours=1)
        left = [e.message_id for e in await self.keep.events(self.wf, "in") if e.status == "pending"]
        open_run = self._row("run_open", workflow_id=self.wf)
        if left or open_run:
            self.judged.stranded.append(f"events {left}, run {open_run['id'] if open_run else None}")

    # -- looking -----------------------------------------------------------------------------------

    async def _workflow(self) -> Any:
        return next(each for each in await self.keep.workflows() if each.id == self.wf)

    def _row(self, query: str, **params: Any) -> Any:
        return reads(self.keep.parts.ledger).one(query, **params)

    def _rows(self, query: str, **params: Any) -> list[Any]:
        return list(reads(self.keep.parts.ledger).all(query, **params))

    def _lineage(self, run: Any) -> list[Any]:
        return self._rows("look_lineage", workflow_id=self.wf, lineage=run["lineage"])

    def _is_new(self, run: Any) -> bool:
        return bool(run["major"] == 2)

    def _began(self, run_id: str) -> str | None:
        """The phase in which a run began."""
        moves = [each for each in self.keep.views(reads(self.keep.parts.ledger)).history(self.wf, run_id)
                 if each["machine"] == "phase"]
        return str(moves[0]["target"]) if moves else None
