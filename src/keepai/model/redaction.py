"""Removes the values of secrets from strings, JSON and errors.

It also finds a value as base64 (also inside a longer encoded text), URL-encoded, and escaped as in JSON, HTML or
Python. It does not look for values of fewer than six characters, because these would be found everywhere.
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
LINE_LEAST = 16  #: a line of a longer secret, such as a private key, is looked for as well

#: The first class that fits replaces an error that contained a secret. The engine treats both alike.
_KINDS: tuple[type[KeepError], ...] = (
    Transient, PermissionDenied, PreconditionFailed, Rejected, OutcomeUnknown, ConnectorError, ConnectorBroke,
    RuleBroken, BadValue, LimitExceeded, ScriptError, ConfigError, HostFault,
)


class HasSecrets(Protocol):
    """Something that has secrets: a connector."""

    name: str

    def entrusted(self) -> Mapping[str, str]:
        """Values of its secrets → their names. The mapping is the same object until there is a new value."""


class Redactor:
    """Removes the secrets of some connectors. It asks the connectors for their present secrets at every use."""

    def __init__(self, connectors: Iterable[HasSecrets]) -> None:
        self._connectors = tuple(connectors)
        self._given: list[Mapping[str, str]] = []
        self._forms: dict[str, str] = {}  # a spelling of a secret → the name that replaces it
        self._pattern: re.Pattern[str] | None = None  # compiled when the first secret is found

    def text(self, text: str) -> str:
        """`text` with `[secret NAME.password]` in place of every secret."""
        if self.found(text) is None:
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        return self._pattern.sub(lambda match: f"[secret {self._forms[match[0]]}]", text)

    def found(self, text: str) -> str | None:
        """The name of a secret that `text` contains, such as `gmail.password`; None if it contains none."""
        return next((name for form, name in self._known().items() if form in text), None)

    def found_in(self, value: object) -> str | None:
        """The same for a JSON value."""
        if not self._known():
            return None
        return next((name for text in _written(value) if (name := self.found(text))), None)

    def spelled_in(self, value: object) -> bool:
        """Whether a JSON value contains a secret in any spelling, also in one that only a script would use: hex in
        mixed case, or a URL in which some characters are encoded and others are not."""
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
        """The same error if it contains no secret; otherwise an error with the same meaning and without the secret."""
        whole = "".join(traceback.format_exception(error))
        words = error.message if isinstance(error, KeepError) else in_words(error)
        if self.found(whole) is None and self.found(words) is None:
            return error
        clean = _alike(error, self.text(words))
        clean.__cause__ = RuntimeError(self.text(whole))  # the evidence
        return clean

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Remove secrets from every exception that is raised inside."""
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
        """The spellings to look for. They are made again when a connector has a new secret."""
        given = [connector.entrusted() for connector in self._connectors]
        if len(given) != len(self._given) or any(new is not old for new, old in zip(given, self._given, strict=True)):
            self._forms, self._pattern, self._given = self._forms_of(given), None, given
        return self._forms

    def _forms_of(self, given: list[Mapping[str, str]]) -> dict[str, str]:
        """The longest spelling first, so that a secret is not mistaken for a shorter one that it begins with."""
        names = {
            form: f"{connector.name}.{secret}"
            for connector, values in zip(self._connectors, given, strict=True)
            for value, secret in values.items() for form in forms(value)
        }
        return dict(sorted(names.items(), key=lambda entry: -len(entry[0])))


_ESCAPED = re.compile(r'\\(["\\])')


def _written(value: object) -> Iterator[str]:
    """A JSON value as one string, and the same with the escapes removed that JSON adds to the strings in it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    yield text
    if "\\" in text:
        yield _ESCAPED.sub(r"\1", text)


def forms(value: str) -> set[str]:
    """The spellings of a secret in a text."""
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
    """The encoded value, and the part of an encoding that shows it wherever it stands in a longer text."""
    yield base64.b64encode(data).decode()
    yield base64.b64encode(data).decode().rstrip("=")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode()
        yield whole[-(-before * 8 // 6): (before + len(data)) * 8 // 6]


def _alike(error: BaseException, words: str) -> BaseException:
    """An error with other words that callers treat like the original."""
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
