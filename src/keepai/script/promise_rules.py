"""Rules for promises: the result of a call must be awaited before it is used, and before the handler ends.

A promise is the result of a call on `ctx` or of an async function of the script, and a variable that holds it. Only
uses that can never work with a promise are reported. A promise that is passed to other code is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..model.operations import Step, Surface
from .call_rules import makes_mutation
from .calls import FollowedStep
from .scope import Binding
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, arguments, enclosing_function, method_name, walk

_HOPS_MAX = 8  # how many variables a promise is followed through
_SETTLE = frozenset({"then", "catch", "finally"})
_COMPUTES = frozenset({"+", "-", "*", "/", "%", "**", "<", ">", "<=", ">="})
#: Functions that read the content of a value and find nothing in a promise.
_LOOK_INTO = frozenset({
    "JSON.stringify", "Object.keys", "Object.values", "Object.entries", "Array.from", "String", "Number", "Boolean",
})
_CONDITIONS = frozenset({"if_statement", "while_statement", "do_statement", "for_statement", "ternary_expression"})

_LITERALS = frozenset({"pair", "object", "array", "parenthesized_expression"})

_AWAIT = "Write `await` before the call."


def check_promises(
    reading: ScriptReading, steps: Iterable[FollowedStep], surface: Surface | None, *, mutate_reads: bool,
) -> None:
    """Report promises that are used as their value, and async work that is not awaited."""
    followed = list(steps)
    calls = {call.node: call for step in followed for call in step.calls if call.path[:1] != ("log",)}
    mutations = {node for node, call in calls.items() if makes_mutation(call, surface, mutate_reads=mutate_reads)}
    items = {node for node, call in calls.items() if call.name == "withItem"}
    rules = _Promises(reading, calls, {step.function for step in followed}, mutations | items)
    for node, call in calls.items():
        ends = call.step is Step.MUTATE and node in mutations  # other rules report what follows
        if not ends and call.name != "registerInput":
            rules.follow(node, _HOPS_MAX)
    for node in walk(reading.root):
        if node.kind == "call_expression" and node not in calls:
            rules.check_own(node)


class _Promises:
    def __init__(
        self, reading: ScriptReading, calls: Collection[Node], steps: Collection[Node],
        reported_elsewhere: Collection[Node],
    ) -> None:
        self._reading = reading
        self._calls = calls
        self._steps = steps
        self._reported_elsewhere = reported_elsewhere  # calls that other rules report if not awaited
        self._seen: set[Binding] = set()
        self._goes_on: dict[Node, bool] = {}  # whether an async function does more after its first `await`

    def check_own(self, call: Node) -> None:
        """Check a call of the script's own code: of an async function, or of a method that gets one."""
        function = call.get("function")
        if function is None:
            return
        called = self._reading.literals.resolve(function)
        if called.kind in FUNCTIONS and _is_async(called):
            self.follow(call, _HOPS_MAX)
            self._check_dropped(call, called)
        elif method_name(function) in ("forEach", "map") and arguments(call):
            given = self._reading.literals.resolve(arguments(call)[0])
            if given.kind in FUNCTIONS and _is_async(given):
                if method_name(function) == "forEach":
                    self._check_dropped(call, given)
                else:
                    self._check_kept(call, "A list of promises")

    def follow(self, promise: Node, hops: int) -> None:
        """Judge one use of a promise."""
        node, parent = promise, promise.parent
        while parent is not None and parent.kind == "parenthesized_expression" and not _is_condition(parent):
            node, parent = parent, parent.parent
        if parent is None:
            return
        misuse = _misused(node, parent)
        if misuse is not None:
            self._reading.add("promise-not-awaited", promise, f"This is a promise, {misuse}.", _AWAIT)
        elif parent.kind == "variable_declarator" and node.field == "value":
            self._into_variable(parent, hops)
        else:
            self._check_kept(node, "This is a promise")

    def _into_variable(self, declarator: Node, hops: int) -> None:
        name = declarator.get("name")
        binding = self._reading.scopes.binding(name) if name is not None else None
        if binding is None or binding in self._seen or hops == 0 or _is_reassigned(binding):
            return
        self._seen.add(binding)
        for reference in binding.references:
            self.follow(reference, hops - 1)

    def _check_kept(self, node: Node, subject: str) -> None:
        """Report a promise inside a value for the host, because JSON turns it into an empty object."""
        holder, parent, inside = node, node.parent, False
        while parent is not None and _is_within(holder, parent):
            inside = inside or parent.kind in ("object", "array")
            holder, parent = parent, parent.parent
        if parent is None:
            return
        given = parent.kind == "arguments" and parent.parent in self._calls
        if given or (inside and self._is_returned(holder, parent)):
            fix = "Write `await` before it" + (", or `await Promise.all(…)`." if "list" in subject else ".")
            self._reading.add(
                "promise-not-awaited", node, f"{subject}, which the host gets as an empty object.", fix)

    def _is_returned(self, holder: Node, parent: Node) -> bool:
        """Whether a step returns this literal."""
        if parent.kind in FUNCTIONS:
            return holder.field == "body" and parent in self._steps
        return parent.kind == "return_statement" and enclosing_function(parent) in self._steps

    def _check_dropped(self, call: Node, function: Node) -> None:
        """Report async work that the end of the handler may cut off."""
        if call.parent is None or call.parent.kind != "expression_statement":
            return
        if function not in self._goes_on:
            inside = list(walk(function, into_functions=False))
            waits = any(node.kind == "await_expression" for node in inside)
            self._goes_on[function] = waits and not any(node in self._reported_elsewhere for node in inside)
        if self._goes_on[function]:
            self._reading.add(
                "promise-dropped", call, "Nothing waits for this: what it does after its first `await` may be lost.",
                "Write `for (const each of list) { … await … }`." if method_name(call.get("function")) == "forEach"
                else _AWAIT)


def _is_async(function: Node) -> bool:
    return "async" in function.tokens and "*" not in function.tokens


def _is_condition(node: Node) -> bool:
    return node.field == "condition" and node.parent is not None and node.parent.kind in _CONDITIONS


def _is_within(node: Node, parent: Node) -> bool:
    """Whether `parent` is, or may be, a value that contains the promise."""
    if parent.kind == "ternary_expression":
        return node.field != "condition"
    if parent.kind == "binary_expression":
        return node.field == "right" and bool({"&&", "||", "??"} & set(parent.tokens))
    return parent.kind in _LITERALS


def _misused(node: Node, parent: Node) -> str | None:
    """The use of a promise that can never work, in words; None if it may work."""
    key = method_name(parent) if node.field == "object" else None
    if node.field == "object" and parent.kind in ("member_expression", "subscript_expression"):
        return None if key in _SETTLE else f"which has no `{key}`" if key else "which has no elements"
    if parent.kind == "variable_declarator":
        name = parent.get("name")
        is_pattern = name is not None and name.kind in ("array_pattern", "object_pattern")
        return "which cannot be taken apart" if is_pattern else None
    if parent.kind == "for_in_statement" and node.field == "right":
        return None if "await" in parent.tokens else "which has no elements"
    if parent.kind == "spread_element":
        return "which has no elements"
    if parent.kind == "template_substitution":
        return 'which reads "[object Promise]" in a text'
    if _is_condition(parent) or (parent.kind in _CONDITIONS and node.field == "condition"):
        return "which is always true in a condition"
    return _computed(node, parent)


def _computed(node: Node, parent: Node) -> str | None:
    if parent.kind == "unary_expression" and parent.tokens == ["!"]:
        return "which is always true in a condition"
    if parent.kind == "binary_expression" and _COMPUTES & set(parent.tokens):
        return "which is no number and no text"
    outer = parent.parent if parent.kind == "arguments" else None
    function = outer.get("function") if outer is not None and outer.kind == "call_expression" else None
    if function is not None and function.end - function.start < 20 and function.text in _LOOK_INTO:
        return f"in which `{function.text}` finds nothing"
    return None


def _is_reassigned(binding: Binding) -> bool:
    if binding.how == "const":
        return False
    return binding.how == "parameter" or any(
        node.field == "left" or (node.parent is not None and node.parent.kind.endswith("_pattern"))
        for node in binding.references)
