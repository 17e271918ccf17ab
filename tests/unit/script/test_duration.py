from __future__ import annotations

import pytest

from keepai.script.duration import DURATION_MAX_MS, BadDuration, parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5m", 300_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("500ms", 500),
        ("0s", 0),
        ("1d1h1m1s1ms", 90_061_001),
        ("1m500ms", 60_500),
        ("007m", 420_000),
        ("366d", DURATION_MAX_MS),
    ],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "m",
        "5 m",
        " 5m",
        "5m ",
        "5m\n",
        "1.5h",
        "-5m",
        "30m1h",
        "5m5m",
        "5M",
        "5min",
        "five",
        "٥m",
        "1e3s",
        "5m\0",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadDuration, match="such as"):
        parse_duration(text)


def test_a_duration_over_a_year_is_refused() -> None:
    with pytest.raises(BadDuration, match="366 days"):
        parse_duration("367d")
