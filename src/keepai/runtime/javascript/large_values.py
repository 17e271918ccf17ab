"""Large values of one step, which stay outside of its VM until the script reads them.

A script gets a text in which each large value is left out (`null` stands there), and a list of the places.
bootstrap.js makes objects of it that fetch such a value when it is first read. What the script passes on untouched is
written as a reference: the value's number between two `MARK`s. JSON texts contain no raw control characters, and a
string of the script's that has one is escaped, so a script cannot write a reference; and a number means only what
this step was given. Before a text leaves the worker, `whole` puts the values in their places. Only an event that is
published may name a value instead that the step has read: by the number of the call that the host answered with it,
and its place among the cuts of that answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from ..base import LARGE, Cut

MARK, STRING = "\x01", "\x02"
_REFERENCE = re.compile(f"{MARK}([0-9]+){MARK}")
_AROUND_MAX = 8192  # characters around references; the host reads them slowly


@dataclass(eq=False)
class PartialValue:
    """An object or array from which values are left out: where it is, and the key and number of each value."""

    path: list[str | int]
    left: list[str | int]

    def within(self, *path: str | int) -> list[object]:
        """The same place, written as bootstrap.js reads it inside a larger value."""
        return [[*path, *self.path], *self.left]


class NotHere(Exception):
    """The script wants a value that the worker does not have."""


class LargeValues:
    """Numbers the large values of one step."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._names: dict[int, str] = {}  # by number: the name of a value that the host knows
        self._read: dict[int, object] = {}  # the value of a text, if it was parsed to find it

    def shown(self, text: str, cuts: Sequence[Cut] = (), call: int | None = None) -> tuple[str, list[PartialValue]]:
        """The text without its large values, and where they belong; `cuts` says where some of them are in the text. The
        host knows these as the values of a `call`, unless that is None."""
        places: list[PartialValue] = []
        if cuts:
            for index, (path, start, end) in enumerate(cuts):
                number = self._keep(text[start:end])
                places.append(PartialValue(list(path[:-1]), [path[-1], number]))
                if call is not None:
                    self._names[number] = f"{MARK}{call}.{index}{MARK}"
            text = left_out(text, cuts)
        return self._split(text, orjson.loads(text), places) if len(text) > LARGE else (text, places)

    def fetch(self, number: int) -> str:
        """The value with this number, as `reply_text` writes it: its own large members are left out again. A string is
        given as it is, after a `STRING`: the interpreter would take much longer to parse it."""
        text = self._text(number)
        if text.startswith('"'):
            return f"{STRING}{orjson.loads(text)}"
        shown = self._split(text, self._read[number], []) if number in self._read else self.shown(text)
        return reply_text(*shown)

    def whole(self, text: str) -> str:
        """A text of the script's with every reference replaced by its value."""
        if MARK not in text:
            return text
        return _REFERENCE.sub(lambda found: self._text(int(found[1])), text)

    def named(self, text: str) -> str:
        """The same, but the values that the host knows are named; if the text is long without them, none is."""
        if MARK not in text or len(text) > _AROUND_MAX:
            return self.whole(text)
        return _REFERENCE.sub(lambda found: self._names.get(int(found[1])) or self._text(int(found[1])), text)

    def _text(self, number: int) -> str:
        if not self._texts[number]:
            raise NotHere
        return self._texts[number]

    def _keep(self, text: str) -> int:
        self._texts.append(text)
        return len(self._texts) - 1

    def _split(self, text: str, value: object, places: list[PartialValue]) -> tuple[str, list[PartialValue]]:
        """Leave out the large members of an object or array too, but for those in which something is left out."""
        members: dict[str | int, object]
        if type(value) is dict:
            members = value
        elif type(value) is list:
            members = dict(enumerate(value))
        else:
            return text, places
        parts = list(map(orjson.dumps, members.values()))
        inner = {place.path[0] for place in places if place.path}
        large = [
            (number, key) for number, (key, part) in enumerate(zip(members, parts, strict=True))
            if len(part) > LARGE and key not in inner
        ]
        if not large:
            return text, places
        here = next((place for place in places if not place.path), None)
        if here is None:
            here = PartialValue([], [])
            places.append(here)  # last: what is inside comes first
        for number, key in large:
            here.left += [key, self._keep(parts[number].decode())]
            self._read[len(self._texts) - 1] = members[key]
            parts[number] = b"null"
        if type(value) is dict:
            parts = [orjson.dumps(key) + b":" + part for key, part in zip(members, parts, strict=True)]
            return f"{{{b','.join(parts).decode()}}}", places
        return f"[{b','.join(parts).decode()}]", places


def left_out(text: str, cuts: Sequence[Cut]) -> str:
    """The text with null where it is cut."""
    starts, ends = [start for _, start, _ in cuts], [end for *_, end in cuts]
    return "null".join([text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)])


def reply_text(text: str, places: list[PartialValue]) -> str:
    """A value as bootstrap.js reads it: before it, on a line of its own, the places of what is left out."""
    return f"{MARK}{orjson.dumps([place.within() for place in places]).decode()}\n{text}" if places else text
