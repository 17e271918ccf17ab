"""The only place where connectors are called, and where what they raise gets its meaning.

A read that cannot reach the outside system is tried again later; one that fails in any other undeclared way is a fault
of the connector. A mutation that fails in any way other than the four definite ones has an unknown outcome: the
request may have left, and only the outside system, or a person, can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from ..connectors.base import Call, OperationSpec, Page, Verdict
from ..model.clock import SystemClock
from ..model.codec import Json, encode, text_of
from ..model.errors import (
    ConnectorBroke,
    ConnectorError,
    KeepError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    ScriptError,
    Transient,
    in_words,
)
from ..model.fast_record import fast_record
from ..model.records import Run
from ..runtime.base import Reply
from ..runtime.event_texts import in_pieces
from .failure import as_fault


def call_of(
    run: Run, seconds: float, log: Callable[[str], None], *, attempt: int | None = None, idempotency_key: str = "",
    lock_fd: int | None = None, since_ms: int | None = None, skip: Callable[[str], None] = lambda _: None,
) -> Call:
    """The circumstances of a call that may take `seconds`."""
    return Call(
        idempotency_key=idempotency_key, deadline=SystemClock().steady_ms() + seconds * 1000,
        workflow_id=run.workflow_id, run_id=run.id, attempt=run.attempt if attempt is None else attempt, log=log,
        lock_fd=lock_fd, since_ms=since_ms, skip=skip,
    )


T = TypeVar("T")

#: What a connector raises to say: it did not happen.
DEFINITE: tuple[type[ConnectorError], ...] = (Transient, PermissionDenied, PreconditionFailed, Rejected)

#: What a read may raise to stop its run as that error says; any other error of ours is not a connector's to raise.
_PASSED_ON = (ConnectorError, ConnectorBroke, ScriptError)


async def _under_way(
    method: Callable[[Json, Call], Coroutine[object, object, T]], params: Json, call: Call, seconds: float,
    cut_off: Callable[[asyncio.Task[T]], None] = lambda task: None,
) -> asyncio.Task[T]:
    """Make a call in a task of its own, and wait until it has ended or its time is up.

    If the wait itself is cancelled, so is the call, and `cut_off` gets it: it may go on nevertheless."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    async def contained() -> T:
        try:
            return await method(params, call)
        except SystemExit as error:  # a connector's own `sys.exit` must not end the host, as it would out of a task
            raise RuntimeError(f"it wanted to end the process ({in_words(error)})") from error
        finally:
            wake()  # this is the task's last step: when the wait goes on, the task is done

    task, timer = loop.create_task(contained()), loop.call_later(seconds, wake)
    try:
        await over
    except asyncio.CancelledError:
        task.cancel()
        cut_off(task)
        raise
    finally:
        timer.cancel()
    return task


def _leave_behind(task: asyncio.Task[T]) -> None:
    """Cancel a call that did not end in time, and discard what it raises later."""
    task.cancel()
    task.add_done_callback(lambda t: t.cancelled() or t.exception())


def _error_of(task: asyncio.Task[T]) -> BaseException | None:
    """What a read or a question raised before it ended; its own cancellation is an error like any other."""
    return RuntimeError("the call cancelled itself") if task.cancelled() else task.exception()


async def read(spec: OperationSpec, name: str, params: Json, call: Call, seconds: float) -> Reply:
    """Ask the outside world; a failure is raised as what it means."""
    task = await _under_way(spec.invoke, params, call, seconds)
    if not task.done():
        _leave_behind(task)
        raise Transient(f"{name} did not answer within {seconds:g} s.")
    error = _error_of(task)
    if isinstance(error, OutcomeUnknown):
        raise Transient(f"{name}: {error.message}") from error
    if isinstance(error, _PASSED_ON):
        raise error
    if isinstance(error, OSError):  # timeouts and broken connections are OSErrors too
        raise Transient(f"{name} could not reach the outside system: {in_words(error)}.") from error
    if error is not None:
        raise as_fault(error, name) from error
    answer = task.result()
    if isinstance(answer, Page):
        text, cuts = in_pieces(list(answer))
        return Reply(text, text_of(cast("dict[str, Json]", dict(answer.fields))), cuts=cuts)
    text, cuts = in_pieces(answer)
    return Reply(text, cuts=cuts)


Pending: TypeAlias = "asyncio.Future[Json | Page[Json]]"
Question: TypeAlias = "asyncio.Future[Verdict]"


@fast_record
@dataclass(frozen=True)
class Answer:
    """What is known after a mutation's call: its result, a definite refusal, or nothing."""

    result: str | None = None
    refused: KeepError | None = None
    unknown: KeepError | None = None
    closed: bool = True  # the call has ended; nothing more of it can leave this host


async def mutate(
    spec: OperationSpec, name: str, params: Json, call: Call, seconds: float, given_up: Callable[[Pending], None],
) -> Answer:
    """Make the call. `given_up` gets a call that did not end even when it was cancelled."""
    task = await _under_way(spec.invoke, params, call, seconds, given_up)
    if not task.done():
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=_GRACE_S)
        except asyncio.CancelledError:
            given_up(task)
            raise
    if task.done() and not task.cancelled():
        return _answer(task, name)
    if not task.done():
        given_up(task)
    unknown = OutcomeUnknown(f"{name} did not answer within {seconds:g} s; it may or may not have happened.")
    return Answer(unknown=unknown, closed=task.done())


_GRACE_S = 0.5


def _answer(task: Pending, name: str) -> Answer:
    error = task.exception()
    if error is None:
        try:
            return Answer(result=encode(task.result(), what=f"the result of {name}"))
        except KeepError as broken:
            unknown = OutcomeUnknown(f"{name} answered with something that cannot be kept: {broken.message}")
            return Answer(unknown=unknown)
    if isinstance(error, DEFINITE):
        return Answer(refused=error)
    if isinstance(error, OutcomeUnknown):
        return Answer(unknown=error)
    unknown = OutcomeUnknown(f"{name} raised {in_words(error)}. It may or may not have happened.")
    unknown.__cause__ = error
    return Answer(unknown=unknown)


def said_late(task: Pending) -> str:
    """What a call said that ended after it was given up."""
    if task.cancelled():
        return "the call was cancelled"
    error = task.exception()
    return f"the call raised {in_words(error)}" if error else f"the call returned {task.result()!r}"


async def reconcile(
    spec: OperationSpec, name: str, params: Json, call: Call, seconds: float, given_up: Callable[[Question], None],
) -> Verdict:
    """Ask what became of a mutation; whatever goes wrong with asking means: ask again later.

    `given_up` gets a question that did not end in time."""
    task = await _under_way(spec.reconcile, params, call, seconds)
    if not task.done():
        _leave_behind(task)
        given_up(task)
        return Verdict("retry", why=f"{name} did not answer the question within {seconds:g} s")
    error = _error_of(task)
    if error is not None:
        return Verdict("retry", why=f"asking {name} raised {in_words(error)}")
    return task.result()
