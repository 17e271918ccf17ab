"""Due times, above all where the clocks change. Sequences are given in local time with its offset."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepai.script.manifest import Schedule
from keepai.script.schedule import BadSchedule, check_cron, next_time, parse_interval, time_zone

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def due(cron: str, tz: str | None, after: str, count: int) -> list[str]:
    times, now = [], ms(after)
    for _ in range(count):
        now = next_time(Schedule(cron=cron, tz=tz), now, 1)
        times.append(datetime.fromtimestamp(now / 1000, ZoneInfo(tz or "UTC")).isoformat(timespec="minutes"))
    return times


def test_an_interval_counts_from_the_last_time() -> None:
    assert next_time(Schedule(interval_ms=300_000), 1_000, 7) == 301_000


def test_without_a_schedule_the_default_interval_holds() -> None:
    assert next_time(None, 1_000, 7) == 1_007


def test_cron_without_a_zone_means_utc() -> None:
    assert due("0 9 * * 1-5", None, "2026-01-02T12:00+00:00", 2) == [
        "2026-01-05T09:00+00:00",
        "2026-01-06T09:00+00:00",
    ]


def test_a_time_is_strictly_after_the_given_one() -> None:
    assert due("0 9 * * *", BERLIN, "2026-01-05T09:00+01:00", 1) == ["2026-01-06T09:00+01:00"]
    assert next_time(Schedule(cron="0 9 * * *", tz="UTC"), ms("2026-01-05T09:00+00:00") - 1, 1) == ms(
        "2026-01-05T09:00+00:00"
    )
    assert next_time(Schedule(cron="0 9 * * *", tz="UTC"), ms("2026-01-05T09:00+00:00") + 1, 1) == ms(
        "2026-01-06T09:00+00:00"
    )


@pytest.mark.parametrize(
    ("cron", "tz", "after", "expected"),
    [
        # The clocks jump over the time: it runs once, at the jump.
        (
            "30 2 * * *",
            BERLIN,
            "2026-03-28T12:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        ),
        (
            "30 2 * * *",
            NEW_YORK,
            "2026-03-07T12:00-05:00",
            ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"],
        ),
        (
            "0,20,40 2 * * *",
            BERLIN,
            "2026-03-28T12:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
        ),
        (
            "*/20 2 * * *",
            NEW_YORK,
            "2026-03-07T12:00-05:00",
            ["2026-03-08T03:00-04:00", "2026-03-09T02:00-04:00"],
        ),
        (
            "0 2,3 * * *",
            BERLIN,
            "2026-03-28T12:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
        ),
        # The time comes twice: it runs the first time only.
        (
            "30 2 * * *",
            BERLIN,
            "2026-10-24T12:00+02:00",
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
        ),
        (
            "30 1 * * *",
            NEW_YORK,
            "2026-10-31T12:00-04:00",
            ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"],
        ),
        (
            "*/30 2 * * *",
            BERLIN,
            "2026-10-24T12:00+02:00",
            ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-26T02:00+01:00"],
        ),
        ("30 2 * * *", BERLIN, "2026-10-25T02:15+01:00", ["2026-10-26T02:30+01:00"]),
        # Every hour goes by elapsed time.
        (
            "30 * * * *",
            BERLIN,
            "2026-10-25T01:45+02:00",
            ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"],
        ),
        (
            "*/30 * * * *",
            NEW_YORK,
            "2026-03-08T01:15-05:00",
            ["2026-03-08T01:30-05:00", "2026-03-08T03:00-04:00", "2026-03-08T03:30-04:00"],
        ),
        # The local hour stays across the change.
        ("0 9 * * *", BERLIN, "2026-03-28T12:00+01:00", ["2026-03-29T09:00+02:00"]),
        ("0 9 * * *", NEW_YORK, "2026-10-31T12:00-04:00", ["2026-11-01T09:00-05:00"]),
        # A jump of half an hour, and one at midnight.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+10:30", ["2026-10-04T02:30+11:00"]),
        (
            "0 0 * * *",
            "Asia/Beirut",
            "2026-03-28T12:00+02:00",
            ["2026-03-29T01:00+03:00", "2026-03-30T00:00+03:00"],
        ),
        # Ends of months, leap years.
        (
            "0 0 31 * *",
            NEW_YORK,
            "2026-01-31T12:00-05:00",
            ["2026-03-31T00:00-04:00", "2026-05-31T00:00-04:00"],
        ),
        ("0 0 L * *", BERLIN, "2028-02-01T12:00+01:00", ["2028-02-29T00:00+01:00", "2028-03-31T00:00+02:00"]),
        (
            "0 12 29 2 *",
            BERLIN,
            "2026-01-01T00:00+01:00",
            ["2028-02-29T12:00+01:00", "2032-02-29T12:00+01:00"],
        ),
    ],
)
def test_local_times_hold_where_the_clocks_change(
    cron: str, tz: str, after: str, expected: list[str]
) -> None:
    assert due(cron, tz, after, len(expected)) == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.sampled_from(["30 2 * * *", "*/15 1-3 * * *", "0 * * * *", "59 23 L * *", "0 0 29 2 *"]),
    st.sampled_from([BERLIN, NEW_YORK, "UTC", "Australia/Lord_Howe"]),
    st.integers(ms("2020-01-01T00:00+00:00"), ms("2035-01-01T00:00+00:00")),
)
def test_time_always_goes_forward(cron: str, tz: str, after: int) -> None:
    first = next_time(Schedule(cron=cron, tz=tz), after, 1)
    assert after < first
    assert next_time(Schedule(cron=cron, tz=tz), first - 1, 1) == first
    assert next_time(Schedule(cron=cron, tz=tz), first, 1) > first


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "@daily",
        "60 * * * *",
        "* 24 * * *",
        "0 0 0 * *",
        "0 0 * 13 *",
        "0 0 * * 8",
        "0 0 30 2 *",
        "a b c d e",
        "5-1 * * * *",
        "*/0 * * * *",
        "9" * 5000 + " * * * *",
        "0 0 L/2-,# * *",
        "٣ * * * *",
    ],
)
def test_a_bad_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(BadSchedule):
        check_cron(cron)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.text("0123456789*/-,#LW@JANMON ", max_size=6), min_size=5, max_size=5).map(" ".join))
def test_any_cron_text_is_accepted_or_refused(cron: str) -> None:
    try:
        check_cron(cron)
    except BadSchedule:
        return
    assert next_time(Schedule(cron=cron, tz=BERLIN), 0, 1) > 0


@pytest.mark.parametrize(
    "tz", ["", "Mars/Base", "../etc/passwd", "/etc/passwd", "Europe", "europe berlin", "\0", "é"]
)
def test_an_unknown_time_zone_is_refused(tz: str) -> None:
    with pytest.raises(BadSchedule, match="not a time zone"):
        time_zone(tz)


def test_the_shortest_interval_is_a_second() -> None:
    assert parse_interval("1s") == 1000
    with pytest.raises(BadSchedule, match="shortest"):
        parse_interval("999ms")


def test_a_cron_time_is_the_same_from_every_moment_of_a_second() -> None:
    schedule, nine = Schedule(cron="0 9 * * *", tz="UTC"), ms("2026-01-05T09:00+00:00")
    assert {next_time(schedule, nine - 1000 + moment, 1) for moment in (0, 1, 500, 999)} == {nine}
    assert {next_time(schedule, nine + moment, 1) for moment in (0, 1, 500, 999)} == {nine + 86_400_000}
