"""Scripts share nothing: no imports, and no module-level variable that a handler changes.

Every step runs in a fresh context, so that a change to such a variable is lost without a sound.
"""

from __future__ import annotations

from collections.abc import Iterable

from .reading import Reading
from .tree import FUNCTIONS, Node, arguments, walk

_ARRAY = frozenset({"push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "copyWithin"})
_COLLECTION = frozenset({"set", "add", "delete", "clear"})
_COLLECTIONS = frozenset({"Map", "Set", "WeakMap", "WeakSet"})
_WRITES = frozenset({"assignment_expression", "augmented_assignment_expression"})
_REACHED = FUNCTIONS | {"class_declaration", "class", "object"}


def check_imports(reading: Reading) -> None:
    """Report `import`, `import()` and `require()`."""
    for node in walk(reading.root):
        function = node.get("function") if node.kind == "call_expression" else None
        called = function is not None and (
            function.kind == "import"
            or (function.text == "require" and reading.scopes.binding(function) is None))
        if node.kind == "import_statement" or called:
            reading.add("import", node, "A script cannot import anything; it sees only `ctx`.",
                        "Remove it, and call a connector through `ctx` or write the code here.")


def check_shared_state(reading: Reading, handlers: Iterable[Node]) -> None:
    """Report changes to module-level variables in the handlers and in what they call."""
    for piece in _reachable(reading, handlers):
        for node in walk(piece):
            target = _changed(reading, node)
            name = _module_variable(reading, target) if target is not None else None
            if name is not None:
                reading.add(
                    "shared-state", node,
                    f"`{name}` is changed here, but every step runs in a fresh context: no other sees it.",
                    "Return it as state, or hand it over in `data` or in an event.")


def _reachable(reading: Reading, handlers: Iterable[Node]) -> list[Node]:
    """The handlers, and the module-level functions, classes and objects that they mention."""
    found = list(dict.fromkeys(handlers))
    seen = set(found)
    for piece in found:  # grows while it is walked
        for node in walk(piece):
            binding = reading.scopes.binding(node) if node.kind.endswith("identifier") else None
            if binding is None or not binding.module_level or binding.value is None or binding.value in seen:
                continue
            if binding.value.kind in _REACHED:
                seen.add(binding.value)
                found.append(binding.value)
    return found


def _changed(reading: Reading, node: Node) -> Node | None:
    """The expression that `node` changes, if it changes one."""
    if node.kind in _WRITES:
        return node.get("left")
    if node.kind == "update_expression":
        return node.get("argument")
    if node.kind == "unary_expression" and node.tokens == ["delete"]:
        target = node.get("argument")
        return target if target is not None and target.kind != "identifier" else None
    function = node.get("function") if node.kind == "call_expression" else None
    if function is None or function.kind != "member_expression":
        return None
    if function.text in ("Object.assign", "Object.defineProperty", "Object.defineProperties"):
        return arguments(node)[0] if arguments(node) else None
    target, method = function.get("object"), function.get("property")
    if target is None or method is None:
        return None
    return target if _method_changes(reading, target, method.text) else None


def _method_changes(reading: Reading, target: Node, method: str) -> bool:
    resolved = reading.literals.resolve(target)
    if resolved.kind == "array":
        return method in _ARRAY
    if resolved.kind == "new_expression":
        constructor = resolved.get("constructor")
        name = constructor.text if constructor is not None else ""
        return (name in _COLLECTIONS and method in _COLLECTION) or (name == "Array" and method in _ARRAY)
    return resolved.kind == "subscript_expression" and method in ("push", "unshift", "splice")


def _module_variable(reading: Reading, target: Node) -> str | None:
    """The module-level variable that `target` is, or is a part of."""
    depth = 0
    while target.kind in ("member_expression", "subscript_expression", "parenthesized_expression"):
        inner = target.get("object") or (target.children[0] if target.children else None)
        if inner is None:
            return None
        target, depth = inner, depth + 1
    if target.kind != "identifier":
        return None
    binding = reading.scopes.binding(target)
    if binding is None:
        return "globalThis" if target.text == "globalThis" and depth else None
    return binding.name if binding.module_level else None
