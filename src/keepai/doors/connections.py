"""Accepts connections for the page, the webhook port and the control socket, so that idle ones starve nobody.

Each of them has an `Acceptor`: it holds a bounded number of connections, a bounded number of them from one address, and
leaves descriptors for the host's own work. A request must be whole within a time. When there is no room, one that has
sent no whole request is closed for the new one: first those that have sent nothing, of the address that has most of
them, the oldest. One that is being answered is never closed for another.

asyncio's own servers accept whatever comes, and log each failure to accept, thousands in a second.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

BACKLOG = 256  #: connections that the system holds until we accept them
PAUSE_S = 0.5  #: after a connection could not be accepted
UNREAD_S = 30.0  #: for which a receiver may leave a full buffer unread
RESERVE_MAX = 256  #: descriptors for the host's own work, where there are that many

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_LOG = logging.getLogger(__name__)
_NUMBERS = count()
_OPEN: set[Acceptor] = set()


class Progress(IntEnum):
    """How much of a request has come. The lower, the sooner a connection is closed to make room."""

    SILENT = 0  # nothing since it was opened, or since the last answer
    HEAD = 1
    BODY = 2
    WHOLE = 3  # it is being answered


@dataclass(frozen=True)
class ConnectionLimits:
    """What one acceptor allows."""

    name: str  # such as "the page"; stands in log lines
    total: int  # connections at one time
    per_address: int
    request_s: float  # in which the head of a request must have come, and then again its body
    spare: int  # descriptors that it leaves free
    refusal: bytes  # what a connection is sent for which there is no room


def descriptors() -> tuple[int | None, int]:
    """How many descriptors this process may have, None if any number; and how many are for the host's own work."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return None, 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return None, 0
    return limit, min(RESERVE_MAX, limit // 2)


def shortage() -> str | None:
    """What to do if this process may have so few descriptors that a busy host would run out."""
    limit, reserve = descriptors()
    if limit is None or reserve >= RESERVE_MAX:
        return None
    return (f"This process may open {limit:,} files and connections, which is few: the page and the webhook port stop "
            f"taking connections when {reserve:,} are left. Allow {4 * RESERVE_MAX:,} (ulimit -n, or LimitNOFILE= of a "
            "service).")


def network_of(host: str) -> str:
    """What counts as one sender: an IPv4 address, or an IPv6 network, of which one machine may have every address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; those who come before it is served wait."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # asyncio sends small answers at once only if the protocol is named; else the second of two waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class Connection:
    """One accepted connection: how far its request is, and until when it must have come further."""

    def __init__(self, acceptor: Acceptor, address: str) -> None:
        self._acceptor, self.address = acceptor, address
        self._loop = asyncio.get_running_loop()
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._is_over = False
        self.transport: asyncio.BaseTransport | None = None
        self.on_late: Callable[[], None] = self.close
        self._enter(Progress.SILENT)

    def reached(self, progress: Progress) -> None:
        """The request has come this far; waiting for a head, and for a body, has a time of its own."""
        if progress is not self.progress and not self._is_over:
            self._enter(progress)

    def _enter(self, progress: Progress) -> None:
        self.progress, self.since = progress, next(_NUMBERS)
        if progress is Progress.HEAD:
            return  # its time began when the connection fell silent
        if self._late:
            self._late.cancel()
        waits = progress is not Progress.WHOLE
        self._late = self._loop.call_later(self._acceptor.bounds.request_s, self._expire) if waits else None

    def _expire(self) -> None:
        self.on_late()  # which may have been set after this was planned

    def full(self) -> None:
        """What we send is not read; that has a time, too."""
        self._unread = self._loop.call_later(UNREAD_S, self.close)

    def flows(self) -> None:
        """What we send is read."""
        if self._unread:
            self._unread.cancel()
            self._unread = None

    def close(self) -> None:
        """Close at once, whatever was not sent yet."""
        self.ended()
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    def ended(self) -> None:
        """It is closed, and what it asked for is done."""
        self._is_over = True
        self.flows()
        if self._late:
            self._late.cancel()
        self._acceptor.held.discard(self)


def _descriptors_used(newest: socket.socket) -> int:
    """How many this process has; where the system does not list them, at least as many as are below the newest."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # one was open for listing them
    except OSError as error:
        return sys.maxsize if error.errno in _NO_DESCRIPTOR else newest.fileno() + 1


async def _readable(listener: socket.socket) -> None:
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listener)


def _all_held() -> list[Connection]:
    return [each for acceptor in _OPEN for each in acceptor.held]


class Acceptor:
    """Accepts what comes to some listeners; `make` gives the protocol that serves a connection.

    The protocol says how far the request is (`Connection.reached`) and when the connection has ended.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], bounds: ConnectionLimits,
        make: Callable[[Connection], asyncio.Protocol],
    ) -> None:
        self._listeners, self.bounds, self._make = listeners, bounds, make
        self.held: set[Connection] = set()
        limit, _ = descriptors()
        self._descriptors_max = None if limit is None else limit - bounds.spare

    def start(self) -> None:
        """Accept until `close`."""
        for listener in self._listeners:
            listener.setblocking(False)
            listener.listen(BACKLOG)
        self._accepting = [asyncio.ensure_future(self._accept(each)) for each in self._listeners]
        _OPEN.add(self)

    async def close(self) -> None:
        """Accept nothing more; what is held stays open."""
        _OPEN.discard(self)
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.wait(self._accepting)
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await _readable(listener)  # in that time what others have sent is read, too
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    self._make_room(_all_held(), "the host has no descriptor left")
                else:
                    _LOG.error("%s cannot take a connection: %s.", self.bounds.name, error.strerror)
                await asyncio.sleep(PAUSE_S)
                continue
            await self._admit(sock, network_of(peer[0]) if isinstance(peer, tuple) else "")

    async def _admit(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        if not self._has_room(sock, address):
            self._turn_away(sock)
            return
        connection = Connection(self, address)
        self.held.add(connection)
        try:
            connection.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(connection), sock)
        except OSError:  # it is gone already
            sock.close()
        finally:
            if connection.transport is None:
                connection.ended()

    def _has_room(self, sock: socket.socket, address: str) -> bool:
        """Whether one more may be held; if need be, one that waits is closed for it."""
        own = [each for each in self.held if each.address == address]
        if len(own) >= self.bounds.per_address:
            return self._make_room(own, "one address has as many connections as it may have")
        if len(self.held) >= self.bounds.total:
            return self._make_room(self.held, "it has as many connections as it may have")
        if self._descriptors_max is not None and _descriptors_used(sock) > self._descriptors_max:
            return self._make_room(_all_held(), "the host has few descriptors left")
        return True

    def _make_room(self, among: Iterable[Connection], why: str) -> bool:
        waiting = [each for each in among if each.progress is not Progress.WHOLE and each.transport]
        if not waiting:
            _LOG.warning("%s turned a connection away: %s, and all are being answered.", self.bounds.name, why)
            return False
        _LOG.warning("%s closed a connection without a whole request, for another one: %s.", self.bounds.name, why)
        of_address = Counter(each.address for each in waiting)
        min(waiting, key=lambda each: (each.progress, -of_address[each.address], each.since)).close()
        return True

    def _turn_away(self, sock: socket.socket) -> None:
        try:
            sock.send(self.bounds.refusal)
        except OSError:
            pass
        sock.close()


#: Serves one connection, which is closed after it.
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class WatchedWriting(asyncio.BaseProtocol):
    """Tells a connection whether the other side reads what it is sent."""

    _connection: Connection

    def pause_writing(self) -> None:
        """The other side does not read."""
        super().pause_writing()
        self._connection.full()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._connection.flows()


class StreamProtocol(WatchedWriting, asyncio.StreamReaderProtocol):
    """Gives a connection to a coroutine, as asyncio's servers do; `end` stands at the end of a request."""

    def __init__(self, connection: Connection, serve: Serve, end: bytes, bytes_max: int) -> None:
        self._connection, self._serve, self._end = connection, serve, end
        self._last, self._is_served, self._is_lost = b"", False, False
        super().__init__(asyncio.StreamReader(limit=bytes_max), self._begin)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving = asyncio.ensure_future(self._served(reader, writer))

    def data_received(self, data: bytes) -> None:
        """Something came."""
        super().data_received(data)
        seen = self._last + data
        self._last = seen[-len(self._end):]
        if self._connection.progress is not Progress.WHOLE:
            self._connection.reached(Progress.WHOLE if self._end in seen else Progress.HEAD)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            self._is_served = True
            writer.close()
            self._connection.reached(Progress.SILENT)  # if it does not read the answer, it is closed after a while
            self._end_if_over()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone; what it asked for is still done."""
        super().connection_lost(exc)
        self._is_lost = True
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_served and self._is_lost:
            self._connection.ended()
