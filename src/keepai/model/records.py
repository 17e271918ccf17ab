"""Frozen records of what the ledger holds. Times are milliseconds since 1970 UTC; `to_json` shows them as ISO."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TypeVar

from .clock import iso
from .codec import Json
from .errors import NeedsAttention, PermissionDenied
from .states import (
    ApprovalStatus,
    EventStatus,
    InputStatus,
    ItemStatus,
    MutationStatus,
    Phase,
    ProposalStatus,
    Reason,
    Status,
    Waiting,
    WorkflowStatus,
    shown,
)

T = TypeVar("T")


class Record:
    """Something that can be shown as JSON."""

    def to_json(self) -> dict[str, Json]:
        """The record as plain JSON, for `--json` and other programs."""
        names = [f.name for f in fields(self)] + list(self.shown_too())  # type: ignore[arg-type]
        return {name: _plain(name, getattr(self, name)) for name in names if name not in self.hidden()}

    @classmethod
    def shown_too(cls) -> tuple[str, ...]:
        """Properties that are shown beside the fields."""
        return ()

    @classmethod
    def hidden(cls) -> tuple[str, ...]:
        """Fields that are not shown."""
        return ()


def _plain(name: str, value: object) -> Json:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain("", v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_at"):
        return iso(value)
    return value  # type: ignore[return-value]


class Rows(list[T]):
    """A list, or one page of it, oldest first."""

    def __init__(self, entries: Iterable[T] = (), cursor: str | None = None) -> None:
        super().__init__(entries)
        self.cursor = cursor  #: if more follow: the id to pass as `after`


@dataclass(frozen=True)
class Error(Record):
    """Why a run stopped: an error code and one sentence, with the place in the script."""

    code: str
    message: str
    line: int | None = None
    column: int | None = None
    step: str | None = None
    evidence: Json = None
    item_id: str | None = None  # the item whose function was running, even if the item was done before


@dataclass(frozen=True)
class Gap(Record):
    """A time in which a producer should have run and did not, or in which a consumer ran and took nothing."""

    handler: str
    since_at: int
    until_at: int
    looks: int | None = None  # of a consumer: how often it has run since its oldest waiting event came


@dataclass(frozen=True)
class Workflow(Record):
    """A deployed script and its present state."""

    id: str
    name: str
    status: WorkflowStatus
    version: str
    blocked_by: str | None  # the open run that blocks it, if that run waits or failed
    blocked_status: str | None
    pending: int  # events that wait in subscribed topics
    stale: int  # of those, older than the limit of the policy
    gaps: tuple[Gap, ...]
    next_due_at: int | None
    created_at: int
    bytes: Kept  # what the ledger stores for it
    waiting: Waiting = Waiting.STOP  # what else of it goes on while a run of it waits for a person
    parked: tuple[ParkedRun, ...] = ()  # the runs that wait while others go on


@dataclass(frozen=True)
class ParkedRun(Record):
    """A run that waits while others of its workflow go on, and what it holds."""

    run_id: str
    handler: str
    status: str
    parked_at: int
    holds: tuple[str, ...]  # in words


@dataclass(frozen=True)
class Kept(Record):
    """How many bytes the ledger stores for a workflow, and how many it may."""

    events: int
    runs: int  # with their traces, PrepareResults, mutations and the states of handlers
    inputs: int  # with items
    most: int  # policy workflow_bytes_max

    @property
    def total(self) -> int:
        """All of them."""
        return self.events + self.runs + self.inputs


@dataclass(frozen=True)
class Script(Record):
    """One version of a workflow's script."""

    workflow_id: str
    major: int
    minor: int
    source: str
    hash: str
    manifest: str
    author: str
    impact: str
    created_at: int
    activated_at: int

    @property
    def version(self) -> str:
        """`major.minor`."""
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True)
class Held(Record):
    """A payload for an event that a run had already taken, or that had ended: stored and shown, but not processed."""

    event_id: str
    revision: int
    payload: Json  # None if it is no longer stored
    caused_by: tuple[str, ...]
    created_by: str | None
    created_at: int | None
    pruned: bool = False  # whether it is no longer stored


@dataclass(frozen=True)
class InboxEntry(Record):
    """What is kept in an inbox: what others sent, or a person put in."""

    inbox: str
    id: str
    cursor: str
    received_at: int
    sent_at: int | None  # None: its sender signs no time
    content_type: str
    body: Json
    by: str | None  # the person who put it in; None: it came by itself
    repeats: str | None  # the id of the delivery that it repeats
    signed_with: str | None = None  # the name of the secret with which its sender signed it


@dataclass(frozen=True)
class Event(Record):
    """One message in a topic."""

    id: str
    workflow_id: str
    topic: str
    message_id: str
    payload: Json
    status: EventStatus
    reserved_by: str | None
    created_by: str
    caused_by: tuple[str, ...]
    attempt: int
    revision: int
    revisions_held: int  # later payloads that arrived after this one was frozen, and are stored
    revisions_dropped: int  # later payloads that are no longer stored
    created_at: int
    pruned: bool = False  # whether its payload was deleted, long after its end
    held: tuple[Held, ...] | None = None  # those later payloads, only if one event is asked for


@dataclass(frozen=True)
class Mutation(Record):
    """One side effect: what was asked for, what was sent, and what is known about it."""

    id: str
    workflow_id: str
    run_id: str
    ordinal: int
    lineage: str
    mutation_key: str
    idempotency_key: str
    connector: str
    operation: str
    account: str
    target: str
    params: Json
    title: str | None
    preview: str
    status: MutationStatus
    result: Json
    attempts: int
    sender: str
    epoch: int
    first_sent_at: int
    closed_at: int | None
    doubted_at: int | None
    reconcile_attempts: int
    evidence: str | None  # evidence that came after the outcome was recorded
    resolution: str | None  # a person's answer, and who gave it
    contradicted_at: int | None  # since when evidence against the outcome waits for a person
    error: Error | None
    item_id: str | None  # in a routine: its item
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class Item(Record):
    """One unit of a routine's work."""

    id: str
    workflow_id: str
    external_id: str
    title: str
    status: ItemStatus
    attempt: int
    input_id: str
    handler: str
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class Input(Record):
    """Something from outside, described for people, and what it led to."""

    id: str
    workflow_id: str
    source: str
    type: str
    external_id: str
    title: str
    status: str  # "pending", "done", "skipped" or "late"
    needs_you: bool
    created_by: str
    created_at: int
    outputs: tuple[Mutation, ...] | None = None  # only if one input is asked for
    events: tuple[Event, ...] | None = None
    held: tuple[Held, ...] | None = None  # its payloads that came after their events were taken or had ended


@dataclass(frozen=True)
class Output(Record):
    """A mutation with the inputs that caused it."""

    mutation: Mutation
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class Run(Record):
    """One attempt at a handler."""

    id: str
    workflow_id: str
    seq: int
    handler: str
    kind: str
    version: str
    trigger: str
    retry_of: str | None
    lineage: str
    attempt: int
    phase: Phase
    state: Status
    reason: Reason | None
    prepare_result: str | None
    prepared_at: int | None
    outcome: str | None
    error: Error | None
    retry_at: int | None
    failures: int
    exhausted: bool
    observed: int
    host: str
    epoch: int
    created_at: int
    updated_at: int
    due_at: int | None = None  # the time of its cron schedule
    bytes: int = 0  # what it has stored in the ledger so far, without the events that it published
    parked: int = 0  # not 0: it waits while others of its workflow go on
    item_id: str | None = None  # of a routine: the one item that it carries on, with the state in `prepare_result`

    @property
    def status(self) -> str:
        """The status as people see it, with its reason."""
        return shown(self.state, self.reason)

    @property
    def number(self) -> tuple[int, int]:
        """The script version as two numbers."""
        return _numbers(self.version)

    @property
    def differs(self) -> dict[str, Json] | None:
        """What was applied and what is wanted now, if that difference stopped the run."""
        evidence = self.error.evidence if self.error and self.error.code == NeedsAttention.code else None
        return evidence if isinstance(evidence, dict) else None

    @property
    def lacks(self) -> str | None:
        """The missing capability, if that stopped the run."""
        evidence = self.error.evidence if self.error and self.error.code == PermissionDenied.code else None
        return evidence if isinstance(evidence, str) else None

    @classmethod
    def shown_too(cls) -> tuple[str, ...]:
        return ("status",)

    @classmethod
    def hidden(cls) -> tuple[str, ...]:
        return ("state", "reason", "observed", "seq")


@lru_cache(maxsize=1024)
def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


@dataclass(frozen=True)
class Approval(Record):
    """A call that a person must allow. What is shown is what is sent."""

    id: str
    workflow_id: str
    run_id: str
    capability: str
    account: str
    because: str  # the rule that requires a person
    intent: str
    digest: str
    status: ApprovalStatus
    expires_at: int
    decided_by: str | None
    created_at: int

    @classmethod
    def hidden(cls) -> tuple[str, ...]:
        return ("intent",)


@dataclass(frozen=True)
class Proposal(Record):
    """A script that somebody proposes, and what the host found out about it. A person accepts exactly its digest."""

    id: str
    workflow_id: str | None  # None: of a workflow that was new
    name: str
    status: ProposalStatus
    proposer: str
    source: str
    cases: str | None
    wanted: dict[str, Json]  # capability → the rule that its proposer would like
    why: str
    work: Json  # how a model came to it
    facts: dict[str, Json]  # see engine/proposal.py
    digest: str
    note: str | None  # how it ended
    expires_at: int
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class Escalation(Record):
    """A question that only a person can answer: its subject, the facts, and the possible answers."""

    id: str
    kind: str  # as `ACTIONS` of reading/questions.py lists them
    workflow_id: str  # empty: of a workflow that is only proposed
    run_id: str  # empty: a proposal is about no run
    mutation_id: str | None
    title: str
    facts: dict[str, Json]
    actions: tuple[str, ...]
    version: int = 0  # an act that passes this as `shown` is refused if the question has changed since


@dataclass(frozen=True)
class Reserved(Record):
    """An event, as a run pinned it."""

    event_id: str
    topic: str
    message_id: str
    attempt: int
    payload: str


@dataclass(frozen=True)
class Traced(Record):
    """One step of a run: a call with its answer, or a line of its log."""

    run_id: str
    position: int
    step: str
    kind: str  # "call", "log" or "warning"
    name: str
    args: str | None
    answer: str | None
    error: str | None
    duration_ms: int | None
    at: int


@dataclass(frozen=True)
class Action(Record):
    """Something that a person did."""

    workflow_id: str | None
    act: str
    subject: str
    actor: str
    detail: Json
    at: int


__all__ = [
    "Action", "Approval", "Error", "Escalation", "Event", "Gap", "Held", "Input", "InputStatus", "Item", "Mutation",
    "Output", "Proposal", "Record", "Reserved", "Rows", "Run", "Script", "Traced", "Workflow",
]
