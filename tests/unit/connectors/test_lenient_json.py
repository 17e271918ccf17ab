"""JSON of other programs is changed so that scripts and the ledger can hold it, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepai.connectors.kit.lenient_json import parse_json
from keepai.model.codec import encode


def test_numbers_that_javascript_cannot_hold_become_their_digits() -> None:
    assert parse_json('[9007199254740991, 9007199254740993, -9007199254740993, 1e3]') == [
        9007199254740991, "9007199254740993", "-9007199254740993", 1000.0,
    ]
    assert parse_json("[" + "9" * 5000 + "]") == ["9" * 5000]


def test_half_a_character_is_replaced_and_a_whole_one_is_not() -> None:
    assert parse_json(r'{"\ud800": "a\udc00b", "ok": "\ud83d\ude00"}') == {"\ufffd": "a\ufffdb", "ok": "😀"}


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "1e999", "[" * 100_000, "[" * 500 + "]" * 500, b"\xff"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (its own words are for nobody)
        parse_json(text)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4), max_leaves=12,
))
def test_whatever_comes_can_be_kept(value: object) -> None:
    import json

    encode(parse_json(json.dumps(value)))
