"""Rules for routines: mutations are inside items, and items are processed one after the other.

Only certain mistakes are reported: a function that may be called both inside and outside an item is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..model.operations import Step, Surface
from .call_rules import makes_mutation
from .calls import CallSite, FollowedStep
from .item_guards import earliest_guards, runs_when_done
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, callee_taking, enclosing_function, enclosing_one_of, method_name

_HOPS_MAX = 8  # how deep helpers may call helpers that mutate

#: Functions that start every call of their function before the first one has ended.
_AT_ONCE = frozenset({"map", "forEach", "flatMap", "filter", "every", "Array.from"})
#: Methods whose function runs where the method is called, or right after it.
_CALL_BACK = _AT_ONCE | {"reduce", "reduceRight", "some", "find", "findIndex", "then", "catch", "finally"}
#: Where a promise is awaited, or passed to code that awaits it.
_WAITS = FUNCTIONS | {"await_expression", "return_statement"}
_COMBINED = frozenset({"Promise.all", "Promise.allSettled", "Promise.race", "Promise.any"})

_GUARD = "if (ctx.item.isDone) return;"
_WRAP = f"await ctx.withItem(id, title, async (ctx) => {{ {_GUARD} … }})"
_ONE_BY_ONE = "Write `for (const each of list) { await ctx.withItem(…); }`."


def check_items(reading: ScriptReading, steps: Sequence[FollowedStep], surface: Surface | None) -> None:
    """Report what is wrong with the items of all routines, and every other use of `ctx.item`."""
    routines = [followed for followed in steps if followed.step is Step.ROUTINE]
    callbacks = {function for followed in routines for function in _callbacks(reading, followed)}
    for followed in steps:
        _check_mentions(reading, followed, callbacks)
    guards = earliest_guards(reading, routines, callbacks) if callbacks else {}
    for followed in routines:
        for call in _items(followed):
            _check_item(reading, call, callbacks)
        mutations = [call for call in followed.calls if makes_mutation(call, surface, mutate_reads=False)]
        _check_mutations(reading, followed, mutations, callbacks, guards)


def _items(followed: FollowedStep) -> list[CallSite]:
    return [call for call in followed.calls if call.name == "withItem"]


def _callbacks(reading: ScriptReading, followed: FollowedStep) -> Iterable[Node]:
    for call in _items(followed):
        if len(call.args) > 2:
            function = reading.literals.resolve(call.args[2])
            if function.kind in FUNCTIONS:
                yield function


def _check_mentions(reading: ScriptReading, followed: FollowedStep, callbacks: Collection[Node]) -> None:
    """Report `ctx.item` where `ctx` has no such member."""
    for node, may_be_item in followed.items.items():
        if may_be_item:
            continue
        if followed.step is not Step.ROUTINE:
            message, fix = f"`ctx` has no `item` in a {followed.handler.kind.value}.", \
                "Remove it; only the items of a routine have one."
        elif enclosing_one_of(node, callbacks) is not None:
            message, fix = "This is the handler's own `ctx`, which has no `item`.", \
                f"Take it from the callback's parameter: `async (ctx) => {{ {_GUARD} … }}`."
        else:
            message, fix = "`ctx` has an `item` only inside `ctx.withItem`.", f"Read it there: `{_WRAP}`."
        reading.add("item-outside", node, message, fix)


def _check_item(reading: ScriptReading, call: CallSite, callbacks: Collection[Node]) -> None:
    _check_arguments(reading, call)
    if enclosing_one_of(call.node, callbacks) is not None:
        reading.add("nested-item", call.node, "This item begins inside another one, which stops the run.",
                    "Begin it after the other one has ended, or do both in one item.")
    reason = _begins_early(reading, call.node)
    if reason is not None:
        reading.add("item-not-awaited", call.node,
                    f"{reason}; an item that begins before the one before it has ended stops the run.", _ONE_BY_ONE)


def _check_arguments(reading: ScriptReading, call: CallSite) -> None:
    given, literals = call.args[:3], reading.literals
    if any(node.kind == "spread_element" for node in given):
        return
    if len(given) < 3:
        reading.add("item-incomplete", call.node, "`ctx.withItem` takes an id, a title and a function.",
                    f"Write `{_WRAP}`.")
        return
    for node, part in zip(given, ("id", "title"), strict=False):
        if literals.text(node) == "" or literals.resolve(node).kind in ("null", "undefined"):
            reading.add("item-incomplete", node, f"The item has no {part}.",
                        "Write the id of the outside object, and a title that says what it is.")
    kind = literals.type_of(literals.resolve(given[2]))
    if kind not in (None, "a function"):
        reading.add("item-incomplete", given[2], f"The third argument must be a function, not {kind}.",
                    f"Write `{_WRAP}`.")


def _begins_early(reading: ScriptReading, call: Node) -> str | None:
    """Why another item may begin before this one has ended; None if it is awaited, or if that is not certain."""
    node, parent = call, call.parent
    while parent is not None and _is_same_promise(node, parent):
        node, parent = parent, parent.parent
    if parent is None or parent.kind in _WAITS:
        callee = callee_taking(enclosing_function(call))
        method = "Array.from" if callee is not None and callee.text == "Array.from" else method_name(callee)
        return f"`{method}` begins all its calls at once" if method in _AT_ONCE else None
    if parent.kind in ("expression_statement", "unary_expression"):
        return "The item is not awaited"
    if parent.kind == "variable_declarator":
        name = parent.get("name")
        binding = reading.scopes.binding(name) if name is not None else None
        return "The item is not awaited" if binding is not None and not binding.references else None
    if parent.kind == "array" and parent.parent is not None:
        parent = parent.parent
    outer = parent.parent if parent.kind == "arguments" else None
    function = outer.get("function") if outer is not None else None
    if function is not None and function.text in _COMBINED:
        return f"`{function.text}` waits for several things at once"
    return "The item is not awaited" if method_name(function) == "push" else None


def _is_same_promise(node: Node, parent: Node) -> bool:
    """Whether waiting for `parent` is waiting for `node`."""
    if parent.kind == "ternary_expression":
        return node.field != "condition"
    if parent.kind == "binary_expression":
        return node.field == "right"
    if parent.kind == "member_expression":
        method = parent.get("property")
        return method is not None and method.text in ("then", "catch", "finally")
    return parent.kind == "parenthesized_expression" or (
        parent.kind == "call_expression" and node.kind == "member_expression")


def _check_mutations(
    reading: ScriptReading, followed: FollowedStep, mutations: Iterable[CallSite], callbacks: Collection[Node],
    guards: dict[Node, int],
) -> None:
    outside = _Outside(reading, followed.function, callbacks)
    for call in mutations:
        callback = enclosing_one_of(call.node, callbacks)
        if callback is not None:
            if runs_when_done(call.node, callback, followed.items):
                reading.add("done-not-checked", call.node,
                            "This mutation is made only when the item is done, which stops the run.",
                            f"Write `{_GUARD}` as the first line of the callback, and the mutation after it.")
            elif not _is_guarded(call.node, callback, guards):
                reading.add("done-not-checked", call.node,
                            "The callback runs for done items too, and a mutation of a done item stops the run.",
                            f"Write `{_GUARD}` as the first line of the callback.")
        elif outside.holds(call.node):
            reading.add("mutation-outside-item", call.node,
                        f"`ctx.{call.name}` is a mutation outside an item, which stops the run.",
                        f"Wrap it: `{_WRAP}`.")


def _is_guarded(mutation: Node, callback: Node, guards: dict[Node, int]) -> bool:
    """Whether the callback checks before the mutation. An inner function may run later than its position."""
    if callback not in guards:
        return False
    return guards[callback] < mutation.start or enclosing_function(mutation) is not callback


class _Outside:
    """Which places of a routine are certainly outside its items."""

    def __init__(self, reading: ScriptReading, handler: Node, callbacks: Collection[Node]) -> None:
        self._reading = reading
        self._handler = handler
        self._callbacks = callbacks
        self._known: dict[Node, bool] = {}

    def holds(self, node: Node, hops: int = _HOPS_MAX) -> bool:
        """Whether `node` can be reached only from the handler's own body."""
        function = enclosing_function(node)
        if function is None or function in self._callbacks or hops == 0:
            return False
        if function is self._handler:
            return True
        if function not in self._known:
            self._known[function] = False  # while it is computed, for functions that call themselves
            self._known[function] = self._calls_outside(function, hops - 1)
        return self._known[function]

    def _calls_outside(self, function: Node, hops: int) -> bool:
        callee = callee_taking(function)
        if callee is not None:
            return method_name(callee) in _CALL_BACK and self.holds(callee, hops)
        named = function.parent if function.parent and function.parent.kind == "variable_declarator" else function
        name = named.get("name") if named.kind in ("variable_declarator", "function_declaration") else None
        binding = self._reading.scopes.binding(name) if name is not None else None
        if binding is None or binding.how not in ("const", "function") or not binding.references:
            return False
        return all(node.field == "function" and self.holds(node, hops) for node in binding.references)
