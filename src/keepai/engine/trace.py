"""What a run did, line by line, until it is kept with the run in the same commit as its outcome."""

from __future__ import annotations

from ..connectors.redaction import Redactor
from ..model.clock import Clock
from ..model.codec import sound
from ..model.operations import Step
from ..model.records import Traced

_HELD_MAX = 64 << 20  # characters that a run keeps in memory before the rest is cut short
_LITTLE = 100  # characters of what is cut short


class Trace:
    """Collects one run's calls, logs and warnings; `take` empties it."""

    def __init__(
        self, run_id: str, clock: Clock, bytes_max: int, position: int, redactor: Redactor | None = None,
    ) -> None:
        self._run_id, self._clock, self._bytes_max, self._position = run_id, clock, bytes_max, position
        self._redactor = redactor
        self._lines: list[Traced] = []
        self._warned: set[str] = set()
        self._held = 0  # characters of arguments and answers in them

    def call(
        self, step: Step, name: str, args: str, answer: str | None, error: str | None, duration_ms: int,
    ) -> None:
        """A call and what came of it, in JSON."""
        shown_answer = None if error or answer is None else self._short(answer)
        self._add(step, "call", name, self._short(args), shown_answer, error, duration_ms)

    def log(self, step: Step, level: str, text: str) -> None:
        """A line that the script wrote."""
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
        lines, self._lines, self._held = self._lines, [], 0
        return lines

    def put_back(self, lines: list[Traced]) -> None:
        """What was taken could not be kept yet."""
        self._lines = lines + self._lines

    def _add(
        self, step: Step, kind: str, name: str, args: str | None, answer: str | None, error: str | None,
        duration_ms: int | None,
    ) -> None:
        self._position += 1
        if self._redactor is not None:
            answer, error = self._told(answer), self._told(error)
        self._lines.append(Traced(
            self._run_id, self._position, step.value, kind, name, args, sound(answer) if answer else answer,
            sound(error) if error else error, duration_ms, self._clock.now_ms(),
        ))

    def _told(self, text: str | None) -> str | None:
        return self._redactor.text(text) if self._redactor is not None and text else text

    def _short(self, text: str) -> str:
        if self._redactor is not None:
            text = self._redactor.text(text)  # before it is cut: half a secret would not be found
        most = self._bytes_max if self._held < _HELD_MAX else _LITTLE
        shown = text if len(text) <= most else text[:most] + f"… ({len(text):,} characters)"
        self._held += len(shown)
        return shown
