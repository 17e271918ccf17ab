"""No power cut loses what was acknowledged; and a ledger or a disk that breaks its promise is found out."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import apsw
import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.sqlite.write_ahead_log import Log
from keepai.ledger.sqlite.writer import PendingWrite, Writer
from tests.prove import images
from tests.prove.images import Plan, try_seed
from tests.prove.platter import Platter
from tests.prove.tape import Link, Sync, SyncFailed, Truncate, Unlink, Write
from tests.prove.work import state_of

SEEDS = range(1, 5)
PLANTED_SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_image_of_a_crash_lacks_what_was_acknowledged(seed: int) -> None:
    count = try_seed(seed, Plan(), 120)
    assert count.broken == []
    assert count.distinct > 50
    assert count.reopened > 0


def test_a_barrier_that_writes_nothing_still_makes_durable_what_was_committed_before() -> None:
    assert not any(try_seed(seed, Plan(nothing=True), 150).broken for seed in (5, 13, 15))


# The suite finds what it is there to find


@contextmanager
def never_synced(level: str) -> Iterator[None]:
    """Barriers do not wait for the disk; SQLite's own syncs are at this level."""
    def start(writer: Writer, *args: Any) -> None:
        started(writer, *args)
        writer._connection.execute(f"pragma synchronous = {level}")

    started = Writer.__init__
    with patch.object(Log, "sync", lambda log: None), patch.object(Writer, "__init__", start):
        yield


@contextmanager
def told_before_committed() -> Iterator[None]:
    """Callers are answered when their verb has run; it is committed when the next one comes."""
    def transact(writer: Writer, batch: list[PendingWrite]) -> None:
        if writer._connection.in_transaction:
            writer._connection.execute("commit")
        writer._connection.execute("begin immediate")
        writer._tx.now = writer._clock.now_ms()
        for work in batch:
            writer._attempt(work)
        writer._commits += 1

    async def close(ledger: SqliteLedger, **options: Any) -> None:
        if ledger._connection.in_transaction:
            ledger._connection.execute("commit")
        await closed(ledger, **options)

    closed = SqliteLedger.close
    with (
        patch.object(Writer, "_transact", transact), patch.object(SqliteLedger, "close", close),
        patch.object(Writer, "_bring_in", lambda writer: None),  # not while a transaction is open
    ):
        yield


@contextmanager
def synced_before_committed() -> Iterator[None]:
    """The log is synced when a barrier is asked for, and not after its commit."""
    def transact(writer: Writer, batch: list[PendingWrite]) -> None:
        if any(work.barrier for work in batch):
            sync(writer._log)
        transacted(writer, batch)

    sync, transacted = Log.sync, Writer._transact
    with patch.object(Writer, "_transact", transact), patch.object(Log, "sync", lambda log: None):
        yield


PLANTED = {
    "barriers commit as plain ones": Plan(planted=lambda: never_synced("normal")),
    "nothing is synced": Plan(planted=lambda: never_synced("off")),
    "barriers sync too early": Plan(planted=synced_before_committed),
    "callers are told before the commit": Plan(planted=told_before_committed),
    "the disk does not sync the log": Plan(lies=frozenset({"keep.db-wal"})),
    "the disk does not sync the file": Plan(lies=frozenset({"keep.db"})),
    "the disk syncs nothing": Plan(lies=frozenset({"keep.db", "keep.db-wal", "keep.db-journal"})),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    assert any(try_seed(seed, PLANTED[fault], 250).broken for seed in PLANTED_SEEDS), "nobody noticed"


def test_the_same_seed_finds_it_again() -> None:
    plan = PLANTED["barriers commit as plain ones"]
    seed = next(seed for seed in PLANTED_SEEDS if try_seed(seed, plan, 250).broken)
    assert try_seed(seed, plan, 250).broken


# The tape is true


def test_work_brings_the_log_into_the_file_in_its_middle(tmp_path: Path) -> None:
    middle = 0
    for seed in SEEDS:
        recording = images.record(tmp_path / str(seed), images.used(), Random(seed), Plan(), "a")
        file = recording.tape.base_files[images.NAME]
        syncs = [op.file for op in recording.tape.ops if isinstance(op, Sync)]
        middle += syncs[: len(syncs) // 2].count(file)
    assert middle > 0


def test_playing_the_whole_tape_gives_the_files_that_are_there(tmp_path: Path) -> None:
    for seed in SEEDS:
        recording = images.record(tmp_path / str(seed), images.used(), Random(seed), Plan(), "a")
        tape = recording.tape
        platter = Platter(tape.base, tape.base_files)
        for op in tape.ops:
            platter.play(op)
        for file in {op.file for op in tape.ops if isinstance(op, Write)}:
            platter.play(Sync(file, True))
        assert platter.image(Random(1)) == {images.NAME: recording.path.read_bytes()}
        assert state_of(recording.path) == recording.states[-1]


class Folders:
    """Counts how often SQLite syncs a folder, below every VFS."""

    def __init__(self) -> None:
        self.count = 0
        vfs = self._vfs = apsw.VFS("keep-folders", "unix")
        self._before = vfs.xGetSystemCall("openDirectory") or 0
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int))
        before = kind(self._before)

        def open_directory(path: bytes, fd: Any) -> int:
            self.count += 1
            return int(before(path, fd))

        self._kept = kind(open_directory)
        vfs.xSetSystemCall("openDirectory", ctypes.cast(self._kept, ctypes.c_void_p).value or 0)

    def end(self) -> None:
        self._vfs.xSetSystemCall("openDirectory", self._before)
        self._vfs.unregister()


@pytest.mark.parametrize("used", [False, True])
def test_sqlite_syncs_the_folder_when_the_tape_says_so(tmp_path: Path, used: bool) -> None:
    base = images.used() if used else {}  # made before anything is counted
    folders = Folders()
    try:
        recording = images.record(tmp_path / "life", base, Random(3), Plan(), "a")
    finally:
        folders.end()
    told = [op for op in recording.tape.ops if isinstance(op, Sync | Unlink) and op.folder]
    assert 0 < len(told) == folders.count


# The disk's fates


def platter(*ops: Write | Truncate | Sync | SyncFailed | Link | Unlink) -> Platter:
    disk = Platter({"f": b"old-" * 512}, {"f": 0})
    for op in ops:
        disk.play(op)
    return disk


def fates(disk: Platter, count: int = 300) -> set[tuple[tuple[str, bytes], ...]]:
    rng = Random(1)
    return {tuple(sorted(disk.image(rng).items())) for _ in range(count)}


def test_what_was_synced_has_one_fate() -> None:
    new = Write(0, 100, b"new")
    assert len(fates(platter(new, Sync(0, False)))) == 1
    assert len(fates(platter(new))) > 1


def test_sectors_survive_one_by_one_and_neighbours_stay() -> None:
    content = {image[0][1] for image in fates(platter(Write(0, 500, b"x" * 40)))}
    old = b"old-" * 512
    torn = {old[500:512] + b"x" * 28, b"x" * 12 + old[512:540], b"x" * 40, old[500:540]}
    assert torn <= {c[500:540] for c in content}
    assert {(c[:500], c[540:]) for c in content} == {(old[:500], old[540:])}


def test_a_new_file_may_lack_its_name_until_the_folder_is_synced() -> None:
    made = (Link("g", 1), Write(1, 0, b"content"), Sync(1, False))
    assert {len(image) for image in fates(platter(*made))} == {1, 2}
    assert {len(image) for image in fates(platter(*made, Write(1, 0, b"C"), Sync(1, True)))} == {2}


def test_a_deleted_file_may_come_back() -> None:
    assert {len(image) for image in fates(platter(Unlink("f", False)))} == {0, 1}
    assert {len(image) for image in fates(platter(Unlink("f", True)))} == {0}


def test_what_a_failed_sync_gave_up_no_later_sync_brings_back() -> None:
    disk = platter(Write(0, 0, b"lost"), SyncFailed(0), Write(0, 1000, b"kept"), Sync(0, False))
    content = {image[0][1] for image in fates(disk)}
    assert {b"old-", b"lost"} <= {c[:4] for c in content}
    assert {c[1000:1004] for c in content} == {b"kept"}
