"""`ctx.<name>.send`: a POST to one URL, signed. Nobody can ask the receiver what it got: an unknown outcome stays one.

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
    """What to tell: which kind of thing happened, and what."""

    event: str
    data: NotRequired[Any]


class WebhookResult(TypedDict):
    """What the receiver said."""

    status: int


class Webhook(Connector):
    """Tells one URL what happened: `type = "webhook"`.

    url: where to
    networks: special networks that may be connected to nevertheless, such as 10.1.0.0/16
    signed: whether it is signed with the secret
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
        """See that the secret is there; the receiver is not asked, because any request to it means something."""
        if self._signed:
            self.secret("secret")
        return "any request to a webhook means something to its receiver"

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
        """What is told, in full."""
        return f"Tell {self._host}: {params['event']}\n{json.dumps(params.get('data'), ensure_ascii=False, indent=2)}"
