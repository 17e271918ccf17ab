"""Runs one step of a handler in the sandbox, with its gate."""

from __future__ import annotations

import hashlib

from ..model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from ..model.records import Run
from ..runtime.base import Ended, Fixed, Job
from ..script.manifest import Handler
from .gate import Gate, Work
from .parts import Loaded, Parts
from .permission import Permissions
from .trace import Trace


class Stepper:
    """Everything that the steps of one run share."""

    def __init__(self, parts: Parts, run: Run, loaded: Loaded, handler: Handler) -> None:
        self.parts, self.run, self.loaded, self.handler = parts, run, loaded, handler
        self.permissions = Permissions(parts, run)
        last = parts.ledger.read().one("trace_last", workflow_id=run.workflow_id, run_id=run.id)
        position = int(last["position"]) if last else 0
        self.trace = Trace(run.id, parts.clock, parts.policy.trace_bytes_max, position)
        self.at: Step | None = None

    async def step(
        self, step: Step, args: tuple[str | None, ...], *, state: str | None = None, fixed: Fixed | None = None,
        items: Work | None = None,
    ) -> tuple[Ended, Gate]:
        """Run `step` in a fresh context and give what it returned or called, and what it gathered."""
        self.at = step
        gate = Gate(self.parts, self.run, self.loaded.manifest, self.handler, step, self.permissions, self.trace, items)
        job = Job(
            source=self.loaded.source, step=step, handler=self.handler.name, args=args, state=state,
            surface=self.parts.surface, allowed=self._allowed(step), limits=self.parts.limits(), fixed=fixed,
            begun_ms=self.parts.clock.now_ms(),
        )
        return await self.parts.runtime.run(job, gate), gate

    def state(self) -> str | None:
        """The handler's durable state."""
        row = self.parts.ledger.read().one(
            "handler_get", workflow_id=self.run.workflow_id, handler=self.handler.name,
        )
        return row["state"] if row else None

    def _allowed(self, step: Step) -> frozenset[Kind]:
        if step is Step.MUTATE and self.parts.policy.mutate_reads == "by_id":
            return ALLOWED[step] | MUTATE_BY_ID
        return ALLOWED[step]


def fixed_by(run: Run) -> Fixed:
    """Time and chance for `mutate`: the same whenever this PrepareResult is used."""
    assert run.prepare_result is not None, run
    assert run.prepared_at is not None, run
    return Fixed(run.prepared_at, hashlib.sha256(run.prepare_result.encode()).digest())
