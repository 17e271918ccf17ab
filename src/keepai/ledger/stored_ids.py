"""What the ledger keeps in another form than everybody else sees: ids as numbers, keys of mutations as bytes.

A store converts here the parameters of every statement and the columns of every row, by their names, so a name that
stands below means the same in all statements. Nothing else in Keep knows of the inner form, but the statements and the
triggers: there an id is compared only with other ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, cast

from ..model.ids import known_number, known_text, number_of, text_of

#: Parameters and columns that hold an id.
IDS = frozenset((
    "id", "workflow_id", "run_id", "event_id", "input_id", "item_id", "mutation_id", "approval_id", "repair_id",
    "proposal_id",
    "new_run_id", "lineage", "retry_of", "reserved_by", "created_by", "held_by", "host", "sender", "ledger",
    "first_id", "last_id", "text_id",
))

#: Parameters that hold an id or another word, as the account and the acts of people do: they can be looked for by it.
SUBJECTS = frozenset(("subject_id",))

#: Parameters that hold several of these.
SUBJECT_LISTS = frozenset(("subject_ids",))

#: Columns that hold several ids with commas between them.
LISTS = frozenset(("causes", "joined"))

#: Parameters and columns that hold the key of a mutation.
KEYS = frozenset(("mutation_key",))

#: Stands for a text that is no id: nothing has this number.
NO_ID = -1

_KEY_BYTES = 32

Params = Callable[[Mapping[str, object]], Sequence[object]]
Rows = Callable[[Sequence[Sequence[Any]]], list[dict[str, Any]]]


@cache
def parameters(names: tuple[str, ...]) -> Params:
    """What picks the parameters of a statement, in this order and in their inner form. Made once: hosts that open one
    ledger after the other, as `keep certify` does a thousand times, have the same statements."""
    return cast("Params", _made("params", "(" + "".join(
        f"{_converted(name, _INNER, f'params[{name!r}]')}, " for name in names) + ")", _INNER))


@cache
def rows(names: tuple[str, ...]) -> Rows:
    """What makes the rows of a statement with these columns, in their outer form, of its values."""
    row = ", ".join(f"{name!r}: {_converted(name, _OUTER, f'v{place}')}" for place, name in enumerate(names))
    values = "".join(f"v{place}, " for place in range(len(names)))
    return cast("Rows", _made("found", f"[{{{row}}} for {values} in found]", _OUTER))


def _converted(name: str, forms: Mapping[str, Callable[[Any], object]], value: str) -> str:
    """The text of an expression: a value in its other form, if it has one. Most ids are known: no call is made for
    them."""
    if name not in forms:
        return value
    form = forms[name]
    if form is _id_inside:
        return f"(known_number({value}) if type({value}) is str else None) or form_{name}({value})"
    return f"known_text({value}) or form_{name}({value})" if form is _id_outside else f"form_{name}({value})"


def _made(parameter: str, expression: str, forms: Mapping[str, Callable[[Any], object]]) -> Callable[[Any], Any]:
    """A function of one expression, written for one statement: it looks at nothing but what that statement has, and
    each run calls some fifty of them. The names of parameters and columns are Keep's own."""
    known = {"known_number": known_number, "known_text": known_text}
    made: Callable[[Any], Any] = eval(  # noqa: S307 -- nothing in it comes from outside
        f"lambda {parameter}: {expression}", {**known, **{f"form_{name}": form for name, form in forms.items()}},
    )
    return made


def _id_inside(value: object) -> int | None:
    if isinstance(value, str):
        return number_of(value) or NO_ID
    return None if value is None else NO_ID


def _subject_inside(value: str) -> int:
    """The number of an id. Other words are few: each has a negative number, made from its hash."""
    number = number_of(value)
    return -2 - int.from_bytes(sha256(value.encode(errors="replace")).digest()[:7], "big") if number is None else number


def _subjects_inside(values: Sequence[str]) -> list[int]:
    return [_subject_inside(each) for each in values]


def _id_outside(value: object) -> object:
    """What is no number was not written by Keep: it is shown as it is."""
    return text_of(value) if type(value) is int else value


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
    **dict.fromkeys(SUBJECTS, _subject_inside), **dict.fromkeys(SUBJECT_LISTS, _subjects_inside),
}
_OUTER: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(IDS | {"subject"}, _id_outside), **dict.fromkeys(LISTS, _list_outside),
    **dict.fromkeys(KEYS, _key_outside),
}
