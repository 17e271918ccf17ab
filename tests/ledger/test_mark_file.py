"""What hosts have acknowledged of a ledger in PostgreSQL is kept outside of it, and looked for on every connection."""

from __future__ import annotations

import asyncio
import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from keepai.ledger import opening
from keepai.ledger.account import Head
from keepai.ledger.opening import open_reader
from keepai.ledger.postgres.mark_file import MarkFile
from keepai.ledger.postgres.store import PostgresLedger
from keepai.model.clock import SystemClock
from keepai.model.errors import LedgerOlder, LedgerStopped, LedgerUnusable
from keepai.testing import ManualClock
from tests import postgres
from tests.ledger import rows
from tests.ledger.stores import PostgresStore, chosen

CHILD = """
import asyncio, sys
from keepai.ledger.postgres.store import PostgresLedger
from keepai.ledger.transitions import workflows
async def main():
    ledger = PostgresLedger(sys.argv[1])
    await ledger.write(workflows.note, None, "pause", ledger.host, "ann", None)
    print("acknowledged", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    with chosen("postgres"):
        made = PostgresStore()
        made.make()
        yield made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """This machine, and others: each has what its hosts remember."""
    return Machine(monkeypatch, tmp_path)


class Machine:
    """Hosts that are opened from now on are on the machine that was named last."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch, self._folder = patch, folder
        self.be("first")

    def be(self, name: str) -> Path:
        """Be this machine; gives the folder in which it remembers."""
        self._patch.setenv("XDG_STATE_HOME", str(self._folder / name))
        return self._folder / name


async def works(store: PostgresStore, name: str, clock: ManualClock | None = None) -> None:
    """A host begins, does something that it is told of, and ends."""
    ledger = PostgresLedger(store.url, clock)
    await ledger.write(rows.deploy, name)
    await ledger.close()


# -- when it is looked for ---------------------------------------------------------------------------


async def test_a_host_that_connects_again_to_a_server_that_lost_commits_stops(
    store: PostgresStore,
) -> None:
    await works(store, "a")
    ledger = PostgresLedger(store.url)
    await ledger.write(rows.deploy, "b")
    with store.raw() as tables:  # as in a failover to a standby that lacked it
        tables.execute("set session_replication_role = replica")
        tables.execute("delete from account where seq = 2")
        tables.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'keep'")
    with pytest.raises(LedgerStopped, match=r"sends nothing until"):
        await ledger.write(rows.deploy, "c")
    with pytest.raises(LedgerOlder, match=r"older than it was.*keep db accept-older"):
        await ledger.rejoin(())
    with pytest.raises(LedgerStopped):
        await ledger.all("workflow_all")
    await ledger.close()


async def test_a_host_that_connects_again_where_nothing_was_lost_goes_on(store: PostgresStore) -> None:
    ledger = PostgresLedger(store.url)
    await ledger.write(rows.deploy, "a")
    assert len(await ledger.all("workflow_all")) == 1
    await ledger.close()


async def test_what_a_host_of_this_machine_had_acknowledged_is_missed_when_it_was_killed(
    store: PostgresStore, tmp_path: Path,
) -> None:
    await works(store, "a")
    backup = store.copied(tmp_path)
    await asyncio.to_thread(killed_when_it_was_told, store)
    store.become(backup)
    with pytest.raises(LedgerOlder, match="older than it was"):
        PostgresLedger(store.url)


def killed_when_it_was_told(store: PostgresStore) -> None:
    """A host in a process of its own."""
    child = [sys.executable, "-c", CHILD, store.url]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"acknowledged\n"
        process.send_signal(signal.SIGKILL)


async def test_a_refused_ledger_is_not_even_brought_up_to_date(store: PostgresStore, tmp_path: Path) -> None:
    backup = store.copied(tmp_path)
    await works(store, "a")
    store.become(backup)
    with store.raw() as tables:
        tables.execute("drop trigger run_stays on run")
    with pytest.raises(LedgerOlder):
        PostgresLedger(store.url)
    with store.raw() as tables:
        assert list(tables.execute("select 1 from pg_trigger where tgname = 'run_stays'")) == []


# -- machines, of which each remembers what its hosts were told ----------------------------------------


async def test_each_machine_asks_for_what_its_hosts_had_acknowledged_though_another_goes_on(
    store: PostgresStore, tmp_path: Path, machine: Machine,
) -> None:
    clock = ManualClock()
    await works(store, "a", clock)
    before, backup = clock.now_ms(), store.copied(tmp_path)
    clock.advance(minutes=10)
    await works(store, "lost", clock)
    lost = clock.now_ms()
    store.become(backup)
    clock.advance(minutes=10)
    machine.be("second")
    for name in ("b", "c"):
        await works(store, name, clock)
    machine.be("first")
    with pytest.raises(LedgerOlder, match="what was entry 2 then is not in it"):
        PostgresLedger(store.url, clock)
    ledger = PostgresLedger(store.url, clock, accept_older=True)
    assert ledger.accepted
    assert ledger.behind is not None
    assert (ledger.behind.since_at, ledger.behind.until_at) == (before, lost)  # b and c came later
    await ledger.write(rows.deploy, "d")
    await ledger.close()
    await works(store, "e", clock)
    machine.be("second")
    await works(store, "f", clock)


async def test_that_a_person_accepted_it_counts_when_it_is_on_record(store: PostgresStore, tmp_path: Path) -> None:
    await works(store, "a")
    backup = store.copied(tmp_path)
    await works(store, "b")
    store.become(backup)
    ledger = PostgresLedger(store.url, accept_older=True)
    assert len(await ledger.all("workflow_all")) == 1
    await ledger.close()
    with pytest.raises(LedgerOlder):
        PostgresLedger(store.url)


# -- the file ----------------------------------------------------------------------------------------


def test_the_file_is_that_of_the_place_whoever_connects_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)

    def path(url: str) -> Path:
        return MarkFile(url).path

    one = path("postgresql://ann:secret@db.example.com/books")
    assert one == path("postgres://bob@db.example.com:5432/books?sslmode=verify-full&password=other")
    assert "secret" not in one.name
    others = [path(f"postgresql://{each}") for each in (
        "ann@db.example.com/other", "ann@db.example.com:5433/books", "ann@db2.example.com/books",
        "ann@db.example.com,db2.example.com/books")]
    assert len({one, *others}) == 5
    monkeypatch.setenv("PGHOST", "db.example.com")
    assert path("postgresql:///books") == one


async def test_no_password_is_in_the_file_and_only_its_user_can_read_it(store: PostgresStore, machine: Machine) -> None:
    await works(store, "a")
    [file] = (machine.be("first") / "keep").iterdir()
    assert postgres.PASSWORD.encode() not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


URL = "postgresql://ann@db.example.com/books"


def told(marks: MarkFile, entries: int, ledger: str = "one") -> None:
    marks.tell(ledger, "host", 1, Head(entries, bytes([entries])), 1_800_000_000_000)


def entries(marks: MarkFile) -> int | None:
    left = marks.left()
    return left.entries if left else None


@pytest.fixture
def folder(machine: Machine) -> Path:
    made = machine.be("first") / "keep"
    made.mkdir(parents=True)
    return made


def test_of_two_hosts_the_one_that_has_come_further_counts(folder: Path) -> None:
    one, other = MarkFile(URL), MarkFile(URL)
    told(one, 5)
    told(other, 3)
    assert entries(MarkFile(URL)) == entries(one) == entries(other) == 5
    told(other, 6)
    told(one, 2)
    assert entries(MarkFile(URL)) == entries(one) == 6
    told(one, 1, "another ledger")
    assert entries(MarkFile(URL)) == 1


def test_a_host_remembers_what_it_told_though_the_file_is_gone(folder: Path) -> None:
    one = MarkFile(URL)
    told(one, 5)
    one.path.unlink()
    assert entries(MarkFile(URL)) is None
    assert entries(one) == 5
    told(one, 6)
    assert entries(MarkFile(URL)) == 6


def test_a_host_that_was_stopped_while_it_wrote_holds_no_other_up(folder: Path) -> None:
    one = MarkFile(URL)
    told(one, 5)
    with one.path.open("rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        told(one, 6)
        assert (entries(one), entries(MarkFile(URL))) == (6, 5)
    told(one, 7)
    assert entries(MarkFile(URL)) == 7


@pytest.mark.parametrize("content", [
    b"", b"garbage", b"{}", b"[1]", b"\xff\xfe", b'{"mark": {"epoch": 1}}', b"x" * 5000])
async def test_a_file_that_cannot_be_read_keeps_nobody_out(
    store: PostgresStore, machine: Machine, content: bytes,
) -> None:
    await works(store, "a")
    [file] = (machine.be("first") / "keep").iterdir()
    file.write_bytes(content)
    await works(store, "b")
    assert json.loads(file.read_bytes()[:1024])["mark"]["entries"] == 2


def test_a_host_that_cannot_remember_does_not_begin(store: PostgresStore, machine: Machine) -> None:
    folder = machine.be("first")
    folder.write_text("no folder")
    with pytest.raises(LedgerUnusable, match=r"cannot be written.*that is older is noticed.*XDG_STATE_HOME"):
        PostgresLedger(store.url)
    with store.raw() as tables:
        assert list(tables.execute("select * from host")) == []


async def test_a_host_that_can_remember_no_longer_stops(store: PostgresStore, machine: Machine) -> None:
    ledger = PostgresLedger(store.url)
    [file] = (machine.be("first") / "keep").iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(LedgerStopped, match=r"cannot be written.*sends nothing until it has another place"):
        await ledger.write(rows.deploy)
    with pytest.raises(LedgerStopped):
        await ledger.write(rows.deploy, "other")
    await ledger.close()
    file.rmdir()
    await works(store, "other")


# -- what else opens a ledger --------------------------------------------------------------------------


async def test_whoever_looks_is_told_and_a_move_from_there_is_refused(store: PostgresStore, tmp_path: Path) -> None:
    await works(store, "a")
    backup = store.copied(tmp_path)
    await works(store, "b")
    store.become(backup)
    with closing(open_reader(store.url)) as read:
        assert "is refused: it is older than it was" in str(read.refused)
        assert len(read.all("workflow_all")) == 1
    with pytest.raises(LedgerOlder, match="older than it was"):
        await asyncio.to_thread(move, store.url, tmp_path / "keep.db")
    assert not (tmp_path / "keep.db").exists()


async def test_a_place_takes_back_its_own_ledger_and_no_other(store: PostgresStore, tmp_path: Path) -> None:
    await works(store, "a")
    await asyncio.to_thread(move, store.url, tmp_path / "keep.db")
    ledger = opening.open_ledger(tmp_path / "keep.db", SystemClock())
    await ledger.write(rows.deploy, "b", barrier=True)
    await ledger.close()
    store.vanish()
    await asyncio.to_thread(move, tmp_path / "keep.db", store.url)
    await works(store, "c")

    other = opening.open_ledger(tmp_path / "other.db", SystemClock())
    await other.write(rows.deploy, "x", barrier=True)
    await other.close()
    store.vanish()
    with pytest.raises(LedgerUnusable, match=r"was the place of a ledger before.*Or name another database"):
        await asyncio.to_thread(move, tmp_path / "other.db", store.url)


async def test_a_person_may_go_on_where_a_ledger_was_moved_away(store: PostgresStore, tmp_path: Path) -> None:
    await works(store, "a")
    await asyncio.to_thread(move, store.url, tmp_path / "keep.db")
    with pytest.raises(LedgerOlder, match="was moved to"):
        PostgresLedger(store.url)
    ledger = PostgresLedger(store.url, accept_older=True)
    assert ledger.behind is not None
    await ledger.close()


def move(source: str | Path, target: str | Path) -> None:
    opening.move(source, target, SystemClock(), lambda read: iter(()), lambda *_: None)
