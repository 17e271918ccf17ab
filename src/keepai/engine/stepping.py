"""Runs one step of a handler in the sandbox, with its gate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..ledger.base import Row
from ..ledger.transitions.events import Publication
from ..ledger.transitions.runs import NUMBERS, Follow
from ..model.errors import HostFault, WorkerDied
from ..model.light import light
from ..model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from ..model.records import Mutation, Run
from ..model.states import Phase
from ..runtime.base import Ahead, Ended, Fixed, Followed, Job, Operation, Then
from ..script.manifest import Handler
from .early import Early, Tried
from .gate import Gate, Work
from .parts import TRIES_MAX, Loaded, Parts
from .permission import Permissions
from .prepare_result import Wishes, wishes_of
from .trace import Trace


@light
@dataclass(frozen=True)
class Before:
    """The run in whose commit another began."""

    handler: str
    early: Early | Tried | None
    state: tuple[str | None] | None = None  # of that handler, as the commit left it; None: ask the ledger

    def leave(self) -> None:
        """What it started for the other is not wanted, unless that has taken it."""
        if self.early is not None:
            self.early.leave()


class Stepper:
    """Everything that the steps of one run share."""

    def __init__(
        self, parts: Parts, run: Run, loaded: Loaded, handler: Handler, follow: Follow, before: Before | None = None,
    ) -> None:
        self.parts, self.run, self.loaded, self.handler, self.follow = parts, run, loaded, handler, follow
        self.early = before.early if before else None  # a step that was started beside a commit
        self._followed: Followed | None = None  # what was tried right after the last step
        self.in_a_row = before is not None and before.handler == handler.name
        self._state = before.state if before is not None and self.in_a_row else None
        self._left: tuple[str | None] | None = None  # the state that the run's commit leaves, if that is known
        self.begun_ms = 0  # when the last step began
        self.permissions = Permissions(parts, run)
        self.trace = Trace(
            run.id, parts.clock, parts.policy.trace_bytes_max, self._traced(), parts.redactor,
            parts.policy.trace_bytes_per_run_max,
        )
        self.at: Step | None = None
        self.item_id: str | None = None  # the item in whose function a routine is
        self.foreseen: Operation | None = None  # the call of `mutate`, if it came with the PrepareResult
        self.sent: Mutation | None = None  # and its intent, if it is on record with it
        self.sends = 0  # mutations of a routine that no ledger answered

    def _traced(self) -> int:
        """Where the run's trace ends so far; one that has not pinned anything has none."""
        if self.run.phase is Phase.PREPARING:
            return 0
        last = self.parts.ledger.read().one("trace_last", workflow_id=self.run.workflow_id, run_id=self.run.id)
        return int(last["position"]) if last else 0

    @cached_property
    def reserved(self) -> list[Row]:
        """What the run has pinned; ask when it has."""
        return self.parts.ledger.read().all(
            "reservation_of_run", workflow_id=self.run.workflow_id, run_id=self.run.id,
        )

    @cached_property
    def wishes(self) -> Wishes:
        """What the pinned PrepareResult says beside its data; ask when there is one."""
        assert self.run.prepare_result is not None, self.run
        return wishes_of(self.run.prepare_result)

    async def step(
        self, step: Step, args: tuple[str | None, ...], *, state: str | None = None, fixed: Fixed | None = None,
        items: Work | None = None,
    ) -> tuple[Ended, Gate]:
        """Run `step` in a fresh context and give what it returned or called, and what it gathered.

        If its worker process dies it is run again from the start, and nothing that it gathered counts."""
        self.at = step
        for _ in range(TRIES_MAX):
            gate = self._gate(step, items)
            try:
                return await self._ended(step, args, state, fixed, gate), gate
            except WorkerDied as death:
                self.trace.warning(step, f"{death.message} The step was run again.")
                last = death
            if items is not None:
                items.begin_again()
        raise HostFault(
            f"The worker process died {TRIES_MAX} times in a row while it ran {step} of {self.handler.name!r}; "
            f"it is not tried again by itself. The last time: {last.message} Look at the machine's memory and at the "
            "host's log, then retry the run."
        ) from last

    async def _ended(
        self, step: Step, args: tuple[str | None, ...], state: str | None, fixed: Fixed | None, gate: Gate,
    ) -> Ended:
        early, self.early = self.early, None
        if early is not None:
            self.begun_ms = early.begun_ms
            if early.fits(self._job(step, args, state, fixed), gate):
                ended = await early.ended(gate)
                self._followed = ended.followed
                return ended
            early.leave()
        self.begun_ms = self.parts.clock.now_ms()
        return await self.parts.runtime.run(self._job(step, args, state, fixed), gate)

    async def start_next(self, outcome: str | None) -> None:
        """Have `next` run while the outcome that it is given is being written."""
        if outcome is not None and self.handler.has_next:
            await self._start(Step.NEXT, (self.run.prepare_result, outcome), self.state())

    async def start_prepare(self, state: str | None, publications: Sequence[Publication]) -> None:
        """Have the `prepare` of a run that is likely to follow run while this one is being committed, with `state`.

        Without one the state stays as it is."""
        self._left = (self.state() if state is None else state,)
        if self._followed is not None and self._followed.job.args == self._left:
            self.early = Tried(self._followed, self._next_number(publications))
        elif self.in_a_row:
            await self._start(Step.PREPARE, self._left)

    def _next_number(self, publications: Sequence[Publication]) -> int | None:
        """What the run that follows has, if nobody else counts meanwhile; none if this one publishes to itself."""
        if any(each.topic in self.handler.subscribe for each in publications):
            return None
        return self.run.seq + NUMBERS + len(publications)

    async def _start(self, step: Step, args: tuple[str | None, ...], state: str | None = None) -> None:
        if self.parts.left:
            return  # one that nobody wants is still under way: those that are wanted need the processor
        self.begun_ms = self.parts.clock.now_ms()
        job = self._job(step, args, state, None, self._then() if step is Step.NEXT else None)
        self.early = Early(self.parts, job, self._gate(step), self.begun_ms)
        if self.parts.ledger.crew <= 1:  # a commit by itself is made at once, and is not to take its time before
            await asyncio.sleep(0)  # the step is on its way; one of a group is made in a later turn of the loop

    def _then(self) -> Then | None:
        """The `prepare` of a run that is likely to follow, to be tried in the same breath as `next`.

        That saves a way to the sandbox; a single run goes on sooner if `next` is told of at once."""
        if not self.in_a_row or self.parts.ledger.crew <= 1:
            return None
        return Then(self._job(Step.PREPARE, (self.state(),), None, None), self._gate(Step.PREPARE))

    def passed_on(self) -> Before:
        """What a run that began in this one's commit has to know."""
        early, self.early = self.early, None
        return Before(self.handler.name, early, self._left)

    def leave(self) -> None:
        """What was started is not wanted."""
        if self.early is not None:
            self.early.leave()
            self.early = None

    def _job(
        self, step: Step, args: tuple[str | None, ...], state: str | None, fixed: Fixed | None,
        then: Then | None = None,
    ) -> Job:
        tried = step is Step.PREPARE and self.handler.has_mutate
        return Job(
            source=self.loaded.source, step=step, handler=self.handler.name, args=args, state=state,
            surface=self.parts.surface, allowed=self._allowed(step), limits=self.parts.limits(), fixed=fixed,
            begun_ms=self.begun_ms, ahead=Ahead(self._allowed(Step.MUTATE), self.begun_ms) if tried else None,
            then=then,
        )

    def _gate(self, step: Step, items: Work | None = None) -> Gate:
        return Gate(self.parts, self.run, self.loaded.manifest, self.handler, step, self.permissions, self.trace, items)

    def state(self) -> str | None:
        """The handler's durable state; nobody but a run of it changes that, when it commits."""
        if self._state is None:
            row = self.parts.ledger.read().one(
                "handler_get", workflow_id=self.run.workflow_id, handler=self.handler.name,
            )
            self._state = (row["state"] if row else None,)
        return self._state[0]

    def _allowed(self, step: Step) -> frozenset[Kind]:
        if step is Step.MUTATE and self.parts.policy.mutate_reads == "by_id":
            return ALLOWED[step] | MUTATE_BY_ID
        return ALLOWED[step]


def fixed_by(run: Run) -> Fixed:
    """Time and chance for `mutate`: the same whenever this PrepareResult is used."""
    assert run.prepare_result is not None, run
    assert run.prepared_at is not None, run
    return Fixed.by(run.prepare_result, run.prepared_at)
