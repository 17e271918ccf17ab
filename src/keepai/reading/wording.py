"""Writes times, numbers and sizes in words, the same at every door. Pure."""

from __future__ import annotations

from datetime import datetime
from types import MappingProxyType

from ..model.records import Kept
from ..model.visible_text import visible


def ago(then_ms: int, now_ms: int) -> str:
    """A time as people say it: `3 min ago`, `in 2 h`."""
    seconds = abs(now_ms - then_ms) / 1000
    if seconds < 1:
        return "now"
    told = next(f"{int(seconds / size)} {unit}" for size, unit in _UNITS if seconds >= size)
    if told.endswith("days") and told.startswith("1 "):
        told = "1 day"
    return f"in {told}" if then_ms > now_ms else f"{told} ago"


_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def clock(then_ms: int) -> str:
    """The time of day here."""
    return datetime.fromtimestamp(then_ms / 1000).astimezone().strftime("%H:%M:%S")


def one_line(text: str, most: int) -> str:
    """A text on one line, with everything in it made visible, cut with … to `most` characters."""
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def count(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


#: How a run stands that is not done → what people read.
STANDS = MappingProxyType({
    "paused:transient": "waits to try again", "paused:approval": "waits for approval",
    "paused:reconciliation": "looks up what happened", "paused:limit": "waits its turn",
    "paused:held": "waits for a parked run", "failed:logic": "failed", "failed:internal": "failed",
})


def run_stands(status: str) -> str:
    """How a run stands, after its name: `waits for approval`, `is active`."""
    return STANDS.get(status, f"is {status}")


def size(count_of_bytes: int) -> str:
    """`812 bytes`, `1.4 MB`."""
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count_of_bytes >= least:
            return f"{count_of_bytes / least:.1f} {unit}"
    return count(count_of_bytes, "byte")


def kept_bytes(found: Kept) -> str:
    """`3.1 MB of 4.0 GB: events 2.9 MB, runs 102.4 kB, inputs 12.0 kB`."""
    parts = (("events", found.events), ("runs", found.runs), ("inputs", found.inputs))
    return f"{size(found.total)} of {size(found.most)}: {', '.join(f'{name} {size(part)}' for name, part in parts)}"
