"""The host that the soak watches: a real `Keep` in a process of its own, steadily at work in a rough world.

Five workflows: mails with a side effect each, items of a routine, fan-in without a side effect, a script that breaks in
every way that a script can, and mails that only a person can look up. Script workers are killed, calls fail, hang and
lose their answers. Every few seconds all workflows are paused, and when nothing is under way any more the process
measures itself and prints one line of JSON. The world keeps no more than the last keys: what grows is Keep's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from keepai import (
    Call,
    Connector,
    Keep,
    OutcomeUnknown,
    Page,
    Policy,
    Rejected,
    Transient,
    Verdict,
    mutation,
    read,
)
from keepai.model import crash_points
from keepai.model.errors import Conflict, Refused
from keepai.model.records import Escalation
from keepai.runtime.javascript import linux

_KEYS_MAX = 200  # that the world remembers
_BATCH = 3  # new things per look
_QUIET_S_MAX = 30.0

POLICY = Policy(
    producer_interval_s=0.2,
    script_s=0.5,
    script_memory_bytes=24 << 20,
    call_s=0.4,
    retry_first_s=0.05,
    retry_longest_s=0.4,
    retries_max=4,
    settle_s=0.2,
    reconcile_s=0.4,
    reconcile_first_s=0.1,
    reconcile_longest_s=0.4,
    reconciles_max=4,
    wake_soonest_s=0.2,
    recheck_s=5,
    workers_max=2,
)

_POLL = """
  producers: { poll: { publishes: ["in"], handler: async (ctx, state) => {
    const found = await ctx.source.list({ after: state?.after ?? 0 });
    for (const one of found) {
      const inputId = ctx.registerInput({ source: "source", type: "thing", id: one.id, title: `Thing ${one.id}` });
      await ctx.publish("in", { messageId: one.id, inputId, payload: one });
    }
    return { after: found.after };
  } } },
"""
_TAKE = """
    async prepare(ctx) {
      const [first] = await ctx.peek("in");
      if (!first) return { reservations: [], data: {} };
      const id = first.messageId;
      return { reservations: [{ topic: "in", ids: [id] }], data: first.payload, ui: { title: id } };
    },
"""


def _mails(operation: str) -> str:
    return f"""
  topics: {{ in: {{}}, out: {{}} }}, {_POLL}
  consumers: {{ file: Keep.consumer({{ subscribe: ["in"], publishes: ["out"], {_TAKE}
    async mutate(ctx, prepared) {{ await ctx.sink.{operation}({{ id: prepared.data.id }}); }},
    async next(ctx, prepared, result) {{
      if (result.status !== "applied") return;
      await ctx.publish("out", {{ messageId: prepared.data.id, payload: result.result }});
    }},
  }}) }},
"""


#: Name → the body of its script.
SCRIPTS = {
    "mails": _mails("put"),
    "blind": _mails("shout"),
    "fan": f"""
  topics: {{ in: {{}} }}, {_POLL}
  consumers: {{ sum: Keep.consumer({{ subscribe: ["in"], publishes: [],
    async prepare(ctx) {{
      const all = await ctx.peek("in");
      return {{ reservations: all.length ? [{{ topic: "in", ids: all.map(e => e.messageId) }}] : [], data: {{}} }};
    }},
    async next(ctx, prepared, result, state) {{ ctx.log("summed"); return {{ last: prepared.reservations }}; }},
  }}) }},
""",
    "rough": f"""
  topics: {{ in: {{}} }}, {_POLL}
  consumers: {{ break: Keep.consumer({{ subscribe: ["in"], publishes: [], {_TAKE}
    async next(ctx, prepared) {{
      const mood = prepared.data.number % 40;
      if (mood === 1) throw new Error("it is broken");
      if (mood === 11) for (;;) {{}}
      if (mood === 21) {{ const hog = []; for (;;) hog.push("x".repeat(1 << 16) + hog.length); }}
      if (mood === 31) for (let n = 0; n < 2000; n++) ctx.log("y".repeat(200));
    }},
  }}) }},
""",
    "items": """
  routines: { work: { handler: async (ctx, state) => {
    const found = await ctx.source.list({ after: state?.after ?? 0 });
    for (const one of found) {
      await ctx.withItem(one.id, "Item " + one.id, async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.sink.put({ id: one.id, part: 1 });
        await ctx.sink.put({ id: one.id, part: 2 });
      });
    }
    return { after: found.after };
  } } },
""",
}


class Source(Connector):
    """Gives a few new things at each look."""

    input_types = ("thing",)

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng

    @read
    async def list(self, params: dict[str, Any], call: Call) -> Page[dict[str, Any]]:
        if self._rng.random() < 0.02:
            raise Transient("The source is busy.", retry_after=0.05)
        after = int(params["after"])
        return Page([{"id": f"t{n}", "number": n} for n in range(after, after + _BATCH)], after=after + _BATCH)


class Sink(Connector):
    """Takes things, roughly; it can be asked for what it took, but for what was shouted."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._taken: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @mutation(identity=("id", "part"), target="id", settle=0.2)
    async def put(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self._do(call, 0.15)

    @put.reconcile
    async def find(self, params: dict[str, Any], call: Call) -> Verdict:
        if self._rng.random() < 0.2:
            raise ConnectionError("no line")
        found = self._taken.get(call.idempotency_key)
        return Verdict.applied(found) if found else Verdict.failed()

    @mutation(identity=("id",), target="id", settle=0.2)
    async def shout(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return await self._do(call, 0.05)

    def has(self, key: str) -> dict[str, Any] | None:
        """What was taken with a key."""
        return self._taken.get(key)

    async def _do(self, call: Call, roughness: float) -> dict[str, Any]:
        fault = self._rng.random() / roughness
        if fault < 0.3:
            raise Transient("Busy.")
        if fault < 0.35:
            raise Rejected("No.")
        if fault < 0.5:
            raise ValueError("a bug of the connector, before it did anything")
        result = self._taken[call.idempotency_key] = {"row": len(self._taken)}
        if len(self._taken) > _KEYS_MAX:
            self._taken.popitem(last=False)
        if fault < 0.6:
            await asyncio.sleep(5)
        if fault < 0.8:
            raise OutcomeUnknown("The line was cut.")
        return result if fault > 1 else {"row": 0, "after": "a fault"}


@dataclass(frozen=True)
class Sample:
    """What a quiet host holds, and what its files measure."""

    at_s: float
    runs: int  # committed so far
    rss: int  # of the host, in bytes
    workers_rss: int
    descriptors: int
    threads: int
    children: int
    ledger: int
    log: int
    tasks: int
    doing: str = ""  # what these tasks run, by name


class Soak:
    """One life of the host."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng, self._path = Random(seed), folder / "keep.db"
        self._sink, self._committed, self._me = Sink(self._rng), 0, psutil.Process()
        self._began = time.monotonic()

    async def live(self, seconds: float, every: float) -> None:
        """Work, and say every few seconds what it takes."""
        crash_points.listen(self._count)
        keep = Keep(self._path, connectors=[Source(self._rng), self._sink], policy=POLICY)
        async with keep:
            self._say(self._measure())
            for name, body in SCRIPTS.items():
                await keep.deploy(f'export default Keep.workflow({{ name: "{name}", {body} }});\n', grants="all")
            serving = asyncio.create_task(keep.serve())
            while time.monotonic() - self._began < seconds:
                await self._work(keep, every)
                self._say(await self._quiet(keep))
            serving.cancel()

    def _say(self, sample: Sample) -> None:
        print(json.dumps(asdict(sample)), flush=True)

    def _count(self, point: str) -> None:
        self._committed += point.startswith("after:commit_")

    async def _work(self, keep: Keep, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(0.25)
            for question in await keep.needs_you():
                await self._answer(keep, question)
            if self._rng.random() < 0.1:
                self._kill_a_worker()

    async def _answer(self, keep: Keep, question: Escalation) -> None:
        with suppress(Refused, Conflict):
            if question.kind == "unknown_outcome" and question.mutation_id:
                found = self._sink.has(str(question.facts["idempotency_key"]))
                if found:
                    await keep.resolve(question.mutation_id, "happened", found)
                elif "did_not_happen" in question.actions:
                    await keep.resolve(question.mutation_id, "did_not_happen")
            elif "retry" in question.actions and (question.kind == "internal" or self._rng.random() < 0.5):
                await keep.retry(question.run_id)
            elif "skip_run" in question.actions:
                await keep.skip_run(question.run_id)
            elif "finish" in question.actions:
                await keep.finish(question.run_id)

    def _kill_a_worker(self) -> None:
        """A script worker is a child of our own child, the fork server."""
        with contextlib.suppress(psutil.Error, IndexError):
            self._rng.choice([worker for server in self._me.children() for worker in server.children()]).kill()

    async def _quiet(self, keep: Keep) -> Sample:
        """Pause everything, wait until nothing is under way, measure, go on."""
        flows = [flow.id for flow in await keep.workflows()]
        for flow in flows:
            await keep.pause(flow)
        until = time.monotonic() + _QUIET_S_MAX
        while keep.parts.ledger._writer.crew or keep.parts.calls or keep.parts.questions:
            assert time.monotonic() < until, "the host does not come to rest"
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        sample = self._measure()
        for flow in flows:
            await keep.resume(flow)
        return sample

    def _measure(self) -> Sample:
        gc.collect()
        below = self._me.children(recursive=True)
        log = self._path.with_name(self._path.name + "-wal")
        return Sample(
            at_s=round(time.monotonic() - self._began, 1),
            runs=self._committed,
            rss=self._me.memory_info().rss,
            workers_rss=sum(_rss(child) for child in below),
            descriptors=self._me.num_fds(),
            threads=self._me.num_threads(),
            children=len(below),
            ledger=self._path.stat().st_size,
            log=log.stat().st_size if log.exists() else 0,
            tasks=len(asyncio.all_tasks()),
            doing=", ".join(sorted(_name(task) for task in asyncio.all_tasks())),
        )


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", str(task.get_coro()))


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    linux.die_with_parent()
    folder, seed, seconds, every = sys.argv[1:]
    asyncio.run(Soak(Path(folder), int(seed)).live(float(seconds), float(every)))
