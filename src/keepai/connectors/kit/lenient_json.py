"""Reads JSON that other programs wrote, and changes what JavaScript or the ledger could not hold.

A whole number beyond 2^53 becomes a string of its digits, because a rounded id is another id. Half a surrogate pair
becomes U+FFFD. A text that is not JSON, or is nested too deep, raises a ValueError.
"""

from __future__ import annotations

import json
import math
import re

from ...model.codec import DEPTH_MAX, Json

_SAFE = 2**53 - 1
_DIGITS_MAX = 17
_HALF = re.compile("[\ud800-\udfff]")


def parse_json(content: bytes | str) -> Json:
    """The value of a JSON text; raises ValueError if it has none."""
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        value: Json = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_nothing)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return _whole(value, 0)


def _integer(digits: str) -> int | str:
    if len(digits) > _DIGITS_MAX:
        return digits
    value = int(digits)
    return value if abs(value) <= _SAFE else digits


def _number(text: str) -> float | str:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number that is too large")
    return text if value.is_integer() and abs(value) > _SAFE else value


def _nothing(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")


def _whole(value: Json, depth: int) -> Json:
    if depth > DEPTH_MAX - 8:  # the value becomes a part of a larger one
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_whole(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_text(name): _whole(item, depth + 1) for name, item in value.items()}
    return value


def _text(text: str) -> str:
    return _HALF.sub("\ufffd", text)
