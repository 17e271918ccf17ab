"""A local workbook that can be told to lose an answer for good: the row is written, and nobody can look it up."""

from __future__ import annotations

from ..connectors.base import Call, Verdict, mutation
from ..connectors.kit.blocking import in_thread
from ..connectors.kit.spreadsheet import AppendRow, WrittenRow
from ..connectors.local.sheets import LocalSheets
from ..model.errors import OutcomeUnknown


class ForgetfulSheets(LocalSheets):
    """`LocalSheets`, but for what `lose_next` says."""

    _losing = False
    _lost: frozenset[str] = frozenset()

    def lose_next(self) -> None:
        """The answer to the next row gets lost on its way, and the workbook will not know of the row."""
        self._losing = True

    @mutation(identity=("spreadsheetId", "sheet"), target="spreadsheetId", settle=0)
    async def append_row(self, params: AppendRow, call: Call) -> WrittenRow:  # type: ignore[override]
        """Add a row at the end."""
        written = await in_thread(lambda: self._append(params, call))
        if self._losing:
            self._losing, self._lost = False, self._lost | {call.idempotency_key}
            raise OutcomeUnknown("The connection was lost before the answer came.")
        return written

    @append_row.reconcile
    async def find_appended(self, params: AppendRow, call: Call) -> Verdict:
        """Look for the row whose mark has the key."""
        if call.idempotency_key in self._lost:
            return Verdict.unknown("The workbook keeps no record of this row: only somebody who looks can tell.")
        return await super().find_appended(params, call)
