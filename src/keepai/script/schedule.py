"""When a producer is due: intervals, and cron expressions in a time zone. Pure functions, no clock.

Cron times are local times. If the clocks jump over one, it runs once, at the jump. If the clocks are set back and a
time comes twice, it runs the first time only. An expression for every hour follows elapsed time instead, so that "every
15 minutes" neither pauses nor doubles. Cronsim's own rule (Debian's) depends on whether a field begins with `*`, which
people cannot be expected to know. So cronsim computes plain local times here, and this module converts them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

from ..model.local_time import instant, zone_named
from .duration import parse_duration
from .manifest import Schedule

if TYPE_CHECKING:
    from cronsim import CronSim

INTERVAL_MIN_MS = 1000

_CRON_MAX = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class BadSchedule(ValueError):
    """A schedule cannot be used. The message says why, and what to write."""


def parse_interval(text: str) -> int:
    """The milliseconds of a schedule's interval."""
    ms = parse_duration(text)
    if ms < INTERVAL_MIN_MS:
        raise BadSchedule(f'"{text}" is shorter than the shortest interval, "1s".')
    return ms


def check_cron(expression: str) -> None:
    """Raise `BadSchedule` unless `expression` has five fields, can be read and comes due."""
    simulation = _simulate(expression, _EPOCH)
    try:
        next(simulation)
    except (StopIteration, OverflowError):
        raise BadSchedule(f'"{expression}" never comes round.') from None


def next_time(schedule: Schedule | None, after_ms: int, default_interval_ms: int) -> int:
    """The first due time after `after_ms`. Without a schedule, the default interval; without a zone, UTC."""
    if schedule is None or schedule.cron is None:
        interval = schedule.interval_ms if schedule is not None else None
        return after_ms + (interval if interval is not None else default_interval_ms)
    return _cron_after(schedule.cron, schedule.tz or "UTC", after_ms // 1000)


@lru_cache(maxsize=1024)
def _cron_after(expression: str, zone: str, second: int) -> int:
    """The first due time after any moment of a second; due times are whole seconds. Cached for a busy host."""
    due = _next_cron(expression, time_zone(zone), _EPOCH + second * _SECOND)
    return (due - _EPOCH) // timedelta(milliseconds=1)


def _next_cron(expression: str, zone: tzinfo, after: datetime) -> datetime:
    local = after.astimezone(zone)
    is_hourly = len(_simulate(expression, _EPOCH).hours) == 24
    if is_hourly:
        return next(_simulate(expression, local)).astimezone(UTC)
    instants = (instant(wall, zone) for wall in _simulate(expression, local.replace(tzinfo=None)))
    return next(instant for instant in instants if instant > after)


def _simulate(expression: str, start: datetime) -> CronSim:
    from cronsim import CronSim, CronSimError

    if len(expression) > _CRON_MAX or len(expression.split()) != 5:
        raise BadSchedule('A cron expression has five fields: minute, hour, day, month, weekday, '
                          'such as "0 9 * * 1-5".')
    try:
        return CronSim(expression, start)
    except (CronSimError, ValueError, AssertionError) as error:
        reason = str(error) or "it cannot be read"
        raise BadSchedule(f'"{expression}" is not a cron expression: {reason}.') from None


def time_zone(name: str) -> tzinfo:
    """The time zone of that name; `BadSchedule` if there is none."""
    zone = zone_named(name)
    if zone is None:
        raise BadSchedule(f'"{name[:60]}" is not a time zone such as "Europe/Berlin" or "UTC".')
    return zone
