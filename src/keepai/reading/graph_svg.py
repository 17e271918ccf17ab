"""A workflow's graph of topics as a picture: an SVG that needs nothing else, for the page and the command line.

Colours come from classes and from `currentColor`, so that the picture is light or dark as what it stands in. Every
text is escaped, because names come from scripts, which are not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ..model.visible_text import visible
from ..script.topic_graph import Graph, Vertex

WIDE, TALL = 190, 44  #: of a box
GAP_X, GAP_Y, EDGE = 64, 22, 12
NAME_MAX = 24  #: characters of a name that fit into a box

STYLE = """\
.keep-graph { font: 13px system-ui, sans-serif; color: #1f2328; }
.keep-graph text { fill: currentColor; }
.keep-graph .count { font-size: 11px; opacity: .75; }
.keep-graph .box { fill: none; stroke: currentColor; stroke-width: 1.2; }
.keep-graph .topic .box { stroke-dasharray: 4 3; }
.keep-graph .producer .box, .keep-graph .routine .box { stroke-width: 2; }
.keep-graph .edge { fill: none; stroke: currentColor; opacity: .55; }
.keep-graph .arrow { fill: currentColor; opacity: .55; }
@media (prefers-color-scheme: dark) { .keep-graph { color: #e6edf3; } }
"""


@dataclass(frozen=True)
class SvgBox:
    """Where a vertex stands."""

    x: int
    y: int

    @property
    def right(self) -> int:
        return self.x + WIDE

    @property
    def middle(self) -> int:
        return self.y + TALL // 2


def svg(
    graph: Graph, counts: Mapping[Vertex, str] | None = None, *, styled: bool = True,
    ways: Mapping[Vertex, str] | None = None, states: Mapping[Vertex, str] | None = None,
    notes: Mapping[Vertex, str] | None = None,
) -> str:
    """The graph as one SVG element; `counts` says something short of a vertex, such as "3 waiting", `ways` is where it
    leads, `states` are further classes of it, `notes` say more where one points at it.

    A page that allows no inline style takes it without, and has `STYLE` in its own sheet."""
    boxes, role = _placed(graph), "group" if ways else "img"
    wide = max((box.right for box in boxes.values()), default=WIDE) + EDGE
    tall = max((box.y + TALL for box in boxes.values()), default=TALL) + EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="keep-graph" role="{role}" viewBox="0 0 {wide} {tall}" '
        f'width="{wide}" height="{tall}" aria-labelledby="keep-graph-title keep-graph-desc">',
        '<title id="keep-graph-title">Topics and handlers</title>',
        f'<desc id="keep-graph-desc">{_shown(" ".join(sentences(graph, counts)))}</desc>',
        *([f"<style>{STYLE}</style>"] if styled else []),
        '<defs><marker id="keep-graph-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="arrow" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        *(_edge(boxes[edge.source], boxes[edge.target]) for edge in graph.edges),
        *(_linked((ways or {}).get(each), _vertex(
            each, box, (counts or {}).get(each), (states or {}).get(each, ""), (notes or {}).get(each)))
          for each, box in boxes.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def sentences(graph: Graph, counts: Mapping[Vertex, str] | None = None) -> list[str]:
    """The graph in words, for people who cannot see it."""
    told = []
    for vertex in graph.vertices:
        said = (counts or {}).get(vertex)
        note = f" ({said})" if said else ""
        into = [edge.target.name for edge in graph.edges if edge.source == vertex]
        of_topic = vertex.kind == "topic"
        does = f"is taken by {' and '.join(into) or 'no handler'}" if of_topic else (
            f"publishes to {' and '.join(into) or 'no topic'}")
        told.append(f"{vertex.kind.capitalize()} {vertex.name}{note} {does}.")
    return told


# -- where things stand ----------------------------------------------------------------------------


def _placed(graph: Graph) -> dict[Vertex, SvgBox]:
    """Columns from left to right in the direction of the events, each in the order of what leads to it."""
    layers = _layers(graph)
    columns: dict[int, list[Vertex]] = {}
    for vertex in graph.vertices:
        columns.setdefault(layers[vertex], []).append(vertex)
    boxes: dict[Vertex, SvgBox] = {}
    for number in sorted(columns):
        # What leads to a vertex stands in the columns before: its mean height orders this one.
        before = {
            vertex: [boxes[edge.source].y for edge in graph.edges if edge.target == vertex and edge.source in boxes]
            for vertex in columns[number]
        }
        for row, vertex in enumerate(sorted(before, key=lambda each: sum(before[each]) / max(1, len(before[each])))):
            boxes[vertex] = SvgBox(EDGE + number * (WIDE + GAP_X), EDGE + row * (TALL + GAP_Y))
    return {vertex: boxes[vertex] for vertex in graph.vertices}


def _layers(graph: Graph) -> dict[Vertex, int]:
    """How many steps each vertex is from where events begin; an edge that leads back does not count."""
    forward = _forward(graph)
    layers = dict.fromkeys(graph.vertices, 0)
    for _ in graph.vertices:  # the longest way has at most as many steps
        moved = False
        for source, target in forward:
            if layers[target] <= layers[source]:
                layers[target] = layers[source] + 1
                moved = True
        if not moved:
            break
    return layers


def _forward(graph: Graph) -> Sequence[tuple[Vertex, Vertex]]:
    """The edges without those that close a circle."""
    follows: dict[Vertex, list[Vertex]] = {vertex: [] for vertex in graph.vertices}
    for edge in graph.edges:
        follows[edge.source].append(edge.target)
    back: set[tuple[Vertex, Vertex]] = set()
    seen: set[Vertex] = set()
    for first in sorted(graph.vertices, key=lambda vertex: vertex.kind != "producer"):
        _walk(first, follows, seen, back)
    return [(edge.source, edge.target) for edge in graph.edges if (edge.source, edge.target) not in back]


def _walk(
    first: Vertex, follows: Mapping[Vertex, list[Vertex]], seen: set[Vertex], back: set[tuple[Vertex, Vertex]],
) -> None:
    """Depth first from one vertex; an edge to a vertex on the way there leads back."""
    if first in seen:
        return
    seen.add(first)
    way, on_way = [(first, iter(follows[first]))], {first}
    while way:
        vertex, rest = way[-1]
        target = next(rest, None)
        if target is None:
            way.pop()
            on_way.discard(vertex)
        elif target in on_way:
            back.add((vertex, target))
        elif target not in seen:
            seen.add(target)
            on_way.add(target)
            way.append((target, iter(follows[target])))


# -- how things look -------------------------------------------------------------------------------


def _linked(way: str | None, drawn: str) -> str:
    return f'<a href="{escape(way)}">{drawn}</a>' if way else drawn


def _vertex(vertex: Vertex, box: SvgBox, said: str | None, state: str, note: str | None) -> str:
    name = vertex.name if len(vertex.name) <= NAME_MAX else vertex.name[: NAME_MAX - 1] + "…"
    first, center = box.middle + (-3 if said else 5), box.x + WIDE // 2
    count = f'<text class="count" x="{center}" y="{box.middle + 14}" text-anchor="middle">{_shown(said)}</text>'
    title = f"{vertex.kind} {vertex.name}" + (f": {note}" if note else "")
    return (
        f'<g class="{escape(f"{vertex.kind} {state}".strip())}"><title>{_shown(title)}</title>'
        f'<rect class="box" x="{box.x}" y="{box.y}" width="{WIDE}" height="{TALL}" '
        f'rx="{TALL // 2 if vertex.kind == "topic" else 6}"/>'
        f'<text x="{center}" y="{first}" text-anchor="middle">{_shown(name)}</text>'
        f"{count if said else ''}</g>"
    )


def _edge(source: SvgBox, target: SvgBox) -> str:
    if target.x > source.x:
        half = (source.right + target.x) // 2
        way = (f"M{source.right},{source.middle} C{half},{source.middle} {half},{target.middle} "
               f"{target.x},{target.middle}")
    else:  # back to an earlier column, around below
        low = max(source.y, target.y) + TALL + GAP_Y // 2
        way = (f"M{source.right},{source.middle} C{source.right + GAP_X},{low} {target.x - GAP_X},{low} "
               f"{target.x},{target.middle}")
    return f'<path class="edge" d="{way}" marker-end="url(#keep-graph-arrow)"/>'


def _shown(text: str | None) -> str:
    return escape(visible(" ".join((text or "").split())))
