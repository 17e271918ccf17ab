"""A barrier is on disk before its caller goes on, groups share one sync, the rest follows within a second."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keepai.ledger.sqlite import writer
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import LedgerOlder
from keepai.testing import ManualClock
from tests.ledger.disk import Disk
from tests.ledger.test_write import note, refuse

ROUNDS = 8


@pytest.fixture
async def counted(path: Path, disk: Disk) -> AsyncIterator[SqliteLedger]:
    ledger = SqliteLedger(path, ManualClock(), vfs=disk.name)
    await ledger.write(note, "first", barrier=True)  # the first frame of a log syncs its head, too
    disk.syncs.clear()
    yield ledger
    await ledger.close()


async def lanes(ledger: SqliteLedger, count: int) -> None:
    """So many runs side by side, each with its barriers one after the other."""
    async def lane(number: int) -> None:
        for step in range(ROUNDS):
            await ledger.write(note, f"{number}.{step}", barrier=True)

    ledger._writer.crew = count
    await asyncio.gather(*(lane(number) for number in range(count)))


async def test_each_barrier_of_a_single_run_is_synced(counted: SqliteLedger, disk: Disk) -> None:
    await lanes(counted, 1)
    assert len(disk.syncs) == ROUNDS


async def test_barriers_of_many_runs_share_their_syncs(counted: SqliteLedger, disk: Disk) -> None:
    await lanes(counted, 32)
    assert ROUNDS <= len(disk.syncs) <= 2 * ROUNDS, f"{32 * ROUNDS} barriers took {len(disk.syncs)} syncs"


async def test_a_barrier_returns_only_after_its_sync(counted: SqliteLedger, disk: Disk) -> None:
    for crew in (1, 4):
        counted._writer.crew = crew
        seen = len(disk.syncs)
        await asyncio.gather(*(counted.write(note, n, barrier=True) for n in range(crew)))
        assert len(disk.syncs) > seen


async def test_a_barrier_that_waits_for_others_in_vain_still_comes(counted: SqliteLedger, disk: Disk) -> None:
    counted._writer.crew = 32
    async with asyncio.timeout(5):
        await counted.write(note, "alone", barrier=True)
    assert len(disk.syncs) == 1


async def test_other_commits_are_not_synced_at_once(counted: SqliteLedger, disk: Disk) -> None:
    for crew in (1, 8):
        counted._writer.crew = crew
        await asyncio.gather(*(counted.write(note, n) for n in range(20)))
    assert disk.syncs == []


async def test_barrier_syncs_what_was_committed_before(counted: SqliteLedger, disk: Disk) -> None:
    await counted.write(note, "plain")
    await counted.barrier()
    assert disk.syncs == ["keep.db-wal"]
    await counted.barrier()
    assert len(disk.syncs) == 1, "with nothing new there is nothing to sync"
    await counted.write(note, "plain")
    await counted.barrier()
    assert len(disk.syncs) == 2


async def test_barrier_waits_for_commits_of_the_group_too(counted: SqliteLedger, disk: Disk) -> None:
    counted._writer.crew = 16
    await asyncio.gather(*(counted.write(note, n) for n in range(16)))
    await counted.barrier()
    assert len(disk.syncs) >= 1


async def test_flush_timer_syncs_what_nobody_waited_for(
    counted: SqliteLedger, disk: Disk, monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert writer._FLUSH_S <= 1.0
    monkeypatch.setattr(writer, "_FLUSH_S", 0.02)
    loop, synced = asyncio.get_running_loop(), asyncio.Event()
    disk.on_sync = lambda: loop.call_soon_threadsafe(synced.set) and None
    for crew in (1, 8):
        counted._writer.crew = crew
        synced.clear()
        await counted.write(note, "plain")
        async with asyncio.timeout(5):
            await synced.wait()


async def test_close_syncs_what_is_left(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path, vfs=disk.name)
    await ledger.write(note, "plain")
    disk.syncs.clear()
    await ledger.close()
    assert disk.syncs
    assert not path.with_name("keep.db-wal").exists(), "the log was brought into the file"


@pytest.mark.parametrize("crew", [1, 8])
async def test_a_refused_barrier_syncs_nothing_and_a_later_one_does(
    counted: SqliteLedger, disk: Disk, crew: int,
) -> None:
    counted._writer.crew = crew
    await counted.write(note, "plain")
    with pytest.raises(ValueError, match="odd"):
        await counted.write(refuse, 1, ValueError("odd"), barrier=True)
    await counted.barrier()
    assert len(disk.syncs) == 1, "the plain commit before the refusal was still not on disk"


async def test_runs_that_always_wait_for_a_sync_do_not_keep_a_long_log_from_the_file(path: Path, disk: Disk) -> None:
    ledger, loop = SqliteLedger(path, ManualClock(), vfs=disk.name), asyncio.get_running_loop()
    waiting: list[asyncio.Future[str]] = []
    ledger._writer.log_pages_max, ledger._writer.crew = 30, 2

    async def ask() -> None:
        """One more barrier, and be sure that it is committed."""
        waiting.append(asyncio.ensure_future(ledger.write(note, len(waiting), barrier=True)))
        await asyncio.sleep(0)
        await ledger.write(note, "plain")

    def ask_during_a_sync() -> None:
        apart = threading.current_thread() is not threading.main_thread()
        if len(waiting) < 40 and apart and not ledger._writer._bringing:
            asyncio.run_coroutine_threadsafe(ask(), loop).result(10)

    disk.on_sync = ask_during_a_sync
    await ask()
    while not waiting[-1].done():
        await waiting[-1]
    assert len(waiting) == 40
    assert disk.syncs.count("keep.db") > 1
    await ledger.close()


async def test_a_long_log_is_brought_into_the_file(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path, vfs=disk.name)
    for number in range(60):
        await ledger.write(note, f"{number}" * 100_000)
    await ledger.write(note, "end", barrier=True)
    assert path.with_name("keep.db-wal").stat().st_size < 100 << 20
    assert "keep.db" in disk.syncs
    await ledger.close()


async def test_a_ledger_that_lost_its_log_is_refused(path: Path, tmp_path: Path) -> None:
    await SqliteLedger(path).close()
    ledger = SqliteLedger(path)
    await ledger.write(note, "a", barrier=True)  # it is in the log
    without_log = shutil.copyfile(path, tmp_path / "without-log.db")
    await ledger.close()
    shutil.copyfile(without_log, path)
    with pytest.raises(LedgerOlder, match="older than it was"):
        SqliteLedger(path)
