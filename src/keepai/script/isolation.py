"""Scripts share nothing: no imports, and no module-level variable that a handler changes.

Every step runs in a fresh context, so a change to such a variable is silently lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from .scope import Binding, bound_names
from .script_reading import ScriptReading
from .tree import FUNCTIONS, Node, arguments, walk

_HOPS_MAX = 8  # how many aliases are followed

_ARRAY = frozenset({"push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "copyWithin"})
_COLLECTION = frozenset({"set", "add", "delete", "clear"})
_LISTS = frozenset({"Array", "Array.from", "Array.of", "Object.keys", "Object.values", "Object.entries"})
_OF_LISTS = frozenset({"map", "filter", "concat", "slice", "flat", "flatMap", "toSorted", "toReversed"})
_COLLECTIONS = frozenset({"Map", "Set", "WeakMap", "WeakSet"})
_ASSIGNERS = frozenset({"Object.assign", "Object.defineProperty", "Object.defineProperties", "Reflect.set"})
_PATTERNS = frozenset({"array_pattern", "object_pattern"})
_PATHS = frozenset({"identifier", "member_expression", "subscript_expression"})
_NAMES = frozenset({"identifier", "shorthand_property_identifier_pattern"})
_WRITES = frozenset({"assignment_expression", "augmented_assignment_expression"})
_REACHED = FUNCTIONS | {"class_declaration", "class", "object"}


def check_imports(reading: ScriptReading) -> None:
    """Report `import`, `import()` and `require()`."""
    for node in walk(reading.root):
        function = node.get("function") if node.kind == "call_expression" else None
        called = function is not None and (
            function.kind == "import"
            or (function.text == "require" and reading.scopes.binding(function) is None))
        if node.kind == "import_statement" or called:
            reading.add("import", node, "A script cannot import anything; it sees only `ctx`.",
                        "Remove it, and call a connector through `ctx` or write the code here.")


def check_shared_state(reading: ScriptReading, handlers: Iterable[Node]) -> None:
    """Report changes to module-level variables in the handlers and in what they call."""
    for piece in _reachable(reading, handlers):
        for node in walk(piece):
            names = [_module_variable(reading, target) for target in _changed(reading, node)]
            for name in (variable for variable in names if variable is not None):
                reading.add(
                    "shared-state", node,
                    f"`{name}` is changed here, but every step runs in a fresh context, so no other step sees it.",
                    "Return it as state, or pass it on in `data` or in an event.")


def _reachable(reading: ScriptReading, handlers: Iterable[Node]) -> list[Node]:
    """The handlers, and the module-level functions, classes and objects that they mention."""
    pieces = list(dict.fromkeys(handlers))
    seen = set(pieces)
    for piece in pieces:  # the list grows during the loop
        for node in walk(piece):
            binding = reading.scopes.binding(node) if node.kind.endswith("identifier") else None
            if binding is None or not binding.module_level or binding.value is None or binding.value in seen:
                continue
            if binding.value.kind in _REACHED:
                seen.add(binding.value)
                pieces.append(binding.value)
    return pieces


def _changed(reading: ScriptReading, node: Node) -> list[Node]:
    """The expressions that `node` changes."""
    target: Node | None = None
    is_loop = node.kind == "for_in_statement" and not {"const", "let", "var"} & set(node.tokens)
    if is_loop or node.kind in _WRITES:
        target = node.get("left")
    elif node.kind == "update_expression":
        target = node.get("argument")
    elif node.kind == "unary_expression" and node.tokens == ["delete"]:
        target = node.get("argument")
        target = None if target is not None and target.kind == "identifier" else target
    elif node.kind == "call_expression":
        target = _changed_by_call(reading, node)
    if target is None:
        return []
    if target.kind not in _PATTERNS:
        return [target]
    # A pattern such as `[a, b.c]` has several targets.
    members = [part for part in walk(target) if part.kind in ("member_expression", "subscript_expression")]
    return [*bound_names(target), *members]


def _changed_by_call(reading: ScriptReading, call: Node) -> Node | None:
    function = call.get("function")
    if function is None or function.kind not in ("member_expression", "subscript_expression"):
        return None
    if function.end - function.start < 30 and function.text in _ASSIGNERS:
        return arguments(call)[0] if arguments(call) else None
    target, method = function.get("object"), function.get("property")
    index = function.get("index")
    name = method.text if method is not None else reading.literals.text(index) if index is not None else None
    return target if target is not None and name is not None and _method_changes(reading, target, name) else None


def _method_changes(reading: ScriptReading, target: Node, method: str) -> bool:
    if method not in _ARRAY and method not in _COLLECTION:
        return False
    held = _held(reading, target)
    if held.kind == "array" or _is_list(held):
        return method in _ARRAY
    if held.kind == "new_expression":
        constructor = held.get("constructor")
        name = constructor.text if constructor is not None else ""
        return (name in _COLLECTIONS and method in _COLLECTION) or (name == "Array" and method in _ARRAY)
    return held.kind == "subscript_expression" and method in ("push", "unshift", "splice")


def _held(reading: ScriptReading, node: Node) -> Node:
    """The value of an expression: of a variable, its declared value."""
    held = reading.literals.resolve(node)
    for _ in range(_HOPS_MAX):
        binding = reading.scopes.binding(held) if held.kind == "identifier" else None
        value = _value(reading, binding) if binding is not None else None
        if value is None:
            break
        held = reading.literals.resolve(value)
    return held


def _value(reading: ScriptReading, binding: Binding) -> Node | None:
    """The declared value of a variable; in `const { list } = all`, the member."""
    pattern = binding.node.parent
    declarator = pattern.parent if pattern is not None else None
    if binding.value is not None or binding.node.kind != "shorthand_property_identifier_pattern":
        return binding.value
    value = declarator.get("value") if declarator is not None and declarator.kind == "variable_declarator" else None
    holder = reading.literals.resolve(value) if value is not None else None
    return reading.literals.member(holder, binding.name) if holder is not None and holder.kind == "object" else None


def _is_list(node: Node) -> bool:
    """Whether a call makes an array."""
    function = node.get("function") if node.kind == "call_expression" else None
    if function is None:
        return False
    if function.end - function.start < 30 and function.text in _LISTS:
        return True
    target, method = function.get("object"), function.get("property")
    return method is not None and method.text in _OF_LISTS and target is not None and target.kind == "array"


def _module_variable(reading: ScriptReading, target: Node) -> str | None:
    """The module-level variable that `target` is, or is a part of, perhaps through an alias."""
    depth = 0
    for _ in range(_HOPS_MAX):
        while target.kind in ("member_expression", "subscript_expression", "parenthesized_expression"):
            inner = target.get("object") or (target.children[0] if target.children else None)
            if inner is None:
                return None
            target, depth = inner, depth + 1
        if target.kind not in _NAMES:
            return None
        binding = reading.scopes.binding(target)
        if binding is None:
            return "globalThis" if depth and target.text == "globalThis" else None
        if binding.module_level:
            return binding.name
        origin = _origin(binding)
        if origin is None:
            return None
        target, depth = origin, depth + 1
    return None


def _origin(binding: Binding) -> Node | None:
    """The expression that a local constant is an alias of."""
    if binding.how != "const":
        return None
    if binding.value is not None:
        return binding.value if binding.value.kind in _PATHS else None
    pattern = binding.node.parent
    declarator = pattern.parent if pattern is not None and pattern.kind == "object_pattern" else None
    value = declarator.get("value") if declarator is not None and declarator.kind == "variable_declarator" else None
    return value if value is not None and value.kind in _PATHS else None
