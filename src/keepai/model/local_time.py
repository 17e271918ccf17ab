"""Local clocks: the moment at which the clocks of a time zone show a time, also where they jump or are set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_SECOND = timedelta(seconds=1)


def zone_named(name: str) -> tzinfo | None:
    """The time zone of that name, if there is one."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def instant(wall: datetime, zone: tzinfo) -> datetime:
    """The moment at which the local clocks first show `wall`, or jump over it."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return first
    return _jump(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), first, zone)


def _jump(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The moment between the two at which the zone's offset changes."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
