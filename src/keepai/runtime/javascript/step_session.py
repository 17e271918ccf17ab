"""One job on one worker, as the host sees it: each frame is checked here as if an attacker had sent it.

A worker can do no more than a script: the kind of a call comes from the job's surface, never from the frame,
and calls, sizes, log and time are counted again. What breaks the protocol kills the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable, Sequence

from ...model.codec import CheckedText, Json, check_size, decode, decode_around, read, size, sound, stored, text_of
from ...model.errors import (
    BadValue,
    HostFault,
    KeepError,
    LimitExceeded,
    Location,
    PhaseViolation,
    RuleBroken,
    ScriptError,
    ScriptThrew,
)
from ...model.operations import Kind, Step
from ..base import Cut, Ended, Job, LogLine, Operation, StepHost
from . import rules
from .call_predictor import CallPredictor, PredictedCall
from .fork_client import Worker
from .frames import HEAD_BYTES_MAX, Frame, Garbled, reply_frame
from .large_values import MARK
from .worker_link import ProcessLost

_GRACE_S = 0.5  # the worker should notice first; then its error knows more
_LATE_S = 0.05  # a host that was busy must not blame the script for it
_PATIENCE = 10  # times its limit, by the clock on the wall, that a worker may take while others use the processors
_QUICK_S = 0.005  # a step that takes longer has a worker for itself next time
_MESSAGE_MAX = 4000
#: Calls that the host answers from its own data: no task is made for them, and nothing else goes on meanwhile.
_ANSWERED_AT_ONCE = frozenset({Kind.PEEK, Kind.GET_BY_IDS, Kind.REGISTER_INPUT})
_IN_A_ROW_MAX = 64  # calls that are carried out before others have their turn
_LEVELS = frozenset({"debug", "info", "warn", "error"})
_ERRORS = {
    error.code: error
    for error in (ScriptError, PhaseViolation, RuleBroken, LimitExceeded, BadValue, ScriptThrew)
}


class StepSession:
    """Runs one job, which was sent to the worker as `number`; `kill` ends the worker from outside."""

    def __init__(
        self, job: Job, host: StepHost, worker: Worker, number: int, kill: Callable[[], None], predictor: CallPredictor,
        predicted: PredictedCall | None = None, on_wait: Callable[[], None] | None = None,
    ) -> None:
        self.worker = worker
        self.behind = 0  # steps that the worker may go on with before the host reads its end of this one
        self.clean = False  # whether the worker ended the job by itself and within its limits
        self._job, self._host, self._number, self._kill = job, host, number, kill
        self._limits = job.limits
        self._predictor, self._predicted = predictor, predicted
        self._on_wait = on_wait  # called as soon as it waits for the outside
        self._waited = False  # whether it ever did
        self._loop = asyncio.get_running_loop()
        # What a step that may publish has read, by call: it may name large values of it.
        self._known: dict[int, tuple[str, Sequence[Cut]]] = {}
        self._known_left = job.limits.message_bytes_max  # characters
        self._answers: dict[int, asyncio.Task[None]] = {}  # of the reads under way, by number
        self._asked_chars = 0  # of their arguments
        self._unanswered = 0  # those whose answer was not sent to the worker yet
        self._calls = self._counted = self._borders = 0  # all; those that count; beginnings and ends of items
        self._log_left = job.limits.log_bytes_max
        self._error: BaseException | None = None  # with which the host ends it
        self._compute_s = job.limits.compute_s
        self._compute_left = self._compute_s + _GRACE_S
        self._since: float | None = None  # while it computes
        self._used_before_s = math.nan  # by the worker, when the step came to the front
        self._extended = 0  # how often it got more time on the wall, because it had not had the processor's
        self._publishing = False  # whether the host carries out something that the worker does not wait for
        self._over = False  # from then on the worker belongs to another step

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer from outside."""
        return bool(self._answers)

    def used_s(self) -> float:
        """How much processor time it has used so far; nan if that is not known."""
        return self.worker.used_s() - self._used_before_s

    async def run(self) -> Ended:
        """How the job ended; call it when the job is at the front of its worker. Raises its error, or `ProcessLost` if
        the worker died. Unless the job ended cleanly, the worker is killed."""
        self._used_before_s, begun = self.worker.used_s(), self._loop.time()
        link, bytes_max = self.worker.link, self._limits.message_bytes_max + HEAD_BYTES_MAX
        try:
            self._start_clock()
            while True:
                frame = await link.receive(bytes_max)
                if self._error is not None:
                    raise self._error
                if frame.get("n") != self._number:  # only the step at the front of a worker may speak
                    raise Garbled("a frame of another job")
                if "used" in frame:
                    # The step's first call was the predicted one. The worker already had its answer; now the host
                    # learns of the call.
                    if frame["used"] is not True or self._predicted is None or self._calls:
                        raise Garbled("a use of nothing")
                    self._calls = self._counted = 1
                    if self._counted > self._limits.calls_max:
                        raise rules.too_many_calls(self._limits, None)
                    self._host.used(self._predicted.operation, self._predicted.reply)
                kind = frame["t"]
                if kind == "call":
                    await self._call(frame)
                elif kind == "log":
                    self._log(frame)
                else:
                    return self._end(frame)
        except ProcessLost:
            if self._error is not None:
                raise self._error from self._error.__cause__
            raise
        except Garbled as garbled:
            raise ScriptError(f"The script's worker broke the protocol and was killed ({garbled}).") from None
        finally:
            self._over = True
            soon = self._loop.time() - begun < _QUICK_S or self.used_s() < _QUICK_S * (1 + self.behind)
            self._predictor.learn_quick(self._job, quick=soon and self.clean and not self._waited)
            self._since = self.worker.timer.look = None
            if not self.clean:
                self._kill()
            for task in self._answers.values():
                task.cancel()
            if self._answers:
                await asyncio.gather(*self._answers.values(), return_exceptions=True)

    # Calls and the log.

    async def _call(self, frame: Frame) -> None:
        number, args, limits, job = frame.get("id"), frame["texts"], self._limits, self._job
        if not isinstance(number, int) or number in self._answers:
            raise Garbled("a call without an own number")
        # All reads together take one message's size at most; beside them the worker may wait for one other call.
        size = sum(map(len, args))
        if len(self._answers) > limits.concurrent_max or self._asked_chars + size > 2 * limits.message_bytes_max:
            raise Garbled("more calls at once than allowed")
        operation = self._operation(frame.get("name"), frame.get("at"), args, job.step, job.allowed)
        kind = operation.kind
        if kind is Kind.MUTATION and job.step is Step.MUTATE:
            raise Garbled("a mutation that expects an answer")
        self._calls += 1
        if self._calls == 1:
            self._predictor.learn_first_call(job, operation, args)
        if kind in rules.COUNTED:
            self._counted += 1
            if self._counted > limits.calls_max:
                raise rules.too_many_calls(limits, operation.at)
        elif kind is Kind.WITH_ITEM:  # a long list may take its time, a list without end may not
            self._borders += 1
            if self._borders > 2 * limits.items_max:
                raise rules.too_many_items(limits, operation.at)
            self._compute_s += rules.ITEM_S
            self._compute_left += rules.ITEM_S
        if kind in rules.UNANSWERED:  # the worker goes on meanwhile, and many at once do not hold up the others
            self._publishing = True
            await self._answer(operation, None)
            self._publishing = False
            if self._calls % _IN_A_ROW_MAX == 0:
                await asyncio.sleep(0)
            return
        if self._since is not None:  # it waits from here on
            self._compute_left -= self._loop.time() - self._since
            self._since = None
        if kind in _ANSWERED_AT_ONCE and not self._answers:
            await self._answer(operation, number)
            self._start_clock()
            if not self.worker.link.writing:
                await self.worker.link.drain()
            return
        self._asked_chars += size
        self._unanswered += 1
        task = self._answers[number] = asyncio.create_task(self._answer_read(number, operation, size))
        name = operation.name
        task.add_done_callback(lambda done: self._read_answered(number, name, done))
        self._waited = True
        if self._on_wait is not None:
            self._on_wait()

    def _operation(
        self, name: object, place: object, args: list[str], step: Step, allowed: frozenset[Kind],
    ) -> Operation:
        """The call that a frame names, if `step` may make it. Raises `Garbled` or a `ScriptError`."""
        if not isinstance(name, str):
            raise Garbled("a call without a name")
        kind, at = self._job.surface.kind(name), _location(place)
        if kind is None:
            raise Garbled("a call of something that is not there")
        if kind not in allowed:
            raise rules.forbidden(name, kind, step, at)
        what, most = f"The argument of ctx.{name}", self._limits.message_bytes_max
        if sum(map(len, args)) > most:
            raise rules.too_large(f"What ctx.{name} was given", self._limits, at)
        try:
            if kind is Kind.PUBLISH and len(args) == 2 and MARK in args[1]:
                topics = decode(args[0], what=what, bytes_max=most)
                return Operation(name, kind, (topics, self._decode_entry(args[1], what, most - size(args[0]))), at)
            return Operation(name, kind, tuple([decode(arg, what=what, bytes_max=most) for arg in args]), at)
        except ScriptError as error:
            error.at = error.at or at
            raise

    def _decode_entry(self, text: str, what: str, bytes_max: int) -> Json:
        """What is published, from a text in which the worker names values that the step has read. They count with
        their size. In the payload they stay texts; everything else is read."""
        named, left = list[CheckedText](), bytes_max - size(text)
        for call, index in _NAMED.findall(text):
            given, cuts = self._known.get(int(call), ("", ()))
            if int(index) >= len(cuts):
                raise Garbled("the name of a value that the step was not given")
            path, start, end = cuts[int(index)]
            if end - start > left:  # before it is copied: a short text may name the same value many times
                raise rules.too_large(what, self._limits, None)
            named.append(CheckedText(given[start:end], len(path)))
            left -= size(named[-1].text)
        if left < 0:
            raise rules.too_large(what, self._limits, None)
        entry = decode_around(_NAMED.sub("NaN", text), named, what=what)
        if type(entry) is not dict:
            return stored(text_of(entry))
        return {key: value if key == "payload" else stored(text_of(value)) for key, value in entry.items()}

    async def _answer(self, operation: Operation, number: int | None) -> None:
        """Have the host carry out a call. Its answer is sent, if the worker waits for one under this number."""
        try:
            reply = await self._host.answer(operation)
            for text in reply.texts:
                check_size(text, f"The answer to ctx.{operation.name}", self._limits.message_bytes_max)
        except KeepError as error:
            error.at = error.at or operation.at
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _cut_off(operation.name) from None
        if number is None:
            return
        known = bool(reply.cuts) and Kind.PUBLISH in self._job.allowed and len(reply.text) <= self._known_left
        if known:
            self._known_left -= len(reply.text)
            self._known[number] = reply.text, reply.cuts
        self.worker.link.send(reply_frame(self._number, number, reply, known=known))

    async def _answer_read(self, number: int, operation: Operation, size: int) -> None:
        """The task of a read, which goes on beside the script and other reads."""
        await self._answer(operation, number)
        self._asked_chars -= size
        self._unanswered -= 1
        if not self._unanswered:  # a worker that does not read its answers uses its own time
            self._start_clock()
        del operation  # a worker that does not read its answers must not fill the memory with what it asks
        if not self.worker.link.writing:
            await self.worker.link.drain()

    def _read_answered(self, number: int, name: str, done: asyncio.Task[None]) -> None:
        error = _cut_off(name) if done.cancelled() else done.exception()
        if self._over:
            return
        if error is not None:
            self._abort(error)
        else:
            del self._answers[number]

    def _abort(self, error: BaseException) -> None:
        """The first error counts; killing the worker makes the reader notice it."""
        if self._error is None:
            self._error = error
        self._kill()

    def _log(self, frame: Frame) -> None:
        level, texts = frame.get("level"), frame["texts"]
        if not isinstance(level, str) or level not in _LEVELS or len(texts) != 1 or self._log_left < 0:
            raise Garbled("no log line, or more than the limit allows")
        text = sound(texts[0])
        self._log_left -= len(text.encode()) + rules.LOG_LINE_COST
        self._host.log(LogLine(level, text))

    # The end.

    def _end(self, frame: Frame) -> Ended:
        kind, texts, job = frame["t"], frame["texts"], self._job
        if kind == "fail":
            error = _ERRORS.get(str(frame.get("code")))
            if error is None:
                raise Garbled("an unknown failure")
            self.clean = error is not LimitExceeded
            raise error(sound(str(frame.get("message")))[:_MESSAGE_MAX], at=_location(frame.get("at")))
        if kind == "mutation":
            operation = self._operation(frame.get("name"), frame.get("at"), texts, job.step, job.allowed)
            if operation.kind is not Kind.MUTATION or job.step is not Step.MUTATE:
                raise Garbled("an end by something that does not end a step")
            ended = Ended(mutation=operation)
        elif kind != "end":
            raise Garbled("an unknown frame")
        elif self._answers:
            raise Garbled("an end while calls are under way")
        else:
            mutate = self._tried_mutate(frame["mutate"], texts) if "mutate" in frame else None
            if len(texts) > 1 and mutate is None:
                raise Garbled("more than one result")
            if texts:
                value, text = read(texts[0], what="The result", bytes_max=self._limits.message_bytes_max)
                ended = Ended(text, ahead=mutate, said=value)
            else:
                ended = Ended()
        self.clean = True
        return ended

    def _tried_mutate(self, tried: object, texts: list[str]) -> Operation | None:
        """What `mutate` calls, given this result: its arguments stand behind it, and are taken away here."""
        ahead, args = self._job.ahead, texts[1:]
        if ahead is None or not texts:
            raise Garbled("a try of mutate that the host did not ask for")
        if tried is not None and (not isinstance(tried, list) or len(tried) != 2):
            raise Garbled("a tried call that is none")
        if tried is not None:
            del texts[1:]
            # If its arguments are refused, the script learns that when the step is run by itself.
            with contextlib.suppress(BadValue, LimitExceeded):
                return self._operation(tried[0], tried[1], args, Step.MUTATE, ahead.allowed & {Kind.MUTATION})
        self._predictor.learn_useless_try(self._job)
        return None

    # Time: it runs while every call has its answer: then the worker can only be computing. The worker's timer is
    # not touched when the clock stops: `_check_time` looks at the clock.

    def _start_clock(self) -> None:
        self._since = self._loop.time()
        self.worker.timer.set(self._since + self._compute_left, self._check_time)

    def _check_time(self) -> None:
        if self._since is None:
            return
        due = self._since + self._compute_left
        if self._loop.time() < due:
            self.worker.timer.set(due, self._check_time)
        else:
            self._loop.call_later(_LATE_S, self._time_is_up, self._since)

    def _time_is_up(self, since: float) -> None:
        """The time was up a moment ago, when the clock had run `since` then: the worker has sent nothing since."""
        if self._since != since:
            self._check_time()
        elif self._publishing:  # it may have sent more, which the host has not read yet
            self._loop.call_later(_LATE_S, self._time_is_up, since)
        elif self.used_s() < self._compute_s and self._extended < _PATIENCE:
            self._extended += 1
            self._compute_left += self._limits.compute_s
            self._check_time()
        else:
            self._abort(rules.out_of_time(self._limits))


_NAMED = re.compile(f"{MARK}([0-9]{{1,9}})[.]([0-9]{{1,9}}){MARK}", re.ASCII)  # a value, as large_values.py names it


def _cut_off(name: str) -> BaseException:
    return HostFault(f"The answer to ctx.{name} was cut off by the host itself.")


def _location(pair: object) -> Location | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    line, column = pair
    if type(line) is int and type(column) is int and 0 < line < 10**7 and 0 < column < 10**7:
        return Location(line, column)
    return None
