"""Rules for what `prepare` returns, as far as it is written out."""

from __future__ import annotations

from ..model.operations import Step
from .declaration import Declared
from .literals import ObjectMember
from .message_rules import fields_of
from .script_reading import ScriptReading
from .topic_rules import literal_topics
from .tree import Node, walk

RESULT_FIELDS = ("reservations", "data", "ui", "wakeAt")

_RESULT = "return { reservations: [{ topic, ids }], data: { … }, ui: { title: … } };"
_NOTHING = "return { reservations: [], data: {} };"


def check_prepare(reading: ScriptReading, handler: Declared, *, has_mutation: bool) -> None:
    """Report what is wrong with the results that a consumer's `prepare` returns."""
    function = handler.steps.get(Step.PREPARE)
    if function is None:
        return
    for node in returned(function):
        _check_result(reading, handler, node, has_mutation)


def returned(function: Node) -> list[Node]:
    """The expressions that a function returns; for a bare `return;`, the statement itself."""
    body = function.get("body")
    if body is None:
        return []
    if body.kind != "statement_block":
        return _alternatives(body)
    values: list[Node] = []
    for node in walk(function, into_functions=False):
        if node.kind == "return_statement":
            values.extend(_alternatives(node.children[0]) if node.children else [node])
    return values


def _alternatives(node: Node) -> list[Node]:
    alternatives, stack = [], [node]
    while stack:
        current = stack.pop()
        if current.kind == "ternary_expression":
            stack.extend(c for c in current.children if c.field in ("consequence", "alternative"))
        elif current.kind == "parenthesized_expression":
            stack.extend(current.children)
        else:
            alternatives.append(current)
    return alternatives


def _check_result(reading: ScriptReading, handler: Declared, node: Node, has_mutation: bool) -> None:
    read = fields_of(reading, node, "A PrepareResult", RESULT_FIELDS, refused=("events",))
    if read is None:
        resolved = reading.literals.resolve(node)
        kind = "nothing" if node.kind == "return_statement" else reading.literals.type_of(resolved)
        if kind is not None:
            reading.add("bad-prepare-result", node, f"`prepare` returns {kind}, so the run will fail.",
                        f"Write `{_NOTHING}` when there is nothing to do.")
        return
    fields, complete = read
    if "events" in fields:
        reading.add("bad-prepare-result", fields["events"].at,
                    "The host puts the reserved events into `prepared.events`, so the run will fail.",
                    "Remove `events`, or put what you mean into `data`.")
    if complete and "reservations" not in fields:
        reading.add("bad-prepare-result", node, "There are no `reservations`, so the run will fail.",
                    f"Write `{_RESULT}` or, when there is nothing to do, `{_NOTHING}`")
    if "reservations" in fields:
        _check_reservations(reading, handler, fields["reservations"])
        reserved = reading.literals.resolve(fields["reservations"].value)
        is_empty = reserved.kind == "array" and not reserved.children
        if has_mutation and complete and not is_empty and not _has_title(reading, fields.get("ui")):
            reading.add("ui-title-missing", node, "People will not see what this run is about to do.",
                        "Add `ui: { title: `Add row for ${…}` }`.")


def _check_reservations(reading: ScriptReading, handler: Declared, entry: ObjectMember) -> None:
    array = reading.literals.resolve(entry.value)
    if array.kind != "array" or handler.subscribe is None:
        return
    for element in reading.literals.elements(array):
        read = fields_of(reading, element, "A reservation", ("topic", "ids"))
        topic = read[0].get("topic") if read is not None else None
        for name, node in literal_topics(reading, topic.value) if topic is not None else ():
            if name not in handler.subscribe:
                reading.add("reservation-not-subscribed", node,
                            f"`{name}` is not in `subscribe`, so the run will fail.",
                            "Reserve events of subscribed topics only.")


def _has_title(reading: ScriptReading, entry: ObjectMember | None) -> bool:
    if entry is None:
        return False
    resolved = reading.literals.resolve(entry.value)
    if resolved.kind != "object":
        return reading.literals.type_of(resolved) is None
    return any(e.key in ("title", None) for e in reading.literals.entries(resolved))
