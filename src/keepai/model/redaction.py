"""Takes the values of secrets out of texts, JSON and errors. It knows values; it never says one.

A value is also found as base64 (wherever it stands in what was encoded), URL-encoded, and escaped as JSON, HTML or
Python write it. Values of fewer than six characters are not looked for: they would be found everywhere.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from .codec import Json
from .errors import (
    BadValue,
    ConfigError,
    ConnectorBroke,
    ConnectorError,
    HostFault,
    KeepError,
    LimitExceeded,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    Rejected,
    RuleBroken,
    ScriptError,
    Transient,
    in_words,
)

CHARACTERS_LEAST = 6
LINE_LEAST = 16  #: a line of a longer secret, such as of a private key, is looked for as well

#: What an error of ours becomes that said a secret: the first that it is. Each means the same to the engine.
_KINDS: tuple[type[KeepError], ...] = (
    Transient, PermissionDenied, PreconditionFailed, Rejected, OutcomeUnknown, ConnectorError, ConnectorBroke,
    RuleBroken, BadValue, LimitExceeded, ScriptError, ConfigError, HostFault,
)


class HasSecrets(Protocol):
    """What a redactor asks for secrets: a connector."""

    name: str

    def entrusted(self) -> Mapping[str, str]:
        """Values of its secrets → their names; another mapping whenever a value is new, the same one otherwise."""


class Redactor:
    """Removes the secrets of some connectors. It asks the connectors for their current secrets at every use."""

    def __init__(self, connectors: Iterable[HasSecrets]) -> None:
        self._connectors = tuple(connectors)
        self._given: list[Mapping[str, str]] = []
        self._forms: dict[str, str] = {}  # what a secret may look like → what stands in its place
        self._pattern: re.Pattern[str] | None = None  # made when the first of them is met

    def text(self, text: str) -> str:
        """`text` with `[secret NAME.password]` in place of every secret."""
        if self.found(text) is None:
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        return self._pattern.sub(lambda match: f"[secret {self._forms[match[0]]}]", text)

    def found(self, text: str) -> str | None:
        """The name of a secret that stands in `text`, such as `gmail.password`."""
        return next((name for form, name in self._known().items() if form in text), None)

    def found_in(self, value: object) -> str | None:
        """The same for a JSON value."""
        if not self._known():
            return None
        return next((name for text in _written(value) if (name := self.found(text))), None)

    def spelled_in(self, value: object) -> bool:
        """Whether a secret stands in a JSON value in any spelling, also one that nobody but a script would use: hex of
        small and capital letters, or an address in which some characters are encoded and others are not."""
        if not self._known():
            return False
        for text in _written(value):
            lower_hex = _HEX.sub(lambda match: match[0].lower(), text)
            if any(self.found(spelling) for spelling in {text, lower_hex, unquote(text), unquote_plus(text)}):
                return True
        return False

    def value(self, value: Json) -> Json:
        """The same value without secrets, also in its keys and numbers."""
        return value if self.found_in(value) is None else self._clean(value)

    def error(self, error: BaseException) -> BaseException:
        """The same error if it says no secret; otherwise one that means the same and tells the rest."""
        whole = "".join(traceback.format_exception(error))
        words = error.message if isinstance(error, KeepError) else in_words(error)
        if self.found(whole) is None and self.found(words) is None:
            return error
        clean = _alike(error, self.text(words))
        clean.__cause__ = RuntimeError(self.text(whole))  # the evidence
        return clean

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Whatever is raised inside leaves without secrets."""
        try:
            yield
        except BaseException as error:
            clean = self.error(error)
            if clean is error:
                raise
            raise clean from clean.__cause__

    def _clean(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._clean(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            digits = json.dumps(value)
            return value if self.found(digits) is None else self.text(digits)
        return value

    def _known(self) -> dict[str, str]:
        """What to look for; made anew when a connector was given something new."""
        given = [connector.entrusted() for connector in self._connectors]
        if len(given) != len(self._given) or any(new is not old for new, old in zip(given, self._given, strict=True)):
            self._forms, self._pattern, self._given = self._forms_of(given), None, given
        return self._forms

    def _forms_of(self, given: list[Mapping[str, str]]) -> dict[str, str]:
        """The longest first, so that a secret is not taken for another one that it begins with."""
        names = {
            form: f"{connector.name}.{secret}"
            for connector, values in zip(self._connectors, given, strict=True)
            for value, secret in values.items() for form in forms(value)
        }
        return dict(sorted(names.items(), key=lambda entry: -len(entry[0])))


_ESCAPED = re.compile(r'\\(["\\])')


def _written(value: object) -> Iterator[str]:
    """A JSON value as one text; and with the texts in it as they are, which JSON itself escapes once more."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    yield text
    if "\\" in text:
        yield _ESCAPED.sub(r"\1", text)


def forms(value: str) -> set[str]:
    """What a secret may look like in a text."""
    if len(value) < CHARACTERS_LEAST:
        return set()
    parts = {value, *(line.strip() for line in value.splitlines() if _counts(line))}
    return {form for part in parts for form in _spellings(part) if len(form) >= CHARACTERS_LEAST}


def _counts(line: str) -> bool:
    return len(line.strip()) >= LINE_LEAST and not line.startswith("-----")


def _spellings(value: str) -> set[str]:
    data = value.encode("utf-8", "surrogatepass")
    whole = "".join(f"%{byte:02X}" for byte in data)  # some programs encode every byte
    urls = {quote(data), quote(data, safe=""), quote_plus(data), whole}
    return {
        value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1],
        ascii(value)[1:-1], repr(data)[2:-1], html.escape(value), data.hex(), data.hex().upper(),
        *urls, *(re.sub("%..", lambda match: match[0].lower(), url) for url in urls),
        *(form.translate(to) for form in _base64(data) for to in ({}, _URL_SAFE)),
    }


_HEX = re.compile(f"[0-9A-Fa-f]{{{2 * CHARACTERS_LEAST},}}")
_URL_SAFE = str.maketrans("+/", "-_")


def _base64(data: bytes) -> Iterator[str]:
    """The value encoded by itself, and what it leaves in the encoding of anything that it stands in."""
    yield base64.b64encode(data).decode()
    yield base64.b64encode(data).decode().rstrip("=")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode()
        yield whole[-(-before * 8 // 6): (before + len(data)) * 8 // 6]


def _alike(error: BaseException, words: str) -> BaseException:
    """An error with other words that means the same to whoever catches it."""
    if isinstance(error, asyncio.CancelledError):
        return asyncio.CancelledError()
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    for kind in _KINDS:
        if isinstance(error, kind):
            clean = kind(words)
            clean.at = error.at
            if isinstance(error, Transient) and isinstance(clean, Transient):
                clean.retry_after = error.retry_after
            return clean
    return RuntimeError(words)
