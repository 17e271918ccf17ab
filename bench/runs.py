"""Runs N events through one-consumer workflows and prints what a run costs, beside the disk's own speed.

    python bench/runs.py [--events 300] [--workflows 1,32] [--json]

The script's steps run in the real sandbox, the ledger is a real file, every fsync is counted. The
connector answers at once, so that the figures are Keep's own. Nothing here is a test: the machine is
noisy, and the ratios to the calibration in the same run are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
import psutil

from keepai import Connector, Keep, Page, mutation, read

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


class Mail(Connector):
    """A mailbox with a fixed number of mails."""

    input_types = ("email",)

    def __init__(self, count: int) -> None:
        super().__init__(name="mail")
        self._count = count

    @read
    async def search(self, params, call):  # type: ignore[no-untyped-def]
        if (params or {}).get("after"):
            return Page([], lastCursor="end")
        items = [{"id": f"m{i}", "from": f"a{i}@example.com", "subject": f"Invoice {i}"} for i in range(self._count)]
        return Page(items, lastCursor="end")


class Sheets(Connector):
    """A sheet that only counts, and remembers when each row came."""

    def __init__(self) -> None:
        super().__init__(name="sheets")
        self.at: list[float] = []

    @mutation(identity=("sheet",), target="sheet")
    async def append_row(self, params, call):  # type: ignore[no-untyped-def]
        self.at.append(time.perf_counter())
        return {"rowId": len(self.at)}


class CountingFile(apsw.VFSFile):
    """A file that counts how often it is synced."""

    def xSync(self, flags: int) -> None:
        COUNTS["sync"] += 1
        super().xSync(flags)


class CountingVFS(apsw.VFS):
    """The default file system, counting."""

    def __init__(self) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("counting", self._base, makedefault=True)

    def xOpen(self, name, flags):  # type: ignore[no-untyped-def]
        return CountingFile(self._base, name, flags)


COUNTS = {"sync": 0}


def calibrate(folder: Path, count: int = 200) -> float:
    """Milliseconds of one small write and fsync on this disk, in the middle."""
    times = []
    with (folder / "calibration").open("wb", buffering=0) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


async def measure(folder: Path, workflows: int, events: int) -> dict[str, float]:
    """Run `events` events through each of `workflows` workflows, after a warm-up."""
    path, sheets = folder / f"bench-{workflows}.db", Sheets()
    async with Keep(path, connectors=[Mail(events), sheets]) as keep:
        for number in range(workflows):
            await keep.deploy(SCRIPT.replace("NAME", f"bench-{number}"), grants="all")
        await warm_up(keep)
        await keep.parts.ledger.barrier()
        size, syncs, cpu, started = used(path), COUNTS["sync"], cpu_s(), time.perf_counter()
        await keep.run_until_idle()
        elapsed, total = time.perf_counter() - started, workflows * events
        rows = [r for w in await keep.workflows() for r in await keep.runs(w.id) if r.handler == "file"]
        assert len(sheets.at) == total, f"{len(sheets.at)} effects for {total} events"
        took = sorted(r.updated_at - r.created_at for r in rows)
        return {
            "workflows": workflows, "runs": total, "runs_per_s": total / elapsed,
            "cpu_ms_per_run": (cpu_s() - cpu) * 1000 / total, "fsyncs_per_run": (COUNTS["sync"] - syncs) / total,
            "bytes_per_run": (used(path) - size) / total, "p50_ms": took[len(took) // 2],
            "p99_ms": took[int(len(took) * 0.99)], "host_rss_mb": rss_mb(), "all_rss_mb": rss_mb(children=True),
        }


async def warm_up(keep: Keep) -> None:
    """Start the sandbox and its workers before anything is counted."""
    warm = SCRIPT.replace("NAME", "warm-up").replace("ctx.mail.search({ after: state?.cursor })", "[]")
    done = await keep.deploy(warm, grants="all")
    for workflow in await keep.workflows():
        if workflow.id != done.workflow_id:
            await keep.pause(workflow.id)
    await keep.run_until_idle()
    await keep.stop(done.workflow_id)
    for workflow in await keep.workflows():
        if workflow.id != done.workflow_id:
            await keep.resume(workflow.id)


async def idle(folder: Path) -> float:
    """Per cent of one core that a host with nothing due uses, over three seconds."""
    async with Keep(folder / "idle.db", connectors=[Mail(1), Sheets()]) as keep:
        await keep.deploy(SCRIPT.replace("NAME", "idle"), grants="all")
        serving = asyncio.create_task(keep.serve())
        await asyncio.sleep(3)
        before = cpu_s()
        await asyncio.sleep(3)
        used_s = cpu_s() - before
        serving.cancel()
        return used_s / 3 * 100


def used(path: Path) -> int:
    """Bytes of the ledger: the pages in the file and those in its log."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("page_count")) * int(connection.pragma("page_size"))
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
    return total


def rss_mb(*, children: bool = False) -> float:
    """Resident memory, with the sandbox processes or without."""
    me = psutil.Process()
    processes = [me, *me.children(recursive=True)] if children else [me]
    return sum(p.memory_info().rss for p in processes) / 1e6


def help_ms() -> float:
    """Milliseconds of `keep --help`, the best of five."""
    best = 1e9
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([Path(sys.executable).with_name("keep"), "--help"], check=True, stdout=subprocess.DEVNULL)
        best = min(best, (time.perf_counter() - started) * 1000)
    return best


def show(fsync_ms: float, rows: list[dict[str, float]], idle_percent: float, help_: float) -> None:
    """The figures for people."""
    print(f"calibration: one 4 KiB write with fsync takes {fsync_ms:.2f} ms on this disk\n")
    names = list(rows[0])
    print("  ".join(f"{n:>15}" for n in names))
    for row in rows:
        print("  ".join(f"{row[n]:>15,.2f}" for n in names))
    for row in rows:
        floor = row["fsyncs_per_run"] * fsync_ms
        print(f"\n{row['workflows']:.0f} workflow(s): {1000 / row['runs_per_s']:.2f} ms per run, of which "
              f"{floor:.2f} ms ({floor * row['runs_per_s'] / 10:.0f} %) is the disk's own fsync time")
    print(f"\nidle host: {idle_percent:.1f} % of a core    keep --help: {help_:.0f} ms    "
          f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=320, help="runs in all, spread over the workflows")
    parser.add_argument("--workflows", default="1,32", help="how many workflows at once, several by comma")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    counting = CountingVFS()  # unregistered when it goes away
    with tempfile.TemporaryDirectory(prefix="keep-bench-") as name:
        folder = Path(name)
        fsync_ms = calibrate(folder)
        rows = [
            asyncio.run(measure(folder, count, max(1, options.events // count)))
            for count in map(int, options.workflows.split(","))
        ]
        idle_percent, help_ = asyncio.run(idle(folder)), help_ms()
    if options.json:
        print(json.dumps({"fsync_ms": fsync_ms, "rows": rows, "idle_percent": idle_percent, "help_ms": help_}))
    else:
        show(fsync_ms, rows, idle_percent, help_)
    counting.unregister()


if __name__ == "__main__":
    main()
