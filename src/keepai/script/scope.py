"""Which variable a name means: every variable of the module, and every place that refers to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .tree import FUNCTIONS, Node, parameters

_SCOPES = FUNCTIONS | {
    "program", "statement_block", "for_statement", "for_in_statement", "catch_clause", "switch_body",
    "class_body",
}
_REFERENCES = frozenset({
    "identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern",
})


@dataclass(eq=False)
class Binding:
    """One variable: how it was declared, and its value if that can be seen."""

    name: str
    how: str  # "const", "let", "var", "function", "class", "parameter", "import"
    node: Node
    value: Node | None
    module_level: bool
    references: list[Node] = field(default_factory=list)


class _Scope:
    def __init__(self, outer: _Scope | None, function: bool) -> None:
        self.outer = outer
        self.function = function
        self.names: dict[str, Binding] = {}

    def find(self, name: str) -> Binding | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def of_function(self) -> _Scope:
        scope = self
        while not scope.function and scope.outer is not None:
            scope = scope.outer
        return scope


class Scopes:
    """The variables of one module."""

    def __init__(self, root: Node) -> None:
        self._meant: dict[Node, Binding] = {}
        uses = self._declare_all(root)
        for node, scope in uses:
            binding = scope.find(node.text)
            if binding is not None:
                self._meant[node] = binding
                if node is not binding.node:
                    binding.references.append(node)

    def binding(self, node: Node) -> Binding | None:
        """The variable that an identifier means; None for globals."""
        return self._meant.get(node)

    def _declare_all(self, root: Node) -> list[tuple[Node, _Scope]]:
        uses: list[tuple[Node, _Scope]] = []
        stack: list[tuple[Node, _Scope]] = [(root, _Scope(None, True))]
        while stack:
            node, scope = stack.pop()
            _declare_outside(node, scope)
            if node.kind in _SCOPES and node is not root:
                scope = _Scope(scope, node.kind in FUNCTIONS)
            _declare_inside(node, scope)
            if node.kind in _REFERENCES:
                uses.append((node, scope))
            stack.extend((child, scope) for child in reversed(node.children))
        return uses


def bound_names(pattern: Node) -> list[Node]:
    """The identifiers that a pattern binds."""
    names, stack = [], [pattern]
    while stack:
        node = stack.pop()
        if node.kind in ("identifier", "shorthand_property_identifier_pattern"):
            names.append(node)
        elif node.kind == "pair_pattern":
            stack.extend(c for c in node.children if c.field == "value")
        elif node.kind in ("assignment_pattern", "object_assignment_pattern"):
            stack.extend(c for c in node.children if c.field == "left")
        elif node.kind in ("object_pattern", "array_pattern", "rest_pattern"):
            stack.extend(node.children)
    return names


def _bind(scope: _Scope, how: str, pattern: Node, value: Node | None) -> None:
    whole = pattern.kind == "identifier"
    for node in bound_names(pattern):
        binding = Binding(node.text, how, node, value if whole else None, scope.outer is None)
        scope.names[binding.name] = binding


def _declare_outside(node: Node, scope: _Scope) -> None:
    """Add the variables of a declaration to the scope around it."""
    name = node.get("name")
    if node.kind in ("function_declaration", "generator_function_declaration") and name is not None:
        _bind(scope, "function", name, node)
    elif node.kind == "class_declaration" and name is not None:
        _bind(scope, "class", name, node)
    elif node.kind == "variable_declarator" and name is not None and node.parent is not None:
        if node.parent.kind == "variable_declaration":
            _bind(scope.of_function(), "var", name, node.get("value"))
        else:
            how = "let" if "let" in node.parent.tokens else "const"
            _bind(scope, how, name, node.get("value"))
    elif node.kind == "import_statement":
        for child in node.children:
            if child.kind == "import_clause":
                _bind_import(scope, child)


def _bind_import(scope: _Scope, clause: Node) -> None:
    stack = list(clause.children)
    while stack:
        node = stack.pop()
        if node.kind == "identifier":
            _bind(scope, "import", node, None)
        else:
            stack.extend(node.children)


def _declare_inside(node: Node, scope: _Scope) -> None:
    """Add the variables of a function, loop or catch clause to its own scope."""
    if node.kind in FUNCTIONS:
        name = node.get("name")
        if node.kind in ("function_expression", "generator_function") and name is not None:
            _bind(scope, "function", name, node)
        for pattern in parameters(node):
            _bind(scope, "parameter", pattern, None)
    elif node.kind == "for_in_statement" and node.tokens and node.get("left") is not None:
        left = node.get("left")
        if left is not None and {"const", "let", "var"} & set(node.tokens):
            _bind(scope, "let", left, None)
    elif node.kind == "catch_clause":
        parameter = node.get("parameter")
        if parameter is not None:
            _bind(scope, "parameter", parameter, None)
