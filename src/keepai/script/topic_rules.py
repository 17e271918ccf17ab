"""Rules between handlers and topics: declared, one publisher, one subscriber, no circles."""

from __future__ import annotations

from collections.abc import Iterable

from .declaration import Declaration, Declared, Topics
from .findings import listed, quote, suggest
from .graph import find_cycles
from .reading import Reading
from .tree import Node


def check_topics(reading: Reading, declaration: Declaration) -> None:
    """Report what the declarations of the handlers say wrong about topics."""
    for handler in declaration.handlers:
        for topics in (handler.subscribe, handler.publishes):
            for name, node in (topics or {}).items():
                undeclared(reading, declaration.topics, name, node)
    handlers = declaration.handlers
    _one_each(reading, "two-publishers", "publishes to", ((h, h.publishes) for h in handlers))
    _one_each(reading, "two-subscribers", "subscribes to", ((h, h.subscribe) for h in handlers))
    _cycles(reading, declaration)


def undeclared(reading: Reading, topics: Topics | None, name: str, node: Node) -> bool:
    """Whether a topic is not declared, with a finding if so."""
    if topics is None or name in topics:
        return False
    fix = suggest(name, topics, f"Add {quote(name)} to `topics`.")
    reading.add("undeclared-topic", node, f"The topic {quote(name)} is not declared in `topics`.", fix)
    return True


def _one_each(reading: Reading, code: str, verb: str, uses: Iterable[tuple[Declared, Topics | None]]) -> None:
    first: dict[str, Declared] = {}
    for handler, topics in uses:
        for name, node in (topics or {}).items():
            other = first.setdefault(name, handler)
            if other is not handler:
                reading.add(code, node, f"`{other.name}` already {verb} {quote(name)}.",
                            "Give each of the two a topic of its own.")


def _cycles(reading: Reading, declaration: Declaration) -> None:
    by_name = {handler.name: handler for handler in declaration.handlers}
    for circle in find_cycles([handler.to_handler() for handler in declaration.handlers]):
        handler, topic = by_name[circle[0]], circle[1]
        at = (handler.publishes or {}).get(topic, handler.at)
        way = " → ".join([*circle[:12], *(["…"] if len(circle) > 12 else []), circle[0]])
        reading.add("topic-cycle", at, f"Events can go round in a circle: {way}.",
                    f"Make sure that it ends, or publish to another topic than {listed([topic])}.")
