"""The JSON codec: everything that is stored, hashed, approved and sent goes through here.

Texts have no white space, and a whole float is an integer. Objects keep the order of their keys, as scripts and
connectors wrote them. Only `canonical` sorts the keys, for what is hashed or compared, so that equal values have equal
texts. What JSON or JavaScript cannot hold exactly is refused with a `BadValue` that names the place.

There are two implementations. `orjson` reads and writes the values that it treats exactly by these rules (`_exact`), in
a tenth of the time. Everything else, and everything that is refused, uses the strict one below; a test compares the
two.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import NoReturn, TypeAlias

import orjson

from .errors import BadValue, LimitExceeded
from .fast_record import fast_record

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"


@fast_record
@dataclass(frozen=True)
class CheckedText:
    """A value inside of another that is known only by its text. `text_of` writes it, and nothing else looks at it."""

    text: str  # of this codec
    depth: int  # at which it stood when it was checked


INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64
#: Values at one depth: a list that contains itself twice would otherwise grow forever.
_LEVEL_MAX = 1 << 22
#: `orjson` writes at most 254 levels (a test checks it): inside this many more levels, it refuses what is too deep.
_LEVELS_MORE = 254 - DEPTH_MAX
_KINDS = frozenset({str, int, float, bool, type(None), list, dict, CheckedText})
_SHOWN_MAX = 60


def encode(value: object, *, what: str = "value", bytes_max: int | None = None) -> str:
    """The text of `value`; otherwise `BadValue` or `LimitExceeded`, which name the place."""
    data = _exact(value)
    text = data.decode() if data is not None else "".join(_write(_clean(value, what, 0), 0))
    if bytes_max is not None:
        check_size(text, what, bytes_max)
    return text


def decode(text: str | bytes, *, what: str = "value", bytes_max: int | None = None) -> Json:
    """The value of a JSON text under the same rules; duplicate keys are refused too."""
    return read(text, what=what, bytes_max=bytes_max)[0]


def read(text: str | bytes, *, what: str = "value", bytes_max: int | None = None) -> tuple[Json, str]:
    """The same, and the text that this codec writes for the value."""
    if bytes_max is not None:
        check_size(text, what, bytes_max)
    try:
        value = orjson.loads(text)
        if _reads_back(value, text.encode() if isinstance(text, str) else text):
            return value, text if isinstance(text, str) else text.decode()
    except ValueError:
        pass  # it is reported below, with its place
    try:
        value = _read(_DECODER, text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise BadValue(f"{what} is nested deeper than {DEPTH_MAX} levels. Flatten it.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BadValue(f"{what} is not valid JSON: {error}.") from None
    value = clean(value, what=what)
    return value, text_of(value)


def decode_around(text: str, given: Sequence[CheckedText], *, what: str = "value") -> Json:
    """The value of a text in which `NaN` stands for each of the values `given`, in this order. It must be short."""
    left = iter(given)

    def next_given(name: str) -> CheckedText:
        found = next(left, None) if name == "NaN" else None
        if found is None:
            _refuse_constant(name)
        return found

    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=next_given, parse_int=_integer)
    try:
        value = clean(_read(decoder, text), what=what)
    except RecursionError:
        raise BadValue(f"{what} is nested deeper than {DEPTH_MAX} levels. Flatten it.") from None
    except ValueError as error:
        raise BadValue(f"{what} is not valid JSON: {error}.") from None
    if next(left, None) is not None:
        raise BadValue(f"{what} is not valid JSON: a value stands where none can be.")
    return value if _not_deeper(value, 0) else decode(text_of(value), what=what)


def clean(value: object, *, what: str = "value") -> Json:
    """The value as it would be read from its text: itself if that is the same; otherwise `BadValue` with the place."""
    return value if is_exact(value) else _clean(value, what, 0)  # type: ignore[return-value]


def is_exact(value: object) -> bool:
    """Whether a value is already plain JSON. False may also mean that this cannot be decided quickly."""
    return _exact(value) is not None


def text_of(value: Json, *, what: str = "value", bytes_max: int | None = None) -> str:
    """The text of a value from `decode`, `stored` or `clean`, which have checked it; only its size is checked here."""
    data = orjson.dumps(value) if type(value) is str else _exact(value, checked=True)
    text = data.decode() if data is not None else "".join(_write(value, 0))
    if bytes_max is not None:
        check_size(text, what, bytes_max)
    return text


def canonical(value: object, *, what: str = "value") -> str:
    """The text of `value` with sorted keys, the same for equal values. Only for what is hashed or compared."""
    data = _exact(value, _SORTED)
    return data.decode() if data is not None else "".join(_write_sorted(_clean(value, what, 0), 0))


def same(one: str, other: str) -> bool:
    """Whether two texts of this codec have equal values, in any order of keys."""
    return one == other or canonical(stored(one)) == canonical(stored(other))


def stored(text: str) -> Json:
    """The value of a text that this codec wrote earlier; it is not checked again."""
    return orjson.loads(text)  # type: ignore[no-any-return]


def digest(*parts: str) -> str:
    """A hash over several texts that distinguishes where each ends."""
    pieces = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join([len(piece).to_bytes(8, "big") + piece for piece in pieces])).hexdigest()


def shown(value: object) -> str:
    """A value in the words of JavaScript, short enough for a sentence: null, 5, "text", an array, an object."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | str | float) or (isinstance(value, int) and abs(value) <= INTEGER_MAX):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= _SHOWN_MAX else f'{text[:_SHOWN_MAX]}…"'
    return "an integer" if isinstance(value, int) else f"a Python {type(value).__name__}"


def sound(text: str) -> str:
    """Text without lone surrogates and NUL, which files and databases refuse."""
    whole = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
    return whole.replace("\0", "\ufffd") if "\0" in whole else whole


def size(text: str | None) -> int:
    """How many bytes a text has when it is stored; None has none."""
    if not text:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_size(text: str | bytes, what: str, bytes_max: int) -> None:
    """Refuse a text over `bytes_max`, naming the limit and the size."""
    if len(text) * 4 <= bytes_max:
        return
    bytes_found = size(text) if isinstance(text, str) else len(text)
    if bytes_found > bytes_max:
        raise LimitExceeded(f"{what} has {bytes_found:,} bytes; the limit is {bytes_max:,}. Keep less in it.")


def check_id(value: object, what: str, *, length_max: int = 512) -> str:
    """An id that may be the key of a row: a non-empty string without NUL or lone surrogates."""
    if not isinstance(value, str) or not value:
        raise BadValue(f"{what} must be a non-empty string, not {shown(value)}.")
    if len(value) > length_max:
        raise LimitExceeded(f"{what} has {len(value):,} characters; the limit is {length_max:,}.")
    if not value.isascii():
        _text(value, what)
    if "\0" in value:
        raise BadValue(f"{what} contains a NUL character; ids must not.")
    return value


def _not_deeper(value: Json | CheckedText, depth: int) -> bool:
    """Whether every `CheckedText` in a value stands no deeper than it did when it was checked."""
    if type(value) is CheckedText:
        return depth <= value.depth
    inner: Iterable[Json] = value.values() if type(value) is dict else value if type(value) is list else ()
    return all(_not_deeper(each, depth + 1) for each in inner)


def _read(decoder: json.JSONDecoder, text: str) -> Json:
    """The value of a whole text. Most texts have no white space around them, so that is tried first."""
    try:
        value, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]
    except StopIteration:  # there is white space before it, or no value
        end = -1
    return value if end == len(text) else decoder.decode(text)  # type: ignore[no-any-return]


def _exact(value: object, option: int = 0, *, checked: bool = False) -> bytes | None:
    """The text of a value that `orjson` writes as the strict implementation would; None: use the strict one.

    `orjson` itself refuses lone surrogates, keys that are not plain strings, and integers beyond ±(2^53−1). Whether a
    number may have another form is seen faster in the text than in the value. There, null may also be a float that is
    no number; a value that was checked before has none.
    """
    kinds = _UNKNOWN if checked or type(value) is str else _plain_kinds(value, numbers=False)
    if not kinds:
        return None
    try:
        data = orjson.dumps(value, _as_it_is, _STRICT | option)
    except TypeError:
        return None
    odd = (checked and _has_odd_numbers(data)) or (float in kinds and (_has_odd_numbers(data) or _NULL(data)))
    return data if not odd or _plain_kinds(value) else None


def _reads_back(value: object, data: bytes) -> bool:
    """Whether the text from which `orjson` read a value is its exact text. Then no key is repeated in it, and no number
    was changed. The text shows whether the value may be too deep, or have a number in another form."""
    if _has_odd_numbers(data):
        if not _plain_kinds(value):
            return False
        levels = 0
    else:
        levels = _LEVELS_MORE if data.count(b"[") + data.count(b"{") > DEPTH_MAX else 0
    for _ in range(levels):
        value = [value]
    try:
        written = orjson.dumps(value, option=_STRICT)
    except TypeError:
        return False  # it may be too deep
    return written[levels : len(written) - levels] == data


def _has_odd_numbers(data: bytes) -> bool:
    """Whether a text of `orjson` may contain whole floats, or numbers that it or Python writes with an exponent."""
    return _POINT_ZERO(data) is not None or (b"-" in data and b"e-" in data) or (b"+" in data and b"e+" in data)


def _plain_kinds(value: object, *, numbers: bool = True) -> set[type]:
    """The types of all values, if there are only JSON types, not too deep, and (with `numbers`) no number that `orjson`
    would write in another way; otherwise none.

    It checks all values of one depth together, which takes half as long as one by one."""
    level, found = [value], set[type]()
    for _ in range(DEPTH_MAX + 1):
        kinds = set(map(type, level))
        if not kinds <= _KINDS:
            break
        found |= kinds
        if numbers and float in kinds and [  # whole, or with an exponent, or no number at all
            item for item in level
            if type(item) is float and (item.is_integer() or not 1e-4 <= abs(item) < INTEGER_MAX)
        ]:
            break
        inner: list[Collection[object]] = [item for item in level if type(item) is list] if list in kinds else []
        if dict in kinds:
            inner += [item.values() for item in level if type(item) is dict]
        if not inner:
            return found
        if sum(map(len, inner)) > _LEVEL_MAX:
            break
        level = list(chain.from_iterable(inner))
    return set()


def _clean(value: object, what: str, depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, what)
    if isinstance(value, int):
        return _range(int(value), what)
    if isinstance(value, float):
        return _number(value, what)
    if type(value) is CheckedText:
        return value  # type: ignore[return-value]
    if depth >= DEPTH_MAX:
        raise BadValue(f"{what} is nested deeper than {DEPTH_MAX} levels (or contains itself). Flatten it.")
    if isinstance(value, Mapping):
        return {_key(k, what): _clean(v, f"{what}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v, f"{what}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise BadValue(f"{what} is {shown(value)}, which JSON cannot carry.")


def _text(value: str, what: str) -> str:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadValue(f"{what} contains a lone surrogate, which is no Unicode text.") from None
    return str(value)


def _key(key: object, what: str) -> str:
    if not isinstance(key, str):
        raise BadValue(f"{what} has {shown(key)} as a key; keys must be strings.")
    return _text(key, f"a key of {what}")


def _range(value: int, what: str) -> int:
    if abs(value) > INTEGER_MAX:
        raise BadValue(f"{what} is an integer beyond ±(2^53−1), which JavaScript cannot hold. Use a string.")
    return value


def _number(value: float, what: str) -> int | float:
    if not math.isfinite(value):
        raise BadValue(f"{what} is {shown(value)}, which JSON cannot carry.")
    return _range(int(value), what) if value.is_integer() else value


def _integer(digits: str) -> int:
    if len(digits) > 17:
        raise ValueError(f"the integer {digits[:12]}… is beyond ±(2^53−1)")
    return int(digits)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _as_it_is(value: object) -> orjson.Fragment:
    """What `orjson` writes for a value that it does not know."""
    if type(value) is not CheckedText:
        raise TypeError
    return orjson.Fragment(value.text)


def _unknown(value: object) -> Json:
    """The same for the strict encoder, which writes what is returned."""
    if type(value) is CheckedText:
        return stored(value.text)
    raise TypeError(f"{shown(value)} was not checked before it was written")


# Made once, because making them takes longer than writing a small text. `JSONEncoder` would make one for every text.
_write: Callable[[object, int], Iterable[str]] = c_make_encoder(
    None, _unknown, encode_basestring, None, ":", ",", False, False, False,
)
_write_sorted: Callable[[object, int], Iterable[str]] = c_make_encoder(
    None, _unknown, encode_basestring, None, ":", ",", True, False, False,
)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_integer)
_STRICT = (
    orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_SORTED = orjson.OPT_SORT_KEYS
# A pattern is found in a third of the time that `in` takes.
_POINT_ZERO, _NULL = re.compile(rb"\.0").search, re.compile(rb"null").search
_UNKNOWN: set[type] = {object}
