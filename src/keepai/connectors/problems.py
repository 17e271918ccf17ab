"""Words what is wrong with params or results, in the terms of JSON and with the path of each problem."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.codec import shown

Schema = Mapping[str, Any]
_DEPTH_MAX = 3  #: of a schema in words
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def problems(errors: Sequence[Any], schema: Schema, root: str = "params") -> list[str]:
    """Each of pydantic's errors as a sentence about a path in the JSON, without repeats."""
    sentences: dict[str, None] = {}
    for error in errors:
        path, here = _place(error["loc"], schema, root)
        sentences[_sentence(error, path, here, schema)] = None
    return list(sentences)


def _sentence(error: Any, path: str, here: Schema, root: Schema) -> str:
    kind = str(error["type"])
    if kind == "missing":
        return f"{path} is missing: it must be {named(here, root)}"
    if kind in _UNKNOWN:
        return unknown_key(str(error["loc"][-1]), path, here)
    if kind.endswith("_type") or kind in ("literal_error", "enum", "dataclass_type"):
        return f"{path} must be {named(here, root)}, not {shown(error['input'])}"
    return f"{path}: {str(error['msg']).removeprefix('Value error, ').rstrip('.')}"


def unknown_key(key: str, path: str, here: Schema) -> str:
    """That a member is not known, with the nearest one that is."""
    known = sorted(here.get("properties", {}))
    close = difflib.get_close_matches(key, known, n=1)
    advice = f"did you mean {shown(close[0])}?" if close else f"known are {', '.join(known) or 'none'}"
    return f"{path}.{key} is unknown: {advice}"


def _place(location: Sequence[str | int], schema: Schema, path: str) -> tuple[str, Schema]:
    """The path of an error and the schema there, without pydantic's names of union branches."""
    here = _resolved(schema, schema)
    for key in location:
        inner = _inner(here, key, schema)
        if inner is not None:
            path += f"[{key}]" if isinstance(key, int) else f".{key}"
            here = inner
    return path, here


def _inner(here: Schema, key: str | int, root: Schema) -> Schema | None:
    branches = [here, *here.get("anyOf", ()), *here.get("oneOf", ())]
    for branch in [_resolved(branch, root) for branch in branches]:
        if isinstance(key, int) and branch.get("type") == "array":
            prefix = branch.get("prefixItems", [])
            return _resolved(prefix[key] if key < len(prefix) else branch.get("items", {}), root)
        if key in branch.get("properties", {}):
            return _resolved(branch["properties"][key], root)
        if isinstance(key, str) and isinstance(branch.get("additionalProperties"), Mapping):
            return _resolved(branch["additionalProperties"], root)
    return None


def _resolved(schema: Schema, root: Schema) -> Schema:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    resolved: Schema = root.get("$defs", {}).get(name, schema) if name else schema
    return resolved


def named(schema: Schema, root: Schema, depth: int = 0) -> str:
    """A schema in words: `string`, `array of number or null`."""
    schema = _resolved(schema, root)
    if depth > _DEPTH_MAX:
        return "JSON value"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if branches:
        return " or ".join(dict.fromkeys(named(branch, root, depth + 1) for branch in branches))
    kind = str(schema.get("type", "a JSON value"))
    if kind == "array" and schema.get("items"):
        return f"array of {named(schema['items'], root, depth + 1)}"
    return f"{kind} ({schema['format']})" if "format" in schema else kind
