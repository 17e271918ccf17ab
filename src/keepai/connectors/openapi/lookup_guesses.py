"""Look-up rules that a document suggests: a list at the same path that can be asked for a mark which the body carries.

These are guesses. Whether the service filters, and whether the mark is there only once, stands in no document. So they
are written as comments, once they have been proved against a twin, and the owner decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .api_document import ApiOperation, operations_in
from .openapi_connector import OpenApi

_PLAIN = re.compile(r"[A-Za-z0-9_]{1,64}")  # a rule is written into keep.toml, so nothing else of a document gets there
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_.~-]{1,200}")
#: Names of params that often carry a mark of the one who sends.
_MARK = re.compile(r"extern|refer|(^|_)ref($|_)|idempot|client_?(id|ref|token)|correlation|request_?id", re.IGNORECASE)


@dataclass(frozen=True)
class LookupGuess:
    """A rule for one operation, and where the list is in the answer."""

    operation: ApiOperation
    mark: str
    items: str

    def rule(self, base: str) -> dict[str, str]:
        """As it stands in keep.toml."""
        url = f"{base.rstrip('/')}{self.operation.path}"
        found = {"on": f"{self.operation.method.upper()} {url}", "url": f"{url}?{self.mark}={{body.{self.mark}}}"}
        return {**found, "items": self.items} if self.items else found


def guesses(connector: OpenApi) -> list[LookupGuess]:
    """For the chosen operations that have one."""
    lists = {each.path: each for each in operations_in(connector.document).values() if each.method == "get"}
    posts = [each for each in connector.chosen.values() if each.method == "post" and each.path in lists]
    return [guess for each in posts if _PLAIN_PATH.fullmatch(each.path) for guess in _guess(each, lists[each.path])]


def _guess(post: ApiOperation, listed: ApiOperation) -> Iterator[LookupGuess]:
    body = _object(post.params_schema.get("properties", {}).get("body", {}), post.params_schema)
    marks = [name for name in body
             if _PLAIN.fullmatch(name) and _MARK.search(name) and listed.params.get(name) == "query"]
    required = [name for name in listed.params_schema.get("required", ()) if name not in marks]
    items = _items(listed.result_schema)
    if marks and items is not None and not required:
        yield LookupGuess(post, marks[0], items)


def _items(schema: Mapping[str, Any]) -> str | None:
    """Where the list is in the body of an answer; None if there is none."""
    whole = schema.get("anyOf", [schema])[0]
    body = _resolved(whole.get("properties", {}).get("body", {}), schema)
    if body.get("type") == "array":
        return ""
    members = {name: _resolved(member, schema) for name, member in body.get("properties", {}).items()}
    lists = [name for name, member in members.items() if member.get("type") == "array" and _PLAIN.fullmatch(name)]
    return lists[0] if lists else None


def _object(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _resolved(schema, root).get("properties", {})
    return found


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = root.get("$defs", {}).get(name, {}) if name else schema
    return found
