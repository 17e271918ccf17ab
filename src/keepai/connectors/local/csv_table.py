"""A CSV file as rows with stable ids, so that a connector finds again what it wrote.

Keep marks each row that it writes with one more cell at the end of the row (see `kit/marks.py`). Row and mark are one
line and reach the file together, so they cannot disagree. Spreadsheet programs show the mark as the last column, which
people may hide but not delete. If the first row has a cell `_keep`, the marks are in that column.

A row id is made from the idempotency key of the call that wrote the row. A row that a person wrote has an id made from
its content. Ids never depend on the position, so sorting and inserting change none.

A cell that a spreadsheet program would run as a formula gets an apostrophe in front, as such programs do themselves.
Reading removes it again.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from ...model.errors import PreconditionFailed, Rejected
from ..kit.marks import ROW_MARK, key_digest, row_mark, updates_in
from ..kit.spreadsheet import Cell
from ..kit.texts import clean

CELL_MAX = 32_767  #: characters in a cell, as in Excel
CELLS_MAX = 1_024
COLUMN = "_keep"
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-][0-9][0-9 ().,/-]*")


@dataclass(frozen=True)
class CsvRow:
    """One record, and where it is in the file."""

    id: str
    cells: tuple[str, ...]  # before the mark
    updates: tuple[str, ...]  # what the mark remembers, oldest first
    notes: tuple[str, ...]  # what people wrote after the mark
    start: int
    text: str

    @property
    def values(self) -> list[str]:
        """The cells as they were given, without added apostrophes."""
        return [cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell for cell in self.cells]


def rows(text: str, skip: Callable[[str], None] | None = None) -> list[CsvRow]:
    """The records of a file, without empty lines. An unreadable one is an error; with `skip` it is left out."""
    seen: Counter[str] = Counter()
    records, start = [], 0
    for cells, source in _records(text, skip):
        if cells:
            records.append(_row(cells, start, source, seen))
        start += len(source)
    return records


def joint(present: Sequence[CsvRow], addition: str, id: str) -> str:
    """What must stand between the last row and an addition, so that the addition is read as its own row.

    A last line without a line end gets one. A cell that was cut off is closed first.
    """
    last = present[-1].text if present else ""
    for between in ("", "\n", '"\n'):
        if between == "" and last and last[-1] not in "\r\n":
            continue
        if [row.id for row in rows(last + between + addition)][-1:] == [id]:
            return between
    raise PreconditionFailed("The last line of the file is damaged. Repair it, then try again.")


def line(
    values: Sequence[Cell], id: str, updates: Sequence[str] = (), notes: Sequence[str] = (), like: str = "",
) -> str:
    """One record with its mark, in the style of the file `like`."""
    cells = [_cell(value) for value in values]
    first = next(_records(like), ([], ""))[0]
    if COLUMN in first:
        cells += [""] * (first.index(COLUMN) - len(cells))
    buffer = io.StringIO(newline="")
    # With CR and LF as line end, the writer also quotes cells that contain only one of them.
    csv.writer(buffer, lineterminator="\r\n").writerow([*cells, row_mark(id, updates), *notes])
    return buffer.getvalue().removesuffix("\r\n") + ("\r\n" if "\r\n" in like[:100_000] else "\n")


def _records(text: str, skip: Callable[[str], None] | None = None) -> Iterator[tuple[list[str], str]]:
    lines = io.StringIO(text, newline="").readlines()
    start = 0
    while start < len(lines):
        begun, first = start, lines[start].removeprefix("\ufeff") if start == 0 else lines[start]
        reader = csv.reader(chain([first], islice(lines, begun + 1, None)))
        try:
            for cells in reader:
                yield cells, "".join(lines[start : begun + reader.line_num])
                start = begun + reader.line_num
        except csv.Error as error:
            if skip is None:
                raise PreconditionFailed(f"Line {start + 1} cannot be read as CSV: {error}.") from error
            skip(f"line {start + 1} ({error})")
            yield [], lines[start]
            start += 1


def _row(cells: list[str], start: int, source: str, seen: Counter[str]) -> CsvRow:
    shown = [clean(cell) for cell in cells]
    for at in reversed(range(len(shown))):  # the rightmost mark is Keep's: a script's cells are left of it
        mark = ROW_MARK.fullmatch(shown[at])
        if mark is not None:
            return CsvRow(mark[1], tuple(shown[:at]), updates_in(mark), tuple(shown[at + 1 :]), start, source)
    # Without a mark, the id is made from the content and not from the position; equal rows are numbered.
    own = tuple(cell for cell in shown if cell != COLUMN)
    content = "\x1f".join(own)
    seen[content] += 1
    return CsvRow("p" + key_digest(f"{seen[content]}\x1f{content}"), own, (), (), start, source)


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if not isinstance(value, str):
        return str(value)
    if "\0" in value or len(value) > CELL_MAX:
        raise Rejected(f"A cell holds at most {CELL_MAX:,} characters and no NUL.")
    return "'" + value if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value
