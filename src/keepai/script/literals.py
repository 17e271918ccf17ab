"""The value of an expression without running it: strings, objects and functions, also through constants.

What would need execution is None, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .scope import Scopes
from .tree import Node, arguments

_HOPS_MAX = 20  # how many constants, members and spreads are followed
_TEXT_MAX = 10_000
_FUEL = 300_000  # how much is read in total, so that spreads of spreads stay cheap

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_CODE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{0*([0-9a-fA-F]{1,6})\})\Z")

#: Kind of node → the words for its type.
TYPES = {
    "string": "a string", "template_string": "a string", "number": "a number", "true": "a boolean",
    "false": "a boolean", "null": "null", "undefined": "undefined", "array": "an array",
    "object": "an object", "regex": "a regular expression",
    "class": "a class", "class_declaration": "a class",
    "arrow_function": "a function", "function_expression": "a function", "function_declaration": "a function",
    "method_definition": "a function", "generator_function": "a generator",
    "generator_function_declaration": "a generator",
}


@dataclass(frozen=True)
class ObjectMember:
    """One member of an object literal. Without a `key` it cannot be read."""

    key: str | None
    at: Node  # the key
    value: Node
    spread: bool = False  # it comes from `...`


class Literals:
    """Reads literals of one module."""

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self._fuel = _FUEL
        self._members: dict[Node, dict[str, Node]] = {}

    def resolve(self, node: Node, hops: int = _HOPS_MAX) -> Node:
        """What `node` means: follows constants, parentheses and `Object.freeze`."""
        while hops > 0:
            hops -= 1
            target = self._one_step(node, hops)
            if target is None:
                return node
            node = target
        return node

    def type_of(self, node: Node) -> str | None:
        """The type of a resolved node in words; None if it is not a literal."""
        if node.kind == "method_definition" and {"get", "set", "*"} & set(node.tokens):
            return None
        return TYPES.get(node.kind)

    def text(self, node: Node, hops: int = _HOPS_MAX) -> str | None:
        """The string value of `node`; None if it has none."""
        self._fuel -= 1
        if self._fuel < 0:
            return None
        node = self.resolve(node, hops)
        if node.kind in ("string", "template_string"):
            return self._joined(node, hops)
        if node.kind == "binary_expression" and node.tokens == ["+"] and hops > 0:
            parts = [self.text(child, hops - 4) for child in node.children]
            return None if None in parts else "".join(p for p in parts if p is not None)[:_TEXT_MAX]
        return None

    def texts(self, node: Node) -> list[tuple[str | None, Node]]:
        """The elements of a resolved array as strings; None for unreadable ones."""
        texts: list[tuple[str | None, Node]] = []
        for child in self.elements(node):
            texts.append((None, child) if child.kind == "spread_element" else (self.text(child), child))
        return texts

    def elements(self, node: Node, hops: int = _HOPS_MAX) -> list[Node]:
        """The elements of a resolved array. An unreadable spread stays as it is."""
        elements: list[Node] = []
        for child in node.children:
            inner = self._inside(child, "array", hops) if child.kind == "spread_element" else None
            elements.extend([child] if inner is None else self.elements(inner, hops - 5))
        return elements

    def entries(self, node: Node, hops: int = _HOPS_MAX) -> list[ObjectMember]:
        """The members of a resolved object, spreads of constant objects included."""
        members: list[ObjectMember] = []
        for child in node.children:
            if child.kind == "spread_element" and child.children:
                members.extend(self._spread(child, hops))
            else:
                members.append(self._entry(child))
        return members

    def member(self, node: Node, key: str) -> Node | None:
        """The value of a member of a resolved object; None if it is absent or cannot be read."""
        if node not in self._members:
            members: dict[str, Node] = {}
            for entry in self.entries(node):
                if entry.key is None:
                    members.clear()  # it may override anything before it
                else:
                    members[entry.key] = entry.value
            self._members[node] = members
        return self._members[node].get(key)

    def _one_step(self, node: Node, hops: int) -> Node | None:
        if node.kind == "parenthesized_expression" and len(node.children) == 1:
            return node.children[0]
        if node.kind in ("identifier", "shorthand_property_identifier"):
            binding = self.scopes.binding(node)
            constant = binding is not None and binding.how in ("const", "function", "class")
            return binding.value if binding is not None and constant else None
        if node.kind == "call_expression":
            function, given = node.get("function"), arguments(node)
            is_freeze = function is not None and len(given) == 1 and function.text == "Object.freeze"
            return given[0] if is_freeze else None
        if node.kind == "member_expression":
            return self._member_step(node, hops)
        return None

    def _member_step(self, node: Node, hops: int) -> Node | None:
        target, key = node.get("object"), node.get("property")
        if target is None or key is None:
            return None
        holder = self.resolve(target, hops // 2)
        return self.member(holder, key.text) if holder.kind == "object" else None

    def _joined(self, node: Node, hops: int) -> str | None:
        parts: list[str] = []
        for child in node.children:
            if child.kind == "template_substitution":
                inner = self.text(child.children[0], hops - 5) if child.children and hops > 0 else None
                if inner is None:
                    return None
                parts.append(inner)
            else:
                parts.append(_unescaped(child.text) if child.kind == "escape_sequence" else child.text)
        whole = "".join(parts)[:_TEXT_MAX]
        return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _spread(self, node: Node, hops: int) -> list[ObjectMember]:
        inner = self._inside(node, "object", hops)
        if inner is None:
            return [ObjectMember(None, node, node, True)]
        return [ObjectMember(e.key, e.at, e.value, True) for e in self.entries(inner, hops - 5)]

    def _inside(self, spread: Node, kind: str, hops: int) -> Node | None:
        """The literal that is spread, if it has that kind and there is fuel to read it."""
        inner = self.resolve(spread.children[0]) if spread.children else None
        if inner is None or inner.kind != kind or hops <= 0 or self._fuel < 0:
            return None
        self._fuel -= len(inner.children) + 1
        return inner

    def _entry(self, node: Node) -> ObjectMember:
        if node.kind == "shorthand_property_identifier":
            return ObjectMember(node.text, node, node)
        key = node.get("name" if node.kind == "method_definition" else "key")
        value = node if node.kind == "method_definition" else node.get("value")
        if key is None or value is None:
            return ObjectMember(None, node, node)
        if key.kind == "computed_property_name":
            name = self.text(key.children[0]) if key.children else None
        else:
            name = self.text(key) if key.kind == "string" else key.text
        return ObjectMember(name, key, value)


def _unescaped(escape: str) -> str:
    code = _CODE.match(escape)
    if code is not None:
        number = int(next(digits for digits in code.groups() if digits), 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    rest = escape[1:]
    return "" if rest in ("\n", "\r\n", "\r", "\u2028", "\u2029") else _ESCAPES.get(rest, rest)
