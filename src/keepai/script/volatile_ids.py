"""Rules for ids: an id that is made from the time or from chance differs at each attempt.

Values are followed through variables and functions of the script, not through `ctx`, parameters or elements. A date
without its time of day is allowed: a workflow may do one thing a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..model.operations import Kind, Step, Surface
from .calls import CallSite, FollowedStep
from .prepare_rules import returned
from .scope import Binding
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, arguments, method_name

_HOPS_MAX = 12  # how many variables and functions are followed between a source and the id
_FUEL = 200_000  # how many nodes are read in total

#: Methods whose result is the same all day.
_DAY = frozenset({
    "getFullYear", "getUTCFullYear", "getMonth", "getUTCMonth", "getDate", "getUTCDate", "getDay", "getUTCDay",
    "toDateString", "toLocaleDateString",
})
#: Expressions that cut an ISO time to its date.
_CUT = re.compile(r"""\.(?:(?:slice|substring|substr)\(0,(?:[1-9]|10)\)|split\(["'`]T["'`]\)(?:\[0\]|\.at\(0\))?)\Z""")

_OPAQUE = FUNCTIONS | {"await_expression", "class"}
#: Functions whose result is made from their arguments.
_KEEPS = frozenset({
    "Date", "String", "Number", "BigInt", "parseInt", "parseFloat", "Math.floor", "Math.round", "Math.ceil",
    "Math.trunc", "Math.abs", "JSON.stringify", "encodeURIComponent", "btoa",
})

_FIX = "Make it from the id of the outside object. For one thing a day, use the day: `toISOString().slice(0, 10)`."


def check_volatile_ids(reading: ScriptReading, steps: Iterable[FollowedStep], surface: Surface | None) -> None:
    """Warn of time and chance in the ids of items, inputs and events, in subkeys and in identity params."""
    calls = [call for followed in steps for call in followed.calls]
    sources = _Sources(reading, {call.node for call in calls})
    for call in calls:
        for subject, node in _ids(reading, call, surface):
            source = sources.find(node)
            if source is not None:
                reading.add("volatile-id", node,
                            f"{subject} is made from `{source}`, so it differs at each attempt, and the same thing "
                            "may be done twice.", _FIX)


def _ids(reading: ScriptReading, call: CallSite, surface: Surface | None) -> Iterator[tuple[str, Node]]:
    """Every value that identifies something, with words for it."""
    if call.name == "withItem" and call.step is Step.ROUTINE and call.args:
        yield "The id of the item", call.args[0]
    elif call.name == "publish" and len(call.args) > 1:
        yield from _members(reading, call.args[1], {"messageId": "The `messageId`"})
    elif call.name == "registerInput" and call.args:
        yield from _members(reading, call.args[0], {"id": "The `id` of the input"})
    elif call.args and surface is not None and surface.kind(call.name) is Kind.MUTATION:
        params = surface.params.get(call.name)
        known = params.identity if params is not None else ()
        names = {name: f"`{name}`, which says what `ctx.{call.name}` is about," for name in known}
        yield from _members(reading, call.args[0], {**names, "subkey": "The `subkey`"})
        if params is not None and not known and call.step is Step.ROUTINE:  # then all params identify it
            yield f"What `ctx.{call.name}` is given, which says what it is about,", call.args[0]
    elif call.args and surface is None:
        yield from _members(reading, call.args[0], {"subkey": "The `subkey`"})


def _members(reading: ScriptReading, node: Node, wanted: dict[str, str]) -> Iterator[tuple[str, Node]]:
    resolved = reading.literals.resolve(node)
    if resolved.kind == "object":
        for entry in reading.literals.entries(resolved):
            if entry.key in wanted:
                yield wanted[entry.key], entry.value


class _Sources:
    """Finds what a value is made from."""

    def __init__(self, reading: ScriptReading, calls: set[Node]) -> None:
        self._reading = reading
        self._calls = calls
        self._known: dict[Node, str | None] = {}
        self._fuel = _FUEL

    def find(self, node: Node, hops: int = _HOPS_MAX) -> str | None:
        """The first source of time or chance in a value; None if there is none, or if that is not certain."""
        if node not in self._known:
            self._known[node] = None  # while it is computed, for values that depend on themselves
            self._known[node] = self._search(node, hops) if hops > 0 else None
        return self._known[node]

    def _search(self, value: Node, hops: int) -> str | None:
        stack = [value]
        while stack and self._fuel > 0:
            self._fuel -= 1
            node = stack.pop()
            if node.kind in _OPAQUE or node in self._calls or self._is_day(node):
                continue
            source = self._source(node) or self._elsewhere(node, hops)
            if source is not None:
                return source
            stack.extend(self._parts(node))
        return None

    def _parts(self, node: Node) -> list[Node]:
        """The parts of an expression that its value is made from."""
        if node.kind in ("call_expression", "new_expression"):
            function = node.get("function") or node.get("constructor")
            kept = [] if function is None else [function]
            is_short = function is not None and function.end - function.start < 20
            return [*kept, *arguments(node)] if is_short and function and function.text in _KEEPS else kept
        if node.kind in ("member_expression", "subscript_expression"):
            target, key = node.get("object"), node.get("property")
            holder = self._reading.literals.resolve(target) if target is not None else node
            if holder.kind == "object":
                member = self._reading.literals.member(holder, key.text) if key is not None else None
                return [] if member is None else [member]
            return [] if target is None else [target]
        return [child for child in node.children if child.field != "condition"]

    def _source(self, node: Node) -> str | None:
        if node.kind == "new_expression":
            constructor = node.get("constructor")
            is_now = constructor is not None and self._is_global(constructor, "Date") and not arguments(node)
            return "new Date()" if is_now else None
        function = node.get("function") if node.kind == "call_expression" else None
        if function is None:
            return None
        if self._is_global(function, "Date"):
            return "Date()"
        owner = function.get("object") if function.kind == "member_expression" else None
        for name, method in (("Date", "now"), ("Math", "random"), ("crypto", "randomUUID"), ("performance", "now")):
            if owner is not None and self._is_global(owner, name) and function.text == f"{name}.{method}":
                return f"{name}.{method}()"
        return None

    def _is_global(self, node: Node, name: str) -> bool:
        return node.kind == "identifier" and node.text == name and self._reading.scopes.binding(node) is None

    def _elsewhere(self, node: Node, hops: int) -> str | None:
        """The source in the variable or in the function of the script that is used here."""
        if node.kind == "call_expression":
            function = node.get("function")
            called = self._reading.literals.resolve(function) if function is not None else node
            return self._returned(called, hops) if called.kind in FUNCTIONS else None
        binding = self._reading.scopes.binding(node) if node.kind.endswith("identifier") else None
        return self._held(binding, hops) if binding is not None and binding.how in ("const", "let", "var") else None

    def _held(self, binding: Binding, hops: int) -> str | None:
        """The source in the declared value of a variable or in any assignment to it."""
        if binding.node not in self._known:
            self._known[binding.node] = None
            values = [binding.value] if binding.value is not None else []
            writes = [use.parent for use in binding.references if use.field == "left" and use.parent is not None]
            values += [right for write in writes if (right := write.get("right")) is not None]
            self._known[binding.node] = next((f for value in values if (f := self.find(value, hops - 1))), None)
        return self._known[binding.node]

    def _returned(self, function: Node, hops: int) -> str | None:
        if function not in self._known:
            self._known[function] = None
            self._known[function] = next((f for value in returned(function) if (f := self.find(value, hops - 1))), None)
        return self._known[function]

    def _is_day(self, node: Node) -> bool:
        """Whether an expression is the date of a time, without its hours."""
        if node.kind not in ("call_expression", "subscript_expression"):
            return False
        if method_name(node.get("function")) in _DAY:
            return True
        end = node.text[-40:].replace(" ", "") if node.end - node.start < 1000 else ""
        return _CUT.search(end) is not None
