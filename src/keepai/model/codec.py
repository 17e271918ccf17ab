"""The one JSON codec: what is stored, hashed, approved and sent goes through here.

There is no white space, and a whole float is an integer. Objects keep the order of their keys, as scripts and
connectors wrote them. Only `canonical` sorts them, for what is hashed or compared: equal values have equal texts there.
What JSON or JavaScript cannot carry exactly is refused with a `BadValue` that says where it stands.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import NoReturn, TypeAlias

from .errors import BadValue, LimitExceeded

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64
_SHOWN_MAX = 60


def encode(value: object, *, what: str = "value", bytes_max: int | None = None) -> str:
    """The text of `value`, or `BadValue`/`LimitExceeded` naming the place."""
    text = "".join(_write(clean(value, what=what), 0))
    if bytes_max is not None:
        check_size(text, what, bytes_max)
    return text


def decode(text: str | bytes, *, what: str = "value", bytes_max: int | None = None) -> Json:
    """The value of a JSON text under the same rules; duplicate keys are refused too."""
    if bytes_max is not None:
        check_size(text, what, bytes_max)
    if type(text) is str and text.isascii() and "\\" not in text and _is_shallow(text):
        try:
            return _read(_PLAIN, text)
        except (ValueError, BadValue):
            pass  # it is said below, with its place
    try:
        value = _read(_DECODER, text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise BadValue(f"{what} is nested deeper than {DEPTH_MAX} levels. Flatten it.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BadValue(f"{what} is not valid JSON: {error}.") from None
    return clean(value, what=what)


def clean(value: object, *, what: str = "value") -> Json:
    """The value as it would come back from its text: itself, if that is the same, or `BadValue` naming the place."""
    return value if _is_clean(value, 0) else _clean(value, what, 0)  # type: ignore[return-value]


def text_of(value: Json, *, what: str = "value", bytes_max: int | None = None) -> str:
    """The text of a value that `decode` or `stored` gave: it was checked then, and only its size is new."""
    text = encode_basestring(value) if type(value) is str else "".join(_write(value, 0))
    if bytes_max is not None:
        check_size(text, what, bytes_max)
    return text


def canonical(value: object, *, what: str = "value") -> str:
    """The text of `value` with sorted keys: the same for equal values. Only for what is hashed or compared."""
    return "".join(_write_sorted(clean(value, what=what), 0))


def same(one: str, other: str) -> bool:
    """Whether two texts that this codec wrote say equal values, in whatever order of keys."""
    return one == other or canonical(stored(one)) == canonical(stored(other))


def stored(text: str) -> Json:
    """The value of a text that this codec wrote earlier; it is not checked again."""
    return _read(_STORED, text)


def digest(*parts: str) -> str:
    """A hash over several texts that keeps their borders."""
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
    """Text without lone surrogates, which no file or database would take."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def size(text: str | None) -> int:
    """How many bytes a text has when it is stored; nothing has none."""
    if not text:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_size(text: str | bytes, what: str, bytes_max: int) -> None:
    """Refuse a text over `bytes_max`, naming the limit and the size."""
    if len(text) * 4 <= bytes_max:
        return
    found = size(text) if isinstance(text, str) else len(text)
    if found > bytes_max:
        raise LimitExceeded(f"{what} has {found:,} bytes; the limit is {bytes_max:,}. Keep less in it.")


def check_id(value: object, what: str, *, length_max: int = 512) -> str:
    """A name that may key a row: a non-empty string without NUL or lone surrogates."""
    if not isinstance(value, str) or not value:
        raise BadValue(f"{what} must be a non-empty string, not {shown(value)}.")
    if len(value) > length_max:
        raise LimitExceeded(f"{what} has {len(value):,} characters; the limit is {length_max:,}.")
    if not value.isascii():
        _text(value, what)
    if "\0" in value:
        raise BadValue(f"{what} contains a NUL character; ids must not.")
    return value


def _read(decoder: json.JSONDecoder, text: str) -> Json:
    """The value of a whole text; one without white space around it, as most are, needs no search for that."""
    try:
        value, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]
    except StopIteration:  # there is white space before it, or no value at all
        end = -1
    return value if end == len(text) else decoder.decode(text)  # type: ignore[no-any-return]


def _is_shallow(text: str) -> bool:
    """Whether there are too few brackets to go too deep, wherever they stand."""
    return len(text) <= DEPTH_MAX or text.count("[") + text.count("{") <= DEPTH_MAX


def _is_clean(value: object, depth: int) -> bool:
    """Whether `_clean` would leave a value as it is: most are, and then no names of places need be made."""
    if type(value) is str:
        return _is_clean_text(value)
    if type(value) is dict:
        return depth < DEPTH_MAX and _are_clean_keys(value) and _are_clean(value.values(), depth + 1)
    if type(value) is list:
        return depth < DEPTH_MAX and _are_clean(value, depth + 1)
    if type(value) is int:
        return -INTEGER_MAX <= value <= INTEGER_MAX
    if type(value) is float:
        return math.isfinite(value) and not value.is_integer()
    return value is None or type(value) is bool


def _is_clean_text(text: str) -> bool:
    return text.isascii() or _SURROGATE.search(text) is None


def _are_clean_keys(keys: Iterable[object]) -> bool:
    for key in keys:  # noqa: SIM110 — `all` over a generator takes twice as long
        if type(key) is not str or not (key.isascii() or _is_clean_text(key)):
            return False
    return True


def _are_clean(values: Iterable[object], depth: int) -> bool:
    for value in values:
        if type(value) is str and value.isascii():
            continue  # most of what there is
        if not _is_clean(value, depth):
            return False
    return True


def _clean(value: object, what: str, depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, what)
    if isinstance(value, int):
        return _range(int(value), what)
    if isinstance(value, float):
        return _number(value, what)
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


def _plain_integer(digits: str) -> int:
    return _range(_integer(digits), "value")


def _plain_number(digits: str) -> int | float:
    return _number(float(digits), "value")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_SURROGATE = re.compile("[\ud800-\udfff]")


def _unknown(value: object) -> NoReturn:
    raise TypeError(f"{shown(value)} was not checked before it was written")


# Made once: building them costs more than a small text does. `JSONEncoder` would make its own anew for every text.
_write: Callable[[object, int], Iterable[str]] = c_make_encoder(
    None, _unknown, encode_basestring, None, ":", ",", False, False, False,
)
_write_sorted: Callable[[object, int], Iterable[str]] = c_make_encoder(
    None, _unknown, encode_basestring, None, ":", ",", True, False, False,
)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_integer)
#: Gives clean values only, of a text in which no character and no depth can be wrong: no walk over the value is needed.
_PLAIN = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_plain_integer, parse_float=_plain_number,
)
_STORED = json.JSONDecoder()
