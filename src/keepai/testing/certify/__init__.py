"""Certifies a script: runs its cases on the real engine with everything that can go wrong, and counts the effects.

The calm life of each case is the measure. Every trial is the same case with one thing done to it: a host that dies, a
call that fails, a clock that jumps, a list that changes. The judge is the world's own count of effects, per input.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from ...app import Keep
from ...connectors.base import Connector, OperationSpec, surface
from ...engine.certificate import BrokenTrial, Certification
from ...model.clock import SystemClock
from ...model.errors import ConfigError, Finding
from ...model.operations import Kind
from ...model.policy import Policy
from ...runtime.base import Runtime
from ...runtime.javascript.runtime import JavaScriptRuntime
from ...script.check import check
from .. import cases as calm_cases
from ..fixtures import Case
from ..manual_clock import ManualClock
from ..standin import Scripted, StandIn
from ..world import World
from .causes import cause_of
from .compared import compared
from .judge import Breach, judged, judged_changed, judged_same_ids, questions_beyond, volatile_members
from .life import Doing, Life, Seen
from .list_changes import Change
from .trials import CertifyTrial, changes, other_time, pairs, singles, with_another

#: Told after each trial how many there were, and which share of the cases is done.
Progress = Callable[[int, float], None]


async def certify(
    source: str, cases: Sequence[Case], connectors: Sequence[Connector], policy: Policy, *, script: str = "the script",
    only: str | None = None, progress: Progress = lambda done, of: None, made: bool = False,
    to_first: bool = False,
) -> Certification:
    """Run every trial of every case, or those up to the first that is broken. A case that was `made` expects nothing.

    Raises `ScriptInvalid` if the script cannot be deployed."""
    begun, policy = SystemClock().steady_ms(), replace(policy, certified="off")
    checked = check(source, surface(connectors), mutate_reads=policy.mutate_reads == "by_id")
    runtime = JavaScriptRuntime(workers_max=policy.workers_max, speculate=policy.speculate)
    with tempfile.TemporaryDirectory(prefix="keep-certify-", dir=_fast_folder()) as folder, _silence():
        try:
            court = _Court(
                Path(folder), source, connectors, policy, runtime, only, progress, script, checked.findings, made,
                len(cases), to_first)
            for number, case in enumerate(cases, 1):
                await court.hear(number, case)
        except _Enough:
            pass
        finally:
            await runtime.close()
    if only is not None and not court.trials:
        raise ConfigError(f"There is no trial {only!r}. `keep certify --json` lists those that broke a rule.")
    uses = checked.manifest.capabilities if checked.manifest else ()
    mutations = {name for name, spec in court.specs.items() if spec.kind is Kind.MUTATION} & set(uses)
    return Certification(
        court.trials, tuple(court.broken), tuple(sorted(court.asks)), tuple(sorted(mutations - court.reached)),
        tuple(court.untried), {}, {}, (SystemClock().steady_ms() - begun) / 1_000,
    )


class _Enough(Exception):
    """One broken trial is enough to know."""


@dataclass
class _Court:
    """What the trials of one script share."""

    folder: Path
    source: str
    connectors: Sequence[Connector]
    policy: Policy
    runtime: Runtime
    only: str | None
    progress: Progress
    script: str
    findings: Sequence[Finding]
    made: bool
    cases: int
    to_first: bool
    trials: int = 0
    broken: list[BrokenTrial] = field(default_factory=list)
    asks: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)
    untried: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.specs: Mapping[str, OperationSpec] = {
            spec.full_name: spec for each in self.connectors for spec in each.operations.values()}

    async def hear(self, number: int, case: Case) -> None:
        """Every trial of one case."""
        await _Hearing(self, number, case).run()

    def found(self, number: int, case: Case, trial: CertifyTrial, faults: Sequence[Breach]) -> None:
        """A trial has ended."""
        self.trials += 1
        self.progress(self.trials, (number - 1) / self.cases)
        if faults:
            self.broken.append(self._told(f"{number}/{trial.name}", case, trial, faults[0]))
            if self.to_first:
                raise _Enough

    def _told(self, name: str, case: Case, trial: CertifyTrial, fault: Breach) -> BrokenTrial:
        cause = cause_of(fault, self.source, self.findings)
        at = f"{self.script}:{cause.line}" if cause.line else ""
        place = f"{cause.code} at {at}" if cause.code and at else at
        told = ": ".join(each for each in (cause.words, place) if each)
        return BrokenTrial(name, case["name"], trial.words, fault.words, told, cause.line, cause.instead)


class _Hearing:
    """The trials of one case."""

    def __init__(self, court: _Court, number: int, case: Case) -> None:
        self._court, self._number, self._case = court, number, case
        self._home = court.folder / f"case-{number}"
        self._lives = count(1)
        self._workflow_id = ""
        self._calm = Seen()
        self._volatile: Mapping[str, frozenset[str]] = {}

    async def run(self) -> None:
        court, case = self._court, self._case
        calm = CertifyTrial("calm", "nothing goes wrong", Doing())
        result = None if court.made else await calm_cases.run(
            court.source, case, court.connectors, court.policy, court.runtime)
        if result is not None and not result.passed:
            told = result.problems or result.questions or tuple(
                f"{len(each.found)} times {each.what} instead of {len(each.wanted)}, or other ones"
                for each in result.differences)
            court.found(self._number, case, calm, [Breach("case", f"the case fails without any fault: {told[0]}")])
            return
        await self._begin()
        self._calm = await self._life(Doing())
        court.reached |= {each.call for each in self._calm.effects}
        if self._wanted("calm"):
            court.found(self._number, case, calm, self._calm_faults())
        if self._calm_faults():
            return
        other = await self._life(other_time().doing, told=False)
        self._volatile = volatile_members(self._calm, other)
        self._end(other_time(), judged_same_ids(other, self._calm))
        await self._changes()
        died = await self._singles()
        for first, seen in died:
            for each in pairs(first, seen):
                if self._wanted(each.name):
                    await self._try(each)
        for name, faults in compared(self._calm, court.specs):
            self._end(CertifyTrial(f"compare:{name}", "two payloads are compared", Doing()), faults)

    def _calm_faults(self) -> list[Breach]:
        """What is wrong although nothing went wrong: also when its handlers run once more after the case."""
        if self._calm.endless:
            return [Breach("endless", "it never comes to rest")]
        questions = questions_beyond(self._calm, Counter(self._case.get("expect", {}).get("needs_you", ())))
        if self._court.made and questions:  # that says nothing about the script: it may be the data
            why = questions[0].words
            return [Breach("case", f"the script does not get through with made-up data ({why}): write a case")]
        return questions or [Breach("case", told) for told in self._calm.problems]

    async def _singles(self) -> list[tuple[CertifyTrial, Seen]]:
        """One thing goes wrong; gives those in which a host died, for a second death."""
        died = []
        for trial in singles(self._calm, self._court.specs):
            leads = bool(trial.doing.deaths) and self._wanted(f"{trial.name}+", begins=True)
            if not self._wanted(trial.name) and not leads:
                continue
            seen = await self._try(trial)
            if leads:
                died.append((trial, seen))
        return died

    async def _try(self, trial: CertifyTrial) -> Seen:
        seen = await self._life(trial.doing)
        self._court.asks |= seen.asked.keys() - self._calm.asked.keys()
        if seen.happened:
            self._end(trial, judged(seen, self._calm, self._volatile, self._court.specs))
        return seen

    async def _changes(self) -> None:
        for begins, later in changes(self._calm):
            wanted = [each for each in later if self._wanted(each.name)]
            leads = begins.doing.change is Change.GROWN and self._wanted("two:", begins=True)
            if not (wanted or leads) or not self._calm.lists:
                continue
            changed = await self._life(begins.doing)
            if changed.problems != self._calm.problems or len(changed.questions) > len(self._calm.questions):
                self._court.untried.append(f"{self._case['name']}: {begins.words}: the case does not work with it.")
                continue
            if begins.doing.change is Change.GROWN and len({each.inputs for each in self._calm.effects}) == 1:
                await self._with_another(changed)
            for each in wanted:
                seen = await self._life(each.doing)
                if seen.happened and seen.problems == self._calm.problems:
                    self._end(each, judged_changed(
                        seen, self._calm, changed, self._volatile, self._court.specs))

    async def _with_another(self, changed: Seen) -> None:
        for each in with_another(changed):
            if self._wanted(each.name):
                seen = await self._life(each.doing)
                if seen.happened:
                    self._end(each, judged(seen, changed, self._volatile, self._court.specs))

    def _end(self, trial: CertifyTrial, faults: Sequence[Breach]) -> None:
        if self._wanted(trial.name):
            self._court.found(self._number, self._case, trial, faults)

    def _wanted(self, name: str, *, begins: bool = False) -> bool:
        only, full = self._court.only, f"{self._number}/{name}"
        return only is None or only == full or (begins and only.startswith(full))

    async def _begin(self) -> None:
        """The ledger with which every life begins: the script is deployed, and its handlers are due."""
        self._home.mkdir()
        court = self._court
        clock = ManualClock(calm_cases.START)
        scripted = Scripted(self._case, World(clock))
        stand_ins = [StandIn(each, scripted) for each in court.connectors]
        path = self._home / "start" / "keep.db"
        path.parent.mkdir()
        async with Keep(path, connectors=stand_ins, policy=court.policy, clock=clock, runtime=court.runtime) as keep:
            grants = calm_cases.grants_of(court.source, self._case, keep)
            deployed = await keep.deploy(court.source, grants=grants)
            self._workflow_id = deployed.workflow_id
            await keep.run_now(deployed.workflow_id)

    async def _life(self, doing: Doing, *, told: bool = True) -> Seen:
        court = self._court
        log = self._calm.log if told and self._calm.log else None
        life = Life(self._home / f"life-{next(self._lives)}", self._home / "start", self._workflow_id, self._case,
                    court.connectors, court.policy, court.runtime, doing, log)
        return await life.live()


def _fast_folder() -> str | None:
    """Where files need no disk: a trial's ledger is thrown away."""
    memory = "/dev/shm"  # noqa: S108 - a folder of its own is made in it, which others cannot read
    return memory if os.access(memory, os.W_OK) else None


@contextmanager
def _silence() -> Iterator[None]:
    """Hosts that are killed on purpose log what they went through; nobody wants to read that."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
