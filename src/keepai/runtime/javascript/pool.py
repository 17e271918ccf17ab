"""Which worker runs which step, and when.

A step that is known to be quick shares its worker: several go there in one message, and the worker runs one after the
other. Any other step has a worker for itself. A script's quick steps go to the same worker, so that only one has its
image. Only the step at the front of its worker may send frames; one that is not there yet has sent nothing, so it can
go elsewhere at any time: when the one before it takes long, breaks a limit, or kills their worker.

As many workers as there are processors are kept. More are forked, up to a limit, only while steps wait for the outside
or take long.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from ...model.errors import HostFault, KeepError
from ..base import Job, StepHost
from .call_predictor import CallPredictor, PredictedCall
from .fork_client import StepTimer, Worker
from .harden import Protection
from .step_session import StepSession

_TOGETHER_MAX = 8  # steps in one message
_SLOW_S = 0.02  # that a step may hold up others
_SLOW_USED_S = 0.01  # of the processor's time: a worker that had less was held up itself
_PATIENCE = 10  # times _SLOW_S, for such a worker
_IDLE_S = 1.0  # after so long, a worker beyond the kept number ends
_JOBS_MAX = 10_000  # per worker; keeps slow growth of any kind small, and its images worth their making
_HOMES_MAX = 1_000


@dataclass(eq=False)
class QueuedStep:
    """One step, from when the engine asks for it until it has ended."""

    job: Job
    predicted: PredictedCall | None
    host: StepHost
    quick: bool
    queue: WorkerQueue | None = None  # once it has a worker
    session: StepSession | None = None  # once it was sent to the worker
    at_front: asyncio.Future[None] | None = None  # done when it is at the front, if the engine waits for that
    error: BaseException | None = None  # with which it was refused
    abandoned: bool = False  # whether the engine has cancelled it

    def refuse(self, error: BaseException) -> None:
        """It will not be run."""
        self.queue, self.error = None, error
        if self.at_front is not None and not self.at_front.done():
            self.at_front.set_exception(error)


class WorkerQueue:
    """One worker and its steps: the one at the front, those behind it in the same message, and those that wait for the
    next message."""

    def __init__(self, worker: Worker, pool: Pool) -> None:
        self.worker = worker
        self.front: QueuedStep | None = None
        self.behind: deque[QueuedStep] = deque()
        self.waiting: deque[QueuedStep] = deque()
        self.exclusive = False  # whether the step at the front has it for itself
        self.outdated = False  # whether it was sent steps that are run elsewhere by now
        self.since = 0.0  # when the step came to the front
        self.sending = False  # whether what waits is about to be sent
        self.timer = StepTimer()
        self.check_slow, self.reserve, self.discard = (
            partial(act, self) for act in (pool.check_slow, pool.reserve, pool.discard)
        )


class Pool:
    """The workers of one runtime, and the line of the steps that wait for one."""

    def __init__(
        self, kept: int, most: int, predictor: CallPredictor, fork: Callable[[], Awaitable[Worker]],
        kill: Callable[[Worker], None],
    ) -> None:
        self._kept, self._most, self._predictor, self._fork, self._kill = kept, most, predictor, fork, kill
        self._queues: list[WorkerQueue] = []
        self._homes: dict[str, WorkerQueue] = {}  # by script: where its last step went
        self._line: deque[QueuedStep] = deque()
        self._forks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    @property
    def workers(self) -> list[Worker]:
        """Those that are there."""
        return [queue.worker for queue in self._queues]

    async def protections(self) -> tuple[Protection, ...]:
        """The locks that hold a worker."""
        if not self._queues:
            self._queues.append(WorkerQueue(await self._fork(), self))
        return self._queues[0].worker.protections

    # -- a step ------------------------------------------------------------------------------------

    async def start(self, step: QueuedStep) -> StepSession:
        """Give a step to a worker; its session, when it is at the front there."""
        self._line.append(step)
        self._serve()
        if step.error is None and (step.queue is None or step.queue.front is not step):
            step.at_front = self._loop.create_future()
            try:
                await step.at_front
            except BaseException:
                self._abandon(step)
                raise
        if step.error is not None:
            raise step.error
        assert step.session is not None
        return step.session

    def end(self, step: QueuedStep, *, clean: bool) -> None:
        """The step at the front has ended; a worker that is not clean is ended."""
        queue, step.queue = step.queue, None
        if queue is None or queue.front is not step:
            return
        queue.front, queue.exclusive = None, False
        queue.worker.jobs += 1
        if not clean or queue.outdated or queue.worker.jobs >= _JOBS_MAX:
            self.discard(queue)
        else:
            self._advance(queue)

    def close(self) -> None:
        """End every worker; steps that wait for one are refused."""
        self._most = 0
        for task in self._forks:
            task.cancel()
        for queue in list(self._queues):
            self.discard(queue)
        while self._line:
            self._line.popleft().refuse(HostFault("The script runtime is closed."))

    def _abandon(self, step: QueuedStep) -> None:
        """The engine has cancelled a step before it came to the front."""
        step.abandoned = True
        queue = step.queue
        if queue is None:
            if step in self._line:
                self._line.remove(step)
        elif step in queue.waiting:
            queue.waiting.remove(step)
        elif queue.front is step:  # at this very moment
            self.end(step, clean=False)
        self._serve()

    # -- which worker ------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Give the steps in line to workers, in order; where there is none for the first of them, fork one."""
        while self._line:
            step = self._line[0]
            job = step.job
            queue = self._homes.get(job.source)
            if queue is None or not step.quick or not self._takes(queue, job):
                dead = [queue for queue in self._queues if queue.front is None and not queue.worker.usable]
                if dead:  # it died while it had nothing to do; else its step notices
                    self.discard(dead[0])  # which serves the line as well
                    continue
                queue = self._choose(step, queue)
                if queue is None:
                    self._fork_more()
                    return
            self._line.popleft()
            step.queue = queue
            queue.waiting.append(step)
            if self._homes.get(job.source) is not queue:
                if len(self._homes) >= _HOMES_MAX:
                    self._homes.clear()
                self._homes[job.source] = queue
            if not step.quick:
                queue.exclusive = True
                self._send(queue)
            elif queue.front is not None:
                queue.timer.set(queue.since + _SLOW_S, queue.check_slow)
            elif not queue.sending:  # others may come in the same turn of the loop
                queue.sending = True
                self._loop.call_soon(self._send, queue)

    def _choose(self, step: QueuedStep, home: WorkerQueue | None) -> WorkerQueue | None:
        """A worker for a step, if the worker that last ran its script does not take it."""
        if step.quick:
            knowing = [queue for queue in self._queues if self._takes(queue, step.job)]
            if knowing:
                return min(knowing, key=lambda queue: len(queue.waiting))
            step.quick = False  # to load its script takes longer than most steps
        free = [queue for queue in self._queues if queue.front is None and not queue.waiting]
        return home if home in free else min(free, key=lambda queue: len(queue.worker.scripts), default=None)

    def _takes(self, queue: WorkerQueue, job: Job) -> bool:
        """Whether a worker suits this quick step: it knows the script, and no step holds it up for long."""
        return not queue.outdated and queue.worker.knows(job) and not (queue.exclusive and self._is_slow(queue))

    def _is_slow(self, queue: WorkerQueue) -> bool:
        """Whether a worker's step waits for the outside, or has taken long, not counting time without the processor."""
        session, age = queue.front.session if queue.front else None, self._loop.time() - queue.since
        if session is None or session.waits or age < _SLOW_S:
            return session is not None and session.waits
        return session.used_s() >= _SLOW_USED_S or age >= _PATIENCE * _SLOW_S

    def _fork_more(self) -> None:
        slow = sum(queue.exclusive and self._is_slow(queue) for queue in self._queues)
        most = min(self._kept + slow, self._most)
        while len(self._queues) + len(self._forks) < most and len(self._forks) < len(self._line):
            self._forks.add(self._loop.create_task(self._fork_one()))

    async def _fork_one(self) -> None:
        try:
            queue = WorkerQueue(await self._fork(), self)
            self._queues.append(queue)
            self._loop.call_later(_IDLE_S, self._dismiss, queue)
        except (KeepError, OSError) as error:
            if self._line:
                self._line.popleft().refuse(error)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._forks.discard(task)
            self._serve()

    def _dismiss(self, queue: WorkerQueue) -> None:
        """End a worker if there are more than are kept, unless it is needed."""
        if queue in self._queues and len(self._queues) > self._kept:
            if queue.front is None and not queue.waiting:
                self.discard(queue)
            else:
                self._loop.call_later(_IDLE_S, self._dismiss, queue)

    # -- the steps of one worker -------------------------------------------------------------------

    def _send(self, queue: WorkerQueue) -> None:
        """Send what waits, as one message."""
        queue.sending = False
        if queue.front is not None or not queue.waiting:
            return
        frames, worker = [], queue.worker
        while queue.waiting and len(queue.behind) < _TOGETHER_MAX:
            step, number = queue.waiting.popleft(), next(self._numbers)
            frames.append(worker.message(step.job, number, step.predicted.answer if step.predicted else None))
            step.session = StepSession(
                step.job, step.host, worker, number, queue.discard, self._predictor, step.predicted, queue.reserve,
            )
            queue.behind.append(step)
        worker.link.send(b"".join(frames))
        self._advance(queue)

    def _advance(self, queue: WorkerQueue) -> None:
        """The next step comes to the front, if there is one."""
        if queue.behind:
            step = queue.behind.popleft()
            if step.abandoned:  # the worker would run it, and its frames would belong to no step
                self.discard(queue)
                return
            assert step.session is not None
            step.session.behind = len(queue.behind)
            queue.front, queue.since = step, self._loop.time()
            if queue.exclusive or queue.behind or queue.waiting:
                queue.timer.set(queue.since + _SLOW_S, queue.check_slow)
            if step.at_front is not None and not step.at_front.done():
                step.at_front.set_result(None)
        elif queue.waiting:
            self._send(queue)
        else:
            queue.exclusive = False
            self._serve()

    def check_slow(self, queue: WorkerQueue) -> None:
        """The step at the front may have held up others for long enough."""
        if queue.front is None or not (queue.exclusive or queue.behind or queue.waiting):
            return
        if self._is_slow(queue):
            self.reserve(queue)
        else:
            queue.timer.set(max(queue.since, self._loop.time() - _SLOW_S / 2) + _SLOW_S, queue.check_slow)

    def reserve(self, queue: WorkerQueue) -> None:
        """The step at the front takes long, or waits for the outside: it has its worker for itself from here on."""
        queue.exclusive = True
        queue.outdated = queue.outdated or bool(queue.behind)
        self._move_others(queue)

    def discard(self, queue: WorkerQueue) -> None:
        """Throw a worker away; what it has not begun goes elsewhere."""
        self._kill(queue.worker)
        if queue in self._queues:
            self._queues.remove(queue)
        self._move_others(queue)

    def _move_others(self, queue: WorkerQueue) -> None:
        """Put the steps that are not at the front back to the beginning of the line."""
        for step in reversed([*queue.behind, *queue.waiting]):
            if not step.abandoned:
                step.queue = step.session = None
                self._line.appendleft(step)
        queue.behind.clear()
        queue.waiting.clear()
        self._serve()
