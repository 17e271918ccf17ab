"""Orders, big ones of which wait for a person, on a host that is killed again and again.

`python -m tests.prove.orders --small 1000 --kills 100 --seed 7`: all small orders are booked while three big ones wait;
then these are approved, one after the other. Each order is booked once, and those of one customer in their order.
The host is a process of its own, killed with SIGKILL after random times; what was booked stands in a file of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keepai import Call, Connector, Keep, Verdict, mutation, read
from keepai.ledger.invariants import check_invariants
from tests.folders import memory_folder
from tests.harness import consumer, producer, workflow
from tests.ledger.stores import reads

BIG = 3
GRANTS = {"shop.list": "allow", "shop.book": {"mode": "allow", "ask_when": ["amount > 1000"]}}
POLL = """
  for (const order of (await ctx.shop.list({})).slice(state?.seen ?? 0)) {
    const inputId = ctx.registerInput({ source: "shop", type: "order", id: order.id, title: order.id });
    await ctx.publish("in", { messageId: order.id, inputId, payload: order });
  }
  return { seen: (await ctx.shop.list({})).length };
"""
BOOK = "const { id, amount, customer } = prepared.data.payload; await ctx.shop.book({ id, amount, customer });"


class Shop(Connector):
    """Orders in one file, what was booked in another."""

    name = "shop"
    input_types = ("order",)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._orders, self._booked = folder / "orders.json", folder / "booked"

    @read
    async def list(self, params: dict[str, Any], call: Call) -> Any:
        """Every order."""
        return json.loads(self._orders.read_text("utf-8"))

    @mutation(identity=("id",), target="customer", settle=0)
    async def book(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        """Book one; a kill may come before it, in its midst and after it."""
        await asyncio.sleep(random.random() / 500)
        with self._booked.open("a", encoding="utf-8") as file:
            file.write(json.dumps([call.idempotency_key, params["id"], params["customer"]]) + "\n")
        await asyncio.sleep(random.random() / 500)
        return {"id": params["id"]}

    @book.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        """Whether it stands in the file."""
        found = [each for each in booked(self._booked) if each[0] == call.idempotency_key]
        return Verdict.applied({"id": params["id"]}) if found else Verdict.failed()


def booked(file: Path) -> list[list[str]]:
    """What was booked: key, order and customer."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


async def host(folder: Path, *, approves: bool) -> None:
    """One life of the host; it ends when nothing is left to do."""
    async with Keep(folder / "keep.db", connectors=[Shop(folder)]) as keep:
        if not await keep.workflows():
            source = workflow("orders", producers={"poll": producer(POLL)}, consumers={"book": consumer(mutate=BOOK)})
            done = await keep.deploy(source, grants=GRANTS)
            await keep.set(done.workflow_id, "others")
        await keep.run_until_idle()
        while approves and (asked := await keep.needs_you()):
            await keep.approve(asked[0].id)
            await keep.run_until_idle()
        if any(run.status == "paused:transient" for run in await keep.runs("orders")):
            raise SystemExit(3)  # it goes on after a while
        assert [str(each) for each in check_invariants(reads(keep.parts.ledger))] == []


def live(folder: Path, mode: str, after_s: float | None) -> bool:
    """One life, ended after a while; True if it ended by itself."""
    process = subprocess.Popen([sys.executable, "-m", "tests.prove.orders", "--host", str(folder), mode])
    try:
        code = process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return False
    assert code in (0, 3), f"the host ended with {code}"
    if code == 3:
        time.sleep(1)
    return code == 0


def phase(folder: Path, mode: str, kills: int, chance: random.Random) -> int:
    """Lives until the last one ends by itself; how many were killed."""
    for killed in range(kills):
        if live(folder, mode, 0.4 + chance.random() * 1.2):
            return killed
    while not live(folder, mode, None):
        continue
    return kills


def main(args: Sequence[str] | None = None) -> int:
    """1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host", nargs=2, metavar=("FOLDER", "MODE"), help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    if given.host:
        asyncio.run(host(Path(given.host[0]), approves=given.host[1] == "approves"))
        return 0
    chance = random.Random(given.seed)
    orders = [{"id": f"s{n}", "amount": n % 1000, "customer": f"c{n}"} for n in range(given.small)]
    for n in range(BIG):  # each with a small one of the same customer behind it
        at = chance.randrange(len(orders))
        orders[at:at] = [{"id": f"big{n}", "amount": 5000, "customer": f"b{n}"}]
        orders.append({"id": f"after{n}", "amount": 1, "customer": f"b{n}"})
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        folder = Path(name)
        (folder / "orders.json").write_text(json.dumps(orders), "utf-8")
        killed = phase(folder, "waits", given.kills * 3 // 4, chance)
        first = Counter(order for _, order, _ in booked(folder / "booked"))
        assert first == Counter(f"s{n}" for n in range(given.small)), f"{first.total()} were booked before an answer"
        killed += phase(folder, "approves", given.kills - killed, chance)
        found = booked(folder / "booked")
        assert Counter(order for _, order, _ in found) == Counter(order["id"] for order in orders)
        for n in range(BIG):
            assert [order for _, order, customer in found if customer == f"b{n}"] == [f"big{n}", f"after{n}"]
    print(f"{given.small:,} small orders were booked while {BIG} big ones waited; {killed} kills; each order once.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
