"""One job on one worker, as the host sees it: every frame is checked here as if the worker were the enemy.

A worker can do no more than a script: the kind of a call comes from the job's surface, never from the frame,
and calls, sizes, log and time are counted again. What breaks the protocol kills the worker.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from ...model.codec import Json, check_size, decode, text_of
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
from ..base import Ended, Host, Job, LogLine, Operation, Reply
from . import rules
from .forks import Worker
from .frames import Frame, Garbled, frame_bytes_max, reply_frame
from .habits import Foreseen, Habits
from .link import Lost

_GRACE_S = 0.5  # the worker should notice first; then its error knows more
_LATE_S = 0.05  # a host that was busy must not blame the script for it
_PATIENCE = 10  # times its limit, by the clock on the wall, that a worker may take while others use the processors
_QUICK_S = 0.005  # a step that takes longer has a worker for itself next time
_MESSAGE_MAX = 4000
#: Calls that the host answers from what it has at hand: no task is made for them, and nothing else goes on meanwhile.
_AT_HAND = frozenset({Kind.PEEK, Kind.GET_BY_IDS, Kind.REGISTER_INPUT})
_IN_A_ROW_MAX = 64  # calls that are carried out before others have their turn
_LEVELS = frozenset({"debug", "info", "warn", "error"})
_ERRORS = {
    error.code: error
    for error in (ScriptError, PhaseViolation, RuleBroken, LimitExceeded, BadValue, ScriptThrew)
}


class Session:
    """Runs one job; `kill` ends the worker from outside."""

    def __init__(
        self, job: Job, host: Host, worker: Worker, number: int, kill: Callable[[], None], habits: Habits,
        held: Callable[[], None] | None = None,
    ) -> None:
        self.worker = worker
        self._held = held  # called as soon as it waits for the outside
        self._waited = False  # whether it ever did
        self.behind = 0  # steps that the worker may go on with before its end of this one is heard
        self._job, self._host, self._worker, self._number, self._kill = habits.fit(job), host, worker, number, kill
        self._habits = habits
        self._hand: Foreseen | None = None
        self._limits = job.limits
        self._frame_bytes_max = frame_bytes_max(job.limits)
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Task[None]] = {}
        self._asked_chars = 0  # what the calls were given that have no answer yet
        self._calls = self._counted = self._borders = 0  # all; those that count; those of items
        self._log_left = job.limits.log_bytes_max
        self._error: BaseException | None = None
        self._compute_s = job.limits.compute_s
        self._compute_left = self._compute_s + _GRACE_S
        self._since: float | None = None  # while it computes
        self._used_s = math.nan  # by the worker, when the step came to the front
        self._begun = 0.0
        self._extended = 0  # how often it got more time on the wall, because it had not had the processor's
        self._taking = False  # whether the host is at something that the worker does not wait for
        self._over = False  # from then on the worker belongs to somebody else
        self.clean = False  # whether the worker ended the job by itself and within its limits

    def message(self) -> bytes:
        """What gives the job to the worker; it has to be sent."""
        self._hand = self._habits.foresee(self._job, self._host)
        return self._worker.message(self._job, self._number, self._hand.hand if self._hand else None)

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer from outside."""
        return bool(self._answers)

    def used_s(self) -> float:
        """How much processor time it has used so far; nan if nobody knows."""
        return self._worker.used_s() - self._used_s

    async def run(self) -> Ended:
        """How the job ended, from when it is at the front of its worker. Raises its error, or `Lost` if the worker went
        away by itself."""
        try:
            self._used_s, self._begun = self._worker.used_s(), self._loop.time()
            self._start_clock()
            link, most = self._worker.link, self._frame_bytes_max
            while True:
                frame = link.next(most) or await link.receive(most)
                if self._error is not None:
                    raise self._error
                if frame.get("n") != self._number:  # only the step at the front of a worker may speak
                    raise Garbled("a frame of another job")
                if "used" in frame:
                    self._used(frame)
                kind = frame["t"]
                if kind == "call":
                    await self._call(frame)
                elif kind == "log":
                    self._log(frame)
                else:
                    return self._finish(frame)
        except Lost:
            if self._error is not None:
                raise self._error from self._error.__cause__
            raise
        except Garbled as garbled:
            self._kill()
            raise ScriptError(f"The script's worker broke the protocol and was killed ({garbled}).") from None
        finally:
            self._over = True
            soon = self._loop.time() - self._begun < _QUICK_S or self.used_s() < _QUICK_S * (1 + self.behind)
            self._habits.took(self._job, quick=soon and self.clean and not self._waited)
            self._since = None
            self._worker.alarm.forget()
            if self._answers:
                await self._cancel_answers()

    # Calls.

    async def _call(self, frame: Frame) -> None:
        number = frame.get("id")
        if not isinstance(number, int) or number in self._answers:
            raise Garbled("a call without an own number")
        # All reads together take one message's size at most; beside them the worker may wait for one other call.
        size, most = sum(map(len, frame["texts"])), self._limits
        if len(self._answers) > most.concurrent_max or self._asked_chars + size > 2 * most.message_bytes_max:
            raise Garbled("more calls at once than allowed")
        operation = self._operation(frame)
        if operation.kind is Kind.MUTATION and self._job.step is Step.MUTATE:
            raise Garbled("a mutation that expects an answer")
        if self._calls == 1:
            self._habits.learn(self._job, operation, frame["texts"])
        if operation.kind in rules.TOLD:
            await self._take(operation)
            return
        self._stop_clock()
        if operation.kind in _AT_HAND and not self._answers:
            await self._answer_at_once(number, operation)
            return
        self._asked_chars += size
        name, at = operation.name, operation.at
        task = self._answers[number] = asyncio.create_task(self._answer(number, operation, size))
        task.add_done_callback(lambda done: self._answered(number, name, at, done))
        self._waited = True
        if self._held is not None:
            self._held()

    def _used(self, frame: Frame) -> None:
        if frame["used"] is not True or self._hand is None or self._calls:
            raise Garbled("a use of nothing")
        self._calls = 1
        self._count(None)
        self._host.used(self._hand.operation, self._hand.reply)

    def _operation(self, frame: Frame) -> Operation:
        """What the step asks for; it is counted, and what it may not ask for ends it."""
        name, args, at = frame.get("name"), frame["texts"], _location(frame.get("at"))
        name, kind = self._named(name, self._job.step, self._job.allowed, at)
        self._calls += 1
        if kind in rules.COUNTED:
            self._count(at)
        elif kind is Kind.WITH_ITEM:
            self._count_border(at)
        try:
            return Operation(name, kind, self._decoded(name, args, at), at)
        except ScriptError as error:
            raise self._refused(error, at) from None

    def _count(self, at: Location | None) -> None:
        self._counted += 1
        if self._counted > self._limits.calls_max:
            raise self._refused(rules.too_many_calls(self._limits, at))

    def _count_border(self, at: Location | None) -> None:
        """An item begins or ends: a long list may take its time, a list without end may not."""
        self._borders += 1
        if self._borders > 2 * self._limits.items_max:
            raise self._refused(rules.too_many_items(self._limits, at))
        self._compute_s += rules.ITEM_S
        self._compute_left += rules.ITEM_S

    def _named(
        self, name: object, step: Step, allowed: frozenset[Kind], at: Location | None,
    ) -> tuple[str, Kind]:
        if not isinstance(name, str):
            raise Garbled("a call without a name")
        kind = self._job.surface.kind(name)
        if kind is None:
            raise Garbled("a call of something that is not there")
        if kind not in allowed:
            raise self._refused(rules.forbidden(name, kind, step, at))
        return name, kind

    def _decoded(self, name: str, args: list[str], at: Location | None) -> tuple[Json, ...]:
        what, most = f"The argument of ctx.{name}", self._limits.message_bytes_max
        if sum(map(len, args)) > most:
            raise rules.too_large(f"What ctx.{name} was given", self._limits, at)
        return tuple([decode(arg, what=what, bytes_max=most) for arg in args])

    def _refused(self, error: ScriptError, at: Location | None = None) -> ScriptError:
        self._kill()
        error.at = error.at or at
        return error

    async def _take(self, operation: Operation) -> None:
        """Carry out what needs no answer; the worker goes on meanwhile, and many at once do not hold up the others."""
        self._taking = True
        await self._carried_out(operation)
        self._taking = False
        if self._calls % _IN_A_ROW_MAX == 0:
            await asyncio.sleep(0)

    async def _answer_at_once(self, number: int, operation: Operation) -> None:
        reply = self._checked(operation.name, await self._carried_out(operation))
        self._worker.link.send(reply_frame(self._number, number, reply))
        self._start_clock()
        if not self._worker.link.writing:
            await self._worker.link.drain()

    async def _carried_out(self, operation: Operation) -> Reply:
        try:
            return await self._host.answer(operation)
        except KeepError as error:
            error.at = error.at or operation.at
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _cut_off(operation.name) from None

    async def _answer(self, number: int, operation: Operation, size: int) -> None:
        reply = self._checked(operation.name, await self._host.answer(operation))
        self._worker.link.send(reply_frame(self._number, number, reply))
        self._asked_chars -= size
        del operation, reply  # a worker that does not read its answers must not fill the memory with them
        await self._worker.link.drain()

    def _answered(self, number: int, name: str, at: Location | None, done: asyncio.Task[None]) -> None:
        error = _cut_off(name) if done.cancelled() else done.exception()
        if self._over:
            return
        if error is None:
            del self._answers[number]
            if not self._answers:
                self._start_clock()
            return
        if isinstance(error, KeepError):
            error.at = error.at or at
        self._abort(error)

    def _checked(self, name: str, reply: Reply) -> Reply:
        for text in reply.texts:
            check_size(text, f"The answer to ctx.{name}", self._limits.message_bytes_max)
        return reply

    def _abort(self, error: BaseException) -> None:
        """The first error counts; killing the worker makes the reader notice it."""
        if self._error is None:
            self._error = error
        self._kill()

    async def _cancel_answers(self) -> None:
        for task in self._answers.values():
            task.cancel()
        if self._answers:
            await asyncio.gather(*self._answers.values(), return_exceptions=True)

    # The log.

    def _log(self, frame: Frame) -> None:
        level, texts = frame.get("level"), frame["texts"]
        if not isinstance(level, str) or level not in _LEVELS or len(texts) != 1 or self._log_left < 0:
            raise Garbled("a log line that is none, or one too many")
        text = _sound(texts[0])
        self._log_left -= len(text.encode()) + rules.LOG_LINE_COST
        self._host.log(LogLine(level, text))

    # The end.

    def _finish(self, frame: Frame) -> Ended:
        if frame["t"] not in ("end", "mutation", "fail"):
            raise Garbled("an unknown frame")
        if frame["t"] == "fail":
            failure = self._failure(frame)
            self.clean = not isinstance(failure, LimitExceeded)
            raise failure
        if frame["t"] == "mutation":
            ended = Ended(mutation=self._terminal(frame))
        elif self._answers:
            raise Garbled("an end while calls are under way")
        else:
            foreseen = self._foresee(frame) if "mutate" in frame else None
            value, said = self._result(frame)
            ended = Ended(value, ahead=foreseen, said=said)
        self.clean = True
        return ended

    def _failure(self, frame: Frame) -> ScriptError:
        error = _ERRORS.get(str(frame.get("code")))
        if error is None:
            raise Garbled("an unknown failure")
        return error(_sound(str(frame.get("message")))[:_MESSAGE_MAX], at=_location(frame.get("at")))

    def _terminal(self, frame: Frame) -> Operation:
        operation = self._operation(frame)
        if operation.kind is not Kind.MUTATION or self._job.step is not Step.MUTATE:
            raise Garbled("an end by something that does not end a step")
        return operation

    def _foresee(self, frame: Frame) -> Operation | None:
        """What `mutate` calls, given this result. If it may not, that is said when the step is run."""
        tried, ahead, texts = frame["mutate"], self._job.ahead, frame["texts"]
        if ahead is None or not texts:
            raise Garbled("a try of mutate that nobody asked for")
        if tried is None:
            self._habits.missed(self._job)
            return None
        if not isinstance(tried, list) or len(tried) != 2:
            raise Garbled("a call ahead that is none")
        args, frame["texts"] = texts[1:], texts[:1]
        at = _location(tried[1])
        name, kind = self._named(tried[0], Step.MUTATE, ahead.allowed, at)
        if kind is not Kind.MUTATION:
            raise Garbled("a call ahead that is no mutation")
        try:
            return Operation(name, kind, self._decoded(name, args, at), at)
        except ScriptError:
            self._habits.missed(self._job)
            return None

    def _result(self, frame: Frame) -> tuple[str | None, Json]:
        """The text of what the step returned, and what it says."""
        texts = frame["texts"]
        if not texts:
            return None, None
        if len(texts) > 1:
            raise Garbled("more than one result")
        try:
            said = decode(texts[0], what="The result", bytes_max=self._limits.message_bytes_max)
        except ScriptError as error:
            raise self._refused(error) from None
        return text_of(said), said

    # Time: it runs while nothing is under way, because then the worker can only be computing. The worker's alarm is
    # not touched when the clock stops: whoever hears it looks at the clock.

    def _start_clock(self) -> None:
        self._since = self._loop.time()
        self._worker.alarm.set(self._since + self._compute_left, self._look)

    def _stop_clock(self) -> None:
        if self._since is not None:
            self._compute_left -= self._loop.time() - self._since
            self._since = None

    def _look(self) -> None:
        if self._since is None:
            return
        due = self._since + self._compute_left
        if self._loop.time() < due:
            self._worker.alarm.set(due, self._look)
        else:
            self._loop.call_later(_LATE_S, self._too_late, self._since)

    def _too_late(self, since: float) -> None:
        """The time was up a moment ago, when the clock had run `since` then: the worker has said nothing since."""
        if self._since != since:
            self._look()
        elif self._taking:  # it may have said more: its host has not come to that
            self._loop.call_later(_LATE_S, self._too_late, since)
        elif self._worker.used_s() - self._used_s < self._compute_s and self._extended < _PATIENCE:
            self._extended += 1
            self._compute_left += self._limits.compute_s
            self._look()
        else:
            self._abort(rules.out_of_time(self._limits))


def _cut_off(name: str) -> BaseException:
    return HostFault(f"The answer to ctx.{name} was cut off by the host itself.")


def _location(pair: object) -> Location | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    line, column = pair
    if type(line) is int and type(column) is int and 0 < line < 10**7 and 0 < column < 10**7:
        return Location(line, column)
    return None


def _sound(text: str) -> str:
    """Text without lone surrogates, which no file or database would take."""
    return text.encode("utf-8", "replace").decode("utf-8")
