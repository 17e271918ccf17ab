"""Rows of a Google sheet: how Keep marks the rows that it writes, and writes cells so that none becomes a formula.

The mark (see `kit/marks.py`) is a note on the first cell of the row. It is written in the same request as the row,
which Sheets carries out completely or not at all, and it moves with the cell when people sort or insert. Rejected:
developer metadata, because a sheet holds only 30,000 characters of it, enough for about a thousand rows; and a separate
column, which would stand among people's data. Text is written as text (`stringValue`), as with `valueInputOption=RAW`:
`=1+1` is shown, never computed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.errors import Rejected
from ..kit.marks import ROW_MARK, key_digest, row_mark, updates_in
from ..kit.spreadsheet import Cell
from ..kit.texts import clean

CELL_MAX = 50_000  #: characters in a cell, as Sheets allows
CELLS_MAX = 1_024


@dataclass(frozen=True)
class SheetRow:
    """One row. `number` counts from 1."""

    id: str
    number: int
    values: tuple[str, ...]
    updates: tuple[str, ...]  # the updates that the mark remembers, oldest first
    note: str  # the whole note of the first cell


def rows(data: Sequence[Mapping[str, Any]]) -> list[SheetRow]:
    """The rows of `GridData` that are not empty."""
    seen: Counter[str] = Counter()
    rows_found = []
    for grid in data:
        for number, row in enumerate(grid.get("rowData") or (), 1 + int(grid.get("startRow") or 0)):
            cells = row.get("values") or ()
            values = _trimmed(clean(str(cell.get("formattedValue", ""))) for cell in cells)
            note = str(cells[0].get("note", "")) if cells else ""
            if values or ROW_MARK.search(note):
                rows_found.append(_row(number, values, note, seen))
    return rows_found


def with_id(present: Iterable[SheetRow], id: str) -> list[SheetRow]:
    """All rows with this id: one, unless people copied it or it is gone."""
    return [row for row in present if row.id == id]


def cells(values: Sequence[Cell], width: int = 0) -> list[dict[str, Any]]:
    """Values as cells, filled up with empty cells."""
    if not 1 <= len(values) <= CELLS_MAX or all(value is None or value == "" for value in values):
        raise Rejected(f"A row must have 1 to {CELLS_MAX:,} values, and at least one that is not empty.")
    row_cells: list[dict[str, Any]] = [_cell(value) for value in values]
    return row_cells + [{} for _ in range(width - len(row_cells))]


def marked(id: str, updates: Sequence[str] = (), note: str = "") -> str:
    """A note with this mark. Other words of people in the note stay."""
    mark = row_mark(id, updates)
    if ROW_MARK.search(note):
        return ROW_MARK.sub(mark, note, count=1)
    return f"{note}\n{mark}" if note else mark


def _row(number: int, values: tuple[str, ...], note: str, seen: Counter[str]) -> SheetRow:
    mark = ROW_MARK.search(note)
    if mark is not None:
        return SheetRow(mark[1], number, values, updates_in(mark), note)
    content = json.dumps(values)
    seen[content] += 1
    return SheetRow("p" + key_digest(f"{seen[content]}:{content}"), number, values, (), note)


def _trimmed(values: Iterable[str]) -> tuple[str, ...]:
    trimmed = list(values)
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    return tuple(trimmed)


def _cell(value: Cell) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"userEnteredValue": {"boolValue": value}}
    if isinstance(value, str):
        if len(value) > CELL_MAX:
            raise Rejected(f"A cell has at most {CELL_MAX:,} characters.")
        return {"userEnteredValue": {"stringValue": value}}
    return {"userEnteredValue": {"numberValue": value}}
