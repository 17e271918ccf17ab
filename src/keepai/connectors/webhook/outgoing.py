"""`ctx.<name>.send`: a signed POST to one URL. The receiver cannot be asked what it got, so Keep cannot resolve an
unknown outcome by itself.

The header `webhook-id` carries the idempotency key, so that a receiver can drop what it gets twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from ...model.clock import Clock, SystemClock
from ..base import Call, Connector, mutation
from ..egress import Client, Rules
from ..egress.url_rules import host_of
from ..http.statuses import check_applied
from .signature import ID, SIGNATURE, TIME, sign


class SendEvent(TypedDict):
    """The event to send: its kind, and its data."""

    event: str
    data: NotRequired[Any]


class WebhookResult(TypedDict):
    """The answer of the receiver."""

    status: int


class Webhook(Connector):
    """Sends events to one URL: `type = "webhook"`.

    url: the URL of the receiver
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    signed: whether events are signed with the secret
    certificates: a file of authorities to trust besides those of the system
    """

    secrets: Mapping[str, str] = MappingProxyType({  # type: ignore[misc]
        "secret": "The secret with which the receiver checks signatures",
    })

    def __init__(
        self, url: str, *, networks: list[str] | None = None, signed: bool = True,
        certificates: str | os.PathLike[str] | None = None, name: str | None = None, clock: Clock | None = None,
    ) -> None:
        super().__init__(name=name)
        trusted = os.fspath(certificates) if certificates is not None else None
        self.client = Client(Rules.under([url], networks or (), certificates=trusted))
        self._url, self._signed, self._clock = url, signed, clock or SystemClock()
        self._host = host_of(self.client.rules.check(url))
        self.account = self._host
        if not signed:
            self.secrets = {}

    async def check(self) -> str:
        """Check that the secret exists. The receiver is not asked, because every request to it counts as an event."""
        if self._signed:
            self.secret("secret")
        return "every request to a webhook counts as an event for its receiver"

    @mutation(identity=("event",), target="event")
    async def send(self, params: SendEvent, call: Call) -> WebhookResult:
        """Send it."""
        seconds = self._clock.now_ms() // 1000
        event = {"type": params["event"], "timestamp": seconds, "data": params.get("data")}
        body = json.dumps(event, ensure_ascii=False, allow_nan=False).encode()
        headers = {"Content-Type": "application/json", ID: call.idempotency_key, TIME: str(seconds)}
        if self._signed:
            headers[SIGNATURE] = sign(self.secret("secret"), call.idempotency_key, seconds, body)
        answer = await self.client.send("POST", self._url, call, headers=headers, content=body)
        check_applied("POST", self._host, answer)
        return {"status": answer.status}

    @send.preview
    def say(self, params: SendEvent) -> str:
        """The whole event."""
        data = json.dumps(params.get("data"), ensure_ascii=False, indent=2)
        return f"Send to {self._host}: {params['event']}\n{data}"
