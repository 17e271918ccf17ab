"""Large values of one step, which stay outside of its VM until the script reads them.

What a script is given is a text in which each large value is left out (`null` stands there), and a list of the places.
bootstrap.js makes objects of it that fetch such a value when it is first read. What the script passes on untouched is
written as a reference: the value's number between two `MARK`s. JSON texts contain no raw control characters, and a
string of the script's that has one is escaped, so a script cannot write a reference; and a number means only what
this step was given. References never leave the worker: `whole` puts the values in their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from ..base import LARGE, Cut

MARK = "\x01"
_REFERENCE = re.compile(f"{MARK}([0-9]+){MARK}")


@dataclass(eq=False)
class PartialValue:
    """An object or array from which values are left out: where it is, and the key and number of each value."""

    path: list[str | int]
    left: list[str | int]

    def within(self, *path: str | int) -> list[object]:
        """As bootstrap.js reads it, if the whole is a part of something else."""
        return [[*path, *self.path], *self.left]


class NotHere(Exception):
    """The script wants a value that the worker does not have."""


class LargeValues:
    """Numbers the large values of one step."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._read: dict[int, object] = {}  # the value of a text, if it was parsed to find it

    def shown(self, text: str, cuts: Sequence[Cut] = ()) -> tuple[str, list[PartialValue]]:
        """The text without its large values, and where they belong; `cuts` says where some of them are in the text."""
        places: list[PartialValue] = []
        if cuts:
            text, places = self._cut(text, cuts)
        return self._split(text, orjson.loads(text), places) if len(text) > LARGE else (text, places)

    def fetch(self, number: int) -> str:
        """The value with this number, as `reply_text` writes it: its own large members are left out again."""
        text = self._text(number)
        shown = self._split(text, self._read[number], []) if number in self._read else self.shown(text)
        return reply_text(*shown)

    def whole(self, text: str) -> str:
        """A text of the script's with every reference replaced by its value."""
        if MARK not in text:
            return text
        return _REFERENCE.sub(lambda found: self._text(int(found[1])), text)

    def _text(self, number: int) -> str:
        if not self._texts[number]:
            raise NotHere
        return self._texts[number]

    def _keep(self, text: str) -> int:
        self._texts.append(text)
        return len(self._texts) - 1

    def _cut(self, text: str, cuts: Sequence[Cut]) -> tuple[str, list[PartialValue]]:
        places = [PartialValue(list(path[:-1]), [path[-1], self._keep(text[start:end])]) for path, start, end in cuts]
        return left_out(text, cuts), places

    def _split(self, text: str, value: object, places: list[PartialValue]) -> tuple[str, list[PartialValue]]:
        """Leave out the large members of an object or array too, but for those in which something is left out."""
        if type(value) is dict:
            names = [orjson.dumps(key).decode() + ":" for key in value]
            parts = self._without(value, value.values(), places)
            return "{" + ",".join(map(str.__add__, names, parts)) + "}", places
        if type(value) is list:
            return "[" + ",".join(self._without(range(len(value)), value, places)) + "]", places
        return text, places

    def _without(self, keys: Iterable[str | int], values: Iterable[object], places: list[PartialValue]) -> list[str]:
        """The texts of an object's or array's members, of which large ones are kept here."""
        parts = list[str]()
        inner = {place.path[0] for place in places if place.path}
        here = next((place for place in places if not place.path), None) or PartialValue([], [])
        for key, value in zip(keys, values, strict=True):
            part = orjson.dumps(value).decode()
            if len(part) > LARGE and key not in inner:
                here.left += [key, self._keep(part)]
                self._read[len(self._texts) - 1] = value
                part = "null"
            parts.append(part)
        if here.left and here not in places:
            places.append(here)  # last: what is inside comes first
        return parts


def left_out(text: str, cuts: Sequence[Cut]) -> str:
    """The text with null where it is cut."""
    starts, ends = [start for _, start, _ in cuts], [end for *_, end in cuts]
    return "null".join([text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)])


def reply_text(text: str, places: list[PartialValue]) -> str:
    """A value as bootstrap.js reads it: before it, on a line of its own, the places of what is left out."""
    return f"{MARK}{orjson.dumps([place.within() for place in places]).decode()}\n{text}" if places else text
