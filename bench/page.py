"""How long the page's addresses take over a big ledger, while its host works beside.

    python bench/page.py [--inputs 200000] [--times 5] [--json]

The ledger has that many inputs and events and half as many runs and outputs, copied by SQL from rows that a host wrote,
in one workflow; another workflow keeps the host busy with real runs in the sandbox all the time. Requests go through
the real server on loopback, one after the other. The style sheet, which reads nothing, is the calibration.
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

import apsw
from keep_side import SCRIPT, Sheets

from keepai import Connector, Keep, Page, read
from keepai.config import Settings
from keepai.doors.web.page_server import PageServer
from keepai.model.ids import text_of

#: The copies are of the last 22 hours: the ids of a kind sort by the time that is in them.
_BEGAN_MS, _STEP_MS = int(time.time() * 1000) - 22 * 3_600_000, 390


def _at(k: str) -> str:
    return f"({_BEGAN_MS} + ({k}) * {_STEP_MS})"


def _id(kind: int, k: str = "k") -> str:
    """An id in SQL; it ends in 16 bits of chance and four of its kind."""
    return f"(({_at(k)} << 20) | {kind})"


def _id_of(kind: int, k: int) -> str:
    return text_of((_BEGAN_MS + k * _STEP_MS << 20) | kind)


_COPIES = """
  with recursive n (k) as (select 1 union all select k + 1 from n where k < {count})
  insert into {table} ({columns}) select {values} from n, (select * from {table} where {where} limit 1) as t
"""
#: Table → which row is copied, and what is different in the copy number k.
_TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "input": ("source = 'mail'", {
        "seq": "1000000 + k * 5", "id": _id(5), "external_id": "'x' || k",
        "title": "'Mail of person ' || (k % 977) || ': invoice ' || k", "created_at": _at("k")}),
    "event": ("topic = 'mail.received' and status = 'consumed'", {
        "seq": "1000001 + k * 5", "id": _id(4), "message_id": "'x' || k", "created_at": _at("k")}),
    "event_cause": ("1", {"event_id": _id(4), "input_id": _id(5)}),
    "run": ("kind = 'consumer' and status = 'committed' and outcome is not null", {
        "seq": "1000002 + k * 10", "id": _id(3), "lineage": _id(3), "created_at": _at("k")}),
    "reservation": ("1", {
        "run_id": _id(3), "event_id": _id(4, "k * 2"), "message_id": "'x' || (k * 2)"}),
    "mutation": ("status = 'applied'", {
        "seq": "1000003 + k * 10", "id": _id(6), "run_id": _id(3), "lineage": _id(3),
        "mutation_key": "cast('key ' || k as blob)", "idempotency_key": "'key ' || k",
        "created_at": _at("k")}),
}
_HALF = ("run", "reservation", "mutation")


def grow(path: Path, count: int) -> None:
    """Copy rows until there are so many inputs; triggers are put back when a host opens the file."""
    connection = apsw.Connection(str(path))
    connection.execute("pragma foreign_keys = off")
    for (name,) in connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
        connection.execute(f"drop trigger {name}")
    with connection:
        for table, (where, other) in _TABLES.items():
            columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
            connection.execute(_COPIES.format(
                table=table, where=where, count=count // 2 if table in _HALF else count, columns=", ".join(columns),
                values=", ".join(other.get(column, f"t.{column}") for column in columns)))
        connection.execute("update workflow set sequence = ? where name = 'big'", (1_000_010 + count * 5,))
    connection.close()


def addresses(wf: str, run: str) -> list[str]:
    """What is measured."""
    lists = [f"/workflows/{wf}/{name}" for name in ("inputs", "outputs", "runs")]
    everything = ["/", "/inputs", "/outputs", "/runs", "/search?text=invoice+7", "/needs-you"]
    found = [*everything, *lists, *(f"{each}?before=1400000" for each in lists), f"{lists[0]}?status=pending",
             f"{lists[0]}?text=invoice+7", f"{lists[0]}?text=nowhere", f"{lists[1]}?status=failed"]
    things = [f"/inputs/{_id_of(5, 42)}", f"/outputs/{_id_of(6, 42)}", f"/runs/{run}"]
    return [*found, *things, f"/workflows/{wf}", f"/workflows/{wf}/events"]


class Inbox(Connector):
    """A mailbox that gets more mail whenever somebody says so."""

    input_types = ("email",)

    def __init__(self) -> None:
        super().__init__(name="mail")
        self._count = 0

    def put(self, more: int) -> None:
        """Some mails come in."""
        self._count += more

    @read
    async def search(self, params, call):  # type: ignore[no-untyped-def]
        numbers = range(int((params or {}).get("after") or 0), self._count)
        return Page([{"id": f"m{n}", "from": f"a{n}@example.com", "subject": f"Invoice {n}"} for n in numbers],
                    lastCursor=str(self._count))


class Client:
    """A browser's requests, without the browser."""

    def __init__(self, web: PageServer) -> None:
        self._port, self._host = web.port, web.origin.removeprefix("http://")
        answer, _ = self._ask(web.address().removeprefix(web.origin), "")
        self._cookie = (answer.getheader("set-cookie") or "").partition(";")[0]

    def took_ms(self, path: str) -> float:
        """How long one request took."""
        answer, took = self._ask(path, self._cookie)
        assert answer.status == 200, f"{path}: {answer.status}"
        return took

    def _ask(self, path: str, cookie: str) -> tuple[http.client.HTTPResponse, float]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        began = time.perf_counter()
        connection.request("GET", path, headers={"Host": self._host, **({"Cookie": cookie} if cookie else {})})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer, (time.perf_counter() - began) * 1000


async def measure(count: int, times: int) -> dict[str, Any]:
    """Make the file, then ask for every address while the host works."""
    with tempfile.TemporaryDirectory() as folder:
        path, mail = Path(folder) / "keep.db", Inbox()
        async with Keep(path, connectors=[mail, Sheets()]) as keep:
            await keep.deploy(SCRIPT.replace("NAME", "big"), grants="all")
            mail.put(3)
            await keep.run_until_idle()
            run = next(run.id for run in await keep.runs("big") if run.handler == "file")
        grow(path, count)
        async with Keep(path, connectors=[mail, Sheets()]) as keep:
            wf = next(w.id for w in await keep.workflows() if w.name == "big")
            await keep.pause(wf)
            await keep.deploy(SCRIPT.replace("NAME", "busy"), grants="all")
            busy = asyncio.ensure_future(_busy(keep, mail))
            async with PageServer(keep, Settings(ledger=path), port=0) as web:
                client = await asyncio.to_thread(Client, web)
                found = {}
                for each in ["/static/keep.css", *addresses(wf, run)]:
                    took = [await asyncio.to_thread(client.took_ms, each) for _ in range(times)]
                    found[each.replace(wf, "…")] = {"first_ms": took[0], "median_ms": statistics.median(took)}
            busy.cancel()
            runs = len(await keep.runs("busy"))
        return {"inputs": count, "runs_of_the_host_meanwhile": runs, "addresses": found}


async def _busy(keep: Keep, mail: Inbox) -> None:
    while True:
        mail.put(20)
        await keep.run_now("busy")
        await keep.run_until_idle()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result = asyncio.run(measure(given.inputs, given.times))
    if given.json:
        print(json.dumps(result))
        return
    print(f"{result['inputs']:,} inputs; the host committed {result['runs_of_the_host_meanwhile']:,} runs meanwhile")
    print(f"{'address':<44}{'first':>10}{'median':>10}")
    for each, took in result["addresses"].items():
        print(f"{each:<44}{took['first_ms']:>7.0f} ms{took['median_ms']:>7.0f} ms")


if __name__ == "__main__":
    main()
