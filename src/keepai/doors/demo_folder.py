"""What `keep demo` works on: a folder with a mailbox, an empty workbook, settings and an example script.

The terminal and the page play on the same folder.
"""

from __future__ import annotations

import mailbox
import os
import sys
from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path

from ..connectors.kit.addresses import own_address, read
from ..connectors.kit.mail_writer import Letter, written
from ..model.clock import SystemClock
from ..model.errors import NotFound

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


def example(name: str) -> str:
    """An example script: part of the package where it is installed, beside it in a clone."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / name).is_file():
            return (folder / name).read_text("utf-8")
    raise NotFound(f"The example {name} is missing. Install Keep again.")


def furnish(folder: Path) -> None:
    """Put the mailbox, the empty workbook, the settings and the script into a folder."""
    deliver(folder / "mail", MAILS)
    (folder / "sheets").mkdir()
    (folder / "keep.toml").write_text(SETTINGS, "utf-8")
    # The example leaves the sheet's name open; people are shown it.
    (folder / SCRIPT).write_text(example(SCRIPT).replace('"..."', '"mail"'), "utf-8")


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
