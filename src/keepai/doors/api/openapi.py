"""The OpenAPI document of the API, made from the table of acts and the table of views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ...model.acts import REQUESTS, Param
from ...reading.record_shapes import ANY, NUMBER, TEXT, TIME, YES, Shape, of
from .views import ROWS_MAX, ROWS_USUAL, VIEWS, ApiView

PREFIX = "/api/v1"
Schema = dict[str, Any]
_JSON = "application/json"
_WORDS: Mapping[str, Schema] = {
    TEXT: {"type": "string"}, NUMBER: {"type": "number"}, YES: {"type": "boolean"},
    TIME: {"type": "string", "format": "date-time"}, ANY: {},
}
_TYPES: Mapping[type, Schema] = {
    str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}, dict: {"type": "object"},
    type(None): {"type": "null"}, object: {},
}
#: Status → what it means; every operation may answer with these.
ERRORS: Mapping[int, str] = {
    400: "What was asked is not understood, or its parameters do not fit.",
    401: "The token of a person or an agent is missing, or nobody here has it.",
    404: "It is not there, or not there for this token.",
    409: "It is refused as things stand now. Nothing was done.",
    413: "The request is too large.",
    422: "The script has errors; they are in `findings`.",
    503: "The host cannot do it now: its ledger cannot be read or written.",
}


def document() -> Schema:
    """Everything that can be asked."""
    paths = {f"{PREFIX}{view.path}": {"get": _look(name, view)} for name, view in VIEWS.items()}
    paths |= {f"{PREFIX}/acts/{name}": {"post": _act(name)} for name in REQUESTS}
    paths[f"{PREFIX}/changes"] = {"get": _changes()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keep", "version": version("keepai"),
                 "description": "What `keep` and its page do, for programs."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {view.gives.__name__: schema_of(of(view.gives)) for view in VIEWS.values() if view.gives}
            | {"Refusal": _REFUSAL},
        },
    }


_REFUSAL: Schema = {
    "type": "object", "required": ["error"], "properties": {"error": {
        "type": "object", "required": ["code", "message"], "properties": {
            "code": {"type": "string"}, "message": {"type": "string"},
            "findings": {"type": "array", "items": {"type": "object"}}}}},
}


def schema_of(shape: Shape) -> Schema:
    """The JSON Schema of a shape."""
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of(shape[0])}
    if isinstance(shape, str):
        known = _WORDS[shape.removesuffix("?")]
        return {**known, "type": [known["type"], "null"]} if shape.endswith("?") else dict(known)
    if set(shape) == {"?"}:
        return {"anyOf": [schema_of(shape["?"]), {"type": "null"}]}
    named = {name: schema_of(each) for name, each in shape.items() if name != "*"}
    return {"type": "object", "properties": named, "required": sorted(named),
            **({} if "*" in shape else {"additionalProperties": False})}


def _look(name: str, view: ApiView) -> Schema:
    inside = [_parameter(each, Param((str,), required=True), view, "path")
              for each in re.findall(r"{(\w+)}", view.path)]
    after = [_parameter(each, param, view, "query") for each, param in view.params.items()]
    one: Schema = {"$ref": f"#/components/schemas/{view.gives.__name__}"} if view.gives else {}
    gives = {"type": "array", "items": one} if view.lists else one
    paging: list[Schema] = [] if not view.pages else [
        {"name": "limit", "in": "query",
         "schema": {"type": "integer", "minimum": 1, "maximum": ROWS_MAX, "default": ROWS_USUAL}},
        {"name": "after", "in": "query", "schema": {"type": "string"}, "description": "The cursor of the page before."}]
    return {
        "operationId": name, "summary": view.help, "parameters": [*inside, *after, *paging],
        "responses": _responses(_answer(gives, cursor=view.pages)),
    }


def _act(name: str) -> Schema:
    act = REQUESTS[name]
    named = {each: _of_types(param) for each, param in act.params.items()}
    body = {"type": "object", "properties": named, "additionalProperties": False,
            "required": [each for each, param in act.params.items() if param.required]}
    more = ("" if "shown" not in act.params else
            "\n\nWith `shown`, the version that was looked at, it is refused if something about it has changed since; "
            "sent once more with the same version, it does nothing and answers the same.")
    return {
        "operationId": f"act_{name}", "summary": act.help, "description": f"For: {', '.join(sorted(act.roles))}.{more}",
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}}, "responses": _responses(_answer({})),
    }


def _changes() -> Schema:
    return {
        "operationId": "changes", "summary": "Server-sent events: one whenever something was committed.",
        "responses": {
            "200": {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **_refusals()},
    }


def _parameter(name: str, param: Param, view: ApiView, place: str) -> Schema:
    schema = _of_types(param)
    if name in view.choices:
        schema = {**schema, "enum": list(view.choices[name])}
    return {"name": name, "in": place, "required": param.required, "schema": schema}


def _of_types(param: Param) -> Schema:
    kinds = [_TYPES[each] for each in param.types]
    return dict(kinds[0]) if len(kinds) == 1 else {"anyOf": [dict(each) for each in kinds]}


def _answer(result: Schema, *, cursor: bool = False) -> Schema:
    named: Schema = {"result": result, **({"cursor": {"type": ["string", "null"]}} if cursor else {})}
    return {"type": "object", "properties": named, "required": sorted(named), "additionalProperties": False}


def _responses(gives: Schema) -> Schema:
    return {"200": {"description": "Done.", "content": {_JSON: {"schema": gives}}}, **_refusals()}


def _refusals() -> Schema:
    refusal = {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/Refusal"}}}}
    return {str(status): {"description": told, **refusal} for status, told in ERRORS.items()}
