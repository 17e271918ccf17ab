"""Runs single steps through the sandbox and prints what each costs in the worker and in the host's process.

    python bench/steps.py [--steps 40] [--profile]

The host answers at once from memory, so the figures are the runtime's own: the worker's processor time as the
kernel counts it, the host's likewise. Nothing here is a test: the machine is noisy.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import time
from pathlib import Path

import psutil
from keep_side import SCRIPT

from keepai.model.operations import ALLOWED, Kind, Step, Surface
from keepai.runtime.base import Fixed, Job, Limits, LogLine, Operation, Reply
from keepai.runtime.javascript.runtime import JavaScriptRuntime

SURFACE = Surface(
    {"mail": {"search": Kind.READ, "get": Kind.READ_BY_ID}, "sheets": {"appendRow": Kind.MUTATION}},
    {"mail": ("email",)},
)
CALLS = 200
BATCHES = 12
EXTRA = f"""
export default Keep.workflow({{ name: "extra", topics: {{}}, producers: {{
  nothing: {{ handler: async () => 1 }},
  calls: {{ handler: async (ctx) => {{ for (let i = 0; i < {CALLS}; i++) ctx.registerInput({{ id: i }}); }} }},
  reads: {{ handler: async (ctx) => {{ for (let i = 0; i < {CALLS}; i++) await ctx.mail.get(i); }} }},
  fan: {{ handler: async (ctx) => void await Promise.all(Array.from({{length: {CALLS}}}, (_, i) => ctx.mail.get(i))) }},
}} }});
"""
EVENT = {"messageId": "m1", "topic": "mail.received", "payload": {"id": "m1", "from": "a@example.com", "subject": "S"}}
PREPARED = (
    '{"data":{"from":"a@example.com","id":"m1","subject":"S"},"reservations":[{"ids":["m1"],"topic":"mail.received"}]}'
)
RESULT = '{"result":{"rowId":1},"status":"applied"}'


class Instant:
    """A host that answers at once."""

    async def answer(self, operation: Operation) -> Reply:
        return Reply.of([EVENT]) if operation.kind is Kind.PEEK else Reply.of(None)

    async def foresee(self, operation: Operation) -> Reply | None:
        return Reply.of([EVENT]) if operation.kind is Kind.PEEK else None

    def used(self, operation: Operation, reply: Reply) -> None:
        """Not kept."""

    def log(self, line: LogLine) -> None:
        """Not kept."""


def jobs() -> dict[str, Job]:
    """A step of every sort."""
    def job(step: Step, handler: str, *args: str | None, source: str = SCRIPT, fixed: Fixed | None = None) -> Job:
        return Job(source, step, handler, args, None, SURFACE, ALLOWED[step], Limits(), fixed, 1_700_000_000_000)
    return {
        "prepare (1 call)": job(Step.PREPARE, "file"),
        "mutate (terminal)": job(Step.MUTATE, "file", PREPARED, fixed=Fixed(1_700_000_000_000, b"s" * 32)),
        "next (1 call)": job(Step.NEXT, "file", PREPARED, RESULT),
        "nothing": job(Step.PRODUCER, "nothing", source=EXTRA),
        f"{CALLS} calls": job(Step.PRODUCER, "calls", source=EXTRA),
        f"{CALLS} reads, one by one": job(Step.PRODUCER, "reads", source=EXTRA),
        f"{CALLS} reads at once": job(Step.PRODUCER, "fan", source=EXTRA),
    }


def used_s(pid: int) -> float:
    """Processor time of all threads of a process, in seconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def measure(runtime: JavaScriptRuntime, job: Job, count: int) -> tuple[float, float, float]:
    """Seconds per step in the best of several batches: worker, host, wall."""
    host = Instant()
    for _ in range(5):
        await runtime.run(job, host)
    (worker,) = psutil.Process(runtime._server.process.pid).children()  # type: ignore[union-attr]
    batches = []
    for _ in range(BATCHES):
        before, cpu, wall = used_s(worker.pid), time.process_time(), time.perf_counter()
        for _ in range(count):
            await runtime.run(job, host)
        used = used_s(worker.pid) - before, time.process_time() - cpu, time.perf_counter() - wall
        batches.append(tuple(seconds / count for seconds in used))
    return tuple(map(min, zip(*batches, strict=True)))  # type: ignore[return-value]


async def main(count: int, profile: bool) -> None:
    made = jobs()
    profiler = cProfile.Profile() if profile else None
    for name, job in made.items():
        runtime = JavaScriptRuntime(workers_max=1)
        await runtime.protections()
        many = "reads" in name or "calls" in name
        if profiler:
            profiler.enable()
        worker, host, wall = await measure(runtime, job, max(1, count // 20) if many else count)
        if profiler:
            profiler.disable()
        per = f"   per call: worker {worker / CALLS * 1e6:5.0f} host {host / CALLS * 1e6:5.0f}" if many else ""
        print(f"{name:24} worker {worker * 1e6:7.0f} µs  host {host * 1e6:7.0f} µs  wall {wall * 1e6:7.0f} µs{per}")
        await runtime.close()
    if profiler:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    asyncio.run(main(options.steps, options.profile))
