"""Every kind of id, and its two forms: the number in the ledger, and the text that everything else uses.

A number has 63 bits: 43 for the milliseconds since 1970 (until the year 2248), 16 that distinguish ids of the same
millisecond, and 4 for the kind. The text is the prefix of the kind and the other 59 bits as twelve digits. So the ids
of a kind sort by the time at which they were made, and each text means one number. Any other text is not an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

#: Prefix → its number in the ledger, and what it names. The numbers are stored in ledgers and never change.
KINDS: Mapping[str, tuple[int, str]] = {
    "wf": (1, "workflow"), "hst": (2, "host"), "run": (3, "run"), "evt": (4, "event"), "inp": (5, "input"),
    "mut": (6, "mutation"), "itm": (7, "item"), "apr": (8, "approval"), "fix": (9, "repair"),
    "prp": (10, "proposal"),
}

MS_BITS, CHANCE_BITS, KIND_BITS = 43, 16, 4

_WIDTH = 12
_LAST = "f" + "z" * (_WIDTH - 1)  # 59 bits: the first digit uses four
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_AS_PYTHON = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")  # the digits that `int` reads
_MADE_MAX = 1 << (MS_BITS + CHANCE_BITS)
_PREFIXES = {number: prefix for prefix, (number, _) in KINDS.items()}

#: A cache of conversions in both directions: a run uses each of its ids about ten times. `known_…` reads only it.
_numbers: dict[str, int] = {}
_texts: dict[int, str] = {}
_KNOWN_MAX = 8_192
known_number: Callable[[str], int | None] = _numbers.get
known_text: Callable[[object], str | None] = _texts.get  # type: ignore[assignment]


def text_of(number: int) -> str:
    """The id of a number. A number that Keep never made is shown as it is."""
    known = _texts.get(number)
    if known is not None:
        return known
    prefix = _PREFIXES.get(number & 15)
    if prefix is None or not 0 < number < _MADE_MAX << KIND_BITS:
        return str(number)
    made, pairs = number >> KIND_BITS, _PAIRS
    text = (
        f"{prefix}_{pairs[made >> 50]}{pairs[made >> 40 & 1023]}{pairs[made >> 30 & 1023]}"
        f"{pairs[made >> 20 & 1023]}{pairs[made >> 10 & 1023]}{pairs[made & 1023]}"
    )
    _remember(text, number)
    return text


def number_of(text: str) -> int | None:
    """The number of an id; None if the text is not an id."""
    known = _numbers.get(text)
    if known is not None:
        return known
    prefix, _, digits = text.partition("_")
    if prefix not in KINDS or len(digits) != _WIDTH:
        return None
    try:
        number = int(digits.translate(_AS_PYTHON), 32) << KIND_BITS | KINDS[prefix][0]
    except ValueError:
        return None
    return number if text_of(number) == text else None  # `int` accepts more than one spelling


def earliest(prefix: str, ms: int) -> str:
    """The lowest id of a kind that can have been made at this moment, or later."""
    return text_of(max(1, ms) << (CHANCE_BITS + KIND_BITS) | KINDS[prefix][0])


def range_of(beginning: str) -> tuple[str, str] | None:
    """The first and the last id with this beginning; None if there is none."""
    prefix, line, digits = beginning.partition("_")
    last = digits.ljust(_WIDTH, "z") if digits else _LAST
    ends = f"{prefix}{line}{digits.ljust(_WIDTH, '0')}", f"{prefix}{line}{last}"
    return None if None in map(number_of, ends) else ends


def typed_name(name: str, workflow_id: str) -> str:
    """A workflow as it can safely be typed: a script chose its name, and a shell would read it."""
    return name if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) else workflow_id


def _remember(text: str, number: int) -> None:
    if len(_numbers) >= _KNOWN_MAX:
        _numbers.clear()
        _texts.clear()
    _numbers[text], _texts[number] = number, text
