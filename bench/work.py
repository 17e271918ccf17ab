"""What both sides of the benchmark share: the events, the percentiles, the figures of a run, and the disk's own speed.

It is imported by Keep's side and by the other's, which has another environment, so it uses nothing but Python itself.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
Place = Path | str  #: of a ledger: a file, or the address of a database


def mail(number: int, size: int = 0, shape: str = "text") -> dict[str, Any]:
    """The event: a small mail, or one with so many more bytes, as one text or as objects of a hundred bytes."""
    small = {"id": f"m{number}", "from": f"a{number}@example.com", "subject": f"Invoice {number}"}
    if not size:
        return small
    return small | ({"body": "x" * size} if shape == "text" else {"rows": [row(n) for n in range(max(1, size // 100))]})


def row(number: int) -> dict[str, Any]:
    """A hundred bytes of JSON."""
    return {
        "id": f"r{number:07}", "name": f"Position {number:07}", "amount": number, "price": number + 0.25,
        "paid": number % 2 == 0, "note": "n" * 5,
    }


def percentiles(took_ms: list[float]) -> Figures:
    """The middle, and the slowest of a hundred."""
    ordered = sorted(took_ms)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[int(len(ordered) * 0.99)]}


def per_run(before: Figures, after: Figures, runs: int) -> Figures:
    """Of all that was spent between two looks, the part of one run."""
    return {f"{name}_per_run": (after[name] - before[name]) / runs for name in before}


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


def answer(tasks: dict[str, Callable[..., Figures]], given: list[str]) -> None:
    """Do one task as a program: `python side.py TASK '{"path": …}'`; the figures are the last line on stdout."""
    task, params = given
    params_read = json.loads(params)
    if "://" not in params_read["path"]:
        params_read["path"] = Path(params_read["path"])
    print(json.dumps(tasks[task](**params_read)), flush=True)
