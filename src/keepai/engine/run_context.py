"""One run under way: what all of its steps share, and how one of them runs in the sandbox with its gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ..ledger.base import Reader, Row
from ..ledger.transitions.events import Publication
from ..ledger.transitions.recordings import Recorded
from ..ledger.transitions.runs import Follows, last_number
from ..model.codec import encode
from ..model.errors import HostFault, OutcomeUnknown, RuleBroken, WorkerDied
from ..model.fast_record import fast_record
from ..model.flow_limits import Rule
from ..model.operations import ALLOWED, MUTATE_BY_ID, Kind, Step
from ..model.permissions import Grant
from ..model.records import Run
from ..model.states import AFTER_APPLIED, Phase, Status
from ..runtime.base import Ahead, Cut, Ended, Fixed, Job
from ..runtime.event_texts import shown, with_events
from ..script.manifest import Handler
from .gate import Gate, Work
from .host_parts import TRIES_MAX, Loaded, Parts
from .next_turn import rules_of
from .permission import Permissions, grants_of
from .recording import TRIM_EVERY, Recorder
from .relaunch import in_flight
from .trace import Trace

#: What begins in the commit that ends a run, given what that leaves in the row of its handler, and publishes.
Follow = Callable[[Mapping[str, object], Sequence[Publication]], Awaitable[Follows | None]]


@fast_record
@dataclass(frozen=True)
class Before:
    """The run in whose commit another began."""

    handler: str
    state: tuple[str | None] | None  # of that handler, as the commit left it; None: ask the ledger
    grants: Mapping[str, Grant] | None  # if nobody has changed anything while it ran


class RunContext:
    """Everything that the steps of one run share."""

    def __init__(
        self, parts: Parts, run: Run, loaded: Loaded, handler: Handler, follow: Follow, *, state: str | None,
        grants: Mapping[str, Grant], reserved: Sequence[Row], traced: int,
    ) -> None:
        self.parts, self.run, self.loaded, self.handler, self._follow = parts, run, loaded, handler, follow
        self.state = state  # of the handler, as the run began; only a run of it changes that, when it commits
        self.reserved = reserved  # what the run has pinned
        self.permissions = Permissions(parts, run, grants, loaded.manifest.name)
        self.trace = Trace(
            run.id, parts.clock, parts.policy.trace_bytes_max, traced, parts.redactor,
            parts.policy.trace_bytes_per_run_max,
        )
        self.at: Step | None = None  # the last step that began
        self.gate: Gate | None = None  # its gate, as far as it ran here
        self.item_id: str | None = None  # the item in whose function a routine is
        self.sends = 0  # mutations of a routine that no ledger answered
        self._left: tuple[str | None] | None = None  # the state that the run's commit leaves, if that is known
        self._undisturbed = False  # whether nobody has changed anything in the workflow since the run began

    @classmethod
    def load(cls, read: Reader, parts: Parts, run: Run, follow: Follow, before: Before | None = None) -> RunContext:
        """All that is known of a run as it begins or goes on.

        One whose call is on record without an outcome is in doubt: it never runs on."""
        if run.state is Status.ACTIVE and run.phase in AFTER_APPLIED and in_flight(read, run) is not None:
            raise OutcomeUnknown("The call was cut off; it may or may not have happened.")
        loaded, where = parts.script(read, run.workflow_id, run.number), {"workflow_id": run.workflow_id}
        handler = loaded.manifest.handler(run.handler)
        if handler is None:
            raise RuleBroken(f"The script version {run.version} has no handler {run.handler!r}.")
        left = before.state if before is not None and before.handler == handler.name else None
        kept = None if left is not None else read.one("handler_get", handler=handler.name, **where)
        grants = before.grants if before is not None else None
        reserved, last = list[Row](), None
        state = kept["state"] if kept else None
        if run.phase is not Phase.PREPARING:  # one that has not pinned anything has no trace either
            last = read.one("trace_last", run_id=run.id, **where)
            reserved = read.all("reservation_of_run", run_id=run.id, **where)
        return cls(
            parts, run, loaded, handler, follow, reserved=reserved, traced=int(last["position"]) if last else 0,
            state=run.prepare_result if run.item_id is not None else left[0] if left is not None else state,
            grants=grants_of(read, run.workflow_id) if grants is None else grants,
        )

    def prepared(self) -> tuple[str, tuple[Cut, ...]]:
        """The pinned PrepareResult with the pinned events, as `mutate` and `next` are given it."""
        assert self.run.prepare_result is not None, self.run
        return with_events(
            self.run.prepare_result, [shown(row["topic"], row["message_id"], row["payload"]) for row in self.reserved],
        )

    async def step(
        self, step: Step, args: tuple[str | None, ...], *, state: str | None = None, fixed: Fixed | None = None,
        cuts: tuple[Cut, ...] = (), items: Work | None = None,
    ) -> tuple[Ended, Gate]:
        """Run `step` in a fresh context and give what it returned or called, and what it gathered.

        If its worker process dies it is run again from the start, and nothing that it gathered counts."""
        self.at, parts = step, self.parts
        tried = step is Step.PREPARE and self.handler.has_mutate
        for _ in range(TRIES_MAX):
            begun_ms = self.begin(step)
            gate = self.gate = self.gate_of(step, begun_ms, items)
            job = Job(
                source=self.loaded.source, step=step, handler=self.handler.name, args=args, state=state,
                surface=parts.surface, allowed=self._allowed(step), limits=parts.limits(),
                fixed=fixed or Fixed.by(encode([step.value, self.run.id]), begun_ms),
                begun_ms=begun_ms, ahead=Ahead(self._allowed(Step.MUTATE), begun_ms) if tried else None, cuts=cuts,
            )
            try:
                return await parts.runtime.run(job, gate), gate
            except WorkerDied as death:
                self.trace.warning(step, f"{death.message} The step was run again.")
                last = death
            if items is not None:
                await items.begin_again()
        raise HostFault(
            f"The worker process died {TRIES_MAX} times in a row while it ran {step} of {self.handler.name!r}; "
            f"it is not tried again by itself. The last time: {last.message} Look at the machine's memory and at the "
            "host's log, then retry the run."
        ) from last

    def begin(self, step: Step) -> int:
        """The moment at which a step begins: the time that it sees."""
        return self.parts.clock.now_ms()

    def gate_of(self, step: Step, begun_ms: int, items: Work | None) -> Gate:
        """What answers a step."""
        parts, recorder = self.parts, None
        if parts.policy.recordings == "on":
            recorder = Recorder(step, begun_ms, self.state, parts.policy, parts.redactor)
        return Gate(
            parts, self.run, self.loaded.manifest, self.handler, step, self.permissions, self.trace, begun_ms, items,
            recorder,
        )

    def recorded(self, gate: Gate | None, made: str | None = None, *, idle: bool = False) -> Recorded | None:
        """What a step was given, for the commit that ends it; `made` stands for what it brought about. A step that was
        given nothing and brought nothing about (`idle`) is not recorded."""
        recorder = gate.recorder if gate is not None else None
        if recorder is None or (idle and not recorder.something):
            return None
        counted = self.parts.recorded
        counted[self.run.workflow_id] += 1
        trims = counted[self.run.workflow_id] % TRIM_EVERY == 0
        return recorder.take(made, self.parts.policy.recordings_max if trims else 0)

    async def follows(self, leaves: Mapping[str, object], published: Sequence[Publication]) -> Follows | None:
        """What begins in the commit that ends the run, which leaves this in its handler's row."""
        follows = await self._follow(leaves, published)
        self._undisturbed = follows is not None and follows.sequence == last_number(self.run)
        return follows

    def leave_state(self, state: str | None) -> None:
        """Remember the state that the run's commit leaves; without one it stays as it is."""
        self._left = (self.state if state is None else state,)

    def passed_on(self) -> Before:
        """What a run that began in this one's commit has to know."""
        return Before(self.handler.name, self._left, self.permissions.grants if self._undisturbed else None)

    def limits(self, connector: str) -> tuple[Rule, ...]:
        """The limits on what the run sends through a connection."""
        return rules_of(self.parts, self.loaded.manifest.name, connector)

    def _allowed(self, step: Step) -> frozenset[Kind]:
        if step is Step.MUTATE and self.parts.policy.mutate_reads == "by_id":
            return ALLOWED[step] | MUTATE_BY_ID
        return ALLOWED[step]
