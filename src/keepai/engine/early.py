"""A step that runs beside the commit that leads to it, so that the sandbox and the disk do not wait for each other.

`next` runs while the outcome is written, and the `prepare` of the run that follows while the one before is committed.
It is given what could be foreseen; whatever else it asks for or says waits until the commit is there and has led to
this very step, on the same inputs. Otherwise nobody hears of it. With many runs under way such a `prepare` is tried in
the same breath as the `next` before it, and has ended when its run begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..model.errors import HostFault
from ..runtime.base import Ended, Followed, Job, LogLine, Operation, Reply
from .gate import Gate
from .parts import Parts

_LEFT_S = 0.1  # that a step may go on after nobody wants it: most have ended by then, and their worker can be kept


class Early:
    """One step under way, that may come to count."""

    def __init__(self, parts: Parts, job: Job, view: Gate, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self._job, self._host, self._left = job, Unbegun(view), parts.left
        self._running = asyncio.get_running_loop().create_task(parts.runtime.run(job, self._host))

    def fits(self, job: Job, gate: Gate) -> bool:
        """Whether it is the step that is wanted now, and was told what is true now."""
        return job == self._job and self._host.still_true(gate)

    async def ended(self, gate: Gate) -> Ended:
        """It counts: what came of it."""
        self._host.begin(gate)
        return await self._running

    def leave(self) -> None:
        """Unless it counts, nobody wants it: it ends by itself, or is cut off, and nothing comes of it."""
        if self._host.begun or self._running in self._left:
            return
        self._host.refuse()
        self._left.add(self._running)
        self._running.add_done_callback(self._over)
        asyncio.get_running_loop().call_later(_LEFT_S, self._running.cancel)

    def _over(self, done: asyncio.Future[Ended]) -> None:
        self._left.discard(done)
        if not done.cancelled():
            done.exception()  # whatever it was, it belongs to no run


class Tried:
    """A `prepare` that has ended already: it was tried in the same breath as the `next` before it."""

    def __init__(self, followed: Followed, number: int | None) -> None:
        self.begun_ms = followed.job.begun_ms or 0
        self._followed, self._number = followed, number

    def fits(self, job: Job, gate: Gate) -> bool:
        """Whether it is the step that is wanted now, and was told what is true now.

        What waits for a handler changes only with its workflow's count: while that is as it was foreseen, nobody need
        look."""
        if job != self._followed.job:
            return False
        used = self._followed.used
        return used is None or gate.follows(self._number) or gate.foresee(used[0]) == used[1]

    async def ended(self, gate: Gate) -> Ended:
        """It counts: what came of it."""
        if self._followed.used is not None:
            gate.used(*self._followed.used)
        return self._followed.ended

    def leave(self) -> None:
        """Unless it counts, nobody hears of it."""


class Unbegun:
    """The host of a step that does not count yet: what can be foreseen is told, anything else waits for its gate."""

    def __init__(self, view: Gate) -> None:
        self._view = view  # of the same handler, before the commit
        self._gate: Gate | None = None  # from when it counts
        self._refused = False  # it never will
        self._waiting: asyncio.Future[Gate] | None = None  # of calls that came before it counts
        self._foreseen: tuple[Operation, Reply] | None = None
        self._noted: list[Callable[[Gate], None]] = []

    async def answer(self, operation: Operation) -> Reply:
        """Wait for the gate, then ask it."""
        return await (self._gate or await self._counts()).answer(operation)

    async def _counts(self) -> Gate:
        if self._refused:
            raise _not_wanted()
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._waiting)  # several may wait for it, and one may be cut off

    def foresee(self, operation: Operation) -> Reply | None:
        """What a gate would answer now."""
        reply = self._view.foresee(operation)
        if reply is not None:
            self._foreseen = operation, reply
        return reply

    def used(self, operation: Operation, reply: Reply) -> None:
        """Keep it with the run, when it counts."""
        self._note(lambda gate: gate.used(operation, reply))

    def log(self, line: LogLine) -> None:
        """Keep a line with the run, when it counts."""
        self._note(lambda gate: gate.log(line))

    def still_true(self, gate: Gate) -> bool:
        """Whether the step's own gate would answer what was foreseen."""
        if self._foreseen is None:
            return True
        operation, reply = self._foreseen
        return gate.foresee(operation) == reply

    def begin(self, gate: Gate) -> None:
        """It counts, from here on with its own gate."""
        assert not self._refused, "nobody wanted it"
        for note in self._noted:
            note(gate)
        self._gate = gate
        if self._waiting is not None:
            self._waiting.set_result(gate)

    def refuse(self) -> None:
        """It never will."""
        self._refused = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(_not_wanted())
            self._waiting.exception()  # nobody need wait for it

    @property
    def begun(self) -> bool:
        """Whether it counts."""
        return self._gate is not None

    def _note(self, note: Callable[[Gate], None]) -> None:
        if self._gate is not None:
            note(self._gate)
        else:
            self._noted.append(note)


def _not_wanted() -> HostFault:
    return HostFault("What this step was to follow did not come.")
