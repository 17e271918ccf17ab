"""The port for machines that watch a host: whether it lives, whether it is ready, and its metrics. Nobody signs in.

`/healthz` says whether a restart would help, `/readyz` whether the host runs workflows, `/metrics` what Prometheus
reads. Nothing else is there, and nothing that came from outside is shown, but for the names of workflows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType

from starlette.types import Receive, Scope, Send

from ..app import Keep
from ..config import Settings
from ..model.errors import LedgerError
from ..reading.look import LastingLook, Look
from ..reading.metrics import Metrics
from .http_server import HttpServer, http_bounds, listening_at

#: Status, text and its type.
_Answer = tuple[int, str, str]
_PLAIN = "text/plain; charset=utf-8"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class ProbePort:
    """Answers while it is entered."""

    def __init__(self, keep: Keep, settings: Settings, address: tuple[str, int]) -> None:
        self._keep, self._policy, self._address = keep, settings.policy, address
        self._look = LastingLook(settings.ledger, settings.policy, keep)
        self._metrics: Metrics | None = None
        self._one_at_a_time = asyncio.Lock()  # the look and the counts are for one thread
        self._routes: Mapping[str, Callable[[], Awaitable[_Answer]]] = {
            "/healthz": self._health, "/readyz": self._readiness, "/metrics": self._measured}

    async def __aenter__(self) -> ProbePort:
        listener, self.origin = listening_at(self._address, "The probes", "probes")
        await asyncio.to_thread(self._look.ask, self._count_from_here)
        self._server = HttpServer(self._app, [listener], http_bounds("The probe port", self._policy))
        self._server.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        await self._server.end()
        self._look.close()

    def _count_from_here(self, look: Look) -> None:
        self._metrics = Metrics(look.read, self._keep.parts.ledger.host)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._routes.get(str(scope["path"])) if scope["method"] in ("GET", "HEAD") else None
        status, text, kind = await answer() if answer else (404, "nothing is here\n", _PLAIN)
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store"),
                   (b"x-content-type-options", b"nosniff")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode() if scope["method"] == "GET" else b""})

    async def _health(self) -> _Answer:
        why = self._keep.parts.ledger.stopped()
        return (503, f"{why}\n", _PLAIN) if why else (200, "ok\n", _PLAIN)

    async def _readiness(self) -> _Answer:
        sharing = self._keep.parts.ledger.sharing
        why = self._keep.parts.ledger.stopped() or (sharing.lost() if sharing else None)
        if self._keep.host.drains.is_set():
            why = why or "The host hands over its work and ends."
        try:
            await self._keep.version()
        except LedgerError as error:
            why = why or error.message
        return (503, f"{why}\n", _PLAIN) if why else (200, "ready\n", _PLAIN)

    async def _measured(self) -> _Answer:
        metrics = self._metrics
        assert metrics is not None, "counted since it was entered"
        async with self._one_at_a_time:
            try:
                text = await asyncio.to_thread(
                    self._look.ask, lambda look: metrics.text(look.read, look.views, self._keep.parts.clock.now_ms()))
            except LedgerError as error:
                return 503, f"{error.message}\n", _PLAIN
        return 200, text, _PROMETHEUS
