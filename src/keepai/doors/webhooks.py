"""The door for webhooks: `POST /hooks/NAME` brings a delivery to the connector of that name, and nothing else is there.

It listens beside the page and not on it: a webhook must be reachable from elsewhere, and the page must not. It reads no
ledger and starts no run; a delivery is on disk before its sender gets a 2xx, and a producer finds it there.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType

from starlette.types import Receive, Scope, Send

from ..app import place_deliveries
from ..config import Settings
from ..connectors.base import Connector
from ..connectors.webhook.base import Deliveries, carry
from ..connectors.webhook.inbox import Inbox, Receipt
from ..ledger.opening import inboxes as held
from ..ledger.opening import open_deliveries
from ..model.clock import Clock, SystemClock
from ..model.errors import ConfigError
from ..model.ledger_address import is_address
from .connections import listening
from .http_server import HttpServer, http_bounds

PREFIX = "/hooks/"


class WebhookPort:
    """Takes deliveries in while it is entered; without a connector that wants any, it listens nowhere."""

    def __init__(self, settings: Settings) -> None:
        self.inboxes = inboxes(settings)
        self._host, self._asked_port = settings.hooks
        self._policy = settings.policy
        self.port: int | None = None

    @property
    def origin(self) -> str | None:
        """Where deliveries go; None if nowhere."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}{PREFIX}" if self.port else None

    async def __aenter__(self) -> WebhookPort:
        if self.inboxes:
            listener = _listener(self._host, self._asked_port)
            self.port = listener.getsockname()[1]
            bounds = http_bounds("The webhook port", self._policy)
            self._server = HttpServer(WebhookApp(self.inboxes), [listener], bounds)
            self._server.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        if self.port is not None:
            await self._server.end()


def inboxes(settings: Settings) -> dict[str, Inbox]:
    """The connectors that take deliveries in, by their names."""
    if not settings.connectors:
        return {}
    return {each.name: each for each in settings.connectors if isinstance(each, Inbox)}


@contextmanager
def deliveries_placed(connectors: Sequence[Connector], ledger: str | Path) -> Iterator[None]:
    """Have connectors know where deliveries are kept while they are tried without a host."""
    place_deliveries(connectors, ledger, SystemClock())
    try:
        yield
    finally:
        for each in connectors:
            if isinstance(each, Inbox):
                each.close()


def carry_deliveries(connectors: Iterable[Connector], there: str | Path, here: str | Path, clock: Clock) -> None:
    """Bring the deliveries along when a ledger moves: beside a file they are in folders, else in the database."""
    known = {each.name: each for each in connectors if isinstance(each, Inbox)}
    if is_address(there):
        for name in held(str(there)):
            with closing(open_deliveries(str(there), name, 0, clock)) as source:
                _carry(source, known.get(name), name, here, clock)
    elif is_address(here):
        for name, inbox in known.items():
            if inbox.deliveries is not None:
                _carry(inbox.deliveries, inbox, name, here, clock)


def _carry(source: Deliveries, inbox: Inbox | None, name: str, here: str | Path, clock: Clock) -> None:
    if is_address(here):
        with closing(open_deliveries(str(here), name, 0, clock)) as target:
            carry(source, target)
    elif inbox is not None and inbox.deliveries is not None:
        carry(source, inbox.deliveries)
    elif source.after("", 1)[0]:
        told = f'[connectors.{name}] with type = "webhook.inbox" and a path'
        raise ConfigError(f"Deliveries to ctx.{name} would be left behind: no folder is configured. Add {told}.")


class WebhookApp:
    """One route, and short answers."""

    def __init__(self, inboxes: Mapping[str, Inbox]) -> None:
        self._inboxes = inboxes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, said, retry = await self._judged(scope, receive)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"),
                   (b"x-content-type-options", b"nosniff")]
        if retry is not None:
            headers.append((b"retry-after", str(retry).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(said).encode() if said else b""})

    async def _judged(self, scope: Scope, receive: Receive) -> tuple[int, dict[str, str], int | None]:
        path = str(scope["path"])
        inbox = self._inboxes.get(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else None
        if inbox is None:
            return 404, _told("nothing is here"), None
        if scope["method"] != "POST":
            return 405, _told("only POST"), None
        body = await _body(receive, inbox.bytes_max)
        if body is None:
            return 413, _told(f"a delivery has at most {inbox.bytes_max:,} bytes"), None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        receipt: Receipt = await inbox.accept(headers, body)  # of a header that comes twice, the last counts
        said = _told(receipt.text) if receipt.challenge is None else {"challenge": receipt.challenge}
        return receipt.status, said, receipt.retry_after_s


def _told(text: str) -> dict[str, str]:
    """The answer in words; without any it is empty."""
    return {"told": text} if text else {}


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if it is too large, or never came whole."""
    found = bytearray()
    while True:
        message = await receive()
        found += message.get("body", b"")
        if len(found) > most or message["type"] == "http.disconnect":
            return None
        if not message.get("more_body"):
            return bytes(found)


def _listener(host: str, port: int) -> socket.socket:
    try:
        return listening(host, port)
    except OSError as error:
        told = f"Webhooks cannot be taken in on {host}, port {port}: {error.strerror}. Name another in [keep] hooks."
        raise ConfigError(told) from None
