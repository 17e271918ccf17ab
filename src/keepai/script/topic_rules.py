"""Rules for handlers and topics: topics are declared, have one publisher and one subscriber, and form no circles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .calls import CallSite
from .declaration import Declaration, Declared, Topics
from .findings import listed, quote, suggest
from .script_reading import ScriptReading
from .topic_graph import find_cycles
from .tree import Node


def check_topics(reading: ScriptReading, declaration: Declaration) -> None:
    """Report mistakes about topics in the declarations of the handlers."""
    for handler in declaration.handlers:
        for topics in (handler.subscribe, handler.publishes):
            for name, node in (topics or {}).items():
                undeclared(reading, declaration.topics, name, node)
    handlers = declaration.handlers
    _one_each(reading, "two-publishers", "publishes to", ((h, h.publishes) for h in handlers))
    _one_each(reading, "two-subscribers", "subscribes to", ((h, h.subscribe) for h in handlers))


def undeclared(reading: ScriptReading, topics: Topics | None, name: str, node: Node) -> bool:
    """Whether a topic is not declared; reports it if so."""
    if topics is None or name in topics:
        return False
    fix = suggest(name, topics, f"Add {quote(name)} to `topics`.")
    reading.add("undeclared-topic", node, f"The topic {quote(name)} is not declared in `topics`.", fix)
    return True


def literal_topics(reading: ScriptReading, argument: Node) -> list[tuple[str, Node]]:
    """The topics named by an argument, as far as they can be read."""
    resolved = reading.literals.resolve(argument)
    if resolved.kind == "array":
        return [(text, node) for text, node in reading.literals.texts(resolved) if text is not None]
    text = reading.literals.text(argument)
    return [] if text is None else [(text, argument)]


def _one_each(reading: ScriptReading, code: str, verb: str, uses: Iterable[tuple[Declared, Topics | None]]) -> None:
    first: dict[str, Declared] = {}
    for handler, topics in uses:
        for name, node in (topics or {}).items():
            other = first.setdefault(name, handler)
            if other is not handler:
                reading.add(code, node, f"`{other.name}` already {verb} {quote(name)}.",
                            "Give each of the two a topic of its own.")


def check_cycles(reading: ScriptReading, declaration: Declaration, calls: Iterable[CallSite]) -> None:
    """Report circles of topics. A handler that does not declare what it publishes is judged by its calls."""
    called: dict[str, dict[str, Node]] = {}
    for call in calls:
        if call.name == "publish" and call.args:
            anything = [(topic, call.args[0]) for topic in declaration.topics or ()]  # if it cannot be read
            for topic, node in literal_topics(reading, call.args[0]) or anything:
                called.setdefault(call.handler.name, {}).setdefault(topic, node)
    publishes = {
        handler.name: called.get(handler.name, {}) if handler.publishes is None else handler.publishes
        for handler in declaration.handlers
    }
    handlers = [replace(h.to_handler(), publishes=tuple(publishes[h.name])) for h in declaration.handlers]
    for circle in find_cycles(handlers):
        topic = circle[1]
        path = " → ".join([*circle[:12], *(["…"] if len(circle) > 12 else []), circle[0]])
        reading.add("topic-cycle", publishes[circle[0]][topic], f"Events can go round in a circle: {path}.",
                    f"Make sure that it ends, or publish to another topic than {listed([topic])}.")
