"""What a script declares: its topics, handlers, schedules and capabilities, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ..model.codec import encode, stored


class HandlerKind(StrEnum):
    PRODUCER = "producer"  #: polls the outside world
    CONSUMER = "consumer"  #: prepare → mutate → next
    ROUTINE = "routine"  #: works through items, several mutations each


@dataclass(frozen=True)
class Schedule:
    """When a producer or routine runs: an interval, or a cron expression in a time zone."""

    interval_ms: int | None = None
    cron: str | None = None
    tz: str | None = None


@dataclass(frozen=True)
class Handler:
    """One producer, consumer or routine."""

    name: str
    kind: HandlerKind
    publishes: tuple[str, ...] | None  # None: any declared topic (the older dialect)
    subscribe: tuple[str, ...] = ()
    schedule: Schedule | None = None  # None: policy's default interval
    has_mutate: bool = False
    has_next: bool = False
    uses_state: bool = True  # it may return a state; False: it certainly does not


@dataclass(frozen=True)
class Manifest:
    """A whole script."""

    name: str
    topics: tuple[str, ...]
    handlers: tuple[Handler, ...]
    capabilities: tuple[str, ...]  # "sheets.appendRow": the operations that it needs permission for, sorted

    def handler(self, name: str) -> Handler | None:
        """The handler of that name."""
        return next((handler for handler in self.handlers if handler.name == name), None)

    def subscriber(self, topic: str) -> Handler | None:
        """The consumer of `topic`."""
        return next((h for h in self.handlers if topic in h.subscribe), None)

    def to_text(self) -> str:
        """The manifest as JSON."""
        return encode(asdict(self), what="manifest")


def from_text(text: str) -> Manifest:
    """The manifest that `to_text` wrote."""
    data: Any = stored(text)
    handlers = tuple(_handler(handler) for handler in data["handlers"])
    return Manifest(data["name"], tuple(data["topics"]), handlers, tuple(data["capabilities"]))


def _handler(data: dict[str, Any]) -> Handler:
    publishes, schedule = data["publishes"], data["schedule"]
    return Handler(**{
        **data,
        "kind": HandlerKind(data["kind"]),
        "publishes": None if publishes is None else tuple(publishes),
        "subscribe": tuple(data["subscribe"]),
        "schedule": Schedule(**schedule) if schedule else None,
    })
