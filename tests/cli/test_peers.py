"""The command line and the host know each other by their user, before anything is said."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep
from keepai.doors import control, peers
from keepai.doors.control import ControlSocket, ask, is_running, socket_path
from keepai.model.errors import LedgerUnusable, NotFound

from .conftest import Place

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
on_linux = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not tell who connects")


class Impostor:
    """Listens in the host's place, and keeps what it is sent."""

    def __init__(self, path: Path) -> None:
        self.heard = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        path.chmod(0o600)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                heard = connection.recv(1 << 16)
                if heard == b"end":
                    return
                self.heard += heard
                connection.sendall(b'{"ok": true, "result": null}\n')

    def close(self, path: Path) -> None:
        """End."""
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
            last.sendall(b"end")
        self._thread.join(10)
        self._listener.close()


@contextmanager
def impostor(ledger: Path) -> Iterator[Impostor]:
    """Somebody in the host's place."""
    path = socket_path(ledger)
    made = Impostor(path)
    try:
        yield made
    finally:
        made.close(path)


def refused(ledger: Path, match: str) -> None:
    """An act is refused, and nobody says that a host runs."""
    with pytest.raises(LedgerUnusable, match=match) as caught:
        ask(ledger, "pause", {"wf": "a secret name"})
    assert "Nothing was sent" in caught.value.message
    assert not is_running(ledger)


@pytest.mark.parametrize(("mode", "is_trusted"), [
    (0o700, True), (0o755, True), (0o1777, True), (0o777, False), (0o757, False), (0o722, False),
])
def test_a_folder_to_which_others_may_write_is_not_trusted(tmp_path: Path, mode: int, is_trusted: bool) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    ledger = folder / "keep.db"
    with impostor(ledger) as somebody:
        folder.chmod(mode)
        if is_trusted:
            assert ask(ledger, "pause", {"wf": "x"}) is None
        else:
            refused(ledger, r"Other users may write to .*chmod go-w")
        assert bool(somebody.heard) is is_trusted
        folder.chmod(0o700)


def test_a_group_that_only_this_user_is_in_counts_as_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    tmp_path.chmod(0o770)
    me = peers.pwd.getpwuid(os.geteuid()).pw_name
    for name, members, is_trusted in ((me, [], True), (me, [me], True), (me, ["eve"], False), ("staff", [], False)):
        found = peers.grp.struct_group((name, "x", 1, members))
        monkeypatch.setattr(peers.grp, "getgrgid", lambda gid, found=found: found)
        assert (peers.misplaced(tmp_path / "keep.db.sock") is None) is is_trusted


def test_a_socket_that_others_may_use_is_not_trusted(tmp_path: Path) -> None:
    ledger = tmp_path / "keep.db"
    with impostor(ledger) as somebody:
        socket_path(ledger).chmod(0o666)
        refused(ledger, "Other users may use the socket .*chmod 600")
        assert somebody.heard == b""


@as_root
@pytest.mark.parametrize("which", ["folder", "socket"])
def test_what_belongs_to_another_user_is_not_trusted(tmp_path: Path, which: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    ledger = folder / "keep.db"
    with impostor(ledger) as somebody:
        os.chown(folder if which == "folder" else socket_path(ledger), NOBODY, NOBODY)
        refused(ledger, "belongs to the user .*, not to you. Use the account that runs the host")
        assert somebody.heard == b""


LISTEN = """
import os, socket, sys
made = socket.socket(socket.AF_UNIX)
made.bind(sys.argv[1])
os.chown(sys.argv[1], 0, 0)
os.chmod(sys.argv[1], 0o600)
os.setuid(65534)
made.listen()
print("listens", flush=True)
made.settimeout(20)
connection, _ = made.accept()
print(len(connection.recv(100)), flush=True)
"""


@as_root
@on_linux
def test_a_process_of_another_user_is_sent_nothing_whoever_owns_the_socket(tmp_path: Path) -> None:
    # A process that listens after it has become another user is known as that user.
    ledger = tmp_path / "keep.db"
    command = [sys.executable, "-c", LISTEN, str(socket_path(ledger))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listens\n"
        with pytest.raises(LedgerUnusable, match=r"runs as the user .*, not as you\. Nothing was sent\."):
            ask(ledger, "pause", {"wf": "x"})
        assert other.stdout.readline() == "0\n"


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A ledger in a folder that others may enter; those of pytest are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "keep.db"


CONNECT = """
import os, socket, sys
made = socket.socket(socket.AF_UNIX)
os.setuid(65534)
made.settimeout(20)
made.connect(sys.argv[1])
try:
    made.sendall(b'{"act": "pause", "params": {"wf": "x"}}\\n')
except OSError:
    pass
print(made.recv(10_000).decode())
"""


@as_root
@on_linux
async def test_the_host_does_nothing_for_another_user_whatever_the_socket_allows(
    reachable: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    did: list[str] = []

    async def perform(keep: Keep, act: str, params: Any) -> Any:
        did.append(act)

    monkeypatch.setattr(control, "perform", perform)
    async with Keep(reachable) as keep, ControlSocket(keep, reachable):
        socket_path(reachable).chmod(0o666)
        command = [sys.executable, "-c", CONNECT, str(socket_path(reachable))]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert "Nothing was done. Use the account that runs the host." in done.stdout, done.stderr
    assert did == []


async def test_a_host_of_the_same_user_is_trusted(tmp_path: Path) -> None:
    ledger = tmp_path / "keep.db"
    async with Keep(ledger) as keep, ControlSocket(keep, ledger):
        assert await asyncio.to_thread(is_running, ledger)
        with pytest.raises(NotFound):
            await asyncio.to_thread(ask, ledger, "pause", {"wf": "x"})


async def test_a_host_does_not_start_where_its_commands_would_not_trust_it(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    folder.chmod(0o777)
    async with Keep(folder / "keep.db") as keep:
        with pytest.raises(LedgerUnusable, match=r"The host did not start\. Other users may write to"):
            await ControlSocket(keep, folder / "keep.db").__aenter__()
    folder.chmod(0o700)


def test_doctor_says_what_is_wrong_with_the_place_of_the_socket(worked: Place) -> None:
    worked.folder.chmod(0o777)
    [host] = [each for each in worked.json("doctor", code=1) if each["name"] == "host"]
    worked.folder.chmod(0o700)
    assert host["state"] == "fail"
    assert "chmod go-w" in host["do"]
