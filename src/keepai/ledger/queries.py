"""Loads the named statements of `queries/*.sql`; written once for every database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_LOOKS = re.compile(r"(--.*\n|\s)*(select|with)\b")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load() -> Mapping[str, str]:
    """Statement by name; a name stands once."""
    found: dict[str, str] = {}
    folder = files("keepai.ledger").joinpath("queries")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".sql"):
            for name, text in _split(entry.read_text("utf-8")):
                assert name not in found, f"the statement {name} stands twice"
                found[name] = text
    return found


@cache
def reading() -> frozenset[str]:
    """The names of the statements that only look."""
    return frozenset(name for name, text in load().items() if _LOOKS.match(text))


def _split(text: str) -> list[tuple[str, str]]:
    parts = _NAME.split(text)[1:]
    return [(name, body.strip().rstrip(";")) for name, body in zip(parts[::2], parts[1::2], strict=True)]
