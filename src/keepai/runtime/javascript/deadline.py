"""The clock of a step's compute limit: the processor time of the guest, not of its waiting for host or processor.

A thread looks at it every few milliseconds and interrupts the guest when the time is used up. It sleeps
without waking while nothing computes, so an idle worker costs nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

_TICK_S = 0.01


class Deadline:
    """How much compute time is left; `interrupt` is called once when it reaches zero."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._due: float | None = None
        self._left = 0.0
        self._now = time.monotonic

    def watch(self) -> None:
        """Start watching the thread that calls this; after a fork, never before."""
        self._now = _processor_time()
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()

    def begin(self, seconds: float) -> None:
        """A new step with its own time."""
        self._left = seconds

    def resume(self) -> None:
        """The guest computes."""
        with self._lock:
            self._due = self._now() + self._left
        if not self._awake.is_set():
            self._awake.set()

    def pause(self) -> None:
        """The guest waits."""
        with self._lock:
            if self._due is not None:
                self._left = self._due - self._now()
                self._due = None

    @property
    def spent(self) -> bool:
        """Whether no time is left. Short bursts between calls add up here even if no tick falls into one."""
        return self._left <= 0

    def _watch(self) -> None:
        while True:
            self._awake.wait()
            time.sleep(_TICK_S)
            with self._lock:
                self._look()

    def _look(self) -> None:
        if self._due is None:
            self._awake.clear()
        elif self._now() >= self._due:
            self._left, self._due = 0.0, None
            self._interrupt()


def _processor_time() -> Callable[[], float]:
    """The processor time of this thread, readable from others: a busy machine is not the script's fault."""
    if sys.platform != "linux":
        return time.monotonic
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)
