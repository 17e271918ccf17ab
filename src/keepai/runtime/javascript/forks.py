"""The runtime's side of the fork server: start it, ask it for workers, have it kill them, hear how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field

from ...model.errors import HostFault
from .frames import HEADER, Frame, Garbled, unpack
from .harden import Protection

_START_S_MAX = 60.0  # the first start compiles the interpreter
_FORK_S_MAX = 10.0
_READY_BYTES_MAX = 64 << 10
#: What the server needs of the environment; nothing else of it, and so no secret, reaches a worker.
_ENVIRONMENT = ("HOME", "XDG_CACHE_HOME", "PATH", "LANG", "TMPDIR", "SYSTEMROOT")


class Lost(Exception):
    """A worker, or the server, is gone."""


@dataclass(eq=False)
class Worker:
    """A worker process and our end of its socket."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: asyncio.Future[int]  # its exit code, negative for a signal
    protections: tuple[Protection, ...] = ()
    jobs: int = 0
    alive: bool = True

    async def receive(self, bytes_max: int) -> Frame:
        """The next frame; `Garbled` if it is none, `Lost` if the worker is gone."""
        try:
            (length,) = HEADER.unpack(await self.reader.readexactly(HEADER.size))
            if length > bytes_max:
                raise Garbled(f"a frame of {length:,} bytes")
            return unpack(await self.reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise Lost from None

    async def send(self, data: bytes) -> None:
        """Send bytes; a worker that is gone shows on the next read."""
        with contextlib.suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()


@dataclass(eq=False)
class ForkServer:
    """One fork server process."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    _ready: asyncio.Future[None]
    _listener: asyncio.Task[None] | None = None
    _forked: asyncio.Future[int] | None = None
    _ended: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    _forking: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        except (TimeoutError, Lost) as error:
            await server.close()
            raise HostFault(f"The script runtime's fork server did not start: {error or 'no answer'}.") from None
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def alive(self) -> bool:
        """Whether it still listens."""
        return self._listener is not None and not self._listener.done()

    async def fork(self) -> Worker:
        """A new worker, locked in and ready. Raises `Lost`."""
        ours, theirs = socket.socketpair()
        with theirs:
            pid, ended = await self._request(theirs, ours)
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = Worker(pid, reader, writer, ended)
        try:
            async with asyncio.timeout(_FORK_S_MAX):
                worker.protections = _protections(await worker.receive(_READY_BYTES_MAX))
        except (TimeoutError, Garbled):
            self.kill(worker)
            raise Lost("a new worker did not answer") from None
        except BaseException:
            self.kill(worker)
            raise
        return worker

    def kill(self, worker: Worker) -> None:
        """End a worker now, whatever it does."""
        if worker.alive:
            worker.alive = False
            worker.writer.transport.abort()
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

    async def _request(self, theirs: socket.socket, ours: socket.socket) -> tuple[int, asyncio.Future[int]]:
        loop = asyncio.get_running_loop()
        async with self._forking:
            self._forked = loop.create_future()
            try:
                if not self.alive:
                    raise Lost("the fork server is gone")
                socket.send_fds(self.control, [b"F\n"], [theirs.fileno()])
                pid = await self._forked
            except (OSError, Lost):
                ours.close()
                raise Lost("the fork server is gone") from None
        return pid, self._ended.setdefault(pid, loop.create_future())

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
        elif verb == "P" and self._forked is not None and not self._forked.done():
            pid = int(rest)
            self._ended[pid] = asyncio.get_running_loop().create_future()
            self._forked.set_result(pid)
        elif verb == "X":
            pid, code = map(int, rest.split())
            ended = self._ended.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(code)

    def _hear_no_more(self) -> None:
        for future in (self._ready, self._forked, *self._ended.values()):
            if future is not None and not future.done():
                future.set_exception(Lost("the fork server is gone"))
                future.exception()  # nobody may be waiting for it


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # -P: the current directory, where scripts may lie, is no place to import from.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "keepai.runtime.javascript.server", str(descriptor)],
        pass_fds=(descriptor,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": path},
    )


def _protections(frame: Frame) -> tuple[Protection, ...]:
    rows = frame.get("protections")
    if frame["t"] != "ready" or not isinstance(rows, list):
        raise Garbled("not ready")
    return tuple(Protection(str(name), bool(active), str(why)) for name, active, why in rows)
