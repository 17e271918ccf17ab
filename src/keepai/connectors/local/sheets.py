"""A workbook in a local folder: one CSV file per sheet, which spreadsheet programs can open.

Names of spreadsheets come from scripts and are never used as paths: every character except letters, digits, `-` and `_`
is spelled `%XX`. The first row makes the file; the folder must exist. An append writes one line at the end. An update
replaces the file by a new one. Both hold a lock that other Keep processes respect. A program that saves the file at the
same moment does not respect it, and may undo a row.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from ...model import crash_points
from ...model.errors import OutcomeUnknown, PreconditionFailed, Rejected
from ..base import Call, Page, Verdict, mutation, read
from ..kit.blocking import check_deadline, in_thread
from ..kit.disk import locked, may_have_happened, nothing_happened, sync_folder, write_all, write_new
from ..kit.folder import FolderConnector
from ..kit.marks import UPDATES_MAX, key_digest
from ..kit.pages import PAGE_BYTES, size_of
from ..kit.spreadsheet import AppendRow, Cell, GetRow, GetRows, SheetPlace, ShownRow, UpdateRow, WrittenRow
from . import csv_table
from .csv_table import CsvRow

FILE_MAX = 64 << 20
LIMIT_DEFAULT = 1_000
LIMIT_MAX = 10_000
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_SAFE = re.compile(rb"[A-Za-z0-9_-]")


class LocalSheets(FolderConnector):
    """A folder of CSV files: `type = "local.sheets"`.

    path: the folder of the files, one per sheet
    create: make the folder if it does not exist
    """

    name = "sheets"
    input_types = ("row", "spreadsheet")

    @read
    async def get_rows(self, params: GetRows, call: Call) -> Page[ShownRow]:
        """Rows from the top; `total` says how many there are, `more` whether some follow these."""
        return await asyncio.to_thread(self._get_rows, params, call)

    @read(by_id=True)
    async def get_row(self, params: GetRow, call: Call) -> ShownRow | None:
        """One row, or null if it is gone."""
        def look() -> ShownRow | None:
            with nothing_happened("The sheet cannot be read"):
                match = _find(csv_table.rows(self._text(params)), params["rowId"])
                return _shown(*match) if match else None
        return await asyncio.to_thread(look)

    @mutation(identity=("spreadsheetId", "sheet"), target="spreadsheetId", settle=0)
    async def append_row(self, params: AppendRow, call: Call) -> WrittenRow:
        """Add a row at the end."""
        return await in_thread(lambda: self._append(params, call))

    @append_row.reconcile
    async def find_appended(self, params: AppendRow, call: Call) -> Verdict:
        """Look for the row whose mark has the key."""
        def look() -> Verdict:
            match = _find(csv_table.rows(self._settled(params)), key_digest(call.idempotency_key))
            return Verdict.applied(_written(*match)) if match else Verdict.failed()
        return await asyncio.to_thread(_or_retry, look)

    @mutation(identity=("spreadsheetId", "sheet", "rowId"), target="rowId", settle=0)
    async def update_row(self, params: UpdateRow, call: Call) -> WrittenRow:
        """Replace the values of a row; its id stays."""
        return await in_thread(lambda: self._update(params, call))

    @update_row.reconcile
    async def find_updated(self, params: UpdateRow, call: Call) -> Verdict:
        """Look for the key among the updates that the row remembers."""
        def look() -> Verdict:
            match = _find(csv_table.rows(self._settled(params)), params["rowId"])
            if match and key_digest(call.idempotency_key) in match[1].updates:
                return Verdict.applied(_written(*match))
            if match is None or len(match[1].updates) >= UPDATES_MAX:
                return Verdict.unknown("The row is gone, or was updated too often since then, so Keep cannot tell.")
            return Verdict.failed()
        return await asyncio.to_thread(_or_retry, look)

    def _alone(self) -> AbstractContextManager[object]:
        return locked(self.path / ".keep.lock")

    def _get_rows(self, params: GetRows, call: Call) -> Page[ShownRow]:
        offset, limit = params.get("offset") or 0, params.get("limit") or LIMIT_DEFAULT
        if offset < 0 or not 1 <= limit <= LIMIT_MAX:
            raise Rejected(f"offset must not be negative, and limit must be between 1 and {LIMIT_MAX:,}.")
        with nothing_happened("The sheet cannot be read"):
            present = csv_table.rows(self._text(params), call.skip)
        shown: list[ShownRow] = []
        size = 0
        for number, row in enumerate(present[offset : offset + limit], offset + 1):
            shown.append(_shown(number, row))
            size += size_of(shown[-1])
            if size >= PAGE_BYTES:
                break
        return Page(shown, total=len(present), more=offset + len(shown) < len(present))

    def _append(self, params: AppendRow, call: Call) -> WrittenRow:
        id = key_digest(call.idempotency_key)
        with nothing_happened("The row was not written"), self._alone():
            text = self._text(params)
            present = csv_table.rows(text)
            earlier = _find(present, id)
            if earlier:
                return _written(*earlier)
            line = csv_table.line(_checked(params["values"]), id, like=text)
            data = (csv_table.joint(present, line, id) + line).encode("utf-8", "surrogateescape")
            check_deadline(call)
            crash_points.reach("local.sheets.before_write")
            self._add(self._file(params), data)
        crash_points.reach("local.sheets.synced")
        return {"rowId": id, "row": len(present) + 1}

    def _add(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, _APPEND, 0o600)
        try:
            with may_have_happened("The row may have been written"):
                _append_whole(descriptor, data)
                crash_points.reach("local.sheets.written")
                os.fsync(descriptor)
                sync_folder(path.parent)
        finally:
            os.close(descriptor)

    def _update(self, params: UpdateRow, call: Call) -> WrittenRow:
        mark = key_digest(call.idempotency_key)
        with nothing_happened("The row was not updated"), self._alone():
            text = self._text(params)
            present = csv_table.rows(text)
            match = _find(present, params["rowId"])
            if match is None:
                raise PreconditionFailed(f"The row {params['rowId'][:60]!r} no longer exists.")
            if mark not in match[1].updates:
                check_deadline(call)
                updates = [*match[1].updates, mark][-UPDATES_MAX :]
                values = _checked(params["values"])
                old = match[1]
                changed = csv_table.line(values, old.id, updates, old.notes, text)
                text = text[: old.start] + changed + text[old.start + len(old.text) :]
                self._replace(self._file(params), text.encode("utf-8", "surrogateescape"))
        return _written(*match)

    def _replace(self, path: Path, data: bytes) -> None:
        draft = path.with_name(f".{hashlib.sha256(path.name.encode()).hexdigest()[:16]}.tmp")
        draft.unlink(missing_ok=True)  # left by a process that died; because of the lock, nobody uses it
        crash_points.reach("local.sheets.before_write")
        write_new(draft, data, mode=path.stat().st_mode & 0o777)
        crash_points.reach("local.sheets.drafted")
        with may_have_happened("The row may have been updated"):
            os.replace(draft, path)
            crash_points.reach("local.sheets.written")
            sync_folder(path.parent)
        crash_points.reach("local.sheets.synced")

    def _file(self, where: SheetPlace) -> Path:
        name, sheet = where["spreadsheetId"], where.get("sheet")
        if not name or sheet == "":
            raise Rejected("spreadsheetId and sheet must not be empty.")
        return self.path / (safe_name(name) + (f"+{safe_name(sheet)}" if sheet else "") + ".csv")

    def _text(self, where: SheetPlace) -> str:
        """The whole file; empty if there is none yet. Bytes that are not UTF-8 survive a rewrite."""
        os.scandir(self.path).close()  # a missing folder is an error, not an empty workbook
        try:
            descriptor = os.open(self._file(where), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return ""
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(FILE_MAX + 1)
        if len(data) > FILE_MAX:
            raise PreconditionFailed(f"The sheet is larger than {FILE_MAX >> 20} MiB. Start a new one.")
        return data.decode("utf-8", "surrogateescape")

    def _settled(self, where: SheetPlace) -> str:
        """The file while no other Keep process writes it."""
        with self._alone():
            return self._text(where)


def safe_name(name: str) -> str:
    """A file name for any text: never a path, different for different texts, readable for usual ones."""
    escaped = "".join(chr(b) if _SAFE.fullmatch(bytes([b])) else f"%{b:02X}" for b in name.encode())
    if len(escaped) <= 100:
        return escaped
    return escaped[:60] + "%~" + hashlib.sha256(name.encode()).hexdigest()[:32]


def _append_whole(descriptor: int, data: bytes) -> None:
    """Append all of it. If the disk fails halfway, remove the half if possible."""
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, data)
    except OSError as error:
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            pass
        raise OutcomeUnknown(f"The row may have been written in part: {error.strerror}.") from error


def _or_retry(look: Callable[[], Verdict]) -> Verdict:
    try:
        return look()
    except (OSError, PreconditionFailed):
        return Verdict.retry()


def _find(present: list[CsvRow], id: str) -> tuple[int, CsvRow] | None:
    return next(((n, row) for n, row in enumerate(present, 1) if row.id == id), None)


def _checked(values: list[Cell]) -> list[Cell]:
    if not 1 <= len(values) <= csv_table.CELLS_MAX:
        raise Rejected(f"A row has 1 to {csv_table.CELLS_MAX:,} values, not {len(values):,}.")
    return values


def _shown(number: int, row: CsvRow) -> ShownRow:
    return {"rowId": row.id, "row": number, "values": row.values}


def _written(number: int, row: CsvRow) -> WrittenRow:
    return {"rowId": row.id, "row": number}
