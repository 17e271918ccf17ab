"""What `keep demo` works on: a folder with a mailbox, an empty workbook, settings and an example script.

The terminal and the page play on the same folder. On the page the workbook can lose an answer for good.
"""

from __future__ import annotations

import csv
import mailbox
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from pathlib import Path

from ..connectors.base import Call, Verdict, mutation
from ..connectors.kit.addresses import own_address, read
from ..connectors.kit.blocking import in_thread
from ..connectors.kit.mail_writer import Letter, written
from ..connectors.kit.spreadsheet import AppendRow, WrittenRow
from ..connectors.local.sheets import LocalSheets
from ..model.clock import SystemClock
from ..model.errors import OutcomeUnknown
from .example_files import example_file

KEEP = (sys.executable, "-m", "keepai.doors.cli.main")
SCRIPT = "email-to-sheets.js"
WORKFLOW = "email-to-sheets"
MAILS = (
    ("Ann <ann@example.com>", "Invoice 2041"),
    ("Bob <bob@example.com>", "Your receipt"),
    ("Cleo <cleo@example.com>", "Invoice 2042, reminder"),
    ("Dan <dan@example.com>", "Lunch on Friday?"),
    ("Eve <eve@example.com>", "Invoice 2043"),
)
SETTINGS = """\
[connectors.gmail]           # what scripts call ctx.gmail is a mail folder here
type = "local.mail"
path = "mail"

[connectors.sheets]          # and ctx.sheets is a folder of CSV files
type = "local.sheets"
path = "sheets"

[policy]
retry_first_s = 1            # the demo is in a hurry; usually 30
reconcile_first_s = 1        # the same
"""


def script_for(sheet: str) -> str:
    """The example with a sheet; it leaves the name open, and people are shown it."""
    return example_file(SCRIPT).read_text("utf-8").replace('"..."', f'"{sheet}"')


def furnish(
    folder: Path, mails: Iterable[tuple[str, str]] = MAILS, settings: str = SETTINGS,
    scripts: Mapping[str, str] | None = None,
) -> None:
    """Put the mailbox, the empty workbook, the settings and the scripts, by their files, into a folder."""
    deliver(folder / "mail", mails)
    (folder / "sheets").mkdir()
    (folder / "keep.toml").write_text(settings, "utf-8")
    for name, text in (scripts or {SCRIPT: script_for("mail")}).items():
        (folder / name).write_text(text, "utf-8")


def environment() -> dict[str, str]:
    """The surroundings without settings of the user's own, which would change the play."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEP_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}


def deliver(folder: Path, mails: Iterable[tuple[str, str]]) -> None:
    """Put mails, each a sender and a subject, into a mail folder, which is made as mail programs make it."""
    box = mailbox.Maildir(folder, create=True)
    for number, (sender, subject) in enumerate(mails):
        letter = Letter(own_address("demo", sender), read("to", "me@example.com"), (), (), subject, "Hello!\n")
        box.add(written(letter, f"<{number}@demo.invalid>", formatdate(SystemClock().now_ms() / 1000)))


def rows_by_subject(folder: Path, sheet: str = "*") -> Counter[str]:
    """How often each subject stands in the workbook in `folder`, or in one sheet of it, counted in its own files."""
    found: Counter[str] = Counter()
    for path in folder.glob(f"{sheet}.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            found.update(row[1] for row in csv.reader(file) if len(row) > 1)
    return found


class ForgetfulSheets(LocalSheets):
    """A local workbook that can be told to lose an answer: the row is written, and nobody can look it up."""

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
