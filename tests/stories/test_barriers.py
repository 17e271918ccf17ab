"""What an effect depends on is on disk before the effect, and its outcome before anything follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import Call, Connector, Keep, Page, mutation, read
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model import crash_points
from keepai.model.clock import Clock
from keepai.testing import ManualClock
from tests.ledger.disk import Disk

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "email-to-sheets.js"


class Watched(Disk):
    """A disk that knows whether everything written so far has been synced."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced = 0

    def ledger(self, path: Path, clock: Clock, *, accept_older: bool, works: bool) -> SqliteLedger:
        """A ledger on this disk."""
        return SqliteLedger(path, clock, vfs=self.name, accept_older=accept_older)

    def wrote(self) -> None:
        super().wrote()
        self.unsynced += 1

    def synced(self, name: str) -> None:
        super().synced(name)
        self.unsynced = 0


class Gmail(Connector):
    input_types = ("email",)

    @read
    async def search(self, params, call: Call):  # type: ignore[no-untyped-def]
        return Page([] if (params or {}).get("after") else [{"id": "1", "from": "ann", "subject": "s"}], lastCursor="1")


class Sheets(Connector):
    """Notes how much was not on disk when it was called."""

    def __init__(self, disk: Watched) -> None:
        super().__init__(name="sheets")
        self.disk, self.at_call = disk, list[int]()

    @mutation(identity=("spreadsheetId",), target="spreadsheetId")
    async def append_row(self, params, call: Call):  # type: ignore[no-untyped-def]
        self.at_call.append(self.disk.unsynced)
        return {"rowId": 1}


ROUTINE = """
export default Keep.workflow({ name: "rows", routines: { work: { schedule: { interval: "1d" },
  handler: async (ctx, state) => {
    for (const id of ["a", "b"]) await ctx.withItem(id, id, async (ctx) => {
      if (!ctx.item.isDone) await ctx.sheets.appendRow({ spreadsheetId: "s", values: [id] });
    });
  } } } });
"""


async def test_nothing_leaves_a_routine_before_its_intent_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Watched()
    monkeypatch.setattr("keepai.app.open_ledger", disk.ledger)
    monkeypatch.setattr("keepai.ledger.sqlite.writer._FLUSH_S", 3600)  # the sync of what nobody waits for is not meant
    sheets = Sheets(disk)
    async with Keep(tmp_path / "keep.db", connectors=[sheets], clock=ManualClock("2026-01-05T09:00:00Z")) as keep:
        deployed = await keep.deploy(ROUTINE, grants="all")
        await keep.run_until_idle()
        assert [m.status for m in await keep.mutations(deployed.workflow_id)] == ["applied", "applied"]
    assert sheets.at_call == [0, 0]


async def test_nothing_leaves_before_its_intent_is_synced_and_nothing_follows_before_the_outcome_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, at_commit = Watched(), list[tuple[int, int]]()
    monkeypatch.setattr("keepai.app.open_ledger", disk.ledger)
    monkeypatch.setattr("keepai.ledger.sqlite.writer._FLUSH_S", 3600)  # the sync of what nobody waits for is not meant
    sheets = Sheets(disk)
    clock = ManualClock("2026-01-05T09:00:00Z")
    async with Keep(tmp_path / "keep.db", connectors=[Gmail(), sheets], clock=clock) as keep:
        def reach(point: str) -> None:
            if point == "before:commit_consumer" and sheets.at_call:  # the very first commit of what `next` gave
                at_commit.append((disk.unsynced, len([s for s in disk.syncs if s.endswith("-wal")])))

        deployed = await keep.deploy(EXAMPLE.read_text(), grants="all")
        before = len([s for s in disk.syncs if s.endswith("-wal")])
        monkeypatch.setattr(crash_points, "_listener", reach)
        await keep.run_until_idle()
        assert [m.status for m in await keep.mutations(deployed.workflow_id)] == ["applied"]
    assert sheets.at_call == [0], "the intent was on disk"
    assert at_commit[0] == (0, before + 2), "one sync before the effect, one for its outcome, and none between"
