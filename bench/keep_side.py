"""Keep's side of the benchmark: one measurement per process, `python bench/keep_side.py TASK '{"path": "x.db", …}'`.

The script's steps run in the real sandbox and the ledger is a real file, or a real database. The connector only appends
to a list, so that the figures are Keep's own. `bench/compare.py` runs these beside the same work in DBOS, and
`bench/compare_postgres.py` does so on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import psutil
import server_costs
from work import Figures, Place, answer, mail, per_run, percentiles

from keepai import Connector, Keep, Page, mutation, read
from keepai.ledger.base import Tx
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.runs import Begin, ConsumerEnd, Prepared
from keepai.model.codec import encode
from keepai.model.errors import LedgerUnusable
from keepai.model.states import Phase

SCRIPT = """
export default Keep.workflow({
  name: "NAME",
  topics: { "mail.received": {}, "row.created": {} },
  producers: {
    poll: {
      publishes: ["mail.received"], schedule: { interval: "1h" },
      handler: async (ctx, state) => {
        const mails = await ctx.mail.search({ after: state?.cursor });
        for (const mail of mails) {
          const inputId = ctx.registerInput({ source: "mail", type: "email", id: mail.id, title: `Mail ${mail.id}` });
          await ctx.publish("mail.received", { messageId: mail.id, inputId, payload: mail });
        }
        return { cursor: mails.lastCursor };
      },
    },
  },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail.received"], publishes: ["row.created"],
      async prepare(ctx) {
        const [event] = await ctx.peek("mail.received", { limit: 1 });
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "mail.received", ids: [event.messageId] }],
          data: event.payload, ui: { title: `Add row for ${event.payload.from}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ sheet: "s", values: [prepared.data.from, prepared.data.subject] });
      },
      async next(ctx, prepared, result) {
        if (result.status === "applied")
          await ctx.publish("row.created", { messageId: `row:${prepared.data.id}`, payload: result.result });
      },
    }),
  },
});
"""
#: What is done with the payload → the script. SCRIPT reads it in `prepare` and returns it in `data`.
_UNTOUCHED = (
    SCRIPT.replace("data: event.payload, ui: { title: `Add row for ${event.payload.from}` }",
                   "data: {}, ui: { title: `Add row for ${event.messageId}` }")
    .replace("[prepared.data.from, prepared.data.subject]", "[prepared.events[0].messageId]")
    .replace("prepared.data.id", "prepared.events[0].messageId")
)
USES = {
    "returned": SCRIPT,
    "untouched": _UNTOUCHED,
    "read": _UNTOUCHED.replace("await ctx.sheets", """const { from, subject } = prepared.events[0].payload;
        await ctx.sheets""").replace("[prepared.events[0].messageId] }", "[from, subject] }"),
    "whole": _UNTOUCHED.replace("await ctx.sheets", """const { from, body, rows } = prepared.events[0].payload;
        const size = rows ? rows.reduce((sum, row) => sum + row.amount, 0) : body.length;
        await ctx.sheets""").replace("[prepared.events[0].messageId] }", "[from, size] }"),
}
_EFFECT = struct.Struct("<dI")
_QUIET = SCRIPT.replace("ctx.mail.search({ after: state?.cursor })", "[]")


class Mail(Connector):
    """A mailbox; each workflow reads it from where it stopped, so more mail may come at any time."""

    input_types = ("email",)

    def __init__(self, count: int = 0, size: int = 0, shape: str = "text") -> None:
        super().__init__(name="mail")
        self.count = count
        self._large = [mail(n, size, shape) for n in range(count)] if size else []  # made before anything is measured

    @read
    async def search(self, params, call):  # type: ignore[no-untyped-def]
        numbers = range(int((params or {}).get("after") or 0), self.count)
        mails = self._large[numbers.start :] if self._large else [mail(n) for n in numbers]
        return Page(mails, lastCursor=str(self.count))


class Sheets(Connector):
    """The one side effect: a list gets longer. `full` is set when it has as many rows as are `wanted`."""

    def __init__(self, wanted: int = 0) -> None:
        super().__init__(name="sheets")
        self.rows: list[object] = []
        self.first: dict[str, float] = {}  # when each sheet got its first row
        self.wanted, self.full = wanted, asyncio.Event()

    @mutation(identity=("sheet",), target="sheet")
    async def append_row(self, params, call):  # type: ignore[no-untyped-def]
        self.rows.append(params["values"])
        self.first.setdefault(params["sheet"], time.perf_counter())
        if len(self.rows) == self.wanted:
            self.full.set()
        return {"rowId": len(self.rows)}


async def deploy(keep: Keep, name: str, source: str = SCRIPT) -> str:
    """A workflow with everything granted."""
    return str((await keep.deploy(source.replace("NAME", name), grants="all")).workflow_id)


async def warm_up(keep: Keep, count: int) -> None:
    """Start the sandbox and its workers before anything is counted."""
    ids = [await deploy(keep, f"warm-up-{number}", _QUIET) for number in range(count)]
    await keep.run_until_idle()
    for wf in ids:
        await keep.stop(wf)


# Throughput


async def _runs(
    path: Place, at_once: int, events: int, size: int = 0, shape: str = "text", use: str = "returned",
) -> Figures:
    """Each of so many workflows takes its share of the events, all of them side by side."""
    each = max(1, events // at_once)
    total = each * at_once
    box, sheets = Mail(each, size, shape), Sheets()
    async with Keep(path, connectors=[box, sheets]) as keep:
        await warm_up(keep, min(at_once, 4))
        ids = [await deploy(keep, f"bench-{number}", USES[use]) for number in range(at_once)]
        await keep.parts.ledger.barrier()
        before, cpu, wall, began = used(path), cpu_s(), time.time(), time.perf_counter()
        await keep.run_until_idle()
        took = time.perf_counter() - began
        cpu, ended, after = cpu_s() - cpu, time.time(), used(path)
        assert len(sheets.rows) == total, f"{len(sheets.rows)} effects for {total} events"
        rows = [r for wf in ids for r in await keep.runs(wf) if r.handler == "file"]
        return {
            "runs": total, "runs_per_s": total / took, "cpu_ms_per_run": cpu * 1000 / total,
            **per_run(before, after, total), "peak_mb": peak_mb(), "pss_mb": pss_mb(), "from": wall, "to": ended,
            **percentiles([r.updated_at - r.created_at for r in rows]),
        }


async def _latency(path: Place, events: int) -> Figures:
    """One event at a time on an idle host: from "look now" until all that came of it is durable."""
    box, sheets = Mail(), Sheets()
    async with Keep(path, connectors=[box, sheets]) as keep:
        wf, took = await deploy(keep, "bench"), []
        await keep.run_until_idle()
        for _ in range(events + 5):
            box.count += 1
            began = time.perf_counter()
            await keep.run_now(wf)
            await keep.run_until_idle()
            took.append((time.perf_counter() - began) * 1000)
        assert len(sheets.rows) == events + 5, f"{len(sheets.rows)} effects"
        return percentiles(took[5:])


# Start and recovery


async def _start(path: Place) -> Figures:
    """When the first run was done, by the wall clock; whoever started this process knows when that was."""
    async with Keep(path, connectors=[Mail(1), Sheets()]) as keep:
        if not await keep.workflows():
            await deploy(keep, "bench")
        else:
            [workflow] = await keep.workflows()
            keep.parts.connectors["mail"].count = 2  # type: ignore[attr-defined]
            await keep.run_now(workflow.id)
        await keep.run_until_idle()
        return {"at": time.time()}


async def _pending(path: Path, events: int, workflows: int = 40) -> Figures:
    """Leave so many events, in each workflow one of them in the hands of a run, and be killed."""
    async with Keep(path, connectors=[Mail(), Sheets()]) as keep:
        for number in range(workflows):
            wf = await deploy(keep, f"bench-{number}")
            await keep.parts.ledger.write(_fill, wf, "", events // workflows, 0, barrier=True)
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


async def _recover(path: Place, events: int) -> Figures:
    """When all that was left behind is done, by the wall clock."""
    sheets = Sheets()
    async with Keep(path, connectors=[Mail(), sheets]) as keep:
        await keep.run_until_idle()
        done = time.time()
        assert len(sheets.rows) == events, f"{len(sheets.rows)} effects for {events} events"
        return {"at": done}


def _fill(tx: Tx, wf: str, name: str, count: int, per_run: int) -> None:
    """The verbs of a host, without a script: a producer brings events, runs of a consumer take so many at a time.

    With none at a time, one run has taken the first event and has not gone on."""
    events = _bring(tx, wf, name, count)
    for first in range(0, count if per_run else 1, per_run or 1):
        batch = [event.message_id for event in events[first : first + (per_run or 1)]]
        taking = runs.begin(tx, Begin(wf, "file", "consumer", (1, 0), Phase.PREPARING, "event"))
        prepared = {"data": mail(first), "reservations": [{"topic": "mail.received", "ids": batch}]}
        wanted = [("mail.received", each) for each in batch]
        taken, _ = runs.prepare(tx, taking, Prepared(tx.now, encode(prepared), wanted), [])
        if per_run:
            runs.commit_consumer(tx, runs.advance(tx, taken, Phase.EMITTING, '{"status":"none"}'), ConsumerEnd())


def _bring(tx: Tx, wf: str, name: str, count: int) -> list[Publication]:
    """A producer's run that has brought so many events."""
    poll = runs.begin(tx, Begin(wf, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule"))
    inputs = [Registration(tx.new_id("inp"), "mail", "email", f"m{name}{n}", f"Mail m{n}") for n in range(count)]
    events = [
        Publication("mail.received", entry.external_id, encode(mail(n) | {"id": entry.external_id}), (entry.input_id,))
        for n, entry in enumerate(inputs)
    ]
    runs.commit_producer(tx, poll, inputs, events, None, tx.now + 3_600_000, [])
    return events


# Scale

BATCH = 5_000
PER_RUN = 100


async def _fill_up(path: Path, events: int) -> Figures:
    """Bring a file to so many events, all of them taken."""
    async with Keep(path, connectors=[Mail(), Sheets()]) as keep:
        known = await keep.workflows()
        wf = known[0].id if known else await deploy(keep, "bench")
        await keep.run_until_idle()
        there = int(next(apsw.Connection(str(path)).execute("select count(*) from event"))[0])
        began = time.perf_counter()
        for first in range(there, events, BATCH):
            await keep.parts.ledger.write(_fill, wf, f"{first}.", min(BATCH, events - first), PER_RUN)
        return {"events": events, "filled_s": time.perf_counter() - began}


async def _filled(path: Path, events: int) -> Figures:
    """So many more events, one run each, in the workflow of a file that has many already."""
    box, sheets = Mail(), Sheets()
    async with Keep(path, connectors=[box, sheets]) as keep:
        [workflow] = await keep.workflows()
        box.count = await _read_so_far(keep, workflow.id) + 2
        await keep.run_now(workflow.id)
        await keep.run_until_idle()
        box.count += events
        await keep.run_now(workflow.id)
        began = time.perf_counter()
        await keep.run_until_idle()
        took = time.perf_counter() - began
        assert len(sheets.rows) == events + 2, f"{len(sheets.rows)} effects for {events} events"
        return {"runs_per_s": events / took}


async def _read_so_far(keep: Keep, wf: str) -> int:
    """Where the workflow stands in the mailbox."""
    state = await keep.state(wf, "poll")
    return int(str(state["cursor"])) if isinstance(state, dict) and state.get("cursor") else 0


async def _beside(path: Path, workflows: int, events: int) -> Figures:
    """A serving host with so many workflows, of which one has something to do."""
    box, sheets = Mail(), Sheets(events)
    async with Keep(path, connectors=[box, sheets]) as keep:
        busy = next((w.id for w in await keep.workflows() if w.name == "busy"), None) or await deploy(keep, "busy")
        for number in range(len(await keep.workflows()), workflows):
            await deploy(keep, f"idle-{number}", _QUIET)
        await keep.run_until_idle()
        serving = asyncio.create_task(keep.serve())
        await asyncio.sleep(0.2)
        box.count = await _read_so_far(keep, busy) + events
        began = time.perf_counter()
        await keep.run_now(busy)
        await sheets.full.wait()
        took = time.perf_counter() - began
        serving.cancel()
        return {"runs_per_s": events / took}


async def _fair(path: Path, workflows: int, events: int) -> Figures:
    """So many workflows have something to do at one moment: when has the last of them had its first effect?"""
    sheets = Sheets()
    async with Keep(path, connectors=[Mail(), sheets]) as keep:
        await warm_up(keep, 4)
        for number in range(workflows):
            wf = await deploy(keep, f"fair-{number}", SCRIPT.replace('sheet: "s"', f'sheet: "{number}"'))
            await keep.parts.ledger.write(_bring, wf, "", events)
        cpu, began = cpu_s(), time.perf_counter()
        await keep.run_until_idle()
        took, cpu, total = time.perf_counter() - began, cpu_s() - cpu, workflows * events
        assert len(sheets.rows) == total, f"{len(sheets.rows)} effects"
        last = max(sheets.first.values()) - began
        return {"runs_per_s": total / took, "cpu_ms_per_run": cpu * 1000 / total, "last_first_part": last / took}


async def _idle(path: Place, seconds: float = 3, workflows: int = 1) -> Figures:
    """Per cent of one core that a host uses with so many workflows and nothing due."""
    async with Keep(path, connectors=[Mail(), Sheets()]) as keep:
        for number in range(len(await keep.workflows()), workflows):
            await deploy(keep, f"idle-{number}", _QUIET)
        await keep.run_until_idle()
        serving = asyncio.create_task(keep.serve())
        await asyncio.sleep(seconds)
        before, began = cpu_s(), time.time()
        await asyncio.sleep(seconds)
        spent, ended = cpu_s() - before, time.time()
        serving.cancel()
        return {"idle_percent": spent / seconds * 100, "from": began, "to": ended}


# Several hosts on one ledger


class SharedSheets(Sheets):
    """Rows go to a file that all hosts share: when, and by which process."""

    def __init__(self, file: Path, wanted: int) -> None:
        super().__init__(wanted)
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND)

    @mutation(identity=("sheet",), target="sheet")
    async def append_row(self, params, call):  # type: ignore[no-untyped-def]
        os.write(self._file, _EFFECT.pack(time.time(), os.getpid()))
        return {"rowId": 1}

    def has_all(self) -> bool:
        """Whether all hosts together have written as many as are wanted."""
        return os.fstat(self._file).st_size >= self.wanted * _EFFECT.size


async def _deployed(path: Place, workflows: int) -> Figures:
    """So many workflows are deployed, and none has run."""
    async with Keep(path, connectors=[Mail(), Sheets()]) as keep:
        for number in range(workflows):
            await deploy(keep, f"shared-{number}")
    return {"workflows": workflows}


async def _host(path: Place, each: int, effects: str, wanted: int) -> Figures:
    """One of several hosts: serves until all of them together have had so many effects, so many of each workflow."""
    sheets = SharedSheets(Path(effects), wanted)
    async with Keep(path, connectors=[Mail(each), sheets]) as keep:
        serving = asyncio.create_task(keep.serve())
        while not sheets.has_all():
            await asyncio.sleep(0.02)
            if serving.done():
                await serving
        serving.cancel()
        return {"wanted": wanted}


# What it costs the machine


def used(path: Place) -> Figures:
    """Bytes of the ledger: the pages in the file and those in its log; of a server, what it has spent too."""
    if isinstance(path, str):
        return server_costs.spent(path)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {"bytes": int(connection.pragma("page_count")) * int(connection.pragma("page_size"))}
    finally:
        connection.close()


def cpu_s() -> float:
    """CPU time of this process and of its sandbox workers, living and dead."""
    me = psutil.Process()
    total = sum(me.cpu_times()[:4])
    for child in me.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return float(total)


def peak_mb() -> float:
    """The most that the host ever had in memory, and what its sandbox workers have now; shared pages count for each."""
    workers = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 + workers / (1 << 20)


def pss_mb() -> float:
    """What the host and its sandbox workers have in memory now; a page that several share counts once."""
    me = psutil.Process()
    return float(sum(each.memory_full_info().pss for each in (me, *me.children(recursive=True)))) / (1 << 20)


def _task(measure: Any) -> Any:
    def task(**params: Any) -> Figures:
        try:
            return dict(asyncio.run(measure(**params)))
        except LedgerUnusable as error:
            if measure not in (_host, _idle):
                raise
            return {"refused": str(error)}  # that is a finding, where several hosts come at once

    return task


TASKS = {
    each.__name__.removeprefix("_"): _task(each)
    for each in (
        _runs, _latency, _start, _pending, _recover, _fill_up, _filled, _beside, _fair, _idle, _deployed, _host,
    )
}

if __name__ == "__main__":
    answer(TASKS, sys.argv[1:])
