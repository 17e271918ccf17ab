"""How a script names the events that it publishes, as far as that can be read without running it.

Two versions of a script that name an event differently would process the same thing twice. Expressions are compared by
their text, without white space and with one kind of quotes. In a path such as `mail.id` the first name does not count,
because it is only a variable of the script. More complicated expressions are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..model.operations import Step
from .calls import CallSite
from .script_reading import ScriptReading
from .topic_rules import literal_topics
from .tree import Node

_PATHS = frozenset({"identifier", "member_expression", "subscript_expression"})
_JOINED = frozenset({"template_string", "binary_expression"})


@dataclass(frozen=True)
class PublishPlace:
    """A topic that one step of a handler publishes to."""

    handler: str
    step: Step
    topic: str


@dataclass(frozen=True)
class EventName:
    """How one call names its event."""

    text: str  # as it is written
    form: str | None  # the text that is compared; None: unreadable


MessageIds = Mapping[PublishPlace, tuple[EventName, ...]]

#: A call without a messageId: the host makes one.
_BY_HOST = EventName("no messageId", "")


def message_ids(reading: ScriptReading, calls: Iterable[CallSite]) -> MessageIds:
    """All ways in which the events of each topic are named."""
    names_by_place: dict[PublishPlace, dict[EventName, None]] = {}
    for call in calls:
        if call.name != "publish" or len(call.args) < 2:
            continue
        named = _named(reading, call.args[1])
        for topic, _ in literal_topics(reading, call.args[0]):
            names_by_place.setdefault(PublishPlace(call.handler.name, call.step, topic), {})[named] = None
    return {place: tuple(names) for place, names in names_by_place.items()}


def renamed(before: MessageIds, after: MessageIds) -> tuple[PublishPlace, EventName, tuple[EventName, ...]] | None:
    """The first place that is still published to, but no longer with a name that could be read before."""
    for place, names in before.items():
        now = after.get(place, ())
        forms = {name.form for name in now}
        lost = [name for name in names if name.form and name.form not in forms]
        if now and lost:
            return place, lost[0], now
    return None


def _named(reading: ScriptReading, event: Node) -> EventName:
    resolved = reading.literals.resolve(event)
    if resolved.kind != "object":
        return EventName(_squeezed(event.text), None)
    entries = reading.literals.entries(resolved)
    given = [entry for entry in entries if entry.key == "messageId"]
    if not given:
        hidden = any(entry.key is None for entry in entries)
        return EventName(_squeezed(event.text), None) if hidden else _BY_HOST
    value = reading.literals.resolve(given[-1].value)
    return EventName(" ".join(value.text.split()), _form(reading, value))


def _form(reading: ScriptReading, node: Node) -> str | None:
    constant = reading.literals.text(node)
    if constant is not None:
        return f'"{constant}"'
    if node.kind in _PATHS:
        return re.sub(r"^[\w$]+(?=[.?\[])", "…", _squeezed(node.text))
    return _joined(node) if node.kind in _JOINED else None


def _joined(node: Node) -> str:
    """A template keeps the white space between its parts, because it is part of the name."""
    if node.kind != "template_string":
        return _squeezed(node.text)
    return "".join(
        _squeezed(child.text) if child.kind == "template_substitution" else child.text for child in node.children)


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text).replace("'", '"')
