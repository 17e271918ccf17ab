"""From the figures of a benchmark to rows for people: medians, spreads, ratios; for the terminal and for the docs.

It only reads what `bench/compare.py` found; a part that was not measured has no row.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Results = dict[str, Any]
MANY, MOST = 32, 64


@dataclass(frozen=True)
class Row:
    """One measure: what each side has, and Keep's share of the other's."""

    what: str
    keep: str
    dbos: str = ""
    ratio: str = ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """As a line of a table."""
        return self.what, self.keep, self.dbos, self.ratio


HEAD = Row("", "Keep", "DBOS", "Keep / DBOS")

#: Part of the results → what its row is called, and how its figures are written.
_OF_RUNS = {
    "runs_per_s": ("runs/s", "{:,.1f}"), "cpu_ms_per_run": ("CPU, ms per run", "{:.2f}"),
    "server_cpu_ms_per_run": ("CPU of PostgreSQL, ms per run", "{:.2f}"),
    "trips_per_run": ("round trips per run", "{:.1f}"), "statements_per_run": ("statements per run", "{:.1f}"),
    "commits_per_run": ("commits per run, also of what only reads", "{:.2f}"),
    "fsyncs_per_run": ("fsyncs per run", "{:.2f}"), "bytes_per_run": ("bytes on disk per run", "{:,.0f}"),
    "wal_bytes_per_run": ("bytes of the write-ahead log per run", "{:,.0f}"),
    "peak_mb": ("peak memory, MiB", "{:,.0f}"), "pss_mb": ("memory, shared pages once, MiB", "{:,.0f}"),
}
_SHAPES = {"text": "one string", "objects": "small objects"}
_USES = {
    "untouched": "untouched", "read": "read in mutate", "whole": "all of it read in mutate",
    "returned": "read and returned by prepare",
}
_AT_ONCE = {"one": "one at a time", "many": f"{MANY} at a time", "most": f"{MOST} at a time"}


def middle(figures: Iterable[float]) -> float:
    """The median."""
    return float(statistics.median(figures))


def spread(figures: list[float], form: str) -> str:
    """The median, and between what the rounds were."""
    shown = form.format(middle(figures))
    ends = [form.format(end) for end in (min(figures), max(figures))]
    return f"{shown} ({ends[0]}–{ends[1]})" if len(figures) > 1 and ends[0] != ends[1] else shown


def ratio(keep: list[float], dbos: list[float]) -> str:
    """How many times the other's figure Keep's is."""
    return f"{middle(keep) / middle(dbos):.2f}×" if keep and dbos and middle(dbos) else ""


def pair(what: str, sides: Results, name: str, form: str, other: str = "dbos") -> Iterator[Row]:
    """A row of both sides, if there is a figure of the other, or of Keep beside DBOS."""
    keep, dbos = (sides.get(side, {}).get(name, []) for side in ("keep", other))
    if dbos or (keep and other == "dbos"):
        yield Row(what, *(spread(each, form) if each else "–" for each in (keep, dbos)), ratio(keep, dbos))


def summary(found: Results) -> list[Row]:
    """Every row, in the order in which people ask."""
    rows = [row for part in (_runs, _latency, _starts, _payload) for row in part(found)]
    return [*rows, *_growth(found, "workflows", "workflows, one busy"), *_growth(found, "events", "events in the file"),
            *_fair(found), *_own(found)]


def _runs(found: Results) -> Iterator[Row]:
    for which, words in _AT_ONCE.items():
        for name, (what, form) in _OF_RUNS.items():
            sides = found.get("runs", {}).get(which, {})
            yield from pair(f"{what}, {words}", sides, name, form)
            if name == "runs_per_s":
                yield from pair(f"{what}, {words}; DBOS as it comes", sides, name, form, "plain")
    yield from pair("runs/s, whichever is faster", _faster(found), "runs_per_s", "{:,.1f}")


def _faster(found: Results) -> Results:
    """For each side the rounds of the way in which it is faster."""
    both = [sides for sides in found.get("runs", {}).values() if "runs_per_s" in sides.get("keep", {})]
    return {
        side: max((sides[side] for sides in both if side in sides), key=lambda each: middle(each["runs_per_s"]))
        for side in ("keep", "dbos") if any(side in sides for sides in both)
    }


def _latency(found: Results) -> Iterator[Row]:
    for which, words in (("one", "idle"), ("many", f"{MANY} at a time")):
        for name in ("p50_ms", "p99_ms"):
            what = f"latency {name[:3]}, {words}, ms"
            yield from pair(what, found.get("latency", {}).get(which, {}), name, "{:,.1f}")


def _starts(found: Results) -> Iterator[Row]:
    yield from pair("process start to first run done, s", found.get("start", {}), "seconds", "{:.2f}")
    recovery = found.get("recovery", {})
    count = next((side["runs"][0] for side in recovery.values()), 0)
    yield from pair(f"start to {count:,} runs left by SIGKILL done, s", recovery, "seconds", "{:.1f}")


def _payload(found: Results) -> Iterator[Row]:
    for use, shapes in found.get("payload", {}).items():
        for shape, sizes in shapes.items():
            for size, sides in sizes.items():
                what = f"runs/s, payload {int(size):,} bytes, {_SHAPES[shape]}, {_USES[use]}"
                yield from pair(what, sides, "runs_per_s", "{:,.1f}")


def _growth(found: Results, part: str, words: str) -> Iterator[Row]:
    sizes = found.get(part, {})
    for number, (count, figures) in enumerate(sizes.items()):
        fewest, speed = next(iter(sizes)), middle(figures["runs_per_s"])
        slower = middle(sizes[fewest]["runs_per_s"]) / speed
        note = f"{slower:.2f}× the time with {int(fewest):,}" if number else ""
        yield Row(f"runs/s, {int(count):,} {words}", spread(figures["runs_per_s"], "{:,.1f}"), "", note)


def _fair(found: Results) -> Iterator[Row]:
    for count, figures in found.get("fair", {}).items():
        part = spread([100 * each for each in figures["last_first_part"]], "{:.0f}")
        yield Row(f"last of {int(count):,} workflows begins after so much of the time, %", part)
        yield Row(f"runs/s, {int(count):,} workflows at one moment", spread(figures["runs_per_s"], "{:,.1f}"))


def _own(found: Results) -> Iterator[Row]:
    rows = {"idle_percent": ("idle host, % of a core", "{:.1f}"), "help_ms": ("keep --help, ms", "{:.0f}")}
    for name, (what, form) in rows.items():
        if name in found.get("own", {}):
            yield Row(what, spread(found["own"][name], form))
    recorded = found.get("costs", {}).get("recording_ratio")
    if recorded is not None:
        yield Row("CPU of a run, recorded / not recorded", f"{recorded:.3f}×")


def conditions(found: Results) -> str:
    """On what it was measured, in one sentence."""
    made, fsync = found["made"], middle(found["disk"]["fsync_ms"])
    quick = " A quick round: the figures say little." if made["quick"] else ""
    return (
        f"{made['at']}, {made['cores']} cores of {made['cpu']}, {made['memory_gb']} GB, Python {made['python']}, "
        f"Keep {made['versions']['keep']}, DBOS {made['versions']['dbos']}. A 4 KiB write with fsync took "
        f"{fsync:.2f} ms here, {1000 / fsync:,.0f} a second; the load before was {made['load_before']}.{quick}"
    )


def arranged(how: Results) -> str:
    """An arrangement of DBOS in words."""
    journal = {"postgres": "one connection pool", "default": "DBOS's default journal", "wal": "WAL, synchronous=FULL",
               "wal-normal": "WAL, synchronous=NORMAL (a power cut may undo runs)"}[how["journal"]]
    way = {"call": "the workflow called directly", "start": "start_workflow", "queue": "a queue, polled every 10 ms"}
    pool = f", {how['pool']} connection{'s' if how['pool'] > 1 else ''}" if how.get("pool") else ""
    return f"{journal}, {way[how['way']]}{pool}"


def text_table(rows: list[Row]) -> str:
    """For a terminal."""
    cells = [row.cells for row in [HEAD, *rows]]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
             for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """For a page."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
