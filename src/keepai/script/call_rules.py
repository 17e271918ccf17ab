"""Rules for calls on `ctx`: the operation must exist, the step must allow it, and its topics must be right."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.operations import BUILT_IN, Kind, Step, Surface, allowed, where_allowed
from .calls import CallSite, FollowedStep
from .declaration import Declaration
from .findings import listed, quote, suggest
from .script_reading import ScriptReading
from .topic_rules import literal_topics, undeclared
from .tree import Node

_READS = frozenset({Kind.READ, Kind.READ_BY_ID})
_ON_CONNECTORS = _READS | {Kind.MUTATION}

#: Operations that a routine may not use → what to do instead.
_IN_ROUTINES = {
    Kind.PUBLISH: "A routine does not publish; do the work in `ctx.withItem`, or publish in a producer.",
    Kind.REGISTER_INPUT: "A routine does not register inputs; each item of `ctx.withItem(id, title, …)` is one.",
    Kind.PEEK: "A routine takes no events; read its work with a connector, or write a consumer.",
    Kind.GET_BY_IDS: "A routine takes no events; read its work with a connector, or write a consumer.",
}
_OWN = (*BUILT_IN, "log")

#: Step → where its state is, if not in `ctx.state`.
_STATE = {
    Step.PRODUCER: "Take it from the second parameter: `async handler(ctx, state) { … }`.",
    Step.PREPARE: "Take it from the second parameter: `async prepare(ctx, state) { … }`.",
    Step.MUTATE: "Hand over in `data` what `mutate` needs; it is in `prepared.data`.",
    Step.ROUTINE: "Take it from the second parameter: `async handler(ctx, state) { … }`.",
}


def capabilities(calls: Iterable[CallSite], surface: Surface | None) -> tuple[str, ...]:
    """The connector operations among the calls, sorted; with a surface, the known ones."""
    return tuple(sorted({call.name for call in calls if kinds_of(call, surface) & _ON_CONNECTORS}))


def reads(calls: Iterable[CallSite], surface: Surface | None) -> dict[str, tuple[str, ...]]:
    """The connectors that each handler reads, sorted; with a surface, the known ones."""
    found: dict[str, set[str]] = {}
    for call in calls:
        if kinds_of(call, surface) & _READS:
            found.setdefault(call.handler.name, set()).add(call.path[0])
    return {handler: tuple(sorted(connectors)) for handler, connectors in found.items()}


def kinds_of(call: CallSite, surface: Surface | None) -> frozenset[Kind]:
    """The kinds that the call may have: one, any kind of an unknown connector, or none."""
    first = call.path[0] if call.path else ""
    if first == "log":
        return frozenset({Kind.LOG})
    if len(call.path) == 1 and first in BUILT_IN:
        return frozenset({BUILT_IN[first]})
    if len(call.path) != 2 or first in BUILT_IN:
        return frozenset()
    if surface is None:
        return _ON_CONNECTORS
    kind = surface.kind(call.name)
    return frozenset() if kind is None else frozenset({kind})


def makes_mutation(call: CallSite, surface: Surface | None, *, mutate_reads: bool) -> bool:
    """Whether the call is a mutation. In `mutate`, where nothing else is allowed, an unknown call counts as one."""
    kinds = kinds_of(call, surface)
    return kinds == {Kind.MUTATION} or (
        Kind.MUTATION in kinds and call.step is Step.MUTATE and not mutate_reads)


def check_call(reading: ScriptReading, declaration: Declaration, call: CallSite, surface: Surface | None, *,
               mutate_reads: bool) -> bool:
    """Report what is wrong with one call, except its arguments for the host. Returns whether the step allows it."""
    kinds = kinds_of(call, surface)
    if not kinds:
        _unknown(reading, call, surface)
    elif not any(allowed(call.step, kind, mutate_reads=mutate_reads) for kind in kinds):
        _forbidden(reading, call, kinds)
    else:
        _check_topics(reading, declaration, call)
        return True
    return False


def check_state(reading: ScriptReading, followed: FollowedStep) -> None:
    """Report `ctx.state` where `ctx` has no such member, and where it is changed."""
    for node in followed.states:
        if followed.step is not Step.NEXT:
            where = _step_of(followed.step)
            reading.add("state-outside", node, f"`ctx` has no `state` in {where}, so the run will fail.",
                        _STATE[followed.step])
        elif _is_changed(node):
            reading.add("state-changed", node, "`ctx.state` is frozen, so the run will fail here.",
                        "Return the new state from `next`.")


def _is_changed(node: Node) -> bool:
    """Whether a value, or a part of it, is assigned to."""
    while node.parent is not None and node.field == "object":
        node = node.parent
    parent = node.parent
    if parent is None:
        return False
    written = parent.kind in ("assignment_expression", "augmented_assignment_expression") and node.field == "left"
    return written or parent.kind == "update_expression" or (
        parent.kind == "unary_expression" and parent.tokens == ["delete"])


def _forbidden(reading: ScriptReading, call: CallSite, kinds: frozenset[Kind]) -> None:
    if len(kinds) > 1:
        message, fix = "no connector may be called there.", "Call it in another step."
    else:
        (kind,) = kinds
        kind_name = {Kind.READ: "a read", Kind.READ_BY_ID: "a read", Kind.MUTATION: "a mutation"}.get(kind)
        message = f"it is {kind_name}, " if kind_name else ""
        message += f"allowed in: {where_allowed(kind)}."
        fix = _move(call, kind)
    reading.add("forbidden-call", call.node,
                f"`ctx.{call.name}` is not allowed in {_step_of(call.step)}; {message}", fix)


def _move(call: CallSite, kind: Kind) -> str:
    if call.step is Step.ROUTINE:
        return _IN_ROUTINES[kind]
    if kind is Kind.MUTATION:
        return "Make it the last call of a consumer's `mutate`."
    if kind in (Kind.READ, Kind.READ_BY_ID) and call.step in (Step.MUTATE, Step.NEXT):
        return "Read in `prepare` and hand the result over in `data`."
    if kind is Kind.PUBLISH:
        return "Publish in `next`."
    if kind is Kind.REGISTER_INPUT:
        return "Register inputs in a producer; what a consumer publishes inherits them."
    if kind is Kind.WITH_ITEM:
        return "Move it into the handler of a routine; a producer or consumer has no items."
    return f"Move it to: {where_allowed(kind)}."


def _step_of(step: Step) -> str:
    return f"a {step.value}" if step in (Step.PRODUCER, Step.ROUTINE) else f"`{step.value}`"


def _unknown(reading: ScriptReading, call: CallSite, surface: Surface | None) -> None:
    connectors = tuple(surface.operations) if surface is not None else ()
    first = call.path[0] if call.path else ""
    if surface is not None and len(call.path) >= 2 and first not in {*connectors, *BUILT_IN}:
        reading.add("unknown-connector", call.node, f"There is no connector {quote(first)}.",
                    suggest(first, connectors, f"Configure it, or use one of: {listed(connectors)}."))
    elif surface is not None and len(call.path) == 2 and first in surface.operations:
        operations = surface.operations[first]
        reading.add("unknown-operation", call.node,
                    f"The connector {quote(first)} has no operation {quote(call.path[1])}.",
                    suggest(call.path[1], operations, f"Its operations are: {listed(operations)}."))
    else:
        shown = ".".join(("ctx", *call.path))
        reading.add("unknown-operation", call.node, f"`{shown}` is not an operation.",
                    suggest(first, (*_OWN, *connectors), "Write `ctx.<connector>.<operation>(…)`."))


def _check_topics(reading: ScriptReading, declaration: Declaration, call: CallSite) -> None:
    rule = {
        "publish": (call.handler.publishes, "topic-not-in-publishes", "publishes"),
        "peek": (call.handler.subscribe, "topic-not-subscribed", "subscribe"),
        "getByIds": (call.handler.subscribe, "topic-not-subscribed", "subscribe"),
    }.get(call.name)
    if rule is None or not call.args:
        return
    permitted, code, key = rule
    for name, node in literal_topics(reading, call.args[0]):
        known = not undeclared(reading, declaration.topics, name, node)
        if known and permitted is not None and name not in permitted:
            reading.add(code, node, f"{quote(name)} is not in the handler's `{key}`.",
                        suggest(name, permitted, f"Add {quote(name)} to `{key}`."))
