# ruff: noqa: E501 (an attack is read best on one line)
"""The control socket, by requests that make no sense, and by other users and programs in the host's place."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keepai import Keep
from keepai.doors import control
from keepai.model.acts import requests_of
from keepai.model.errors import KeepError
from keepai.model.principals import Role
from tests.attack.base import Area, Attack, Broken, Planted, must, refused
from tests.cli.test_control import ABUSE, sent
from tests.harness import consumer, producer, workflow

SCRIPT = workflow("controlled", producers={"poll": producer("return 1;", publishes=())}, consumers={"act": consumer("return { reservations: [], data: {} };")})


@dataclass
class Door:
    """A host that listens, and a workflow of which nothing may be changed by nonsense."""

    folder: Path
    ledger: Path
    keep: Keep
    wf: str

    async def sound(self, before: int) -> None:
        """Nothing was done, and the host answers."""
        answer = json.loads(await sent(self.ledger, b'{"act": "needs_you"}\n'))
        must(answer["ok"] is True, f"an honest request was answered with {answer}")
        must(await self.keep.version() == before, "something was done")


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Door]:
    path = folder / "keep.db"
    async with Keep(path) as keep, control.ControlSocket(keep, path):
        done = await keep.deploy(SCRIPT)
        yield Door(folder, path, keep, done.workflow_id)


def attacks(door: Door) -> Iterator[Attack]:
    for name, data in ABUSE.items():
        yield Attack(f"a request that makes no sense: {name}", lambda data=data: _nonsense(door, data))
    yield Attack("a request without end", lambda: _nonsense(door, b'{"act": "deploy", "params": {"source": "' + b"x" * (control.BYTES_MAX + 10)))
    yield Attack("a request that breaks off is carried out", lambda: _half(door))
    yield Attack("other users may connect to the socket", lambda: _mode(door))
    for mode in (0o777, 0o733, 0o703):
        yield Attack(f"a command trusts a socket in a folder of mode {mode:o}", lambda mode=mode: _folder(door, mode))
    for mode in (0o666, 0o622):
        yield Attack(f"a command trusts a socket of mode {mode:o}", lambda mode=mode: _socket(door, mode))
    yield Attack("a command trusts the process of another user", lambda: _process(door))
    yield Attack("the host does something for another user", lambda: _other_user(door))
    yield Attack("a file in the place of the socket is removed", lambda: _file(door))


async def _nonsense(door: Door, data: bytes) -> None:
    before = await door.keep.version()
    answer = await sent(door.ledger, data)
    if answer:
        told = json.loads(answer)
        must(told["ok"] is False and told["error"]["message"], f"it was answered with {told}")
        must(told["error"]["code"] != "internal" and "Traceback" not in str(told), f"it was answered with {told}")
    await door.sound(before)


async def _half(door: Door) -> None:
    before = await door.keep.version()
    request = json.dumps({"act": "pause", "params": {"wf": door.wf}}).encode()
    must(await sent(door.ledger, request, half=True) == b"", "it was answered")
    await door.sound(before)


async def _mode(door: Door) -> None:
    mode = stat.S_IMODE(control.socket_path(door.ledger).stat().st_mode)
    must(mode == 0o600, f"its mode is {mode:o}")


@contextmanager
def _impostor(folder: Path) -> Iterator[tuple[Path, list[bytes]]]:
    """Another program that listens in the place of a host, and what it was sent."""
    folder.mkdir()
    ledger, heard = folder / "keep.db", list[bytes]()
    path = control.socket_path(ledger)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    listener.settimeout(0.5)

    def listen() -> None:
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(0.5)
                heard.append(connection.recv(1 << 16))
                connection.sendall(b'{"ok": true, "result": null}\n')
        except OSError:
            pass

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield ledger, heard
    finally:
        thread.join()
        listener.close()


async def _ask(ledger: Path, heard: list[bytes]) -> None:
    """What a command does when it is to approve something."""
    with refused("a command spoke with it", KeepError, control.NoHost):
        await asyncio.to_thread(control.ask, ledger, "approve", {"id": "apr_secret"})
    must(not any(heard), f"it was sent {heard}")


async def _folder(door: Door, mode: int) -> None:
    folder = door.folder / f"folder-{mode:o}"
    with _impostor(folder) as (ledger, heard):
        folder.chmod(mode)
        await _ask(ledger, heard)


async def _socket(door: Door, mode: int) -> None:
    with _impostor(door.folder / f"socket-{mode:o}") as (ledger, heard):
        control.socket_path(ledger).chmod(mode)
        await _ask(ledger, heard)


async def _process(door: Door) -> None:
    with _impostor(door.folder / "process") as (ledger, heard), patch.object(control, "peer_uid", lambda _: os.geteuid() + 1):
        await _ask(ledger, heard)


async def _other_user(door: Door) -> None:
    before = await door.keep.version()
    request = json.dumps({"act": "pause", "params": {"wf": door.wf}}).encode() + b"\n"
    with patch.object(control, "peer_uid", lambda _: os.geteuid() + 1):
        answer = await sent(door.ledger, request)
    must(not answer or json.loads(answer)["ok"] is False, f"it was answered with {answer!r}")
    await door.sound(before)


async def _file(door: Door) -> None:
    folder = door.folder / "file"
    folder.mkdir()
    path = control.socket_path(folder / "keep.db")
    path.write_text("precious")
    async with Keep(folder / "keep.db") as keep:
        with refused("a host started", KeepError):
            await control.ControlSocket(keep, folder / "keep.db").__aenter__()
    must(path.read_text() == "precious", "it is gone")


_OWNED = requests_of(Role.OWNER)
_VALUES: tuple[Any, ...] = (None, True, 0, -1, 1e300, "", "x", "wf_", "run_1", [], {}, {"mode": "allow"}, "\u0000", "a" * 3000, [[[]]], "allow", "__class__")


def drawn(door: Door, chance: Random) -> Attack:
    """An act with any params, or a line with some bytes changed; no workflow of that name is there."""
    act = chance.choice([*_OWNED, "close", "__init__", "workflows", "serve"])
    needs = {name: None for name, param in _OWNED[act].items() if param.required} if act in _OWNED else {"wf": None}
    params: Any = {name: chance.choice(_VALUES) for name in needs}
    if chance.random() < 0.3:
        params[chance.choice(["actor", "shown", "grants", "by", "strand", "x"])] = chance.choice(_VALUES)
    data = bytearray(json.dumps({"act": act, "params": params}).encode())
    for _ in range(chance.choice([0, 0, 1, 3])):
        data[chance.randrange(len(data))] = chance.randrange(256)

    async def attack() -> None:
        line = bytes(data).replace(b"\n", b" ") + b"\n"
        answer = json.loads(await sent(door.ledger, line))
        if not answer["ok"]:
            must(answer["error"]["code"] != "internal" and answer["error"]["message"], f"it was answered with {answer}")
        elif act not in ("needs_you", "explain", "prune", "deploy"):
            raise Broken(f"{line[:200]!r} was carried out: {answer}")

    return Attack(f"{act} with {params!r:.100}", attack)


AREA = Area(
    "control", "the control socket, by nonsense, other users and impostors", place, attacks, drawn,
    (
        Planted("any place of a socket is trusted", lambda: patch.object(control, "misplaced", lambda _, **__: None), "a command trusts a socket"),
        Planted("any method of a host may be asked for", lambda: patch.object(
            control, "requests_of", lambda role: {**_OWNED, "workflows": {}}), "a look"),
    ),
)
