"""Soak: one host works steadily for as long as there is time, and holds no more at the end than after its warm-up.

The host is a process of its own (`soak_host.py`). Memory, descriptors, threads, processes, tasks and files are measured
while it rests. A line through each series after the warm-up must be flat within the bounds below; the counts have exact
bounds, because a host at rest holds what it held before its first run, the fork server and its workers. The file may
grow, but by no more per committed run at the end than in the middle; at the end `keep db check` must find nothing.
A series that broke a bound is kept, and its folder printed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, mean

from keepai.doors.cli.main import OK
from tests.prove.base import Result, rounds
from tests.prove.soak_host import POLICY, Sample

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
WARM_UP = 0.25  # of the samples
GROWTH_MAX = 6 * MIB  # of the line through the host's memory, from end to end
GROWTH_RATIO_MAX = 0.05  # the same, of what it holds; for long runs this is the narrower one
WORKER_MAX = 64 * MIB  # of one script process on average
LOG_MAX = 64 * MIB
BYTES_PER_RUN_MAX = 1.25  # of the second half's runs, against the first half's
RUNS_MIN = 500  # per half: with fewer, one checkpoint more or less decides
SAMPLES_MIN = 8  # for a line
EVERY_S = 5.0
STILL_S_MAX = 30.0
ENDING_S_MAX = 120.0  # beyond its time
POOL = min(32, (os.cpu_count() or 1) + 4)  # threads of an event loop at most; how many there are is chance


def run(seconds: float, first: int, only: str | None) -> Result:
    """One life, as long as there is time."""
    result = Result("soak", "runs")
    seed = next(rounds(0, first, only))
    folder = Path(tempfile.mkdtemp(prefix="keep-soak-"))
    samples, broken = live(folder, seed, max(seconds, 10.0))
    broken += judge(samples) + sound(folder / "keep.db")
    result.tried = samples[-1].runs if samples else 0
    result.note = told(samples)
    for what in broken:
        result.broke(seed, f"{what} (series: {folder})")
    if not broken:
        shutil.rmtree(folder)
    return result


def live(folder: Path, seed: int, seconds: float, every: float | None = None) -> tuple[list[Sample], list[str]]:
    """What a host measured of itself in so many seconds, and whether it ended in order."""
    pace = every if every is not None else min(EVERY_S, seconds / 12)
    command = [sys.executable, "-m", "tests.prove.soak_host", str(folder), str(seed), str(seconds), str(pace)]
    with (folder / "host.log").open("wb") as log, (folder / "series.jsonl").open("wb") as series:
        try:
            code = subprocess.run(command, cwd=ROOT, stdout=series, stderr=log, check=False,
                                  timeout=seconds + ENDING_S_MAX).returncode
        except subprocess.TimeoutExpired:
            code = None
    samples = [Sample(**json.loads(line)) for line in (folder / "series.jsonl").read_text().splitlines()]
    said = (folder / "host.log").read_text("utf-8", "replace").strip()
    ended = f"the host ended with {code}" if code is not None else "the host did not end"
    broken = [] if code == 0 else [f"{ended}: {said[-500:]}"]
    return samples, broken + ([f"the host complained: {said[-500:]}"] if said and not broken else [])


def judge(samples: Sequence[Sample]) -> list[str]:
    """What is not flat; the first sample was taken before anything ran."""
    if len(samples) < 3:
        return ["the host did not live long enough to be measured"]
    rest, worked = samples[0], samples[1:]
    found = [*_counts(rest, worked), *_files(worked)]
    found += _stood_still(worked)
    warm = worked[int(len(worked) * WARM_UP) :]
    return found + _memory(warm) if len(warm) >= SAMPLES_MIN else found


def _stood_still(worked: Sequence[Sample]) -> list[str]:
    """A host that does nothing holds nothing: that would prove nothing."""
    for n, a in enumerate(worked):
        later = next((b for b in worked[n:] if b.at_s - a.at_s >= STILL_S_MAX), None)
        if later is not None and later.runs == a.runs:
            return [f"nothing was committed from second {a.at_s:.0f} to {later.at_s:.0f}"]
    return []


def _counts(rest: Sample, worked: Sequence[Sample]) -> list[str]:
    """A resting host holds what it held before, a socket for the fork server, and one for each worker."""
    workers = POLICY.workers_max
    bounds: dict[str, tuple[Callable[[Sample], int], int]] = {
        "descriptors": (lambda s: s.descriptors, rest.descriptors + 1 + workers),
        "children": (lambda s: s.children, 1 + workers),
        "threads": (lambda s: s.threads, rest.threads + 1 + POOL),  # the writer's, and the loop's own
        # What serves, what tells people, what watches the ledger, the fork server's listener, a flush by the clock.
        "tasks": (lambda s: s.tasks, rest.tasks + 5),
        "log bytes": (lambda s: s.log, LOG_MAX),
        "bytes of memory per script process": (lambda s: s.workers_rss // max(s.children, 1), WORKER_MAX),
    }
    most = {name: max(map(of, worked)) for name, (of, _) in bounds.items()}
    busiest = max(worked, key=lambda s: s.tasks).doing
    return [
        f"{most[name]:,} {name} at rest; there may be {bound:,}" + (f": {busiest}" if name == "tasks" else "")
        for name, (_, bound) in bounds.items()
        if most[name] > bound
    ]


def _memory(warm: Sequence[Sample]) -> list[str]:
    slope, start = linear_regression([s.at_s for s in warm], [float(s.rss) for s in warm])
    grown, allowed = (
        slope * (warm[-1].at_s - warm[0].at_s),
        max(GROWTH_MAX, GROWTH_RATIO_MAX * mean(s.rss for s in warm)),
    )
    return [f"the host's memory grew by {grown / MIB:.1f} MiB, from {start / MIB:.1f}"] if grown > allowed else []


def _files(worked: Sequence[Sample]) -> list[str]:
    early, late = _per_run(worked)
    if not early or late <= BYTES_PER_RUN_MAX * early:
        return []
    return [f"a committed run takes {late:,.0f} bytes of the file, {early:,.0f} at first"]


def _per_run(worked: Sequence[Sample]) -> tuple[float, float]:
    """Bytes of the file per committed run, in the first half and in the second."""
    middle = len(worked) // 2
    halves = [(worked[0], worked[middle]), (worked[middle], worked[-1])]
    if any(b.runs - a.runs < RUNS_MIN for a, b in halves):
        return 0.0, 0.0
    early, late = ((b.ledger - a.ledger) / (b.runs - a.runs) for a, b in halves)
    return early, late


def sound(path: Path) -> list[str]:
    """What `keep db check` says of the file, if it is not what it should be."""
    command = [sys.executable, "-m", "keepai.doors.cli.main", "--db", str(path), "db", "check"]
    ended = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    return [] if ended.returncode == OK else [f"keep db check: {ended.stdout}{ended.stderr}"[-500:]]


def told(samples: Sequence[Sample]) -> str:
    """The series in one line."""
    if len(samples) < 3:
        return ""
    worked = samples[1 + int((len(samples) - 1) * WARM_UP) :] or samples[1:]
    spans = {
        "host MiB": [s.rss / MIB for s in worked],
        "MiB per script process": [s.workers_rss / MIB / max(s.children, 1) for s in worked],
        "descriptors": [s.descriptors for s in worked],
        "threads": [s.threads for s in worked],
        "processes": [s.children for s in worked],
        "log MiB": [s.log / MIB for s in worked],
    }
    text = ", ".join(f"{name} {min(span):.4g}–{max(span):.4g}" for name, span in spans.items())
    early, late = _per_run(samples[1:])
    beside = f", bytes/run {early:,.0f} → {late:,.0f}" if early else ""
    longest = max((b.at_s - a.at_s for a, b in pairwise(samples)), default=0.0)
    ledger = f"ledger {samples[-1].ledger / MIB:.0f} MiB"
    return f"{samples[-1].at_s:.0f} s; {text}{beside}, {ledger}, slowest round {longest:.0f} s"
