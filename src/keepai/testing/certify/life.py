"""One case from its beginning to its end, with one thing done to it: the real engine on a ledger of its own.

A person is played who tells the truth: what nobody can look up is answered as it really was, and what must be approved
is approved. After the case's end its producers and routines run once more, as they would for months.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...app import Keep
from ...connectors.base import Connector, OperationSpec, Page
from ...model import crash_points
from ...model.codec import Json, canonical
from ...model.errors import KeepError, OutcomeUnknown, Refused, Transient
from ...model.operations import Kind
from ...model.policy import Policy
from ...model.records import Escalation
from ...runtime.base import Runtime
from ..cases import START, bury, tell_but_crashes
from ..crash import Crashed
from ..fixtures import Case, lasts_ms
from ..manual_clock import ManualClock
from ..standin import Scripted, StandIn
from ..world import World
from .list_changes import Change, changed, cursor_of, is_list, values_in

DOWN_MS = 7_123  #: how long it takes until the next host begins
SLACK_MS = 90_000  #: how much longer than the case a life lasts, so that what was delayed still comes
ROUNDS_MAX = 2_500  #: how often the clock may be moved in one life
CALLS_MAX = 20_000  #: how many calls may reach the outside in one life
DEATHS_MAX = 6
GIVEN_UP_S = 0.2  #: after which a call is given up whose answer comes all the same
_NO_COMMIT = ":nothing"  # what only waits for the disk
_LOOKS = 12  #: how often a truthful person tries to answer while a late effect is still possible


@dataclass(frozen=True)
class Point:
    """The nth arrival at a named point since a host began."""

    name: str
    nth: int = 1

    def __str__(self) -> str:
        return self.name if self.nth == 1 else f"{self.name}#{self.nth}"


@dataclass(frozen=True)
class Doing:
    """What is done to one life."""

    deaths: tuple[Point, ...] = ()  # each since its host began
    hosts_before: int = 0  # hosts that the case itself kills, before the one that dies first
    call: str = ""  # the operation whose nth call is not as it should be
    nth: int = 1
    fault: str = ""  # "request_lost", "answer_lost", "answer_twice", "late" or "fails_once"
    jump_ms: int = 0  # how far the wall clock jumps at the first call of a mutation
    change: Change | None = None
    change_at: str = ""  # "start", "death" or "end": of the case
    offset_ms: int = 0  # how much later than at the case's own time it begins


@dataclass
class Arrival:
    """A place where a host may die."""

    point: Point
    commits: int
    effects: int
    answers: int  # how many different answers the outside had given


@dataclass(frozen=True)
class SeenEffect:
    """Something that took place outside, with what Keep has on record of it."""

    call: str
    inputs: frozenset[tuple[str, ...]]  # source, type, id of each input behind it
    identity: str
    payload: dict[str, Json]
    subkey: str | None


@dataclass
class Seen:
    """What came of one life."""

    effects: list[SeenEffect] = field(default_factory=list)
    inputs: set[tuple[str, ...]] = field(default_factory=set)
    messages: set[tuple[str, str]] = field(default_factory=set)
    questions: list[tuple[str, str, str | None]] = field(default_factory=list)  # kind, why, place in the script
    asked: Counter[str] = field(default_factory=Counter)  # by call: what a person was asked, and answered truthfully
    problems: list[str] = field(default_factory=list)
    arrivals: list[list[Arrival]] = field(default_factory=list)  # of each host
    calls: Counter[str] = field(default_factory=Counter)
    log: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)  # the reads that gave a list with entries
    endless: bool = False
    died: int = 0  # how often its host died
    happened: bool = True  # whether what was to be done to it came about


class TrialWorld(World):
    """A world in which the outside of a connector of class A takes each key once."""

    def __init__(self, clock: ManualClock, keyed: frozenset[str]) -> None:
        super().__init__(clock)
        self._keyed = keyed

    def takes_once(self, operation: str) -> bool:
        return operation in self._keyed


class TrialScript(Scripted):
    """The answers of a case, given by time: who asks again after a death is answered as the first was."""

    def prepare(self, clock: ManualClock, seen: Seen, told: Mapping[tuple[str, str], list[tuple[int, Any]]] | None,
                doing: Doing) -> None:
        self.clock, self.seen, self.told, self.doing = clock, seen, told, doing
        self.begun, self.delayed_ms = clock.steady_ms(), 0
        self.change_on, self.ended = doing.change_at == "start", False
        self.different = set[str]()  # the answers that were given
        self._first: dict[str, list[Any]] = {}
        self._values: dict[str, set[str]] = {}
        self._served: Counter[tuple[str, str, int]] = Counter()

    def reborn(self) -> None:
        """Another host asks: it is answered as the one before was."""
        self._served.clear()
        self.change_on = self.change_on or self.doing.change_at == "death"

    def answer(self, spec: OperationSpec, params: Mapping[str, Json]) -> Any:
        self.seen.calls[spec.full_name] += 1
        if spec.kind is Kind.MUTATION:
            return super().answer(spec, params)
        given = self._by_time(spec, params)
        given = self._as_list(spec.full_name, params, given) if is_list(given) else given
        self.different.add(f"{spec.full_name} {canonical(list(given) if isinstance(given, Page) else given)}")
        return given

    def _by_time(self, spec: OperationSpec, params: Mapping[str, Json]) -> Any:
        key = (spec.full_name, canonical(dict(params)))
        now = self.clock.steady_ms() - self.begun - self.delayed_ms
        known = [] if self.told is None else [each for each in self.told.get(key, ()) if each[0] <= now]
        if known:
            last = [given for at, given in known if at == known[-1][0]]
            place = (*key, known[-1][0])
            self._served[place] += 1
            return last[min(self._served[place], len(last)) - 1]
        given = super().answer(spec, params)
        self.seen.log.setdefault(key, []).append((now, given))
        return given

    def _as_list(self, call: str, params: Mapping[str, Json], given: list[Any]) -> list[Any]:
        asked = params.get("after")
        after = None if asked is None else str(asked)
        if given and call not in self._first:
            self._first[call] = given
            self.seen.lists.add(call)
        known = self._values.setdefault(call, set())
        first = self._first.get(call)
        if self.ended and cursor_of(given) is not None and after is not None and not self._repeats(first):
            given = Page([], **{**getattr(given, "fields", {}), "lastCursor": after})
        if self.change_on and first:
            how = self.doing.change
            if how is not Change.AGAIN or self._repeats(first):
                given = changed(given, how, after, first, frozenset(known))
        known |= values_in(given)
        return given

    def _repeats(self, first: list[Any] | None) -> bool:
        return self.change_on and self.doing.change is Change.AGAIN and bool(first)


class Life:
    """One case, with one thing done to it."""

    def __init__(
        self, folder: Path, start: Path, workflow_id: str, case: Case, connectors: Sequence[Connector], policy: Policy,
        runtime: Runtime, doing: Doing, told: Mapping[tuple[str, str], list[tuple[int, Any]]] | None = None,
    ) -> None:
        self._folder, self._start, self._workflow_id, self._case = folder, start, workflow_id, case
        self._connectors, self._runtime, self._doing = connectors, runtime, doing
        self._policy = replace(policy, call_s=GIVEN_UP_S) if doing.fault == "answer_twice" else policy
        self.seen = Seen()
        self._clock = ManualClock(START)
        self._clock.advance(ms=doing.offset_ms)
        self._end = self._clock.steady_ms() + lasts_ms(case) + SLACK_MS
        specs = {spec.full_name: spec for each in connectors for spec in each.operations.values()}
        self._specs = specs
        keyed = frozenset(name for name, spec in specs.items() if spec.safety == "A")
        self._world = TrialWorld(self._clock, keyed)
        self._scripted = TrialScript(case, self._world)
        self._scripted.prepare(self._clock, self.seen, told, doing)
        self._deaths = list(doing.deaths)
        self._reached: Counter[str] = Counter()
        self._commits = 0
        self._rounds = 0
        self._plan()

    async def live(self) -> Seen:
        shutil.copytree(self._start, self._folder)
        loop = asyncio.get_running_loop()
        told = loop.get_exception_handler()
        loop.set_exception_handler(tell_but_crashes)
        self.seen.arrivals.append([])
        crash_points.listen(self._reach)
        try:
            keep = await self._once_more(await self._until_end(await self._born()))
            crash_points.listen(None)
            await self._look(keep)
            await keep.close()
            return self.seen
        finally:
            crash_points.listen(None)
            loop.set_exception_handler(told)
            shutil.rmtree(self._folder, ignore_errors=True)

    # -- what is done to it ------------------------------------------------------------------------

    def _plan(self) -> None:
        doing = self._doing
        if doing.jump_ms:
            for name, spec in self._specs.items():
                if spec.kind is Kind.MUTATION:
                    self._world.on(name).before(lambda params, call: self._jump())
        if not doing.fault:
            return
        own = sum(each.get("times", 1) for each in self._case.get("fault", ()) if each["call"] == doing.call)
        on = self._world.on(doing.call).as_ever(times=doing.nth - 1 - own)
        if doing.fault == "request_lost":
            on.fail(OutcomeUnknown("The connection was lost before the request arrived."))
        elif doing.fault == "answer_lost":
            on.lose_answer()
        elif doing.fault == "answer_twice":
            on.hang(applied=True, stubborn=True)
        elif doing.fault == "late":
            on.apply_late()
        else:
            on.fail(Transient("The outside is busy."))

    def _jump(self) -> None:
        if self._doing.jump_ms and not self._jumped:
            self._jumped = True
            self._clock.jump(ms=self._doing.jump_ms)

    _jumped = False

    def _reach(self, point: str) -> None:
        """At every point of a host's way: note it, or die there."""
        if self._scripted.dead:
            raise Crashed(point)
        self._reached[point] += 1
        here = Point(point, self._reached[point])
        if point.startswith("after:") and not point.endswith((":call", _NO_COMMIT)):
            self._commits += 1
        if not self._scripted.ended and not point.endswith(_NO_COMMIT):
            self.seen.arrivals[-1].append(
                Arrival(here, self._commits, len(self._world.effects), len(self._scripted.different)))
        if self._deaths and self._deaths[0] == here and self.seen.died >= self._doing.hosts_before:
            self._deaths.pop(0)
            self._scripted.dead = True
            raise Crashed(point)

    # -- its way -----------------------------------------------------------------------------------

    async def _born(self) -> Keep:
        """A host, or the next one if it dies while it begins."""
        for _ in range(DEATHS_MAX):
            try:
                stand_ins = [StandIn(real, self._scripted) for real in self._connectors]
                keep = Keep(self._folder / "keep.db", connectors=stand_ins, policy=self._policy, clock=self._clock,
                            runtime=self._runtime)
                return await keep.__aenter__()
            except Crashed:
                self._dead()
        raise AssertionError("more deaths than were planned")

    def _dead(self) -> None:
        self.seen.died += 1
        self._scripted.dead = False
        self._scripted.reborn()
        self._reached.clear()
        self.seen.arrivals.append([])
        self._clock.advance(ms=DOWN_MS)
        self._scripted.delayed_ms += DOWN_MS
        self._end += DOWN_MS

    async def _until_idle(self, keep: Keep) -> Keep:
        for _ in range(DEATHS_MAX):
            try:
                await keep.run_until_idle()
                if not self._scripted.dead:
                    return keep
            except Crashed:
                pass
            self._scripted.dead = True
            await bury(keep, self._runtime)
            self._dead()
            keep = await self._born()
        return keep

    async def _until_end(self, keep: Keep) -> Keep:
        """Until nothing is due before the end."""
        while True:
            keep = await self._until_idle(keep)
            self._world.land()
            self._world.release()
            if self._rounds > ROUNDS_MAX or len(self._world.asked) > CALLS_MAX:
                self.seen.endless = True
                return keep
            self._rounds += 1
            if await self._person(keep) or await self._pass_time(keep):
                continue
            return keep

    async def _pass_time(self, keep: Keep) -> bool:
        """Let time pass until something is due; False at the end, if nothing is under way that would still go on."""
        [workflow] = await keep.workflows()
        if workflow.next_due_at is None:
            return False
        wait = max(1, workflow.next_due_at - self._clock.now_ms())
        if self._clock.steady_ms() + wait > self._end and not workflow.blocked_status:
            return False
        self._clock.advance(ms=wait)
        return True

    async def _once_more(self, keep: Keep) -> Keep:
        """After the case, its producers and routines run again."""
        self._scripted.ended = True
        self._scripted.change_on = self._scripted.change_on or self._doing.change_at == "end"
        self._clock.advance(ms=max(0, self._end - self._clock.steady_ms()) + 1)
        self._end = self._clock.steady_ms() + SLACK_MS
        with self._undisturbed(), suppress(KeepError):
            await keep.run_now(self._workflow_id)
        return await self._until_end(keep)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """A person acts: no host dies meanwhile."""
        crash_points.listen(None)
        try:
            yield
        finally:
            crash_points.listen(self._reach)

    async def _person(self, keep: Keep) -> bool:
        """Answer what only a person can answer, truthfully; False if there is nothing of the kind."""
        with self._undisturbed():
            return await self._answer(keep)

    async def _answer(self, keep: Keep) -> bool:
        questions = await keep.needs_you(self._workflow_id)
        for each in questions:
            if each.kind == "approval" and "approve" in each.actions:
                await keep.approve(each.id)
                return True
            if each.kind == "unknown_outcome":
                return await self._tell(keep, each)
        return False

    async def _tell(self, keep: Keep, question: Escalation) -> bool:
        mutation = next(m for m in await keep.mutations(self._workflow_id) if m.id == question.mutation_id)
        self.seen.asked[f"{mutation.connector}.{mutation.operation}"] += 1
        for _ in range(_LOOKS):
            self._world.land()
            done = next((e for e in self._world.effects if e.idempotency_key == mutation.idempotency_key), None)
            try:
                await keep.resolve(mutation.id, "happened" if done else "did_not_happen", done.result if done else None)
                return True
            except Refused:
                self._clock.advance(seconds=30)
                self._scripted.delayed_ms += 30_000
                self._end += 30_000
        return False

    # -- what came of it ---------------------------------------------------------------------------

    async def _look(self, keep: Keep) -> None:
        seen, wf = self.seen, self._workflow_id
        behind = {}
        rows = await keep.parts.ledger.all("look_mutations", workflow_id=wf, limit=100_000)
        extra = {str(row["id"]): (row["identity"], row["subkey"]) for row in rows}
        for output in await keep.outputs(wf):
            inputs = frozenset((i.source, i.type, i.external_id) for i in output.inputs)
            behind[output.mutation.idempotency_key] = (inputs, *extra[output.mutation.id])
        for each in self._world.effects:
            inputs, identity, subkey = behind.get(each.idempotency_key, (frozenset(), "", None))
            spec = self._specs[each.operation]
            seen.effects.append(SeenEffect(each.operation, inputs, str(identity), spec.payload(each.params), subkey))
        seen.inputs = {(i.source, i.type, i.external_id) for i in await keep.inputs(wf)}
        seen.messages = {(e.topic, e.message_id) for e in await keep.events(wf)}
        for question in await keep.needs_you(wf):
            facts = question.facts
            place = str(facts["location"]) if facts.get("location") else None
            seen.questions.append((question.kind, str(facts.get("why") or question.title), place))
        seen.problems = list(dict.fromkeys(self._scripted.problems))
        seen.happened = not self._deaths
