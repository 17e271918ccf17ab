"""Which worker runs which step, and when.

A step that is known to be quick shares its worker: several go there in one message, and the worker runs one after the
other. Any other step has a worker for itself. A script's quick steps go to the same worker, so that only one has its
image. Only the step at the front of its worker may speak; one that is not there yet has said nothing, so it can go
elsewhere at any time: when the one before it takes long, breaks a limit, or kills their worker.

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
from ..base import Host, Job
from .alarm import Alarm
from .forks import Worker
from .habits import Habits
from .harden import Protection
from .session import Session

_TOGETHER_MAX = 8  # steps in one message
_SLOW_S = 0.02  # that a step may hold up others
_SLOW_USED_S = 0.01  # of the processor's time: a worker that had less was held up itself
_PATIENCE = 10  # times _SLOW_S, for such a worker
_IDLE_S = 1.0  # that a worker is kept which is one too many
_JOBS_MAX = 10_000  # per worker; keeps slow growth of any kind small, and its images worth their making
_HOMES_MAX = 1_000


@dataclass(eq=False)
class Turn:
    """One step, from when it is asked for until it has ended."""

    job: Job
    host: Host
    quick: bool
    queue: Queue | None = None  # once it has a worker
    session: Session | None = None  # once it is on its way to it
    ready: asyncio.Future[None] | None = None  # done when it is at the front, if somebody waits for that
    error: BaseException | None = None  # with which it was refused
    left: bool = False  # whether nobody wants it any more

    def refuse(self, error: BaseException) -> None:
        """It will not be run."""
        self.queue, self.error = None, error
        if self.ready is not None and not self.ready.done():
            self.ready.set_exception(error)


class Queue:
    """One worker and the steps that it has: the one at the front, those behind it in the same message, and those that
    go out with the next message."""

    def __init__(self, worker: Worker, pool: Pool) -> None:
        self.worker = worker
        self.front: Turn | None = None
        self.behind: deque[Turn] = deque()
        self.waiting: deque[Turn] = deque()
        self.alone = False  # whether the step at the front has it for itself
        self.spoilt = False  # whether it was sent steps that are run elsewhere by now
        self.since = 0.0  # when the step came to the front
        self.flushing = False  # whether what waits is about to be sent
        self.pace = Alarm()
        self.look, self.held, self.discard = (partial(act, self) for act in (pool.look, pool.held, pool.discard))


class Pool:
    """The workers of one runtime, and the line of the steps that wait for one."""

    def __init__(
        self, kept: int, most: int, habits: Habits, fork: Callable[[], Awaitable[Worker]],
        kill: Callable[[Worker], None],
    ) -> None:
        self._kept, self._most, self._habits, self._fork, self._kill = kept, most, habits, fork, kill
        self._queues: list[Queue] = []
        self._homes: dict[str, Queue] = {}  # by script
        self._line: deque[Turn] = deque()
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
            self._queues.append(Queue(await self._fork(), self))
        return self._queues[0].worker.protections

    # -- a step ------------------------------------------------------------------------------------

    def begin(self, turn: Turn) -> Session | None:
        """Give a step to a worker; its session, if it is at the front at once."""
        home = self._homes.get(turn.job.source) if turn.quick and not self._line else None
        if home is not None and self._takes(home, turn.job):  # as mostly
            self._give(turn, home)
        else:
            self._line.append(turn)
            self._serve()
        if turn.error is not None:
            raise turn.error
        return turn.session if turn.queue is not None and turn.queue.front is turn else None

    async def wait(self, turn: Turn) -> Session:
        """The session of a step, when it is at the front of its worker."""
        turn.ready = self._loop.create_future()
        try:
            await turn.ready
        except BaseException:
            self._leave(turn)
            raise
        assert turn.session is not None
        return turn.session

    def end(self, turn: Turn, *, clean: bool) -> None:
        """The step at the front has ended; a worker that is not clean is thrown away."""
        queue, turn.queue = turn.queue, None
        if queue is None or queue.front is not turn:
            return
        queue.front, queue.alone = None, False
        queue.worker.jobs += 1
        if not clean or queue.spoilt or queue.worker.jobs >= _JOBS_MAX:
            self.discard(queue)
        else:
            self._go_on(queue)

    def close(self) -> None:
        """End every worker; steps that wait for one are refused."""
        self._most = 0
        for task in self._forks:
            task.cancel()
        for queue in list(self._queues):
            self.discard(queue)
        while self._line:
            self._line.popleft().refuse(HostFault("The script runtime is closed."))

    def _leave(self, turn: Turn) -> None:
        """Nobody wants a step any more that has not come to the front."""
        turn.left = True
        queue = turn.queue
        if queue is None:
            if turn in self._line:
                self._line.remove(turn)
        elif turn in queue.waiting:
            queue.waiting.remove(turn)
        elif queue.front is turn:  # at this very moment
            self.end(turn, clean=False)
        self._serve()

    # -- who gets what -----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Give the steps in line to workers, in order; where there is none for the first of them, fork one."""
        while self._line:
            queue = self._chosen(self._line[0])
            if queue is None:
                self._have_forked()
                return
            self._give(self._line.popleft(), queue)

    def _chosen(self, turn: Turn) -> Queue | None:
        for queue in [queue for queue in self._queues if not queue.worker.usable and queue.front is None]:
            self.discard(queue)  # it died while it had nothing to do; else its step notices
        home = self._homes.get(turn.job.source)
        if turn.quick:
            knowing = [queue for queue in self._queues if self._takes(queue, turn.job)]
            if knowing:
                return home if home in knowing else min(knowing, key=lambda queue: len(queue.waiting))
            turn.quick = False  # to load its script takes longer than most steps
        free = [queue for queue in self._queues if queue.front is None and not queue.waiting]
        return home if home in free else min(free, key=lambda queue: len(queue.worker.scripts), default=None)

    def _takes(self, queue: Queue, job: Job) -> bool:
        """Whether a worker is one for this quick step: it knows the script, and nothing holds it up for long."""
        worker = queue.worker
        if queue.spoilt or not worker.usable or not worker.knows(job):
            return False
        return not queue.alone or not self._is_slow(queue)

    def _is_slow(self, queue: Queue) -> bool:
        """Whether a worker's step waits for the outside, or has taken long; without the processor it has not."""
        session, age = queue.front.session if queue.front else None, self._loop.time() - queue.since
        if session is None or session.waits or age < _SLOW_S:
            return session is not None and session.waits
        return session.used_s() >= _SLOW_USED_S or age >= _PATIENCE * _SLOW_S

    def _have_forked(self) -> None:
        held = sum(queue.alone and self._is_slow(queue) for queue in self._queues)
        most = min(self._kept + held, self._most)
        while len(self._queues) + len(self._forks) < most and len(self._forks) < len(self._line):
            self._forks.add(self._loop.create_task(self._add()))

    async def _add(self) -> None:
        try:
            queue = Queue(await self._fork(), self)
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

    def _dismiss(self, queue: Queue) -> None:
        """End a worker that is one too many, unless it is needed."""
        if queue in self._queues and len(self._queues) > self._kept:
            if queue.front is None and not queue.waiting:
                self.discard(queue)
            else:
                self._loop.call_later(_IDLE_S, self._dismiss, queue)

    def _give(self, turn: Turn, queue: Queue) -> None:
        turn.queue = queue
        queue.waiting.append(turn)
        if self._homes.get(turn.job.source) is not queue:
            if len(self._homes) >= _HOMES_MAX:
                self._homes.clear()
            self._homes[turn.job.source] = queue
        if not turn.quick:
            queue.alone = True
            self._flush(queue)
        elif queue.front is not None:
            queue.pace.set(queue.since + _SLOW_S, queue.look)
        elif not queue.flushing:  # others may come in the same turn of the loop
            queue.flushing = True
            self._loop.call_soon(self._flush, queue)

    # -- the steps of one worker -------------------------------------------------------------------

    def _flush(self, queue: Queue) -> None:
        """Send what waits, as one message."""
        queue.flushing = False
        if queue.front is not None or not queue.waiting:
            return
        frames, worker = [], queue.worker
        while queue.waiting and len(queue.behind) < _TOGETHER_MAX:
            turn = queue.waiting.popleft()
            number = next(self._numbers)
            turn.session = Session(turn.job, turn.host, worker, number, queue.discard, self._habits, queue.held)
            try:
                frames.append(turn.session.message())
            except Exception as error:  # of its own host; the others have nothing to do with it
                turn.refuse(error)
            else:
                queue.behind.append(turn)
        worker.link.send(b"".join(frames))
        self._go_on(queue)

    def _go_on(self, queue: Queue) -> None:
        """The next step comes to the front, if there is one."""
        if queue.behind:
            turn = queue.behind.popleft()
            if turn.left:  # the worker would run it, and what it says belongs to nobody
                self.discard(queue)
                return
            assert turn.session is not None
            turn.session.behind = len(queue.behind)
            queue.front, queue.since = turn, self._loop.time()
            if queue.alone or queue.behind or queue.waiting:
                queue.pace.set(queue.since + _SLOW_S, queue.look)
            if turn.ready is not None and not turn.ready.done():
                turn.ready.set_result(None)
        elif queue.waiting:
            self._flush(queue)
        else:
            queue.alone = False
            self._serve()

    def look(self, queue: Queue) -> None:
        """The step at the front may have held up others for long enough."""
        if queue.front is None or not (queue.alone or queue.behind or queue.waiting):
            return
        if self._is_slow(queue):
            self.held(queue)
        else:
            queue.pace.set(max(queue.since, self._loop.time() - _SLOW_S / 2) + _SLOW_S, queue.look)

    def held(self, queue: Queue) -> None:
        """The step at the front takes long, or waits for the outside: it has its worker for itself from here on."""
        queue.alone = True
        queue.spoilt = queue.spoilt or bool(queue.behind)
        self._move(queue)

    def discard(self, queue: Queue) -> None:
        """Throw a worker away; what it has not begun goes elsewhere."""
        self._kill(queue.worker)
        if queue in self._queues:
            self._queues.remove(queue)
        self._move(queue)

    def _move(self, queue: Queue) -> None:
        for turn in reversed([*queue.behind, *queue.waiting]):
            if not turn.left:
                turn.queue = turn.session = None
                self._line.appendleft(turn)
        queue.behind.clear()
        queue.waiting.clear()
        self._serve()
