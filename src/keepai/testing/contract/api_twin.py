"""A twin of a service, made from its OpenAPI document: it proves that a look-up rule does what the contract asks for.

It shows that the rule has the right form and is never wrong where the service filters as its document says. Whether the
real service does, it cannot show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...connectors.base import Connector
from ...connectors.openapi.lookup_guesses import LookupGuess
from ...connectors.openapi.openapi_connector import OpenApi
from ..loopback import HttpReply, Request
from .examine import Report, examine
from .http import HttpSubject


async def prove(guess: LookupGuess, document: Mapping[str, Any]) -> Report:
    """Hold a guess against the contract, on a twin of the service."""

    class ApiTwin(HttpSubject):
        operation, params = guess.operation.name, _sample(guess)
        same_result, by_state = False, True  # whoever made it, the mark is there

        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.made: list[Any] = []

        def connector(self) -> Connector:
            file = self.folder / "document.json"
            file.write_text(json.dumps(document))
            return OpenApi(file, [guess.operation.name], base=self.server.url, networks=["127.0.0.1"],
                           lookup=[guess.rule(self.server.url)], name="twin")

        def handle(self, request: Request) -> HttpReply:
            if request.method == "POST":
                self.made.append(request.json())
                return HttpReply(201, self.made[-1], {"Content-Type": "application/json"})
            found = [each for each in self.made if str(each.get(guess.mark)) == request.query.get(guess.mark)]
            return HttpReply(200, {guess.items: found} if guess.items else found, {"Content-Type": "application/json"})

        def effects(self) -> int:
            return len(self.made)

    return await examine(ApiTwin, kill=False)


def _sample(guess: LookupGuess) -> dict[str, Any]:
    """Params that fit the schema, with a mark of their own."""
    schema = guess.operation.params_schema
    sample: dict[str, Any] = _value({**schema, "required": [*schema.get("required", ()), "body"]}, schema, 0)
    sample["body"][guess.mark] = "keep-contract-1"
    return sample


def _value(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    """The least value that fits a schema."""
    if depth > 20:
        return None
    if "$ref" in schema:
        return _value(root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {}), root, depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _value(schema[word][0], root, depth + 1)
    if "allOf" in schema:
        parts = [_value(each, root, depth + 1) for each in schema["allOf"]]
        return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        members = schema.get("properties", {})
        return {name: _value(members.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return [_value(schema.get("items", {}), root, depth + 1) for _ in range(schema.get("minItems", 0))]
    least = {"string": "x" * schema.get("minLength", 1), "boolean": True, "null": None}
    return least.get(str(kind), schema.get("minimum", 1))
