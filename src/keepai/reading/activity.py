"""How much came in, went out and failed in each of the last 24 hours, for every workflow at once.

Nothing is counted when it is written: an hour is counted when somebody looks. The ids of a kind sort by the time at
which they were made, so one statement reads the newest rows of all workflows and nothing else. What was counted is
remembered in steps of five minutes, and only the newest steps are counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from ..ledger.base import Reader
from ..model.ids import earliest
from ..model.records import Record

HOURS = 24
STEP_MS = 300_000
STEPS = 3_600_000 // STEP_MS  #: in an hour
ROWS_MAX = 5_000_000  #: of each kind that are counted at one look
OPEN_STEPS = 2  #: the newest ones, which still get rows

#: What is counted → the statement, and the prefix of the ids of its rows.
_COUNTED: Mapping[str, tuple[str, str]] = {
    "inputs": ("activity_inputs", "inp"), "outputs": ("activity_outputs", "mut"), "runs": ("activity_runs", "run"),
}

_Step = Counter[tuple[str, str]]  # by workflow and what is counted


@dataclass(frozen=True)
class Activity(Record):
    """The last 24 hours of one workflow, or of all: a number for each hour, the oldest first."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    runs: tuple[int, ...]
    failed: tuple[int, ...]  # of the runs: they stopped at an error, or their host died

    @property
    def failure_rate(self) -> float | None:
        """Which part of the runs failed; None if nothing ran."""
        return sum(self.failed) / sum(self.runs) if sum(self.runs) else None


class ActivityCounts:
    """Counts, and remembers what can no longer change. It may be asked by several threads."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._settled = 0  # the steps before this one are not counted again
        self._lock = Lock()

    def of(self, read: Reader, now_ms: int) -> dict[str, Activity]:
        """The last 24 hours of each workflow in which anything happened, by its id."""
        last = now_ms // STEP_MS
        first = last - HOURS * STEPS + 1
        with self._lock:
            since = max(first, self._settled)
            known = {step: counts for step, counts in self._steps.items() if first <= step < since}
            self._steps = known | _counted(read, since)
            self._settled = max(self._settled, last - OPEN_STEPS)
            steps = self._steps
        return {wf: _activity(wf, steps, last) for wf in {wf for counts in steps.values() for wf, _ in counts}}


def together(parts: Mapping[str, Activity]) -> Activity:
    """All workflows as one."""
    def added(name: str) -> tuple[int, ...]:
        return tuple(map(sum, zip(*[(0,) * HOURS, *(getattr(each, name) for each in parts.values())], strict=True)))

    return Activity(added("inputs"), added("outputs"), added("runs"), added("failed"))


NOTHING = together({})


def _counted(read: Reader, since: int) -> dict[int, _Step]:
    found: dict[int, _Step] = {}
    for name, (statement, prefix) in _COUNTED.items():
        for row in read.all(statement, first_id=earliest(prefix, since * STEP_MS), step_ms=STEP_MS, limit=ROWS_MAX):
            counts = found.setdefault(int(row["step"]), Counter())
            counts[row["workflow_id"], name] += int(row["number"])
            if name == "runs":
                counts[row["workflow_id"], "failed"] += int(row["failed"])
    return {step: counts for step, counts in found.items() if step >= since}


def _activity(wf: str, steps: Mapping[int, _Step], last: int) -> Activity:
    hours: dict[str, list[int]] = {name: [0] * HOURS for name in ("inputs", "outputs", "runs", "failed")}
    for step, counts in steps.items():
        back = (last - step) // STEPS
        if 0 <= back < HOURS:
            for name, numbers in hours.items():
                numbers[HOURS - 1 - back] += counts[wf, name]
    return Activity(**{name: tuple(numbers) for name, numbers in hours.items()})
