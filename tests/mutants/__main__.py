"""`make mutants`: put small faults into the code, one at a time, and see whether a test notices.

    python -m tests.mutants --count 150 --seed 1 --workers 2

First the tests are run once, to see which of them call which functions. Then a sample is drawn, by a seed, from all
faults that can be put into the engine, the ledger, the checks of scripts, the cores of the connectors, the vault and
the guard of the page. For each, the tests that call the faulty function are run in a copy of the project until one
fails that passes without the fault; one that does not end fails by its own limit. What no test notices is named. What
takes too long is undecided and does not count, nor does a fault that changes nothing a test could see: such a fault
stands in equivalent.txt with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.faults import Mutant, of_python, of_sql
from tests.mutants.record import FOLDER
from tests.prove.program import seconds_of

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
#: What is mutated: the name of an area → files.
AREAS: dict[str, tuple[str, ...]] = {
    "engine": ("engine/*.py",),
    "ledger": ("ledger/*.py", "ledger/transitions/*.py", "ledger/sqlite/*.py", "ledger/queries/*.sql"),
    "script": ("script/*.py",),
    "connectors": ("connectors/*.py", "connectors/http/*.py", "connectors/sql/*.py", "connectors/mail/*.py",
                   "connectors/google/*.py", "connectors/egress/*.py"),
    "vault": ("vault/*.py",),
    "page guard": ("doors/web/guard.py", "doors/web/sessions.py"),
}
#: The tests that are asked: those that run in this process and say what they are about.
TESTS = ("tests/unit", "tests/stories", "tests/ledger", "tests/vault", "tests/connectors", "tests/web/test_guard.py")
#: Which of these are run for a file of statements, whose callers cannot be seen.
SQL_TESTS = ("tests/ledger", "tests/stories")
TESTS_MAX = 200  # for one mutant
MUTANT_S_MAX = 600.0
UNSOUND_MAX = 4  # tests that fail without the fault as well, until nothing can be said
COPIED = ("src", "tests", "examples", "docs", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    area: str
    mutant: Mutant
    told: str
    found: str  # "failed", "broke", "undecided"; "" if no test noticed; "untested" if no test calls it
    by: str = ""


def candidates() -> list[tuple[str, Mutant]]:
    """Every fault, in a fixed order."""
    found = []
    for area, patterns in AREAS.items():
        for path in sorted({p for pattern in patterns for p in (ROOT / "src/keepai").glob(pattern)}):
            text, place = path.read_text(), path.relative_to(ROOT)
            found += [(area, each) for each in (of_sql if path.suffix == ".sql" else of_python)(place, text)]
    return found


def equivalent() -> set[str]:
    """The faults that change nothing; each line of the file is followed by its reason."""
    lines = (HERE / "equivalent.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith((" ", "#"))}


def without_line(told: str) -> str:
    """A fault as equivalent.txt names it: line numbers move."""
    path, _, rest = told.partition(":")
    return f"{path}: {rest.partition(': ')[2]}"


def seen(workers: int) -> dict[str, tuple[float, list[str]]]:
    """Which functions each test calls, and how long it takes; kept for a day, or until it is deleted."""
    kept = ROOT / ".mutants" / "calls.json"
    if not kept.exists() or time.time() - kept.stat().st_mtime > 86_400:
        print(f"which test calls what: {', '.join(TESTS)} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "tests.mutants.record",
                 "-p", "no:cacheprovider", *TESTS],
                cwd=ROOT, env={**os.environ, FOLDER: folder}, stdout=subprocess.DEVNULL, check=False, timeout=7200)
            parts = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps({name: told for part in parts for name, told in part.items()}))
    found: dict[str, tuple[float, list[str]]] = json.loads(kept.read_text())
    return found


def tests_for(mutant: Mutant, calls: dict[str, tuple[float, list[str]]], seed: int) -> list[str]:
    """The tests to ask, those that are about little else first."""
    if mutant.path.suffix == ".sql":
        those = sorted(name for name in calls if name.startswith(SQL_TESTS))
        random.Random(seed).shuffle(those)
        return those[:TESTS_MAX]
    place = f"{mutant.path.relative_to('src/keepai')}:{mutant.function}"
    those = [name for name, (_, places) in calls.items() if place in places]
    return sorted(those, key=lambda name: (len(calls[name][1]), name))[:TESTS_MAX]


def judge(copy: Path, area: str, mutant: Mutant, tests: list[str]) -> Verdict:
    """Put the fault in, run the tests, take it out; a test that fails without the fault too does not count."""
    path = copy / mutant.path
    text = path.read_text()
    told = mutant.told(text)
    if not tests:
        return Verdict(area, mutant, told, "untested")
    ends = time.monotonic() + MUTANT_S_MAX
    for _ in range(UNSOUND_MAX):
        path.write_text(mutant.put_into(text))
        try:
            code, failed = _run(copy, tests, ends - time.monotonic())
        finally:
            path.write_text(text)
        if code is None:
            return Verdict(area, mutant, told, "undecided")
        if code != 1 or not failed or _run(copy, [failed], MUTANT_S_MAX)[0] == 0:
            return Verdict(area, mutant, told, {0: "", 1: "failed"}.get(code, "broke"), failed)
        tests = [each for each in tests if each != failed]
    return Verdict(area, mutant, told, "undecided")


def _run(copy: Path, tests: list[str], seconds: float) -> tuple[int | None, str]:
    """The exit code of pytest, None if it took too long, and the first test that failed."""
    listed = copy / "tests.txt"
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", f"@{listed}"]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    running = subprocess.Popen(command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, start_new_session=True)
    try:
        said, _ = running.communicate(timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, 9)
        running.communicate()
        return None, ""
    told = (line.partition(" ")[2] for line in said.splitlines() if line.startswith(("FAILED tests", "ERROR tests")))
    return running.returncode, next(told, "").partition(" - ")[0]


def laid_out(folder: Path) -> Path:
    """A copy of the project to put faults into."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def table(verdicts: Sequence[Verdict]) -> str:
    """The score by area, and what no test noticed."""
    decided = [v for v in verdicts if v.found != "undecided"]
    lines = [f"{'area':<12}{'mutants':>9}{'found':>8}{'score':>8}"]
    for area in [*AREAS, "all"]:
        those = [v for v in decided if area in (v.area, "all")]
        found = sum(v.found in ("failed", "broke") for v in those)
        if those:
            lines.append(f"{area:<12}{len(those):>9}{found:>8}{100 * found / len(those):>7.0f}%")
    names = {"": "survived", "untested": "no test calls it", "undecided": "undecided"}
    return "\n".join([*lines, *(f"  {names[v.found]}: {v.told}" for v in verdicts if v.found in names)])


def main() -> int:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=seconds_of, default=float("inf"), help="begin no further mutant after this")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    calls, same = seen(given.workers), equivalent()
    every = [(area, m) for area, m in candidates() if without_line(m.told((ROOT / m.path).read_text())) not in same]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    ends = time.monotonic() + given.budget
    print(f"{len(drawn)} of {len(every):,} mutants, seed {given.seed}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="keep-mutants-") as folder:
        copies = [laid_out(Path(folder) / str(n)) for n in range(given.workers)]

        def one(item: tuple[str, Mutant]) -> Verdict | None:
            if time.monotonic() > ends:
                return None
            copy = copies.pop()
            try:
                verdict = judge(copy, *item, tests_for(item[1], calls, given.seed))
            finally:
                copies.append(copy)
            print(f"{verdict.found or 'SURVIVED':<9}{verdict.told}  {verdict.by}", file=sys.stderr, flush=True)
            return verdict

        with ThreadPoolExecutor(given.workers) as pool:
            verdicts = [verdict for verdict in pool.map(one, drawn) if verdict is not None]
    print(table(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
