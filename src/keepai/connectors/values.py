"""What passes between the engine and a connector's methods: `Call`, `Page` and `Verdict`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeVar

from ..model.clock import SystemClock
from ..model.errors import ConfigError

Item = TypeVar("Item")

#: Members of a JavaScript array that a page's field must not hide.
ARRAY_MEMBERS = frozenset({
    "length", "at", "concat", "constructor", "copyWithin", "entries", "every", "fill", "filter", "find",
    "findIndex", "findLast", "findLastIndex", "flat", "flatMap", "forEach", "includes", "indexOf", "join",
    "keys", "lastIndexOf", "map", "pop", "push", "reduce", "reduceRight", "reverse", "shift", "slice", "some",
    "sort", "splice", "then", "toJSON", "toString", "unshift", "values", "__proto__",
})


def _silent(_line: str) -> None:
    """Discard the line: the default log of a call."""


@dataclass(frozen=True)
class Call:
    """What a connector's method knows about one call; scripts never see it."""

    idempotency_key: str = ""  # the same for every send of the same thing; empty for reads
    deadline: float = math.inf  # milliseconds, as `SystemClock.steady_ms` counts them
    workflow_id: str = ""
    run_id: str = ""
    attempt: int = 1
    since_ms: int | None = None  # in a look-up: when the first send began, by the host's clock; None: not known
    lock_fd: int | None = None  # pass it to child processes (`pass_fds`): the call is not over while they live
    log: Callable[[str], None] = _silent  # adds a line to the run's log; never a secret
    skip: Callable[[str], None] = _silent  # names an item that a read leaves out; the run counts these and warns

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; zero when it has passed."""
        return max(0.0, self.deadline - SystemClock().steady_ms()) / 1000


class Page(list[Item]):
    """A list with extra fields: `Page([{"id": "1"}], lastCursor="c1")`.

    In the script it is an array that also has the fields as members.
    """

    fields: Mapping[str, object]

    def __init__(self, items: Iterable[Item] = (), **fields: object) -> None:
        super().__init__(items)
        hidden = sorted(ARRAY_MEMBERS & fields.keys())
        if hidden:
            raise ConfigError(f"A page cannot have the field {hidden[0]!r}: every array already has that member.")
        self.fields = MappingProxyType(fields)

    def __repr__(self) -> str:
        fields = "".join(f", {key}={value!r}" for key, value in self.fields.items())
        return f"Page({list(self)!r}{fields})"


@dataclass(frozen=True)
class Verdict:
    """What a reconcile method found out about one earlier send."""

    status: Literal["applied", "failed", "retry", "unknown"]
    result: object = None
    after: float | None = None  # seconds until it is worth asking again
    why: str = ""
    found: bool = False  # set by the host: the effect is there, but `result` is not what was declared

    def __post_init__(self) -> None:
        if self.status not in ("applied", "failed", "retry", "unknown") or not isinstance(self.why, str):
            raise ConfigError("A verdict is applied, failed, retry or unknown, and its `why` is a string.")
        after = self.after
        usable = isinstance(after, int | float) and not isinstance(after, bool) and 0 <= after < math.inf
        if after is not None and not usable:
            raise ConfigError(f"A verdict's `after` must be a number of seconds, not {after!r}.")

    @classmethod
    def applied(cls, result: object = None) -> Verdict:
        """It happened; `result` is what the mutation would have returned."""
        return cls("applied", result=result)

    @classmethod
    def failed(cls) -> Verdict:
        """It did not happen."""
        return cls("failed")

    @classmethod
    def retry(cls, after: float | None = None) -> Verdict:
        """The outside system could not be asked now. Ask again after `after` seconds at the earliest."""
        return cls("retry", after=after)

    @classmethod
    def unknown(cls, why: str = "") -> Verdict:
        """The outside system can never tell. A person must look."""
        return cls("unknown", why=why)
