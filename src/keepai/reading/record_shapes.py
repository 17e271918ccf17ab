"""The shape of a record as JSON, read off its class: the commands' reference and the API's document are made from it.

A shape is a word (`text`, `number`, `yes or no`, `time`, `anything`; with `?` it may be null), a list with the one
shape of its entries, or a dict of names. The name `*` stands for any others.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from ..model import records

Shape: TypeAlias = "str | list[Shape] | dict[str, Shape]"

TEXT, NUMBER, YES, TIME, ANY = "text", "number", "yes or no", "time", "anything"
_WORDS: Mapping[object, str] = {str: TEXT, int: NUMBER, float: NUMBER, bool: YES}
#: `Json` holds itself, so it is anything here.
SPACE = {"Json": object}


def of(record: type) -> dict[str, Shape]:
    """The shape of a record, as its `to_json` gives it."""
    hints = typing.get_type_hints(record, localns=SPACE)
    names = [each.name for each in dataclasses.fields(record)]
    if issubclass(record, records.Record):
        names = [name for name in (*names, *record.shown_too()) if name not in record.hidden()]
    return {name: of_type(name, hints.get(name, str)) for name in names}


def of_type(name: str, kind: Any) -> Shape:
    """The shape of a value of this type; the name of its field says whether a number is a time."""
    inner = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        rest = [each for each in inner if each is not type(None)]
        shape = of_type(name, rest[0]) if len(rest) == 1 else ANY
        return _or_null(shape) if len(rest) < len(inner) else shape
    if origin in (tuple, list):
        return [of_type("", inner[0])]
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return of(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return TEXT
    if kind is int and name.endswith("_at"):
        return TIME
    return _WORDS.get(kind, {"*": ANY} if origin in (dict, Mapping) or kind is dict else ANY)


def _or_null(shape: Shape) -> Shape:
    if isinstance(shape, str):
        return shape if shape == ANY else f"{shape}?"
    return {"?": shape}
