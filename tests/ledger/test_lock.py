"""One host per file: the second is told who the first is, and a dead one holds nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import LedgerUnusable

CHILD = Path(__file__).with_name("child.py")


@contextmanager
def other_host(path: Path, act: str = "hold") -> Iterator[subprocess.Popen[str]]:
    """A process that has opened the ledger."""
    command = [sys.executable, str(CHILD), str(path), act]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("open hst_")
        try:
            yield process
        finally:
            process.kill()


def test_a_second_host_is_refused_and_told_who_the_first_is(path: Path) -> None:
    with other_host(path) as first:
        with pytest.raises(LedgerUnusable) as refused:
            SqliteLedger(path)
        message = refused.value.message
        assert f"process {first.pid} on {socket.gethostname()}" in message
        assert "stop that one first" in message
        assert "hst_" in message


async def test_a_second_host_in_the_same_process_is_refused_too(path: Path) -> None:
    ledger = SqliteLedger(path)
    with pytest.raises(LedgerUnusable, match=f"process {os.getpid()}"):
        SqliteLedger(path)
    await ledger.close()
    await SqliteLedger(path).close()


async def test_a_refused_second_host_does_not_disturb_the_first(path: Path) -> None:
    ledger = SqliteLedger(path)
    for _ in range(3):
        with pytest.raises(LedgerUnusable):
            SqliteLedger(path)
    await ledger.barrier()
    with pytest.raises(LedgerUnusable, match=ledger.host):
        SqliteLedger(path)
    await ledger.close()


async def test_the_lock_of_a_killed_host_is_free_at_once(path: Path) -> None:
    with other_host(path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        await SqliteLedger(path).close()


async def test_the_lock_is_not_inherited_by_child_processes(path: Path) -> None:
    with other_host(path, "with-child") as first:
        assert first.stdout
        sleeper = int(first.stdout.readline())
        try:
            first.kill()
            first.wait()
            os.kill(sleeper, 0)  # it lives
            await SqliteLedger(path).close()
        finally:
            os.kill(sleeper, signal.SIGKILL)


async def test_a_stopped_host_still_holds_its_lock(path: Path) -> None:
    with other_host(path) as first:
        first.send_signal(signal.SIGSTOP)
        with pytest.raises(LedgerUnusable, match=f"process {first.pid}"):
            SqliteLedger(path)
        first.send_signal(signal.SIGKILL)
        first.wait()
        await SqliteLedger(path).close()


@pytest.mark.parametrize("content", [b"", b"garbage", b"{}", b"[1]", b"\xff\xfe", b'{"pid": 1}'])
def test_a_lock_file_with_odd_content_is_no_obstacle(path: Path, content: bytes) -> None:
    path.with_name("keep.db.lock").write_bytes(content)
    ledger = SqliteLedger(path)
    assert ledger._lock
    path.with_name("keep.db.lock").write_bytes(content)
    with pytest.raises(LedgerUnusable, match="in use by another process"):
        SqliteLedger(path)


async def test_two_ledgers_in_one_folder_do_not_meet(tmp_path: Path) -> None:
    one, other = SqliteLedger(tmp_path / "a.db"), SqliteLedger(tmp_path / "b.db")
    await one.close()
    await other.close()


async def test_one_file_by_two_names_is_still_one_file(path: Path, tmp_path: Path) -> None:
    ledger = SqliteLedger(path)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(LedgerUnusable, match="in use"):
        SqliteLedger(link)
    await ledger.close()
