"""The codec: keys keep their order, equal values have equal canonical texts, and inexact values are refused."""

from __future__ import annotations

import datetime
import json
import math
import random
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keepai.model import codec
from keepai.model.errors import BadValue, KeepError, LimitExceeded

EXACT = 2**53 - 1
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-EXACT, EXACT) | st.floats(-(2.0**52), 2.0**52)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)


def shuffled(value: object, chance: random.Random) -> object:
    """The same value with its keys in another order and its whole numbers in the other type."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    if isinstance(value, list):
        return tuple(shuffled(each, chance) for each in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


# Canonical


@given(VALUES, st.randoms(use_true_random=False))
def test_equal_values_have_equal_canonical_texts(value: object, chance: random.Random) -> None:
    other = shuffled(value, chance)
    assert codec.canonical(other) == codec.canonical(value)
    assert codec.same(codec.encode(other), codec.encode(value))


@given(VALUES)
def test_keys_keep_their_order(value: object) -> None:
    for text in (codec.encode(value), codec.text_of(codec.clean(value))):
        for back in (codec.decode(text), codec.stored(text)):
            assert ordered(back) == ordered(value)


def ordered(value: object) -> object:
    """A value in which another order of keys is another value."""
    if isinstance(value, dict):
        return [(key, ordered(each)) for key, each in value.items()]
    return [ordered(each) for each in value] if isinstance(value, list) else value


@given(VALUES)
def test_a_text_reads_back_as_the_value_and_writes_as_the_same_text(value: object) -> None:
    text = codec.encode(value)
    assert codec.decode(text) == value
    assert codec.stored(text) == value
    assert codec.encode(codec.decode(text)) == text
    assert codec.decode(text.encode()) == value


@given(VALUES, VALUES)
def test_different_values_have_different_texts(one: object, other: object) -> None:
    assert (codec.canonical(one) == codec.canonical(other)) == (plain(one) == plain(other))
    assert codec.same(codec.encode(one), codec.encode(other)) == (plain(one) == plain(other))


def plain(value: object) -> object:
    """A value that compares as JSON does: true is not 1."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@given(VALUES)
def test_white_space_and_escapes_do_not_matter(value: object) -> None:
    assert codec.encode(codec.decode(json.dumps(value, indent=2))) == codec.encode(value)


@pytest.mark.parametrize(("value", "text"), [
    (1.0, "1"), (-0.0, "0"), (1e3, "1000"), (0.1, "0.1"), (1e-9, "1e-09"), (True, "true"), (None, "null"),
    ({"b": 1, "a": [1, 2.0]}, '{"a":[1,2],"b":1}'), ("é\u2028😀\0", '"é\u2028😀\\u0000"'), ((), "[]"),
    (float(EXACT), str(EXACT)), (-EXACT, str(-EXACT)), ({"é": 1, "z": 2}, '{"z":2,"é":1}'),
    (MappingProxyType({"a": 1}), '{"a":1}'), (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
])
def test_canonical_form_is_pinned_because_it_is_hashed(value: object, text: str) -> None:
    assert codec.canonical(value) == text


def test_composed_and_decomposed_letters_stay_different() -> None:
    assert codec.encode("\u00e9") != codec.encode("e\u0301")


def test_an_enum_is_its_value() -> None:
    class Colour(StrEnum):
        RED = "red"

    assert codec.encode({Colour.RED: Colour.RED}) == '{"red":"red"}'
    assert type(codec.decode(codec.encode(Colour.RED))) is str


# Refused


def cycle() -> object:
    inner: list[object] = []
    inner.append({"again": [inner]})
    return inner


def nested(levels: int) -> object:
    value: object = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("value", [
    math.nan, math.inf, -math.inf, "\ud800", "a\udfffb", {"\ud800": 1}, EXACT + 1, -EXACT - 1, 10**400,
    b"bytes", {1, 2}, object(), 1j, {1: "key"}, {None: 1}, {("a",): 1}, {True: 1}, nested(65), cycle(),
    [{"deep": [math.nan]}], {"x": {"y": "\ud800"}}, range(3), iter([1]),
], ids=lambda value: type(value).__name__)
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(BadValue) as refused:
        codec.encode(value, what="payload")
    assert "payload" in refused.value.message


@pytest.mark.parametrize("text", [
    "NaN", "Infinity", "-Infinity", "[NaN]", '"\\ud800"', '{"\\udfff": 1}', '"\\ude00\\ud83d"', str(EXACT + 1),
    str(-EXACT - 1), "1" * 5000, "-" + "9" * 18, '{"a":1,"a":1}', '[{"a":1,"b":2,"\\u0061":3}]', "1e999", "-1e999",
    "[" * 65 + "]" * 65, "[" * 100_000, '{"a":' * 100_000, "", " ", "nul", "[1,]", "{'a':1}", '"\n"',
    "1 2", "\ufeff1", "01", "+1",
], ids=lambda text: text[:20])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        codec.decode(text, what="the answer")
    assert "the answer" in refused.value.message
    refused.value.message.encode()  # the sentence itself can be kept and shown


@pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', b'"\xc3"', b"\0", b"\xfe\xff\xd8\x00", b'"\x80"'])
def test_bytes_that_are_no_unicode_are_refused(data: bytes) -> None:
    with pytest.raises(BadValue):
        codec.decode(data)


@pytest.mark.parametrize("value", [2.0**53, -(2.0**53), 1e20])
def test_a_whole_float_beyond_what_javascript_holds_is_refused_as_the_integer_is(value: float) -> None:
    # JSON.stringify(1e20) is 100000000000000000000: a script could be given it and not give it back.
    with pytest.raises(BadValue):
        codec.encode(value)
    with pytest.raises(BadValue):
        codec.decode(repr(value))


@pytest.mark.parametrize(("text", "twice"), [('{"a":1,"b":2,"a":1}', '"a"'), ('[{"x":{"k":1,"k":2}}]', '"k"')])
def test_a_key_that_stands_twice_is_named(text: str, twice: str) -> None:
    with pytest.raises(BadValue, match=twice):
        codec.decode(text)


def test_the_place_of_a_bad_value_is_named() -> None:
    with pytest.raises(BadValue, match=r"payload\.rows\[1\]\.amount"):
        codec.encode({"rows": [{}, {"amount": math.nan}]}, what="payload")


def test_the_deepest_value_that_is_allowed_passes() -> None:
    text = codec.encode(nested(codec.DEPTH_MAX))
    assert codec.encode(codec.decode(text)) == text
    with pytest.raises(BadValue, match="64"):
        codec.decode("[" * 65 + "]" * 65)


@given(VALUES)
def test_size_is_counted_in_bytes_and_named(value: object) -> None:
    text = codec.encode(value)
    size = len(text.encode())
    assert codec.encode(value, bytes_max=size) == text
    assert codec.decode(text, bytes_max=size) == value
    for act in (lambda: codec.encode(value, bytes_max=size - 1), lambda: codec.decode(text, bytes_max=size - 1)):
        with pytest.raises(LimitExceeded, match=f"{size:,} bytes; the limit is {size - 1:,}"):
            act()


@given(st.text() | st.binary())
@example("[" * 100_000)
@example("9" * 5000)
@example("-")
@example(b"\xff\xfe[\x00")
@example(b"\x00\x00\xfe\xff")
def test_no_text_or_bytes_cause_a_host_exception(data: str | bytes) -> None:
    try:
        value = codec.decode(data)
    except KeepError as error:
        error.message.encode()
    else:
        assert codec.decode(codec.encode(value)) == value


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.none() | st.integers() | st.text() | st.binary(), inner),
)


@given(ODD)
def test_no_value_causes_a_host_exception(value: object) -> None:
    try:
        text = codec.encode(value)
    except KeepError as error:
        error.message.encode()
    else:
        assert codec.encode(codec.decode(text)) == text


# Ids and digests


@given(TEXT.filter(lambda text: text and "\0" not in text and len(text) <= 512))
def test_an_id_is_any_short_text_without_nul(text: str) -> None:
    assert codec.check_id(text, "messageId") == text


@pytest.mark.parametrize("value", ["", None, 1, 1.5, True, [], {}, b"a", "a\0b", "\0", "\ud800"])
def test_what_cannot_be_an_id_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match="messageId"):
        codec.check_id(value, "messageId")


def test_an_integer_too_long_to_be_printed_is_refused_in_every_place() -> None:
    monster = 10**5000  # Python refuses to turn it into digits
    for act in (
        lambda: codec.encode([monster]), lambda: codec.encode({monster: 1}),
        lambda: codec.check_id(monster, "messageId"),
    ):
        with pytest.raises(BadValue):
            act()


def test_a_long_id_is_refused_with_its_length() -> None:
    with pytest.raises(LimitExceeded, match="513 characters; the limit is 512"):
        codec.check_id("a" * 513, "messageId")


@given(st.lists(st.text()), st.lists(st.text()))
def test_a_digest_keeps_the_borders_of_its_parts(one: list[str], other: list[str]) -> None:
    assert (codec.digest(*one) == codec.digest(*other)) == (one == other)


def test_digests_are_pinned_because_they_are_stored() -> None:
    assert codec.digest("a", "bc") == "3fafa1cf2f19a7c1129beb20cf0983f73a489a221fc0dd2f16d1be292d089205"


@given(VALUES)
def test_a_checked_value_is_what_its_text_gives_back(value: object) -> None:
    assert codec.clean(value) == codec.stored(codec.encode(value))


def test_a_value_that_needs_no_change_is_itself() -> None:
    value = {"a": [1, 0.5, "ü", None, True]}
    assert codec.clean(value) is value


@pytest.mark.parametrize("around", ["{}", " {}", "{}\n", "\t\r\n {} \n"])
def test_white_space_around_a_text_does_not_matter(around: str) -> None:
    assert codec.decode(around.replace("{}", "[1]")) == [1]


@pytest.mark.parametrize("text", ["", " ", "1 2", "[1]]", "\ufeff1", "{} x"])
def test_a_text_with_more_or_less_than_one_value_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="not valid JSON"):
        codec.decode(text)


_ATOMS = st.sampled_from([
    "0", "-0", "1.0", "1.5", "-0.0", "1e400", "1e2", "9007199254740991", "9007199254740992", "-9007199254740992",
    "99999999999999999", "12345678901234567890", "9007199254740993.0", "true", "null", "NaN", "Infinity", "01", ".5",
    '"a.b"', '"[[{"', '"\\u0041"', '"\\ud800"', '"ü"', " 1 ", "",
])
_TEXTS = st.recursive(_ATOMS, lambda inner: st.one_of(
    st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]"),
    st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=3).map(
        lambda pairs: "{" + ",".join(f'"{key}":{part}' for key, part in pairs) + "}"),
))


def _read(text: str | bytes) -> tuple[str, str]:
    try:
        return "value", repr(codec.decode(text))
    except KeepError as error:
        return type(error).__name__, error.message


@given(_TEXTS)
@example("[" * codec.DEPTH_MAX + "]" * codec.DEPTH_MAX)
@example("[" * (codec.DEPTH_MAX + 1) + "]" * (codec.DEPTH_MAX + 1))
@example('{"a":' * codec.DEPTH_MAX + "[]" + "}" * codec.DEPTH_MAX)
def test_a_text_that_looks_plain_is_read_and_refused_as_carefully_as_its_bytes(text: str) -> None:
    assert _read(text) == _read(text.encode())


# Two ways, one result


class Word(str):
    pass


class Count(int):
    pass


class Share(float):
    pass


class Row(dict):  # type: ignore[type-arg]
    pass


class Rows(list):  # type: ignore[type-arg]
    pass


class Pair(NamedTuple):
    one: object
    other: object


class Size(IntEnum):
    ONE = 1


class Name(StrEnum):
    ANN = "ann"


class Other(Enum):
    THING = "thing"


@dataclass
class Point:
    x: int = 1


_NUMBERS = st.integers() | st.floats() | st.integers(-(2**54), 2**54) | st.sampled_from([
    0, -0.0, 0.0, 1.0, 1e-4, 9.9e-5, 1e-5, 1e-7, 5e-324, 1e15, 1.5e15, 1e16, 1e22, 1.7e308, math.nan, math.inf, EXACT,
    EXACT + 1, -EXACT - 1, float(EXACT), 2.0**53, 4503599627370495.5, 2**63, 2**64, 10**400, 0.1 + 0.2, True,
])
_FOREIGN = st.sampled_from([
    Word("word"), Word("\ud800"), Count(7), Count(2**60), Share(0.5), Share(2), Size.ONE, Name.ANN, Other.THING,
    Point(), Point,
    uuid.UUID(int=7), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.date(2026, 1, 1), Decimal("1.5"),
    b"bytes", {1, 2}, 1j, object, orjson.Fragment(b"no JSON"), MappingProxyType({"a": 1}), OrderedDict(b=1, a=2),
    range(2), memoryview(b"x"), (), (1, (2,)),
])
_KEYS = st.text() | TEXT | st.sampled_from([
    "a", "b", "\ud800", "", Word("a"), Name.ANN, 1, 1.5, None, True, ("a",), b"a",
])
_ANY = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text() | TEXT | _FOREIGN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple), st.lists(inner, max_size=3).map(Rows),
        st.dictionaries(TEXT, inner, max_size=3).map(Row), st.tuples(inner, inner).map(lambda two: Pair(*two)),
    ),
    max_leaves=12,
)


def outcome(act: Callable[[], object]) -> tuple[str, str]:
    """What came of it: the value with its types, or the refusal in words."""
    try:
        return "value", repr(act())
    except KeepError as error:
        return type(error).__name__, error.message


def strictly(act: Callable[[], object]) -> tuple[str, str]:
    """What comes of it when nothing goes the fast way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "_exact", lambda value, option=0, checked=False: None)
        patched.setattr(codec, "_reads_back", lambda value, data: False)
        return outcome(act)


@given(_ANY, st.integers(0, 3), st.integers(60, 66))
@example([math.nan], 0, 0)
@example({"a": {"\ud83d": 1}}, 1, 63)
def test_what_is_written_fast_is_what_is_written_strictly(value: object, kind: int, depth: int) -> None:
    for _ in range(depth if kind else 0):
        value = [value] if kind == 1 else {"k": value} if kind == 2 else ["x", {"k": value, "z": 0.5}]
    for act in (codec.encode, codec.canonical, codec.clean):
        assert outcome(lambda act=act: act(value, what="it")) == strictly(lambda act=act: act(value, what="it"))
    if (clean := outcome(lambda: codec.clean(value)))[0] == "value":
        kept = codec.clean(value)
        assert outcome(lambda: codec.text_of(kept)) == strictly(lambda: codec.text_of(kept)), clean
        assert repr(codec.stored(codec.encode(value))) == repr(json.loads(codec.encode(value)))
        assert not codec.is_exact(value) or repr(kept) == repr(value)


@given(st.floats(1e-5, 2.0**53))
def test_a_number_has_the_same_text_on_both_ways(number: float) -> None:
    for each in (number, -number, {"rows": [number, 1]}):
        assert outcome(lambda each=each: codec.encode(each)) == strictly(lambda each=each: codec.encode(each))


_PARTS = st.one_of(
    _TEXTS, TEXT.map(json.dumps), st.text().map(json.dumps), st.floats().map(repr), st.integers().map(str),
    TEXT.map(lambda text: json.dumps(text, ensure_ascii=False)), _ANY.map(repr),
    st.sampled_from([
        '"\x7f"', '"\\/"', '"\\u0000"', '"\0"', '"\t"', "1E5", "1e+5", "1.50", "0.00001", "1e-5", "-1", "- 1", "\ud800",
    ]),
)
_AROUND = st.sampled_from(["{}", "[{}]", '{"a":{}}', '{"a":1,"b":{}}', " {} ", '{"b":2,"b":{}}'])


@given(st.lists(_PARTS, min_size=1, max_size=3), _AROUND)
@example(["[" * 64 + "]" * 64], "{}")
@example(["[" * 64 + "]" * 64], "[{}]")
@example(["[" * 300 + "]" * 300], "{}")
@example(["[" * 2000], "{}")
def test_what_is_read_fast_is_what_is_read_strictly(parts: list[str], around: str) -> None:
    text = around.replace("{}", ",".join(parts))
    assert outcome(lambda: codec.decode(text, what="it")) == strictly(lambda: codec.decode(text, what="it"))
    data = text.encode("utf-8", "surrogatepass")
    assert outcome(lambda: codec.decode(data, what="it")) == strictly(lambda: codec.decode(data, what="it"))


@given(st.lists(_PARTS, min_size=1, max_size=3), _AROUND, st.sampled_from(["pad", "numbers"]))
@example(["[" * 63 + "]" * 63], "[{}]", "pad")
@example(["[" * 62 + "1" + "]" * 62], "[{}]", "pad")
@example(["[" * 62 + "{}" + "]" * 62], "[{}]", "pad")
@example(["[" * 64 + "1" + "]" * 64], "{}", "pad")
@example(["[" * 64 + "]" * 64], "{}", "pad")
@example(["1e+16"], "[{}]", "pad")
@example(["1e+22"], "[{}]", "pad")
@example(["1e16"], "[{}]", "pad")
@example(["1.0"], "[{}]", "pad")
@example(["9007199254740992"], "[{}]", "pad")
@example(["9007199254740993.5"], "[{}]", "pad")
@example(["-0"], "[{}]", "pad")
@example(["1e-7"], "[{}]", "pad")
@example(["0.00001"], "[{}]", "pad")
@example(['{"a":1,"a":1}'], "[{}]", "pad")
@settings(deadline=None)
def test_a_long_text_is_read_as_strictly_as_a_short_one(parts: list[str], around: str, more: str) -> None:
    values: list[object] = [0.25, 1] if more == "numbers" else ["x"]
    padding = json.dumps(values * 1000, separators=(",", ":"))
    text = f'[{around.replace("{}", ",".join(parts))},{padding}]'
    found = outcome(lambda: codec.decode(text, what="it"))
    assert found == strictly(lambda: codec.decode(text, what="it"))
    if found[0] == "value":
        kept = codec.decode(text)
        assert outcome(lambda: codec.text_of(kept)) == strictly(lambda: codec.text_of(kept))


def test_orjson_writes_as_many_levels_as_the_codec_relies_on() -> None:
    for leaf in (1, [1], {"a": 1}):
        deep: object = leaf
        for _ in range(254 - (leaf != 1)):
            deep = [deep]
        orjson.dumps(deep)
        with pytest.raises(TypeError):
            orjson.dumps([deep])


@pytest.mark.parametrize("value", [
    {"rows": [{"id": "r1", "n": 1, "price": 0.25, "ok": True, "none": None}] * 3}, "ü" * 10, [], {}, 5, None, [[[]]],
])
def test_everyday_values_go_the_fast_way(value: object) -> None:
    assert codec.is_exact(value)


def test_a_list_that_contains_itself_many_times_is_refused_at_once() -> None:
    twice: list[object] = []
    twice += [twice, twice]
    often: list[object] = []
    often += [often] * 100_000
    for value in (twice, often):
        with pytest.raises(BadValue, match="contains itself"):
            codec.encode(value)


ROWS = [{"n": 0.05, "t": "é", "no": None} for _ in range(3)]
CHECKED = codec.CheckedText(codec.encode(ROWS), 1)


@pytest.mark.parametrize("around", [0.05, 1.0, 1e-7, None, "x", [1.5, 2]])
def test_a_value_known_by_its_text_is_written_as_it_is(around: object) -> None:
    value = [CHECKED, {"a": around, "b": CHECKED}]
    assert codec.text_of(codec.clean(value)) == codec.encode([ROWS, {"a": around, "b": ROWS}])


@pytest.mark.parametrize("text", ["[NaN,1]", ' {"a" : NaN, "b":0.05}', '{"a":"NaN","b":[1.0,NaN]}'])
def test_a_text_around_values_is_read_as_if_they_were_in_it(text: str) -> None:
    found = codec.decode_around(text, [CHECKED])
    assert codec.text_of(found) == codec.encode(codec.decode(re.sub('NaN(?!")', CHECKED.text, text)))


@pytest.mark.parametrize("text", [
    "[1]", "[NaN,NaN]", "[Infinity]", "[-Infinity]", '["NaN"]', "{NaN:1}", "NaN NaN", "NaN,", "[NaN", '{"a":NaN,"a":1}',
    "[NaN,9007199254740993]", "[NaN,1e999]", r'[NaN,"\ud800"]', "[" * 64 + "NaN" + "]" * 64, "[" * 9999 + "NaN",
])
def test_a_text_around_values_is_read_as_strictly_as_any(text: str) -> None:
    with pytest.raises(BadValue):
        codec.decode_around(text, [CHECKED])


def test_a_value_that_stands_deeper_than_it_was_checked_is_checked_again() -> None:
    deep = codec.CheckedText("[" * 63 + "]" * 63, 1)
    assert codec.decode_around("[NaN]", [deep]) == [deep]
    with pytest.raises(BadValue, match="deeper than 64"):
        codec.decode_around("[[NaN]]", [deep])
    assert codec.decode_around("[[NaN]]", [CHECKED]) == [[ROWS]]
