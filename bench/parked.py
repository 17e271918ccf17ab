"""What parked runs cost the others: `python bench/parked.py parked '{"path": "/tmp/parked", "runs": 200}'`.

The same work is done with some runs parked and with none, by turns, so that both meet the same machine. The CPU of the
host is compared, because what else the machine does changes it little.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import time
from pathlib import Path

from keep_side import SCRIPT, Mail, Sheets, warm_up
from work import Figures, answer

from keepai import Keep, Policy

_ONE_SHEET_EACH = SCRIPT.replace('sheet: "s", values: [prepared.data.from, prepared.data.subject]',
                                 "sheet: prepared.data.id, values: [Number(prepared.data.id.slice(1))]")


async def _work(path: Path, runs: int, before: int, *, parked: bool) -> Figures:
    """So many runs, after some before them that are parked, or done."""
    box, policy = Mail(before), Policy(parked_max=before + 1)
    async with Keep(path, connectors=[box, Sheets()], policy=policy) as keep:
        await warm_up(keep, 1)
        asks = {"ask_when": [f"values[0] < {before}"]} if parked else {}
        grants = {"mail.search": "allow", "sheets.appendRow": {"mode": "allow", **asks}}
        wf = str((await keep.deploy(_ONE_SHEET_EACH.replace("NAME", "bench"), grants=grants)).workflow_id)
        await keep.set(wf, "others")
        await keep.run_until_idle()
        assert len(await keep.needs_you()) == (before if parked else 0)
        box.count += runs
        await keep.run_now(wf)
        cpu, began = _cpu_s(), time.perf_counter()
        await keep.run_until_idle()
        took = {"cpu_ms": (_cpu_s() - cpu) * 1000 / runs, "runs_per_s": runs / (time.perf_counter() - began)}
        assert len(await keep.events(wf, "mail.received", status="pending")) == (before if parked else 0)
        return took


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def parked(path: Path, runs: int, parked: int = 100, rounds: int = 3) -> Figures:
    """With so many parked and with none: the middle of some rounds."""
    found: dict[str, list[Figures]] = {"none": [], "parked": []}
    for number in range(rounds):
        for name, figures in found.items():
            place = path.with_name(f"{path.name}-{number}-{name}.db")
            figures.append(asyncio.run(_work(place, runs, parked, parked=name == "parked")))
    return {
        name: {key: statistics.median(each[key] for each in figures) for key in ("cpu_ms", "runs_per_s")}
        for name, figures in found.items()
    }


if __name__ == "__main__":
    answer({"parked": parked}, sys.argv[1:])
