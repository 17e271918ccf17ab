"""An event loop that belongs to a seed: virtual time, a drawn choice among what is ready, hosts that die or freeze.

Everything that a host started carries its name in a context variable. Killing the host drops all of it at once, as
SIGKILL would; freezing it holds all of it back until the host is thawed.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from typing import Any

#: The host that a piece of work belongs to; None is the world outside.
HOST: contextvars.ContextVar[str | None] = contextvars.ContextVar("host", default=None)


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks one at a time in an order that the seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = 0.0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = 0
        self._dead: set[str] = set()
        self._frozen: dict[str, float] = {}
        self._held: set[int] = set()  # of the timers: what waits because its host is frozen
        self.tasks: list[asyncio.Task[Any]] = []  # kept, so that nothing is collected before the end
        self.errors: list[dict[str, Any]] = []
        self.steps = 0
        self.trace = 0

    # -- what asyncio asks for ---------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._push(when, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        done.set_result(function(*args))
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    # -- what the simulation does ------------------------------------------------------------------

    def kill(self, host: str) -> None:
        """Nothing of a host runs any more."""
        self._dead.add(host)

    def freeze(self, host: str, seconds: float) -> None:
        """Nothing of a host runs for so long."""
        self._frozen[host] = max(self._frozen.get(host, 0.0), self._now + seconds)

    def thaw(self) -> None:
        """Every frozen host goes on now, with all that was held back of it."""
        self._frozen.clear()
        self._timers = [
            (self._now if number in self._held else when, number, handle) for when, number, handle in self._timers]
        heapq.heapify(self._timers)

    def run(self, until: float, stop: Callable[[], bool] = lambda: False, steps_max: int = 400_000) -> None:
        """Go on until a moment, or until `stop`; raises if it takes more steps than anything sane would."""
        asyncio._set_running_loop(self)
        try:
            while not stop():
                if not self._ready and not self._due(until):
                    return
                handle = self._draw()
                if handle is None:
                    continue
                self.steps += 1
                if self.steps > steps_max:
                    raise RuntimeError(f"more than {steps_max:,} steps: something spins")
                self.trace = (self.trace * 1_000_003 ^ int(self._now * 1000) ^ len(self._ready)) & 0xFFFFFFFFFFFF
                handle._run()
        finally:
            asyncio._set_running_loop(None)

    def _due(self, until: float) -> bool:
        """Let time pass to the next timer; False if none comes before `until`."""
        if not self._timers or self._timers[0][0] > until:
            self._now = max(self._now, until)
            return False
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])
        return True

    def _draw(self) -> asyncio.Handle | None:
        at = self._random.randrange(len(self._ready)) if len(self._ready) > 1 else 0
        handle = self._ready[at]
        self._ready[at] = self._ready[-1]
        self._ready.pop()
        host = handle._context.get(HOST)  # type: ignore[attr-defined]
        if handle.cancelled() or host in self._dead:
            return None
        thaws = self._frozen.get(host, 0.0) if host else 0.0
        if thaws > self._now:
            self._push(thaws, handle)
            self._held.add(self._number)
            return None
        return handle

    def _push(self, when: float, handle: asyncio.Handle) -> None:
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))  # type: ignore[misc]
