"""`ctx.sheets`: spreadsheets at Google, with the operations of the local workbook.

One `batchUpdate` writes a row and its mark (see `sheet_rows`); its answer shows all marks afterwards. Sheets has no
conditional writes: an update finds the position of its row and writes there. If somebody moved rows in between, the
answer shows two rows with one mark. Then the outcome is unknown, and a person must look.
"""

from __future__ import annotations

import re
from typing import Any, TypedDict

from ...model.errors import OutcomeUnknown, PreconditionFailed, Rejected
from ..base import Call, Page, Verdict, mutation, read
from ..kit.marks import UPDATES_MAX, key_digest
from ..kit.spreadsheet import AppendRow, GetRow, GetRows, SheetPlace, ShownRow, UpdateRow, WrittenRow
from .api import Google, part
from .sheet_rows import SheetRow, cells, marked, rows, with_id

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 10_000
PAGE_CHARACTERS = 1 << 20
#: Seconds after the end of a call in which its row may still appear. Reads see every write.
SETTLE_S = 30
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_ROWS = "startRow,rowData.values(formattedValue,note)"
_NOTES = "startRow,rowData.values.note"


class Sheet(TypedDict):
    """One sheet of a spreadsheet, as Sheets describes it."""

    sheetId: int
    title: str
    columns: int


class Sheets(Google):
    """Spreadsheets at Google: `type = "google.sheets"`.

    account: the address of the account that writes
    client_id: the OAuth client's id
    api: another address of the API, such as your own proxy
    token_url: another address at which access is renewed
    auth_url: another address at which a person signs in
    networks: special networks that may be connected to as well, such as 10.1.0.0/16
    """

    name = "sheets"
    title = "Google Sheets"
    scope = "https://www.googleapis.com/auth/spreadsheets"
    api = "https://sheets.googleapis.com/v4/"
    input_types = ("row", "spreadsheet")

    async def check(self) -> None:
        """Check that the access can be renewed."""
        await self._access.check()

    @read
    async def get_rows(self, params: GetRows, call: Call) -> Page[ShownRow]:
        """Rows from the top; `total` says how many there are, `more` whether some follow these."""
        offset, limit = params.get("offset") or 0, params.get("limit") or LIMIT_DEFAULT
        if offset < 0 or not 1 <= limit <= LIMIT_MAX:
            raise Rejected(f"offset must not be negative, and limit must be between 1 and {LIMIT_MAX:,}.")
        present = await self._rows(params, call)
        shown: list[ShownRow] = []
        size = 0
        for row in present[offset : offset + limit]:
            shown.append(_shown(row))
            size += sum(map(len, row.values))
            if size >= PAGE_CHARACTERS:
                break
        return Page(shown, total=len(present), more=offset + len(shown) < len(present))

    @read(by_id=True)
    async def get_row(self, params: GetRow, call: Call) -> ShownRow | None:
        """One row, or null if it is gone."""
        matching = with_id(await self._rows(params, call), params["rowId"])
        return _shown(matching[0]) if matching else None

    @mutation(identity=("spreadsheetId", "sheet"), target="spreadsheetId", settle=SETTLE_S)
    async def append_row(self, params: AppendRow, call: Call) -> WrittenRow:
        """Add a row after the last row that is not empty."""
        id = key_digest(call.idempotency_key)
        row_cells = cells(params["values"])
        sheet = await self._sheet(params, call)
        row_cells[0]["note"] = marked(id)
        requests = [*_wider(sheet, len(row_cells)), {"appendCells": {
            "sheetId": sheet["sheetId"], "rows": [{"values": row_cells}], "fields": "userEnteredValue,note",
        }}]
        return _written(await self._write(params, sheet, requests, call), id)

    @append_row.reconcile
    async def find_appended(self, params: AppendRow, call: Call) -> Verdict:
        """Look for the row whose mark has the key."""
        matching = with_id(await self._rows(params, call, _NOTES), key_digest(call.idempotency_key))
        return Verdict.applied({"rowId": matching[0].id, "row": matching[0].number}) if matching else Verdict.failed()

    @mutation(identity=("spreadsheetId", "sheet", "rowId"), target="rowId", settle=SETTLE_S)
    async def update_row(self, params: UpdateRow, call: Call) -> WrittenRow:
        """Replace the values of a row; its id stays."""
        mark = key_digest(call.idempotency_key)
        sheet = await self._sheet(params, call)
        row = _only(with_id(await self._rows(params, call, sheet=sheet), params["rowId"]), params["rowId"])
        if mark in row.updates:
            return {"rowId": row.id, "row": row.number}
        row_cells = cells(params["values"], len(row.values))
        note = marked(row.id, [*row.updates, mark][-UPDATES_MAX:], row.note)
        requests = [
            *_wider(sheet, len(row_cells)),
            _put(sheet, row, row_cells, "userEnteredValue"), _put(sheet, row, [{"note": note}], "note"),
        ]
        return _written(await self._write(params, sheet, requests, call), row.id)

    @update_row.reconcile
    async def find_updated(self, params: UpdateRow, call: Call) -> Verdict:
        """Look for the key among the updates that the row remembers."""
        matching = with_id(await self._rows(params, call), params["rowId"])
        if len(matching) != 1:
            return Verdict.unknown(f"{len(matching)} rows have this id: the row was deleted, copied or moved.")
        if key_digest(call.idempotency_key) in matching[0].updates:
            return Verdict.applied({"rowId": matching[0].id, "row": matching[0].number})
        if len(matching[0].updates) >= UPDATES_MAX:
            return Verdict.unknown("The row was updated too often since then, so Keep cannot tell.")
        return Verdict.failed()

    @append_row.preview
    def say_append(self, params: AppendRow) -> str:
        """Where, and every cell."""
        return self._described("appendRow", params)

    @update_row.preview
    def say_update(self, params: UpdateRow) -> str:
        """Where, which row, and every cell."""
        return self._described("updateRow", params, f", row {params['rowId']}")

    def _described(self, operation: str, params: AppendRow | UpdateRow, row: str = "") -> str:
        place = f"spreadsheet {params['spreadsheetId']}, sheet {params.get('sheet') or '(the first)'}{row}"
        lines = [f"  {n}. {'(empty)' if value is None else value}" for n, value in enumerate(params["values"], 1)]
        return "\n".join([f"{self.name}.{operation} as {self.account}", place, *lines])

    async def _sheet(self, where: SheetPlace, call: Call) -> Sheet:
        fields = "sheets.properties(sheetId,title,gridProperties.columnCount)"
        answer = await self._get(_path(where), call, {"fields": fields})
        sheets = [sheet["properties"] for sheet in answer.get("sheets") or ()]
        name = where.get("sheet")
        properties = next((sheet for sheet in sheets if name is None or sheet["title"] == name), None)
        if properties is None:
            raise PreconditionFailed(f"The spreadsheet has no sheet {str(name)[:60]!r}.")
        columns = int((properties.get("gridProperties") or {}).get("columnCount") or 0)
        return {"sheetId": int(properties.get("sheetId") or 0), "title": str(properties["title"]), "columns": columns}

    async def _rows(
        self, where: SheetPlace, call: Call, fields: str = _ROWS, sheet: Sheet | None = None,
    ) -> list[SheetRow]:
        sheet = sheet or await self._sheet(where, call)
        place = f"{_quoted(sheet)}!A:A" if fields == _NOTES else _quoted(sheet)
        answer = await self._get(_path(where), call, {"ranges": place, "fields": f"sheets.data({fields})"})
        return rows([grid for sheet in answer.get("sheets") or () for grid in sheet.get("data") or ()])

    async def _write(self, where: SheetPlace, sheet: Sheet, requests: list[Any], call: Call) -> list[SheetRow]:
        """Make all changes or none, and return the marks as they are afterwards."""
        body = {
            "requests": requests, "includeSpreadsheetInResponse": True, "responseIncludeGridData": True,
            "responseRanges": [f"{_quoted(sheet)}!A:A"],
        }
        query = {"fields": f"updatedSpreadsheet.sheets.data({_NOTES})"}
        answer = await self._send("POST", f"{_path(where)}:batchUpdate", call, body, query)
        sheets = answer["updatedSpreadsheet"]["sheets"]
        return rows([grid for sheet in sheets for grid in sheet.get("data") or ()])


def _path(where: SheetPlace) -> str:
    if not _ID.fullmatch(where["spreadsheetId"]):
        raise Rejected("spreadsheetId must be the long part of the spreadsheet's address, between /d/ and /edit.")
    return f"spreadsheets/{part(where['spreadsheetId'])}"


def _quoted(sheet: Sheet) -> str:
    return "'" + sheet["title"].replace("'", "''") + "'"


def _wider(sheet: Sheet, width: int) -> list[Any]:
    """Requests that make the sheet wide enough."""
    lacking = width - sheet["columns"]
    if lacking <= 0:
        return []
    return [{"appendDimension": {"sheetId": sheet["sheetId"], "dimension": "COLUMNS", "length": lacking}}]


def _put(sheet: Sheet, row: SheetRow, row_cells: list[dict[str, Any]], fields: str) -> Any:
    place = {
        "sheetId": sheet["sheetId"], "startRowIndex": row.number - 1, "endRowIndex": row.number,
        "startColumnIndex": 0, "endColumnIndex": len(row_cells),
    }
    return {"updateCells": {"range": place, "rows": [{"values": row_cells}], "fields": fields}}


def _only(matching: list[SheetRow], id: str) -> SheetRow:
    if not matching:
        raise PreconditionFailed(f"The row {id[:60]!r} no longer exists.")
    if len(matching) > 1:
        raise PreconditionFailed(f"{len(matching)} rows have the id {id[:60]!r}: remove the note from the copies.")
    return matching[0]


def _written(present: list[SheetRow], id: str) -> WrittenRow:
    matching = with_id(present, id)
    if len(matching) != 1:
        raise OutcomeUnknown(
            f"The row was written, but now {len(matching)} rows have its mark: somebody moved rows at that moment. "
            "Look at the version history of the spreadsheet.",
        )
    return {"rowId": id, "row": matching[0].number}


def _shown(row: SheetRow) -> ShownRow:
    return {"rowId": row.id, "row": row.number, "values": list(row.values)}
