"""Every state the ledger can record, and every move between two of them.

Only this file decides a move; everything else calls `check`. The SQL checks and triggers, the diagrams in docs/ and the
exhaustive test are made from these tables, so a state cannot be added in one place only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    PREPARING = "preparing"  #: `prepare` runs; nothing is pinned yet
    PREPARED = "prepared"  #: the PrepareResult and its reservations are pinned
    MUTATING = "mutating"  #: `mutate` runs, or its one call is under way
    MUTATED = "mutated"  #: the mutation is applied and its result stored
    EMITTING = "emitting"  #: `next` runs
    EXECUTING = "executing"  #: a producer's or routine's handler runs
    COMMITTED = "committed"  #: everything of this run is in the ledger, for good


class Status(StrEnum):
    ACTIVE = "active"  #: a host is executing it
    PAUSED = "paused"  #: waits for time, a person or the outside system (see its reason)
    FAILED = "failed"  #: cannot go on as it is (see its reason)
    COMMITTED = "committed"  #: finished
    CRASHED = "crashed"  #: its host died; a new run carries on
    SUPERSEDED = "superseded"  #: a retry carries on
    ABANDONED = "abandoned"  #: given up by a person or by a new script version


class Reason(StrEnum):
    TRANSIENT = "transient"  #: the outside world said "later"
    APPROVAL = "approval"  #: a person must allow or mend something
    RECONCILIATION = "reconciliation"  #: nobody knows yet whether the mutation happened
    LIMIT = "limit"  #: its call is not sent yet: a rate, a busy connection or the hours in which it may send
    HELD = "held"  #: a parked run must be done before it may write to its target
    LOGIC = "logic"  #: the script is wrong
    INTERNAL = "internal"  #: the host or a connector is wrong


class MutationStatus(StrEnum):
    IN_FLIGHT = "in_flight"  #: recorded before the request leaves; it may or may not have happened
    APPLIED = "applied"  #: known to have happened; the result is stored
    FAILED = "failed"  #: known not to have happened; safe to attempt again
    NEEDS_RECONCILE = "needs_reconcile"  #: unknown; the host is asking the outside system
    INDETERMINATE = "indeterminate"  #: unknown for good; a person decides
    SKIPPED = "skipped"  #: a person chose to go on without knowing


class EventStatus(StrEnum):
    PENDING = "pending"  #: waits for a consumer, or is reserved by one
    CONSUMED = "consumed"  #: a committed run took it
    SKIPPED = "skipped"  #: a person gave it up


class InputStatus(StrEnum):
    ACTIVE = "active"  #: taken as it comes
    SKIPPED = "skipped"  #: a person gave it up


class WorkflowStatus(StrEnum):
    ACTIVE = "active"  #: runs when something is due
    PAUSED = "paused"  #: a person halted it; nothing starts
    STOPPED = "stopped"  #: a person ended it


class Waiting(StrEnum):
    STOP = "stop"  #: while a run waits, nothing else of its workflow runs
    INTAKE = "intake"  #: its producers go on
    OTHERS = "others"  #: whatever does not depend on the run goes on


class ApprovalStatus(StrEnum):
    PENDING = "pending"  #: waits for a person
    APPROVED = "approved"  #: a person said yes to exactly this call
    REJECTED = "rejected"  #: a person said no
    EXPIRED = "expired"  #: nobody answered in time
    VOID = "void"  #: what was asked no longer exists
    CONSUMED = "consumed"  #: used, in the commit that recorded the send


class ItemStatus(StrEnum):
    PROCESSING = "processing"  #: its handler has begun in this attempt and has not returned yet
    DONE = "done"  #: its handler returned; nothing more is sent for it
    FAILED = "failed"  #: its handler stopped, or nobody knows whether a call of it happened; a replay may complete it
    NEEDS_ATTENTION = "needs_attention"  #: what was applied differs from what the script wants now
    SKIPPED = "skipped"  #: a person gave it up


Moves = Mapping[StrEnum, Mapping[StrEnum, str]]

class RepairStatus(StrEnum):
    ASKED = "asked"  #: the repair hook has the evidence
    DECLINED = "declined"  #: it had nothing to offer
    REFUSED = "refused"  #: what it offered broke a rule of the host
    WAITING = "waiting"  #: it keeps the rules; a person must approve it
    DEPLOYED = "deployed"  #: it is a new version
    REJECTED = "rejected"  #: a person said no


class ProposalStatus(StrEnum):
    WAITING = "waiting"  #: a person must accept or decline it
    ACCEPTED = "accepted"  #: a person accepted exactly what was shown; it was deployed in the same commit
    DECLINED = "declined"  #: a person said no
    WITHDRAWN = "withdrawn"  #: its proposer took it back
    SUPERSEDED = "superseded"  #: a newer proposal or another version took its place
    EXPIRED = "expired"  #: nobody decided in time


P, S, M, E, W, A, I, T = (  # noqa: E741  (short names keep the tables readable)
    Phase, Status, MutationStatus, EventStatus, WorkflowStatus, ApprovalStatus, InputStatus, ItemStatus,
)


@dataclass(frozen=True)
class Machine:
    """One state machine: its initial states and, for each state, the allowed moves with their reasons."""

    name: str
    states: type[StrEnum]
    initial: frozenset[StrEnum]
    moves: Moves
    at_once: frozenset[tuple[StrEnum, StrEnum]] = frozenset()  # pairs of moves that one commit may combine

    @property
    def terminal(self) -> frozenset[StrEnum]:
        """States without a move to another state."""
        return frozenset(state for state, targets in self.moves.items() if not targets)


def _machine(
    name: str, states: type[StrEnum], initial: set[StrEnum], moves: Moves,
    at_once: Collection[tuple[StrEnum, StrEnum]] = (),
) -> Machine:
    return Machine(name, states, frozenset(initial), MappingProxyType(dict(moves)), frozenset(at_once))


PHASE = _machine("phase", Phase, {P.PREPARING, P.PREPARED, P.EMITTING, P.EXECUTING}, {
    P.PREPARING: {P.PREPARED: "prepare returned"},
    P.PREPARED: {
        P.MUTATING: "something is reserved",
        P.EMITTING: "nothing is reserved, or a person skips",
    },
    P.MUTATING: {
        P.MUTATED: "the mutation is applied",
        P.EMITTING: "mutate called nothing, or a person skips",
    },
    P.MUTATED: {P.EMITTING: "next starts"},
    P.EMITTING: {P.COMMITTED: "next returned"},
    P.EXECUTING: {P.COMMITTED: "the handler returned"},
    P.COMMITTED: {},
}, at_once=[(P.PREPARING, P.MUTATING), (P.PREPARING, P.EMITTING), (P.MUTATING, P.EMITTING)])

STATUS = _machine("status", Status, {S.ACTIVE}, {
    S.ACTIVE: {
        S.PAUSED: "it must wait",
        S.FAILED: "it cannot go on",
        S.COMMITTED: "it finished",
        S.CRASHED: "its host died",
        S.SUPERSEDED: "it was made ready to go on, and a new version carries on",
    },
    S.PAUSED: {
        S.ACTIVE: "what it waited for is there",
        S.SUPERSEDED: "a retry carries on",
        S.ABANDONED: "given up by a person or a new version",
    },
    S.FAILED: {
        S.ACTIVE: "a person skips what it was doing",
        S.SUPERSEDED: "a retry carries on",
        S.ABANDONED: "given up by a person or a new version",
    },
    S.COMMITTED: {},
    S.CRASHED: {},
    S.SUPERSEDED: {},
    S.ABANDONED: {},
})

MUTATION = _machine("mutation", MutationStatus, {M.IN_FLIGHT}, {
    M.IN_FLIGHT: {
        M.APPLIED: "success response",
        M.FAILED: "definite failure response",
        M.NEEDS_RECONCILE: "timeout, crash or ambiguous error",
        M.INDETERMINATE: "no way to reconcile",
    },
    M.NEEDS_RECONCILE: {
        M.APPLIED: "reconcile found it",
        M.FAILED: "reconcile proved it absent",
        M.INDETERMINATE: "reconcile cannot tell, or attempts are used up",
    },
    M.INDETERMINATE: {
        M.NEEDS_RECONCILE: "a person asks to try again",
        M.FAILED: "a person says it did not happen",
        M.APPLIED: "a person says it happened",
        M.SKIPPED: "a person skips",
    },
    M.APPLIED: {},
    M.FAILED: {},
    M.SKIPPED: {},
})

EVENT = _machine("event", EventStatus, {E.PENDING, E.SKIPPED}, {
    E.PENDING: {E.CONSUMED: "the run that reserved it committed", E.SKIPPED: "a person skips"},
    E.CONSUMED: {E.PENDING: "a person reprocesses it"},
    E.SKIPPED: {E.PENDING: "a person reprocesses it"},
})

INPUT = _machine("input", InputStatus, {I.ACTIVE}, {
    I.ACTIVE: {I.SKIPPED: "a person skips"},
    I.SKIPPED: {I.ACTIVE: "a person has its item or its event processed once more"},
})

WORKFLOW = _machine("workflow", WorkflowStatus, {W.ACTIVE}, {
    W.ACTIVE: {W.PAUSED: "a person pauses", W.STOPPED: "a person stops"},
    W.PAUSED: {W.ACTIVE: "a person resumes", W.STOPPED: "a person stops"},
    W.STOPPED: {W.ACTIVE: "a person resumes"},
})

APPROVAL = _machine("approval", ApprovalStatus, {A.PENDING}, {
    A.PENDING: {
        A.APPROVED: "a person approves",
        A.REJECTED: "a person rejects",
        A.EXPIRED: "nobody answered in time",
        A.VOID: "the run was reset or skipped",
    },
    A.APPROVED: {
        A.CONSUMED: "the call is recorded in flight",
        A.EXPIRED: "not used in time",
        A.VOID: "the run was reset or skipped",
    },
    A.REJECTED: {},
    A.EXPIRED: {},
    A.VOID: {},
    A.CONSUMED: {},
})

ITEM = _machine("item", ItemStatus, {T.PROCESSING}, {
    T.PROCESSING: {
        T.DONE: "its handler returned",
        T.FAILED: "its handler stopped, or its routine ended without it",
        T.NEEDS_ATTENTION: "what was applied differs from what is wanted now",
        T.SKIPPED: "a person skips",
    },
    T.FAILED: {
        T.DONE: "a replay completed it",
        T.NEEDS_ATTENTION: "what was applied differs from what is wanted now",
        T.SKIPPED: "a person skips",
        T.PROCESSING: "a person reprocesses it",
    },
    T.NEEDS_ATTENTION: {
        T.DONE: "a replay completed it",
        T.FAILED: "a person keeps what was applied, or the replay stopped elsewhere",
        T.SKIPPED: "a person skips",
    },
    T.DONE: {T.PROCESSING: "a person reprocesses it"},
    T.SKIPPED: {T.PROCESSING: "a person reprocesses it"},
})

R = RepairStatus

REPAIR = _machine("repair", RepairStatus, {R.ASKED}, {
    R.ASKED: {
        R.DECLINED: "the hook has nothing to offer, or failed",
        R.REFUSED: "what it offers breaks a rule",
        R.WAITING: "it keeps the rules; a person must approve it",
        R.DEPLOYED: "recorded runs show that it changes nothing else",
    },
    R.WAITING: {R.DEPLOYED: "a person approves", R.REJECTED: "a person rejects", R.REFUSED: "it no longer fits"},
    R.DECLINED: {},
    R.REFUSED: {},
    R.DEPLOYED: {},
    R.REJECTED: {},
})

O = ProposalStatus  # noqa: E741

PROPOSAL = _machine("proposal", ProposalStatus, {O.WAITING}, {
    O.WAITING: {
        O.ACCEPTED: "a person accepts it, and it is deployed",
        O.DECLINED: "a person declines it",
        O.WITHDRAWN: "its proposer takes it back",
        O.SUPERSEDED: "its proposer proposes another, or another version is deployed",
        O.EXPIRED: "nobody decided in time",
    },
    O.ACCEPTED: {},
    O.DECLINED: {},
    O.WITHDRAWN: {},
    O.SUPERSEDED: {},
    O.EXPIRED: {},
})

MACHINES: Mapping[str, Machine] = MappingProxyType({
    m.name: m for m in (PHASE, STATUS, MUTATION, EVENT, INPUT, ITEM, WORKFLOW, APPROVAL, REPAIR, PROPOSAL)
})

#: The reasons that each status may have.
REASONS: Mapping[Status, frozenset[Reason]] = MappingProxyType({
    S.PAUSED: frozenset({Reason.TRANSIENT, Reason.APPROVAL, Reason.RECONCILIATION, Reason.LIMIT, Reason.HELD}),
    S.FAILED: frozenset({Reason.LOGIC, Reason.INTERNAL}),
})

#: A run with one of these statuses blocks its workflow, unless it is parked: nothing else of it starts.
OPEN: frozenset[Status] = frozenset({S.ACTIVE, S.PAUSED, S.FAILED})

#: Items with one of these statuses are not finished: their routine must return to them.
UNFINISHED: frozenset[ItemStatus] = frozenset({T.PROCESSING, T.FAILED, T.NEEDS_ATTENTION})

#: Phase in which a mutation is made → the phase in which its run continues once it is applied.
AFTER_APPLIED: Mapping[Phase, Phase] = MappingProxyType({P.MUTATING: P.MUTATED, P.EXECUTING: P.EXECUTING})

#: Mutations with one of these statuses have no known outcome: nothing may be sent again.
DOUBTFUL: frozenset[MutationStatus] = frozenset({M.IN_FLIGHT, M.NEEDS_RECONCILE, M.INDETERMINATE})


class IllegalMove(AssertionError):
    """A move that the table does not allow."""


def check(machine: Machine, source: StrEnum, target: StrEnum) -> str:
    """Return the reason of an allowed move; otherwise raise `IllegalMove`."""
    try:
        return machine.moves[source][target]
    except KeyError:
        raise IllegalMove(f"{machine.name}: {source} → {target} is not in the table of moves") from None


def shown(status: str, reason: str | None) -> str:
    """The status as people see it: `paused:transient`."""
    return f"{status}:{reason}" if reason else status


def as_mermaid(machine: Machine) -> str:
    """The machine as a diagram for the docs."""
    lines = ["stateDiagram-v2"]
    lines += [f"  [*] --> {state}" for state in machine.states if state in machine.initial]
    lines += [f"  {s} --> {t}: {why}" for s, targets in machine.moves.items() for t, why in targets.items()]
    lines += [f"  {state} --> [*]" for state in machine.states if state in machine.terminal]
    return "\n".join(lines)
