"""What scripts say to a spreadsheet and get from it: a local workbook and Google speak the same words."""

from __future__ import annotations

from typing import NotRequired, TypedDict

Cell = str | int | float | bool | None


class SheetPlace(TypedDict):
    """A sheet: of a spreadsheet, the first one or a named one."""

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
    """The row that was written: its id, and where it stood then, counted from 1."""

    rowId: str
    row: int


class ShownRow(TypedDict):
    """A row; cells are always text, as the sheet shows them."""

    rowId: str
    row: int
    values: list[str]
