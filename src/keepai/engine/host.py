"""The host: one lane per workflow with something due, lanes side by side, one run at a time in each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from logging import getLogger
from typing import TypeAlias

from ..ledger.base import Sharing
from ..ledger.transitions import parking, runs, workflows
from ..ledger.transitions.events import Publication
from ..ledger.transitions.runs import Follows
from ..model.errors import Conflict, LedgerStopped, LedgerUnusable, Refused
from ..model.principals import MAINTAINER
from ..model.records import Mutation, Run
from ..model.states import Status, WorkflowStatus
from . import approval, arrivals, reconcile, repair, restored_ledger, retention, runner
from .due_times import LONGEST_SLEEP_S, Agenda
from .host_parts import Parts
from .next_step import (
    Abandon,
    AskAgain,
    AskRepair,
    CarryOn,
    Continue,
    LookUp,
    NextStep,
    Now,
    Park,
    Reschedule,
    SendApproved,
    Start,
    Stopped,
    TakeTurn,
    Unpark,
    Wait,
    after,
    at_rest,
    look,
    next_step,
)
from .recovery import recover
from .relaunch import carry, in_flight, last_mutation
from .run_context import Follow
from .telling import Teller

_log = getLogger(__name__)

_Take: TypeAlias = Callable[[Parts, Collection[str]], Awaitable[None]]

#: How often a host that serves looks whether it still has its ledger.
WATCH_S = 0.5
#: How long a host that could not take another place waits before it tries again.
_REJOIN_S = 1.0
#: How long runs and calls that are cut off have to end.
_CUT_S = 0.5
_FAULT_WAIT_MS = 60_000
_OVERTAKEN_MAX = 20
#: Runs of one workflow before others that wait have their turn.
_TURN_RUNS = 2


class Host:
    """Starts what is due and lets it run."""

    def __init__(self, parts: Parts, teller: Teller) -> None:
        self._parts, self._teller = parts, teller
        parts.wake, parts.at_work = self.wake, self._at_work
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(parts.policy.runs_at_once_max)
        self._woken = asyncio.Event()
        self._agenda = Agenda()
        self._touched: set[str] = set()  # workflows in which something changed while their lane was there
        self._overtaken: Counter[str] = Counter()
        self._waiting = 0  # lanes without a place
        self._turns: Counter[str] = Counter()  # runs of each lane since it has its place
        self._closing, self._end_by = False, 0.0  # by when it has ended, on the loop's clock
        self._own: set[str] = set()  # of a shared ledger: the workflows that this host runs
        self._claimed: set[str] = set()  # it runs these as soon as it has taken over what is there
        self._seen_elsewhere: set[str] = set()  # others have changed something in these
        self._sharing_now, self._shares = asyncio.Lock(), set[asyncio.Task[None]]()
        self._handing_over: frozenset[str] = frozenset()  # it may run these no longer in a moment
        self._held_back: set[str] = set()  # of these: there was something to do in them meanwhile
        self.drains = asyncio.Event()  # set when a person wants this host to end

    async def join(self) -> None:
        """Take over what is there to be run, and what other hosts left in the midst of it."""
        if self._parts.ledger.sharing is None:
            await restored_ledger.note_put_back(self._parts)
            await recover(self._parts)
        else:
            await self._share(self._parts.ledger.sharing)

    async def _share(self, sharing: Sharing) -> None:
        """See which workflows this host runs, and what others did in them. It hands over only what rests."""
        task = asyncio.ensure_future(self._share_in_turn(sharing))
        self._shares.add(task)
        task.add_done_callback(self._shares.discard)
        await asyncio.shield(task)  # it goes on if the caller is cancelled: the host must learn what the ledger gave it

    async def _share_in_turn(self, sharing: Sharing) -> None:
        async with self._sharing_now:
            await self._share_alone(sharing)

    async def _share_alone(self, sharing: Sharing) -> None:
        """What others left is taken over before anything is run there; what a person overtakes is tried again."""
        at_work = self._lanes.keys() | set(self._parts.call_ends.under_way.values())
        self._handing_over = frozenset(self._own & self._agenda.resting() - at_work)
        share = await sharing.share(self._handing_over)
        self._own -= share.given
        self._handing_over = frozenset()
        for workflow_id in self._held_back - share.given:
            self._agenda.touch(workflow_id)
        self._held_back.clear()
        for workflow_id in share.given:
            self._agenda.forget(workflow_id)
        self._claimed |= share.claimed
        self._seen_elsewhere |= share.touched
        if len(self._own | self._claimed) != share.owns:
            await self._learn_own(sharing)
        if self._claimed or self._seen_elsewhere:
            await restored_ledger.note_put_back(self._parts)
        for workflow_id in await self._taken_over(self._claimed, recover):
            self._claimed.discard(workflow_id)
            self._own.add(workflow_id)
            self._agenda.touch(workflow_id)
        for workflow_id in await self._taken_over(self._seen_elsewhere, reconcile.withdraw):
            self._seen_elsewhere.discard(workflow_id)
            self._agenda.touch(workflow_id)
        if share.drains:
            self.drains.set()
        self._woken.set()

    async def _learn_own(self, sharing: Sharing) -> None:
        """What the ledger says is what this host runs, whatever it believed: it may have lost an answer."""
        owned = await sharing.own()
        for workflow_id in (self._own | self._lanes.keys()) - owned:
            self._agenda.forget(workflow_id)
            if workflow_id in self._lanes:
                self._lanes[workflow_id].cancel()
        self._own &= owned
        self._claimed = owned - self._own

    async def _taken_over(self, workflow_ids: Collection[str], take: _Take) -> list[str]:
        """Those with which `take` got to its end: all of them together, or else each by itself. Others are tried again
        with the next share."""
        wanted = sorted(workflow_ids)
        if not wanted or await self._took(wanted, take):
            return wanted
        return [each for each in wanted if len(wanted) > 1 and await self._took([each], take)]

    async def _took(self, workflow_ids: Collection[str], take: _Take) -> bool:
        try:
            await take(self._parts, workflow_ids)
        except LedgerStopped:
            raise  # this host has lost its place
        except Conflict:
            return False  # a person was quicker
        except Exception as error:
            told = f"The host could not take over {', '.join(workflow_ids)}. It tries again; other workflows go on."
            asyncio.get_running_loop().call_exception_handler({"message": told, "exception": error})
            return False
        return True

    async def _keep_sharing(self, sharing: Sharing) -> None:
        while True:
            await sharing.stirred()
            try:
                await self._share(sharing)
            except LedgerStopped:
                return  # this host has lost its place
            except Exception as error:
                told = "The host failed while it looked which workflows it runs; it looks again in a moment."
                asyncio.get_running_loop().call_exception_handler({"message": told, "exception": error})

    async def _rejoin(self, sharing: Sharing) -> None:
        """This host has lost its place. What was under way is cut off; then it takes another place, and begins anew."""
        _log.warning("%s It takes another place.", sharing.lost())
        self._cut_lanes()
        if self._lanes:
            _, stuck = await asyncio.wait(self._lanes.values(), timeout=_CUT_S)
            for lane in stuck:
                self._parts.calls.add(lane)
                lane.add_done_callback(self._parts.calls.discard)
        self._lanes.clear()
        await self._begin_anew()
        while not self._closing and self._parts.ledger.stopped() is None:
            try:
                await sharing.rejoin(self._parts.call_ends.under_way)
                await self._begin_anew()
                await self._share(sharing)
            except (LedgerUnusable, LedgerStopped) as error:
                _log.warning("%s", error.message)
                await self._pause(_REJOIN_S)
                continue
            _log.warning("It is host %s now, and runs %d workflows.", self._parts.ledger.host, len(self._own))
            return

    async def _begin_anew(self) -> None:
        """Nothing that was claimed from an earlier place counts."""
        async with self._sharing_now:
            self._own, self._claimed, self._seen_elsewhere, self._agenda = set(), set(), set(), Agenda()

    def _cut_lanes(self) -> None:
        for lane in self._lanes.values():
            lane.cancel()

    async def _pause(self, seconds: float | None) -> None:
        """Wait so long, or for ever (None); no longer once the host closes."""
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._closing:
                    await self._woken.wait()
                    self._woken.clear()

    async def run_until_idle(self) -> None:
        """Run all that is due now and what it causes; never waits for time or people.

        Raises `LedgerStopped` if the ledger cannot be written any more."""
        self._parts.ledger.check()
        if self._parts.ledger.sharing is not None:
            await self._share(self._parts.ledger.sharing)
        while due := [w for w in await self._workflow_ids() if await self._is_due(w)]:
            for workflow_id in due:
                self._start(workflow_id)
            await self._lanes_done()
            if self._closing or self._has_no_ledger():
                break
        await self._lanes_done()
        await self._parts.ledger.barrier()
        await self._teller.look()

    async def serve(self) -> None:
        """Run what becomes due, for ever; between that, sleep.

        Beside it, content that is old enough is thrown away, people are told what waits for them, and the ledger is
        looked after: a host that has lost it stops."""
        sharing = self._parts.ledger.sharing
        while True:
            await self._serve_beside(sharing)
            if self._closing or sharing is None:
                return
            await self._rejoin(sharing)
            if self._parts.ledger.stopped() is not None:
                await self._pause(None)  # there is nothing that could be done

    async def _serve_beside(self, sharing: Sharing | None) -> None:
        """Work until the host closes or has lost its place."""
        beside = [retention.tend(self._parts, self._runs), self._teller.tend(), self._watch_ledger()]
        beside += [arrivals.listen(self._parts, each, self._runs) for each in self._parts.connectors.values()]
        if sharing is not None:
            beside.append(self._keep_sharing(sharing))
        tending = [asyncio.ensure_future(each) for each in beside]
        await asyncio.sleep(0)  # they listen before the first run begins, so that it is not followed by a second look
        try:
            await self._serve()
        finally:
            for each in tending:
                each.cancel()
        if self._has_lost_its_place():
            self._cut_lanes()  # before anything else ends: soon others may run these workflows
        await asyncio.wait(tending)
        for each in tending:
            if not each.cancelled():
                each.result()

    async def _serve(self) -> None:
        while not self._closing and not self._has_lost_its_place():
            self._woken.clear()
            clock = self._parts.clock.now_ms()
            stopped = self._parts.ledger.stopped() is not None
            if not stopped:
                with suppress(LedgerStopped):  # this host has lost its place, or its ledger: the next round knows it
                    await self._look(clock)
                self._teller.stir()
            try:
                async with asyncio.timeout(LONGEST_SLEEP_S if stopped else self._agenda.sleep_s(clock)):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _watch_ledger(self) -> None:
        """Notice within a second if the ledger was removed or replaced, or if another host has opened it."""
        while not self._has_no_ledger():
            await asyncio.sleep(WATCH_S)
            try:
                self._parts.ledger.check()
            except LedgerStopped:
                self._woken.set()

    def _has_lost_its_place(self) -> bool:
        sharing = self._parts.ledger.sharing
        return sharing is not None and sharing.lost() is not None

    def _has_no_ledger(self) -> bool:
        """Whether nothing can be written now."""
        return self._parts.ledger.stopped() is not None or self._has_lost_its_place()

    def wake(self, workflow_id: str | None = None) -> None:
        """Something changed in a workflow, or anywhere: look again."""
        self._agenda.touch(workflow_id)
        self._woken.set()

    async def _look(self, clock: int) -> None:
        """Start every workflow that has something to do, and remember when the others can have."""
        for workflow_id in await self._agenda.to_look(self._workflow_ids, clock):
            if not self._runs(workflow_id):
                self._agenda.forget(workflow_id)
                continue
            if workflow_id in self._handing_over:
                self._held_back.add(workflow_id)
                continue
            if workflow_id in self._lanes:
                self._touched.add(workflow_id)  # it is looked at again when its lane ends
                continue
            now = await self._now(workflow_id)
            step = next_step(now)
            if isinstance(step, Wait):
                self._rest(workflow_id, step, now.at)
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
        if self._shares:
            await asyncio.wait(self._shares, timeout=_CUT_S)
        if self._parts.calls:
            left = max(_CUT_S, self._end_by - loop.time())
            if self._has_lost_its_place() and not self._parts.call_ends.under_way:
                left = _CUT_S  # nothing goes on, and what is to be told cannot be told
            await asyncio.wait(self._parts.calls, timeout=left)
        if not self._lanes and not self._has_no_ledger():
            try:
                for workflow_id in late:
                    await self._hand_over(workflow_id)
                await self._parts.ledger.write(workflows.end_host)
            except LedgerStopped:
                if not self._has_lost_its_place():
                    raise  # otherwise others go on, as after a kill
        return bool(late or self._parts.calls)

    async def _hand_over(self, workflow_id: str) -> None:
        """Have a run that was cut off ready to go on, unless its call is on record: the outcome of that is unknown."""
        await self._parts.ledger.barrier()  # what it had asked to be written is written
        ledger, run = self._parts.ledger, (await self._now(workflow_id)).run
        if run is None or run.state is not Status.ACTIVE or await ledger.look(in_flight, run) is not None:
            return
        sent = await ledger.look(last_mutation, run)
        how = carry(run, sent, run.number, Status.SUPERSEDED, "ended", run.failures)
        assert how is not None, "nothing of this run is in flight"
        await ledger.write(runs.carry_on, run, how)

    def settles_in_ms(self, mutation: Mutation) -> int | None:
        """How long a request may still arrive; None while its call has not ended."""
        spec = reconcile.spec_of(self._parts, mutation)
        settle_s = reconcile.settle_s(self._parts, spec) if spec else self._parts.policy.settle_s
        return self._parts.call_ends.settled(mutation, settle_s, self._parts.clock.steady_ms())

    def check_settled(self, mutation: Mutation) -> None:
        """Refuse "it did not happen" while the request may still arrive."""
        left = self.settles_in_ms(mutation)
        if left is None and mutation.epoch != self._parts.ledger.epoch:
            raise Refused(
                f"Host {mutation.sender} may still send mutation {mutation.id}. Answer when it is back; or, if it is "
                f"dead, say `keep host dead {mutation.sender}`, and answer then.")
        if left is None:
            raise Refused(f"The call of mutation {mutation.id} has not ended yet: it may still happen. Answer later.")
        if left > 0:
            raise Refused(f"The request of mutation {mutation.id} may still arrive: answer in {left / 1000:.0f} s.")

    # -- lanes -------------------------------------------------------------------------------------

    def _start(self, workflow_id: str) -> None:
        if workflow_id in self._handing_over:
            self._held_back.add(workflow_id)
        elif workflow_id not in self._lanes and self._runs(workflow_id):
            lane = asyncio.get_running_loop().create_task(self._lane(workflow_id), name=f"lane {workflow_id}")
            self._lanes[workflow_id] = lane
            lane.add_done_callback(lambda done: self._ended(workflow_id, done))

    def _ended(self, workflow_id: str, lane: asyncio.Task[None]) -> None:
        if self._lanes.get(workflow_id) is not lane:
            return  # it was cut off, and another has begun since
        del self._lanes[workflow_id]
        self._turns.pop(workflow_id, None)
        error = RuntimeError("it was cut off") if lane.cancelled() else lane.exception()
        if error is None or self._closing or self._has_lost_its_place():
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
        """Do everything that a workflow has to do; while others wait for a place, a few runs at a time."""
        done = False
        while not done:
            self._waiting += 1
            try:
                await self._room.acquire()
            finally:
                self._waiting -= 1
            self._turns[workflow_id] = 0
            try:
                with self._parts.ledger.under_way():
                    while not self._turn_is_over(workflow_id) and not done:
                        done = self._closing or not await self._advance(workflow_id)
            except LedgerStopped:
                return  # whoever looks is told; nothing starts until the ledger is opened again
            finally:
                self._room.release()

    def _turn_is_over(self, workflow_id: str) -> bool:
        return self._waiting > 0 and self._turns[workflow_id] >= _TURN_RUNS

    async def _advance(self, workflow_id: str) -> bool:
        """Do the next thing of a workflow; False if there is none now."""
        now = await self._now(workflow_id)
        step = next_step(now)
        if isinstance(step, Wait):
            self._rest(workflow_id, step, now.at)
            return False
        try:
            run, before = await self._do(workflow_id, step), None
            while run is not None:
                self._turns[workflow_id] += 1
                run, before = await runner.execute(self._parts, run, self._follow(run), before) or (None, None)
        except Conflict:  # a person was quicker: look again, but not for ever
            self._overtaken[workflow_id] += 1
            if self._overtaken[workflow_id] >= _OVERTAKEN_MAX:
                raise
            return True
        self._overtaken.pop(workflow_id, None)
        return True

    def _rest(self, workflow_id: str, wait: Wait, at: int) -> None:
        """There was nothing to do at that moment. A time that had come by then and changed nothing is not waited for
        again and again; one that has come since is."""
        later = wait.until is not None and wait.until > at
        self._agenda.plan(workflow_id, wait.until if later else None)

    # -- what is next ------------------------------------------------------------------------------

    async def _is_due(self, workflow_id: str) -> bool:
        return not isinstance(next_step(await self._now(workflow_id)), Wait)

    async def _now(self, workflow_id: str) -> Now:
        parts = self._parts
        now = await parts.ledger.look(look, workflow_id, parts.clock.now_ms(), parts.policy, parts)
        if parts.policy.limits:
            self._keep_line(now)
        return now

    def _keep_line(self, now: Now) -> None:
        """Who waits for a connection keeps its place there, until it has sent; others have none. Of several runs of a
        workflow the first that could go on has it."""
        workflow_id, line = now.workflow["id"], self._parts.line
        stands_still = now.stopped is not None and now.stopped.holds is None  # then what is parked cannot go on
        could_go = [now.stopped or Stopped(), *([] if stands_still else [stopped for _, stopped in now.parked])]
        in_line = [each.waits_for for each in could_go if each.behind is None and (
            each.turn is None or each.turn.in_line)]
        waits_for = next((each for each in in_line if each is not None), None)
        if now.workflow["status"] == WorkflowStatus.ACTIVE and waits_for is not None:
            line.wait(waits_for, workflow_id, self._parts.clock.steady_ms())
        else:
            line.leave(workflow_id)

    def _follow(self, run: Run) -> Follow:
        """What may begin in the commit that ends `run`: a run of the same version, if nothing else comes first."""
        async def follow(leaves: Mapping[str, object], published: Sequence[Publication]) -> Follows | None:
            parts = self._parts
            if self._closing or self._turn_is_over(run.workflow_id):
                return None
            now = await parts.ledger.look(at_rest, run.workflow_id, parts.clock.now_ms(), parts.policy, parts)
            if now.active != run.number:
                return None
            if any(each.topic in handler.subscribe for each in published for handler in now.manifest.handlers):
                return None  # who takes it, and whether it is new, is seen when it is committed
            step = next_step(after(now, run.handler, leaves))
            return Follows(step.new, now.workflow["sequence"]) if isinstance(step, Start) else None
        return follow

    async def _do(self, workflow_id: str, step: NextStep) -> Run | None:
        """Do what was decided; gives the run to execute then, if there is one."""
        parts, write = self._parts, self._parts.ledger.write
        match step:
            case Start(new):
                return await write(runs.begin, new)
            case Continue(run) if run.epoch != parts.ledger.epoch:
                return await write(runs.adopt, run)  # another host made it ready, as a person wanted
            case Continue(run) | SendApproved(run):
                return run
            case TakeTurn(run):
                return await write(runs.resume, run, run.phase)
            case CarryOn(run, how):
                return await write(runs.carry_on, run, how)
            case Abandon(run):
                await write(runs.abandon, run)
            case Park(run, holds):
                await write(parking.park, run, holds)
            case Unpark(run):
                await write(parking.unpark, run)
            case LookUp(run, mutation):
                await reconcile.attempt(parts, run, mutation)
            case AskAgain(run, asked):
                await approval.ask_afresh(parts, run, asked)
            case AskRepair(run):
                await repair.ask_hook(parts, run, str(MAINTAINER))
            case Reschedule(nearer):
                for near in nearer:
                    times = near.next_run_at, near.wake_at, near.recheck_at
                    await write(workflows.reschedule, workflow_id, near.handler, *times)
        return None

    # -- looking -----------------------------------------------------------------------------------

    async def _workflow_ids(self) -> list[str]:
        """The workflows that this host runs."""
        return [str(row["id"]) for row in await self._parts.ledger.all("workflow_all") if self._runs(str(row["id"]))]

    def _at_work(self, workflow_id: str) -> bool:
        """Whether a run of a workflow may be under way at this moment, here or at another host."""
        return workflow_id in self._lanes or not self._runs(workflow_id)

    def _runs(self, workflow_id: str) -> bool:
        """Whether this host runs a workflow, and not another one."""
        if self._parts.ledger.sharing is None:
            return True
        return workflow_id in self._own
