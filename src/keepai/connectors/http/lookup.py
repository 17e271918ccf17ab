"""Look-up rules: in keep.toml the owner says where to see whether a request was carried out.

    [[connectors.shop.lookup]]
    on = "POST https://api.example.com/v1/orders"
    url = "https://api.example.com/v1/orders?key={key}"
    items = "data"        # where the list is in the answer; without it, the answer is the list or the one object
    match = "key"         # the member that must be the idempotency key; without it, every object matches
    missing = [404]       # statuses that mean "it is not there"; 404 and 410 are possible

Only an empty list, or a status in `missing`, means "it did not happen". A list with other objects was not filtered by
the server, so the wanted object may be on a later page. Then Keep asks a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ...model.codec import Json
from ...model.errors import ConfigError, Rejected
from ..egress import Response, Rules
from ..values import Verdict

_PLACE = re.compile(r"\{([A-Za-z0-9_.]+)\}")
_KNOWN = frozenset({"on", "url", "items", "match", "missing"})
METHODS = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Lookup:
    """One rule."""

    method: str
    prefix: str
    url: str
    items: str = ""
    match: str = ""
    missing: tuple[int, ...] = ()

    def fits(self, method: str, url: str) -> bool:
        """Whether the rule covers this request."""
        rest = url[len(self.prefix):]
        return method == self.method and url.startswith(self.prefix) and (
            self.prefix.endswith("/") or rest[:1] in ("", "/", "?")
        )

    def address(self, key: str, params: Mapping[str, Json]) -> str | None:
        """Where to look; None if the request lacks a part of the URL."""
        values = {place: _value(place, key, params) for place in _PLACE.findall(self.url)}
        if any(value is None for value in values.values()):
            return None
        return _PLACE.sub(lambda match: quote(str(values[match[1]]), safe=""), self.url)

    def verdict(self, answer: Response, key: str) -> Verdict:
        """What an answer says about the request with this key."""
        if answer.status in self.missing:
            return Verdict.failed()
        if not answer.ok:
            return Verdict("retry", why=f"the look-up was answered with {answer.status}")
        try:
            value = at(answer.json(), self.items)
        except (ValueError, LookupError):
            return Verdict("retry", why="the answer of the look-up does not have the form that the rule says")
        found, otherwise = matching(value, self.match, key)
        return Verdict.applied({"status": answer.status, "body": found[0]}) if found else otherwise


def matching(value: Json, match: str, wanted: Json) -> tuple[list[Json], Verdict]:
    """The objects in the answer of a look-up that are the wanted one; and what it proves if there is none."""
    objects = value if isinstance(value, list) else [value]
    found = [entry for entry in objects if not match or _matches(entry, match, wanted)]
    if objects:
        return found, Verdict.unknown(
            "The look-up shows other objects and not this one, which may be on a later page.")
    return found, Verdict.failed()


def parse_lookups(rules: Iterable[Mapping[str, Any]], allowed: Rules) -> tuple[Lookup, ...]:
    """The rules of keep.toml; `ConfigError` says what is wrong with one."""
    lookups = tuple(_parsed(rule) for rule in rules)
    for rule in lookups:
        try:
            allowed.check(_PLACE.sub("x", rule.url))
        except Rejected as error:
            raise ConfigError(f"The url of the lookup on {rule.method} {rule.prefix}: {error.message}") from None
    return lookups


def _parsed(rule: Mapping[str, Any]) -> Lookup:
    unknown = sorted(rule.keys() - _KNOWN)
    if unknown:
        raise ConfigError(f"A lookup has {', '.join(sorted(_KNOWN))}; {unknown[0]!r} is unknown.")
    texts = {name: rule.get(name, "") for name in ("on", "url", "items", "match")}
    missing = rule.get("missing", [])
    statuses = isinstance(missing, list) and all(status in (404, 410) for status in missing)
    if not statuses or not all(isinstance(text, str) for text in texts.values()):
        raise ConfigError("In a lookup, on, url, items and match are strings, and missing contains 404 or 410.")
    method, _, prefix = texts["on"].partition(" ")
    if method not in METHODS or not prefix:
        raise ConfigError(f'A lookup needs a method and a URL, such as on = "POST https://…", not {texts["on"]!r}.')
    if not _PLACE.search(texts["url"]):
        raise ConfigError("The url of a lookup must say what to look for: put {key} or {body.…} into it.")
    return Lookup(method, prefix, texts["url"], texts["items"], texts["match"], tuple(missing))


def at(value: Json, path: str) -> Json:
    """The part of a value at the path `a.b.0`; LookupError if there is none."""
    for step in path.split(".") if path else ():
        if isinstance(value, list) and step.isdecimal():
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value[step]
        else:
            raise LookupError(step)
    return value


def _matches(entry: Json, path: str, wanted: Json) -> bool:
    try:
        return at(entry, path) == wanted
    except LookupError:
        return False


def _value(place: str, key: str, params: Mapping[str, Json]) -> str | int | None:
    if place == "key":
        return key
    try:
        value = at(dict(params), place)
    except LookupError:
        return None
    return value if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None
