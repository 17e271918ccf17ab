"""Steps that are tried in the worker right after the one that they follow, so that what they give arrives with its
result: `mutate` after `prepare`, and the `prepare` of a run that is likely to follow after `next`.

Of `mutate` only its one call counts, of `prepare` what it returns and the call that was foreseen. Whatever else the
script does there (a line for the log, a read, an error, a limit) ends the try without a word, and the host has the step
run by itself, as if it had never been tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from ...model.codec import decode, text_of
from ...model.errors import BadValue
from ...model.operations import Step
from ..base import Fixed, Job
from .deadline import Deadline
from .frames import Hand, left_frame, missed_frame
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

    def receive(self) -> NoReturn:
        raise _Unforeseen


class Trial:
    """Tries what follows on one job."""

    def __init__(self, vms: Vms, scripts: Scripts, deadline: Deadline, script: Script, number: int) -> None:
        self._vms, self._scripts, self._deadline, self._script, self._number = vms, scripts, deadline, script, number

    def called(self, prepare: Job, returned: str) -> bytes:
        """The frame of the call with which `mutate` answers what `prepare` returned; nothing if it would not be run."""
        job = _mutate(prepare, returned)
        if job is None:
            return b""
        step, frame = self._run(job)
        if step.called:
            return frame
        return b"" if step.returned is not None else missed_frame(self._number)

    def followed(self, prepare: Job, state: str, hand: Hand | None) -> bytes:
        """The frames of a `prepare` that is given what `next` returned, and of the `mutate` after it."""
        try:
            job = replace(prepare, args=(text_of(decode(state)),)) if state else prepare
        except BadValue:
            return left_frame(self._number)
        step, frame = self._run(job, hand)
        if step.returned is None:
            return left_frame(self._number)
        return step.told() + (self.called(job, step.returned) if job.ahead and step.returned else b"") + frame

    def _run(self, job: Job, hand: Hand | None = None) -> tuple[StepRun, bytes]:
        step = StepRun(self._vms, self._scripts, _Nobody(), self._deadline, self._script, job, self._number, hand)
        try:
            frame = step.run(min(_COMPUTE_S, job.limits.compute_s))
        except (_Unforeseen, MemoryError):
            frame = b""
        if not step.clean:
            self._vms.drop()
        return step, frame


def _mutate(prepare: Job, returned: str) -> Job | None:
    """The step as the host would ask for it, if it would."""
    assert prepare.ahead is not None
    try:
        value = decode(returned)
    except BadValue:
        return None
    if not isinstance(value, dict) or not value.get("reservations"):
        return None
    text = text_of(value)
    return Job(
        source=prepare.source, step=Step.MUTATE, handler=prepare.handler, args=(text,), state=None,
        surface=prepare.surface, allowed=prepare.ahead.allowed, limits=prepare.limits,
        fixed=Fixed.by(text, prepare.ahead.now_ms), begun_ms=prepare.begun_ms,
    )
