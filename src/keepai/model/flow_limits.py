"""How fast, how many at once, and when: the limits on what a workflow or a connection sends. Pure, no clock.

A rate is a sliding window over the mutations that were sent, which the ledger has anyway: `10/s` means that in any
second, wherever it begins, at most ten are sent. A token bucket was not used: it lets twice as many through in the
window after a rest, and what is left in it would have to be stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple

from .errors import ConfigError
from .local_time import instant, zone_named

COUNT_MAX = 10_000  #: of a rate, a burst, and of calls at once
PERIOD_MAX_MS = 86_400_000

_RATE = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})?(s|m|h|d)")
_UNITS = {"s": (1_000, "second"), "m": (60_000, "minute"), "h": (3_600_000, "hour"), "d": (86_400_000, "day")}
_HOURS = re.compile(r"(?:([A-Z][A-Za-z,-]+) )?([0-9]{2}:[0-9]{2})-([0-9]{2}:[0-9]{2})(?: (\S{1,60}))?")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_AHEAD = 16  # a week, and one more if the clocks jump over a whole window


class RateWindow(NamedTuple):
    """At most so many in any stretch of time that is so long."""

    most: int
    ms: int


@dataclass(frozen=True)
class OpenHours:
    """A stretch of the day in which something may be sent, on some days of the week, by the clocks of a time zone."""

    days: frozenset[int]  # 0 is Monday; a stretch over midnight belongs to the day on which it begins
    opens: timedelta  # since midnight
    closes: timedelta
    zone: tzinfo

    def on(self, day: date) -> tuple[datetime, datetime]:
        """When it opens and closes on a day: each once, whatever the clocks do."""
        midnight = datetime.combine(day, time())
        return instant(midnight + self.opens, self.zone), instant(midnight + self.closes, self.zone)

    def next_open(self, now: datetime) -> datetime | None:
        """`now` while it is open, otherwise when it opens next."""
        today = now.astimezone(self.zone).date()
        for ahead in range(-1, _DAYS_AHEAD):
            day = today + timedelta(days=ahead)
            opens, closes = self.on(day)
            if day.weekday() in self.days and opens < closes and now < closes:
                return max(opens, now)
        return None


@dataclass(frozen=True)
class FlowLimit:
    """The limits of one workflow, or of one connection over all workflows. What they hold back waits its turn.

    rate: how many mutations are sent in how long, such as "10/s", "100/m" or "1/30s"
    burst: how many of them may go out at once; without it, as many as the rate says
    concurrency: how many calls of a connection are under way at once
    hours: when mutations may be sent, such as "Mon-Fri 08:00-18:00 Europe/Berlin", or several of these
    """

    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    hours: str | tuple[str, ...] = ()
    windows: tuple[RateWindow, ...] = field(init=False, repr=False, compare=False)
    open_hours: tuple[OpenHours, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("burst", "concurrency"):
            _check_count(name, getattr(self, name))
        object.__setattr__(self, "windows", _windows(self.rate, self.burst))
        object.__setattr__(self, "open_hours", tuple(open_hours(each) for each in self._hours()))

    def _hours(self) -> tuple[str, ...]:
        return (self.hours,) if isinstance(self.hours, str) else tuple(self.hours)

    def opens_at(self, now_ms: int) -> int:
        """`now_ms` if something may be sent at that moment, otherwise when it may next."""
        if not self.open_hours:
            return now_ms
        now = _EPOCH + timedelta(milliseconds=now_ms)
        times = [at for each in self.open_hours if (at := each.next_open(now)) is not None]
        assert times, f"{self.hours} opens in any {_DAYS_AHEAD} days"
        return (min(times) - _EPOCH) // timedelta(milliseconds=1)

    @property
    def rate_in_words(self) -> str:
        """The rate as keep.toml has it."""
        return f'rate = "{self.rate}"' + (f", burst = {self.burst}" if self.burst is not None else "")

    @property
    def hours_in_words(self) -> str:
        """The hours as keep.toml has them."""
        texts = [f'"{each}"' for each in self._hours()]
        return f"hours = {texts[0]}" if len(texts) == 1 else f"hours = [{', '.join(texts)}]"


#: The settings of a limit in keep.toml: of a connection, and of a workflow, which has one call under way at a time.
CONNECTOR_KEYS = ("rate", "burst", "concurrency", "hours")
WORKFLOW_KEYS = ("rate", "burst", "hours")


class Rule(NamedTuple):
    """A limit that a call is under, and where it is written."""

    place: str  # "connectors.slack" or "workflows.orders"
    limit: FlowLimit

    @property
    def is_of_workflow(self) -> bool:
        """Whether it counts what one workflow sends; otherwise what all of them send through one connection."""
        return self.place.startswith("workflows.")


def rules(limits: Mapping[str, FlowLimit], workflow: str, connector: str) -> tuple[Rule, ...]:
    """The limits on what a workflow sends through a connection."""
    places = (f"workflows.{workflow}", f"connectors.{connector}") if limits else ()
    return tuple(Rule(place, limits[place]) for place in places if place in limits)


def check_limits(limits: object) -> None:
    """Refuse limits that are of nothing."""
    if not isinstance(limits, Mapping):
        raise ConfigError(f"Policy limits must map places to FlowLimit, not {limits!r}.")
    for place, limit in limits.items():
        kind, _, name = str(place).partition(".")
        if kind not in ("connectors", "workflows") or not name or not isinstance(limit, FlowLimit):
            raise ConfigError(
                f'Policy limits: write {{"connectors.NAME": FlowLimit(…)}} or {{"workflows.NAME": FlowLimit(…)}}, not '
                f"{place!r}: {limit!r}.")
        if kind == "workflows" and limit.concurrency is not None:
            raise ConfigError(f"Policy limits: {place} has one call under way at a time anyway. Remove concurrency.")


def limit_of(table: Mapping[str, object]) -> FlowLimit:
    """The limit that a table of keep.toml describes."""
    hours = table.get("hours", ())
    if not isinstance(hours, str):
        if not isinstance(hours, list | tuple) or not all(isinstance(each, str) for each in hours):
            raise ConfigError(f"{_HOURS_EXAMPLE}, or a list of these, not {hours!r}.")
        hours = tuple(hours)
    rate, burst, concurrency = table.get("rate"), table.get("burst"), table.get("concurrency")
    return FlowLimit(rate, burst, concurrency, hours)  # type: ignore[arg-type]  # it checks them


def _windows(rate: object, burst: int | None) -> tuple[RateWindow, ...]:
    if rate is None:
        if burst is not None:
            raise ConfigError("burst goes with a rate: without one, nothing is counted.")
        return ()
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    count = int(found[1]) if found else 0
    ms = int(found[2] or 1) * _UNITS[found[3]][0] if found else 0
    if not 0 < count <= COUNT_MAX or ms > PERIOD_MAX_MS:
        raise ConfigError(
            f'rate must be such as "10/s", "100/m", "1/30s" or "500/d", with at most {COUNT_MAX:,} in at most a day, '
            f"not {rate!r}.")
    if burst is None:
        return (RateWindow(count, ms),)
    at_once = RateWindow(burst, -(-burst * ms // count))
    return (at_once, RateWindow(count, ms)) if burst < count else (at_once,)


def _check_count(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= COUNT_MAX:
        raise ConfigError(f"{name} must be a whole number from 1 to {COUNT_MAX:,}, not {value!r}.")


_HOURS_EXAMPLE = 'hours must be such as "Mon-Fri 08:00-18:00 Europe/Berlin"'


def open_hours(text: str) -> OpenHours:
    """The hours that such words mean; without days every day, without a zone UTC."""
    found = _HOURS.fullmatch(text)
    days = _days(found[1]) if found else None
    opens, closes = (_since_midnight(found[2]), _since_midnight(found[3])) if found else (None, None)
    if found is None or days is None or opens is None or closes is None or opens == timedelta(days=1):
        raise ConfigError(f"{_HOURS_EXAMPLE}, with times from 00:00 to 24:00, not {text[:80]!r}.")
    zone = zone_named(found[4] or "UTC")
    if zone is None:
        raise ConfigError(f'hours: "{found[4]}" is not a time zone such as "Europe/Berlin" or "UTC".')
    if opens == closes:
        raise ConfigError(f'hours: {text!r} opens and closes at once. Write 00:00-24:00 for the whole day.')
    return OpenHours(days, opens, closes if closes > opens else closes + timedelta(days=1), zone)


def _days(text: str | None) -> frozenset[int] | None:
    """`Mon-Fri`, `Sat,Sun`, `Fri-Mon`: the numbers of the days; None if one is unknown."""
    found: set[int] = set()
    for part in text.split(",") if text is not None else ("Mon-Sun",):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if first not in _DAYS or last not in _DAYS:
            return None
        start = _DAYS.index(first)
        found |= {(start + each) % 7 for each in range((_DAYS.index(last) - start) % 7 + 1)}
    return frozenset(found)


def _since_midnight(text: str) -> timedelta | None:
    hour, minute = map(int, text.split(":"))
    since = timedelta(hours=hour, minutes=minute)
    return since if minute < 60 and since <= timedelta(days=1) else None
