"""The seeds' webhook example (13.6.3): hosts are killed between a POST and its answer, and nobody can look it up.

`python -m tests.prove.webhook --kills 200 --seed 7` runs examples/webhook-relay.js in real hosts on one ledger, as
`tests/prove/killing` says. Its receiver takes whatever comes, twice if it comes twice, and writes it down. After every
kill the next host must hold the run and ask; a person finds on the card what it is about, looks at what the receiver
wrote down, and says what is true. Some hosts are killed again while they ask. `--known-by lookup` runs
examples/orders-to-books.js, whose service can be asked by a rule of keep.toml: there nobody has to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from keepai.app import Keep
from keepai.connectors import make
from keepai.connectors.base import Connector
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME, sign
from keepai.model.records import Escalation
from keepai.testing.loopback import HttpReply, Loopback, Request
from tests.prove.killing import EXAMPLES, Scene, kill, main
from tests.prove.torture import fork

JSON = {"Content-Type": "application/json"}
HERE = ["127.0.0.1"]


class Webhook(Scene):
    """Payments that come in, and a team that is told of them; or orders of a shop, and its books."""

    known = ("person", "lookup")

    @property
    def asks(self) -> bool:  # type: ignore[override]
        return self.known_by == "person"

    @contextlib.contextmanager
    def outside(self) -> Iterator[int]:
        assert os.waitpid(fork(self._fill), 0)[1] == 0
        hear, tell = os.pipe()
        service = fork(self._service, tell)
        try:
            yield int(os.read(hear, 16))
        finally:
            kill(service)
            os.close(hear)
            os.close(tell)

    async def send(self, data: bytes, reader: asyncio.StreamReader) -> bytes | None:
        if not data.startswith(b"POST "):
            return None
        while b"\r\n\r\n" not in data:
            data += await reader.read(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        return data + await reader.readexactly(int(length[1]) - len(body) if length else 0)

    async def answer(self, reader: asyncio.StreamReader) -> bytes:
        answer = await reader.read(-1)
        assert answer.startswith(b"HTTP/1.1 201 "), answer
        return answer

    def script(self, port: int) -> str:
        if self.asks:
            return (EXAMPLES / "webhook-relay.js").read_text("utf-8")
        script = (EXAMPLES / "orders-to-books.js").read_text("utf-8")
        return re.sub(r"https://(shop|books)\.example\.com", _url(port), script)

    def connectors(self, port: int) -> list[Connector]:
        url = _url(port)
        if self.asks:
            team = make("webhook", "team", {"url": f"{url}/in", "networks": HERE})
            team.entrust({"secret": "t"})
            return [self._payments(), team]
        rule = {"on": f"POST {url}/v1/entries", "url": f"{url}/v1/entries?key={{key}}", "match": "key"}
        settings = {"allow": [f"{url}/v1/"], "networks": HERE}
        return [make("http", "shop", settings), make("http", "books", {**settings, "lookup": [rule]})]

    async def done(self, keep: Keep, workflow_id: str) -> int:
        things = await (keep.inputs(workflow_id) if self.asks else keep.items(workflow_id))
        return sum(each.status == "done" for each in things)

    def happened(self, question: Escalation) -> bool:
        assert question.facts.get("connector_class") == "C", question
        told = re.search(r'"id": "(o\d+)"', str(question.facts["attempted"]))
        assert told, question
        return told[1] in self.effects()

    def effects(self) -> list[str]:
        log = self._log.read_text("utf-8") if self._log.exists() else ""
        return [json.loads(line)["order"] for line in log.splitlines()]

    @property
    def _log(self) -> Path:
        return self.folder / "effects.jsonl"

    def _payments(self) -> Inbox:
        inbox = Inbox(self.folder / "payments", create=True, per_minute=1_000_000, name="payments")
        inbox.entrust({"secret": "s"})
        return inbox

    def _fill(self) -> None:
        """Every payment comes in, signed."""
        async def main() -> None:
            inbox, seconds = self._payments(), int(time.time())
            for number in range(self.orders if self.asks else 0):
                id, body = f"d{number}", json.dumps({"data": {"id": f"o{number}", "amount": number}}).encode()
                signed = {ID: id, TIME: str(seconds), SIGNATURE: sign("s", id, seconds, body)}
                assert (await inbox.accept(signed, body)).status == 202

        asyncio.run(main())
        os._exit(0)

    def _service(self, tell: int) -> None:
        """Takes what it is told, as often as it is told it, and writes it down before it answers."""
        entries: list[dict[str, str]] = []
        orders = [{"id": f"o{n}", "customer": "Ann", "total": n} for n in range(self.orders)]
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def handle(request: Request) -> HttpReply:
            if request.method == "POST":
                body = request.json()
                key = request.headers.get("idempotency-key", "")
                entries.append({"order": body["data"]["id"] if self.asks else body["order"], "key": key})
                os.write(log, f"{json.dumps(entries[-1])}\n".encode())
                return HttpReply(201, entries[-1], JSON)
            if request.path == "/v1/orders":
                return HttpReply(200, {"data": orders}, JSON)
            return HttpReply(200, [each for each in entries if each["key"] == request.query["key"]], JSON)

        with Loopback(handle) as server:
            os.write(tell, server.url.rpartition(":")[2].encode())
            signal.pause()


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    sys.exit(main(Webhook, __doc__))
