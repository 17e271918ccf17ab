"""What is known of a handler from its earlier steps, so that a step need not ask and nothing is tried in vain.

What `prepare` asks for first is mostly the same `peek` every time: its answer goes along with the job, and the way
there is saved. One that asks differently from time to time is not guessed at again. A `mutate` that did more than its
one call when it was tried right after `prepare` (ahead.py) is not tried again.

A step that ended soon the last time, and asked for nothing outside, may go to a worker together with others
(pool.py): that is no guess at what it does.

With the policy `speculate` off nothing is answered or tried before it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...model.light import light
from ...model.operations import Kind, Step
from ..base import Host, Job, Operation, Reply
from .frames import Hand, call_text

_MOST = 1000  # handlers that are remembered
_LONGEST = 1000  # call that is: it is in the host's memory, and in every job


@light
@dataclass(frozen=True)
class Foreseen:
    """A call that is likely to come, and its answer."""

    operation: Operation
    reply: Reply
    hand: Hand


class Habits:
    """Remembers by script and handler."""

    def __init__(self, *, speculate: bool = True) -> None:
        self._speculate = speculate
        self._first: dict[tuple[str, str], tuple[Operation, str] | None] = {}  # None: not to be guessed
        self._alone: set[tuple[str, str]] = set()  # whose `mutate` is not tried ahead
        self._quick: set[tuple[str, str, Step]] = set()  # steps that ended soon the last time

    def foresee(self, job: Job, host: Host) -> Foreseen | None:
        """What is to go along with a job."""
        known = self._first.get((job.source, job.handler)) if job.step is Step.PREPARE else None
        if known is None:
            return None
        operation, call = known
        reply = host.foresee(operation)
        if reply is None or sum(map(len, reply.texts)) * 4 > job.limits.message_bytes_max:
            return None
        return Foreseen(operation, reply, Hand(call, reply.texts, reply.cuts))

    def learn(self, job: Job, operation: Operation, args: Sequence[str]) -> None:
        """A step has made its first call, for which nothing was at hand."""
        if job.step is not Step.PREPARE or not self._speculate:
            return
        key, call = (job.source, job.handler), call_text(operation.name, args)
        known = self._first.get(key, (operation, call))
        short = operation.kind is Kind.PEEK and len(call) <= _LONGEST
        steady = short and known is not None and known[1] == call
        if len(self._first) >= _MOST and key not in self._first:
            self._first.clear()
        self._first[key] = known if steady else None

    def fit(self, job: Job) -> Job:
        """The job as it is worth giving."""
        in_vain = not self._speculate or (job.source, job.handler) in self._alone
        return replace(job, ahead=None) if job.ahead and in_vain else job

    def is_quick(self, job: Job) -> bool:
        """Whether the step is known to end soon, without asking for anything outside."""
        return (job.source, job.handler, job.step) in self._quick

    def took(self, job: Job, *, quick: bool) -> None:
        """A step has ended; it was quick if it ended well, soon, and needed nobody but the host."""
        key = job.source, job.handler, job.step
        if not quick or job.only_load:
            self._quick.discard(key)
        elif key not in self._quick:
            if len(self._quick) >= _MOST * 3:
                self._quick.clear()
            self._quick.add(key)

    def missed(self, job: Job) -> None:
        """`mutate` was tried, in vain."""
        if len(self._alone) >= _MOST:
            self._alone.clear()
        self._alone.add((job.source, job.handler))
