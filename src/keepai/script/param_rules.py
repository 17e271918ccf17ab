"""Rules for the params of an operation, as far as they are written out.

Literals are compared with the operation's JSON schema in the surface. Values that are only known at run time are not
judged. If a param may have several types, a mistake is reported only if it is clear which type is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..model.operations import Kind, Surface
from .calls import CallSite
from .findings import listed, quote, suggest
from .literals import ObjectMember
from .script_reading import ScriptReading
from .tree import Node

Schema = Mapping[str, Any]

_FUEL = 20_000  # how many values are checked in total: many calls may share one large constant
_DEPTH_MAX = 12

#: The type of a literal in the words of JSON. JSON leaves out a function, like `undefined`.
_TYPES = {
    "a string": "string", "a number": "number", "a boolean": "boolean", "null": "null", "an array": "array",
    "an object": "object", "undefined": "undefined", "a function": "undefined",
}
_WORDS = {
    "string": "a string", "integer": "a whole number", "number": "a number", "boolean": "a boolean", "null": "null",
    "array": "an array", "object": "an object",
}


_NOTHING: Schema = MappingProxyType({})
#: What the host removes from the params of a mutation.
_OF_THE_HOST: Schema = MappingProxyType({"subkey": {"type": "string"}})


@dataclass(frozen=True)
class _Value:
    """A literal of the script and its path in the params."""

    node: Node  # as it is written
    literal: Node  # what it means
    type: str  # in the words of JSON
    path: str  # `to`, `values[2]`, or empty for the params themselves


class ParamRules:
    """Checks the params of the calls of one script."""

    def __init__(self, reading: ScriptReading, surface: Surface | None) -> None:
        self._reading = reading
        self._surface = surface
        self._fuel = _FUEL
        self._call = ""
        self._root: Schema = {}
        self._more = False

    def check(self, call: CallSite) -> None:
        """Report what the operation will refuse in the params of a call."""
        params = self._surface.params.get(call.name) if self._surface is not None else None
        given = call.args[0] if call.args else None
        if params is None or self._surface is None or self._fuel < 0:
            return
        if given is not None and given.kind == "spread_element":
            return
        self._call, self._root, self._more = f"ctx.{call.name}", params.schema, params.more
        is_mutation = self._surface.kind(call.name) is Kind.MUTATION
        value = self._value(given, "") if given is not None else None
        if given is None or (value is not None and value.type in ("undefined", "null")):
            self._missing(call.node, _Fields(), self._resolved(params.schema), "")
        elif value is not None and value.type != "object":
            self._wrong(value, "one object")
        elif value is not None:
            self._object(value, self._resolved(params.schema), 0, _OF_THE_HOST if is_mutation else _NOTHING)

    def _value(self, node: Node, path: str) -> _Value | None:
        literals = self._reading.literals
        literal = literals.resolve(node)
        kind = _TYPES.get(literals.type_of(literal) or "")
        if literal.kind == "unary_expression" and literal.tokens in (["-"], ["+"]):
            inner = literal.get("argument")
            kind = "number" if inner is not None and inner.kind == "number" else None
        elif literal.kind == "binary_expression" and literal.tokens == ["+"]:
            kinds = {literals.resolve(child).kind for child in literal.children}
            kind = "string" if kinds & {"string", "template_string"} else None
        if literal.kind == "number" and literal.text.endswith("n"):
            kind = None  # a BigInt; the sandbox reports it
        return None if kind is None else _Value(node, literal, kind, path)

    def _resolved(self, schema: Schema) -> Schema:
        for _ in range(_DEPTH_MAX):
            if "$ref" not in schema:
                break
            schema = self._root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
        return schema

    def _fits(self, node: Node, path: str, schema: Schema, depth: int) -> None:
        """Report a value that does not have its type."""
        self._fuel -= 1
        value = self._value(node, path)
        schema = self._resolved(schema)
        if value is None or value.type == "undefined" or depth > _DEPTH_MAX or self._fuel < 0:
            return
        branches = [self._resolved(branch) for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
        if branches:
            fitting = [branch for branch in branches if self._may_be(value, branch)]
            if not fitting:
                self._wrong(value, self._named(schema))
            elif len(fitting) == 1:
                self._fits(node, path, fitting[0], depth + 1)
        elif not self._may_be(value, schema):
            self._wrong(value, self._named(schema))
        elif value.type == "object":
            self._object(value, schema, depth)
        elif value.type == "array":
            self._array(value, schema, depth)

    def _may_be(self, value: _Value, schema: Schema) -> bool:
        """Whether a literal can have a type, apart from its members."""
        if "anyOf" in schema or "oneOf" in schema or "allOf" in schema:
            return True
        kind = schema.get("type")
        if isinstance(kind, str) and kind != value.type and not self._is_whole(value, kind):
            return "format" in schema and value.type in ("string", "number")
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
        text = self._reading.literals.text(value.node) if value.type == "string" else None
        return allowed is None or text is None or text in allowed

    def _is_whole(self, value: _Value, kind: str) -> bool:
        """Whether a number may be an integer. Only a plain fraction certainly is not."""
        if kind != "integer" or value.type != "number":
            return False
        return not re.fullmatch(r"[0-9]*\.[0-9]*[1-9]", value.literal.text.lstrip("+- "))

    def _object(self, value: _Value, schema: Schema, depth: int, extra: Schema = _NOTHING) -> None:
        fields = _Fields()
        for entry in self._reading.literals.entries(value.literal):
            self._fuel -= 1
            fields.add(entry)
        if self._fuel < 0 or not schema:
            return
        known, more = {**extra, **schema.get("properties", {})}, schema.get("additionalProperties")
        for key, entry in fields.members.items():
            path = f"{value.path}.{key}" if value.path else key
            if key in known:
                if fields.is_last(key):
                    self._fits(entry.value, path, known[key], depth + 1)
            elif isinstance(more, Mapping) and fields.is_last(key):
                self._fits(entry.value, path, more, depth + 1)
            elif self._is_refused(schema, entry):
                owner = f"`{value.path}` of `{self._call}`" if value.path else f"`{self._call}`"
                message = f"{owner} has no param {quote(key)}, so the run will fail."
                fix = suggest(key, known, f"Its params are {listed(known)}.")
                self._reading.add("param-unknown", entry.at, message, fix)
        self._missing(value.node, fields, schema, value.path)

    def _is_refused(self, schema: Schema, entry: ObjectMember) -> bool:
        """Whether a member that the schema does not name is refused."""
        value = self._value(entry.value, "")
        dropped = value is not None and value.type == "undefined"
        return not dropped and not self._more and "properties" in schema and not schema.get("additionalProperties")

    def _missing(self, at: Node, fields: _Fields, schema: Schema, path: str) -> None:
        for key in schema.get("required", ()) if fields.complete else ():
            entry = fields.members.get(key)
            value = self._value(entry.value, "") if entry is not None else None
            if entry is None or (value is not None and value.type == "undefined"):
                shown = f"{path}.{key}" if path else key
                self._reading.add("param-missing", at, f"`{self._call}` needs `{shown}`, so the run will fail.",
                                  f"Add `{key}`: it must be {self._named(schema.get('properties', {}).get(key, {}))}.")

    def _array(self, value: _Value, schema: Schema, depth: int) -> None:
        first, rest = schema.get("prefixItems", ()), schema.get("items")
        for position, element in enumerate(self._reading.literals.elements(value.literal)):
            if element.kind == "spread_element" or self._fuel < 0:
                break  # the positions after it are not known
            wanted = first[position] if position < len(first) else rest
            if isinstance(wanted, Mapping):
                self._fits(element, f"{value.path}[{position}]", wanted, depth + 1)

    def _wrong(self, value: _Value, wanted: str) -> None:
        text = self._reading.literals.text(value.node) if value.type == "string" else None
        shown = quote(text) if text is not None else _WORDS.get(value.type, value.type)
        subject = f"`{value.path}` of `{self._call}`" if value.path else f"What `{self._call}` takes"
        self._reading.add("param-wrong", value.node, f"{subject} must be {wanted}, not {shown}, so the run will fail.",
                          f"Write {wanted}.")

    def _named(self, schema: Schema) -> str:
        schema = self._resolved(schema)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in values[:10])
            return (f"one of {shown}" if len(values) > 1 else shown) + (", …" if len(values) > 10 else "")
        branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if branches:
            return " or ".join(dict.fromkeys(self._named(branch) for branch in branches[:10]))
        return _WORDS.get(str(schema.get("type")), "a JSON value")


class _Fields:
    """The members of an object literal in order. An unreadable member may override what is before it."""

    def __init__(self) -> None:
        self.members: dict[str, ObjectMember] = {}
        self.complete = True
        self._last: set[str] = set()

    def add(self, entry: ObjectMember) -> None:
        if entry.key is None:
            self.complete = False
            self._last.clear()
        else:
            self.members[entry.key] = entry
            self._last.add(entry.key)

    def is_last(self, key: str) -> bool:
        """Whether nothing can override the value that was read."""
        return key in self._last
