"""Predicts from a handler's earlier steps what the next one will ask, so that it has to ask for less.

A `prepare` mostly begins with the same `peek`. The predictor has the host answer that call before the step begins, and
the answer goes along with the job. A handler whose first call changes is not predicted again. A `mutate` that did more
than its one call when it was tried right after `prepare` (speculative_mutate.py) is not tried again.

The predictor also knows which steps are quick: those whose last run ended soon and needed only the host. Quick steps
may share a worker and a message (pool.py).

With the policy `speculate` off, nothing is answered or tried before the script asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...model.fast_record import fast_record
from ...model.operations import Kind, Step
from ..base import Job, Operation, Reply, StepHost
from .frames import PredictedAnswer, call_text

_HANDLERS_MAX = 1000  # that are remembered
_CALL_CHARS_MAX = 1000  # a longer call is not remembered: it would be in the host's memory and in every job


@fast_record
@dataclass(frozen=True)
class PredictedCall:
    """A call that the step will probably make first, and its answer."""

    operation: Operation
    reply: Reply
    answer: PredictedAnswer  # the same, as the worker gets it


class CallPredictor:
    """Remembers by script and handler."""

    def __init__(self, *, speculate: bool = True) -> None:
        self._speculate = speculate
        self._first: dict[tuple[str, str], tuple[Operation, str] | None] = {}  # None: it changes
        self._mutate_alone: set[tuple[str, str]] = set()  # handlers whose `mutate` is not tried after `prepare`
        #: The steps, by script and handler, that will probably end soon and need nothing but the host.
        self.quick: set[tuple[str, str, Step]] = set()

    async def plan(self, job: Job, host: StepHost) -> tuple[Job, PredictedCall | None]:
        """The job, without a try of `mutate` if that is useless, and the answer to send along with it."""
        if job.step is not Step.PREPARE:
            return job, None
        key = job.source, job.handler
        if job.ahead is not None and (not self._speculate or key in self._mutate_alone):
            job = replace(job, ahead=None)
        known = self._first.get(key)
        if known is None:
            return job, None
        operation, call = known
        reply = await host.foresee(operation)
        if reply is None or sum(map(len, reply.texts)) * 4 > job.limits.message_bytes_max:
            return job, None
        return job, PredictedCall(operation, reply, PredictedAnswer(call, reply.texts, reply.cuts))

    def learn_first_call(self, job: Job, operation: Operation, args: Sequence[str]) -> None:
        """A step made its first call, and its answer had not gone along."""
        if job.step is not Step.PREPARE or not self._speculate:
            return
        key, call = (job.source, job.handler), call_text(operation.name, args)
        known = self._first.get(key, (operation, call))
        predictable = operation.kind is Kind.PEEK and len(call) <= _CALL_CHARS_MAX
        same = predictable and known is not None and known[1] == call
        if len(self._first) >= _HANDLERS_MAX and key not in self._first:
            self._first.clear()
        self._first[key] = known if same else None

    def learn_useless_try(self, job: Job) -> None:
        """`mutate` was tried after this `prepare`, and did more than its one call."""
        if len(self._mutate_alone) >= _HANDLERS_MAX:
            self._mutate_alone.clear()
        self._mutate_alone.add((job.source, job.handler))

    def learn_quick(self, job: Job, *, quick: bool) -> None:
        """A step ended. It was quick if it ended well, soon, and needed nothing but the host."""
        key = job.source, job.handler, job.step
        if not quick or job.only_load:
            self.quick.discard(key)
        elif key not in self.quick:
            if len(self.quick) >= _HANDLERS_MAX * 3:
                self.quick.clear()
            self.quick.add(key)
