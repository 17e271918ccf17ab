"""The host's end of the socket to one worker: bytes in, frames out, and a limit on what waits in memory.

asyncio's streams do the same with several objects and switches per frame; here a frame costs one wake-up. A read goes
into memory of our own: asyncio would ask for 256 KB anew each time, which costs five times as much as the read.
The worker is not trusted: a frame that is too long is refused, and what comes too early waits unread.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from .frames import HEADER, Frame, Garbled, parse_frame

_UNREAD_MAX = 256 << 10


class ProcessLost(Exception):
    """A worker, or the server, is gone."""


class WorkerLink(asyncio.BufferedProtocol):
    """Frames from and to a worker."""

    def __init__(self) -> None:
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._read = memoryview(bytearray(_UNREAD_MAX))
        self._unread = bytearray()
        self._unread_max = _UNREAD_MAX
        self._reading = True
        self.writing = True  # whether the worker reads what is sent
        self._woken: asyncio.Future[None] | None = None
        self._drained: list[asyncio.Future[None]] = []

    @classmethod
    async def over(cls, sock: socket.socket) -> WorkerLink:
        """A link over a connected socket."""
        _, link = await asyncio.get_running_loop().create_connection(cls, sock=sock)
        return link

    async def receive(self, bytes_max: int) -> Frame:
        """The next frame; `Garbled` if it is none, `ProcessLost` if the worker is gone."""
        unread = self._unread
        while True:
            if len(unread) >= HEADER.size:
                (length,) = HEADER.unpack_from(unread)
                if length > bytes_max:
                    raise Garbled(f"a frame of {length:,} bytes")
                end = HEADER.size + length
                if len(unread) >= end:
                    break
                self._read_up_to(end)
            if self.lost:
                raise ProcessLost
            woken = self._woken = asyncio.get_running_loop().create_future()
            await woken
        data = unread[HEADER.size : end]
        del unread[:end]
        if not self._reading or self._unread_max > _UNREAD_MAX:
            self._read_up_to(_UNREAD_MAX)
        return parse_frame(data)

    def send(self, data: bytes) -> None:
        """Send bytes; a worker that is gone shows on the next read."""
        if self._transport is not None and not self.lost:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the worker does not read what was sent."""
        while not self.writing and not self.lost:
            waiting = asyncio.get_running_loop().create_future()
            self._drained.append(waiting)
            await waiting

    def abort(self) -> None:
        """Give the socket up now."""
        if self._transport is not None:
            self._transport.abort()

    def _read_up_to(self, most: int) -> None:
        self._unread_max = max(most, _UNREAD_MAX)
        if not self._reading and len(self._unread) < self._unread_max and self._transport is not None and not self.lost:
            self._reading = True
            self._transport.resume_reading()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        self._unread += self._read[:nbytes]
        if len(self._unread) >= self._unread_max and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
        woken, self._woken = self._woken, None
        if woken is not None and not woken.done():
            woken.set_result(None)

    def eof_received(self) -> None:
        self._wake_all(lost=True)

    def connection_lost(self, _error: Exception | None) -> None:
        self._wake_all(lost=True)

    def pause_writing(self) -> None:
        self.writing = False

    def resume_writing(self) -> None:
        self.writing = True
        self._wake_all()

    def _wake_all(self, *, lost: bool = False) -> None:
        """Wake what waits to send, and if the worker is gone what waits to receive."""
        waiting, self._drained = self._drained, []
        if lost:
            self.lost = True
            if self._woken is not None:
                waiting.append(self._woken)
                self._woken = None
        for future in waiting:
            if not future.done():
                future.set_result(None)
