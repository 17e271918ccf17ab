"""The connection of one request: looks up its host, checks every address, and connects to a checked one.

It knows what decides between "it did not happen" and "it may have happened": whether any byte of the request was handed
to the connection. The bytes of a TLS handshake do not count. TLS is verified for the name of the host, not for its
address.
"""
# ruff: noqa: ASYNC109 (the library names the parameters)

from __future__ import annotations

import errno
import logging
import os
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2

from ...model.errors import ConnectorError, OutcomeUnknown, PreconditionFailed, Rejected, Transient
from .dns import Resolve, reachable
from .url_rules import Rules

logging.getLogger("httpcore2").setLevel(logging.WARNING)  # its debug lines contain the headers of answers


class CheckedConnection(httpcore2.AsyncNetworkBackend):
    """Connects within the rules, and remembers whether anything was sent."""

    def __init__(self, rules: Rules, resolve: Resolve, seconds: float) -> None:
        self.sent = False
        self._rules, self._resolve, self._seconds = rules, resolve, seconds
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first checked address that answers. The addresses share the time."""
        addresses = await reachable(host, port, self._rules.networks, self._resolve)
        for number, address in enumerate(addresses, 1):
            share = self._seconds / (len(addresses) - number + 2) if number < len(addresses) else None
            try:
                stream = await self._inner.connect_tcp(address, port, share, local_address, socket_options)
                return _WatchedStream(stream, self)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise AssertionError("unreachable: there is at least one address")

    def trouble(self, message: str, error: BaseException | None = None) -> ConnectorError:
        """The error that a broken request means."""
        if self.sent:
            return OutcomeUnknown(f"{message}. The request was sent at least in part; it may have been carried out.")
        if isinstance(error, httpcore2.LocalProtocolError):
            return Rejected(f"{message}. Nothing was sent.")
        if _certificate(error) is not None:
            return PreconditionFailed(f"{message}. Nothing was sent.")
        return Transient(f"{message}. Nothing was sent.")


class _WatchedStream(httpcore2.AsyncNetworkStream):
    """A stream that records when the first byte of the request may leave."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, wire: CheckedConnection) -> None:
        self._stream, self._wire = stream, wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._wire.sent = self._wire.sent or bool(buffer)
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _WatchedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._wire)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def reason(error: BaseException) -> str:
    """What went wrong. It never repeats the words of the server or the library, which may contain a header."""
    wrong = _certificate(error)
    if wrong is not None:
        return f"its certificate is not valid ({wrong.verify_message})"
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
            return os.strerror(cause.errno)
    if isinstance(error, httpcore2.LocalProtocolError):
        return "the request has a header or a path that HTTP does not allow"
    if isinstance(error, httpcore2.ConnectError):
        return "the connection could not be made"
    return "the connection ended before a whole answer came"


def _certificate(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    return next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLCertVerificationError)), None)


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    waiting = [error]
    while waiting and len(causes) < 20:
        cause = waiting.pop(0)
        if cause is not None and cause not in causes:
            causes.append(cause)
            inner = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
            waiting += [cause.__cause__, cause.__context__, *inner]
    return causes
