"""A clock that stands still until a test moves it."""

from __future__ import annotations

from ..model.clock import iso, parse_iso


class ManualClock:
    """Implements `Clock`: `ManualClock("2026-01-05T09:00:00Z")`."""

    def __init__(self, start: str = "2026-01-05T09:00:00Z", *, steady_ms: int = 1_000_000) -> None:
        self._now_ms = parse_iso(start)
        self._steady_ms = steady_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, by the wall clock."""
        return self._now_ms

    def steady_ms(self) -> int:
        """Milliseconds on the clock that only grows."""
        return self._steady_ms

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: int = 0,
    ) -> None:
        """Let time pass: both readings move."""
        span = _span_ms(days, hours, minutes, seconds, ms)
        if span < 0:
            raise ValueError("Time does not pass backwards; use jump to set the wall clock back.")
        self._now_ms += span
        self._steady_ms += span

    def jump(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: int = 0,
    ) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._now_ms += _span_ms(days, hours, minutes, seconds, ms)

    def __repr__(self) -> str:
        return f"ManualClock({iso(self._now_ms)!r}, steady_ms={self._steady_ms})"


def _span_ms(days: float, hours: float, minutes: float, seconds: float, ms: int) -> int:
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000) + ms
