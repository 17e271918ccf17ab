"""How things look on a terminal: aligned, cut to the width, with nothing hidden in what came from outside."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...model.records import Kept

#: State → how it is shown on a terminal; what is not here is plain.
COLOURS = {
    "done": "green", "applied": "green", "committed": "green", "active": "green", "consumed": "green",
    "pending": "yellow", "paused": "yellow", "in_flight": "yellow", "needs_reconcile": "yellow",
    "processing": "yellow", "late": "yellow", "needs_attention": "red",
    "failed": "red", "indeterminate": "red", "crashed": "red", "stopped": "red", "error": "red", "warning": "yellow",
}
WIDTH_LEAST = 20
WIDTH_USUAL = 80  #: where a terminal does not say
LABEL = 15  #: how far a labelled entry is moved to the right


def plain(text: str) -> str:
    """`text` with everything visible that a terminal would act on; line feeds stay."""
    from ...model.visible import visible

    return visible(text)


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


def ago(then_ms: int, now_ms: int) -> str:
    """A time as people say it: `3 min ago`, `in 2 h`."""
    seconds = abs(now_ms - then_ms) / 1000
    if seconds < 1:
        return "now"
    told = next(f"{int(seconds / size)} {unit}" for size, unit in _UNITS if seconds >= size)
    if told.endswith("days") and told.startswith("1 "):
        told = "1 day"
    return f"in {told}" if then_ms > now_ms else f"{told} ago"


_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def clock(then_ms: int) -> str:
    """The time of day here."""
    from datetime import datetime

    return datetime.fromtimestamp(then_ms / 1000).astimezone().strftime("%H:%M:%S")


def field(label: str, *texts: object) -> list[str]:
    """A labelled entry, one text under the other, folded at the terminal's width; nothing for nothing."""
    import textwrap

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


def count(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count_of_bytes: int) -> str:
    """`812 bytes`, `1.4 MB`."""
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count_of_bytes >= least:
            return f"{count_of_bytes / least:.1f} {unit}"
    return count(count_of_bytes, "byte")


def kept(found: Kept) -> str:
    """`3.1 MB of 4.0 GB: events 2.9 MB, runs 102.4 kB, inputs 12.0 kB`."""
    parts = (("events", found.events), ("runs", found.runs), ("inputs", found.inputs))
    return f"{size(found.total)} of {size(found.most)}: {', '.join(f'{name} {size(part)}' for name, part in parts)}"


def short(ids: Iterable[str]) -> dict[str, str]:
    """Each id by as many characters as tell it from the others here, and two more."""
    every = sorted(set(ids))
    need = max((_same(a, b) for a, b in pairwise(every)), default=0)
    return {each: each[: max(need + 3, 16)] for each in every}


def _same(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
