"""Runs one step of a handler in the sandbox, with its gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..ledger.base import Row
from ..ledger.transitions.events import Publication
from ..ledger.transitions.runs import Follows, last_number
from ..model.errors import HostFault, WorkerDied
from ..model.fast_record import fast_record
from ..model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from ..model.permissions import Grant
from ..model.records import Mutation, Run
from ..model.states import Phase
from ..runtime.base import Ahead, Cut, Ended, Fixed, Job, Operation
from ..runtime.event_texts import shown, with_events
from ..script.manifest import Handler
from .gate import Gate, Work
from .parts import TRIES_MAX, Loaded, Parts
from .permission import Permissions
from .prepare_result import Wishes, wishes_of
from .trace import Trace

#: What begins in the commit that ends a run, given what that leaves in the row of its handler, and publishes.
Follow = Callable[[Mapping[str, object], Sequence[Publication]], Follows | None]


@fast_record
@dataclass(frozen=True)
class Before:
    """The run in whose commit another began."""

    handler: str
    state: tuple[str | None] | None  # of that handler, as the commit left it; None: ask the ledger
    grants: Mapping[str, Grant] | None  # if nobody has changed anything while it ran


class Stepper:
    """Everything that the steps of one run share."""

    def __init__(
        self, parts: Parts, run: Run, loaded: Loaded, handler: Handler, follow: Follow, before: Before | None = None,
    ) -> None:
        self.parts, self.run, self.loaded, self.handler, self.follow = parts, run, loaded, handler, follow
        self._state = before.state if before is not None and before.handler == handler.name else None
        self._left: tuple[str | None] | None = None  # the state that the run's commit leaves, if that is known
        self._undisturbed = False  # whether nobody has changed anything in the workflow since the run began
        self.begun_ms = 0  # when the last step began
        self.permissions = Permissions(parts, run, grants=before.grants if before is not None else None)
        position = 0  # where the run's trace ends so far; one that has not pinned anything has none
        if run.phase is not Phase.PREPARING:
            last = parts.ledger.read().one("trace_last", workflow_id=run.workflow_id, run_id=run.id)
            position = int(last["position"]) if last else 0
        self.trace = Trace(
            run.id, parts.clock, parts.policy.trace_bytes_max, position, parts.redactor,
            parts.policy.trace_bytes_per_run_max,
        )
        self.at: Step | None = None
        self.item_id: str | None = None  # the item in whose function a routine is
        self.foreseen: Operation | None = None  # the call of `mutate`, if it came with the PrepareResult
        self.given: dict[tuple[str, str], Row] = {}  # the events that `prepare` was shown, by topic and messageId
        self.sent: Mutation | None = None  # and its intent, if it is on record with it
        self.sends = 0  # mutations of a routine that no ledger answered

    @cached_property
    def reserved(self) -> list[Row]:
        """What the run has pinned; ask when it has."""
        return self.parts.ledger.read().all(
            "reservation_of_run", workflow_id=self.run.workflow_id, run_id=self.run.id,
        )

    def prepared(self) -> tuple[str, tuple[Cut, ...]]:
        """The pinned PrepareResult with the pinned events, as `mutate` and `next` are given it."""
        assert self.run.prepare_result is not None, self.run
        return with_events(
            self.run.prepare_result, [shown(row["topic"], row["message_id"], row["payload"]) for row in self.reserved],
        )

    @cached_property
    def wishes(self) -> Wishes:
        """What the pinned PrepareResult says beside its data; ask when there is one."""
        assert self.run.prepare_result is not None, self.run
        return wishes_of(self.run.prepare_result)

    async def step(
        self, step: Step, args: tuple[str | None, ...], *, state: str | None = None, fixed: Fixed | None = None,
        cuts: tuple[Cut, ...] = (), items: Work | None = None,
    ) -> tuple[Ended, Gate]:
        """Run `step` in a fresh context and give what it returned or called, and what it gathered.

        If its worker process dies it is run again from the start, and nothing that it gathered counts."""
        self.at, parts = step, self.parts
        tried = step is Step.PREPARE and self.handler.has_mutate
        for _ in range(TRIES_MAX):
            gate = Gate(
                parts, self.run, self.loaded.manifest, self.handler, step, self.permissions, self.trace, items)
            self.begun_ms = parts.clock.now_ms()
            job = Job(
                source=self.loaded.source, step=step, handler=self.handler.name, args=args, state=state,
                surface=parts.surface, allowed=self._allowed(step), limits=parts.limits(), fixed=fixed,
                begun_ms=self.begun_ms, ahead=Ahead(self._allowed(Step.MUTATE), self.begun_ms) if tried else None,
                cuts=cuts,
            )
            try:
                return await parts.runtime.run(job, gate), gate
            except WorkerDied as death:
                self.trace.warning(step, f"{death.message} The step was run again.")
                last = death
            if items is not None:
                items.begin_again()
        raise HostFault(
            f"The worker process died {TRIES_MAX} times in a row while it ran {step} of {self.handler.name!r}; "
            f"it is not tried again by itself. The last time: {last.message} Look at the machine's memory and at the "
            "host's log, then retry the run."
        ) from last

    def leave_state(self, state: str | None) -> None:
        """Remember the state that the run's commit leaves; without one it stays as it is."""
        self._left = (self.state() if state is None else state,)

    def follows(self, leaves: Mapping[str, object], published: Sequence[Publication]) -> Follows | None:
        """What begins in the commit that ends the run, which leaves this in its handler's row."""
        follows = self.follow(leaves, published)
        self._undisturbed = follows is not None and follows.sequence == last_number(self.run)
        return follows

    def passed_on(self) -> Before:
        """What a run that began in this one's commit has to know."""
        return Before(self.handler.name, self._left, self.permissions.grants if self._undisturbed else None)

    def state(self) -> str | None:
        """The handler's durable state; nobody but a run of it changes that, when it commits."""
        if self._state is None:
            row = self.parts.ledger.read().one(
                "handler_get", workflow_id=self.run.workflow_id, handler=self.handler.name,
            )
            self._state = (row["state"] if row else None,)
        return self._state[0]

    def _allowed(self, step: Step) -> frozenset[Kind]:
        if step is Step.MUTATE and self.parts.policy.mutate_reads == "by_id":
            return ALLOWED[step] | MUTATE_BY_ID
        return ALLOWED[step]


def fixed_by(run: Run) -> Fixed:
    """Time and chance for `mutate`: the same whenever this PrepareResult is used."""
    assert run.prepare_result is not None, run
    assert run.prepared_at is not None, run
    return Fixed.by(run.prepare_result, run.prepared_at)
