"""How things look on a terminal: aligned, cut to the width, with nothing hidden in what came from outside."""

from __future__ import annotations

import difflib
import json
import os
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from operator import eq
from typing import Any

import click

from ...model.visible_text import visible

#: State → how it is shown on a terminal; what is not here is plain.
COLOURS = {
    "done": "green", "applied": "green", "committed": "green", "active": "green", "consumed": "green",
    "pending": "yellow", "paused": "yellow", "in_flight": "yellow", "needs_reconcile": "yellow",
    "processing": "yellow", "late": "yellow", "needs_attention": "red",
    "failed": "red", "indeterminate": "red", "crashed": "red", "stopped": "red", "error": "red", "warning": "yellow",
}
WIDTH_LEAST = 20
WIDTH_USUAL = 80  #: where a terminal does not say
LISTED_MAX = 5  #: names in a sentence
LABEL = 15  #: how far a labelled entry is moved to the right

#: A text with everything visible that a terminal would act on; line feeds stay.
plain = visible


def line(text: str, width: int | None = None) -> str:
    """`text` on one line, with everything visible, cut with … to `width` cells."""
    return cut(plain(" ".join(text.split())), width)


def cut(text: str, width: int | None) -> str:
    """At most `width` cells of `text`."""
    if width is None or cells(text) <= width:
        return text
    kept, used = "", 1
    for character in text:
        used += cells(character)
        if used > width:
            break
        kept += character
    return kept.rstrip() + "…"


def cells(text: str) -> int:
    """How wide `text` is on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_wide(character) for character in text)


def _wide(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def width() -> int | None:
    """The terminal's width; None where nobody looks, so that nothing is cut."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal():
        return max(WIDTH_LEAST, int(given))
    try:
        return max(WIDTH_LEAST, os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_USUAL)
    except (OSError, ValueError):
        return None


def table(header: Sequence[str], rows: Iterable[Sequence[str]], flexible: int) -> list[str]:
    """Aligned lines; where there is no room, the column number `flexible` is folded on a terminal, and else cut."""
    shown = [[line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        return _folded(header, shown, flexible)
    every = [list(header), *shown]
    wide = [max(cells(row[i]) for row in every) for i in range(len(header))]
    room = width()
    if room is not None:
        others = sum(wide) - wide[flexible] + 2 * (len(header) - 1)
        wide[flexible] = min(wide[flexible], max(WIDTH_LEAST, room - others))
    for row in every:
        row[flexible] = cut(row[flexible], wide[flexible])
    return [click.style(_joined(every[0], wide), dim=True)] + [_joined(row, wide, True) for row in shown]


def _folded(header: Sequence[str], rows: Sequence[Sequence[str]], flexible: int) -> list[str]:
    """The table as rich draws it, with nothing cut off."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(header):
        drawn.add_column(Text(name), no_wrap=number != flexible, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text.from_ansi(paint(cell)) for cell in row))
    console = Console(width=width(), force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(drawn)
    return [each.rstrip() for each in captured.get().splitlines()]


def _joined(row: Sequence[str], wide: Sequence[int], painted: bool = False) -> str:
    padded = [cell + " " * (space - cells(cell)) for cell, space in zip(row, wide, strict=True)]
    padded[-1] = row[-1]
    return "  ".join(paint(cell) if painted else cell for cell in padded)


def paint(cell: str) -> str:
    """A state in its colour."""
    word = cell.strip().partition(":")[0]
    return click.style(cell, fg=COLOURS[word]) if word in COLOURS else cell


def field(label: str, *texts: object) -> list[str]:
    """A labelled entry, one text under the other, folded at the terminal's width; nothing for nothing."""
    room = width()
    folded = [part for text in texts if text for part in (
        textwrap.wrap(line(str(text)), max(WIDTH_LEAST, room - LABEL - 1)) if room else [line(str(text))])]
    return _labelled(label, folded)


def exact(label: str, *texts: object) -> list[str]:
    """The same for what must be shown as it is: not folded, and no space left out."""
    return _labelled(label, [part for text in texts if text for part in plain(str(text)).split("\n")])


def _labelled(label: str, lines: Sequence[str]) -> list[str]:
    lead = f"  {label:<{LABEL - 3}} "
    if cells(lead) > LABEL and lines:
        return [lead.rstrip(), *(" " * LABEL + each for each in lines)]
    return [(lead if number == 0 else " " * LABEL) + each for number, each in enumerate(lines)]


LINES = "keepai.lines"  #: set in a click context in which JSON is printed one line at a time


def echo_json(value: Any) -> None:
    """Data for programs, on stdout; times in it are ISO."""
    context = click.get_current_context(silent=True)
    if context and context.meta.get(LINES):
        echo_json_line(value)
        return
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str).encode("utf-8", "replace").decode())


def echo_json_line(value: Any) -> None:
    """One line of a stream."""
    click.echo(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace").decode())


def echo(*lines: str) -> None:
    """What a command answers, on stdout."""
    for each in lines:
        click.echo(each)


def say(text: str) -> None:
    """A remark, on stderr."""
    click.echo(text, err=True)


def progress(text: str) -> None:
    """How far something is, in one line of a terminal that the next one takes the place of."""
    if sys.stderr.isatty():
        click.echo(f"\r{text:<{WIDTH_LEAST}}" + ("" if text else "\r"), err=True, nl=False)


def short(ids: Iterable[str]) -> dict[str, str]:
    """Each id by as many characters as tell it from the others here, and two more."""
    every = sorted(set(ids))
    need = max((len(list(takewhile(bool, map(eq, a, b)))) for a, b in pairwise(every)), default=0)
    return {each: each[: max(need + 3, 16)] for each in every}


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """Advice on a word that is not known."""
    known = list(known)
    close = difflib.get_close_matches(typed, known, n=1, cutoff=0.7)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {listed(known, 30)}."


def listed(names: list[str], most: int = LISTED_MAX) -> str:
    """Names in a sentence, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
