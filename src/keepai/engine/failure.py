"""The one place that turns an exception into what a run becomes."""

from __future__ import annotations

import traceback
from dataclasses import replace

from ..ledger.base import Reader, Row
from ..ledger.transitions.runs import Stop
from ..model.codec import encode, sound
from ..model.errors import (
    OUTCOMES,
    ConnectorBroke,
    ConnectorMissing,
    Consequence,
    HostFault,
    KeepError,
    NeedsAttention,
    NoLookUp,
    NotGranted,
    SenderNotDead,
    TargetHeld,
    Transient,
    in_words,
)
from ..model.operations import Step
from ..model.policy import Policy
from ..model.records import Run
from ..model.states import UNFINISHED, ItemStatus

_RETRY_AFTER_MAX_S = 86_400


def stop(
    error: KeepError, run: Run, step: Step | None, policy: Policy, now: int, item_id: str | None = None,
) -> Stop:
    """What a run becomes because of `error`. Only success, a person or a new version ends the count of its failures."""
    status, reason = OUTCOMES[error.consequence]
    text = describe(error, step, item_id)
    if error.consequence is not Consequence.RETRY:
        return Stop(status, reason, text, failures=run.failures, item=error.item)
    failures = run.failures + 1
    exhausted = failures > policy.retries_max
    retry_at = None if exhausted else now + backoff_ms(error, failures, policy)
    return Stop(status, reason, text, retry_at, failures, exhausted, error.item)


def until(why: Stop, when: int) -> Stop:
    """The same stop, with a time at which to look again."""
    return replace(why, retry_at=when)


def backoff_ms(error: KeepError, failures: int, policy: Policy) -> int:
    """How long to wait: doubling, up to policy's longest; at least as long as the other side asked for."""
    wait = min(policy.retry_first_s * 2 ** (failures - 1), policy.retry_longest_s)
    if isinstance(error, Transient) and error.retry_after:
        wait = max(wait, min(error.retry_after, _RETRY_AFTER_MAX_S))
    return int(wait * 1000)


def describe(error: KeepError, step: Step | None, item_id: str | None = None) -> str:
    """The error as it is kept with a run."""
    return encode({
        "code": error.code,
        "message": sound(error.message),
        "line": error.at.line if error.at else None,
        "column": error.at.column if error.at else None,
        "step": step.value if step else None,
        "evidence": _evidence(error),
        "item_id": item_id,
    })


def inputs_of(read: Reader, run: Run) -> list[Row]:
    """The inputs that a run's stop is about, each with its id and title: of a routine, the item in which it stopped."""
    where = {"workflow_id": run.workflow_id, "run_id": run.id}
    if run.kind != "routine":
        return read.all("look_inputs_of_run", **where)
    named = run.error.item_id if run.error else None
    item = read.one("item_by_id", item_id=named) if named else read.one("item_of_run", **where)
    stopped_in = item is not None and (named or ItemStatus(item["status"]) in UNFINISHED)
    return [{"id": item["input_id"], "title": item["title"]}] if item is not None and stopped_in else []


def _evidence(error: KeepError) -> object:
    if isinstance(error, ConnectorMissing | NoLookUp | NotGranted):
        return sound(error.capability)
    if isinstance(error, NeedsAttention):
        return error.differs
    if isinstance(error, SenderNotDead):
        return error.sender
    if isinstance(error, TargetHeld):
        return {"run": error.run_id, "target": list(error.target)}
    cause = error.__cause__
    if not isinstance(error, HostFault) or cause is None:
        return None
    return sound("".join(traceback.format_exception(cause))[-4000:])


def as_fault(error: BaseException, what: str) -> KeepError:
    """An exception that nobody declared: a fault of the host or of the connector that raised it."""
    fault: KeepError = ConnectorBroke(
        f"{what} raised {in_words(error)}. This is a bug of the connector or the host; "
        "the evidence is kept with the run. After mending it, retry the run."
    )
    fault.__cause__ = error
    return fault
