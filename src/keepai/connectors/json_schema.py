"""Types that another program declares as JSON schemas: `taken` copies what Keep understands, `SchemaShape` checks.

A schema of a stranger is bounded here: whatever is unknown, nested too deep or too much becomes "any JSON", which the
other program judges itself. Regular expressions are never taken, because a bad one runs for hours.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import unquote

from ..model.codec import Json, canonical, clean, shown
from .problems import named, unknown_key
from .type_checks import Misfit, Shape, plain

NODES_MAX = 5_000  #: of one schema with all that it refers to
STEPS_MAX = 20_000  #: of one check
_DEPTH_MAX = 40
_PROBLEMS_MAX = 20
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int, float), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "object": (dict,), "array": (list,),
}
_BRANCHES = ("anyOf", "oneOf", "allOf", "prefixItems")
#: Word → whether a value keeps to it, and what is said if not.
_LIMITS: Mapping[str, tuple[type, Callable[[Any, Any], bool], str]] = {
    "minLength": (str, lambda value, limit: len(value) >= limit, "must have at least {} characters"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "must have at most {} characters"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "must have at least {} entries"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "must have at most {} entries"),
    "minimum": (float, operator.ge, "must be at least {}"),
    "maximum": (float, operator.le, "must be at most {}"),
    "exclusiveMinimum": (float, operator.gt, "must be more than {}"),
    "exclusiveMaximum": (float, operator.lt, "must be less than {}"),
}


class SchemaShape(Shape):
    """A type that a JSON schema describes; any JSON if it is empty. `checked`: whether values must fit it."""

    def __init__(self, schema: dict[str, Any] | None, *, checked: bool = True) -> None:
        super().__init__(None, "")
        self.given, self._schema, self._checked = bool(schema), schema or None, checked

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        return self._schema

    @cached_property
    def schema_is_complete(self) -> bool:
        return True

    @cached_property
    def open(self) -> bool:
        return not self._schema or self._schema.get("additionalProperties") is not False

    def build(self, value: Json) -> Json:
        return self._fitting(value, "params")

    def normal(self, value: Json) -> Json:
        return clean(self._fitting(value, "params"))

    def dump(self, value: object) -> Json:
        return self._fitting(clean(plain(value), what="result"), "result")

    def _fitting(self, value: Json, root: str) -> Json:
        if self._schema and self._checked:
            wrong = list(islice(_misfits(value, self._schema, _Steps(self._schema), root, 0), _PROBLEMS_MAX))
            if wrong:
                raise Misfit(list(dict.fromkeys(wrong)))
        return value


# -- checking --------------------------------------------------------------------------------------


@dataclass
class _Steps:
    """The whole schema, and how many more steps a check may take. What is beyond them, the other program judges."""

    schema: Mapping[str, Any]
    silent: int = 0  # while a branch is only tried, nothing is worded
    left: Iterator[int] = field(default_factory=lambda: iter(range(STEPS_MAX)))


def _misfits(value: Json, schema: Mapping[str, Any], root: _Steps, path: str, depth: int) -> Iterator[str]:
    """What is wrong with a value, as sentences. Of branches any may fit, because the other program knows which."""
    if depth > _DEPTH_MAX or next(root.left, None) is None:
        return
    if "$ref" in schema:
        yield from _misfits(value, _defined(schema, root.schema), root, path, depth + 1)
        return
    for branch in schema.get("allOf", ()):
        yield from _misfits(value, branch, root, path, depth + 1)
    for word in ("anyOf", "oneOf"):
        branches = schema.get(word, ())
        if len(branches) == 1:
            yield from _misfits(value, branches[0], root, path, depth + 1)
        elif branches and not any(_fits(value, branch, root, depth + 1) for branch in branches):
            yield _must_be(value, schema, root, path)
    if not _is_of_type(value, schema):
        yield _must_be(value, schema, root, path)
        return
    yield from _out_of_limits(value, schema, path)
    if isinstance(value, dict):
        yield from _members(value, schema, root, path, depth)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for number, item in enumerate(value):
            inner = first[number] if number < len(first) else schema.get("items", {})
            yield from _misfits(item, inner, root, f"{path}[{number}]", depth + 1)


def _fits(value: Json, schema: Mapping[str, Any], root: _Steps, depth: int) -> bool:
    root.silent += 1
    fits = next(_misfits(value, schema, root, "", depth), None) is None
    root.silent -= 1
    return fits


def _must_be(value: Json, schema: Mapping[str, Any], root: _Steps, path: str) -> str:
    return "" if root.silent else f"{path} must be {named(schema, root.schema)}, not {shown(value)}"


def _is_of_type(value: Json, schema: Mapping[str, Any]) -> bool:
    if "enum" in schema and canonical(value) not in [canonical(each) for each in schema["enum"]]:
        return False
    types = schema.get("type", [])
    names = types if isinstance(types, list) else [types]
    return not names or any(_is_a(value, name) for name in names)


def _is_a(value: Json, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _out_of_limits(value: Json, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for word, (kind, holds, told) in _LIMITS.items():
        fits_kind = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
        if word in schema and fits_kind and not holds(value, schema[word]):
            yield f"{path} {told.format(schema[word])}"


def _members(
    value: Mapping[str, Json], schema: Mapping[str, Any], root: _Steps, path: str, depth: int,
) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is missing: it must be {named(known.get(name, {}), root.schema)}"
    for name, member in value.items():
        if name in known:
            yield from _misfits(member, known[name], root, f"{path}.{name}", depth + 1)
        elif more is False:
            yield unknown_key(name, path, schema)
        elif isinstance(more, dict):
            yield from _misfits(member, more, root, f"{path}.{name}", depth + 1)


def _defined(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
    return found


# -- taking ----------------------------------------------------------------------------------------


def taken(schema: Json, document: Json = None, *, closed: bool = False) -> dict[str, Any]:
    """What Keep understands of a foreign schema, complete in itself; empty if that is nothing.

    References are looked up in `document`, or in the schema itself. `closed`: members that it does not name are
    mistakes, unless it says otherwise."""
    taker = _Taker(schema if document is None else document)
    found = taker.take(schema, 0)
    if closed and found.get("properties") and not {"additionalProperties", *_BRANCHES} & found.keys():
        found["additionalProperties"] = False
    return {**found, "$defs": taker.defs} if taker.defs else found


class _Taker:
    def __init__(self, document: Json) -> None:
        self.defs: dict[str, dict[str, Any]] = {}
        self._document, self._names, self._left = document, dict[str, str](), NODES_MAX

    def take(self, node: Json, depth: int) -> dict[str, Any]:
        self._left -= 1
        if not isinstance(node, dict) or depth > _DEPTH_MAX or self._left < 0:
            return {}
        if isinstance(node.get("$ref"), str):
            return {"$ref": f"#/$defs/{self._defined(str(node['$ref']))}"}
        found = {**self._plain(node), **self._nested(node, depth + 1)}
        if node.get("nullable") is True and found:  # as OpenAPI 3.0 says it
            return {"anyOf": [found, {"type": "null"}]}
        return found

    def _plain(self, node: Mapping[str, Json]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        kind = node.get("type")
        names = kind if isinstance(kind, list) else [kind]
        if kind and all(isinstance(name, str) and name in _TYPES for name in names):
            found["type"] = kind
        if "const" in node:
            found["enum"] = [node["const"]]
        if isinstance(node.get("enum"), list) and node["enum"]:
            found["enum"] = node["enum"]
        for word in _LIMITS:
            limit = node.get(word)
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                found[word] = limit
        return found

    def _nested(self, node: Mapping[str, Json], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        properties, required, more = node.get("properties"), node.get("required"), node.get("additionalProperties")
        if isinstance(properties, dict):
            found["properties"] = {name: self.take(member, depth) for name, member in properties.items()}
            found.setdefault("type", node.get("type") or "object")
        if isinstance(required, list) and all(isinstance(name, str) for name in required):
            found["required"] = required
        if isinstance(more, bool):
            found["additionalProperties"] = more
        elif isinstance(more, dict):
            found["additionalProperties"] = self.take(more, depth) or True
        if isinstance(node.get("items"), dict):
            found["items"] = self.take(node["items"], depth)
        for word in _BRANCHES:
            branches = node.get(word)
            if isinstance(branches, list) and branches:
                found[word] = [self.take(branch, depth) for branch in branches]
        return found

    def _defined(self, reference: str) -> str:
        """The name in `$defs` of what is referred to; two of one name get different ones."""
        if reference not in self._names:
            base = "".join(c if c.isalnum() else "_" for c in reference.rpartition("/")[2])[:80] or "root"
            name = base if base not in self.defs else f"{base}_{len(self.defs)}"
            self._names[reference], self.defs[name] = name, {}
            self.defs[name] = self.take(resolved(self._document, reference), 1)
        return self._names[reference]


def resolved(document: Json, reference: str) -> Json:
    """What `#/a/b` of a document means; None if there is nothing, or it is in another document."""
    head, _, path = reference.partition("#")
    here = document if not head else None
    for part in path.split("/")[1:]:
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        here = here.get(step) if isinstance(here, dict) else None
    return here
