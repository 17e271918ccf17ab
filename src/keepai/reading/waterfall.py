"""A run as a waterfall: its steps as bars beside each other in time, what each called and logged, and its waits.

The bars are made from the account (when the run went from phase to phase, when it stood still) and from the trace (when
a call ended and how long it took). A wait may be a thousand times longer than the work: it is drawn shorter than it
was, and its length is written beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..ledger.base import Row
from ..model.codec import stored
from ..model.records import Record, Run, Traced
from ..model.states import OPEN, Phase, Status, shown

WIDTH = 1000  #: of the whole, in the units of the bars
_LEAST = 4  #: a bar that is shorter could not be seen
_WAIT_MOST = 0.25  #: the longest that a wait is drawn, as a part of the time of work

#: Phase → the step that runs in it; of a producer or a routine, its kind.
_STEPS = {Phase.PREPARING: "prepare", Phase.MUTATING: "mutate", Phase.EMITTING: "next"}


@dataclass(frozen=True)
class Bar(Record):
    """From where to where something is drawn."""

    left: float
    width: float


@dataclass(frozen=True)
class WaitBar(Record):
    """A time in which the run stood still."""

    reason: str
    lasted: str
    bar: Bar


@dataclass(frozen=True)
class StepEntry(Record):
    """One call with its answer, or one line that was logged."""

    traced: Traced
    args: str | None  # as people can read them
    answer: str | None
    lasted: str | None
    bar: Bar | None


@dataclass(frozen=True)
class StepBar(Record):
    """One step, how long it worked, and what it did."""

    step: str
    lasted: str | None  # None: its beginning is not on record
    bar: Bar | None
    waits: tuple[WaitBar, ...]
    entries: tuple[StepEntry, ...]


@dataclass(frozen=True)
class Span:
    """A time between two moments."""

    since: int
    until: int

    @property
    def length(self) -> int:
        return self.until - self.since

    def within(self, other: Span) -> int:
        """How much of it lies in another."""
        return max(0, min(self.until, other.until) - max(self.since, other.since))


class Scale:
    """From moments of a run to places on its picture."""

    def __init__(self, whole: Span, waits: Sequence[Span]) -> None:
        work = whole.length - sum(wait.within(whole) for wait in waits)
        most = max(1.0, work * _WAIT_MOST)
        self._whole, self._waits = whole, [(wait, min(1.0, most / max(1, wait.length))) for wait in waits]
        self._total = max(1.0, self._at(whole.until))

    def bar(self, span: Span) -> Bar:
        """Where a time is drawn; never so short that it could not be seen, never over the edge."""
        left, right = (self._at(each) / self._total * WIDTH for each in (span.since, span.until))
        width = min(WIDTH, max(_LEAST, right - left))
        return Bar(round(max(0.0, min(left, WIDTH - width)), 1), round(width, 1))

    def moment_at(self, part: float) -> int:
        """The moment at a part of the picture's width."""
        low, high = self._whole.since, self._whole.until
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._at(middle) < part * self._total else (low, middle)
        return high if part else self._whole.since

    def _at(self, moment: int) -> float:
        passed = Span(self._whole.since, max(self._whole.since, min(moment, self._whole.until)))
        return passed.length - sum(wait.within(passed) * (1 - drawn) for wait, drawn in self._waits)


def _scaled(run: Run, moves: Sequence[Row], now_ms: int) -> tuple[Scale, Span, list[tuple[str, Span]]]:
    end = now_ms if run.state in OPEN else run.updated_at
    whole = Span(run.created_at, max(run.created_at, end))
    waits = list(_waits(moves, whole.until))
    return Scale(whole, [span for _, span in waits]), whole, waits


def ticks(run: Run, moves: Sequence[Row], now_ms: int, number: int = 5) -> tuple[str, ...]:
    """The times below a picture, evenly from its left edge to its right: how long after its beginning each is."""
    scale, whole, _ = _scaled(run, moves, now_ms)
    if not whole.length:
        return ()
    parts = [scale.moment_at(place / (number - 1)) - whole.since for place in range(number)]
    return tuple(duration_text(part) if part else "0" for part in parts)


def waterfall(run: Run, moves: Sequence[Row], trace: Sequence[Traced], now_ms: int) -> tuple[StepBar, ...]:
    """The steps of a run in their order."""
    scale, whole, waits = _scaled(run, moves, now_ms)
    spans = dict(_steps(run, moves, whole.until))
    steps = dict.fromkeys([*spans, *(line.step for line in trace)])
    did = {step: [line for line in trace if line.step == step] for step in steps}
    return tuple(_stage(step, spans.get(step), did[step], waits, scale) for step in steps)


def _steps(run: Run, moves: Sequence[Row], end: int) -> Iterator[tuple[str, Span]]:
    """Each step, and when it was the run's."""
    phases = [(Phase(row["target"]), int(row["at"])) for row in moves if row["machine"] == "phase"]
    for (phase, since), (_, until) in pairwise([*phases, (Phase.COMMITTED, end)]):
        step = run.kind if phase is Phase.EXECUTING else _STEPS.get(phase)
        if step:
            yield step, Span(since, max(since, until))


def _waits(moves: Sequence[Row], end: int) -> Iterator[tuple[str, Span]]:
    """Each time in which a run stood still, and why."""
    states = [row for row in moves if row["machine"] == "status"]
    for row, after in zip(states, [*(int(each["at"]) for each in states[1:]), end], strict=True):
        if row["target"] in (Status.PAUSED, Status.FAILED) and after > row["at"]:
            yield _reason(row), Span(int(row["at"]), after)


def _reason(row: Row) -> str:
    """What a stop waits for, as the account has it."""
    try:
        kept = stored(row["why"]) if row["why"] else None
    except ValueError:
        kept = None
    reason = kept.get("reason") if isinstance(kept, Mapping) else None
    return shown(str(row["target"]), str(reason) if reason else None)


def _stage(
    step: str, span: Span | None, lines: Sequence[Traced], waits: Sequence[tuple[str, Span]], scale: Scale,
) -> StepBar:
    entries = tuple(_entry(line, scale) for line in lines)
    if span is None:
        return StepBar(step, None, None, (), entries)
    inside = [(reason, wait) for reason, wait in waits if wait.within(span)]
    worked = span.length - sum(wait.within(span) for _, wait in inside)
    stood = tuple(WaitBar(reason, duration_text(wait.length), scale.bar(wait)) for reason, wait in inside)
    return StepBar(step, duration_text(worked), scale.bar(span), stood, entries)


def _entry(line: Traced, scale: Scale) -> StepEntry:
    """A call is drawn from its beginning; the trace says when it ended and how long it took."""
    if line.duration_ms is None:
        return StepEntry(line, None, line.answer, None, None)
    bar = scale.bar(Span(line.at - line.duration_ms, line.at))
    return StepEntry(line, _readable(line.args), _readable(line.answer), duration_text(line.duration_ms), bar)


def _readable(text: str | None) -> str | None:
    """JSON on lines of its own; what is too long was cut, and stays as it is."""
    try:
        return text and json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def duration_text(ms: int) -> str:
    """How long something lasted, as people say it."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    return " ".join(f"{number} {unit}" for number, unit in [part for part in parts if part[0]][:2])
