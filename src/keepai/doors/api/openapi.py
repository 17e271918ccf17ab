"""The OpenAPI document of the API, made from the table of acts and the table of views."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ...app import Keep
from ...model.acts import REQUESTS, Act, Param
from ...model.principals import Role
from ...model.records import Rows
from ...reading.record_shapes import ANY, NUMBER, SPACE, TEXT, TIME, YES, Shape, of, of_type
from .api_views import ROWS_MAX, ROWS_USUAL, VIEWS, ApiView

PREFIX = "/api/v1"
Schema = dict[str, Any]
_JSON = "application/json"
_WORDS: Mapping[str, Schema] = {
    TEXT: {"type": "string"}, NUMBER: {"type": "number"}, YES: {"type": "boolean"},
    TIME: {"type": "string", "format": "date-time"}, ANY: {},
}
_NUMBER_MAX = (1 << 63) - 1  # what a ledger can keep
_TYPES: Mapping[type, Schema] = {
    str: {"type": "string"}, int: {"type": "integer", "minimum": -_NUMBER_MAX, "maximum": _NUMBER_MAX},
    bool: {"type": "boolean"}, dict: {"type": "object"}, type(None): {"type": "null"}, object: {},
}
#: What `shown` says, by its type.
_SHOWN: Mapping[type, str] = {
    int: " With `shown`, the version that was looked at, it is refused if what it is about has changed since; sent "
         "once more with the same version, it does nothing and answers the same.",
    str: " `shown` is the digest of the proposal that was looked at, and is needed.",
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
    paths |= {f"{PREFIX}/acts/{name}": {"post": _act(name, act)} for name, act in REQUESTS.items()}
    paths[f"{PREFIX}/changes"] = {"get": _changes()}
    given = [_given(name)[0] for name in (*VIEWS, *REQUESTS)]
    records = {each.__name__: each for each in given if isinstance(each, type) and dataclasses.is_dataclass(each)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keep", "version": version("keepai"),
                 "description": "What `keep` and its page do, for programs."},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {str(status): {"description": told, "content": {_JSON: {"schema": _REFUSAL}}}
                          for status, told in ERRORS.items()},
            "schemas": {name: schema_of(of(each)) for name, each in sorted(records.items())},
        },
    }


def _given(name: str) -> tuple[Any, bool]:
    """What a method of `Keep` gives, and whether it gives a list of these."""
    given = typing.get_type_hints(getattr(Keep, name), localns=SPACE)["return"]
    if typing.get_origin(given) in (list, tuple, Rows):
        return typing.get_args(given)[0], True
    return given, False


def _result(name: str) -> Schema:
    inner, lists = _given(name)
    if inner is type(None):
        return {"type": "null"}
    is_record = dataclasses.is_dataclass(inner)
    one = {"$ref": f"#/components/schemas/{inner.__name__}"} if is_record else schema_of(of_type("", inner))
    return {"type": "array", "items": one} if lists else one


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
    inside = [_parameter(each, "path", {"type": "string"}) for each in re.findall(r"{(\w+)}", view.path)]
    after = [_parameter(each, "query", {"type": "string", **({"enum": list(values)} if values else {})})
             for each, values in view.params.items()]
    if view.pages:
        most = {"type": "integer", "minimum": 1, "maximum": ROWS_MAX, "default": ROWS_USUAL}
        after += [_parameter("limit", "query", most),
                  _parameter("after", "query", {"type": "string", "description": "The cursor of the page before."})]
    return {
        "operationId": name, "summary": view.help, "parameters": [*inside, *after],
        "responses": _responses(_answer(_result(name), cursor=view.pages)),
    }


def _parameter(name: str, place: str, schema: Schema) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _act(name: str, act: Act) -> Schema:
    named = {each: _of_types(param) for each, param in act.params.items()}
    body = {"type": "object", "properties": named, "additionalProperties": False,
            "required": [each for each, param in act.params.items() if param.required]}
    more = _SHOWN[act.params["shown"].types[0]] if "shown" in act.params else ""
    return {
        "operationId": f"act_{name}", "summary": act.help,
        "description": f"Roles: {', '.join(role for role in Role if role in act.roles)}.{more}",
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": _responses(_answer(_result(name))),
    }


def _changes() -> Schema:
    return {
        "operationId": "changes", "summary": "Server-sent events: one whenever something was committed.",
        "responses": {
            "200": {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **_refusals()},
    }


def _of_types(param: Param) -> Schema:
    kinds = [_TYPES[each] for each in param.types]
    return dict(kinds[0]) if len(kinds) == 1 else {"anyOf": [dict(each) for each in kinds]}


def _answer(result: Schema, *, cursor: bool = False) -> Schema:
    named: Schema = {"result": result, **({"cursor": {"type": ["string", "null"]}} if cursor else {})}
    return {"type": "object", "properties": named, "required": sorted(named), "additionalProperties": False}


def _responses(gives: Schema) -> Schema:
    return {"200": {"description": "Done.", "content": {_JSON: {"schema": gives}}}, **_refusals()}


def _refusals() -> Schema:
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in ERRORS}
