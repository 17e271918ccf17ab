"""The JavaScript runtime: a pool of sandboxed workers behind the contract of `runtime/base.py`.

Workers come from a fork server that is started with the first job; pool.py says which of them runs what. A worker that
ended its job cleanly is used again; one that met a limit, died or broke the protocol is ended. Nothing here looks
into a script.
"""

from __future__ import annotations

import asyncio
import os
import signal

from ...model.errors import HostFault, KeepError, WorkerDied
from ...model.operations import Step, Surface
from ..base import Ended, Job, Limits, LogLine, Operation, Reply, StepHost
from . import rules
from .call_predictor import CallPredictor
from .fork_client import ForkServer, Worker
from .harden import Protection
from .pool import Pool, QueuedStep
from .worker import EXIT_OUT_OF_MEMORY
from .worker_link import ProcessLost

_WORKERS_MAX = 8
_EXIT_S_MAX = 1.0


class _Silent:
    """The host of a script that is only loaded: it may ask for nothing, and its log is not kept."""

    async def answer(self, operation: Operation) -> Reply:
        raise HostFault(f"ctx.{operation.name} was called while the script was loaded.")

    async def foresee(self, operation: Operation) -> Reply | None:
        return None

    def used(self, operation: Operation, reply: Reply) -> None:
        raise HostFault(f"ctx.{operation.name} was called while the script was loaded.")

    def log(self, line: LogLine) -> None:
        pass


class JavaScriptRuntime:
    """Runs steps of JavaScript handlers in at most `workers_max` processes; `speculate` as in policy."""

    def __init__(self, workers_max: int | None = None, *, speculate: bool = True) -> None:
        self._most = workers_max or _WORKERS_MAX
        self._pool: Pool | None = None
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._predictor = CallPredictor(speculate=speculate)
        self._closed = False

    async def run(self, job: Job, host: StepHost) -> Ended:
        """Run one step. Raises the `KeepError` that ended it: the host's own, a `ScriptError`, or `WorkerDied`."""
        pool = self._pool or self._opened()
        job, predicted = await self._predictor.plan(job, host)
        step = QueuedStep(job, predicted, host, (job.source, job.handler, job.step) in self._predictor.quick)
        session = await pool.start(step)
        try:
            return await session.run()
        except ProcessLost:
            pool.end(step, clean=False)
            raise await self._cause_of_death(session.worker, job) from None
        finally:
            pool.end(step, clean=session.clean)

    async def load(self, source: str, surface: Surface, limits: Limits) -> None:
        """Run a script's top level, and no handler. Raises the `ScriptError` that ended it, or `WorkerDied`."""
        job = Job(source, Step.PRODUCER, "", (), None, surface, frozenset(), limits, only_load=True)
        await self.run(job, _Silent())

    async def protections(self) -> tuple[Protection, ...]:
        """The locks that hold a worker on this machine, and those that are missing."""
        return await self._opened().protections()

    async def close(self) -> None:
        """End every worker and the fork server."""
        self._closed = True
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._server is not None:
            await self._server.close()
        self._server = None

    def _opened(self) -> Pool:
        if self._closed:
            raise HostFault("The script runtime is closed.")
        if self._pool is None:
            kept = min(os.cpu_count() or 1, self._most)
            self._pool = Pool(kept, self._most, self._predictor, self._fork, self._kill)
        return self._pool

    async def _cause_of_death(self, worker: Worker, job: Job) -> KeepError:
        try:
            async with asyncio.timeout(_EXIT_S_MAX):
                code = await asyncio.shield(worker.ended)
        except (TimeoutError, ProcessLost):
            return WorkerDied("The script's worker process died in the middle of a step, and its fork server with it.")
        if code == -signal.SIGXCPU:
            return rules.out_of_time(job.limits)
        if code == EXIT_OUT_OF_MEMORY:
            return rules.out_of_memory(job.limits)
        if code == -signal.SIGSYS:
            return HostFault("The script's worker made a system call that is forbidden to it and was killed.")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return WorkerDied(f"The script's worker process died in the middle of a step ({how}).")

    async def _fork(self) -> Worker:
        for _ in range(2):
            try:
                return await (await self._running_server()).fork()
            except ProcessLost:
                continue
        raise WorkerDied("The script runtime cannot start a worker process.")

    async def _running_server(self) -> ForkServer:
        async with self._starting:
            if self._server is None or not self._server.alive:
                if self._server is not None:
                    await self._server.close()
                self._server = await ForkServer.start()
            return self._server

    def _kill(self, worker: Worker) -> None:
        if self._server is not None:
            self._server.kill(worker)
