"""Whether what a command printed with `--json` has the shape that the reference says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from keepai.doors.cli.json_shapes import SHAPES, Shape
from keepai.model.clock import parse_iso

WORDS: dict[str, tuple[type, ...]] = {
    "text": (str,), "number": (int, float), "yes or no": (bool,), "time": (str,), "anything": (object,),
}


def command_of(args: Sequence[str]) -> str:
    """The command that was typed, without what stands before and after its name."""
    words = list(args)
    while words and words[0] in ("--db", "--config"):
        words = words[2:]
    groups = ("agent", "db", "host", "mcp", "notify", "secrets", "service", "user")
    return " ".join(words[:2]) if words[0] in groups else words[0]


def check(args: Sequence[str], printed: Any) -> None:
    """Fail if what was printed has none of the shapes of its command."""
    name = command_of(args)
    tried = {case: list(misfits(printed, shape)) for case, shape in SHAPES[name].items()}
    assert not all(tried.values()), f"keep {name} --json does not fit docs/reference/json.md: {tried}"


def misfits(value: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """Where a value differs from a shape."""
    if isinstance(shape, str):
        if not _is(value, shape):
            yield f"{path}: {value!r} is not {shape}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for number, each in enumerate(value):
            yield from misfits(each, shape[0], f"{path}[{number}]")
    elif set(shape) == {"?"}:
        if value is not None:
            yield from misfits(value, shape["?"], path)
    elif not isinstance(value, dict):
        yield f"{path}: {value!r} is no object"
    else:
        yield from _members(value, shape, path)


def _members(value: dict[str, Any], shape: dict[str, Shape], path: str) -> Iterator[str]:
    yield from (f"{path}.{name} is missing" for name in shape if name != "*" and name not in value)
    for name, each in value.items():
        if name in shape:
            yield from misfits(each, shape[name], f"{path}.{name}")
        elif "*" not in shape:
            yield f"{path}.{name} is not in the table"


def _is(value: Any, word: str) -> bool:
    if word.endswith("?"):
        return value is None or _is(value, word[:-1])
    if isinstance(value, bool) and word == "number":
        return False
    if word == "time":
        return isinstance(value, str) and parse_iso(value) is not None
    return isinstance(value, WORDS[word])
