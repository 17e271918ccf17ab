"""A small, plain tree made from tree-sitter's tree; the rest of the analysis uses only this.

All walks are iterative, so that no input can exhaust Python's stack. Comments and punctuation are left out. Tree-sitter
is imported when the first script is parsed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tree_sitter

DEPTH_MAX = 500
PARSE_SECONDS_MAX = 3.0

_PIECE_BYTES = 4096

FUNCTIONS = frozenset({
    "function_declaration", "function_expression", "arrow_function", "method_definition",
    "generator_function", "generator_function_declaration",
})

_PUNCTUATION = frozenset("(){}[],;.:\"'`") | {"=>", "${", "...", "?.", "function", "return"}


class Node:
    """One named node: its kind, its position, its children."""

    __slots__ = ("_source", "children", "end", "field", "kind", "parent", "start", "tokens")

    def __init__(self, kind: str, field: str | None, start: int, end: int,
                 parent: Node | None, source: bytes) -> None:
        self.kind = kind
        self.field = field  # its role in the parent
        self.start = start  # in bytes
        self.end = end
        self.parent = parent
        self.children: list[Node] = []
        self.tokens: list[str] = []  # words and operators: "async", "const", "&&"
        self._source = source

    @property
    def text(self) -> str:
        """The source text of this node."""
        return self._source[self.start:self.end].decode("utf-8", "replace")

    @property
    def place(self) -> tuple[int, int]:
        """Line and column, counted from one; columns count characters."""
        return place(self._source, self.start)

    def get(self, field: str) -> Node | None:
        """The first child in that role."""
        return next((c for c in self.children if c.field == field), None)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.place[0]}:{self.place[1]}>"


def place(source: bytes, offset: int) -> tuple[int, int]:
    """The line and column of an offset, counted from one; columns count characters."""
    line_start = source.rfind(b"\n", 0, offset) + 1
    column = len(source[line_start:offset].decode("utf-8", "replace"))
    return source.count(b"\n", 0, offset) + 1, column + 1


@cache
def _parser() -> tree_sitter.Parser:
    import tree_sitter
    import tree_sitter_javascript

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))


def parse(source: bytes) -> tuple[tree_sitter.Tree, int | None]:
    """Tree-sitter's own tree, including errors, and where parsing stopped if it took too long.

    The parser's recovery from errors can take quadratic time, and it has no working deadline. So the text is passed in
    pieces and simply ends when the time is up.
    """
    deadline = time.monotonic() + PARSE_SECONDS_MAX
    given_up: int | None = None

    def read(offset: int, point: object) -> bytes:
        nonlocal given_up
        if given_up is None and time.monotonic() > deadline:
            given_up = offset
        return source[offset:offset + _PIECE_BYTES] if given_up is None else b""

    return _parser().parse(read), given_up


def raw_nodes(tree: tree_sitter.Tree) -> Iterator[tuple[tree_sitter.TreeCursor, int]]:
    """A cursor at every node in source order, with its depth. The caller must not move the cursor."""
    cursor, depth = tree.walk(), 0
    while True:
        yield cursor, depth
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def build(tree: tree_sitter.Tree, source: bytes) -> Node | None:
    """The plain tree; None if it is nested deeper than `DEPTH_MAX`."""
    path: list[Node] = []
    for cursor, depth in raw_nodes(tree):
        raw = cursor.node
        assert raw is not None
        if depth > DEPTH_MAX:
            return None
        del path[depth:]
        parent = path[-1] if path else None
        if raw.is_named:
            node = Node(raw.type, cursor.field_name, raw.start_byte, raw.end_byte, parent, source)
            if parent is not None and node.kind != "comment":
                parent.children.append(node)
            path.append(node)
        elif parent is not None:
            if raw.type not in _PUNCTUATION:
                parent.tokens.append(raw.type)
            path.append(parent)  # a token has no children; this only keeps the depth
    return path[0]


def walk(node: Node, *, into_functions: bool = True) -> Iterator[Node]:
    """`node` and everything in it, in source order; optionally without nested functions."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if into_functions or current is node or current.kind not in FUNCTIONS:
            stack.extend(reversed(current.children))


def from_below(node: Node) -> list[Node]:
    """`node` and everything in it, children before parents. Nested functions are leaves."""
    parents_first, stack = [], [node]
    while stack:
        current = stack.pop()
        parents_first.append(current)
        if current is node or current.kind not in FUNCTIONS:
            stack.extend(current.children)
    return parents_first[::-1]


def enclosing_function(node: Node) -> Node | None:
    """The innermost function around `node`."""
    current = node.parent
    while current is not None and current.kind not in FUNCTIONS:
        current = current.parent
    return current


def enclosing_one_of(node: Node, functions: Collection[Node]) -> Node | None:
    """The innermost of these functions around `node`."""
    function = enclosing_function(node)
    while function is not None and function not in functions:
        function = enclosing_function(function)
    return function


def callee_taking(function: Node | None) -> Node | None:
    """The callee that gets the function as an argument: `list.map` in `list.map(function)`."""
    given = function.parent if function is not None else None
    call = given.parent if given is not None and given.kind == "arguments" else None
    return call.get("function") if call is not None else None


def method_name(callee: Node | None) -> str | None:
    """`map` of `list.map`; None if the callee is not a method."""
    key = callee.get("property") if callee is not None and callee.kind == "member_expression" else None
    return key.text if key is not None else None


def parameters(function: Node) -> list[Node]:
    """The patterns of a function's parameters."""
    single = function.get("parameter")
    if single is not None:
        return [single]
    formal = function.get("parameters")
    return list(formal.children) if formal is not None else []


def arguments(call: Node) -> list[Node]:
    """The arguments of a call."""
    given = call.get("arguments")
    return list(given.children) if given is not None and given.kind == "arguments" else []
