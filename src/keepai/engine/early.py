"""A step that runs beside the commit that leads to it, so that the sandbox and the disk do not wait for each other.

`next` runs while the outcome is written, and the `prepare` of the run that follows while the one before is committed.
Neither can do anything outside: what `next` publishes is held in memory, and a `prepare` whose run has not begun is
given only what could be foreseen. It counts when the commit is there and has led to this very step, on the same
inputs; else nobody hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..model.errors import HostFault
from ..runtime.base import Ended, Job, LogLine, Operation, Reply
from .gate import Gate
from .parts import Parts


class Early:
    """One step under way; the run that it is for may not have begun yet."""

    def __init__(self, parts: Parts, job: Job, host: Gate | Unbegun, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self._job, self._host, self._left = job, host, parts.left
        self._running = asyncio.ensure_future(parts.runtime.run(job, host))

    def fits(self, job: Job, gate: Gate) -> bool:
        """Whether it is the step that is wanted now, and was told what is true now."""
        return job == self._job and (isinstance(self._host, Gate) or self._host.still_true(gate))

    async def ended(self, gate: Gate) -> tuple[Ended, Gate]:
        """What came of it, now that it counts, and the gate that has what it gathered."""
        if isinstance(self._host, Gate):
            gate = self._host
        else:
            self._host.begin(gate)
        try:
            return await asyncio.shield(self._running), gate
        except asyncio.CancelledError:
            self.leave()
            raise

    def leave(self) -> None:
        """Nobody wants it: it ends by itself, and nothing comes of it."""
        if isinstance(self._host, Unbegun):
            self._host.refuse()
        self._left.add(self._running)
        self._running.add_done_callback(self._over)

    def _over(self, done: asyncio.Future[Ended]) -> None:
        self._left.discard(done)
        if not done.cancelled():
            done.exception()  # whatever it was, it belongs to no run


class Unbegun:
    """The host of a step whose run has not begun: what can be foreseen is told, and anything else waits for the run."""

    def __init__(self, view: Gate) -> None:
        self._view = view  # of the run before it: the same handler
        self._gate: asyncio.Future[Gate] = asyncio.get_running_loop().create_future()
        self._foreseen: tuple[Operation, Reply] | None = None
        self._noted: list[Callable[[Gate], None]] = []

    async def answer(self, operation: Operation) -> Reply:
        """Wait for the run, then ask its gate."""
        return await (await asyncio.shield(self._gate)).answer(operation)

    def foresee(self, operation: Operation) -> Reply | None:
        """What the gate would answer now."""
        reply = self._view.foresee(operation)
        if reply is not None:
            self._foreseen = operation, reply
        return reply

    def used(self, operation: Operation, reply: Reply) -> None:
        """Keep it with the run, when there is one."""
        self._note(lambda gate: gate.used(operation, reply))

    def log(self, line: LogLine) -> None:
        """Keep a line with the run, when there is one."""
        self._note(lambda gate: gate.log(line))

    def still_true(self, gate: Gate) -> bool:
        """Whether the run's own gate would answer what was foreseen."""
        if self._foreseen is None:
            return True
        operation, reply = self._foreseen
        return gate.foresee(operation) == reply

    def begin(self, gate: Gate) -> None:
        """The run is there."""
        for note in self._noted:
            note(gate)
        self._gate.set_result(gate)

    def refuse(self) -> None:
        """There will be no such run."""
        if not self._gate.done():
            self._gate.set_exception(HostFault("The run that this step was for did not begin."))
            self._gate.exception()  # nobody need wait for it

    def _note(self, note: Callable[[Gate], None]) -> None:
        if self._gate.done() and self._gate.exception() is None:
            note(self._gate.result())
        else:
            self._noted.append(note)
