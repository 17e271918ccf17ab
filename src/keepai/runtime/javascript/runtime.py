"""The JavaScript runtime: a pool of sandboxed workers behind the contract of `runtime/base.py`.

Workers come from a fork server that is started with the first job. A worker that ended its job cleanly is used
again; one that met a limit, died or spoke garbage is thrown away. Nothing here looks into a script.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal

from ...model.errors import HostFault, KeepError, WorkerDied
from ...model.operations import Step, Surface
from ..base import Ended, Host, Job, Limits, LogLine, Operation, Reply
from . import rules
from .forks import ForkServer, Worker
from .habits import Habits
from .harden import Protection
from .link import Lost
from .session import Session
from .slots import Slots
from .worker import EXIT_OUT_OF_MEMORY

_JOBS_MAX = 10_000  # per worker; keeps slow growth of any kind small, and its images worth their making
_EXIT_S_MAX = 1.0


class _Silent:
    """The host of a script that is only loaded: it may ask for nothing, and its log is not kept."""

    async def answer(self, operation: Operation) -> Reply:
        raise HostFault(f"ctx.{operation.name} was called while the script was loaded.")

    def foresee(self, operation: Operation) -> Reply | None:
        return None

    def used(self, operation: Operation, reply: Reply) -> None:
        raise HostFault(f"ctx.{operation.name} was called while the script was loaded.")

    def log(self, line: LogLine) -> None:
        pass


class JavaScriptRuntime:
    """Runs steps of JavaScript handlers in at most `workers_max` processes; `speculate` as in policy."""

    def __init__(self, workers_max: int | None = None, *, speculate: bool = True) -> None:
        self._slots = Slots(workers_max or min(8, (os.cpu_count() or 1) + 1))
        self._free: list[Worker] = []
        self._busy: set[Worker] = set()
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._habits = Habits(speculate=speculate)
        self._closed = False

    async def run(self, job: Job, host: Host) -> Ended:
        """Run one step. Raises the `KeepError` that ended it: the host's own, a `ScriptError`, or `WorkerDied`."""
        if not self._slots.take():
            await self._slots.wait()
        try:
            return await self._run(job, host)
        finally:
            self._slots.leave()

    async def load(self, source: str, surface: Surface, limits: Limits) -> None:
        """Run a script's top level, and no handler. Raises the `ScriptError` that ended it, or `WorkerDied`."""
        job = Job(source, Step.PRODUCER, "", (), None, surface, frozenset(), limits, only_load=True)
        await self.run(job, _Silent())

    async def protections(self) -> tuple[Protection, ...]:
        """The locks that hold a worker on this machine, and those that are missing."""
        if not self._slots.take():
            await self._slots.wait()
        try:
            worker = self._take_free() or await self._take_new()
            self._give_back(worker)
            return worker.protections
        finally:
            self._slots.leave()

    async def close(self) -> None:
        """End every worker and the fork server."""
        self._closed = True
        if self._server is not None:
            for worker in (*self._free, *self._busy):
                self._server.kill(worker)
            await self._server.close()
        self._free.clear()
        self._server = None

    async def _run(self, job: Job, host: Host) -> Ended:
        worker = self._take_free(job) or await self._take_new()
        session = Session(job, host, worker, next(self._numbers), lambda: self._kill(worker), self._habits)
        try:
            return await session.run()
        except Lost:
            raise await self._cause_of_death(worker, job) from None
        finally:
            if not session.clean:  # met a limit, was refused or cancelled: it may be anywhere in the script
                self._kill(worker)
            self._give_back(worker)

    async def _cause_of_death(self, worker: Worker, job: Job) -> KeepError:
        try:
            async with asyncio.timeout(_EXIT_S_MAX):
                code = await asyncio.shield(worker.ended)
        except (TimeoutError, Lost):
            return WorkerDied("The script's worker process died in the middle of a step, and its fork server with it.")
        if code == -signal.SIGXCPU:
            return rules.out_of_time(job.limits)
        if code == EXIT_OUT_OF_MEMORY:
            return rules.out_of_memory(job.limits)
        if code == -signal.SIGSYS:
            return HostFault("The script's worker made a system call that is forbidden to it and was killed.")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return WorkerDied(f"The script's worker process died in the middle of a step ({how}).")

    def _take_free(self, job: Job | None = None) -> Worker | None:
        """One that is free, best one that knows the job's script: to load it takes longer than most steps."""
        if self._closed:
            raise HostFault("The script runtime is closed.")
        while self._free:
            place = next((n for n, each in enumerate(self._free) if each.knows(job)), -1) if job else -1
            worker = self._free.pop(place)
            if not worker.ended.done() and not worker.link.lost:
                self._busy.add(worker)
                return worker
            self._kill(worker)
        return None

    async def _take_new(self) -> Worker:
        worker = await self._fork()
        self._busy.add(worker)
        return worker

    async def _fork(self) -> Worker:
        for _ in range(2):
            try:
                return await (await self._running_server()).fork()
            except Lost:
                continue
        raise WorkerDied("The script runtime cannot start a worker process.")

    async def _running_server(self) -> ForkServer:
        async with self._starting:
            if self._server is None or not self._server.alive:
                if self._server is not None:
                    await self._server.close()
                self._server = await ForkServer.start()
            return self._server

    def _give_back(self, worker: Worker) -> None:
        self._busy.discard(worker)
        worker.jobs += 1
        if worker.jobs >= _JOBS_MAX or self._closed:
            self._kill(worker)
        if worker.alive:
            self._free.append(worker)

    def _kill(self, worker: Worker) -> None:
        if self._server is not None:
            self._server.kill(worker)
