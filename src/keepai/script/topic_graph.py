"""The graph of a workflow's topics: which handler publishes to which, and where events could go in circles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .manifest import Handler, Manifest

#: Kind of vertex → the brackets of Mermaid around its name.
_SHAPES = {"topic": ("([", "])"), "producer": ("[/", "/]"), "consumer": ("[", "]"), "routine": ("[[", "]]")}


@dataclass(frozen=True)
class Vertex:
    """A handler or a topic."""

    name: str
    kind: str  # "producer", "consumer", "routine" or "topic"


@dataclass(frozen=True)
class Edge:
    """Handler → topic (it publishes) or topic → handler (it subscribes)."""

    source: Vertex
    target: Vertex


@dataclass(frozen=True)
class Graph:
    """Vertices and edges, in the order of the declaration."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    cycles: tuple[tuple[str, ...], ...]  # each: the names along one circle, handlers and topics


def graph(manifest: Manifest) -> Graph:
    """The graph of a manifest. A handler that does not say what it publishes has no outgoing edges."""
    topics = {name: Vertex(name, "topic") for name in manifest.topics}
    handlers = [(handler, Vertex(handler.name, handler.kind.value)) for handler in manifest.handlers]
    edges: list[Edge] = []
    for handler, vertex in handlers:
        edges += [Edge(topics[t], vertex) for t in handler.subscribe if t in topics]
        edges += [Edge(vertex, topics[t]) for t in handler.publishes or () if t in topics]
    vertices = (*topics.values(), *(vertex for _, vertex in handlers))
    return Graph(vertices, tuple(edges), find_cycles(manifest.handlers))


def find_cycles(handlers: Sequence[Handler]) -> tuple[tuple[str, ...], ...]:
    """The shortest circle through each consumer that is on one, as handler, topic, handler, topic, …"""
    follows = _without_dead_ends(_followers(handlers))
    circles: list[tuple[str, ...]] = []
    covered: set[str] = set()
    for name in follows:
        circle = () if name in covered else _circle(name, follows)
        if circle:
            circles.append(circle)
            covered.update(circle[::2])
    return tuple(circles)


def _followers(handlers: Sequence[Handler]) -> dict[str, dict[str, str]]:
    """Handler → the consumers of its events, each with the topic between them."""
    takers: dict[str, list[str]] = {}
    for handler in handlers:
        for topic in handler.subscribe:
            takers.setdefault(topic, []).append(handler.name)
    return {
        handler.name: {taker: topic for topic in handler.publishes or () for taker in takers.get(topic, ())}
        for handler in handlers
    }


def _without_dead_ends(follows: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The graph without the handlers that lead to no circle, in linear time."""
    before: dict[str, list[str]] = {}
    for name, takers in follows.items():
        for taker in takers:
            before.setdefault(taker, []).append(name)
    left = {name: len(takers) for name, takers in follows.items()}
    dead = [name for name, count in left.items() if count == 0]
    for name in dead:  # the list grows during the loop
        for earlier in before.get(name, ()):
            left[earlier] -= 1
            if left[earlier] == 0:
                dead.append(earlier)
    gone = set(dead)
    return {name: {t: topic for t, topic in takers.items() if t not in gone}
            for name, takers in follows.items() if name not in gone}


def _circle(start: str, follows: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The shortest path from `start` back to it."""
    came_from: dict[str, tuple[str, str]] = {}
    queue = [start]
    for name in queue:  # the list grows during the loop
        for taker, topic in follows[name].items():
            if taker == start:
                return _way(start, name, topic, came_from)
            if taker not in came_from:
                came_from[taker] = (name, topic)
                queue.append(taker)
    return ()


def _way(start: str, last: str, topic: str, came_from: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    path = [topic, last]
    while path[-1] != start:
        name, between = came_from[path[-1]]
        path += [between, name]
    return tuple(reversed(path))


def as_mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart."""
    ids = {vertex: f"n{i}" for i, vertex in enumerate(graph.vertices)}
    lines = ["flowchart LR"]
    for vertex in graph.vertices:
        label = "".join(c if c.isalnum() or c in " ._-/" else f"#{ord(c)};" for c in vertex.name)
        left, right = _SHAPES[vertex.kind]
        lines.append(f'  {ids[vertex]}{left}"{label}"{right}')
    lines += [f"  {ids[e.source]} --> {ids[e.target]}" for e in graph.edges]
    return "\n".join(lines) + "\n"
