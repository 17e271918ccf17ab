"""Limits: what a rate and hours mean, which ones are refused, and when hours open where the clocks are changed."""

from __future__ import annotations

from typing import Any

import pytest

from keepai import FlowLimit, Policy
from keepai.ledger.transitions import turns
from keepai.model.clock import iso, parse_iso
from keepai.model.errors import ConfigError
from keepai.model.flow_limits import RateWindow, limit_of, rules


@pytest.mark.parametrize(("given", "windows"), [
    ({}, []),
    ({"rate": "10/s"}, [(10, 1_000)]),
    ({"rate": "100/m"}, [(100, 60_000)]),
    ({"rate": "1/30s"}, [(1, 30_000)]),
    ({"rate": "500/d"}, [(500, 86_400_000)]),
    ({"rate": "10/s", "burst": 3}, [(3, 300), (10, 1_000)]),
    ({"rate": "10/s", "burst": 1}, [(1, 100), (10, 1_000)]),
    ({"rate": "10/s", "burst": 10}, [(10, 1_000)]),
    ({"rate": "10/s", "burst": 50}, [(50, 5_000)]),
    ({"rate": "7/s", "burst": 2}, [(2, 286), (7, 1_000)]),  # rounded up: never more than the rate
])
def test_a_rate_is_so_many_in_any_stretch_of_time(given: dict[str, Any], windows: list[tuple[int, int]]) -> None:
    assert list(FlowLimit(**given).windows) == [RateWindow(*each) for each in windows]


@pytest.mark.parametrize("given", [
    {"rate": "10"}, {"rate": "10/x"}, {"rate": "0/s"}, {"rate": "-1/s"}, {"rate": "1.5/s"}, {"rate": "20000/s"},
    {"rate": "1/2d"}, {"rate": 10}, {"rate": "10 / s"}, {"rate": ""}, {"burst": 3}, {"rate": "1/s", "burst": 0},
    {"rate": "1/s", "burst": True}, {"rate": "1/s", "burst": 1.5}, {"concurrency": 0}, {"concurrency": "2"},
    {"hours": "08:00"}, {"hours": "Mon-Fri"}, {"hours": "8:00-18:00"}, {"hours": "08:00-25:00"},
    {"hours": "08:61-18:00"}, {"hours": "24:00-06:00"}, {"hours": "mon 08:00-18:00"}, {"hours": "Mon-Xyz 08:00-18:00"},
    {"hours": "08:00-18:00 Berlin"}, {"hours": "08:00-08:00"}, {"hours": 8}, {"hours": [8]},
], ids=str)
def test_what_cannot_be_meant_is_refused_by_the_name_of_its_setting(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{list(given)[-1]}"):
        limit_of(given)


@pytest.mark.parametrize("limits", [
    {"slack": FlowLimit(rate="1/s")}, {"connectors.": FlowLimit()}, {"connectors.slack": {"rate": "1/s"}},
    {"workflows.a": FlowLimit(concurrency=1)}, [],
], ids=str)
def test_a_policy_has_limits_of_connections_and_workflows_and_of_nothing_else(limits: Any) -> None:
    with pytest.raises(ConfigError, match="limits"):
        Policy(limits=limits)


def test_a_call_is_under_the_limits_of_its_workflow_and_of_its_connection() -> None:
    slow, fast = FlowLimit(rate="1/m"), FlowLimit(rate="9/s")
    limits = {"connectors.slack": slow, "workflows.orders": fast, "workflows.other": slow}
    assert [each.limit for each in rules(limits, "orders", "slack")] == [fast, slow]
    assert [each.place for each in rules(limits, "third", "slack")] == ["connectors.slack"]
    assert rules(limits, "slack", "orders") == ()


def test_a_call_without_a_limit_reads_nothing() -> None:
    nothing: Any = None  # a reader that cannot be asked
    assert rules({}, "orders", "slack") == ()
    turns.expect_turn(nothing, (), nothing)
    assert turns.turn(nothing, (), "wf", "slack", 0) is None


# -- hours -------------------------------------------------------------------------------------------------


def opens(hours: str | list[str], at: str) -> str:
    """When something may be sent, from a moment on."""
    return iso(limit_of({"hours": hours}).opens_at(parse_iso(at)))[:16]


@pytest.mark.parametrize(("at", "opens_at"), [
    ("2026-01-05T07:00:00Z", "2026-01-05T07:00"),  # a Monday, at eight in Berlin
    ("2026-01-05T06:59:59Z", "2026-01-05T07:00"),
    ("2026-01-05T16:59:59Z", "2026-01-05T16:59"),
    ("2026-01-05T17:00:00Z", "2026-01-06T07:00"),  # it closes at six
    ("2026-01-09T17:00:00Z", "2026-01-12T07:00"),  # a Friday
    ("2026-07-01T06:00:00Z", "2026-07-01T06:00"),  # summer
    ("2026-07-01T05:59:59Z", "2026-07-01T06:00"),
])
def test_hours_are_those_of_the_clocks_in_their_zone(at: str, opens_at: str) -> None:
    assert opens("Mon-Fri 08:00-18:00 Europe/Berlin", at) == opens_at


@pytest.mark.parametrize(("hours", "at", "opens_at"), [
    # In Berlin, 29 March 2026 has no time between 02:00 and 03:00.
    ("02:30-04:00 Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00"),  # it opens when the clocks jump over it
    ("01:00-02:30 Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-29T00:59"),
    ("01:00-02:30 Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T23:00"),  # it closes when they do
    ("02:10-02:50 Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-30T00:10"),  # not on that day
    ("Sun 02:10-02:50 Europe/Berlin", "2026-03-29T00:00:00Z", "2026-04-05T00:10"),
    # On 25 October 2026, the time between 02:00 and 03:00 comes twice.
    ("02:30-04:00 Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30"),  # it opens the first time,
    ("02:30-04:00 Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-25T01:10"),  # and stays open
    ("01:00-02:30 Europe/Berlin", "2026-10-25T00:29:00Z", "2026-10-25T00:29"),
    ("01:00-02:30 Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T00:00"),  # it closes the first time, and stays so
    # A day of 25 hours, and of 23.
    ("00:00-24:00 Europe/Berlin", "2026-10-25T22:59:59Z", "2026-10-25T22:59"),
    ("Sun 00:00-24:00 Europe/Berlin", "2026-10-25T23:00:00Z", "2026-10-31T23:00"),
    ("Sun 00:00-24:00 Europe/Berlin", "2026-03-29T22:00:00Z", "2026-04-04T22:00"),
    # Samoa had no 30 December 2011, which was a Friday.
    ("Fri 08:00-18:00 Pacific/Apia", "2011-12-29T20:00:00Z", "2012-01-05T18:00"),
    # Lord Howe changes by half an hour.
    ("02:15-05:00 Australia/Lord_Howe", "2026-10-03T15:00:00Z", "2026-10-03T15:30"),
])
def test_on_a_day_on_which_the_clocks_change_hours_open_and_close_once(hours: str, at: str, opens_at: str) -> None:
    assert opens(hours, at) == opens_at


@pytest.mark.parametrize(("hours", "at", "opens_at"), [
    ("22:00-06:00", "2026-01-05T05:59:00Z", "2026-01-05T05:59"),
    ("22:00-06:00", "2026-01-05T06:00:00Z", "2026-01-05T22:00"),
    ("Fri 22:00-06:00", "2026-01-10T05:00:00Z", "2026-01-10T05:00"),  # Saturday morning belongs to Friday
    ("Fri 22:00-06:00", "2026-01-09T05:00:00Z", "2026-01-09T22:00"),
    ("Sat,Sun 10:00-11:00", "2026-01-05T00:00:00Z", "2026-01-10T10:00"),
    ("Fri-Mon 10:00-11:00", "2026-01-05T12:00:00Z", "2026-01-09T10:00"),
    (["Mon 08:00-09:00", "Mon 17:00-18:00"], "2026-01-05T09:00:00Z", "2026-01-05T17:00"),
    (["Tue 08:00-09:00", "Mon 17:00-18:00"], "2026-01-05T09:00:00Z", "2026-01-05T17:00"),
])
def test_hours_may_cross_midnight_and_there_may_be_several(hours: str | list[str], at: str, opens_at: str) -> None:
    assert opens(hours, at) == opens_at
