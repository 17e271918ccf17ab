"""`make bench`: Keep and DBOS on SQLite do the same work on this machine, turn by turn; one table shows what it costs.

    python bench/compare.py [--quick] [--only keep] [--json bench/results.json] [--folder /a/disk]

Every measurement is a process of its own on a file of its own. The sides take turns within each round, so that whatever
else the machine does meets both; each figure is the median of the rounds. How DBOS is set up is not our guess: the
fastest of several arrangements is found first, in the same session. Nothing here judges; see docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from session import NAMES, OTHER, Session
from table import MANY, MOST, Results, Row, arranged, conditions, summary, text_table
from work import calibrate

#: Amounts of work: (full, quick).
ROUNDS = (3, 1)
RUNS = {"one": (300, 40), "many": (3_200, 64)}  # with many workflows each has fewer, and all have to get going
TRIAL = ((2, 80), (1, 30))  # tries of each arrangement, and the runs of one
COUNTED_RUNS = {"one": (128, 32), "many": (512, 64), "most": (1_024, 128)}
LATENCY_RUNS = (100, 20)
PENDING = (1_000, 80)
EVENTS = ((1_000, 10_000, 100_000, 1_000_000), (1_000, 5_000))
FILLED_AT_ONCE = 100_000  # so that one sees how far it is
WORKFLOWS = ((1, 10, 100, 1_000), (1, 10))
FAIR = ((1_000, 20), (20, 4))  # workflows, and the events of each
SIZES = ((100, 1_000, 10_000, 100_000), (100, 100_000))
SIZED_RUNS = (120, 40)
SHAPES = ("text", "objects")  # of a payload: one string, or objects of a hundred bytes
#: What is done with a payload: nothing; `mutate` reads two members, or all of it; `prepare` reads it and returns it.
USES = ("untouched", "read", "whole", "returned")
MAILBOX_BYTES = 3_000_000  # more does not fit into one answer of the mailbox
AT_ONCE = {"one": 1, "many": MANY, "most": MOST}
BOTH = ("one", "many")  # of these both sides are measured

#: The arrangements of DBOS that are tried, for one run at a time and for many: journal, way, connections.
WAYS = {
    "one": ([("default", "call"), ("default", "start"), ("wal", "call"), ("wal", "start")], [("wal", "call")]),
    "many": (
        [("default", "call"), ("default", "start", 1), ("wal", "call"), ("wal", "call", 1), ("wal", "start"),
         ("wal", "start", 1), ("wal", "queue"), ("wal", "queue", 1)],
        [("wal", "call", 1)],
    ),
}  # fmt: skip
#: Tried too, to show what syncing costs, and never chosen: a power cut may undo runs that it called done.
LOOSE = ("wal-normal", "call")
Ways = Mapping[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]
Part = Callable[[Session], None]


def disk(session: Session) -> None:
    """The disk's own speed: before, in between and at the end."""
    session.plan("the disk's own fsync", lambda s: s.keep("disk", fsync_ms=calibrate(s.folder)))


# Which arrangement is the fastest for DBOS


def trial(session: Session, tried: Ways = WAYS, loose: tuple[tuple[str, ...], ...] = (LOOSE,)) -> None:
    """Try each, then choose."""
    tries, _ = session.of(TRIAL)
    for which in BOTH:
        ways = [*session.of(tried[which]), *loose]
        for turn in range(1, tries + 1):
            for number, way in enumerate(ways, 1):
                how = dict(zip(("journal", "way", "pool"), way, strict=False))
                label = f"DBOS, {which} at a time: arrangement {number} of {len(ways)}, try {turn} of {tries}"
                session.plan(label, _try, which, how)
        session.plan(f"DBOS, {which} at a time: the fastest is chosen", lambda s, w=which: choose(s.found, w))


def _try(session: Session, which: str, how: dict[str, Any]) -> None:
    _, events = session.of(TRIAL)
    got = session.ask("dbos", "runs", session.file("dbos"), at_once=AT_ONCE[which], events=events, **how)
    tried = session.found.setdefault("trial", {}).setdefault(which, [])
    known = next((each for each in tried if each["how"] == how), None)
    if known is None:
        tried.append(known := {"how": how, "runs_per_s": []})
    known["runs_per_s"].append(round(got["runs_per_s"], 2))


def choose(found: Results, which: str) -> None:
    """The fastest of those that survive a power cut, by its best try; and the fastest with DBOS's own journal."""
    durable = [each for each in found["trial"][which] if each["how"]["journal"] != LOOSE[0]]
    plain = [each for each in durable if each["how"]["journal"] == "default"]
    for name, ways in (("chosen", durable), ("plain", plain)):
        if ways:
            found.setdefault(name, {})[which] = max(ways, key=lambda each: max(each["runs_per_s"]))["how"]


# Side by side


def throughput(session: Session) -> None:
    """Runs per second, and what they cost."""
    for which in BOTH:
        for side, label in session.turns(f"{AT_ONCE[which]} at a time", session.of(ROUNDS)):
            session.plan(label, _throughput, side, which)
            if side == "dbos" and session.as_it_comes:
                session.plan(f"{label}, as it comes", _throughput, "plain", which)


def _throughput(session: Session, side: str, which: str) -> None:
    how, events = session.how(side, which, way=True), session.of(RUNS[which])
    got = session.ask(side, "runs", session.file(side), at_once=AT_ONCE[which], events=events, **how)
    wanted = ("runs_per_s", "cpu_ms_per_run", "server_cpu_ms_per_run", "bytes_per_run", "wal_bytes_per_run", "peak_mb",
              "pss_mb")
    session.keep("runs", which, side, **{name: got[name] for name in wanted if name in got})
    if side == "keep" and which == "many":
        session.keep("latency", which, side, p50_ms=got["p50_ms"], p99_ms=got["p99_ms"])


def syncs(session: Session) -> None:
    """How often a run syncs, counted by strace in a round of its own, because that slows everything down."""
    if shutil.which("strace") is None:
        session.plan("fsyncs per run are not counted: there is no strace here", lambda s: None)
        return
    for which, at_once in AT_ONCE.items():
        for side in session.sides if which in BOTH else ("keep",):
            session.plan(f"fsyncs per run, {at_once} at a time: {NAMES[side]}", _syncs, side, which)


def _syncs(session: Session, side: str, which: str) -> None:
    trace, how, events = session.folder / "trace", session.how(side, which, way=True), session.of(COUNTED_RUNS[which])
    got = session.ask(side, "runs", session.file(side), trace=trace, at_once=AT_ONCE[which], events=events, **how)
    began = [float(line.split()[1]) for line in trace.read_text().splitlines() if "resumed" not in line]
    count = sum(got["from"] <= at <= got["to"] for at in began)
    session.keep("runs", which, side, fsyncs_per_run=count / got["runs"])


def latency(session: Session) -> None:
    """From an event's arrival to its end, one at a time; with many at once, from a run's start to its end."""
    for side, label in session.turns("latency when idle", session.of(ROUNDS)):
        session.plan(label, _latency, side, "one")
    for side, label in session.turns(f"latency with {MANY} at a time", session.of(ROUNDS)):
        if side == "dbos":  # Keep's comes from the throughput with many
            session.plan(label, _latency, side, "many")


def _latency(session: Session, side: str, which: str) -> None:
    how = session.how(side, which) | ({"at_once": AT_ONCE[which]} if side == "dbos" else {})
    events = session.of(LATENCY_RUNS) * (2 if which == "many" else 1)
    got = session.ask(side, "latency", session.file(side), events=events, **how)
    session.keep("latency", which, side, p50_ms=got["p50_ms"], p99_ms=got["p99_ms"])


def starts(session: Session) -> None:
    """From the start of a process on a file that is there to the end of its first run, and to the end of a backlog."""
    for side, label in session.turns("start", session.of(ROUNDS)):
        session.plan(label, _start, side)
    for side, label in session.turns(f"recovery of {session.of(PENDING):,} runs", session.of(ROUNDS)):
        session.plan(label, _recover, side)


def _start(session: Session, side: str) -> None:
    path, how = session.file(side), session.how(side, "one")
    session.ask(side, "start", path, **how)
    got = session.ask(side, "start", path, **how)
    session.keep("start", side, seconds=got["at"] - got["began"])


def _recover(session: Session, side: str) -> None:
    path, how, events = session.file(side), session.how(side, "many"), session.of(PENDING)
    session.ask(side, "pending", path, events=events, **how)
    got = session.ask(side, "recover", path, events=events, **how)
    session.keep("recovery", side, seconds=got["at"] - got["began"], runs=events)


def payloads(session: Session) -> None:
    """Runs per second with a payload of so many bytes, one at a time."""
    for use in USES:
        for shape in SHAPES:
            for size in session.of(SIZES):
                words = f"payload of {size:,} bytes, {shape}, {use}"
                for side, label in session.turns(words, session.of(ROUNDS)):
                    session.plan(label, _payload, side, use, shape, size)


def _payload(session: Session, side: str, use: str, shape: str, size: int) -> None:
    how, events = session.how(side, "one", way=True), min(session.of(SIZED_RUNS), MAILBOX_BYTES // size)
    got = session.ask(
        side, "runs", session.file(side), at_once=1, events=events, size=size, shape=shape, use=use, **how)
    session.keep("payload", use, shape, size, side, runs_per_s=got["runs_per_s"], cpu_ms_per_run=got["cpu_ms_per_run"])


# Keep alone


def crowds(session: Session) -> None:
    """Runs per second of one workflow beside so many idle ones."""
    paths = {count: session.folder / f"workflows-{count}.db" for count in session.of(WORKFLOWS)}
    for turn in range(1, session.of(ROUNDS) + 1):
        for count, path in paths.items():
            session.plan(f"{count:,} workflows, one of them busy: Keep, round {turn}", _crowd, count, path)


def _crowd(session: Session, count: int, path: Path) -> None:
    got = session.ask("keep", "beside", path, workflows=count, events=session.of(RUNS["one"]) // 2)
    session.keep("workflows", count, runs_per_s=got["runs_per_s"])


def fairness(session: Session) -> None:
    """So many workflows have events at one moment: after which part of the whole time has the last begun?"""
    for turn in range(1, session.of(ROUNDS) + 1):
        session.plan(f"many workflows at one moment: Keep, round {turn}", _fair)


def _fair(session: Session) -> None:
    workflows, events = session.of(FAIR)
    got = session.ask("keep", "fair", session.file("keep"), workflows=workflows, events=events)
    session.keep("fair", workflows, runs_per_s=got["runs_per_s"], last_first_part=got["last_first_part"])


def histories(session: Session) -> None:
    """Runs per second over a file that has so many events already; each file is a copy of the one before, grown."""
    paths = {count: session.folder / f"events-{count}.db" for count in session.of(EVENTS)}
    there, before = 0, None
    for count, path in paths.items():
        for until in [*range(there + FILLED_AT_ONCE, count, FILLED_AT_ONCE), count]:
            label = f"a file with {count:,} events is made: {until:,}"
            session.plan(label, _fill, count, until, path, before)
        there, before = count, path
    for turn in range(1, session.of(ROUNDS) + 1):
        for count, path in paths.items():
            session.plan(f"{count:,} events in the file: Keep, round {turn}", _history, count, path)


def _fill(session: Session, count: int, until: int, path: Path, before: Path | None) -> None:
    if before is not None and not path.exists():
        shutil.copy(before, path)
    session.ask("keep", "fill_up", path, events=until)
    if until == count:
        session.keep("events", count, megabytes=path.stat().st_size / 1e6)
        os.sync()  # what was written so far must not slow down what is measured next


def _history(session: Session, count: int, path: Path) -> None:
    got = session.ask("keep", "filled", path, events=session.of(RUNS["one"]) // 2)
    session.keep("events", count, runs_per_s=got["runs_per_s"])


def own(session: Session) -> None:
    """What has no counterpart: where a run's CPU goes, an idle host, the command line."""
    session.plan("where a run's microseconds go", _costs)
    session.plan("an idle host, and keep --help", _own)


def _costs(session: Session) -> None:
    got = session.ask("costs", "costs", session.file("keep"), events=session.of(RUNS["one"]) // 2)
    session.found["costs"] = {name: figure for name, figure in got.items() if name != "began"}


def _own(session: Session) -> None:
    session.keep("own", idle_percent=session.ask("keep", "idle", session.file("keep"))["idle_percent"])
    session.keep("own", help_ms=min(_help_ms() for _ in range(5)))


def _help_ms() -> float:
    began = time.perf_counter()
    subprocess.run([Path(sys.executable).with_name("keep"), "--help"], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


#: What is measured, in this order; the file with a million events comes last, because making it keeps the disk busy.
PARTS: tuple[Part, ...] = (
    disk, throughput, syncs, latency, starts, payloads, disk, crowds, fairness, own, histories, disk,
)


def measure(session: Session, first: Part, parts: tuple[Part, ...], only: str | None = None) -> Results:
    """Everything, in turn; or one part, after the disk. What the other side needs comes `first`."""
    wanted = parts if only is None else (disk, *(part for part in parts if part.__name__ == only))
    for part in (first, *wanted) if "dbos" in session.sides else wanted:
        part(session)
    session.run()
    return session.found


def options(told: str | None, parts: tuple[Part, ...]) -> argparse.Namespace:
    """What is asked for on the command line; which `sides`, too."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute or two: one round of little work")
    parser.add_argument("--only", choices=["keep"], help="without the other side")
    parser.add_argument("--part", choices=[part.__name__ for part in parts], help="measure this part alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures, for bench/plots.py")
    parser.add_argument("--folder", type=Path, help="where the files are made; the disk there is what is measured")
    given = parser.parse_args()
    given.sides = ("keep",) if given.only else ("keep", "dbos")
    if "dbos" in given.sides and not OTHER.exists():
        raise SystemExit("DBOS is not installed here. `make bench` installs it; --only keep does without.")
    return given


def show(found: Results, given: argparse.Namespace, words: Iterable[str] = (), rows: Iterable[Row] = ()) -> None:
    """Keep the figures and print them, with more `words` about the conditions and more `rows`."""
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    print("\n" + "\n".join([conditions(found), *words]))
    for which, how in found.get("chosen", {}).items():
        print(f"DBOS, {which} at a time: {arranged(how)}.")
    print("\n" + text_table([*summary(found), *rows]))


def main() -> None:
    """Measure, show, keep."""
    given = options(__doc__, PARTS)
    with tempfile.TemporaryDirectory(prefix="keep-bench-", dir=given.folder) as name:
        session = Session(Path(name), quick=given.quick, sides=given.sides)
        show(measure(session, trial, PARTS, given.part), given)


if __name__ == "__main__":
    main()
