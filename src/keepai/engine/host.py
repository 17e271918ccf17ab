"""The host: one lane per workflow with something due, lanes side by side, one run at a time in each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from ..ledger.base import Ledger, Reader, Row
from ..ledger.rows import run_record
from ..ledger.transitions import runs, workflows
from ..ledger.transitions.runs import Begin, Follow
from ..model.errors import Conflict, LedgerStopped, Refused
from ..model.light import light
from ..model.records import Mutation, Run
from ..model.states import MutationStatus, Phase, Reason, Status, WorkflowStatus
from . import approval, permission, reconcile, repair, retention, runner, scheduler
from .agenda import LONGEST_SLEEP_S, Agenda
from .approval import Standing
from .parts import Parts
from .relaunch import carry, last_mutation
from .telling import Teller

#: How often a host that serves looks whether it still has its ledger.
WATCH_S = 0.5
#: How long runs and calls that are cut off have to end.
_CUT_S = 0.5
_FAULT_WAIT_MS = 60_000
_OVERTAKEN_MAX = 20


@light
@dataclass(frozen=True)
class Now:
    """A workflow as the ledger has it at one moment."""

    row: Row
    handlers: list[Row]
    run: Run | None
    read: Reader

    @property
    def active(self) -> tuple[int, int]:
        """The version that new runs have."""
        return self.row["major"], self.row["minor"]

    @property
    def due_at(self) -> int | None:
        """When the workflow can have something to do by itself."""
        return scheduler.next_due_at(self.handlers, self.run) if self.row["status"] == WorkflowStatus.ACTIVE else None


#: What to do next; gives the run to execute then, if there is one.
Step = Callable[[], Awaitable[Run | None]]


@light
@dataclass(frozen=True)
class Beginning:
    """The step that begins a handler's run."""

    ledger: Ledger
    new: Begin

    async def __call__(self) -> Run:
        return await self.ledger.write(runs.begin, self.new)


class Host:
    """Starts what is due and lets it run."""

    def __init__(self, parts: Parts, teller: Teller) -> None:
        self._parts, self._teller = parts, teller
        parts.wake = self.wake
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(parts.policy.runs_at_once_max)
        self._woken = asyncio.Event()
        self._agenda = Agenda()
        self._touched: set[str] = set()  # workflows in which something changed while their lane was there
        self._overtaken: Counter[str] = Counter()
        self._closing, self._end_by = False, 0.0  # by when it has ended, on the loop's clock

    async def run_until_idle(self) -> None:
        """Run all that is due now and what it causes; never waits for time or people.

        Raises `LedgerStopped` if the ledger cannot be written any more."""
        self._parts.ledger.check()
        while due := [w for w in self._workflow_ids() if self._is_due(w)]:
            for workflow_id in due:
                self._start(workflow_id)
            await self._lanes_done()
            if self._parts.ledger.stopped() or self._closing:
                break
        await self._lanes_done()
        await self._parts.ledger.barrier()
        await self._teller.look()

    async def serve(self) -> None:
        """Run what becomes due, for ever; between that, sleep.

        Beside it, content that is old enough is thrown away, people are told what waits for them, and the ledger is
        looked after: a host that has lost it stops."""
        beside = (retention.tend(self._parts), self._teller.tend(), self._watch_ledger())
        tending = [asyncio.ensure_future(each) for each in beside]
        try:
            await self._serve()
        finally:
            for each in tending:
                each.cancel()
        await asyncio.wait(tending)
        for each in tending:
            if not each.cancelled():
                each.result()

    async def _serve(self) -> None:
        while not self._closing:
            self._woken.clear()
            clock = self._parts.clock.now_ms()
            stopped = self._parts.ledger.stopped() is not None
            if not stopped:
                self._look(clock)
                self._teller.stir()
            try:
                async with asyncio.timeout(LONGEST_SLEEP_S if stopped else self._agenda.sleep_s(clock)):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _watch_ledger(self) -> None:
        """Notice within a second if the ledger was removed or replaced, or if another host has opened it."""
        while self._parts.ledger.stopped() is None:
            await asyncio.sleep(WATCH_S)
            try:
                self._parts.ledger.check()
            except LedgerStopped:
                self._woken.set()

    def wake(self, workflow_id: str | None = None) -> None:
        """Something changed in a workflow, or anywhere: look again."""
        self._agenda.touch(workflow_id)
        self._woken.set()

    def _look(self, clock: int) -> None:
        """Start every workflow that has something to do, and remember when the others can have."""
        for workflow_id in self._agenda.to_look(self._workflow_ids(), clock):
            if workflow_id in self._lanes:
                self._touched.add(workflow_id)  # it is looked at again when its lane ends
                continue
            now = self._now(workflow_id)
            if self._next(now) is None:
                self._rest(now)
            else:
                self._agenda.plan(workflow_id, None)
                self._start(workflow_id)

    async def close(self, within_s: float | None = None) -> bool:
        """Let the runs that are under way end; what does not end in time is cut off. True if something was.

        What became of a call that was cut off is unknown, as after a kill. Other runs go on with the next host."""
        policy, loop = self._parts.policy, asyncio.get_running_loop()
        seconds = 2 * policy.call_s + 3 * policy.script_s  # a read, a mutation, and three steps
        self._end_by = self._end_by or loop.time() + (seconds if within_s is None else within_s)
        self._closing = True
        self.wake()
        if self._lanes:
            await asyncio.wait(self._lanes.values(), timeout=max(0.0, self._end_by - loop.time()))
        late = dict(self._lanes)
        for lane in late.values():
            lane.cancel()
        if late:
            _, stuck = await asyncio.wait(late.values(), timeout=_CUT_S)
            self._parts.calls.update(stuck)  # each is in a call that does not end
        for question in self._parts.questions:
            question.cancel()
        for given_up in (self._parts.calls, self._parts.left):
            if given_up:
                await asyncio.wait(given_up, timeout=max(_CUT_S, self._end_by - loop.time()))
        if not self._lanes and self._parts.ledger.stopped() is None:
            for workflow_id in late:
                await self._hand_over(workflow_id)
            await self._parts.ledger.write(workflows.end_host)
        return bool(late or self._parts.calls)

    async def _hand_over(self, workflow_id: str) -> None:
        """Have a run that was cut off ready to go on, unless its call is on record: the outcome of that is unknown."""
        await self._parts.ledger.barrier()  # what it had asked to be written is written
        run = self._now(workflow_id).run
        if run is None or run.state is not Status.ACTIVE or runner.in_flight(self._parts, run) is not None:
            return
        how = carry(self._parts, run, run.number, Status.SUPERSEDED, "ended", run.failures)
        assert how is not None, "nothing of this run is in flight"
        await self._parts.ledger.write(runs.carry_on, run, how)

    def settles_in_ms(self, mutation: Mutation) -> int | None:
        """How long a request may still arrive; None while its call has not ended."""
        spec = reconcile.spec_of(self._parts, mutation)
        settle_s = reconcile.settle_s(self._parts, spec) if spec else self._parts.policy.settle_s
        return self._parts.closures.settled(mutation, settle_s, self._parts.clock.steady_ms())

    def check_settled(self, mutation: Mutation) -> None:
        """Refuse "it did not happen" while the request may still arrive."""
        left = self.settles_in_ms(mutation)
        if left is None:
            raise Refused(f"The call of mutation {mutation.id} has not ended yet: it may still happen. Answer later.")
        if left > 0:
            raise Refused(f"The request of mutation {mutation.id} may still arrive: answer in {left / 1000:.0f} s.")

    # -- lanes -------------------------------------------------------------------------------------

    def _start(self, workflow_id: str) -> None:
        if workflow_id not in self._lanes:
            lane = asyncio.get_running_loop().create_task(self._lane(workflow_id), name=f"lane {workflow_id}")
            self._lanes[workflow_id] = lane
            lane.add_done_callback(lambda done: self._ended(workflow_id, done))

    def _ended(self, workflow_id: str, lane: asyncio.Task[None]) -> None:
        self._lanes.pop(workflow_id, None)
        error = RuntimeError("it was cut off") if lane.cancelled() else lane.exception()
        if error is None or self._closing:
            if workflow_id in self._touched:
                self._agenda.touch(workflow_id)
            self._touched.discard(workflow_id)
            self._woken.set()
            return
        # A fault of the host itself: said once, and tried again later, not at once and for ever.
        self._agenda.plan(workflow_id, self._parts.clock.now_ms() + _FAULT_WAIT_MS)
        lane.get_loop().call_exception_handler({
            "message": f"The host failed in {lane.get_name()}; it is tried again in a minute.", "exception": error,
        })
        self._woken.set()

    async def _lanes_done(self) -> None:
        while self._lanes:
            ended, _ = await asyncio.wait(self._lanes.values())
            for lane in ended:
                lane.result()

    async def _lane(self, workflow_id: str) -> None:
        async with self._room:
            self._parts.ledger.crew += 1
            try:
                while not self._closing and await self._advance(workflow_id):
                    pass
            except LedgerStopped:
                return  # whoever looks is told; nothing starts until the ledger is opened again
            finally:
                self._parts.ledger.crew -= 1

    async def _advance(self, workflow_id: str) -> bool:
        """Do the next thing of a workflow; False if there is none now."""
        now = self._now(workflow_id)
        step = self._next(now)
        if step is None:
            self._rest(now)
            return False
        try:
            run, before = await step(), None
            while run is not None:
                run, before = await runner.execute(self._parts, run, self._follow(run), before) or (None, None)
        except Conflict:  # a person was quicker: look again, but not for ever
            self._overtaken[workflow_id] += 1
            if self._overtaken[workflow_id] >= _OVERTAKEN_MAX:
                raise
            return True
        self._overtaken.pop(workflow_id, None)
        return True

    def _rest(self, now: Now) -> None:
        """There is nothing to do now. A time that has come and changed nothing is not waited for again and again."""
        at = now.due_at
        later = at is not None and at > self._parts.clock.now_ms()
        self._agenda.plan(now.row["id"], at if later else None)

    # -- what is next ------------------------------------------------------------------------------

    def _next(self, now: Now) -> Step | None:
        """What a workflow has to do now, if anything: the one place that decides it."""
        if now.row["status"] != WorkflowStatus.ACTIVE:
            return None
        if far := self._far(now):
            return partial(self._bring_near, now, far)
        if now.run is None:
            return self._beginning(now)
        if now.run.state is Status.ACTIVE:
            return partial(self._under_active_version, now, now.run)
        if now.run.reason is Reason.RECONCILIATION:
            return self._reconciling(now.run)
        return self._decided(now.run) or self._carrying(now, now.run) or self._mending(now.run)

    def _reconciling(self, run: Run) -> Step | None:
        mutation = last_mutation(self._parts, run)
        if mutation is None or not self._reconcile_due(run, mutation):
            return None
        return partial(self._reconcile, run, mutation)

    def _reconcile_due(self, run: Run, mutation: Mutation) -> bool:
        if mutation.status is not MutationStatus.NEEDS_RECONCILE:
            return False
        return run.retry_at is None or scheduler.time_has_come(run, self._parts.clock.now_ms())

    def _decided(self, run: Run) -> Step | None:
        """A run whose call a person has approved goes on with it; one that nobody answered in time is asked afresh."""
        asked = approval.of_run(self._parts, run)
        match approval.standing(self._parts, run, asked) if asked else None:
            case Standing.USABLE:
                return partial(_itself, run)
            case Standing.EXPIRED:
                assert asked is not None
                return partial(approval.ask_afresh, self._parts, run, asked)
        return None

    def _carrying(self, now: Now, run: Run) -> Step | None:
        """A stopped run goes on when its time has come, or when a new version may mend it."""
        trigger = self._carry_why(now, run)
        if trigger is None:
            return None
        how = carry(self._parts, run, now.active, Status.SUPERSEDED, trigger, run.failures if trigger == "retry" else 0)
        if how is None:
            return None
        if self._parts.script(run.workflow_id, now.active).manifest.handler(run.handler) is not None:
            return partial(self._parts.ledger.write, runs.carry_on, run, how)
        if how.phase is not Phase.EMITTING:
            return partial(self._parts.ledger.write, runs.abandon, run)
        return None  # only `finish` can end it: what follows it no longer exists

    def _carry_why(self, now: Now, run: Run) -> str | None:
        if scheduler.retry_due(run, self._parts.clock.now_ms()):
            return "retry"
        asked = approval.of_run(self._parts, run)
        if asked and approval.standing(self._parts, run, asked) is Standing.UNFIT:
            return "retry"
        if permission.granted_meanwhile(self._parts, run):
            return "granted"
        if permission.connected_meanwhile(self._parts, run):
            return "connected"
        mendable = run.reason is not Reason.INTERNAL
        if mendable and run.number != now.active:
            return "new_version"
        return None

    def _mending(self, run: Run) -> Step | None:
        """A run that failed for the script's fault is handed to the repair hook, once."""
        return partial(repair.ask_hook, self._parts, run, "maintainer") if repair.wanted(self._parts, run) else None

    def _is_due(self, workflow_id: str) -> bool:
        return self._next(self._now(workflow_id)) is not None

    def _beginning(self, now: Now) -> Beginning | None:
        manifest = self._parts.script(now.row["id"], now.active).manifest
        ran = self._parts.ran(now.row["id"], now.read)
        due = scheduler.due(now.handlers, manifest, self._parts.policy, self._parts.clock.now_ms(), ran)
        if due is None:
            return None
        phase = Phase.PREPARING if due.kind == "consumer" else Phase.EXECUTING
        new = Begin(
            now.row["id"], due.handler, due.kind, now.active, phase, due.trigger, due.gap, due.due_at, due.next_run_at,
        )
        return Beginning(self._parts.ledger, new)

    def _follow(self, run: Run) -> Follow:
        """What may begin in the commit that ends `run`: a run of the same version, if nothing else comes first."""
        def follow(read: Reader, workflow: Row) -> Begin | None:
            handlers = read.all("handler_due", workflow_id=run.workflow_id)
            now = Now(workflow, handlers, None, read)  # no run holds it any more
            step = self._next(now) if now.active == run.number and not self._closing else None
            return step.new if isinstance(step, Beginning) else None
        return follow

    # -- doing it ----------------------------------------------------------------------------------

    async def _under_active_version(self, now: Now, run: Run) -> Run:
        """A run that was made ready to go on does so with the version that is active by then."""
        if run.number == now.active:
            return run
        how = carry(self._parts, run, now.active, Status.SUPERSEDED, "new_version", run.failures)
        manifest = self._parts.script(run.workflow_id, now.active).manifest
        if how is None or manifest.handler(run.handler) is None:
            return run
        return await self._parts.ledger.write(runs.carry_on, run, how)

    async def _reconcile(self, run: Run, mutation: Mutation) -> Run | None:
        found = await reconcile.attempt(self._parts, run, mutation)
        return await self._under_active_version(self._now(run.workflow_id), found) if found else None

    async def _bring_near(self, now: Now, far: Iterable[scheduler.Nearer]) -> None:
        for near in far:
            await self._parts.ledger.write(
                workflows.reschedule, now.row["id"], near.handler, near.next_run_at, near.wake_at, near.recheck_at,
            )

    # -- looking -----------------------------------------------------------------------------------

    def _workflow_ids(self) -> Iterator[str]:
        yield from (str(r["id"]) for r in self._parts.ledger.read().all("workflow_all"))

    def _now(self, workflow_id: str) -> Now:
        read = self._parts.ledger.read()
        row, open_run = (read.one(query, workflow_id=workflow_id) for query in ("workflow_by_id", "run_open"))
        assert row is not None, f"workflow {workflow_id} was just listed"
        run = run_record(open_run) if open_run else None
        return Now(row, read.all("handler_due", workflow_id=workflow_id), run, read)

    def _far(self, now: Now) -> list[scheduler.Nearer]:
        """Due times that lie too far ahead, because the clock was set back."""
        manifest = self._parts.script(now.row["id"], now.active).manifest
        ran = self._parts.ran(now.row["id"], now.read)
        return scheduler.nearer(now.handlers, manifest, self._parts.policy, self._parts.clock.now_ms(), ran)


async def _itself(run: Run) -> Run:
    return run
