"""The text of a value, and where its large parts are in it, so that they need not be searched for."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.codec import Json, text_of
from .base import LARGE, Cut


def in_pieces(value: Json, depth: int = 2) -> tuple[str, tuple[Cut, ...]]:
    """The text of a checked value, and the places of its large members, and of those of its members."""
    if type(value) is list and depth:
        return _joined("[", [("", number, each) for number, each in enumerate(value)], "]", depth)
    if type(value) is dict and depth:
        return _joined("{", [(text_of(name) + ":", name, each) for name, each in value.items()], "}", depth)
    return text_of(value), ()


def _joined(
    opening: str, members: Iterable[tuple[str, str | int, Json]], closing: str, depth: int,
) -> tuple[str, tuple[Cut, ...]]:
    parts, cuts, at = list[str](), list[Cut](), len(opening)
    for name, key, value in members:
        text, inner = (text_of(value), ()) if type(value) is str else in_pieces(value, depth - 1)
        start = at + len(name)
        if inner:
            cuts += [((key, *path), start + first, start + last) for path, first, last in inner]
        elif len(text) > LARGE:
            cuts.append(((key,), start, start + len(text)))
        parts.append(name + text)
        at = start + len(text) + len(",")
    return f"{opening}{','.join(parts)}{closing}", tuple(cuts)
