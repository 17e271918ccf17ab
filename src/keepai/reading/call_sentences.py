"""A call in a person's words: "Add a row to orders: B-1 · Ann Arden · 1,250".

It is made from the very parameters that are sent, and leaves none of them out: what has no place in the sentence
follows behind it with its name. What is too long is cut with …; then the parameters themselves say the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..model.records import Mutation
from .wording import one_line

VALUE_MAX = 120  #: characters of one value
SENTENCE_MAX = 400

#: Operation → its words. The first of the parameters in braces that a call has fills the place.
_WORDS: Mapping[str, str] = {
    "appendRow": "Add a row to {spreadsheetId|sheet|table}", "updateRow": "Change a row in {spreadsheetId|sheet|table}",
    "deleteRow": "Delete a row from {spreadsheetId|sheet|table}", "insert": "Add a row to {table}",
    "update": "Change rows in {table}", "delete": "Delete {path|table|id}", "send": "Send to {to|recipients}",
    "reply": "Reply to {to|messageId|threadId}", "postMessage": "Post in {channel}",
    "createEvent": "Add an event to {calendarId}", "write": "Write {path|name}", "put": "Put to {url|path}",
    "post": "Post to {url|path|to}",
}

_BARE = ("values", "row", "")  #: parameters whose lists stand without a name


def sentence(connector: str, operation: str, params: Any) -> str:
    """What a call does, in a sentence, with every parameter."""
    fields = dict(params) if isinstance(params, Mapping) else {"": params}
    words = _worded(operation, fields) or _plain(connector, operation)
    rest = [each for name, value in fields.items() for each in _named(name, value)]
    return one_line(f"{words}: {' · '.join(rest)}" if rest else words, SENTENCE_MAX)


def operation_words(connector: str, operation: str) -> str:
    """What an operation does, before there is a call."""
    words = _WORDS.get(operation)
    return re.sub(r"\{.*\}", "…", words) if words else _plain(connector, operation)


def sentence_of(facts: Mapping[str, Any]) -> str:
    """What a question is about, if it is a call. A connector's own words for it go before ours."""
    said, connector, operation = str(facts.get("attempted") or ""), facts.get("connector"), facts.get("operation")
    if not said or not said.startswith(f"{connector}.{operation}"):
        return said
    return sentence(str(connector), str(operation), facts.get("params"))


def output_sentence(output: Mutation) -> str:
    """An output in a sentence."""
    return sentence_of({"attempted": output.preview, "connector": output.connector, "operation": output.operation,
                        "params": output.params})


def _plain(connector: str, operation: str) -> str:
    """`desk.fileLetter` → "File letter with desk"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", operation).lower()
    return f"{words.capitalize()} with {connector}"


def _worded(operation: str, fields: dict[str, Any]) -> str | None:
    """The words for an operation, with a parameter in their place, which is not told again."""
    words = _WORDS.get(operation)
    names = re.search(r"\{(.*)\}", words) if words else None
    name = next((each for each in names[1].split("|") if each in fields), None) if names else None
    if words is None or name is None:
        return None
    return re.sub(r"\{.*\}", lambda _: _one(fields.pop(name)), words)


def _named(name: str, value: Any) -> Iterator[str]:
    """A parameter with its name; the cells of a row need none."""
    if name in _BARE and isinstance(value, list):
        yield from map(_one, value)
    else:
        yield f"{name}: {_one(value)}" if name else _one(value)


def _one(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return one_line(", ".join(map(_one, value)), VALUE_MAX) or "(none)"
    if isinstance(value, int | float):
        return f"{value:,}"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), VALUE_MAX) or "(empty)"
