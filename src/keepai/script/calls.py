"""Finds the operations that each step uses: it follows `ctx` through variables, destructuring and helper functions.

It does not guess. What it cannot follow becomes the warning `capability-hidden`, and the host checks the call when it
is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.operations import Step
from .declaration import Declared
from .literals import Literals
from .scope import Binding
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, arguments, parameters

Path = tuple[str, ...]

#: How far a step is followed. Otherwise a function that passes `c.x` to itself would be followed forever.
_PATH_MAX = 4
_USES_MAX = 100_000

#: Members of `ctx` that are plain data.
_DATA = frozenset({"state", "item"})

#: Places where a part of `ctx` is only read.
_HARMLESS = frozenset({
    "expression_statement", "unary_expression", "if_statement", "while_statement", "parenthesized_expression",
})


@dataclass(frozen=True)
class CtxPart:
    """What a name means: `ctx` or a member of it, of the handler or of an item."""

    path: Path = ()
    of_item: bool = False  # it is the `ctx` that the callback of `withItem` receives

    def member(self, name: str) -> CtxPart:
        """One of its members."""
        return CtxPart((*self.path, name), self.of_item)


@dataclass(frozen=True)
class CallSite:
    """One call on `ctx` in one step of a handler, perhaps inside a helper."""

    handler: Declared
    step: Step
    path: Path  # ("publish",) or ("gmail", "search")
    node: Node

    @property
    def name(self) -> str:
        """The operation as scripts write it after `ctx.`."""
        return ".".join(self.path)

    @property
    def args(self) -> list[Node]:
        """The arguments."""
        return arguments(self.node)


@dataclass
class FollowedStep:
    """Everything that one step does with its `ctx`."""

    handler: Declared
    step: Step
    function: Node
    calls: list[CallSite] = field(default_factory=list)
    helpers: list[tuple[Node, Node]] = field(default_factory=list)  # call → the function it calls
    items: dict[Node, bool] = field(default_factory=dict)  # mention of `ctx.item` → may it be an item's `ctx`?
    states: list[Node] = field(default_factory=list)  # mentions of `ctx.state`


def follow(reading: ScriptReading, handler: Declared, step: Step, function: Node) -> FollowedStep:
    """Follow `ctx` from the first parameter of a step."""
    followed = FollowedStep(handler, step, function)
    follower = _Follower(reading, followed)
    patterns = parameters(function)
    if patterns:
        follower.bind(patterns[0], CtxPart())
    follower.run()
    followed.calls.sort(key=lambda call: call.node.start)
    return followed


class _Follower:
    def __init__(self, reading: ScriptReading, followed: FollowedStep) -> None:
        self._reading = reading
        self._literals: Literals = reading.literals
        self._followed = followed
        self._queue: list[tuple[Binding, CtxPart]] = []
        self._seen: set[tuple[Binding, CtxPart]] = set()
        self._uses = 0
        self._called: set[tuple[Node, Path]] = set()

    def run(self) -> None:
        for binding, part in self._queue:  # the list grows during the loop
            self._uses += len(binding.references)
            if self._uses > _USES_MAX:
                self._hidden(binding.node, part)
                return
            for reference in binding.references:
                self._use(reference, part)

    def bind(self, pattern: Node, part: CtxPart) -> None:
        """Bind the names of a pattern to parts of `ctx`."""
        stack = [(pattern, part)]
        while stack:
            node, at = stack.pop()
            if self._is_data(node, at):
                continue
            if node.kind in ("identifier", "shorthand_property_identifier_pattern"):
                self._alias(node, at)
            elif node.kind in ("assignment_pattern", "object_assignment_pattern"):
                stack.extend((child, at) for child in node.children if child.field == "left")
            elif node.kind == "object_pattern":
                stack.extend(self._parts(node, at))
            else:
                self._hidden(node, at)

    def _is_data(self, node: Node, part: CtxPart) -> bool:
        """Whether it is plain data, which is not followed. A use of `ctx.item` or `ctx.state` is recorded."""
        if part.path == ("state",):
            self._followed.states.append(node)
        if part.path[:1] == ("item",):
            items = self._followed.items
            items[node] = items.get(node, False) or part.of_item
        return bool(part.path) and part.path[0] in _DATA

    def _parts(self, pattern: Node, part: CtxPart) -> list[tuple[Node, CtxPart]]:
        parts: list[tuple[Node, CtxPart]] = []
        for child in pattern.children:
            target, key = child, child.text
            if child.kind == "pair_pattern":
                value, name = child.get("value"), child.get("key")
                if value is None or name is None or name.kind == "computed_property_name":
                    self._hidden(child, part)
                    continue
                target, key = value, self._literals.text(name) or name.text
            elif child.kind == "object_assignment_pattern":
                left = child.get("left")
                target, key = (left, left.text) if left is not None else (child, "")
            elif child.kind != "shorthand_property_identifier_pattern":
                self._hidden(child, part)
                continue
            parts.append((target, part.member(key)))
        return parts

    def _alias(self, node: Node, part: CtxPart) -> None:
        binding = self._reading.scopes.binding(node)
        if len(part.path) > _PATH_MAX:
            self._hidden(node, part)
        elif binding is not None and (binding, part) not in self._seen:
            self._seen.add((binding, part))
            self._queue.append((binding, part))

    def _use(self, node: Node, part: CtxPart) -> None:
        """Follow one use of `ctx`, or of a part of it."""
        while node.parent is not None and node.field == "object":
            step = self._member(node.parent)
            if step is None:
                self._hidden(node.parent, part)
                return
            part, node = part.member(step), node.parent
            if self._is_data(node, part):
                return
        self._arrive(node, part)

    def _member(self, node: Node) -> str | None:
        if node.kind == "member_expression":
            key = node.get("property")
            return key.text if key is not None and key.kind == "property_identifier" else None
        index = node.get("index")
        return self._literals.text(index) if index is not None else None

    def _arrive(self, node: Node, part: CtxPart) -> None:
        parent = node.parent
        assert parent is not None
        is_assigned = parent.kind == "assignment_expression" and node.field == "left"
        is_compared = parent.kind == "binary_expression" and not {"&&", "||", "??"} & set(parent.tokens)
        if parent.kind == "call_expression" and node.field == "function":
            if part.path and part.path[-1] in ("call", "apply", "bind"):
                self._hidden(node, part)
            else:
                self._call(parent, part.path)
        elif parent.kind == "variable_declarator" and node.field == "value":
            name = parent.get("name")
            if name is not None:
                self.bind(name, part)
        elif parent.kind == "arguments" and parent.parent is not None:
            self._hand_over(node, parent, parent.parent, part)
        elif parent.kind not in _HARMLESS and not is_assigned and not is_compared:
            self._hidden(node, part)

    def _call(self, node: Node, path: Path) -> None:
        if (node, path) in self._called:  # in a helper that gets both the handler's `ctx` and an item's
            return
        self._called.add((node, path))
        call = CallSite(self._followed.handler, self._followed.step, path, node)
        self._followed.calls.append(call)
        if call.step is Step.ROUTINE and call.name == "withItem" and len(call.args) > 2:
            self._into_item(call.args[2])

    def _into_item(self, given: Node) -> None:
        """The callback of an item gets its own `ctx`."""
        callback = self._literals.resolve(given)
        if self._literals.type_of(callback) == "a function":
            patterns = parameters(callback)
            if patterns:
                self.bind(patterns[0], CtxPart(of_item=True))
        elif self._literals.type_of(callback) is None:
            self._hidden(given, CtxPart(of_item=True))

    def _hand_over(self, node: Node, given: Node, call: Node, part: CtxPart) -> None:
        """`ctx` is an argument: follow it into a function of this module."""
        function = call.get("function") if call.kind == "call_expression" else None
        helper = self._literals.resolve(function) if function is not None else None
        position = given.children.index(node)
        spread = any(child.kind == "spread_element" for child in given.children[:position])
        if helper is None or helper.kind not in FUNCTIONS or spread:
            self._hidden(node, part)
            return
        patterns = parameters(helper)
        self._followed.helpers.append((call, helper))
        if position < len(patterns):
            self.bind(patterns[position], part)

    def _hidden(self, node: Node, part: CtxPart) -> None:
        shown = ".".join(("ctx", *part.path))
        self._reading.add(
            "capability-hidden", node,
            f"What is called through `{shown}` cannot be seen from here, so its permission is not asked for "
            "at deploy; the call will need a grant of its own.",
            "Call `ctx.<connector>.<operation>(…)` in the handler, or hand `ctx` to a function of yours.")
