"""Runs one step of a handler in the sandbox, with its gate."""

from __future__ import annotations

from functools import cached_property

from ..ledger.base import Reader, Row
from ..ledger.transitions.runs import Follow
from ..model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from ..model.records import Mutation, Run
from ..model.states import Phase
from ..runtime.base import Ahead, Ended, Fixed, Job, Operation
from ..script.manifest import Handler
from .gate import Gate, Work
from .parts import Loaded, Parts
from .permission import Permissions
from .prepare_result import Wishes, wishes_of
from .trace import Trace


class Stepper:
    """Everything that the steps of one run share."""

    def __init__(self, parts: Parts, run: Run, loaded: Loaded, handler: Handler, follow: Follow) -> None:
        self.parts, self.run, self.loaded, self.handler, self.follow = parts, run, loaded, handler, follow
        self.permissions = Permissions(parts, run)
        self.trace = Trace(run.id, parts.clock, parts.policy.trace_bytes_max, self._traced(), parts.redactor)
        self.at: Step | None = None
        self.foreseen: Operation | None = None  # the call of `mutate`, if it came with the PrepareResult
        self.sent: Mutation | None = None  # and its intent, if it is on record with it

    def _traced(self) -> int:
        """Where the run's trace ends so far; one that has not pinned anything has none."""
        if self.run.phase is Phase.PREPARING:
            return 0
        last = self.parts.ledger.read().one("trace_last", workflow_id=self.run.workflow_id, run_id=self.run.id)
        return int(last["position"]) if last else 0

    @cached_property
    def reserved(self) -> list[Row]:
        """What the run has pinned; ask when it has."""
        return self.pinned(self.parts.ledger.read())

    def pinned(self, read: Reader) -> list[Row]:
        """The same, inside the very transaction that pins it."""
        return read.all("reservation_of_run", workflow_id=self.run.workflow_id, run_id=self.run.id)

    @cached_property
    def wishes(self) -> Wishes:
        """What the pinned PrepareResult says beside its data; ask when there is one."""
        assert self.run.prepare_result is not None, self.run
        return wishes_of(self.run.prepare_result)

    async def step(
        self, step: Step, args: tuple[str | None, ...], *, state: str | None = None, fixed: Fixed | None = None,
        items: Work | None = None, ahead: Ahead | None = None,
    ) -> tuple[Ended, Gate]:
        """Run `step` in a fresh context and give what it returned or called, and what it gathered."""
        self.at = step
        gate = Gate(self.parts, self.run, self.loaded.manifest, self.handler, step, self.permissions, self.trace, items)
        job = Job(
            source=self.loaded.source, step=step, handler=self.handler.name, args=args, state=state,
            surface=self.parts.surface, allowed=self._allowed(step), limits=self.parts.limits(), fixed=fixed,
            begun_ms=self.parts.clock.now_ms(), ahead=ahead,
        )
        return await self.parts.runtime.run(job, gate), gate

    @cached_property
    def _state(self) -> str | None:
        row = self.parts.ledger.read().one(
            "handler_get", workflow_id=self.run.workflow_id, handler=self.handler.name,
        )
        return row["state"] if row else None

    def state(self) -> str | None:
        """The handler's durable state; nobody but a run of it changes that, when it commits."""
        return self._state

    def ahead(self, now_ms: int) -> Ahead | None:
        """How `mutate` would be run right after `prepare`, if there is one."""
        return Ahead(self._allowed(Step.MUTATE), now_ms) if self.handler.has_mutate else None

    def _allowed(self, step: Step) -> frozenset[Kind]:
        if step is Step.MUTATE and self.parts.policy.mutate_reads == "by_id":
            return ALLOWED[step] | MUTATE_BY_ID
        return ALLOWED[step]


def fixed_by(run: Run) -> Fixed:
    """Time and chance for `mutate`: the same whenever this PrepareResult is used."""
    assert run.prepare_result is not None, run
    assert run.prepared_at is not None, run
    return Fixed.by(run.prepare_result, run.prepared_at)
