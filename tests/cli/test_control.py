"""The control socket: whatever arrives, the host goes on."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from keepai import Keep
from keepai.doors import connections, control
from keepai.doors.cli.command_session import CommandSession
from keepai.model.errors import LedgerUnusable, NotFound, ScriptInvalid

from .conftest import EXAMPLE


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Path]:
    """The ledger of a host that listens."""
    path = tmp_path / "keep.db"
    async with Keep(path) as keep, control.ControlSocket(keep, path):
        yield path


async def sent(ledger: Path, data: bytes, *, half: bool = False) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(control.socket_path(ledger)), limit=1 << 24)
    try:
        writer.write(data)
        if half:
            writer.write_eof()
        return await asyncio.wait_for(reader.readline(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def error_of(answer: bytes) -> Any:
    data = json.loads(answer)
    assert data["ok"] is False
    return data["error"]


ABUSE = {
    "no JSON": b"pause everything\n",
    "an empty line": b"\n",
    "no object": b"[1]\n",
    "no act": b'{"params": {}}\n',
    "an act that is no text": b'{"act": ["pause"]}\n',
    "an unknown act": b'{"act": "close"}\n',
    "a private name": b'{"act": "__init__"}\n',
    "a look": b'{"act": "workflows"}\n',
    "params that are no object": b'{"act": "pause", "params": 3}\n',
    "missing params": b'{"act": "pause", "params": {}}\n',
    "unknown params": b'{"act": "pause", "params": {"wf": "x", "actor": "root"}}\n',
    "params of a wrong type": b'{"act": "pause", "params": {"wf": 3}}\n',
    "half a character": b'{"act": "pause", "params": {"wf": "\\ud800"}}\n',
    "bytes": b"\xff\xfe\x00\n",
    "deep nesting": b"[" * 200_000 + b"\n",
    "a model that Keep does not have": b'{"act": "pause", "params": {"wf": "x"}, "as": "person:ann"}\n',
    "a model that is no text": b'{"act": "pause", "params": {"wf": "x"}, "as": ["planner"]}\n',
    "an act of people, for a model": b'{"act": "deploy", "params": {"source": ""}, "as": "planner"}\n',
    "a huge number": b'{"act": "pause", "params": {"wf": 1' + b"0" * 5000 + b"}}\n",
    "grants that mean nothing": b'{"act": "deploy", "params": {"source": "", "grants": {"a": [1]}}}\n',
}


@pytest.mark.parametrize("abuse", ABUSE)
async def test_a_request_that_makes_no_sense_is_refused_and_harms_nobody(ledger: Path, abuse: str) -> None:
    error = error_of(await sent(ledger, ABUSE[abuse]))
    assert error["code"] in ("refused", "params_wrong", "script_invalid", "config")
    assert error["message"]
    await still_serves(ledger)


async def still_serves(ledger: Path) -> None:
    with pytest.raises(NotFound, match="no workflow 'x'"):
        await asyncio.to_thread(control.ask, ledger, "pause", {"wf": "x"})


async def test_a_request_that_is_too_long_is_refused(ledger: Path) -> None:
    answer = await sent(ledger, b'{"act": "deploy", "params": {"source": "' + b"x" * (control.BYTES_MAX + 10))
    assert answer == b"" or "longer than" in error_of(answer)["message"]
    await still_serves(ledger)


async def test_a_request_that_breaks_off_asks_nothing(ledger: Path) -> None:
    assert await sent(ledger, b'{"act": "pause", "params": {"wf": "x"}}', half=True) == b""
    await still_serves(ledger)


async def test_a_host_that_does_not_answer_holds_up_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOOK_S", 0.2)
    path = tmp_path / "keep.db"
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(control.socket_path(path)))
        control.socket_path(path).chmod(0o600)
        stuck.listen()
        assert await asyncio.to_thread(CommandSession(db=str(path)).told, "needs_you") is None


async def test_a_host_that_does_not_accept_is_told_in_a_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "CONNECT_S", 0.2)
    path = tmp_path / "keep.db"
    with socket.socket(socket.AF_UNIX) as stuck, ExitStack() as held:
        stuck.bind(str(control.socket_path(path)))
        control.socket_path(path).chmod(0o600)
        stuck.listen(0)
        for _ in range(4):  # more than the system holds for it
            waiting = held.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(str(control.socket_path(path)))
        with pytest.raises(LedgerUnusable, match=r"Nothing was sent\."):
            await asyncio.to_thread(control.ask, path, "pause", {"wf": "x"})


async def test_an_act_under_way_when_the_host_ends_still_gets_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def perform(keep: Keep, act: str, params: Any) -> Any:
        begun.set()
        await go_on.wait()
        return "done"

    monkeypatch.setattr(control, "perform", perform)
    path = tmp_path / "keep.db"
    async with Keep(path) as keep:
        door = await control.ControlSocket(keep, path).__aenter__()
        act = asyncio.ensure_future(asyncio.to_thread(control.ask, path, "pause", {"wf": "x"}))
        await begun.wait()
        ending = asyncio.ensure_future(door.__aexit__(None, None, None))
        await asyncio.sleep(0)
        go_on.set()
        await ending
        assert await act == "done"


async def test_an_answer_that_is_not_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD_S", 0.2)
    served = asyncio.Event()

    async def perform(keep: Keep, act: str, params: Any) -> Any:
        asyncio.current_task().add_done_callback(lambda task: served.set())  # type: ignore[union-attr]
        return "x" * (16 << 20)

    monkeypatch.setattr(control, "perform", perform)
    path = tmp_path / "keep.db"
    async with Keep(path) as keep, control.ControlSocket(keep, path) as door:
        _, writer = await asyncio.open_unix_connection(str(control.socket_path(path)))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b'{"act": "pause", "params": {"wf": "x"}}\n')
        await asyncio.wait_for(served.wait(), 20)
        await asyncio.sleep(0)
        assert door._acceptor.held == set()
        writer.close()


async def test_only_the_owner_may_use_the_socket(ledger: Path) -> None:
    assert stat.S_IMODE(control.socket_path(ledger).stat().st_mode) == 0o600


async def test_errors_arrive_as_they_were_raised(ledger: Path) -> None:
    with pytest.raises(ScriptInvalid) as caught:
        await asyncio.to_thread(control.ask, ledger, "deploy", {"source": "export default 1;"})
    assert caught.value.findings[0].line == 1


async def test_the_socket_is_gone_when_the_host_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    async with Keep(path) as keep, control.ControlSocket(keep, path):
        assert control.is_running(path)
    assert not control.is_running(path)
    assert not control.socket_path(path).exists()
    with pytest.raises(control.NoHost):
        control.ask(path, "pause", {"wf": "x"})


async def test_the_socket_of_a_dead_host_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(control.socket_path(path)))
    with pytest.raises(control.NoHost):
        control.ask(path, "pause", {"wf": "x"})
    async with Keep(path) as keep, control.ControlSocket(keep, path):
        await still_serves(path)


async def test_a_file_in_the_place_of_the_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    control.socket_path(path).write_text("precious")
    async with Keep(path) as keep:
        with pytest.raises(LedgerUnusable, match="something else lies there"):
            await control.ControlSocket(keep, path).__aenter__()
    assert control.socket_path(path).read_text() == "precious"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's runtime folder, with a short name."""
    with tempfile.TemporaryDirectory() as made:
        monkeypatch.setenv("XDG_RUNTIME_DIR", made)
        yield Path(made)


async def test_a_long_path_gets_a_socket_in_a_folder_of_ones_own(tmp_path: Path, runtime: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    path = folder / "keep.db"
    short = control.socket_path(path)
    assert short.parent == runtime / "keep"
    assert len(os.fsencode(short)) <= control.PATH_BYTES_MAX
    async with Keep(path) as keep, control.ControlSocket(keep, path):
        assert stat.S_IMODE(short.parent.stat().st_mode) == 0o700
        await still_serves(path)


async def test_a_shared_folder_that_is_open_to_others_is_not_trusted(tmp_path: Path, runtime: Path) -> None:
    (runtime / "keep").mkdir()
    (runtime / "keep").chmod(0o777)
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    async with Keep(folder / "keep.db") as keep:
        with pytest.raises(LedgerUnusable, match="Other users may write to"):
            await control.ControlSocket(keep, folder / "keep.db").__aenter__()


async def test_a_host_that_ends_in_the_middle_is_told_as_unknown(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(hang_up, str(control.socket_path(path))):
        with pytest.raises(LedgerUnusable, match="ended before it answered"):
            await asyncio.to_thread(control.ask, path, "pause", {"wf": "x"})


def test_the_example_is_one_file() -> None:
    from keepai.doors.demo_folder import SCRIPT
    from keepai.doors.example_files import example_file

    assert example_file(SCRIPT).read_text("utf-8") == EXAMPLE.read_text("utf-8")
