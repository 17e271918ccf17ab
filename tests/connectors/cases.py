"""The mutations that every contract test runs over, and how to count their effects from outside."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keepai.model
from keepai.connectors import make
from keepai.connectors.base import Call, Connector, OperationSpec
from keepai.model import crash_points
from keepai.testing import kill_self_at

SOURCE = Path(keepai.model.__file__).parents[2]
CHILD = Path(__file__).parent / "child.py"


@dataclass(frozen=True)
class Case:
    """One mutation of one type."""

    type: str
    operation: str
    params: dict[str, Any]
    effects: Callable[[Path], int]
    result_keys: frozenset[str]
    points: tuple[str, ...]  # in order; from the one named `visible` on, the effect is there
    visible: str
    setup: Callable[[Path], None]

    @property
    def id(self) -> str:
        return f"{self.type}.{self.operation}"

    def connector(self, path: Path) -> Connector:
        return make(self.type, "under_test", {"path": str(path)})

    def spec(self, path: Path) -> OperationSpec:
        return self.connector(path).operations[self.operation]


def call(key: str = "key-1", **more: Any) -> Call:
    return Call(idempotency_key=key, workflow_id="wf_1", run_id="run_1", **more)


def make_maildir(path: Path) -> None:
    for part in ("tmp", "new", "cur"):
        (path / part).mkdir(parents=True)


def sent(path: Path) -> int:
    return len(list((path / ".Sent" / "cur").glob("*"))) if (path / ".Sent").exists() else 0


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def rows_with(text: str) -> Callable[[Path], int]:
    def count(path: Path) -> int:
        file = path / "book.csv"
        return sum(text in row for row in read_csv(file)) if file.exists() else 0

    return count


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def make_workbook(path: Path) -> None:
    path.mkdir(parents=True)


def make_workbook_with_row(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "book.csv").write_text(f"before,x\nold,1,keep:{'a' * 20}\nafter,y\n")


CASES = [
    Case(
        "local.mail",
        "send",
        {"to": "bob@example.com", "subject": "Hi", "body": "Grüße\n"},
        sent,
        frozenset({"id"}),
        ("local.mail.before_write", "local.mail.written", "local.mail.linked", "local.mail.synced"),
        "local.mail.linked",
        make_maildir,
    ),
    Case(
        "local.sheets",
        "appendRow",
        {"spreadsheetId": "book", "values": ["fresh", 2, None, True]},
        rows_with("fresh"),
        frozenset({"rowId", "row"}),
        ("local.sheets.before_write", "local.sheets.written", "local.sheets.synced"),
        "local.sheets.written",
        make_workbook,
    ),
    Case(
        "local.sheets",
        "updateRow",
        {"spreadsheetId": "book", "rowId": "a" * 20, "values": ["fresh", "multi\nline"]},
        rows_with("fresh"),
        frozenset({"rowId", "row"}),
        ("local.sheets.before_write", "local.sheets.drafted", "local.sheets.written", "local.sheets.synced"),
        "local.sheets.written",
        make_workbook_with_row,
    ),
]


def dies(case: Case, place: Path, point: str) -> bool:
    """Make the call in a fork, which is killed at `point`; one test shows that a new process makes no difference."""
    child = os.fork()
    if child == 0:
        try:
            kill_self_at(point)
            asyncio.run(case.spec(place).invoke(case.params, call()))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def run_child(
    case: Case, path: Path, *, key: str = "key-1", crash_at: str = ""
) -> subprocess.CompletedProcess[str]:
    """Make the call in a process of its own, which dies at `crash_at`."""
    order = {
        "type": case.type,
        "path": str(path),
        "operation": case.operation,
        "params": case.params,
        "key": key,
    }
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "KEEP_CRASH_AT": crash_at}
    return subprocess.run(
        [sys.executable, str(CHILD), json.dumps(order)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def strangers(folder: Path) -> list[str]:
    """Drafts that were left outside the journal of `files`."""
    return [path.name for path in folder.rglob(".keep-*")]


@asynccontextmanager
async def held_up(case: Case, place: Path) -> AsyncIterator[asyncio.Task[Any]]:
    """The mutation of a case, which stands still at its first crash point until the block ends."""
    entered, go_on = threading.Event(), threading.Event()

    def wait(_name: str) -> None:
        entered.set()
        go_on.wait(10)

    crash_points.listen(wait)
    try:
        task = asyncio.create_task(case.spec(place).invoke(case.params, call()))
        await asyncio.to_thread(entered.wait, 10)
        yield task
    finally:
        go_on.set()
        crash_points.listen(None)
