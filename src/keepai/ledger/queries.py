"""Loads the named statements of `queries/*.sql`; written once for every database.

A statement that must differ in one of them stands once more, under the same name, in the folder of that store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_LOOKS = re.compile(r"(--.*\n|\s)*(select|with)\b")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load(store: str | None = None) -> Mapping[str, str]:
    """Statement by name, of every database or as one store needs it; in a folder a name stands once."""
    if store is not None:
        return {**load(), **_of_folder(files("keepai.ledger").joinpath(store, "queries"))}
    return _of_folder(files("keepai.ledger").joinpath("queries"))


def _of_folder(folder: Traversable) -> dict[str, str]:
    found: dict[str, str] = {}
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
