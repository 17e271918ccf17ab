"""A case for a script that has none, made from the types of its connectors: better than nothing, and it says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...connectors.base import Connector, OperationSpec, surface
from ...model.codec import Json
from ...model.operations import Kind
from ...script.check import check
from ..fixtures import Case, CaseAnswer

NAME = "a case made from the types of the connectors"
ENTRIES = 2  #: of each list


def made_case(source: str, connectors: Sequence[Connector]) -> Case:
    """Every read of the script answers something that its type allows: of lists, two entries with ids of their own."""
    manifest = check(source, surface(connectors)).manifest
    used = set(manifest.capabilities if manifest else ())
    specs = [spec for each in connectors for spec in each.operations.values() if spec.full_name in used]
    answers = [_answer(spec) for spec in specs if spec.kind is not Kind.MUTATION]
    return Case(name=NAME, answer=answers)


def _answer(spec: OperationSpec) -> CaseAnswer:
    schema = spec.result_schema or {}
    defs = schema.get("$defs", {})
    if not spec.returns_page and schema.get("type") != "array":
        return CaseAnswer(call=spec.full_name, answer=_value(schema, defs, "", 1))
    items = schema.get("items", {})
    entries = [_value(items, defs, "", number) or {"id": str(number)} for number in range(1, ENTRIES + 1)]
    answer = CaseAnswer(call=spec.full_name, answer=entries)
    if spec.returns_page:
        answer["page"] = {"lastCursor": str(ENTRIES), "total": ENTRIES, "more": False}
    return answer


def _value(schema: Mapping[str, Any], defs: Mapping[str, Any], name: str, number: int) -> Json:
    if "$ref" in schema:
        return _value(defs.get(str(schema["$ref"]).rpartition("/")[2], {}), defs, name, number)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _value(schema[word][0], defs, name, number)
    if "enum" in schema or "const" in schema:
        chosen: Json = schema["const"] if "const" in schema else schema["enum"][0]
        return chosen
    kind = schema.get("type")
    if kind == "object":
        return {each: _value(inner, defs, each, number) for each, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [_value(schema.get("items", {}), defs, name, number)]
    if kind == "string":
        return _text(name.lower(), number)
    made: Mapping[object, Json] = {"integer": number, "number": number, "boolean": False}
    return made.get(kind)


def _text(name: str, number: int) -> str:
    if any(word in name for word in ("from", "email", "mail", "address", "sender")) or name in ("to", "cc"):
        return f"person{number}@example.com"
    if "date" in name or name.endswith("at") or name in ("modified", "start", "end"):
        return f"2026-01-0{number}T09:00:00Z"
    if "url" in name or "link" in name:
        return f"https://example.com/{number}"
    return str(number) if name.endswith(("id", "cursor")) else f"{name or 'text'} {number}"
