"""The contract of a script runtime: run one step of one handler in a fresh, limited, isolated context.

A runtime never sees a database or a connector. It turns what the script calls on `ctx` into
`Operation`s, hands them to its `StepHost` and gives the script the answers. Whatever the script does
(loops, bombs, garbage), `run` ends within the limits, and the next `run` is not affected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..model.codec import Json, encode, stored
from ..model.errors import Location
from ..model.fast_record import fast_record
from ..model.operations import Kind, Step, Surface


@dataclass(frozen=True)
class Limits:
    """What one step may use."""

    compute_s: float = 5.0  # time spent computing; waiting for the host does not count
    memory_bytes: int = 64 << 20
    stack_bytes: int = 256 << 10
    calls_max: int = 50_000  # peek, getByIds and reads; the host counts what it sends, publishes and registers
    items_max: int = 100_000  # that a routine begins
    message_bytes_max: int = 4 << 20  # one call's arguments, one answer, or the result
    log_bytes_max: int = 256 << 10
    concurrent_max: int = 64  # reads under way at once


@fast_record
@dataclass(frozen=True)
class Fixed:
    """Time and chance as `mutate`, a routine and each of its items see them: the same on every execution."""

    now_ms: int
    seed: bytes

    @classmethod
    def by(cls, text: str, now_ms: int) -> Fixed:
        """Made from a text, such as a PrepareResult, and a time: the same for the same two."""
        return cls(now_ms, hashlib.sha256(text.encode()).digest())


@fast_record
@dataclass(frozen=True)
class Ahead:
    """What a `mutate` that is tried right after `prepare` may call, and the time that it sees."""

    allowed: frozenset[Kind]
    now_ms: int


#: A value with a longer text may be left out until the script reads it.
LARGE = 2048

#: Where such a value stands in a JSON text: the path to it, its first character, and the one after its last. Several
#: are in the order of the text, and none is inside another.
Cut = tuple[tuple[str | int, ...], int, int]


@fast_record
@dataclass(frozen=True)
class Job:
    """One step of one handler, with everything it may see."""

    source: str
    step: Step
    handler: str
    args: tuple[str | None, ...]  # JSON texts after `ctx`; None is undefined
    state: str | None  # `ctx.state`, for `next`
    surface: Surface
    allowed: frozenset[Kind]
    limits: Limits
    fixed: Fixed | None = None
    begun_ms: int | None = None  # the host's clock as the step begins; None: the machine's clock
    ahead: Ahead | None = None  # for `prepare`: try `mutate` right after it
    only_load: bool = False  # run the script's top level and no handler
    cuts: tuple[Cut, ...] = ()  # in the first of `args`


@fast_record
@dataclass(frozen=True)
class Operation:
    """Something that the script asked for: `publish`, `peek`, `gmail.search`, …"""

    name: str
    kind: Kind
    #: As the script passed them; undefined members are gone. In the payload of an event, large values that the
    #: step has read may be a `CheckedText`.
    args: tuple[Json, ...]
    at: Location | None


@fast_record
@dataclass(frozen=True)
class Reply:
    """The host's answer, as JSON. With `fields`, it is a list that also carries these members (a Page)."""

    text: str
    fields: str | None = None
    fixed: Fixed | None = None  # of `withItem`: time and chance until its next answer; None: those of the job
    cuts: tuple[Cut, ...] = ()  # in `text`

    @classmethod
    def of(cls, value: Json, fields: Mapping[str, Json] | None = None) -> Reply:
        """The answer with this value."""
        return cls(encode(value, what="answer"), None if fields is None else encode(fields, what="answer"))

    @property
    def value(self) -> Json:
        """The text, parsed."""
        return stored(self.text)

    @property
    def texts(self) -> list[str]:
        """The text, and after it the extra members of a Page."""
        return [self.text] if self.fields is None else [self.text, self.fields]


@dataclass(frozen=True)
class LogLine:
    """One line of `console.*` or `ctx.log`."""

    level: str
    text: str


@fast_record
@dataclass(frozen=True)
class Ended:
    """How the step ended without an error: it returned, or it made its terminal mutation call."""

    value: str | None = None  # what it returned, as JSON; None is undefined
    mutation: Operation | None = None
    ahead: Operation | None = None  # the call that `mutate` makes, given this value; None: run it to know
    said: Json = field(default=None, compare=False, repr=False)  # `value`, parsed, if it was parsed already

    def read(self) -> Json:
        """What it returned, parsed; only for a step that returned something."""
        assert self.value is not None, self
        return stored(self.value) if self.said is None else self.said


class StepHost(Protocol):
    """What a running step may reach: the engine's gate."""

    async def answer(self, operation: Operation) -> Reply:
        """Check and carry out an operation. An exception ends the script at once, and the script cannot catch it."""
        ...

    async def foresee(self, operation: Operation) -> Reply | None:
        """The answer to a call that the step will probably make, if it is known now. It counts only when `used`."""
        ...

    def used(self, operation: Operation, reply: Reply) -> None:
        """The step made the call, and was given the answer that `foresee` returned."""
        ...

    def log(self, line: LogLine) -> None:
        """Keep a line with the run."""
        ...


class Runtime(Protocol):
    """A script language."""

    async def run(self, job: Job, host: StepHost) -> Ended:
        """Run one step. Raises the `KeepError` that ended it: the host's own, a `ScriptError`, or `WorkerDied`.

        After `WorkerDied` the step may be run again, with a host that knows nothing of the first try."""
        ...

    async def load(self, source: str, surface: Surface, limits: Limits) -> None:
        """Run a script's top level, and no handler. Raises the `ScriptError` that ended it, or `WorkerDied`."""
        ...

    async def close(self) -> None:
        """End every worker."""
        ...
