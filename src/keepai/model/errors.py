"""Everything that can go wrong, and what each thing leads to.

KeepError                   what happened, to what, why, what to do
├ ScriptError               the script is wrong                                  → repair
│ ├ PhaseViolation          an operation that this phase does not allow
│ ├ RuleBroken              a rule on topics, inputs, reservations or shapes
│ ├ LimitExceeded           time, memory, stack, calls or bytes
│ ├ BadValue                a value that JSON or an id cannot carry
│ └ ScriptThrew             the script's own exception
├ ConnectorError            the outside world, in a connector's words
│ ├ Transient               it did not happen; later it may                      → retry
│ ├ PermissionDenied        it did not happen; a person must allow it            → person
│ │ ├ NotGranted            nobody allowed this capability to the workflow
│ │ └ VaultClosed           the secrets cannot be read or stored; says what to do
│ ├ PreconditionFailed      it did not happen; a person must mend the world      → person
│ │ ├ ConnectorMissing      the host lacks a connector that the script was deployed with
│ │ └ WorkflowFull          the ledger keeps as much for the workflow as policy allows
│ ├ Rejected                it did not happen; the request itself is wrong       → repair
│ └ OutcomeUnknown          it may have happened                                 → reconcile
│   ├ NoLookUp              the host lacks the connector that could be asked
│   └ SenderNotDead         the host that sent it was cut off, and may still send it
├ HostFault                 the host or a connector is wrong                     → stop
│ ├ ConnectorBroke          an exception that the connector did not declare
│ └ WorkerDied              the script's process is gone; its step is run again
├ ApprovalNeeded            a person must see this call before it is sent        → person
├ HeldBack                  its turn to be sent has not come yet                 → wait
├ TargetHeld                a parked run may still write to the same target      → hold
├ NeedsAttention            what was applied differs from what is wanted now     → person
├ LedgerError               the durable store
│ ├ Conflict                the row is not in the state that was expected
│ │ └ Overtaken             a person skipped an event while `prepare` was choosing it
│ ├ LedgerUnusable          the file cannot be used; says what to do
│ │ └ LedgerOlder           it was put back, or lost commits: a person must accept that
│ │   └ LedgerMoved         it was moved to another place, or its move there has not ended
│ └ LedgerStopped           a write failed earlier; nothing starts until it is reopened
├ ScriptInvalid             `deploy` refused a script; carries the findings
├ Refused                   an act that does not fit the present state
│ ├ ParamsWrong             a request whose parameters are not those of the act
│ └ PresenceNeeded          a person must show that they are there: by the PIN, or on the page
├ NotFound                  no such workflow, run, event, …
└ ConfigError               a setting is wrong; shown whole, with the fix

A script never sees one of these errors: the sandbox ends it with a trap that it cannot catch.
The consequence is an attribute of the class and is read in one place, `engine/failure.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from .fast_record import fast_record
from .states import ItemStatus, Reason, Status


class Consequence(StrEnum):
    REPAIR = "repair"  #: the run fails; a new version of the script may continue it
    RETRY = "retry"  #: the run waits, and a new run continues it
    PERSON = "person"  #: the run waits for a person
    RECONCILE = "reconcile"  #: the run waits until the outcome is known
    WAIT = "wait"  #: the run waits its turn, and goes on in its place
    HOLD = "hold"  #: the run waits for a parked run
    STOP = "stop"  #: the run fails; evidence is stored


#: Consequence → status and reason of the run.
OUTCOMES: Mapping[Consequence, tuple[Status, Reason]] = MappingProxyType({
    Consequence.REPAIR: (Status.FAILED, Reason.LOGIC),
    Consequence.RETRY: (Status.PAUSED, Reason.TRANSIENT),
    Consequence.PERSON: (Status.PAUSED, Reason.APPROVAL),
    Consequence.RECONCILE: (Status.PAUSED, Reason.RECONCILIATION),
    Consequence.WAIT: (Status.PAUSED, Reason.LIMIT),
    Consequence.HOLD: (Status.PAUSED, Reason.HELD),
    Consequence.STOP: (Status.FAILED, Reason.INTERNAL),
})


@fast_record
@dataclass(frozen=True)
class Location:
    """A place in the script, counted from one."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class KeepError(Exception):
    """Something went wrong in Keep."""

    code: ClassVar[str] = "keep"
    consequence: ClassVar[Consequence] = Consequence.STOP
    item: ClassVar[ItemStatus | None] = ItemStatus.FAILED  # the status of the item that it stops; None: the item waits

    def __init__(self, message: str | None = None, *, at: Location | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.at = at

    @property
    def message(self) -> str:
        """The sentence for people."""
        return str(self.args[0])


def in_words(error: BaseException) -> str:
    """The type and message of an exception, even if the exception fails to give its message."""
    import traceback  # here, because `keep --help` needs the errors but not this

    return "".join(traceback.format_exception_only(error)).strip()


def _seconds(value: object) -> float | None:
    """A number of seconds, also from the text of a header; None if it is not a number."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < math.inf else None


class ScriptError(KeepError):
    """The script broke a rule."""

    code = "script"
    consequence = Consequence.REPAIR


class PhaseViolation(ScriptError):
    """The script asked for something that its phase does not allow."""

    code = "phase_violation"


class RuleBroken(ScriptError):
    """The script broke a rule on topics, inputs, reservations or shapes."""

    code = "rule_broken"


class LimitExceeded(ScriptError):
    """The script went over a limit."""

    code = "limit_exceeded"


class BadValue(ScriptError):
    """A value cannot be kept as JSON."""

    code = "bad_value"


class ScriptThrew(ScriptError):
    """The script threw an exception."""

    code = "script_threw"


class ConnectorError(KeepError):
    """A connector reported a failure."""

    code = "connector"


class Transient(ConnectorError):
    """It did not happen; trying later may work."""

    code = "transient"
    consequence = Consequence.RETRY

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = _seconds(retry_after)


class PermissionDenied(ConnectorError):
    """It did not happen; access is missing or has expired."""

    code = "permission"
    consequence = Consequence.PERSON


class NotGranted(PermissionDenied):
    """Nobody allowed this capability to the workflow."""

    def __init__(self, message: str, capability: str) -> None:
        super().__init__(message)
        self.capability = capability


class VaultClosed(PermissionDenied):
    """The secrets cannot be read or stored."""


class PreconditionFailed(ConnectorError):
    """It did not happen; something it needs is gone."""

    code = "precondition"
    consequence = Consequence.PERSON


class ConnectorMissing(PreconditionFailed):
    """The host has no such connector, though the script was deployed with it."""

    def __init__(self, message: str, capability: str, *, at: Location | None = None) -> None:
        super().__init__(message, at=at)
        self.capability = capability


class WorkflowFull(PreconditionFailed):
    """The ledger keeps as much for this workflow as policy allows."""


class Rejected(ConnectorError):
    """It did not happen; the outside system refuses this request as it is."""

    code = "rejected"
    consequence = Consequence.REPAIR


class OutcomeUnknown(ConnectorError):
    """It may have happened; nobody knows yet."""

    code = "outcome_unknown"
    consequence = Consequence.RECONCILE


class NoLookUp(OutcomeUnknown):
    """It may have happened; the connector that could be asked is not configured."""

    def __init__(self, message: str, capability: str) -> None:
        super().__init__(message)
        self.capability = capability


class SenderNotDead(OutcomeUnknown):
    """It may have happened, and may still: the host that sent it was cut off, and is not known to be dead."""

    code = "sender_not_dead"

    def __init__(self, message: str, sender: str) -> None:
        super().__init__(message)
        self.sender = sender


class HostFault(KeepError):
    """The host met something that it did not expect."""

    code = "internal"
    consequence = Consequence.STOP


class ConnectorBroke(HostFault):
    """A connector raised something that it did not declare."""

    code = "connector_broke"


class WorkerDied(HostFault):
    """The script's worker process died in the middle of a step."""


class ApprovalNeeded(KeepError):
    """A person must approve this call before it is sent."""

    code = "approval"
    consequence = Consequence.PERSON
    item = None


class HeldBack(KeepError):
    """A limit on what may be sent holds this call back; its turn comes by itself."""

    code = "held_back"
    consequence = Consequence.WAIT
    item = None

    def __init__(self, message: str | None = None, connector: str = "") -> None:
        super().__init__(message)
        self.connector = connector  # through which the call goes


class TargetHeld(KeepError):
    """A parked run may still write to the same target."""

    code = "held"
    consequence = Consequence.HOLD
    item = None

    def __init__(self, message: str, run_id: str, target: tuple[str, str, str]) -> None:
        super().__init__(message)
        self.run_id, self.target = run_id, target  # the parked run; connector, account and target of the call


class NeedsAttention(KeepError):
    """The same thing was done before with another content; it is not done again."""

    code = "attention"
    consequence = Consequence.PERSON
    item = ItemStatus.NEEDS_ATTENTION

    def __init__(self, message: str | None = None, differs: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.differs = differs  # what was applied and what is wanted now


class LedgerError(KeepError):
    """The ledger refused."""

    code = "ledger"


class Conflict(LedgerError):
    """A row is not in the state that was expected."""

    code = "conflict"


class Overtaken(Conflict):
    """A person skipped an event while `prepare` was choosing it: `prepare` is run again."""

    code = "overtaken"

    def __init__(self, message: str, event_id: str) -> None:
        super().__init__(message)
        self.event_id = event_id


class LedgerUnusable(LedgerError):
    """The ledger's file cannot be used."""

    code = "ledger_unusable"


class LedgerOlder(LedgerUnusable):
    """The ledger is older than it was; what was sent since is not on record in it."""

    code = "ledger_older"


class LedgerMoved(LedgerOlder):
    """The ledger was moved to another place, or its move has not ended."""

    def __init__(self, message: str, mover: str, place: str, *, went: bool) -> None:
        super().__init__(message)
        self.mover, self.place, self.went = mover, place, went


class LedgerStopped(LedgerError):
    """A write to the ledger failed; nothing starts until it is opened again."""

    code = "ledger_stopped"


class Refused(KeepError):
    """The act does not fit the present state."""

    code = "refused"


class ParamsWrong(Refused):
    """What was asked is not JSON, or its parameters are not those of the act."""

    code = "params_wrong"


class PresenceNeeded(Refused):
    """A person must show that they are there, by the PIN or on the page."""

    code = "presence_needed"


class NotFound(KeepError):
    """There is no such thing."""

    code = "not_found"


class ConfigError(KeepError):
    """A setting is wrong."""

    code = "config"


@dataclass(frozen=True)
class Finding:
    """One thing that `check` found in a script: where, what, and how to correct it."""

    code: str
    severity: str  # "error" or "warning"
    line: int
    column: int
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column} {self.severity} {self.code}: {self.message} {self.fix}".rstrip()


class ScriptInvalid(KeepError):
    """The script has errors and was not deployed."""

    code = "script_invalid"

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        errors = [f for f in self.findings if f.severity == "error"]
        first = "; ".join(str(f) for f in errors[:3])
        more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
        super().__init__(f"The script has {len(errors)} error(s) and was not deployed: {first}{more}")
