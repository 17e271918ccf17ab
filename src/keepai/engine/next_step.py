"""What a workflow does next: one decision, as a pure function of one look at the workflow.

The host does what `next_step` says. `needs_you`, `why` and the page say what it says. Nobody else decides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ledger.base import Reader, Row
from ..ledger.rows import run_record
from ..ledger.transitions.parking import Holds
from ..ledger.transitions.runs import Begin, Carry
from ..ledger.transitions.turns import Turn
from ..model.fast_record import fast_record
from ..model.flow_limits import rules
from ..model.policy import Policy
from ..model.records import Approval, Mutation, Run
from ..model.states import MutationStatus, Phase, Reason, Status, Waiting, WorkflowStatus
from ..script import manifest as manifests
from ..script.manifest import HandlerKind, Manifest
from . import approval, holds, next_turn, permission, repair_budget, scheduler
from .approval import Standing
from .host_parts import Parts
from .relaunch import carry, last_mutation

# -- what can be next ------------------------------------------------------------------------------


@fast_record
@dataclass(frozen=True)
class Wait:
    """Nothing can be done before a time, an event or a person."""

    until: int | None  # when something may be due by itself; None: never


@fast_record
@dataclass(frozen=True)
class Start:
    """A handler's run begins."""

    new: Begin


@dataclass(frozen=True)
class Reschedule:
    """The clock was set back: due times that lie too far ahead come near."""

    nearer: Sequence[scheduler.Nearer]


@fast_record
@dataclass(frozen=True)
class Continue:
    """An active run goes on from its phase."""

    run: Run


@dataclass(frozen=True)
class LookUp:
    """The outside system is asked what became of a mutation."""

    run: Run
    mutation: Mutation


@dataclass(frozen=True)
class SendApproved:
    """The call that a person approved is sent."""

    run: Run


@dataclass(frozen=True)
class TakeTurn:
    """The turn has come of a run whose call a limit held back: the run goes on in its place."""

    run: Run


@dataclass(frozen=True)
class AskAgain:
    """An approval that was not used in time is asked for anew."""

    run: Run
    approval: Approval


@dataclass(frozen=True)
class CarryOn:
    """A new run carries on from a stopped one, or with the version that is active by now."""

    run: Run
    how: Carry
    because: str


@dataclass(frozen=True)
class Abandon:
    """The active version has no such handler, and nothing was sent: the run ends, and its events wait again."""

    run: Run


@dataclass(frozen=True)
class AskRepair:
    """The repair hook is asked to mend the script."""

    run: Run


@dataclass(frozen=True)
class Park:
    """A run that waits for a person lets others go on, but for what it holds."""

    run: Run
    holds: Holds


@dataclass(frozen=True)
class Unpark:
    """A parked run has something to do: it holds its workflow again."""

    run: Run


NextStep: TypeAlias = (
    Wait | Start | Reschedule | Continue | LookUp | SendApproved | TakeTurn | AskAgain | CarryOn | Abandon | AskRepair
    | Park | Unpark
)


# -- what decides it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stopped:
    """What else decides about a run that stopped, or whose version is no longer the active one."""

    mutation: Mutation | None = None  # the newest of its lineage
    approval: Approval | None = None  # the one that it waits for or may use
    standing: Standing | None = None  # of that approval
    granted: bool = False  # what the run lacked was granted since
    connected: bool = False  # the connector that it lacked is configured now
    repairable: bool = False  # the repair hook can be asked
    waits_for: str | None = None  # the connection for which its call waits its turn, or has it
    turn: Turn | None = None  # of that call, if it has not come
    behind: str | None = None  # the parked run that must be done before this one makes its call
    asks: bool = False  # it waits for a person, or for a parked run: if its workflow allows, others go on
    holds: Holds | None = None  # what it holds if it is parked; None: it is never parked


@fast_record
@dataclass(frozen=True)
class Now:
    """A workflow at one moment, with everything that decides what it does next."""

    at: int
    workflow: Row
    handlers: Sequence[Row]
    run: Run | None  # the one that is open
    manifest: Manifest  # of the active version
    policy: Policy
    cron_times: Mapping[str, scheduler.Taken]  # of each handler with a cron: the times for which it has run already
    stopped: Stopped | None = None
    parked: Sequence[tuple[Run, Stopped]] = ()  # the runs that are parked, in the order of their places
    held: Set[str] = frozenset()  # the handlers that they hold

    @property
    def active(self) -> tuple[int, int]:
        """The version that new runs have."""
        return self.workflow["major"], self.workflow["minor"]


def look(read: Reader, workflow_id: str, at: int, policy: Policy, parts: Parts | None) -> Now:
    """One look at a workflow. Without a host (`parts`) its connectors are taken to be as they were."""
    open_run = read.one("run_open", workflow_id=workflow_id)
    return at_rest(read, workflow_id, at, policy, parts, run_record(open_run) if open_run else None)


def at_rest(
    read: Reader, workflow_id: str, at: int, policy: Policy, parts: Parts | None, run: Run | None = None,
) -> Now:
    """The same, when its open run was read already."""
    now = of_run(read, workflow_id, at, policy, parts, run)
    if not now.workflow["parked"]:
        return now
    parked = [run_record(row) for row in read.all("parked_runs", workflow_id=workflow_id)]
    return replace(
        now, parked=[(each, _stopped(read, each, now, parts)) for each in parked],
        held={str(row["handler"]) for row in read.all("parked_handlers", workflow_id=workflow_id)},
    )


def of_run(
    read: Reader, workflow_id: str, at: int, policy: Policy, parts: Parts | None, run: Run | None,
) -> Now:
    """The same for one run of it, which may be parked; what else is parked is not looked at."""
    rows = read.all("workflow_now", workflow_id=workflow_id)
    workflow, handlers = rows[0], [row for row in rows if row["handler"] is not None]
    active = workflow["major"], workflow["minor"]
    manifest = parts.script(read, workflow_id, active).manifest if parts else manifest_of(read, workflow)
    decided = run is None or (run.state is Status.ACTIVE and run.number == active)
    cron_times = {
        handler.name: ran for handler in manifest.handlers
        if (ran := scheduler.taken(read, workflow_id, handler, at)) is not None
    }
    now = Now(at, workflow, handlers, run, manifest, policy, cron_times)
    return now if decided or run is None else replace(now, stopped=_stopped(read, run, now, parts))


def after(now: Now, handler: str, leaves: Mapping[str, object]) -> Now:
    """The same when a run of a handler has committed that leaves this in the handler's row."""
    return replace(now, handlers=[{**row, **leaves} if row["handler"] == handler else row for row in now.handlers])


def manifest_of(read: Reader, workflow: Row) -> Manifest:
    """What the active version declares."""
    script = read.one("script_get", workflow_id=workflow["id"], major=workflow["major"], minor=workflow["minor"])
    assert script is not None, f"the active version of {workflow['id']} is never deleted"
    return manifests.from_text(script["manifest"])


def _stopped(read: Reader, run: Run, now: Now, parts: Parts | None) -> Stopped:
    asked, sent, workflow = approval.of_run(read, run), last_mutation(read, run), now.workflow
    among_parked = workflow["waiting"] != Waiting.STOP or bool(workflow["parked"])
    standing = approval.standing(read, run, asked, now.at, now.active, parts) if asked else None
    waits_for = next_turn.waits_for(run, asked if standing is Standing.USABLE else None)
    limits = rules(now.policy.limits, workflow["name"], waits_for) if waits_for is not None else ()
    return Stopped(
        sent, asked, standing, permission.granted_meanwhile(read, run),
        parts is not None and permission.connected_meanwhile(parts, run),
        parts is not None and repair_budget.wanted(read, parts, run), waits_for if limits else None,
        next_turn.turn(read, limits, run.workflow_id, waits_for or "", now.at, parts),
        holds.held_behind(read, run, asked) if among_parked else None,
        holds.asks(run, sent), holds.to_hold(read, run, sent, asked, now.manifest) if among_parked else None,
    )


# -- the decision ----------------------------------------------------------------------------------


def next_step(now: Now) -> NextStep:
    """What a workflow does now."""
    if now.workflow["status"] != WorkflowStatus.ACTIVE:
        return Wait(None)
    if far := scheduler.nearer(now.handlers, now.manifest, now.policy, now.at, now.cron_times):
        return Reschedule(far)
    if now.run is not None:
        return _of_open_run(now, now.run)
    parked = _of_parked(now)
    ready = next((run for run, step in parked if not isinstance(step, Wait)), None)
    if ready is not None:
        return Unpark(ready)
    handlers = free_handlers(now)
    due = scheduler.due(handlers, now.manifest, now.policy, now.at, now.cron_times)
    if due is None:
        return _soonest(scheduler.next_due_at(handlers, None), parked)
    phase = Phase.PREPARING if due.kind == "consumer" else Phase.EXECUTING
    return Start(Begin(
        now.workflow["id"], due.handler, due.kind, now.active, phase, due.trigger, due.gap, due.due_at, due.next_run_at,
    ))


def free_handlers(now: Now) -> Sequence[Row]:
    """The handlers that may begin while some runs are parked: all, if none is."""
    if not now.parked:
        return now.handlers
    full = len(now.parked) >= now.policy.parked_max
    if full or now.workflow["waiting"] == Waiting.STOP or not all(stopped.asks for _, stopped in now.parked):
        return []  # also while one goes on by itself: it is parked only to make room for one that was answered
    intake = now.workflow["waiting"] == Waiting.INTAKE
    return [
        row for row in now.handlers
        if row["handler"] not in now.held and (not intake or row["kind"] == HandlerKind.PRODUCER)
    ]


def _of_open_run(now: Now, run: Run) -> NextStep:
    """What the run that holds the workflow does; if it waits for a person, it may let others go on."""
    step, stopped = step_of_run(now, run, now.stopped), now.stopped
    if not isinstance(step, Wait):
        return step
    others = _of_parked(now)
    if stopped is not None and stopped.holds is not None:
        lets_others_go_on = stopped.asks and now.workflow["waiting"] != Waiting.STOP
        if lets_others_go_on or any(not isinstance(each, Wait) for _, each in others):
            return Park(run, stopped.holds)
    return _soonest(step.until, others)


def _of_parked(now: Now) -> list[tuple[Run, NextStep]]:
    return [(run, step_of_run(now, run, stopped)) for run, stopped in now.parked]


def _soonest(until: int | None, parked: Sequence[tuple[Run, NextStep]]) -> Wait:
    times = [until, *(step.until for _, step in parked if isinstance(step, Wait))]
    return Wait(min((time for time in times if time is not None), default=None))


def step_of_run(now: Now, run: Run, facts: Stopped | None) -> NextStep:
    """What an open run does now, while no person holds the workflow."""
    stopped = facts or Stopped()
    if run.state is Status.ACTIVE:
        return _under_active_version(now, run, stopped)
    if run.reason is Reason.RECONCILIATION:
        open_ = stopped.mutation
        due = run.retry_at is None or scheduler.time_has_come(run, now.at)
        if open_ is not None and open_.status is MutationStatus.NEEDS_RECONCILE and due:
            return LookUp(run, open_)
        return Wait(run.retry_at)
    if stopped.standing is Standing.USABLE:
        if stopped.behind:
            return Wait(run.retry_at)
        return SendApproved(run) if stopped.turn is None else Wait(stopped.turn.at)
    if run.reason is Reason.LIMIT and run.number == now.active:
        return TakeTurn(run) if stopped.turn is None else Wait(stopped.turn.at)
    if stopped.standing is Standing.EXPIRED and stopped.approval is not None and run.number == now.active:
        return AskAgain(run, stopped.approval)
    if carried := _carried(now, run, stopped):
        return carried
    return AskRepair(run) if stopped.repairable else Wait(run.retry_at)


def _under_active_version(now: Now, run: Run, stopped: Stopped) -> NextStep:
    """A run that was made ready to go on does so with the version that is active by then."""
    if run.number == now.active or now.manifest.handler(run.handler) is None:
        return Continue(run)
    how = carry(run, stopped.mutation, now.active, Status.SUPERSEDED, "new_version", run.failures)
    return Continue(run) if how is None else CarryOn(run, how, _new_version(now))


def _carried(now: Now, run: Run, stopped: Stopped) -> NextStep | None:
    """A stopped run goes on when its time has come, or when what stopped it has changed."""
    why = _carried_because(now, run, stopped)
    if why is None:
        return None
    trigger, because = why
    failures = run.failures if trigger == "retry" else 0
    how = carry(run, stopped.mutation, now.active, Status.SUPERSEDED, trigger, failures)
    if how is None:
        return None
    if now.manifest.handler(run.handler) is not None:
        return CarryOn(run, how, because)
    if how.phase is not Phase.EMITTING:
        return Abandon(run)
    return None  # only `finish` can end it: what follows it no longer exists


def _carried_because(now: Now, run: Run, stopped: Stopped) -> tuple[str, str] | None:
    """The trigger of the run that carries on, and the same in words."""
    later = run.state is Status.PAUSED and run.reason is Reason.TRANSIENT
    if later and scheduler.time_has_come(run, now.at):
        return "retry", "it is time to try again"
    if run.reason is Reason.HELD and stopped.behind is None:
        return "freed", "the run that it waited for is done"
    if stopped.standing is Standing.UNFIT:
        return "retry", "what was approved no longer fits, so mutate runs again"
    if stopped.granted:
        return "granted", f"{run.lacks} has been granted since"
    if stopped.connected:
        return "connected", "the connector that it lacked is configured now"
    if run.reason is not Reason.INTERNAL and run.number != now.active:
        return "new_version", _new_version(now)
    return None


def _new_version(now: Now) -> str:
    return f"version {now.active[0]}.{now.active[1]} is active since"
