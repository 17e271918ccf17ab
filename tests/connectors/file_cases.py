"""The mutations of `files`, with the named points of each, and how to count their effects from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.connectors.cases import Case

POINTS = ("files.before_write", "files.drafted", "files.planned", "files.visible", "files.synced", "files.receipted")
KEYS = frozenset({"path", "size", "hash"})


def _folder(path: Path) -> None:
    path.mkdir(parents=True)


def _with_file(path: Path) -> None:
    _folder(path)
    (path / "old.txt").write_text("before\n")


def holds(name: str, text: str) -> Callable[[Path], int]:
    """How often a text stands in a file."""

    def count(path: Path) -> int:
        file = path / name
        return file.read_text().count(text) if file.exists() else 0

    return count


def moved(path: Path) -> int:
    """Whether the file has its new name."""
    return int((path / "done/new.txt").exists())


CASES = [
    Case(
        "files",
        "write",
        {"path": "a/new.txt", "content": "fresh\n"},
        holds("a/new.txt", "fresh"),
        KEYS,
        POINTS,
        "files.visible",
        _folder,
    ),
    Case(
        "files",
        "write",
        {"path": "old.txt", "content": "fresh\n"},
        holds("old.txt", "fresh"),
        KEYS,
        POINTS,
        "files.visible",
        _with_file,
    ),
    Case(
        "files",
        "write",
        {"path": "new.txt", "content": "fresh\n", "ifAbsent": True},
        holds("new.txt", "fresh"),
        KEYS,
        POINTS,
        "files.visible",
        _with_file,
    ),
    Case(
        "files",
        "append",
        {"path": "old.txt", "content": "fresh\n"},
        holds("old.txt", "fresh"),
        KEYS,
        POINTS[2:],
        "files.visible",
        _with_file,
    ),
    Case(
        "files",
        "append",
        {"path": "new.txt", "content": "fresh\n"},
        holds("new.txt", "fresh"),
        KEYS,
        POINTS,
        "files.visible",
        _with_file,
    ),
    Case(
        "files", "move", {"from": "old.txt", "to": "done/new.txt"}, moved, KEYS, POINTS[2:], "files.visible", _with_file
    ),
]
