"""Kills a process in the middle of a call: at lines of the connector's module, before its answer comes, and at its end.

The process is a fork, so that it needs no recipe for the connector. It is killed by SIGKILL: no `finally` runs in it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ...model.clock import SystemClock
from .sending import CALM_S, Heard, Sender
from .subject import Fault, Subject

SECONDS_MAX = 2 * CALM_S
Tracer = Callable[[FrameType, str, Any], Any]


@dataclass(frozen=True)
class Moment:
    """When the process is killed."""

    line: int | None  # at the nth line that runs in the connector's module; None: while the answer is held back

    def __str__(self) -> str:
        if self == AT_END:
            return "when it has returned"
        return "while the answer is held back" if self.line is None else f"at line {self.line} of those it runs"


AT_END = Moment(0)  # all has happened, and nobody has heard of it


def moments(subject: Subject) -> list[Moment]:
    """Every moment that is tried; of too many lines, evenly chosen ones."""
    count = _lines(subject) if subject.crash_lines_max else 0
    tried = min(count, subject.crash_lines_max)
    return [Moment(None), *(Moment(1 + number * count // tried) for number in range(tried)), AT_END]


async def send_and_die(subject: Subject, moment: Moment) -> bool:
    """Make the call in a process that is killed at the moment; False if it never came to that."""
    if moment.line is not None:
        return os.WIFSIGNALED(await asyncio.to_thread(_forked, lambda: _call_and_die(subject, moment)))
    broken = subject.fault(Fault.HELD)
    if broken is None:
        return False
    with broken:
        await asyncio.to_thread(_killed_when_held, subject)
    return True


def _killed_when_held(subject: Subject) -> None:
    """Kill the process once the effect is there; it waits for its answer then."""
    child = _fork(lambda: _call(subject, None))
    end = _now_s() + SECONDS_MAX
    while subject.effects() == 0 and _now_s() < end:
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _lines(subject: Subject) -> int:
    """How many lines of the connector's module a call runs, counted in a process of its own."""
    reader, writer = os.pipe()

    def count() -> None:
        seen = 0

        def at() -> None:
            nonlocal seen
            seen += 1

        try:
            _call(subject, _tracer(subject, at))
        finally:
            os.write(writer, str(seen).encode())

    try:
        _forked(count)
        os.set_blocking(reader, False)
        try:
            return int(os.read(reader, 32) or b"0")
        except BlockingIOError:
            return 0
    finally:
        os.close(reader)
        os.close(writer)


def _call(subject: Subject, tracer: Tracer | None) -> None:
    sender = Sender(subject, Heard())
    spec = sender.spec()
    if tracer is not None:
        threading.settrace(tracer)
        sys.settrace(tracer)
    asyncio.run(spec.invoke(spec.parse(dict(subject.params)), sender.call()))


def _call_and_die(subject: Subject, moment: Moment) -> None:
    left = moment.line or 0

    def at() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _call(subject, None if moment == AT_END else _tracer(subject, at))
    if moment == AT_END:
        os.kill(os.getpid(), signal.SIGKILL)


def _tracer(subject: Subject, at: Callable[[], None]) -> Tracer:
    """Calls `at` before every line of the connector's own module, and of those that it rests on, in every thread."""
    places = {inspect.getfile(type(subject.connector())), *map(inspect.getfile, subject.crash_in)}

    def line(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            at()
        return line

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        return line if frame.f_code.co_filename in places else None

    return enter


def _now_s() -> float:
    return SystemClock().steady_ms() / 1000


def _forked(work: Callable[[], None]) -> int:
    """Do it in a process of its own, and wait; the status with which it ended."""
    child = _fork(work)
    end = _now_s() + SECONDS_MAX
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if _now_s() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _fork(work: Callable[[], None]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent do not matter to this child
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)
