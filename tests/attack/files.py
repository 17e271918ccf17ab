# ruff: noqa: E501 (an attack is read best on one line)
"""The connector for files: no path, link or second name leads out of its folder, and none into Keep's own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keepai.config import load
from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.connectors.files import paths
from keepai.doors.cli import wiring
from keepai.model.errors import ConfigError, ConnectorError, RuleBroken
from tests.attack.base import Area, Attack, Planted, must, refused

SECRET = "canary-5ecret"
OUT_OF_IT = (
    "", ".", "..", "../secret.txt", "/etc/passwd", "a//b", "a/./b", "a/../../secret.txt", "a\0b", "x" * 300, "/".join("a" * 40), ".keep/x", ".keep",
    ".KEEP/x", "a/.keep-x", "a/", "..\\secret.txt", "%2e%2e/secret.txt", "~/secret.txt", "\u2025/secret.txt", "file:///etc/passwd", "a/..",
    "\uff0e\uff0e/secret.txt", "..\u0000/secret.txt", "a\n/../../secret.txt",
)
OPERATIONS: tuple[tuple[str, Callable[[str], dict[str, Any]]], ...] = (
    ("read", lambda path: {"path": path}), ("write", lambda path: {"path": path, "content": "evil"}),
    ("append", lambda path: {"path": path, "content": "evil"}), ("move", lambda path: {"from": path, "to": "b.txt"}),
    ("move", lambda path: {"from": "old.txt", "to": path}), ("list", lambda path: {"folder": path}),
)


@dataclass
class Drive:
    """A folder that scripts may use, with a secret beside it."""

    root: Path

    async def do(self, operation: str, params: dict[str, Any]) -> Any:
        spec = make("files", "drive", {"path": str(self.root)}).operations[operation]
        return await asyncio.wait_for(spec.invoke(spec.parse(params), Call(idempotency_key=os.urandom(8).hex())), 10)

    def reset(self) -> None:
        for each in [path for path in self.root.rglob("*") if ".keep" not in path.parts][::-1]:
            each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
        (self.root / "old.txt").write_text("before\n")
        (self.root.parent / "secret.txt").write_text(SECRET)

    def look(self, answer: Any) -> None:
        """Nothing outside changed, or was seen."""
        outside = {path.name for path in self.root.parent.iterdir()}
        must(outside == {"drive", "secret.txt", "elsewhere"}, f"{outside} is in the folder above")
        must((self.root.parent / "secret.txt").read_text() == SECRET, "the secret was changed")
        must(not list((self.root.parent / "elsewhere").iterdir()), "a file was written elsewhere")
        must("5ecret" not in str(answer) and "root:" not in str(answer), f"it was given {answer!r:.100}")


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Drive]:
    (folder / "there" / "drive").mkdir(parents=True)
    (folder / "there" / "elsewhere").mkdir()
    yield Drive(folder / "there" / "drive")


def _link(root: Path) -> None:
    (root / "way").symlink_to(root.parent / "secret.txt")


def _hard_link(root: Path) -> None:
    os.link(root.parent / "secret.txt", root / "way")


def _pipe(root: Path) -> None:
    os.mkfifo(root / "way")


def _socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "way"))


def _device(root: Path) -> None:
    try:
        os.mknod(root / "way", 0o600 | 0o020000, os.makedev(1, 5))
    except OSError:
        _pipe(root)  # only root can make one


def attacks(drive: Drive) -> Iterator[Attack]:
    for path in OUT_OF_IT:
        for operation, params in OPERATIONS:
            if operation != "list" or path:  # an empty folder is the folder itself
                given = params(path)
                yield Attack(f"{operation} of the path {path[:40]!r} as {_part(given, path)}", partial(_try, drive, operation, given))
    for thing in (_link, _hard_link, _pipe, _socket, _device):
        for operation, params in OPERATIONS[:5]:
            given = params("way")
            yield Attack(f"{operation} of a {thing.__name__[1:].replace('_', ' ')} that leads elsewhere, as {_part(given, 'way')}",
                         partial(_special, drive, thing, operation, given))
    for operation, params in OPERATIONS:
        given = params("up/secret.txt")
        yield Attack(f"{operation} through a link to the folder above, as {_part(given, 'up/secret.txt')}", partial(_up, drive, operation, given))
    yield Attack("the journal is a link to another folder", lambda: _journal(drive))
    for kind, root in (("files", "."), ("files", ".."), ("files", "/"), ("files", "linked"), ("local.mail", "."), ("sql", "keep.db")):
        yield Attack(f"keep.toml gives a workflow Keep's own files: {kind} at {root}", lambda kind=kind, root=root: _own(drive, kind, root))


def _part(given: dict[str, Any], path: str) -> str:
    return next(name for name, each in given.items() if each == path)


async def _try(drive: Drive, operation: str, params: dict[str, Any]) -> None:
    drive.reset()
    answer = None
    try:
        answer = await drive.do(operation, params)
    except (ConnectorError, RuleBroken):
        pass
    drive.look(answer)


async def _special(drive: Drive, thing: Callable[[Path], None], operation: str, params: dict[str, Any]) -> None:
    drive.reset()
    thing(drive.root)
    with refused("it was touched", ConnectorError, RuleBroken):
        await drive.do(operation, params)
    drive.look(None)


async def _up(drive: Drive, operation: str, params: dict[str, Any]) -> None:
    drive.reset()
    (drive.root / "up").symlink_to(drive.root.parent)
    answer = None
    try:
        answer = await drive.do(operation, params)
    except (ConnectorError, RuleBroken):
        pass
    drive.look(answer)


async def _journal(drive: Drive) -> None:
    drive.reset()
    before = drive.root / ".keep"
    moved = drive.root.parent / "kept"
    if before.exists():
        before.rename(moved)
    before.symlink_to(drive.root.parent / "elsewhere")
    try:
        with refused("it was followed", ConnectorError):
            await drive.do("write", {"path": "a.txt", "content": "x"})
    finally:
        before.unlink()
        if moved.exists():
            moved.rename(before)
    drive.look(None)


def _own(drive: Drive, kind: str, root: str) -> None:
    """A workflow that could read the ledger, or change another's script."""
    folder = drive.root.parent.parent / f"project {kind} {root.replace('/', '-')}"
    folder.mkdir()
    (folder / "linked").symlink_to(folder, target_is_directory=True)
    (folder / "keep.db").touch()
    (folder / "flow.js").touch()
    tables = 'tables = ["run"]\n' if kind == "sql" else ""
    (folder / "keep.toml").write_text(f'[connectors.drive]\ntype = "{kind}"\npath = "{root}"\n{tables}')
    with refused("it was taken", ConfigError):
        wiring.give_secrets(load(folder / "keep.toml", make=wiring.make_connector))


_PIECES = ("..", ".", "/", "//", "a", "old.txt", "secret.txt", "\\", "\x00", "%2e%2e", "~", ".keep", "up", "\n", " ", "\uff0e", "elsewhere", "x" * 250)


def drawn(drive: Drive, chance: Random) -> Attack:
    """Pieces of paths, in a folder with links that lead out."""
    path = "".join(chance.choice(_PIECES) + chance.choice(["/", "/", ""]) for _ in range(chance.randint(1, 6)))
    operation, params = chance.choice(OPERATIONS)

    async def attack() -> None:
        drive.reset()
        (drive.root / "up").symlink_to(drive.root.parent)
        (drive.root / "a").symlink_to(drive.root.parent / "elsewhere")
        answer = None
        try:
            answer = await drive.do(operation, params(path))
        except (ConnectorError, RuleBroken):
            pass
        drive.look(answer)

    return Attack(f"{operation} of the path {path!r:.80}", attack)


AREA = Area(
    "files", "the connector for files, by paths, links and folders that lead elsewhere", place, attacks, drawn,
    (
        Planted("links are followed", lambda: patch.object(paths, "_FOLDER", os.O_RDONLY | os.O_DIRECTORY), "through a link"),
        Planted("links are followed, seen by drawn paths", lambda: patch.object(paths, "_FOLDER", os.O_RDONLY | os.O_DIRECTORY), rounds=400),
        Planted("Keep's own files are a connector's to have", lambda: patch.object(wiring, "_check_apart", lambda _: None), "Keep's own files"),
    ),
)
