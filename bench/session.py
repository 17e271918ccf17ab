"""A session of the benchmark: a plan of measurements, one process after the other, each announced, their figures kept.

It knows how to start a side and where its figures go, and nothing of what is measured; that is `bench/compare.py`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from table import Results
from work import Figures, Place

HERE = Path(__file__).parent
OTHER = HERE.parent / ".venv-bench" / "bin" / "python"
LOCK = HERE.parent / "requirements" / "bench.lock"
NAMES = {"keep": "Keep", "dbos": "DBOS"}
PROGRAMS = {"keep": "keep_side.py", "dbos": "dbos_side.py", "plain": "dbos_side.py", "costs": "costs.py"}
ARRANGED = {"dbos": "chosen", "plain": "plain"}  # where it stands how a side is arranged; Keep has one way
LIMIT_S = 1_800  # of one measurement


class Session:
    """Runs measurements one after the other, says which, and keeps what they found."""

    def __init__(self, folder: Path, *, quick: bool, sides: tuple[str, ...]) -> None:
        self.folder, self.sides, self.quick = folder, sides, quick
        self.as_it_comes = not quick  # whether the other side is measured as it is without our arrangements, too
        self.found: Results = {"made": made(quick)}
        self._began, self._files = time.perf_counter(), 0
        self._steps: list[tuple[str, Callable[[], None]]] = []

    def of(self, amounts: tuple[Any, Any]) -> Any:
        """How much of it: full or quick."""
        return amounts[1] if self.quick else amounts[0]

    def plan(self, label: str, step: Callable[..., None], *args: Any) -> None:
        """One more step."""
        self._steps.append((label, partial(step, self, *args)))

    def turns(self, what: str, rounds: int) -> Iterator[tuple[str, str]]:
        """Side by side, in every round: (side, label)."""
        for turn in range(1, rounds + 1):
            for side in self.sides:
                yield side, f"{what}: {NAMES[side]}, round {turn} of {rounds}"

    def run(self) -> None:
        """All steps, with a line for each."""
        for number, (label, step) in enumerate(self._steps, 1):
            minutes, seconds = divmod(int(time.perf_counter() - self._began), 60)
            print(f"[{number:>3}/{len(self._steps)}] {minutes:>2}:{seconds:02}  {label}", file=sys.stderr, flush=True)
            step()
        self.found["made"]["took_s"] = round(time.perf_counter() - self._began)

    def file(self, side: str) -> Place:
        """A place for a new ledger, or for what the other side has instead: here a file."""
        self._files += 1
        return self.folder / f"{side}-{self._files}.db"

    def ask(self, side: str, task: str, path: Place, *, trace: Path | None = None, **params: object) -> Figures:
        """One measurement in a process of its own."""
        program = [OTHER if side in ARRANGED else sys.executable, HERE / PROGRAMS[side]]
        before = traced(trace) if trace else []
        command = [*map(str, [*before, *program]), task, json.dumps({"path": str(path), **params})]
        began = time.time()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if task == "pending" and done.returncode == -9:
            return {}  # as it should: it has killed itself
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1]) | {"began": began}

    def ask_several(self, number: int, side: str, task: str, path: Place, **params: object) -> list[Figures]:
        """The same measurement in so many processes at once."""
        with ThreadPoolExecutor(number) as threads:
            asked = [threads.submit(self.ask, side, task, path, **params) for _ in range(number)]  # type: ignore[arg-type]
            return [each.result() for each in asked]

    def how(self, side: str, which: str, *, way: bool = False) -> dict[str, Any]:
        """How the other side is arranged."""
        chosen = self.found[ARRANGED[side]][which] if side in ARRANGED else {}
        return {name: value for name, value in chosen.items() if way or name != "way"}

    def keep(self, *names: object, **figures: Any) -> None:
        """Put figures under their names, each in a list of its rounds."""
        place = self.found
        for name in names:
            place = place.setdefault(str(name), {})
        for name, figure in figures.items():
            place.setdefault(name, []).append(round(figure, 4))


def traced(trace: Path) -> list[str | Path]:
    """What stands before a command whose syncs are written down, with their times."""
    return ["strace", "-f", "--seccomp-bpf", "-ttt", "-qq", "-e", "trace=fsync,fdatasync", "-o", trace]


def made(quick: bool) -> Results:
    """When, on what, and of what."""
    cpu = next(iter(re.findall(r"model name\s*:\s*(.+)", _text("/proc/cpuinfo"))), platform.processor())
    memory = re.findall(r"MemTotal:\s*(\d+)", _text("/proc/meminfo"))
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "quick": quick, "cores": os.cpu_count(), "cpu": cpu,
        "memory_gb": round(int(memory[0]) / (1 << 20)) if memory else None, "system": platform.system(),
        "python": platform.python_version(), "load_before": round(os.getloadavg()[0], 2),
        "versions": {"keep": _commit(), "dbos": _pinned()},
    }


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _pinned() -> str:
    found = re.search(r"^dbos==(\S+)", LOCK.read_text(), re.MULTILINE)
    return found[1] if found else ""
