"""A script's text, line by line, in pieces with their kind, so that a door can colour it. The text is never changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from ..script.tree import parse, raw_nodes

if TYPE_CHECKING:
    import tree_sitter

#: What is coloured, by the grammar's names.
_KINDS = {
    "comment": "comment", "string": "string", "string_fragment": "string", "regex": "string", "number": "number",
    "true": "number", "false": "number", "null": "number", "undefined": "number", "property_identifier": "name",
    "shorthand_property_identifier": "name",
}
_WORD_MIN = 2  #: an anonymous node of so many letters is a keyword
BYTES_MAX = 200_000  #: a longer text stays without colours

Piece = tuple[str, str]  #: kind, or nothing, and text


@lru_cache(maxsize=32)
def coloured(source: str) -> tuple[tuple[Piece, ...], ...]:
    """The lines of a text, without the ends of the lines."""
    raw = source.encode("utf-8", "replace")
    if len(raw) > BYTES_MAX:
        return tuple((("", line),) for line in source.split("\n"))
    pieces, at = list[Piece](), 0
    for kind, start, end in _marked(raw):
        if start >= at:
            pieces += [("", _text(raw, at, start)), (kind, _text(raw, start, end))]
            at = end
    pieces.append(("", _text(raw, at, len(raw))))
    return tuple(map(tuple, _lines(pieces)))


def _marked(raw: bytes) -> Iterator[tuple[str, int, int]]:
    """Each node with a colour, in the order of the text; one inside another follows it."""
    for cursor, _ in raw_nodes(parse(raw)[0]):
        node = cursor.node
        kind = _kind(node) if node is not None else None
        if node is not None and kind:
            yield kind, node.start_byte, node.end_byte


def _kind(node: tree_sitter.Node) -> str | None:
    if node.type in _KINDS:
        return _KINDS[node.type]
    return "keyword" if not node.is_named and len(node.type) >= _WORD_MIN and node.type.isalpha() else None


def _lines(pieces: list[Piece]) -> Iterator[list[Piece]]:
    line: list[Piece] = []
    for kind, text in pieces:
        first, *rest = text.split("\n")
        line.append((kind, first))
        for each in rest:
            yield [piece for piece in line if piece[1]]
            line = [(kind, each)]
    if any(text for _, text in line):
        yield [piece for piece in line if piece[1]]


def _text(raw: bytes, start: int, end: int) -> str:
    return raw[start:end].decode("utf-8", "replace")
