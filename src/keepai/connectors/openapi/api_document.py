"""What Keep takes of an OpenAPI document (3.0 or 3.1, as JSON): each operation with its params, body and result.

The document is text from outside. It decides what scripts may write and what `keep.d.ts` says; never where requests go
beyond the base URL, and never which headers they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ...model.codec import Json
from ...model.errors import ConfigError
from ...model.visible_text import visible
from ..base import script_name
from ..json_schema import resolved, taken
from ..kit.lenient_json import parse_json

BYTES_MAX = 16 << 20
METHODS = ("get", "post", "put", "patch", "delete")
_DOC_MAX = 1_000
_PLACE = re.compile(r"\{([^{}/]+)\}")
_JSON_TYPE = re.compile(r"application/([\w.+-]+\+)?json\b", re.IGNORECASE)

Table = Mapping[str, Json]


@dataclass(frozen=True)
class ApiOperation:
    """One operation, as the document has it."""

    name: str  # as scripts say it
    method: str
    path: str
    doc: str
    params: Mapping[str, str]  # name → path or query
    params_schema: dict[str, Any] = field(repr=False)
    result_schema: dict[str, Any] = field(repr=False)
    why_not: str = ""  # why scripts cannot call it

    @property
    def by_id(self) -> bool:
        """Whether it reads the one object that its path names."""
        return self.method == "get" and self.path.endswith("}")

    def url(self, base: str, values: Table, quoted: Any) -> str:
        """Its address, with the values of its path."""
        return base.rstrip("/") + _PLACE.sub(lambda place: quoted(values[place[1]]), self.path)


def read_document(file: Path) -> dict[str, Json]:
    """The document; `ConfigError` says why it cannot be used."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"The document {file} cannot be read: {error.strerror}.") from None
    return parsed_document(content, str(file))


def parsed_document(content: bytes, place: str) -> dict[str, Json]:
    """The document in these bytes."""
    try:
        found = parse_json(content) if len(content) <= BYTES_MAX else None
    except ValueError:
        found = None
    version = found.get("openapi") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        raise ConfigError(f"{place} is no OpenAPI document of version 3.0 or 3.1 in JSON. If it is YAML, or Swagger "
                          "2.0, have it converted first.")
    return found


def base_of(document: Table) -> str:
    """The address of the first server that the document names, if that is a whole one; else nothing."""
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    url = first.get("url") if isinstance(first, dict) else None
    return url if isinstance(url, str) and url.startswith(("https://", "http://")) and "{" not in url else ""


def operations_in(document: Table) -> dict[str, ApiOperation]:
    """Script name → operation. Of two with one name, none can be called."""
    found: dict[str, ApiOperation] = {}
    for path, shared in _tables(document.get("paths")):
        for method in METHODS:
            entry = shared.get(method)
            if isinstance(entry, dict):
                made = _operation(document, path, method, shared, entry)
                if made.name in found:
                    made = _refused(made, "another operation has the same name")
                found[made.name] = made
    return found


def _operation(document: Table, path: str, method: str, shared: Table, entry: Table) -> ApiOperation:
    name = script_name(str(entry.get("operationId") or f"{method} {path}"))
    params, why_not = _params(document, shared, entry)
    places, properties, required = dict[str, str](), dict[str, Json](), list[Json]()
    for each in params:
        key = str(each["name"])
        if key in places or key == "body":
            why_not = why_not or f"two of its params are called {key}"
        places[key] = str(each["in"])
        properties[key] = _param_schema(each)
        required += [key] if each["in"] == "path" or each.get("required") is True else []
    body, body_required, refused = _body(document, entry)
    if body is not None:
        properties["body"] = body
        required += ["body"] if body_required else []
    missing = [place for place in _PLACE.findall(path) if places.get(place) != "path"]
    why_not = why_not or refused or (f"its path names {missing[0]}, which it does not describe" if missing else "")
    text = visible(str(entry.get("summary") or entry.get("description") or "")[:_DOC_MAX]).strip()
    return ApiOperation(
        name, method, path, f"{text}\n{method.upper()} {path}".strip(), places,
        taken({"type": "object", "properties": properties, "required": required, "additionalProperties": False},
              cast(Json, document)),
        _result(document, method, entry), why_not if name else "its name cannot be said in a script",
    )


def _refused(operation: ApiOperation, why: str) -> ApiOperation:
    return ApiOperation(operation.name, operation.method, operation.path, operation.doc, {}, {}, {}, why)


def _params(document: Table, shared: Table, entry: Table) -> tuple[list[Table], str]:
    """Its params in path and query; and why it cannot be called, if it needs others."""
    found: dict[tuple[str, str], Table] = {}
    for listed in (shared.get("parameters"), entry.get("parameters")):
        for each in listed if isinstance(listed, list) else ():
            param = _whole(document, each)
            if isinstance(param.get("name"), str) and isinstance(param.get("in"), str):
                found[str(param["in"]), str(param["name"])] = param
    needed = [name for (place, name), param in found.items()
              if place not in ("path", "query") and param.get("required") is True]
    why_not = f"it needs the header or cookie {needed[0]}, which scripts cannot give" if needed else ""
    return [each for (place, _), each in found.items() if place in ("path", "query")], why_not


def _param_schema(param: Table) -> Json:
    schema = param.get("schema")
    if isinstance(schema, dict) and schema.get("type") == "string" and param["in"] == "path":
        return {"minLength": 1, **schema}  # an empty part of a path is another path
    return schema if isinstance(schema, dict) else {}


def _body(document: Table, entry: Table) -> tuple[Json, bool, str]:
    """The schema of its body, whether it must be there, and why it cannot be called, if that is no JSON."""
    if "requestBody" not in entry:
        return None, False, ""
    body = _whole(document, entry["requestBody"])
    schema = _json_schema(body)
    needed = body.get("required") is True
    return schema, needed, "its body is no JSON" if schema is None and needed else ""


def _result(document: Table, method: str, entry: Table) -> dict[str, Any]:
    """What a script gets: the status and the body, as of `http`; null if a read finds nothing."""
    responses = entry.get("responses")
    table = responses if isinstance(responses, dict) else {}
    success = next((table[each] for each in ("200", "201", "202", "2XX", "default") if each in table), None)
    result: Json = {
        "type": "object", "required": ["status", "body"],
        "properties": {"status": {"type": "integer"}, "body": _json_schema(_whole(document, success)) or {}},
    }
    return taken({"anyOf": [result, {"type": "null"}]} if method == "get" else result, cast(Json, document))


def _json_schema(holder: Table) -> Json:
    kinds = dict(_tables(holder.get("content")))
    schema = next((kind.get("schema") for name, kind in kinds.items() if _JSON_TYPE.match(name)), None)
    return schema if isinstance(schema, dict) else None


def _whole(document: Table, node: Json) -> Table:
    """A part of the document, where it may stand elsewhere."""
    for _ in range(8):
        if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
            break
        node = resolved(cast(Json, document), str(node["$ref"]))
    return node if isinstance(node, dict) else {}


def _tables(value: Json) -> Iterator[tuple[str, dict[str, Json]]]:
    for name, each in (value if isinstance(value, dict) else {}).items():
        if isinstance(each, dict):
            yield name, each
