"""When a channel gets its digest: `daily 08:00 Europe/Berlin`, in words that keep.toml holds. Pure, no clock."""

from __future__ import annotations

import re

from ..model.errors import ConfigError
from ..script.manifest import Schedule
from ..script.schedule import BadSchedule, next_time, time_zone

_DAILY = re.compile(r"daily ([01][0-9]|2[0-3]):([0-5][0-9])(?: (\S{1,60}))?")


def daily(text: str) -> Schedule:
    """The times that such words mean; without a zone, UTC."""
    found = _DAILY.fullmatch(text)
    try:
        if found is None:
            raise BadSchedule("it has a time, and may have a time zone.")
        time_zone(found[3] or "UTC")
    except BadSchedule as error:
        told = f'digest must be such as "daily 08:00 Europe/Berlin", not {text[:80]!r}: {error}'
        raise ConfigError(told) from None
    return Schedule(cron=f"{int(found[2])} {int(found[1])} * * *", tz=found[3])


def next_digest(digest: str | None, last_ms: int | None) -> int | None:
    """When the next one is due, after one that reached until `last_ms`; several that were missed are one."""
    return None if digest is None or last_ms is None else next_time(daily(digest), last_ms, 0)
