"""Look-up rules for tools: in keep.toml the owner says which read shows whether a tool has done its work.

    [[connectors.notes.lookup]]
    on = "createNote"
    tool = "searchNotes"                  # a confirmed read
    args = { query = "{reference}" }      # {key}: the idempotency key; {…}: a param of the call
    items = "notes"                       # where the list is in its answer; without it, the answer is the list
    match = "reference"                   # the member that must be equal; without it, every entry matches
    equals = "{reference}"                # to what; without it, to the idempotency key
    key = "reference"                     # the param of `on` that Keep fills with the idempotency key, if it has one

What an answer proves is decided as for `http`: only an empty list means "it did not happen".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.codec import Json
from ...model.errors import ConfigError
from ..http.lookup import at, matching
from ..values import Verdict

_PLACE = re.compile(r"\{([A-Za-z0-9_.$-]+)\}")
_TEXTS = ("on", "tool", "items", "match", "equals", "key")
_KNOWN = frozenset({*_TEXTS, "args"})


@dataclass(frozen=True)
class ToolLookup:
    """One rule."""

    on: str
    tool: str
    args: Mapping[str, Json]
    items: str = ""
    match: str = ""
    equals: str = ""
    key: str = ""

    def arguments(self, params: Mapping[str, Json], key: str) -> dict[str, Json]:
        """What the read is asked. LookupError if the call lacks a part of it."""
        return {name: _filled(value, params, key) for name, value in self.args.items()}

    def verdict(self, answer: Json, params: Mapping[str, Json], key: str) -> Verdict:
        """What an answer of the read says about the call."""
        try:
            value = at(answer, self.items)
            wanted = _filled(self.equals or "{key}", params, key)
        except LookupError:
            return Verdict("retry", why="the answer of the look-up does not have the form that the rule says")
        found, otherwise = matching(value, self.match, wanted)
        return Verdict.applied(found[0]) if found else otherwise


def parse_tool_lookups(rules: Iterable[Mapping[str, Any]]) -> dict[str, ToolLookup]:
    """Operation → its rule; `ConfigError` says what is wrong with one."""
    found: dict[str, ToolLookup] = {}
    for rule in rules:
        unknown = sorted(rule.keys() - _KNOWN)
        if unknown:
            raise ConfigError(f"A lookup has {', '.join(sorted(_KNOWN))}; {unknown[0]!r} is unknown.")
        texts = {name: rule.get(name, "") for name in _TEXTS}
        args = rule.get("args", {})
        if not all(isinstance(text, str) for text in texts.values()) or not isinstance(args, dict):
            raise ConfigError(f"In a lookup, {', '.join(_TEXTS)} are strings, and args is a table.")
        if not texts["on"] or not texts["tool"]:
            raise ConfigError("A lookup needs `on`, the mutation, and `tool`, the read that shows what it did.")
        wanted = texts["match"] and (texts["equals"] or "{key}")
        if not any(_PLACE.search(str(value)) for value in [*args.values(), wanted]):
            raise ConfigError("A lookup must say what to look for: put {key} or {param} into args, or use match.")
        if texts["on"] in found:
            raise ConfigError(f"There are two lookups on {texts['on']}.")
        found[texts["on"]] = ToolLookup(args=args, **texts)
    return found


def _filled(value: Json, params: Mapping[str, Json], key: str) -> Json:
    """A value with its places filled. A place that is the whole value keeps its type."""
    if not isinstance(value, str):
        return value
    whole = _PLACE.fullmatch(value)
    if whole:
        return _value(whole[1], params, key)
    return _PLACE.sub(lambda match: str(_value(match[1], params, key)), value)


def _value(place: str, params: Mapping[str, Json], key: str) -> Json:
    return key if place == "key" else at(dict(params), place)
