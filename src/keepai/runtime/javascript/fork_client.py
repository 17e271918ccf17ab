"""The runtime's side of the fork server: start it, ask it for workers, have it kill them, learn how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import HostFault, WorkerDied
from ...model.operations import Surface
from ..base import Job, Limits
from .frames import Frame, Garbled, PredictedAnswer, job_frame, script_frame
from .harden import Protection
from .worker_link import ProcessLost, WorkerLink

_START_S_MAX = 60.0  # the first start compiles the interpreter
_FORK_S_MAX = 10.0
_READY_BYTES_MAX = 64 << 10
_USED = 2  # in the number of a process's clock: all processor time (Linux)
_SCRIPTS_MAX = 1_000  # that a worker knows at once
_SOURCES_MAX = 16 << 20  # characters of all their texts
#: The environment variables that the server needs. No others reach a worker, and so no secret does.
_ENVIRONMENT = ("HOME", "XDG_CACHE_HOME", "LANG", "TMPDIR")


class StepTimer:
    """One timer for all the steps of a worker: calls the last `look` that was set, at its time or earlier.

    Most steps end long before their time is up. So the timer is not set and cancelled for each: it stays where an
    earlier step set it, and when it goes off, the step that runs then looks at its own clock and sets it again."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self.look: Callable[[], None] | None = None  # None: the step has ended

    def set(self, when: float, look: Callable[[], None]) -> None:
        """Call `look` at `when` on the loop's clock or earlier, unless another one is set before."""
        self.look = look
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._go_off)

    def _go_off(self) -> None:
        self._timer = None
        if self.look is not None:
            self.look()


@dataclass(eq=False)
class Worker:
    """A worker process and our end of its socket."""

    pid: int
    link: WorkerLink
    ended: asyncio.Future[int]  # its exit code, negative for a signal
    protections: tuple[Protection, ...] = ()
    jobs: int = 0
    alive: bool = True
    timer: StepTimer = field(default_factory=StepTimer)
    # The scripts that it was sent, the longest unused first; the surface is held so that its id stays its own.
    scripts: dict[tuple[str, int, Limits], tuple[int, Surface]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def used_s(self) -> float:
        """Its processor time so far; nan, which is below no limit, if it is gone or the time cannot be read."""
        try:
            return time.clock_gettime(~self.pid << 3 | _USED)
        except OSError:
            return math.nan

    @property
    def usable(self) -> bool:
        """Whether its process lives, as far as the host knows."""
        return self.alive and not self.link.lost and not self.ended.done()

    def knows(self, job: Job) -> bool:
        """Whether its process lives and has the job's script."""
        return self.usable and (job.source, id(job.surface), job.limits) in self.scripts

    def message(self, job: Job, number: int, predicted: PredictedAnswer | None) -> bytes:
        """The frames that give it a job, after the script if it does not know that; they have to be sent."""
        key = job.source, id(job.surface), job.limits
        known, first = self.scripts.pop(key, None), b""
        if known is None:
            known = (next(self._numbers), job.surface)
            first = script_frame(known[0], job, self._forgotten_for(job))
        self.scripts[key] = known
        return first + job_frame(job, number, known[0], predicted)

    def _forgotten_for(self, job: Job) -> list[int]:
        """The scripts to forget so that another one fits, the longest unused first."""
        gone, characters = [], sum(len(source) for source, _, _ in self.scripts) + len(job.source)
        while self.scripts and (len(self.scripts) >= _SCRIPTS_MAX or characters > _SOURCES_MAX):
            key = next(iter(self.scripts))
            characters -= len(key[0])
            gone.append(self.scripts.pop(key)[0])
        return gone


@dataclass(eq=False)
class ForkServer:
    """One fork server process."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    _ready: asyncio.Future[None]
    _listener: asyncio.Task[None] | None = None
    _deaf: bool = False  # a message to it failed; it has ended, but that was not reported yet
    _requests: dict[int, asyncio.Future[tuple[int, asyncio.Future[int]]]] = field(default_factory=dict)
    _ended: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    async def start(cls) -> ForkServer:
        """Start the process and wait until it is ready."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = _spawn(theirs.fileno())
        server = cls(process, ours, asyncio.get_running_loop().create_future())
        server._listener = asyncio.create_task(server._listen())
        try:
            async with asyncio.timeout(_START_S_MAX):
                await server._ready
        except TimeoutError:
            await server.close()
            raise HostFault("The script runtime's fork server did not start: no answer.") from None
        except ProcessLost:
            await server.close()
            raise WorkerDied("The script runtime's fork server died as it started.") from None
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def alive(self) -> bool:
        """Whether it still listens."""
        return self._listener is not None and not self._listener.done() and not self._deaf

    async def fork(self) -> Worker:
        """A new worker, locked in and ready. Raises `ProcessLost`."""
        ours, theirs = socket.socketpair()
        try:
            async with asyncio.timeout(_FORK_S_MAX):
                with theirs:
                    pid, ended = await self._request(theirs)
                return await self._welcome(Worker(pid, await WorkerLink.over(ours), ended))
        except (TimeoutError, Garbled, OSError):
            ours.close()
            raise ProcessLost("a new worker did not answer") from None
        except BaseException:
            ours.close()
            raise

    async def _welcome(self, worker: Worker) -> Worker:
        try:
            worker.protections = _protections(await worker.link.receive(_READY_BYTES_MAX))
        except BaseException:
            self.kill(worker)
            raise
        return worker

    def kill(self, worker: Worker) -> None:
        """End a worker now, whatever it does."""
        if worker.alive:
            worker.alive = False
            worker.link.abort()
            with contextlib.suppress(OSError):
                self.control.send(f"K {worker.pid}\n".encode())

    async def close(self) -> None:
        """End the server and with it all workers."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        self.control.close()
        try:
            self.process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            self.process.kill()  # workers die with it (their sockets close, and they asked for the signal)
            await asyncio.to_thread(self.process.wait)

    async def _request(self, theirs: socket.socket) -> tuple[int, asyncio.Future[int]]:
        if not self.alive:
            raise ProcessLost("the fork server is gone")
        number = next(self._numbers)
        request: asyncio.Future[tuple[int, asyncio.Future[int]]] = asyncio.get_running_loop().create_future()
        self._requests[number] = request
        try:
            socket.send_fds(self.control, [f"F {number}\n".encode()], [theirs.fileno()])
            return await request
        except ConnectionError:
            self._deaf = True
            raise
        finally:
            del self._requests[number]

    async def _listen(self) -> None:
        buffer = b""
        try:
            while data := await asyncio.get_running_loop().sock_recv(self.control, 4096):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._hear(line.decode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            self._hear_no_more()

    def _hear(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        if verb == "R":
            self._ready.set_result(None)
        elif verb == "E":
            self._ready.set_exception(HostFault(rest))
        elif verb == "P":
            number, pid = map(int, rest.split())
            ended = self._ended[pid] = asyncio.get_running_loop().create_future()
            request = self._requests.get(number)
            if request is not None and not request.done():
                request.set_result((pid, ended))
            # Else the request was cancelled; its end of the socket is closed, and the worker ends by itself.
        elif verb == "X":
            pid, code = map(int, rest.split())
            if pid in self._ended:
                self._ended.pop(pid).set_result(code)

    def _hear_no_more(self) -> None:
        futures: list[asyncio.Future[Any]] = [self._ready, *self._requests.values(), *self._ended.values()]
        for future in futures:
            if not future.done():
                future.set_exception(ProcessLost("the fork server is gone"))
                future.exception()  # perhaps nothing waits for it


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # -P: the current directory, where scripts may lie, is no place to import from.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "keepai.runtime.javascript.fork_server", str(descriptor)],
        pass_fds=(descriptor,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": path},
    )


def _protections(frame: Frame) -> tuple[Protection, ...]:
    rows = frame.get("protections")
    if frame["t"] != "ready" or not isinstance(rows, list):
        raise Garbled("not ready")
    return tuple(Protection(str(name), bool(active), str(why)) for name, active, why in rows)
