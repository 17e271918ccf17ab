"""A place in a script: the line that an error points at, and the lines around it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

AROUND = 4  #: lines shown before and after


@dataclass(frozen=True)
class SourceLine:
    """One line of a script."""

    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a script, one of them marked."""

    lines: tuple[SourceLine, ...]
    column: int | None  # in the marked line, from 1

    @property
    def pointer(self) -> str:
        """A line with `^` under the column of the marked line; tabs are kept, so that the columns agree."""
        marked = next(line.text for line in self.lines if line.marked)
        before = marked[: self.column - 1] if self.column else ""
        return "".join("\t" if character == "\t" else " " for character in before) + "^"


def excerpt(source: str, line: int | None, column: int | None = None, around: int = AROUND) -> Excerpt | None:
    """The lines around a place; None where the script has no such line."""
    every = source.splitlines()
    if line is None or not 1 <= line <= len(every):
        return None
    first, last = max(1, line - around), min(len(every), line + around)
    shown = tuple(SourceLine(number, every[number - 1], number == line) for number in range(first, last + 1))
    fits = column is not None and 1 <= column <= len(every[line - 1]) + 1
    return Excerpt(shown, column if fits else None)
