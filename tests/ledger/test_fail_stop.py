"""After a failed write or sync nothing is written any more, looking still works, and reopening loses nothing said."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import LedgerStopped
from tests.ledger.disk import Disk
from tests.ledger.test_write import note, noted

ERRORS = {"io": apsw.IOError("disk I/O error"), "full": apsw.FullError("database or disk is full")}
ADVICE = {"io": "Look at the disk, then start again", "full": "Free some space, then start again"}


async def write_until_it_stops(ledger: SqliteLedger, crew: int, barrier: bool) -> list[str]:
    """The subjects whose writes were acknowledged before the first failure."""
    ledger._writer.crew = crew
    said: list[str] = []
    for round_ in range(40):
        names = [f"{round_}.{n}" for n in range(crew)]
        answers: Sequence[object] = await asyncio.gather(
            *(ledger.write(note, name, barrier=barrier) for name in names), return_exceptions=True,
        )
        said += [str(answer) for answer in answers if isinstance(answer, str)]
        for answer in answers:
            assert isinstance(answer, str | LedgerStopped), answer
        if any(isinstance(answer, LedgerStopped) for answer in answers):
            return said
    raise AssertionError("the disk never failed")


@pytest.mark.parametrize("crew", [1, 4])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize(("act", "nth"), [
    ("write", 1), ("write", 2), ("write", 3), ("write", 11), ("sync", 1), ("sync", 4),
])
async def test_a_failing_disk_stops_the_ledger(
    path: Path, disk: Disk, act: str, nth: int, kind: str, crew: int,
) -> None:
    ledger = SqliteLedger(path, vfs=disk.name)
    await ledger.write(note, "before", barrier=True)
    disk.fail(act, nth, ERRORS[kind])
    said = await write_until_it_stops(ledger, crew, barrier=True)

    ran: list[int] = []
    disk.mend()  # even if the disk is well again: what reached it is unknown
    for barrier in (True, False):
        with pytest.raises(LedgerStopped) as stopped:
            await ledger.write(lambda tx: ran.append(1), barrier=barrier)
        assert ADVICE[kind] in stopped.value.message
        assert str(path) in stopped.value.message
    assert ran == [], "no verb runs after the stop"
    assert ledger.stopped() == stopped.value.message
    with pytest.raises(LedgerStopped):
        await ledger.barrier()
    assert ledger.reads.all("workflow_all") == [], "looking still works"
    await ledger.close()

    again = SqliteLedger(path)
    try:
        found = noted(path)
        assert set(said) | {"before"} <= set(found), "what was acknowledged is there"
        assert len(found) == len(set(found))
        assert await again.write(note, "after", barrier=True) == "after"
    finally:
        await again.close()


async def test_a_sync_that_fails_in_the_flush_stops_the_ledger(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path, vfs=disk.name)
    await ledger.write(note, "first", barrier=True)
    await ledger.write(note, "plain")
    disk.fail("sync", 1, ERRORS["io"])
    with pytest.raises(LedgerStopped):
        await ledger.barrier()
    with pytest.raises(LedgerStopped):
        await ledger.write(note, "later")
    disk.mend()
    await ledger.close()


async def test_a_failed_sync_is_not_tried_again_in_place(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path, vfs=disk.name)
    await ledger.write(note, "first", barrier=True)
    disk.fail("sync", 1, ERRORS["io"])
    with pytest.raises(LedgerStopped):
        await ledger.write(note, "lost", barrier=True)
    tried = len(disk.syncs)
    for _ in range(3):
        with pytest.raises(LedgerStopped):
            await ledger.write(note, "more", barrier=True)
    assert len(disk.syncs) == tried
    disk.mend()
    await ledger.close()


async def test_acknowledged_barriers_survive_a_cut_of_the_log(path: Path, disk: Disk, tmp_path: Path) -> None:
    """A power cut keeps what was synced: copy the files at each sync, open each copy, compare."""
    said: list[str] = []
    copies: list[tuple[Path, list[str]]] = []
    ledger = SqliteLedger(path, vfs=disk.name)
    for number in range(12):
        await ledger.write(note, number, barrier=number % 3 == 0)
        if number % 3 == 0:
            said = noted(path)
            copy = tmp_path / f"cut-{number}" / "keep.db"
            copy.parent.mkdir()
            for name in ("keep.db", "keep.db-wal"):
                shutil.copyfile(path.with_name(name), copy.with_name(name))
            copies.append((copy, said))
    await ledger.close()
    for copy, expected in copies:
        reopened = SqliteLedger(copy)
        assert noted(copy) == expected
        await reopened.close()
