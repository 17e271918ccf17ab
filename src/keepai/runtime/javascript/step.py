"""One step in one VM, inside the worker: calls go out, answers come in, and one frame tells how it ended.

Everything that ends a script is raised inside the synchronous host function and leaves the VM as a trap, so no
`catch`, `finally` or microtask of the script runs after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import NoReturn, Protocol

import orjson

from ...model.clock import SystemClock
from ...model.errors import BadValue, LimitExceeded, Location, ScriptError, ScriptThrew
from ...model.operations import Kind, Step
from ..base import Cut, Job
from ..event_texts import Shown, shown
from . import rules
from .deadline import Deadline
from .frames import (
    HEAD_BYTES_MAX,
    Frame,
    PredictedAnswer,
    ScriptCall,
    call_frame,
    end_frame,
    fail_frame,
    fixed_of,
    log_frame,
    mutation_frame,
)
from .guest import GuestCrashed, OutOfMemory, OutOfStack, OutOfTime
from .large_values import LargeValues, left_out, reply_text
from .loaded_scripts import LoadedScript, LoadedScripts
from .vm import Thrown, Vms

_CLOCK = SystemClock()
_STACK_MESSAGE = "RangeError: Maximum call stack size exceeded"
_MEMORY_MESSAGE = "InternalError: out of memory"

#: Step → the number by which bootstrap knows where its function is.
_PLACES: Mapping[Step, int] = {Step.PRODUCER: 0, Step.PREPARE: 1, Step.MUTATE: 2, Step.NEXT: 3, Step.ROUTINE: 4}
_ONLY_LOAD = -1
_ANSWERED_WITH_EVENTS = (Kind.PEEK, Kind.GET_BY_IDS)


class TerminalCall(Exception):
    """The script made its mutation call, which ends it."""

    def __init__(self, call: ScriptCall) -> None:
        super().__init__()
        self.call = call


class FrameChannel(Protocol):
    """Where a step sends its frames, and gets the answers."""

    def send(self, data: bytes) -> None: ...

    def reply(self, number: int) -> Frame: ...


class StepRun:
    """Runs one job; calls, log and end go to the host over `channel`."""

    def __init__(
        self, vms: Vms, scripts: LoadedScripts, channel: FrameChannel, deadline: Deadline, script: LoadedScript,
        job: Job, number: int, predicted: PredictedAnswer | None = None,
    ) -> None:
        self._predicted, self._values = predicted, LargeValues()
        self._job, self._limits, self._number = job, job.limits, number
        self._script, self._scripts, self._vms = script, scripts, vms
        self._channel, self._deadline = channel, deadline
        self._queued: deque[tuple[int, bytes]] = deque()  # reads that wait until less is under way
        self._queued_bytes = 0
        self._under_way: dict[int, int] = {}  # the reads that were sent, by number: their size
        self._unsettled: set[int] = set()  # all reads whose answer the script does not have
        self._arrived: deque[Frame] = deque()  # answers to reads that came while the script waited for another call
        self._unsent = b""  # calls without an answer, which go out with the next frame
        self._events: list[tuple[str, Sequence[Cut]]] = []  # the answers to `peek` and `getByIds`
        self._calls = self._counted = 0
        self._fixed = job.fixed  # while an item is at work, that of the item
        begun_ms = _CLOCK.now_ms() if job.begun_ms is None else job.begun_ms
        self._ahead_ms = begun_ms - _CLOCK.steady_ms()  # of the host's clock before the steady one
        self._log_left = job.limits.log_bytes_max
        self._used = False  # whether the next frame has to say that the predicted answer was used
        self._result: str | None = None
        # How it ended: by its mutation call, with a result (empty if it is undefined), or by an error.
        self.called: ScriptCall | None = None
        self.returned: str | None = None
        self.error: ScriptError | None = None
        self._vm = vms.begin(script.image or scripts.base, script.vm_limits, self)

    def run(self, compute_s: float) -> None:
        """Run the step, until it has `returned`, `called` or an `error`."""
        self._deadline.begin(compute_s)
        try:
            try:
                if self._script.image is None:
                    self._load()
                self._vm.start(self._start_text())
                self._drive()
            except Thrown as thrown:
                self._describe(thrown.handle)
            self.returned = self._result
        except TerminalCall as ended:
            self.called = ended.call
        except ScriptError as error:
            self.error = error
        except (OutOfTime, OutOfMemory, OutOfStack, GuestCrashed) as error:
            self.error = self._broken(error)
        finally:
            self._deadline.end()
            self._vms.end(self._scripts.base)

    @property
    def clean(self) -> bool:
        """Whether the worker is worth keeping."""
        return not isinstance(self.error, LimitExceeded)

    def send_end(self, tried: StepRun | None = None) -> None:
        """Send how it ended, together with the call of a `mutate` that was tried on its result."""
        number, used = self._number, self._used
        if self.error is not None:
            frame = fail_frame(number, self.error, used=used)
        elif self.called is not None:
            frame = mutation_frame(number, self.called)
        else:
            assert self.returned is not None
            missed = tried is not None and tried.called is None and tried.returned is None
            frame = end_frame(number, self.returned, used=used, tried=missed, mutate=tried.called if tried else None)
            if len(frame) > self._limits.message_bytes_max + HEAD_BYTES_MAX:  # the two do not fit into one message
                frame = end_frame(number, self.returned, used=used)
        self._channel.send(self._unsent + frame)

    def events(self, wanted: list[tuple[str, str]]) -> list[Shown] | None:
        """The events with these topics and messageIds, as the script was given them; None if it was not given one."""
        found = dict[tuple[str, str], Shown]()
        for text, cuts in self._events:
            payloads = {path[0]: text[start:end] for path, start, end in cuts}
            for number, event in enumerate(orjson.loads(left_out(text, cuts))):
                key = event["topic"], event["messageId"]
                if key in wanted:
                    found[key] = shown(*key, payloads.get(number) or orjson.dumps(event["payload"]).decode())
        return [found[key] for key in wanted] if len(found) == len(wanted) else None

    def _load(self) -> None:
        vm, script = self._vm, self._script
        vm.limit()
        namespace = vm.load(script.source)
        if not namespace:
            raise ScriptThrew("The script's top level waits for something that never comes.")
        vm.enter("ready", namespace, script.setting)
        self._scripts.keep_image(script, vm)

    def _start_text(self) -> str:
        """What bootstrap's `start` takes."""
        job, args, places = self._job, ["null"], list[object]()
        for number, arg in enumerate(job.args, 1):
            text, left = self._values.shown(arg, job.cuts if number == 1 else ()) if arg else ("null", [])
            args.append(text)
            places += [place.within(number) for place in left]
        state = 2 if job.state else 1 if job.step is Step.NEXT else 0
        absent = [number for number, arg in enumerate(job.args, 1) if arg is None] if None in job.args else "[]"
        where = _ONLY_LOAD if job.only_load else _PLACES[job.step]
        left_out = json.dumps(places) if places else "[]"
        return (
            f'[{where},{quote(job.handler)},{state},{job.state or "null"},[{",".join(args)}],{absent},{left_out}]'
        )

    def _drive(self) -> None:
        """Run until nothing is left to do: also what the script started and did not wait for."""
        while True:
            self._vm.run_jobs()
            if self._queued:
                self._send_queued()
            if not self._unsettled:
                break
            reply = self._arrived.popleft() if self._arrived else self._wait_for_reply(b"", None)
            self._unsettled.discard(reply["id"])
            number = reply["id"]
            answer = self._answer_text(reply["texts"], reply["cuts"], number if reply["known"] else None)
            self._vm.enter("settle", f"{number}\n{answer}")
        unhandled = self._vm.unhandled_rejection()
        if unhandled is not None:
            self._describe(unhandled)
        if self._result is None:
            raise rules.never_settles()

    def _describe(self, handle: int) -> None:
        """Have bootstrap describe an exception; the description comes back through `_on_threw`."""
        try:
            self._vm.enter("describe", handle)
        except Thrown:
            raise OutOfMemory from None  # bootstrap's description catches everything that the script can throw

    def _broken(self, error: Exception) -> ScriptError:
        if isinstance(error, OutOfTime):
            return rules.out_of_time(self._limits)
        if isinstance(error, OutOfStack):
            return rules.out_of_stack(self._limits)
        if isinstance(error, OutOfMemory) or self._vm.memory_full():
            return rules.out_of_memory(self._limits)
        return ScriptError(f"The script made the interpreter stop ({error}).")

    # What bootstrap asks for (vm.GuestHost).

    def host(self, what: str, *args: str) -> str | None:
        """Do what bootstrap asks for; a call and the end, which come most often, are one text alone."""
        if args:
            return _HANDLERS[what](self, *args)
        if not what.startswith("="):
            return self._on_call(what)
        result = what[1:]
        if result:
            result = self._values.whole(result)
            self._check_size("The result", [result], None)
        self._result = result
        return None

    def now_ms(self) -> int:
        """The time that the script sees: fixed, or the host's clock going on from the step's beginning."""
        return self._fixed.now_ms if self._fixed else self._ahead_ms + _CLOCK.steady_ms()

    def _on_call(self, text: str) -> str | None:
        head, _, read = text.partition("\0")
        number_text, _, call_text = head.partition("\n")
        predicted, job, limits = self._predicted, self._job, self._limits
        self._calls += 1
        if predicted is not None and self._calls == 1 and call_text == predicted.call:
            self._counted += 1
            if self._counted > limits.calls_max:
                raise rules.too_many_calls(limits, None)
            self._used = True
            self._events.append((predicted.texts[0], predicted.cuts))
            return self._answer_text(predicted.texts, predicted.cuts)
        name, _, args_text = call_text.partition("\n")
        at, kind, number = self._at(read), job.surface.kind(name), int(number_text)
        if kind is None or kind not in job.allowed:
            raise rules.forbidden(name, kind or Kind.READ, job.step, at)
        if kind in rules.COUNTED:
            self._counted += 1
            if self._counted > limits.calls_max:
                raise rules.too_many_calls(limits, at)
        written = args_text.split("\n") if args_text else []
        args = list(map(self._values.whole, written))
        self._check_size(f"What ctx.{name} was given", args, at)
        if kind is Kind.PUBLISH and len(args) == 2:
            args[1] = self._values.named(written[1])
        call = ScriptCall(name, args, at)
        if kind is Kind.MUTATION and job.step is Step.MUTATE:
            raise TerminalCall(call)
        frame = call_frame(self._number, number, call, used=self._used)
        if kind not in rules.BLOCKING and self._queued_bytes + len(frame) > limits.memory_bytes:
            raise rules.out_of_memory(limits)
        self._used = False
        if kind in rules.UNANSWERED:
            self._unsent += frame
            if len(self._unsent) > rules.UNANSWERED_BYTES_MAX:
                self._send(b"")
            return "null"
        if kind in rules.BLOCKING:
            reply = self._wait_for_reply(frame, number)
            if kind is Kind.WITH_ITEM:
                self._fixed = fixed_of(reply) or job.fixed
                self._deadline.extend(rules.ITEM_S)
            if kind in _ANSWERED_WITH_EVENTS:
                self._events.append((reply["texts"][0], reply["cuts"]))
            return self._answer_text(reply["texts"], reply["cuts"])
        self._queued.append((number, frame))
        self._queued_bytes += len(frame)
        self._unsettled.add(number)
        self._send_queued()
        return None

    def _at(self, read: str) -> Location | None:
        """Where a call is, found by where its member was read if possible; None for an empty text."""
        if not read:
            return None
        places = self._script.places
        return places.find_call(read) or places.find(self._vm.ask("trace"))

    def _check_size(self, what: str, texts: list[str], at: Location | None) -> None:
        most = self._limits.message_bytes_max
        if sum(map(len, texts)) * 4 > most and sum(
            len(text.encode("utf-8", "surrogatepass")) for text in texts
        ) > most:
            raise rules.too_large(what, self._limits, at)

    def _answer_text(self, texts: list[str], cuts: Sequence[Cut], call: int | None = None) -> str:
        """An answer as bootstrap reads it: a value, or a page with its extra members before it."""
        text, places = self._values.shown(texts[0], cuts, call)
        return reply_text(text if len(texts) == 1 else f"\n{texts[1]}\n{text}", places)

    def _on_seed(self, _nothing: str) -> str:
        entropy = hashlib.sha256(self._fixed.seed).digest() if self._fixed else os.urandom(16)
        return json.dumps(list(struct.unpack("<4I", entropy[:16])))

    def _on_log(self, level: str, text: str) -> None:
        if self._log_left < 0:
            return
        self._log_left -= len(text.encode("utf-8", "replace")) + rules.LOG_LINE_COST
        line = text if self._log_left >= 0 else rules.log_cut(self._limits)
        used, self._used = self._used, False
        # At once, not with the next frame: if the worker has to be killed, its last line is not lost.
        self._send(log_frame(self._number, level, line, used=used))

    def _on_fetch(self, number: str) -> str:
        return self._values.fetch(int(number))

    def _on_threw(self, text: str, stack: str) -> NoReturn:
        at = self._script.places.find(stack)
        if text == _MEMORY_MESSAGE:
            raise rules.out_of_memory(self._limits)
        if text == _STACK_MESSAGE:
            raise rules.out_of_stack(self._limits, at)
        raise ScriptThrew(text, at=at)

    def _on_bad(self, message: str, read: str) -> NoReturn:
        raise BadValue(message[:1].upper() + message[1:], at=self._at(read))

    def _on_large(self, what: str, read: str) -> NoReturn:
        raise rules.too_large(what[:1].upper() + what[1:], self._limits, self._at(read))

    def _on_missing(self, connector: str, key: str, stack: str) -> NoReturn:
        raise rules.missing(self._job.surface, connector, key, self._script.places.find(stack))

    def _on_wrong(self, message: str, stack: str) -> NoReturn:
        raise ScriptError(message, at=self._script.places.find(stack))

    # The channel. While the step sends or waits, its time does not run.

    def _send(self, frame: bytes) -> None:
        """Send a frame, after the calls that have no answer."""
        self._deadline.pause()
        frames, self._unsent = self._unsent + frame, b""
        self._channel.send(frames)
        self._resume()

    def _wait_for_reply(self, frame: bytes, number: int | None) -> Frame:
        """Send a call and wait for its answer, or without one for any; other answers are kept."""
        self._deadline.pause()
        if frame:
            frames, self._unsent = self._unsent + frame, b""
            self._channel.send(frames)
        while True:
            reply = self._channel.reply(self._number)
            self._under_way.pop(reply["id"], None)
            if number is None or reply["id"] == number:
                self._resume()
                return reply
            self._arrived.append(reply)

    def _resume(self) -> None:
        if self._deadline.spent:
            raise OutOfTime
        self._deadline.resume()

    def _send_queued(self) -> None:
        """Send the reads that wait, as far as the limits of what is under way allow."""
        under_way, limits = self._under_way, self._limits
        while self._queued and len(under_way) < limits.concurrent_max:
            number, frame = self._queued[0]
            if under_way and sum(under_way.values()) + len(frame) > limits.message_bytes_max:
                break
            self._queued.popleft()
            self._queued_bytes -= len(frame)
            under_way[number] = len(frame)
            self._send(frame)


#: What bootstrap asks for, besides calls and the end → who does it.
_HANDLERS: Mapping[str, Callable[..., str | None]] = {
    "fetch": StepRun._on_fetch, "log": StepRun._on_log, "threw": StepRun._on_threw, "bad": StepRun._on_bad,
    "large": StepRun._on_large, "missing": StepRun._on_missing, "wrong": StepRun._on_wrong, "seed": StepRun._on_seed,
}
