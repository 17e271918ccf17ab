"""The clock of a step's compute limit: the processor time of the guest, not of its waiting for host or processor.

A thread looks at the clock now and then and interrupts the guest when the time is used up. While steps follow each
other the thread keeps looking by itself, because waking it for each step would cost more. When nothing computes, it
sleeps until the next step, so an idle worker costs nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial

_TICK_S = 0.05  # the longest time between looks: a limit can be exceeded by this much
_TICK_S_MIN = 0.005


class Deadline:
    """How much compute time is left; `interrupt` is called once when it reaches zero."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._due: float | None = None
        self._left = 0.0
        self._busy = False  # whether anything has computed since the last look
        self._now = time.monotonic

    def watch(self) -> None:
        """Start watching the thread that calls this; after a fork, never before."""
        self._now = _processor_time()
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()

    def begin(self, seconds: float) -> None:
        """A new step, with its own time, computes."""
        self._left = seconds
        self.resume()

    def end(self) -> None:
        """The step is over."""
        with self._lock:
            self._due = None

    def resume(self) -> None:
        """The guest computes again."""
        with self._lock:
            self._due, self._busy = self._now() + self._left, True
        if not self._awake.is_set():
            self._awake.set()

    def pause(self) -> None:
        """The guest waits."""
        with self._lock:
            if self._due is not None:
                self._left = self._due - self._now()
                self._due = None

    def extend(self, seconds: float) -> None:
        """Give the step that computes more time."""
        with self._lock:
            if self._due is not None:
                self._due += seconds

    @property
    def spent(self) -> bool:
        """Whether no time is left. Short bursts between calls add up here even if no tick falls into one."""
        return self._left <= 0

    def _watch(self) -> None:
        while True:
            self._awake.wait()
            due = self._due  # read once: the step may end meanwhile
            # Processor time never passes faster than the time on the wall, so nothing is due before.
            time.sleep(_TICK_S if due is None else min(max(due - self._now(), _TICK_S_MIN), _TICK_S))
            with self._lock:
                self._look()

    def _look(self) -> None:
        if self._due is not None:
            if self._now() >= self._due:
                self._left, self._due = 0.0, None
                self._interrupt()
        elif not self._busy:
            self._awake.clear()
        self._busy = False


def _processor_time() -> Callable[[], float]:
    """The processor time of this thread, readable from others: a busy machine is not the script's fault."""
    if sys.platform != "linux":
        return time.monotonic
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return partial(time.clock_gettime, clock)
