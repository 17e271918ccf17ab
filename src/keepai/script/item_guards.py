"""Finds where the callback of an item checks whether the item is done.

Checking is enough, in a condition or in a way that may lead to one. Which branch does what is not judged, because the
host refuses a mutation of a done item anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from .calls import FollowedStep
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, enclosing_function, enclosing_one_of, method_name, walk

_CONDITIONS = frozenset({
    "if_statement", "while_statement", "do_statement", "for_statement", "switch_statement", "switch_case",
    "ternary_expression",
})


def earliest_guards(
    reading: ScriptReading, routines: Iterable[FollowedStep], callbacks: Collection[Node],
) -> dict[Node, int]:
    """Callback → where it first checks whether its item is done; absent if it never does."""
    reads = [node for node in walk(reading.root) if _is_read(node)]
    asking = {function for node in reads for function in _functions_around(node)}
    guards = [guard for node in reads for guard in _guards(reading, node, callbacks)]
    for followed in routines:
        guards += [call for call, helper in followed.helpers if helper in asking]
        guards += [node for item in followed.items for node in _handed_over(reading, item)]
    earliest: dict[Node, int] = {}
    for node in guards:
        callback = enclosing_one_of(node, callbacks)
        if callback is not None:
            earliest[callback] = min(node.start, earliest.get(callback, node.start))
    return earliest


def runs_when_done(mutation: Node, callback: Node, items: Collection[Node]) -> bool:
    """Whether a mutation is in the branch of `if (ctx.item.isDone) { … }`; `items` are uses of `ctx.item`."""
    node = mutation
    while node is not callback and node.parent is not None:
        if node.field == "consequence" and _asks(node.parent.get("condition"), items):
            return True
        node = node.parent
    return False


def _asks(condition: Node | None, items: Collection[Node]) -> bool:
    inner = condition.children[0] if condition is not None and len(condition.children) == 1 else None
    key = inner.get("property") if inner is not None and inner.kind == "member_expression" else None
    return inner is not None and inner.get("object") in items and key is not None and _is_read(key)


def _is_read(node: Node) -> bool:
    named = node.kind in ("property_identifier", "shorthand_property_identifier_pattern", "string_fragment")
    return named and node.end - node.start == len("isDone") and node.text == "isDone"


def _functions_around(node: Node) -> Iterator[Node]:
    function = enclosing_function(node)
    while function is not None:
        yield function
        function = enclosing_function(function)


def _guards(reading: ScriptReading, read: Node, callbacks: Collection[Node]) -> list[Node]:
    """The places where the value decides something: its own place, or the uses of the variable that holds it."""
    name = _variable(read)
    if name is None:
        return [read] if _decides(read, callbacks) else []
    binding = reading.scopes.binding(name)
    uses = binding.references if binding is not None else ()
    return [use for use in uses if _decides(use, callbacks)]


def _variable(node: Node) -> Node | None:
    """The name in `const done = ctx.item.isDone`, `const { isDone } = ctx.item` or `({ isDone: done }) => …`."""
    if node.kind == "shorthand_property_identifier_pattern":
        return node
    parent = node.parent
    if parent is not None and parent.kind == "pair_pattern":
        value = parent.get("value")
        return value if value is not None and value.kind == "identifier" else None
    while parent is not None and parent.kind in ("member_expression", "unary_expression", "parenthesized_expression"):
        node, parent = parent, parent.parent
    name = parent.get("name") if parent is not None and parent.kind == "variable_declarator" else None
    return name if name is not None and name.kind == "identifier" and node.field == "value" else None


def _decides(node: Node, callbacks: Collection[Node]) -> bool:
    """Whether a value may decide what happens next; not if it is only logged."""
    parent = node.parent
    while parent is not None:
        if parent.kind in _CONDITIONS:
            return True
        if parent.kind == "return_statement":
            return enclosing_function(parent) not in callbacks
        if parent.kind in FUNCTIONS:
            return parent not in callbacks
        if parent.kind == "arguments":
            return not _is_logged(parent)
        if parent.kind == "binary_expression" and {"&&", "||", "??"} & set(parent.tokens):
            return True
        if parent.kind in ("expression_statement", "statement_block"):
            return node.kind == "assignment_expression"
        node, parent = parent, parent.parent
    return False


def _is_logged(given: Node) -> bool:
    function = given.parent.get("function") if given.parent is not None else None
    return function is not None and (function.text.startswith("console.") or method_name(function) == "log")


def _handed_over(reading: ScriptReading, item: Node) -> list[Node]:
    """Where `ctx.item` is an argument, so that another function may check it."""
    name: Node | None = item
    if item.parent is not None and item.parent.kind == "variable_declarator":
        name = item.parent.get("name")
    binding = reading.scopes.binding(name) if name is not None else None
    uses = [item] if binding is None else binding.references
    return [use for use in uses
            if use.parent is not None and use.parent.kind == "arguments" and not _is_logged(use.parent)]
