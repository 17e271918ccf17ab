"""What the ledger keeps in another form than everybody else sees: ids as numbers, keys of mutations as bytes.

A store converts here the parameters of every statement and the columns of every row, by their names, so a name that
stands below means the same in all statements. Nothing else in Keep knows of the inner form, but the statements and the
triggers: there an id is compared only with other ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, cast

from ..model.ids import known_number, known_text, number_of, text_of

#: Parameters and columns that hold an id.
IDS = frozenset((
    "id", "workflow_id", "run_id", "event_id", "input_id", "item_id", "mutation_id", "approval_id", "repair_id",
    "new_run_id", "lineage", "retry_of", "reserved_by", "created_by", "held_by", "host", "sender", "ledger",
    "first_id", "last_id", "text_id",
))

#: Parameters that hold an id or another word, as the account and the acts of people do: they can be looked for by it.
SUBJECTS = frozenset(("subject_id",))

#: Columns that hold several ids with commas between them.
LISTS = frozenset(("causes", "joined"))

#: Parameters and columns that hold the key of a mutation.
KEYS = frozenset(("mutation_key",))

#: Stands for a text that is no id: nothing has this number.
NO_ID = -1

_KEY_BYTES = 32

Params = Callable[[Mapping[str, object]], Sequence[object]]


def parameters(names: Sequence[str]) -> Params:
    """What picks the parameters of a statement, in this order and in their inner form."""
    if not names:
        return lambda params: ()
    pick = cast("Params", itemgetter(*names)) if len(names) > 1 else lambda params: (params[names[0]],)
    convert = [(place, _INNER[name]) for place, name in enumerate(names) if name in _INNER]
    if not convert:
        return pick

    def picked(params: Mapping[str, object]) -> Sequence[object]:
        values = list(pick(params))
        for place, inner in convert:
            values[place] = inner(values[place])
        return values

    return picked


def columns(names: Iterable[str]) -> list[tuple[str, Callable[[Any], Any]]]:
    """The columns of a statement that have another form outside, each with what gives it."""
    return [(name, _OUTER[name]) for name in names if name in _OUTER]


def _id_inside(value: object) -> int | None:
    if isinstance(value, str):
        return known_number(value) or number_of(value) or NO_ID
    return None if value is None else NO_ID


def _subject_inside(value: str) -> int:
    """The number of an id. Other words are few: each has a negative number, made from its hash."""
    number = number_of(value)
    return -2 - int.from_bytes(sha256(value.encode(errors="replace")).digest()[:7], "big") if number is None else number


def _id_outside(value: object) -> object:
    """What is no number was not written by Keep: it is shown as it is."""
    return known_text(value) or (text_of(value) if type(value) is int else value)


def _list_outside(value: str | None) -> str | None:
    return value and ",".join([text_of(int(each)) if each.isdecimal() else each for each in value.split(",")])


def _key_inside(value: str | None) -> bytes | None:
    """The 64 hexadecimal digits of a key as bytes. Keep makes no others; any other text is kept as it is spelled."""
    if value is None:
        return None
    try:
        return bytes.fromhex(value) if len(value) == 2 * _KEY_BYTES else value.encode()
    except ValueError:
        return value.encode()


def _key_outside(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    return value.hex() if len(value) == _KEY_BYTES else value.decode(errors="replace")


_INNER: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(IDS, _id_inside), **dict.fromkeys(KEYS, _key_inside),
    **dict.fromkeys(SUBJECTS, _subject_inside),
}
_OUTER: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(IDS | {"subject"}, _id_outside), **dict.fromkeys(LISTS, _list_outside),
    **dict.fromkeys(KEYS, _key_outside),
}
