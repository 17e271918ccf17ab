"""What is refused when a ledger is opened: one sentence that names the file and says what to do."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import psutil
import pytest

from keepai.ledger.sqlite import connection as connections
from keepai.ledger.sqlite.connection import check_library
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import LedgerUnusable
from tests.ledger import rows
from tests.ledger.disk import Disk
from tests.ledger.rows import raw, scalar
from tests.ledger.stores import Store

CHILD = Path(__file__).with_name("child.py")


def write_one(path: Path) -> None:
    """A ledger with something in it, closed."""
    async def fill() -> None:
        ledger = SqliteLedger(path)
        workflow_id = await ledger.write(rows.deploy)
        await ledger.write(rows.produce, workflow_id, *(f"message-{n}" for n in range(200)))
        await ledger.close()

    asyncio.run(fill())


def open_and_close(path: Path, **options: str) -> None:
    asyncio.run(SqliteLedger(path, **options).close())


def refused(path: Path, **options: str) -> str:
    with pytest.raises(LedgerUnusable) as error:
        SqliteLedger(path, **options)
    message = error.value.message
    assert path.name in message
    assert "\n" not in message
    assert message.endswith((".", "?")), f"does not end as a sentence does: {message}"
    return message


def why_not(path: Path) -> str | None:
    try:
        open_and_close(path)
    except LedgerUnusable as error:
        return error.message
    return None


# The library


def test_an_old_sqlite_is_refused_with_the_way_to_a_newer() -> None:
    for version in ("3.51.2", "3.50.9", "3.7.17", "2.8.17"):
        with pytest.raises(LedgerUnusable, match=re.escape(version)) as error:
            check_library(version)
        assert "3.51.3" in error.value.message
        assert "pip install -U apsw" in error.value.message
    for version in ("3.51.3", "3.52.0", "4.0.0", "3.51.3.1"):
        check_library(version)
    check_library()


# The file


def test_a_newer_schema_is_refused_and_left_as_it_is(path: Path) -> None:
    write_one(path)
    with raw(path) as file:
        file.execute("pragma user_version = 999; pragma wal_checkpoint(truncate)")
    before = path.read_bytes()
    message = refused(path)
    assert "schema 999" in message
    assert "Upgrade Keep" in message
    assert path.read_bytes() == before


def test_a_newer_schema_whose_log_is_not_empty_is_left_as_it_is(path: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    write_one(source)
    with raw(source) as file:  # a host that died leaves its log
        file.execute("pragma user_version = 999")
        path.write_bytes(source.read_bytes())
        wal = path.with_name(path.name + "-wal")
        wal.write_bytes(source.with_name("source.db-wal").read_bytes())
    before = path.read_bytes(), wal.read_bytes()
    assert before[1]
    assert "schema 999" in refused(path)
    gc.collect()  # a connection that is closed late would still bring its log into the file
    assert (path.read_bytes(), wal.read_bytes() if wal.exists() else b"") == before


@pytest.mark.parametrize("content", [b"hello, world\n" * 100, b"\x89PNG\r\n" + bytes(5000), b"hi\n"])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "not a Keep ledger" in refused(path)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    with raw(path) as file:
        file.execute("create table theirs (id integer); insert into theirs values (1)")
    before = path.read_bytes()
    assert "some other program" in refused(path)
    assert path.read_bytes() == before


def test_the_marked_database_of_another_program_is_refused(path: Path) -> None:
    with raw(path) as file:
        file.execute("pragma application_id = 1234; create table theirs (id integer)")
    assert "some other program" in refused(path)


def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    refused(path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "no" / "such" / "folder" / "keep.db")


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    path.touch()
    SqliteLedger(path)


def test_a_damaged_file_is_refused_or_whole_and_never_a_surprise(path: Path, tmp_path: Path) -> None:
    write_one(path)
    good = path.read_bytes()
    pages, unusable = len(good) // 4096, 0
    for number in range(pages):
        copy = tmp_path / f"bad-{number}.db"
        bad = bytearray(good)
        for offset in range(0, 4096, 3):
            bad[number * 4096 + offset] ^= 0x5A
        copy.write_bytes(bad)
        said = why_not(copy)
        if said:
            unusable += 1
            assert copy.name in said
            assert re.search("damaged|not a Keep ledger|other program|disk failed", said), said
            assert copy.read_bytes() == bytes(bad), "a damaged file is evidence"
    assert unusable >= pages - 2, f"{unusable} of {pages} damaged pages were noticed"


def test_the_sentence_on_damage_says_what_to_keep_and_what_to_restore(path: Path) -> None:
    write_one(path)
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 4 * 4096] = bytes(4096)
    path.write_bytes(data)
    message = refused(path)
    assert "damaged" in message
    assert "***" not in message, "the words in brackets say what is damaged"
    assert "restore the newest backup" in message


def test_a_file_cut_off_in_the_middle_is_refused(path: Path) -> None:
    write_one(path)
    path.write_bytes(path.read_bytes()[: 5 * 4096])
    assert "damaged" in refused(path)


# The disk


@pytest.mark.parametrize(("error", "words"), [
    (apsw.FullError("full"), "is full. Free some space"), (apsw.IOError("io"), "Look at the disk"),
    (apsw.ReadOnlyError("ro"), "read-only"), (apsw.CantOpenError("no"), "cannot be opened"),
    (apsw.PermissionsError("no"), "permissions"),
])
@pytest.mark.parametrize("act", ["open", "write"])
def test_a_disk_that_fails_while_opening_is_named(
    path: Path, disk: Disk, act: str, error: Exception, words: str,
) -> None:
    disk.fail(act, 1, error)
    message = refused(path, vfs=disk.name)
    assert words in message or act == "open", message
    disk.mend()
    open_and_close(path, vfs=disk.name)


@pytest.mark.parametrize("nth", [2, 5, 10, 20, 40, 60, 80])
def test_a_disk_that_is_full_in_the_middle_of_opening_leaves_a_file_that_opens_later(
    path: Path, disk: Disk, nth: int,
) -> None:
    disk.fail("write", nth, apsw.FullError("full"))
    assert "is full" in refused(path, vfs=disk.name)
    disk.mend()
    open_and_close(path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may reach; pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="keep-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHILD), str(path), "as-nobody"], capture_output=True, text=True, timeout=30, check=False,
    )


def test_a_read_only_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "keep.db"
    write_one(path)
    open_folder.chmod(0o777)
    path.chmod(0o444)
    for side in open_folder.glob("*.lock"):
        side.chmod(0o666)
    before = path.read_bytes()
    said = as_nobody(path)
    assert (said.returncode, said.stderr) == (3, "")
    assert f"{path} is read-only" in said.stdout
    assert "permissions" in said.stdout
    assert path.read_bytes() == before


def test_a_read_only_folder_is_refused(open_folder: Path) -> None:
    path = open_folder / "keep.db"
    write_one(path)
    path.chmod(0o666)
    path.with_name("keep.db.lock").unlink()
    open_folder.chmod(0o555)
    said = as_nobody(path)
    open_folder.chmod(0o755)
    assert (said.returncode, said.stderr) == (3, "")
    assert "may write to" in said.stdout
    assert "keep.db.lock" in said.stdout


def test_a_file_that_may_not_be_read_is_refused(open_folder: Path) -> None:
    path = open_folder / "keep.db"
    write_one(path)
    open_folder.chmod(0o777)
    path.chmod(0)
    path.with_name("keep.db.lock").chmod(0o666)
    said = as_nobody(path)
    assert (said.returncode, said.stderr) == (3, "")
    assert str(path) in said.stdout


def test_a_refused_open_lets_go_of_the_lock(path: Path) -> None:
    path.write_bytes(b"garbage" * 100)
    for _ in range(3):
        assert "not a Keep ledger" in refused(path)


def test_a_refused_open_leaves_no_open_file(path: Path) -> None:
    write_one(path)
    with raw(path) as file:
        file.execute("pragma user_version = 999")
    for _ in range(3):
        refused(path)
    mine = [process_file.path for process_file in psutil.Process().open_files()]
    assert not [name for name in mine if name.startswith(str(path))]


# What an opened file is


async def test_an_opened_ledger_is_ours_in_wal_mode_and_synced_by_its_writer(path: Path) -> None:
    ledger = SqliteLedger(path)
    pragma = ledger._connection.pragma
    assert (pragma("journal_mode"), pragma("synchronous"), pragma("foreign_keys")) == ("wal", 1, 1)
    assert pragma("application_id") == connections.APPLICATION_ID
    await ledger.close()
    with raw(path) as file:
        assert scalar(file, "pragma integrity_check") == "ok"
        assert list(file.execute("pragma foreign_key_check")) == []


async def test_each_opening_is_a_new_host_with_a_higher_epoch(store: Store) -> None:
    epochs, hosts = [], set()
    for _ in range(3):
        ledger = store.open()
        epochs.append(ledger.epoch)
        hosts.add(ledger.host)
        await ledger.close()
    assert epochs == [1, 2, 3]
    assert len(hosts) == 3


async def test_a_ledger_in_memory_works_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = SqliteLedger(":memory:")
    await ledger.write(rows.deploy, barrier=True)
    await ledger.barrier()
    assert len(ledger.reads.all("workflow_all")) == 1
    await ledger.close()
    assert os.listdir() == []


def test_a_new_ledger_is_its_owners_alone_and_an_old_one_keeps_its_mode(path: Path) -> None:
    before = os.umask(0o022)
    try:
        asyncio.run(SqliteLedger(path).close())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    asyncio.run(SqliteLedger(path).close())
    assert path.stat().st_mode & 0o777 == 0o640


ADDRESS = "postgresql://ann:secret@127.0.0.1:1/books"
WITHOUT_PSYCOPG = f"""
import asyncio, sys
from contextlib import closing
sys.modules["psycopg"] = None  # as where it is not installed
from pathlib import Path
from keepai import Keep
from keepai.ledger import opening
from keepai.model.clock import SystemClock
from keepai.model.errors import LedgerUnusable

async def host():
    async with Keep("{ADDRESS}"):
        pass

there, clock = "{ADDRESS}", SystemClock()
for act in (
    lambda: asyncio.run(host()), lambda: opening.open_reader(there), lambda: opening.examine(there, clock),
    lambda: opening.open_deliveries(there, "shop", 1, clock), lambda: opening.inboxes(there),
    lambda: opening.move(there, Path(sys.argv[1]), clock, lambda read: iter(()), lambda *_: None),
):
    try:
        act()
    except LedgerUnusable as error:
        print(error.message)
"""


def test_where_psycopg_is_not_installed_every_door_to_postgres_says_what_to_install(tmp_path: Path) -> None:
    child = [sys.executable, "-c", WITHOUT_PSYCOPG, str(tmp_path / "keep.db")]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60, check=True)
    said = "A ledger in PostgreSQL needs psycopg and greenlet. Install them: pip install 'keepai[postgres]'."
    assert done.stdout.splitlines() == [said] * 6
    assert list(tmp_path.iterdir()) == []
