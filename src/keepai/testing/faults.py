"""What a scripted world does wrong, one call at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..connectors.base import Call, Verdict
from ..model.codec import Json
from ..model.errors import OutcomeUnknown

Params = dict[str, Json]
Apply = Callable[[], Json]
Behaviour = Callable[[Apply, "HeldCalls"], Awaitable[Any]]
Callback = Callable[[Params, Call], object]


class HeldCalls:
    """Holds what waits for the test: hanging calls, and requests that have not landed yet."""

    def __init__(self) -> None:
        self.late: list[Apply] = []
        self._open = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def hang(self, *, stubborn: bool) -> None:
        """Wait for `release`; a stubborn hang does not even end when it is cancelled."""
        opened = self._open  # `release` puts a fresh one in its place
        cancelled: asyncio.CancelledError | None = None
        while not opened.is_set():
            try:
                await opened.wait()
            except asyncio.CancelledError as error:
                if not stubborn:
                    raise
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def release(self) -> None:
        """End every hang that is under way."""
        self._open.set()
        self._open = asyncio.Event()

    def land(self) -> int:
        """Let all late requests arrive; returns how many."""
        late, self.late = self.late, []
        for apply in late:
            apply()
        return len(late)

    def land_after(self, event: asyncio.Event, apply: Apply) -> None:
        """Let one late request arrive when `event` is set."""
        async def wait() -> None:
            await event.wait()
            apply()
        task = asyncio.ensure_future(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass
class _Planned:
    behaviour: Behaviour
    left: int | None  # for so many calls; None: for all that follow


@dataclass
class PlannedFaults:
    """What an operation does at its next calls, in order; after that it works as it should."""

    planned: list[_Planned] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)

    async def carry_out(self, params: Params, call: Call, apply: Apply, gate: HeldCalls) -> Any:
        """One call."""
        for callback in self.callbacks:
            answer = callback(params, call)
            if inspect.isawaitable(answer):
                await answer
        behaviour = self._next()
        return await behaviour(apply, gate) if behaviour else apply()

    def _next(self) -> Behaviour | None:
        if not self.planned:
            return None
        first = self.planned[0]
        if first.left is not None:
            first.left -= 1
            if first.left <= 0:
                self.planned.pop(0)
        return first.behaviour


class On:
    """Scripts one operation: `world.on("sheets.appendRow").fail(Transient("busy"), times=2)`."""

    def __init__(self, plan: PlannedFaults) -> None:
        self._plan = plan

    def fail(self, error: BaseException, *, times: int | None = 1) -> On:
        """Raise; nothing happens outside."""
        async def behave(apply: Apply, gate: HeldCalls) -> Any:
            raise error
        return self._add(behave, times)

    raise_ = fail

    def hang(self, *, times: int | None = 1, applied: bool = False, stubborn: bool = False) -> On:
        """Never answer, before or after the effect, until cancelled or `world.release()`."""
        async def behave(apply: Apply, gate: HeldCalls) -> Any:
            result = apply() if applied else None
            await gate.hang(stubborn=stubborn)
            return result if applied else apply()
        return self._add(behave, times)

    def lose_answer(self, error: BaseException | None = None, *, times: int | None = 1) -> On:
        """Take effect, then raise as if the answer was lost."""
        async def behave(apply: Apply, gate: HeldCalls) -> Any:
            apply()
            raise error or OutcomeUnknown("The connection was lost before the answer came.")
        return self._add(behave, times)

    def apply_late(self, after: asyncio.Event | None = None, *, times: int | None = 1) -> On:
        """Raise `OutcomeUnknown` now and take effect at `world.land()`, or when `after` is set."""
        async def behave(apply: Apply, gate: HeldCalls) -> Any:
            if after is None:
                gate.late.append(apply)
            else:
                gate.land_after(after, apply)
            raise OutcomeUnknown("The connection was lost; the request is still under way.")
        return self._add(behave, times)

    def answer(self, result: Any, *, times: int | None = 1) -> On:
        """Return this without any effect: an outside system that lies."""
        async def behave(apply: Apply, gate: HeldCalls) -> Any:
            return result
        return self._add(behave, times)

    def as_ever(self, *, times: int) -> On:
        """Work as it should, so that what is planned next is about a later call."""
        async def behave(apply: Apply, gate: HeldCalls) -> Any:
            return apply()
        return self._add(behave, times) if times > 0 else self

    def before(self, callback: Callback) -> On:
        """Have `callback(params, call)` run, and awaited if it must be, before every call."""
        self._plan.callbacks.append(callback)
        return self

    def _add(self, behaviour: Behaviour, times: int | None) -> On:
        self._plan.planned.append(_Planned(behaviour, times))
        return self


class OnReconcile(On):
    """Scripts the reconcile method of one operation; unscripted, it tells the truth."""

    def found(self, result: Json = None, *, times: int | None = 1) -> On:
        """Say that it happened."""
        return self.answer(Verdict.applied(result), times=times)

    def not_found(self, *, times: int | None = 1) -> On:
        """Say that it is not there."""
        return self.answer(Verdict.failed(), times=times)

    def retry(self, after: float | None = None, *, times: int | None = 1) -> On:
        """Say that it cannot be known now."""
        return self.answer(Verdict.retry(after), times=times)

    def unknown(self, why: str = "It keeps no record.", *, times: int | None = 1) -> On:
        """Say that it can never be known."""
        return self.answer(Verdict.unknown(why), times=times)
