"""Reads JSON that a database holds: a number that JavaScript cannot hold exactly becomes a text."""

from __future__ import annotations

import json
import math

from ...model.codec import INTEGER_MAX, Json


def exact(text: str) -> Json:
    """The value of a JSON text; raises `json.JSONDecodeError`."""
    value: Json = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=str)
    return value


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= 17 and abs(int(text)) <= INTEGER_MAX else text


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text
