"""`mutate`, tried in the worker right after its `prepare`, so that its one call arrives with that result.

Only that call counts. Whatever else the script does there (a line for the log, a read, an error, a limit) ends the try
without a word, and the host has the step run by itself, as if it had never been tried.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from ...model.codec import decode, text_of
from ...model.errors import BadValue
from ...model.operations import Step
from ..base import Fixed, Job
from ..events import with_events, without_events
from .deadline import Deadline
from .large import NotHere
from .scripts import Script, Scripts
from .step import StepRun
from .vm import Vms

_COMPUTE_S = 0.05  # a step that takes longer gains nothing by it


class _Unforeseen(Exception):
    """The script wants more than its one call."""


class _Nobody:
    """The other end of a step that nobody is to hear of."""

    def send(self, _data: bytes) -> NoReturn:
        raise _Unforeseen

    def reply(self, _number: int) -> NoReturn:
        raise _Unforeseen


def try_mutate(
    vms: Vms, scripts: Scripts, deadline: Deadline, script: Script, prepare: Job, step: StepRun, number: int,
) -> StepRun | None:
    """Run `mutate` on what `prepare` returned; None if the host would not run it."""
    job = _mutate(prepare, step)
    if job is None:
        return None
    tried = StepRun(vms, scripts, _Nobody(), deadline, script, job, number)
    with contextlib.suppress(_Unforeseen, NotHere, MemoryError):
        tried.run(min(_COMPUTE_S, job.limits.compute_s))
    if not tried.clean:
        vms.drop()
    return tried


def _mutate(prepare: Job, step: StepRun) -> Job | None:
    """The step as the host would ask for it, if it would."""
    assert prepare.ahead is not None
    assert step.returned is not None
    try:
        value = decode(step.returned)
    except BadValue:
        return None
    if not isinstance(value, dict) or not value.get("reservations") or "events" in value:
        return None
    try:
        wanted: Any = value["reservations"]
        events = step.events([(entry["topic"], each) for entry in wanted for each in entry["ids"]])
    except (KeyError, TypeError):
        events = None  # what is wrong with it is said when it is pinned
    text = text_of(value)
    given, cuts = with_events(text, events) if events is not None else without_events(text)
    return Job(
        source=prepare.source, step=Step.MUTATE, handler=prepare.handler, args=(given,), cuts=cuts, state=None,
        surface=prepare.surface, allowed=prepare.ahead.allowed, limits=prepare.limits,
        fixed=Fixed.by(text, prepare.ahead.now_ms), begun_ms=prepare.begun_ms,
    )
