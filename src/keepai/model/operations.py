"""What a script may ask of its host, and in which phase.

Only the table `ALLOWED` decides it. The host's gate, the early refusal in the sandbox worker, `check` and the docs all
use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    PEEK = "peek"  #: pending events of a subscribed topic, oldest first
    GET_BY_IDS = "getByIds"  #: events of a subscribed topic by messageId
    REGISTER_INPUT = "registerInput"  #: register an input, described for people
    PUBLISH = "publish"  #: put an event into one topic or several
    READ = "read"  #: a connector's read (search, list)
    READ_BY_ID = "read_by_id"  #: a connector's read that names one object
    MUTATION = "mutation"  #: a connector's side effect
    WITH_ITEM = "withItem"  #: one unit of a routine's work
    LOG = "log"  #: a line in the run's log


class Step(StrEnum):
    """A piece of script that the host runs in one fresh context."""

    PRODUCER = "producer"  #: a producer's handler
    PREPARE = "prepare"  #: a consumer selects its inputs
    MUTATE = "mutate"  #: a consumer makes its one call
    NEXT = "next"  #: a consumer publishes what follows
    ROUTINE = "routine"  #: a routine's handler


#: The operations that `ctx` carries by these names; every other name is `<connector>.<operation>`.
BUILT_IN: Mapping[str, Kind] = MappingProxyType({
    kind.value: kind for kind in (Kind.PEEK, Kind.GET_BY_IDS, Kind.REGISTER_INPUT, Kind.PUBLISH, Kind.WITH_ITEM)
})

ALLOWED: Mapping[Step, frozenset[Kind]] = MappingProxyType({
    Step.PRODUCER: frozenset({Kind.REGISTER_INPUT, Kind.PUBLISH, Kind.READ, Kind.READ_BY_ID, Kind.LOG}),
    Step.PREPARE: frozenset({Kind.PEEK, Kind.GET_BY_IDS, Kind.READ, Kind.READ_BY_ID, Kind.LOG}),
    Step.MUTATE: frozenset({Kind.MUTATION, Kind.LOG}),
    Step.NEXT: frozenset({Kind.PUBLISH, Kind.LOG}),
    Step.ROUTINE: frozenset({Kind.READ, Kind.READ_BY_ID, Kind.MUTATION, Kind.WITH_ITEM, Kind.LOG}),
})

#: What policy `mutate_reads = "by_id"` adds to `mutate`.
MUTATE_BY_ID: frozenset[Kind] = frozenset({Kind.READ_BY_ID})


def allowed(step: Step, kind: Kind, *, mutate_reads: bool = False) -> bool:
    """Whether `kind` may be asked for in `step`."""
    return kind in ALLOWED[step] or (mutate_reads and step is Step.MUTATE and kind in MUTATE_BY_ID)


def where_allowed(kind: Kind) -> str:
    """The steps that allow `kind`, as words for an error message."""
    return ", ".join(step.value for step in Step if kind in ALLOWED[step]) or "no phase"


@dataclass(frozen=True)
class Params:
    """What one operation takes, as plain data. `check` compares the literals of a script with it."""

    schema: Mapping[str, object]  # a JSON schema; empty: any object
    more: bool = False  # whether members that the schema does not name are accepted too
    identity: tuple[str, ...] = ()  # the params that identify the object; empty: all of them


@dataclass(frozen=True)
class Surface:
    """What the configured connectors offer: their operations, and the types of inputs that they can bring."""

    operations: Mapping[str, Mapping[str, Kind]]  # {"gmail": {"search": Kind.READ, …}}
    input_types: Mapping[str, tuple[str, ...]]  # {"gmail": ("email", "thread"), "system": (…)}
    params: Mapping[str, Params] = field(default_factory=dict)  # {"gmail.search": …}; absent: not known

    def kind(self, name: str) -> Kind | None:
        """The kind of the operation that scripts call `ctx.<name>`; None if there is none."""
        if name in BUILT_IN:
            return BUILT_IN[name]
        connector, _, operation = name.partition(".")
        return self.operations.get(connector, {}).get(operation)


#: The source that exists without a connector: the host itself.
SYSTEM_INPUTS: Mapping[str, tuple[str, ...]] = MappingProxyType({"system": ("schedule", "random")})
