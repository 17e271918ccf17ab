"""How much came in, went out and failed in each of the last 24 hours, for every workflow at once.

Nothing is counted when it is written: an hour is counted when somebody looks. The ids of a kind sort by the time at
which they were made, so one statement reads the newest rows of all workflows and nothing else. What was counted is
remembered in steps of five minutes, and only the newest steps are counted again.

The first count of a big ledger takes up to a second on a busy machine. Who looks meanwhile does not wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from ..ledger.base import Reader
from ..model.acts import ACTS
from ..model.ids import earliest
from ..model.records import Record

HOURS = 24
STEP_MS = 300_000
STEPS = 3_600_000 // STEP_MS  #: in an hour
ROWS_MAX = 5_000_000  #: of each kind that are counted at one look
OPEN_STEPS = 2  #: the newest ones, which still get rows
ACTS_MAX = 20_000  #: the newest acts of people, in which answers are looked for
WAIT_S = 0.05  #: for another thread that counts

#: How long a run that is done took, in words, as the statement `activity_runs` sorts them; waiting is part of it.
TOOK = ("under 0.1 s", "0.1 to 1 s", "1 to 10 s", "10 s to 1 min", "over 1 min")

#: What is counted → the statement, and the prefix of the ids of its rows.
_COUNTED: Mapping[str, tuple[str, str]] = {
    "inputs": ("activity_inputs", "inp"), "outputs": ("activity_outputs", "mut"), "runs": ("activity_runs", "run"),
}
#: The acts that answer a question.
_ANSWERS = {name for name, act in ACTS.items() if {"approval", "proposal", "run", "mutation"} & {*act.on}}

_Step = Counter[tuple[str, str]]  # by workflow and what is counted


@dataclass(frozen=True)
class Activity(Record):
    """The last 24 hours of one workflow, or of all: a number for each hour, the oldest first."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    runs: tuple[int, ...]
    failed: tuple[int, ...]  # of the runs: they stopped at an error, or their host died
    answers: tuple[int, ...]  # to questions, of people
    took: tuple[tuple[int, ...], ...]  # of the runs: those that are done, by the classes of `TOOK`

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
        self.missed = False  # somebody looked while the first count was under way

    def of(self, read: Reader, now_ms: int) -> dict[str, Activity]:
        """The last 24 hours of each workflow in which anything happened, by its id."""
        with self._lock:
            return self._of(read, now_ms)

    def at_once(self, read: Reader, now_ms: int) -> dict[str, Activity] | None:
        """The same; None while another thread counts, which can take long only for the first time."""
        if not self._lock.acquire(timeout=WAIT_S):
            self.missed = True
            return None
        try:
            return self._of(read, now_ms)
        finally:
            self._lock.release()

    def _of(self, read: Reader, now_ms: int) -> dict[str, Activity]:
        last = now_ms // STEP_MS
        first = last - HOURS * STEPS + 1
        since = max(first, self._settled)
        known = {step: counts for step, counts in self._steps.items() if first <= step < since}
        self._steps = known | _counted(read, since)
        self._settled = max(self._settled, last - OPEN_STEPS)
        steps = self._steps
        return {wf: _activity(wf, steps, last) for wf in {wf for counts in steps.values() for wf, _ in counts}}


def by_hour(moments: Iterable[int], now_ms: int) -> tuple[int, ...]:
    """How many of some moments lie in each of the last 24 hours."""
    found = Counter((now_ms // STEP_MS - moment // STEP_MS) // STEPS for moment in moments)
    return tuple(found[HOURS - 1 - place] for place in range(HOURS))


def together(parts: Mapping[str, Activity]) -> Activity:
    """All workflows as one."""
    def added(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(map(sum, zip(*[(0,) * HOURS, *rows], strict=True)))

    def of(name: str) -> tuple[int, ...]:
        return added(getattr(each, name) for each in parts.values())

    took = tuple(added(each.took[place] for each in parts.values()) for place in range(len(TOOK)))
    return Activity(of("inputs"), of("outputs"), of("runs"), of("failed"), of("answers"), took)


NOTHING = together({})


def _counted(read: Reader, since: int) -> dict[int, _Step]:
    found: dict[int, _Step] = {}
    for name, (statement, prefix) in _COUNTED.items():
        for row in read.all(statement, first_id=earliest(prefix, since * STEP_MS), step_ms=STEP_MS, limit=ROWS_MAX):
            wf, counts = row["workflow_id"], found.setdefault(int(row["step"]), Counter())
            counts[wf, name] += int(row["number"])
            if name == "runs":
                counts[wf, "failed"] += int(row["failed"])
                counts[wf, f"took {row['took']}"] += int(row["number"])
    for row in read.all("activity_acts", since_at=since * STEP_MS, step_ms=STEP_MS, limit=ACTS_MAX):
        if row["act"] in _ANSWERS:
            found.setdefault(int(row["step"]), Counter())[row["workflow_id"], "answers"] += int(row["number"])
    return {step: counts for step, counts in found.items() if step >= since}


def _activity(wf: str, steps: Mapping[int, _Step], last: int) -> Activity:
    took = [f"took {place}" for place in range(len(TOOK))]
    hours: dict[str, list[int]] = {
        name: [0] * HOURS for name in ("inputs", "outputs", "runs", "failed", "answers", *took)}
    for step, counts in steps.items():
        back = (last - step) // STEPS
        if 0 <= back < HOURS:
            for name, numbers in hours.items():
                numbers[HOURS - 1 - back] += counts[wf, name]
    made = {name: tuple(numbers) for name, numbers in hours.items() if name not in took}
    return Activity(**made, took=tuple(tuple(hours[each]) for each in took))
