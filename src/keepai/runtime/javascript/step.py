"""One step in one VM, inside the worker: calls go out, answers come in, and one frame says how it ended.

Everything that ends a script is raised inside the synchronous host function and leaves the VM as a trap, so no
`catch`, `finally` or microtask of the script runs after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections import deque
from collections.abc import Mapping
from typing import NoReturn

from ...model.clock import SystemClock
from ...model.errors import BadValue, Location, ScriptError, ScriptThrew
from ...model.operations import Kind, Step
from ..base import Job
from . import rules
from .cell import Cells, Size
from .deadline import Deadline
from .frames import Channel, Frame
from .guest import GuestCrashed, OutOfMemory, OutOfStack, OutOfTime
from .places import Places
from .vm import Thrown, Vm

_CLOCK = SystemClock()
_STACK_MESSAGE = "RangeError: Maximum call stack size exceeded"
_MEMORY_MESSAGE = "InternalError: out of memory"

#: Step → (member of the workflow, member of the handler).
_PLACES: Mapping[Step, tuple[str, str]] = {
    Step.PRODUCER: ("producers", "handler"),
    Step.PREPARE: ("consumers", "prepare"),
    Step.MUTATE: ("consumers", "mutate"),
    Step.NEXT: ("consumers", "next"),
    Step.ROUTINE: ("routines", "handler"),
}


class TerminalCall(Exception):
    """The script made its mutation call; it is over."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame["name"])
        self.frame = frame


class StepRun:
    """Runs one job and tells the host over `channel`."""

    def __init__(
        self, cells: Cells, channel: Channel, deadline: Deadline, job: Job, number: int
    ) -> None:
        self._job, self._limits, self._number = job, job.limits, number
        self._channel, self._deadline = channel, deadline
        self._held: deque[tuple[int, Frame]] = deque()  # reads that wait until fewer are under way
        self._held_bytes = 0
        self._reading: set[int] = set()
        self._arrived: deque[Frame] = deque()
        self._calls = 0
        begun_ms = _CLOCK.now_ms() if job.begun_ms is None else job.begun_ms
        self._ahead_ms = begun_ms - _CLOCK.steady_ms()  # of the host's clock before the steady one
        self._places = Places(job.source)
        self._log_left = job.limits.log_bytes_max
        self._ended: Frame | None = None
        self._handlers = {
            "call": self._on_call, "log": self._on_log, "end": self._on_end, "threw": self._on_threw,
            "bad": self._on_bad, "large": self._on_large, "missing": self._on_missing, "wrong": self._on_wrong,
        }
        size = Size(job.limits.memory_bytes, job.limits.stack_bytes, job.limits.message_bytes_max)
        self._cells = cells
        self._vm = Vm.open(cells, size, self._host, self._now_ms)

    def run(self) -> Frame:
        """The frame that ends the job."""
        self._deadline.begin(self._limits.compute_s)
        self._deadline.resume()
        try:
            return self._run()
        except TerminalCall as call:
            return call.frame
        except ScriptError as error:
            return self._fail(error)
        except (OutOfTime, OutOfMemory, OutOfStack, GuestCrashed) as error:
            return self._fail(self._broken(error))
        finally:
            self._deadline.pause()
            self._cells.give_back()

    def _run(self) -> Frame:
        vm = self._vm
        try:
            vm.enter("seed", self._seed())
            vm.enter("start", self._load(), self._start_text())
            self._drive()
        except Thrown as thrown:
            self._describe(thrown.handle)
        assert self._ended is not None
        return self._ended

    def _load(self) -> int:
        namespace = self._vm.load(self._job.source)
        if not namespace:
            raise ScriptThrew("The script's top level waits for something that never comes.")
        return namespace

    def _drive(self) -> None:
        """Run until nothing is left to do: also what the script started and did not wait for."""
        while True:
            self._vm.run_jobs()
            self._send_held()
            if not self._reading:
                break
            reply = self._arrived.popleft() if self._arrived else self._receive()
            self._reading.discard(reply["id"])
            self._vm.enter("settle", str(reply["id"]), reply["text"])
        unhandled = self._vm.unhandled_rejection()
        if unhandled is not None:
            self._describe(unhandled)
        if self._ended is None:
            raise rules.never_settles()

    def _describe(self, handle: int) -> None:
        """Let bootstrap put an exception into words; it comes back through `_on_threw`."""
        try:
            self._vm.enter("describe", handle)
        except Thrown:
            raise OutOfMemory from None  # describing catches everything that the script can throw

    # What bootstrap asks for.

    def _host(self, what: str, *args: str) -> str | None:
        return self._handlers[what](*args)  # type: ignore[no-any-return, operator]

    def _on_call(self, head: str, stack: str) -> str | None:
        number, name, args = head.split("\n", 2)
        at = self._places.find(stack)
        kind = self._job.surface.kind(name)
        if kind is None or kind not in self._job.allowed:
            raise rules.forbidden(name, kind or Kind.READ, self._job.step, at)
        self._calls += 1
        if self._calls > self._limits.calls_max:
            raise rules.too_many_calls(self._limits, at)
        self._check_size(f"What ctx.{name} was given", args, at)
        frame = self._frame("call", id=int(number), name=name, args=_texts(args), at=_pair(at))
        if kind is Kind.MUTATION and self._job.step is Step.MUTATE:
            raise TerminalCall({**frame, "t": "mutation"})
        if kind in rules.BLOCKING:
            return self._ask(frame)
        self._hold(int(number), frame, len(args))
        return None

    def _on_log(self, level: str, text: str) -> None:
        if self._log_left < 0:
            return
        self._log_left -= len(text.encode("utf-8", "replace")) + rules.LOG_LINE_COST
        line = text if self._log_left >= 0 else rules.log_cut(self._limits)
        self._send(self._frame("log", level=level, text=line))

    def _on_end(self, text: str | None = None) -> None:
        if text is not None:
            self._check_size("The result", text, None)
        self._ended = self._frame("end", value=text)

    def _on_threw(self, text: str, stack: str) -> NoReturn:
        at = self._places.find(stack)
        if text == _MEMORY_MESSAGE:
            raise rules.out_of_memory(self._limits)
        if text == _STACK_MESSAGE:
            raise rules.out_of_stack(self._limits, at)
        raise ScriptThrew(text, at=at)

    def _on_bad(self, message: str, stack: str) -> NoReturn:
        raise BadValue(message[:1].upper() + message[1:], at=self._places.find(stack))

    def _on_large(self, what: str, stack: str) -> NoReturn:
        raise rules.too_large(what[:1].upper() + what[1:], self._limits, self._places.find(stack))

    def _on_missing(self, connector: str, key: str, stack: str) -> NoReturn:
        raise rules.missing(self._job.surface, connector, key, self._places.find(stack))

    def _on_wrong(self, message: str, stack: str = "") -> NoReturn:
        raise ScriptError(message, at=self._places.find(stack) if stack else None)

    # The channel.

    def _ask(self, frame: Frame) -> str:
        """Send a call and wait for its answer; answers to reads that come in between are kept."""
        self._send(frame)
        while True:
            reply = self._receive()
            if reply["id"] == frame["id"]:
                return str(reply["text"])
            self._arrived.append(reply)

    def _hold(self, number: int, frame: Frame, size: int) -> None:
        self._held.append((size, frame))
        self._held_bytes += size
        self._reading.add(number)
        if self._held_bytes > self._limits.memory_bytes:
            raise rules.out_of_memory(self._limits)
        self._send_held()

    def _send_held(self) -> None:
        while self._held and len(self._reading) - len(self._held) - len(self._arrived) < self._limits.concurrent_max:
            size, frame = self._held.popleft()
            self._held_bytes -= size
            self._send(frame)

    def _send(self, frame: Frame) -> None:
        self._deadline.pause()
        self._channel.send(frame)
        self._go_on()

    def _receive(self) -> Frame:
        self._deadline.pause()
        reply = self._channel.receive()
        while reply["n"] != self._number:  # an answer that was on its way when the step before ended
            reply = self._channel.receive()
        self._go_on()
        return reply

    def _go_on(self) -> None:
        if self._deadline.spent:
            raise OutOfTime
        self._deadline.resume()

    # Frames and facts.

    def _frame(self, kind: str, **fields: object) -> Frame:
        return {"t": kind, "n": self._number, **fields}

    def _fail(self, error: ScriptError) -> Frame:
        return self._frame("fail", code=error.code, message=error.message, at=_pair(error.at))

    def _broken(self, error: Exception) -> ScriptError:
        if isinstance(error, OutOfTime):
            return rules.out_of_time(self._limits)
        if isinstance(error, OutOfStack):
            return rules.out_of_stack(self._limits)
        if isinstance(error, OutOfMemory) or self._vm.memory_full():
            return rules.out_of_memory(self._limits)
        return ScriptError(f"The script made the interpreter stop ({error}).")

    def _check_size(self, what: str, text: str, at: Location | None) -> None:
        most = self._limits.message_bytes_max
        if len(text) * 4 > most and len(text.encode("utf-8", "surrogatepass")) > most:
            raise rules.too_large(what, self._limits, at)

    def _start_text(self) -> str:
        job = self._job
        group, method = _PLACES[job.step]
        return json.dumps({
            "group": group, "method": method, "handler": job.handler, "args": job.args,
            "operations": job.surface.operations, "messageMax": job.limits.message_bytes_max,
            "hasState": job.step is Step.NEXT or job.state is not None, "state": job.state,
        })

    def _seed(self) -> str:
        fixed = self._job.fixed
        entropy = hashlib.sha256(fixed.seed).digest() if fixed else os.urandom(16)
        return json.dumps(list(struct.unpack("<4I", entropy[:16])))

    def _now_ms(self) -> int:
        """The time that the script sees: fixed, or the host's clock going on from the step's beginning."""
        if self._job.fixed:
            return self._job.fixed.now_ms
        return self._ahead_ms + _CLOCK.steady_ms()


def _texts(joined: str) -> list[str]:
    """The arguments' JSON texts, which contain no line ends of their own."""
    return joined.split("\n") if joined else []


def _pair(at: Location | None) -> list[int] | None:
    return None if at is None else [at.line, at.column]
