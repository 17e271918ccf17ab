"""Runs `mutate` in the worker right after its `prepare`, so that its one call arrives with that result.

Only that call counts. If the script does anything else there (it logs, reads, throws, breaks a limit), the try ends and
its effects are dropped. The host then runs the step by itself, as if it had never been tried.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from ...model.codec import read
from ...model.errors import BadValue
from ...model.operations import Step
from ..base import Fixed, Job
from ..event_texts import with_events, without_events
from .deadline import Deadline
from .large_values import NotHere
from .loaded_scripts import LoadedScript, LoadedScripts
from .step import StepRun
from .vm import Vms

_COMPUTE_S = 0.05  # a step that takes longer gains nothing by it


class _MoreThanOneCall(Exception):
    """The script wants more than its one call."""


class _NoChannel:
    """The channel of a try: nothing may be sent, and nothing is answered."""

    def send(self, _data: bytes) -> NoReturn:
        raise _MoreThanOneCall

    def reply(self, _number: int) -> NoReturn:
        raise _MoreThanOneCall


def try_mutate(
    vms: Vms, scripts: LoadedScripts, deadline: Deadline, script: LoadedScript, prepare: Job, step: StepRun,
    number: int,
) -> StepRun | None:
    """Run `mutate` on what `prepare` returned; None if the host would not run it."""
    job = _mutate(prepare, step)
    if job is None:
        return None
    tried = StepRun(vms, scripts, _NoChannel(), deadline, script, job, number)
    with contextlib.suppress(_MoreThanOneCall, NotHere, MemoryError):
        tried.run(min(_COMPUTE_S, job.limits.compute_s))
    if not tried.clean:
        vms.drop()
    return tried


def _mutate(prepare: Job, step: StepRun) -> Job | None:
    """The job of `mutate` as the host would give it; None if it would not."""
    assert prepare.ahead is not None
    assert step.returned is not None
    try:
        value, text = read(step.returned)
    except BadValue:
        return None
    if not isinstance(value, dict) or not value.get("reservations") or "events" in value:
        return None
    try:
        wanted: Any = value["reservations"]
        events = step.events([(entry["topic"], message_id) for entry in wanted for message_id in entry["ids"]])
    except (KeyError, TypeError):
        events = None  # the host refuses the result when it pins it
    given, cuts = with_events(text, events) if events is not None else without_events(text)
    return Job(
        source=prepare.source, step=Step.MUTATE, handler=prepare.handler, args=(given,), cuts=cuts, state=None,
        surface=prepare.surface, allowed=prepare.ahead.allowed, limits=prepare.limits,
        fixed=Fixed.by(text, prepare.ahead.now_ms), begun_ms=prepare.begun_ms,
    )
