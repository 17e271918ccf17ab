"""Makes text from outside safe to look at: no character in it can hide or change the reading order."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from .codec import Json, encode

#: Characters that show nothing although Unicode classes them as letters, marks or symbols.
BLANK = frozenset({
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0,
    *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),
})
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})


def visible(text: str) -> str:
    """`text` with every control, bidi and invisible character spelled as `‹U+202E›`. Line feeds stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def described(name: str, params: Mapping[str, Json]) -> str:
    """A call in full, on one line: `gmail.send: subject="Hi", to="bob@example.com"`.

    The params are sorted by name, so that people find each of them in the same place. Values stay as they are."""
    shown = ", ".join(f"{_key(key)}={_value(params[key])}" for key in sorted(params))
    return f"{name}: {shown}" if shown else name


def _key(key: str) -> str:
    """A usual key as it is; any other key in quotes, so that it cannot look like a key and a value."""
    return key if key.isascii() and key.replace("$", "_").isidentifier() else _value(key)


def _value(value: Json) -> str:
    return visible(encode(value)).replace("\n", "‹U+000A›")


def _shown(character: str) -> str:
    if character in " \n":
        return character
    if unicodedata.category(character) in _HIDDEN or ord(character) in BLANK:
        return f"‹U+{ord(character):04X}›"
    return character
