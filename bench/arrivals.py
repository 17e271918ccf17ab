"""How long a delivery waits at an idle host: from the first byte of the request to the call that it leads to.

    python bench/arrivals.py [--times 300] [--ledger postgresql://…] [--json]

Deliveries come one at a time, signed, over loopback to the real webhook port, and each waits until the host has been
idle again. The clock starts in the sender, before it connects, and stops where the connector's mutation begins: in
between a delivery is checked and put on disk, a producer reads it and publishes an event, a consumer prepares, and the
mutation is recorded on disk. Both schedules are an hour away. Without `--ledger` the ledger is a file.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from keepai import Call, Connector, Keep, mutation
from keepai.config import Settings
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.signature import ID, SIGNATURE, TIME, sign
from keepai.doors.webhooks import WebhookPort

SECRET = "a secret of the bench"
IDLE_S = 0.1  # for so long nothing happens before a delivery
SCRIPT = """
export default Keep.workflow({
  name: "arrivals", topics: { "order.received": {} },
  producers: { orders: {
    publishes: ["order.received"], schedule: { interval: "1h" },
    async handler(ctx, state) {
      const found = await ctx.orders.list({ after: state?.after });
      for (const each of found) {
        const inputId = ctx.registerInput({ source: "orders", type: "delivery", id: each.id, title: each.id });
        await ctx.publish("order.received", { messageId: each.id, inputId, payload: each.body });
      }
      return { after: found.lastCursor };
    },
  } },
  consumers: { book: Keep.consumer({
    subscribe: ["order.received"], publishes: [],
    async prepare(ctx) {
      const [event] = await ctx.peek("order.received");
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "order.received", ids: [event.messageId] }], data: event,
               ui: { title: event.messageId } };
    },
    async mutate(ctx, { data }) { await ctx.books.book({ order: data.messageId }); },
  }) },
});
"""


class Books(Connector):
    """Notes when each order arrives at it."""

    def __init__(self) -> None:
        super().__init__()
        self.booked: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    @mutation(identity=("order",))
    async def book(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        """The moment that counts."""
        self.booked.put_nowait((params["order"], time.perf_counter()))
        return {}


def deliver(port: int, id: str) -> tuple[float, int]:
    """Send one delivery; when it began, and the status of the answer."""
    body, seconds = b'{"amount": 7}', int(time.time())
    headers = {ID: id, TIME: str(seconds), SIGNATURE: sign(SECRET, id, seconds, body)}
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/hooks/orders", body, headers)
    status = connection.getresponse().status
    connection.close()
    return began, status


async def measure(ledger: str | Path, folder: Path, times: int) -> list[float]:
    """The milliseconds that each delivery took."""
    books, inbox = Books(), Inbox(folder / "orders", create=True, name="orders", per_minute=1_000_000)
    inbox.entrust({"secret": SECRET})
    found = []
    async with (
        Keep(ledger, connectors=[inbox, books]) as keep,
        WebhookPort(Settings(connectors=(inbox,), hooks=("127.0.0.1", 0))) as hooks,
    ):
        await keep.deploy(SCRIPT, grants="all")
        await keep.run_until_idle()
        serving = asyncio.ensure_future(keep.serve())
        for number in range(-3, times):  # the first ones start the sandbox
            await asyncio.sleep(IDLE_S)
            assert hooks.port is not None
            began, status = await asyncio.to_thread(deliver, hooks.port, f"order {number}")
            booked, at = await asyncio.wait_for(books.booked.get(), 60)
            assert (status, booked) == (202, f"order {number}")
            found.append((at - began) * 1000)
        await keep.host.close()
        await serving
    return found[3:]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--ledger")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = sorted(asyncio.run(measure(args.ledger or Path(folder, "keep.db"), Path(folder), args.times)))
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    figures = {"times": len(found), "p50_ms": cuts[49], "p90_ms": cuts[89], "p99_ms": cuts[98], "most_ms": found[-1]}
    if args.json:
        print(json.dumps(figures))
    else:
        print(f"{figures['times']} deliveries, from the request to the call that it leads to: "
              f"half within {figures['p50_ms']:.1f} ms, 90 % within {figures['p90_ms']:.1f} ms, "
              f"99 % within {figures['p99_ms']:.1f} ms, all within {figures['most_ms']:.1f} ms")


if __name__ == "__main__":
    main()
