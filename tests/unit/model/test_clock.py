"""Time and ids: sorted by time, unique, and the same instant in both spellings."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepai.model.clock import Ids, SystemClock, iso, parse_iso
from keepai.testing import ManualClock

#: 1900 … 2200
MOMENTS = st.integers(-2_208_988_800_000, 7_258_118_400_000)


@given(MOMENTS)
@example(1_767_603_600_001)
@example(1_767_603_600_999)
@example(-1)
def test_a_time_reads_back_to_the_millisecond(ms: int) -> None:
    assert parse_iso(iso(ms)) == ms


@given(MOMENTS, MOMENTS)
def test_times_as_text_sort_as_times_do(one: int, other: int) -> None:
    assert (iso(one) < iso(other)) == (one < other)


@pytest.mark.parametrize(("text", "ms"), [
    ("2026-01-05T09:00:00Z", 1_767_603_600_000),
    ("2026-01-05T09:00:00", 1_767_603_600_000),
    ("2026-01-05T10:00:00+01:00", 1_767_603_600_000),
    ("2026-01-05T09:00:00.123456Z", 1_767_603_600_123),
    ("2026-01-05", 1_767_571_200_000),
    ("1969-12-31T23:59:59.999Z", -1),
])
def test_iso_texts_are_read(text: str, ms: int) -> None:
    assert parse_iso(text) == ms


@given(st.text() | st.datetimes().map(str))
@example("9999-12-31T23:59:59-23:59")
@example("0001-01-01T00:00:00+23:59")
def test_a_text_that_is_no_time_raises_value_error_only(text: str) -> None:
    try:
        assert isinstance(parse_iso(text), int)
    except ValueError:
        pass


def test_iso_shows_milliseconds_and_utc() -> None:
    assert iso(1_767_603_600_007) == "2026-01-05T09:00:00.007Z"


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=20))
def test_ids_sort_by_time(steps: list[int]) -> None:
    clock = ManualClock()
    ids, made = Ids(clock), []
    for step in steps:
        clock.advance(ms=step + 1)
        made.append(ids.new("run"))
    assert made == sorted(made)


def test_ids_of_one_moment_are_unique() -> None:
    ids = Ids(ManualClock())
    assert len({ids.new("evt") for _ in range(20_000)}) == 20_000


@pytest.mark.parametrize("prefix", ["wf", "run", "evt", "inp", "mut", "itm", "apr", "fix", "hst"])
def test_an_id_says_what_it_names(prefix: str) -> None:
    assert re.fullmatch(rf"{prefix}_[0-9a-z]{{12}}", Ids(SystemClock()).new(prefix))


def test_the_system_clock_tells_the_time_and_only_grows() -> None:
    clock = SystemClock()
    steady = [clock.steady_ms() for _ in range(1000)]
    assert steady == sorted(steady)
    assert abs(clock.now_ms() - datetime.now(UTC).timestamp() * 1000) < 5_000


def test_a_manual_clock_advances_both_readings_and_jumps_one() -> None:
    clock = ManualClock("2026-01-05T09:00:00Z")
    now, steady = clock.now_ms(), clock.steady_ms()
    clock.advance(minutes=5, ms=1)
    assert (clock.now_ms() - now, clock.steady_ms() - steady) == (300_001, 300_001)
    clock.jump(days=-1)
    assert (clock.now_ms() - now, clock.steady_ms() - steady) == (300_001 - 86_400_000, 300_001)
    with pytest.raises(ValueError, match="jump"):
        clock.advance(seconds=-1)
