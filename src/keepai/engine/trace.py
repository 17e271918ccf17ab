"""What a run did, line by line, until it is kept with the run in the same commit as its outcome."""

from __future__ import annotations

from ..model.clock import Clock
from ..model.codec import sound
from ..model.operations import Step
from ..model.policy import Policy
from ..model.records import Traced
from ..model.redaction import Redactor

_LITTLE = 100  # characters of what is cut short
_LINE = 100  # characters that a line counts for beside what it says: an empty one is not free either


class Trace:
    """Collects one run's calls, logs and warnings; `take` empties it.

    When they have `total_max` characters together, arguments and answers of further calls are cut short; when they have
    twice as many, further lines are only counted. Both stand in the trace."""

    def __init__(
        self, run_id: str, clock: Clock, bytes_max: int, position: int, redactor: Redactor | None = None,
        total_max: int = Policy.trace_bytes_per_run_max,
    ) -> None:
        self._run_id, self._clock, self._bytes_max, self._position = run_id, clock, bytes_max, position
        self._redactor, self._total_max = redactor, total_max
        self._lines: list[Traced] = []
        self._warned: set[str] = set()
        self._total = 0  # characters of all lines, also of those that were taken
        self._left_out = 0
        self._step = Step.PRODUCER  # of the last line

    def call(
        self, step: Step, name: str, args: str, answer: str | None, error: str | None, duration_ms: int,
    ) -> None:
        """A call and what came of it, in JSON."""
        if self._is_full(step):
            return
        shown_answer = None if error or answer is None else self._short(answer)
        self._add(step, "call", name, self._short(args), shown_answer, error, duration_ms)

    def log(self, step: Step, level: str, text: str) -> None:
        """A line that the script wrote."""
        if self._is_full(step):
            return
        self._add(step, "log", level, None, text, None, None)

    def warning(self, step: Step, text: str) -> None:
        """Something that the host did with the script's wish, and that a person may want to know."""
        self._add(step, "warning", "host", None, text, None, None)

    def warning_once(self, step: Step, about: str, text: str) -> None:
        """A warning, if it is the first of this run about such a thing."""
        if about not in self._warned:
            self._warned.add(about)
            self.warning(step, text)

    def take(self) -> list[Traced]:
        """Everything since the last time."""
        if self._left_out:
            self.warning(self._step, (
                f"{self._left_out:,} further calls and log lines of this run are not kept: what it kept has "
                f"{2 * self._total_max:,} characters, the limit (twice policy trace_bytes_per_run_max)."
            ))
            self._left_out = 0
        lines, self._lines = self._lines, []
        return lines

    def put_back(self, lines: list[Traced]) -> None:
        """What was taken could not be kept yet."""
        self._lines = lines + self._lines

    def _is_full(self, step: Step) -> bool:
        """Whether a further line is only counted."""
        if self._total < 2 * self._total_max:
            return False
        self._left_out, self._step = self._left_out + 1, step
        return True

    def _add(
        self, step: Step, kind: str, name: str, args: str | None, answer: str | None, error: str | None,
        duration_ms: int | None,
    ) -> None:
        self._position += 1
        if self._redactor is not None:
            answer, error = self._told(answer), self._told(error)
        self._total += _LINE + len(args or "") + len(answer or "") + len(error or "")
        self._lines.append(Traced(
            self._run_id, self._position, step.value, kind, name, args, sound(answer) if answer else answer,
            sound(error) if error else error, duration_ms, self._clock.now_ms(),
        ))

    def _told(self, text: str | None) -> str | None:
        return self._redactor.text(text) if self._redactor is not None and text else text

    def _short(self, text: str) -> str:
        if self._redactor is not None:
            text = self._redactor.text(text)  # before it is cut: half a secret would not be found
        most = self._bytes_max if self._total < self._total_max else _LITTLE
        return text if len(text) <= most else text[:most] + f"… ({len(text):,} characters)"
