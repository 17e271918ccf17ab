"""The contract of a spreadsheet: params and results that the local workbook and Google Sheets share."""

from __future__ import annotations

from typing import NotRequired, TypedDict

Cell = str | int | float | bool | None


class SheetPlace(TypedDict):
    """A sheet of a spreadsheet: the named one, or the first one."""

    spreadsheetId: str
    sheet: NotRequired[str | None]


class AppendRow(SheetPlace):
    """A row to add."""

    values: list[Cell]


class GetRows(SheetPlace):
    """Which rows."""

    limit: NotRequired[int | None]
    offset: NotRequired[int | None]


class GetRow(SheetPlace):
    """Which row."""

    rowId: str


class UpdateRow(SheetPlace):
    """New values for a row."""

    rowId: str
    values: list[Cell]


class WrittenRow(TypedDict):
    """The row that was written: its id, and its position at that moment, counted from 1."""

    rowId: str
    row: int


class ShownRow(TypedDict):
    """A row. Cells are strings, as the sheet shows them."""

    rowId: str
    row: int
    values: list[str]
