# ruff: noqa: E501 (an attack is read best on one line)
"""The file of secrets, by whoever can change it: it opens as it was written, or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest.mock import patch

from keepai.model.errors import VaultClosed
from keepai.vault import vault
from keepai.vault.keys import KeyPlaces
from keepai.vault.vault import Vault
from tests.attack.base import Area, Attack, Planted, must, refused
from tests.vault.test_vault import CANARY, CHANGES

SECRETS = {"gmail": {"password": CANARY}, "bank": {"password": f"another-{CANARY}"}}


@dataclass
class Chest:
    """A vault with two connections, and what was written."""

    folder: Path
    content: bytes = b""

    def open(self) -> Vault:
        return Vault(self.folder / "keep.secrets", KeyPlaces(key_file=self.folder / "keep.key"))

    def holds(self, content: bytes) -> None:
        """After a change by somebody else nothing wrong comes out, and nothing is written over it."""
        path = self.folder / "keep.secrets"
        path.write_bytes(content)
        same = _meaning(content) == _meaning(self.content)
        for connection, wanted in SECRETS.items():
            try:
                found = dict(self.open().values(connection))
            except VaultClosed as error:
                must(CANARY not in error.message, "the error says a secret")
                continue
            must(found == wanted and same, f"{connection} opened with {found}, and the file was changed")
        try:
            self.open().put("gmail", {"token": "new-value"})
        except VaultClosed:
            must(path.read_bytes() == content, "what was changed was written over")
        path.write_bytes(self.content)


def _meaning(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Chest]:
    chest = Chest(folder)
    for connection, secrets in SECRETS.items():
        chest.open().put(connection, secrets)
    chest.content = (folder / "keep.secrets").read_bytes()
    yield chest


def attacks(chest: Chest) -> Iterator[Attack]:
    for name in CHANGES:
        yield Attack(f"the file of secrets has {name}", lambda name=name: _changed(chest, name))
    for name, content in {"nothing": b"", "half a file": chest.content[:200], "deep nesting": b"[" * 100_000, "bytes": b"\xff\xfe" * 50}.items():
        yield Attack(f"the file of secrets is {name}", lambda content=content: chest.holds(content))
    for mode in (0o640, 0o604, 0o660, 0o666):
        yield Attack(f"the key is readable by others (mode {mode:o})", lambda mode=mode: _readable(chest, mode))
    yield Attack("a secret stands somewhere in the folder as it is", lambda: _plain(chest))
    yield Attack("the file of secrets is opened with the key of another vault", lambda: _other_key(chest))
    yield Attack("an older copy of the file is put back after the keys were changed", lambda: _older(chest))


def _changed(chest: Chest, name: str) -> None:
    document = json.loads(chest.content)
    CHANGES[name](document)
    path = chest.folder / "keep.secrets"
    path.write_text(json.dumps(document))
    with refused("it opened", VaultClosed):
        chest.open().values("gmail")
    chest.holds(path.read_bytes())


def _readable(chest: Chest, mode: int) -> None:
    key = chest.folder / "keep.key"
    key.chmod(mode)
    try:
        with refused("it was used", VaultClosed):
            chest.open().values("gmail")
    finally:
        key.chmod(0o600)


def _plain(chest: Chest) -> None:
    for path in chest.folder.iterdir():
        must(CANARY.encode() not in path.read_bytes(), f"{path.name} has it")
        must(path.stat().st_mode & 0o077 == 0, f"{path.name} is open to others")


def _other_key(chest: Chest) -> None:
    (chest.folder / "other").mkdir(exist_ok=True)
    other = KeyPlaces(key_file=chest.folder / "other" / "keep.key")
    Vault(chest.folder / "other" / "keep.secrets", other).put("gmail", {"password": "x" * 20})
    with refused("it opened", VaultClosed):
        Vault(chest.folder / "keep.secrets", other).values("gmail")


def _older(chest: Chest) -> None:
    path, key = chest.folder / "keep.secrets", chest.folder / "keep.key"
    before = key.read_bytes()
    try:
        chest.open().rotate(KeyPlaces(key_file=key))
        path.write_bytes(chest.content)
        with refused("it opened", VaultClosed):
            chest.open().values("gmail")
    finally:
        key.write_bytes(before)
        path.write_bytes(chest.content)


def drawn(chest: Chest, chance: Random) -> Attack:
    """Bits that are flipped, bytes that are cut out, doubled or moved."""
    content = bytearray(chest.content)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        at = chance.randrange(len(content))
        match chance.randrange(4):
            case 0 | 1:
                content[at] ^= 1 << chance.randrange(8)
            case 2:
                del content[at:at + chance.randint(1, 20)]
            case _:
                piece = content[at:at + chance.randint(1, 60)]
                content[chance.randrange(len(content)):0] = piece
    return Attack("the file of secrets with some bits flipped or bytes moved", lambda: chest.holds(bytes(content)))


AREA = Area(
    "vault", "the file of secrets, by whoever can change it", place, attacks, drawn,
    (
        Planted("the mark of the file is not compared", lambda: patch.object(vault, "is_mark", lambda *_: True), "a secret taken out"),
        Planted("the mark of the file is not compared, seen by flipped bits", lambda: patch.object(vault, "is_mark", lambda *_: True), rounds=60),
    ),
)
