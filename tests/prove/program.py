"""`python -m tests.prove --budget 10m`: every suite for its share of the time, then one table.

`--suite NAME` runs one of them, `--seed N` begins elsewhere, `--workers N` uses so many processes (each with seeds of
its own), `--only SEED` repeats one try of one suite.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.prove.base import Result, Suite

#: Suite → (module with `run`, its share of the time, whether it uses several processes by itself).
SUITES: dict[str, tuple[str, float, bool]] = {
    "stories": ("tests.prove.stories", 0, True),
    "simulation": ("tests.prove.simulate.suite", 5, False),
    "parking": ("tests.prove.simulate.parking", 3, False),
    "exploration": ("tests.explore.suite", 2, False),
    "images": ("tests.prove.images", 2, False),
    "iofaults": ("tests.prove.iofaults", 1, False),
    "torture": ("tests.prove.torture", 3, True),
    "cluster": ("tests.prove.cluster", 3, True),
    "inputs": ("tests.prove.inputs.suite", 2, False),
    "load": ("tests.prove.load", 1, True),
    "soak": ("tests.prove.soak", 2, True),
}

#: Suites whose seed repeats the faults, but not the race in which they strike; each takes a minute.
RACES = {"cluster"}

KEPT = Path(__file__).parent / "seeds.json"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
ENDING_S_MAX = 900.0  # beyond a suite's time; more than any limit of one trial
_APART = 1_000_000  # between the first seeds of two processes


def seconds_of(text: str) -> float:
    """`90`, `90s`, `10m` or `2h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 10m or 2h")
    return float(found[1]) * _UNITS[found[2]]


def suite(name: str) -> Suite:
    """The function that runs a suite."""
    run: Suite = importlib.import_module(SUITES[name][0]).run
    return run


def run_suite(
    name: str, seconds: float, first: int, only: str | None, workers: int, ending_s: float = ENDING_S_MAX,
) -> Result:
    """One suite, in as many processes as it can use; each that has not ended `ending_s` after its time is killed."""
    began = time.monotonic()
    count = 1 if only is not None or SUITES[name][2] else workers
    seeds = [first + n * _APART for n in range(count)]
    parts = [_started(name, seconds, seed, only) for seed in seeds]
    until = began + seconds + ending_s
    result = united([_ended(*part, name, seed, until) for part, seed in zip(parts, seeds, strict=True)])
    result.seconds = time.monotonic() - began
    return result


def _started(name: str, seconds: float, first: int, only: str | None) -> tuple[BaseProcess, Connection]:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_part, args=(theirs, name, seconds, first, only))
    process.start()
    theirs.close()
    return process, ours


def _part(told: Connection, name: str, seconds: float, first: int, only: str | None) -> None:
    told.send(suite(name)(seconds, first, only))


def _ended(process: BaseProcess, told: Connection, name: str, first: int, until: float) -> Result:
    """What a process found; that it found no end, or died, is a violation."""
    try:
        if told.poll(max(0.0, until - time.monotonic())):
            result: Result = told.recv()
            process.join(10)
            return result
        what = "the suite did not end; its last words name the trial"
    except EOFError:
        process.join(10)
        what = f"the suite ended with exit code {process.exitcode} and no result"
    finally:
        process.kill()  # most have ended by now
        process.join()
    result = Result(name, "")
    result.broke(f"from {first}", what)
    return result


def united(parts: list[Result]) -> Result:
    """The results of several processes as one."""
    whole = parts[0]
    for part in parts[1:]:
        whole.tried += part.tried
        whole.violations += part.violations
    whole.note = "; ".join(dict.fromkeys(part.note for part in parts if part.note))
    return whole


def main() -> int:
    """Run, print, keep what failed; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--budget", type=seconds_of, default=60.0)
    parser.add_argument("--suite", choices=sorted(SUITES), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = given.suite or list(SUITES)
    share = sum(SUITES[name][1] for name in names) or 1
    results = []
    for name in names:
        seconds = given.budget * SUITES[name][1] / share
        print(f"{name}: up to {seconds:.0f} s …", file=sys.stderr, flush=True)
        results.append(run_suite(name, seconds, given.seed, given.only, given.workers))
        _keep(results[-1])
    print(json.dumps([vars(r) | {"violations": [vars(v) for v in r.violations]} for r in results], indent=1)
          if given.json else table(results))
    return int(any(result.violations for result in results))


def table(results: list[Result]) -> str:
    """The results for people."""
    lines = [f"{'suite':<14}{'tried':>12}  {'of':<14}{'violations':>11}{'time':>9}{'per s':>10}  note"]
    for r in results:
        lines.append(
            f"{r.suite:<14}{r.tried:>12,}  {r.unit:<14}{len(r.violations):>11}{r.seconds:>8.0f}s"
            f"{r.tried / max(r.seconds, 1e-9):>10.1f}  {r.note}"
        )
        lines += [f"  seed {v.seed}: {v.what}" for v in r.violations[:20]]
    return "\n".join(lines)


def _keep(result: Result) -> None:
    """Failing seeds become regression tests: tests/prove/test_seeds.py repeats them, where that repeats what failed."""
    if not result.violations or result.suite in RACES:
        return
    kept: dict[str, list[str]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    seeds = dict.fromkeys([*kept.get(result.suite, []), *(v.seed for v in result.violations if v.seed.isdigit())])
    kept[result.suite] = list(seeds)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
