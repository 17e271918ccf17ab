"""Which calls block, count or have no answer, and the errors that end a step: the same for worker and host."""

from __future__ import annotations

import difflib

from ...model.errors import LimitExceeded, Location, PhaseViolation, RuleBroken, ScriptThrew
from ...model.operations import BUILT_IN, Kind, Step, Surface, where_allowed
from ..base import Limits

#: Calls that the script waits for on the spot, so that a refusal ends it exactly there.
BLOCKING = frozenset({Kind.PEEK, Kind.GET_BY_IDS, Kind.REGISTER_INPUT, Kind.WITH_ITEM, Kind.MUTATION})
#: Calls that count against the limit of calls. What a step publishes, registers, begins or sends has limits of its own:
#: a replay does most of that again, and is answered from the ledger.
COUNTED = frozenset({Kind.PEEK, Kind.GET_BY_IDS, Kind.READ, Kind.READ_BY_ID})
#: What each beginning and each end of an item adds to the time limit of its step, in seconds.
ITEM_S = 0.003
#: Calls that have no answer: they go out with the next frame. If one is refused, the frames after it are dropped.
UNANSWERED = frozenset({Kind.PUBLISH})
#: How much of them may wait to be sent.
UNANSWERED_BYTES_MAX = 64 << 10
#: What a line of the log costs beyond its bytes: an empty line is not free either.
LOG_LINE_COST = 32
_KIND_WORDS = {Kind.READ: " (a read)", Kind.READ_BY_ID: " (a read by id)", Kind.MUTATION: " (a mutation)"}
_MEMBERS = ("log", "state", *BUILT_IN)


def forbidden(name: str, kind: Kind, step: Step, at: Location | None) -> PhaseViolation:
    """A call that the step does not allow."""
    where = where_allowed(kind)
    what = f"ctx.{name}{_KIND_WORDS.get(kind, '')}"
    return PhaseViolation(f"{what} is not allowed in {step}; it is allowed in {where}.", at=at)


def missing(surface: Surface, connector: str, key: str, at: Location | None) -> RuleBroken:
    """A member that `ctx`, or a connector on it, does not have."""
    if key == "state" and not connector:
        return RuleBroken("ctx.state is only there in next.", at=at)
    known = [*surface.operations.get(connector, (*surface.operations, *_MEMBERS))]
    owner = f"ctx.{connector}" if connector else "ctx"
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"Did you mean {owner}.{close[0]}?" if close else f"It has {', '.join(sorted(known)) or 'nothing'}."
    return RuleBroken(f"{owner} has no {key!r}. {hint}", at=at)


def out_of_time(limits: Limits) -> LimitExceeded:
    """The step computed too long."""
    return LimitExceeded(f"The step computed longer than its time limit of {limits.compute_s:g} s.")


def out_of_memory(limits: Limits) -> LimitExceeded:
    """The step needed too much memory."""
    return LimitExceeded(f"The step needed more than its memory limit of {limits.memory_bytes:,} bytes.")


def out_of_stack(limits: Limits, at: Location | None = None) -> LimitExceeded:
    """The step called too deep."""
    return LimitExceeded(f"The step nested its calls beyond its stack limit of {limits.stack_bytes:,} bytes.", at=at)


def too_many_calls(limits: Limits, at: Location | None) -> LimitExceeded:
    """The step asked too often."""
    return LimitExceeded(f"The step made more calls that read than its limit of {limits.calls_max:,}.", at=at)


def too_many_items(limits: Limits, at: Location | None) -> LimitExceeded:
    """A routine began too many items."""
    return LimitExceeded(f"The routine began more items in one run than the limit of {limits.items_max:,}.", at=at)


def too_large(what: str, limits: Limits, at: Location | None) -> LimitExceeded:
    """A value that the script hands over is too large."""
    return LimitExceeded(f"{what} is larger than the message limit of {limits.message_bytes_max:,} bytes.", at=at)


def log_cut(limits: Limits) -> str:
    """The last line of a log that grew too long."""
    return f"… log limit of {limits.log_bytes_max:,} bytes reached"


def never_settles() -> ScriptThrew:
    """The step awaits a promise that nothing will settle."""
    return ScriptThrew("The step waits for something that never comes: it awaits a promise that nothing will settle.")
