"""Durations as people write them: "5m", "90s", "1h30m", "2d", "500ms"."""

from __future__ import annotations

import re

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

DURATION_MAX_MS = 366 * UNITS_MS["d"]

_PARTS = re.compile(r"(?:([0-9]{1,12})d)?(?:([0-9]{1,12})h)?(?:([0-9]{1,12})m(?!s))?"
                    r"(?:([0-9]{1,12})s)?(?:([0-9]{1,12})ms)?")


class BadDuration(ValueError):
    """A text is not a duration."""


def parse_duration(text: str) -> int:
    """The milliseconds that `text` means; units go from large to small, each at most once."""
    match = _PARTS.fullmatch(text)
    if match is None or not text:
        shown = text if len(text) <= 40 else text[:37] + "…"
        raise BadDuration(f'"{shown}" is not a duration. Write whole numbers with d, h, m, s or ms, '
                          'largest first, such as "5m" or "1h30m".')
    total = sum(int(n) * unit for n, unit in zip(match.groups(), UNITS_MS.values(), strict=True) if n)
    if total > DURATION_MAX_MS:
        raise BadDuration(f'"{text}" is longer than 366 days.')
    return total
