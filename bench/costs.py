"""Where a run's microseconds go: CPU of the sandbox's workers and of the host, and the host's by part.

    python bench/costs.py costs '{"path": "/tmp/costs.db", "events": 200}'

The CPU of both is measured without a profiler. Then the same work is done under cProfile with the thread's CPU clock,
to split the host's. cProfile makes every call dearer; what it adds is the same for each call, so it is taken off again
by the number of calls. How much slower it was is in the figures. What a worker does inside is not split. This is not
called profile.py: a module of that name beside it would be taken for Python's own.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from keep_side import Mail, Sheets, deploy, warm_up
from work import Figures, answer

from keepai import Keep, Policy

#: What stands in a line of the profile → the part that it belongs to; the first that fits counts.
BUILTINS = {
    "apsw": "SQLite", "sha256": "hashes", "hashlib": "hashes", "_json": "JSON", "socket": "sockets and files",
    "posix": "sockets and files", "select.": "asyncio",
}
FILES = {
    "keepai/ledger/": "ledger", "keepai/engine/": "engine", "keepai/runtime/": "runtime, in the host",
    "keepai/connectors/": "connectors", "keepai/": "the rest of Keep", "/asyncio/": "asyncio",
    "/selectors.py": "asyncio", "/json/": "JSON", "bench/": "the benchmark itself",
}
OTHER = "the rest of Python"


def part_of(file: str, name: str) -> str:
    """The part that a function belongs to."""
    if file != "~":
        return next((part for words, part in FILES.items() if words in file), OTHER)
    return next((part for words, part in BUILTINS.items() if words in name), OTHER)


def shares(profile: cProfile.Profile, really_s: float) -> dict[str, float]:
    """Part → its share of the CPU, of which so much was really used."""
    lines = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    calls, measured_s = sum(line[1] for line in lines.values()), sum(line[2] for line in lines.values())
    added_s = max(0.0, measured_s - really_s) / calls
    spent: Counter[str] = Counter()
    for (file, _, name), (_, times, own_s, _, _) in lines.items():
        spent[part_of(file, name)] += max(0.0, own_s - times * added_s)
    return {part: seconds / spent.total() for part, seconds in spent.most_common()}


async def _work(
    path: Path, events: int, profile: cProfile.Profile | None = None, recordings: str = "on",
) -> dict[str, Any]:
    """One workflow takes so many events; CPU per run in ms."""
    policy = Policy(recordings=recordings)
    async with Keep(path, connectors=[Mail(events), Sheets()], policy=policy) as keep:
        await warm_up(keep, 1)
        await deploy(keep, "bench")
        host, workers, began = _host(), _workers(), time.perf_counter()
        if profile:
            profile.enable()
        await keep.run_until_idle()
        if profile:
            profile.disable()
        took = time.perf_counter() - began
        spent = {"host": _less(_host(), host), "workers": _less(_workers(), workers)}
    per_run = {who: {kind: s * 1000 / events for kind, s in times.items()} for who, times in spent.items()}
    return {"wall_ms": took * 1000 / events, **per_run}


def _host() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"user": used.ru_utime, "system": used.ru_stime}


def _workers() -> dict[str, float]:
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return {"user": sum(t.user for t in times), "system": sum(t.system for t in times)}


def _less(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {kind: after[kind] - before[kind] for kind in after}


def recording(path: Path, events: int, rounds: int = 5) -> Figures:
    """CPU of a run, of host and workers, with what it is given recorded and without, by turns; and their ratio."""
    spent: dict[str, list[float]] = {"on": [], "off": []}
    for number in range(rounds):
        for which in ("on", "off") if number % 2 else ("off", "on"):
            got = asyncio.run(_work(path.with_suffix(f".{number}.{which}.db"), events, recordings=which))
            spent[which].append(sum(got["host"].values()) + sum(got["workers"].values()))
    on, off = (statistics.median(spent[which]) for which in ("on", "off"))
    return {"recorded_cpu_ms": on, "unrecorded_cpu_ms": off, "recording_ratio": on / off}


def costs(path: Path, events: int, rounds: int = 5) -> Figures:
    """Measure, measure again under the profiler, and split."""
    plain, profile = asyncio.run(_work(path, events)), cProfile.Profile(time.thread_time)
    slow = asyncio.run(_work(path.with_suffix(".profiled.db"), events, profile))
    host, host_slow = (sum(each["host"].values()) for each in (plain, slow))
    return {
        "runs": events, **plain, "slower": host_slow / host,
        "parts": {part: share * host for part, share in shares(profile, host * events / 1000).items()},
        **recording(path, events, rounds),
    }


if __name__ == "__main__":
    answer({"costs": costs, "recording": recording}, sys.argv[1:])
