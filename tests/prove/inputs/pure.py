"""Values, texts, durations and schedules: pure functions that must answer anything at all."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim
from hypothesis import strategies as st

from keepai.model.codec import DEPTH_MAX, INTEGER_MAX, decode, encode
from keepai.model.errors import BadValue, LimitExceeded
from keepai.script.duration import BadDuration, parse_duration
from keepai.script.manifest import Schedule
from keepai.script.schedule import BadSchedule, check_cron, next_time, parse_interval, time_zone
from tests.prove.inputs.property import pure

#: Any text, half characters and controls among it.
TEXT = st.text(st.characters(codec=None), max_size=40)
JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SAFE = st.integers(-INTEGER_MAX, INTEGER_MAX)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | SAFE | st.floats(-1e15, 1e15) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
)


def nested(depth: int) -> Any:
    """A list in a list in a list …"""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def contains_itself() -> Any:
    """A list that is its own element."""
    value: list[Any] = []
    value.append(value)
    return value


#: What JSON cannot carry, or only just.
ODD = st.one_of(
    st.sampled_from(
        [math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324, 2.0**53, -(2.0**53), b"bytes", object(), {1}, 1j]
    ),
    st.integers(),
    st.integers(2**53 - 3, 2**53 + 3),
    st.integers(4000, 6000).map(lambda digits: 10**digits),
    TEXT,
    st.integers(DEPTH_MAX - 3, DEPTH_MAX + 3).map(nested),
    st.just(2000).map(nested),
    st.builds(contains_itself),
)
ANYTHING: st.SearchStrategy[Any] = (
    JSON
    | ODD
    | st.recursive(
        JSON | ODD,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(TEXT | st.integers() | st.none(), inner, max_size=3)
        ),
        max_leaves=8,
    )
)


def _names_it(message: str) -> None:
    """A refusal says of what it speaks, in text that any file takes."""
    assert message.startswith(("it", "a key of it")), message
    message.encode("utf-8", "surrogatepass")


def _codec_holds(value: Any) -> None:
    """What is encoded comes back, in the one form that it has; what is not is refused for a reason."""
    try:
        text = encode(value, what="it", bytes_max=4000)
    except (BadValue, LimitExceeded) as error:
        _names_it(error.message)
        return
    again = decode(text)
    assert encode(again) == text
    assert again == json.loads(text)
    assert len(text.encode()) <= 4000


CODEC = pure("values", ANYTHING, _codec_holds, 300)


_JSON_LIKE = st.one_of(
    st.binary(max_size=40),
    TEXT,
    JSON.map(json.dumps),
    JSON.map(lambda v: json.dumps(v, ensure_ascii=False)),
    st.lists(
        st.sampled_from([*'{}[]",:0123456789.eE+-\\u', "null", "true", "NaN", "Infinity", "\\ud800", "1e400"]),
        max_size=25,
    ).map("".join),
    st.sampled_from(
        ["[" * 100_000, '{"a":' * 3000, "1" * 5000, "-" + "9" * 17, '{"a":1,"a":2}', "1e999", "\ufeff1", ""]
    ),
)


def _text_holds(text: str | bytes) -> None:
    """A text is JSON under the rules and has one canonical form, or it is refused for a reason."""
    try:
        value = decode(text, what="it", bytes_max=50_000)
    except (BadValue, LimitExceeded) as error:
        _names_it(error.message)
        return
    canonical = encode(value)
    assert decode(canonical) == value
    assert encode(decode(canonical)) == canonical


TEXTS = pure("JSON texts", _JSON_LIKE, _text_holds, 300)


# Durations


_DURATION = (
    st.lists(
        st.tuples(st.integers(0, 10**13).map(str) | TEXT, st.sampled_from(["d", "h", "m", "s", "ms", "", "w", " "])),
        max_size=6,
    ).map(lambda parts: "".join(n + unit for n, unit in parts))
    | TEXT
)


def _duration_holds(text: str) -> None:
    for parse in (parse_duration, parse_interval):
        try:
            ms = parse(text)
        except (BadDuration, BadSchedule):
            continue
        assert 0 <= ms <= 366 * 86_400_000


DURATIONS = pure("durations", _DURATION, _duration_holds, 300)


# Schedules

_ZONES = sorted(available_timezones())
_NUMBER = st.integers(0, 61).map(str)
_PIECE = st.one_of(
    st.just("*"),
    _NUMBER,
    st.tuples(_NUMBER, _NUMBER).map("-".join),
    st.tuples(st.just("*"), _NUMBER).map("/".join),
    st.sampled_from(["L", "LW", "mon", "SUN", "jan", "1#2", "5L", "?", "0-59/7", "JAN-mar", "7", "31", "29"]),
)
_FIELD = st.lists(_PIECE, min_size=1, max_size=3).map(",".join) | st.just("*")
_CRON = st.one_of(
    st.tuples(_NUMBER, st.integers(0, 23).map(str), st.just("*"), st.just("*"), st.just("*")).map(" ".join),
    st.tuples(_FIELD, _FIELD, _FIELD, _FIELD, _FIELD).map(" ".join),
    st.lists(_FIELD | TEXT, max_size=7).map(" ".join),
    TEXT,
)
#: Moments of a few years, most of them near a change of the clocks somewhere.
_CHANGES = [
    datetime(year, month, day, 1, tzinfo=UTC)
    for year in (2025, 2026, 2027, 2028)
    for month, day in ((3, 8), (3, 29), (10, 26), (11, 1), (4, 5), (9, 27), (2, 29 if year == 2028 else 28))
]
_MOMENT = st.builds(
    lambda change, minutes, ms: int(change.timestamp() * 1000) + minutes * 60_000 + ms,
    st.sampled_from(_CHANGES),
    st.integers(-3000, 3000),
    st.integers(0, 59_999),
)


def _cron_holds(drawn: tuple[str, str, int]) -> None:
    """An expression is refused in words, or its next time lies ahead, is the first, and is what cronsim says."""
    expression, zone, after = drawn
    try:
        check_cron(expression)
        time_zone(zone)
    except BadSchedule:
        return
    schedule = Schedule(cron=expression, tz=zone)
    due = next_time(schedule, after, 0)
    assert due > after, f"{due} is not after {after}"
    assert next_time(schedule, due - 1, 0) == due, "a look just before it finds another time"
    between = after + (due - after) // 2
    assert next_time(schedule, between, 0) == due or between == due, "a later look finds an earlier time"
    _agrees(expression, ZoneInfo(zone), after, due)


def _agrees(expression: str, zone: ZoneInfo, after: int, due: int) -> None:
    """Local clocks show a time of the expression, or jumped over one in that very second."""
    shown = _moment(due).astimezone(zone)
    if zone.key == "UTC":
        assert shown == next(CronSim(expression, _moment(after))), "cronsim says otherwise"
        return
    wall = shown.replace(tzinfo=None)
    if wall == next(CronSim(expression, wall - timedelta(seconds=1))):
        return
    before = (_moment(due) - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
    jumped = next(CronSim(expression, before))
    assert before < jumped <= wall, f"{wall} is no time of {expression!r}, and none was jumped over"
    assert wall - before > timedelta(seconds=1), "the clocks did not jump"


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


_ZONE = (
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
    | st.sampled_from(_ZONES)
    | TEXT
)
CRON = pure("schedules", st.tuples(_CRON, _ZONE, _MOMENT), _cron_holds, 200)
