# ruff: noqa: E501 (an attack is read best on one line)
"""What `make setup` installs, by an index that has another file under the same name and version; nothing asks a network."""

from __future__ import annotations

import asyncio
import re
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from keepai.model.errors import ConfigError
from keepai.runtime.javascript import wasm
from tests.attack.base import Area, Attack, Planted, must, refused, together

ROOT = Path(__file__).parents[2]
LOCKS = ("dev.lock", "bench.lock", "npm.lock")
#: As the Makefile has it.
INSTALL = re.search(r"^INSTALL := -m (pip install .*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
OPTIONS = tuple(INSTALL[1].split() if INSTALL else ())


@dataclass
class Index:
    """A folder that pip takes packages from."""

    folder: Path

    def forge(self, name: str, version: str) -> None:
        """Another wheel under this name and version."""
        spelled = name.replace("-", "_")
        with zipfile.ZipFile(self.folder / f"{spelled}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{spelled}/__init__.py", "EVIL = 1\n")
            wheel.writestr(f"{spelled}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{spelled}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{spelled}-{version}.dist-info/RECORD", "")


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Index]:
    yield Index(folder)


def attacks(index: Index) -> Iterator[Attack]:
    for lock in LOCKS:
        yield Attack(f"the index has another file for a package of {lock}", lambda lock=lock: _other_file(index, lock))
    yield Attack("the WebAssembly of the sandbox was changed on disk", lambda: _other_wasm(index))


def _pinned(found: re.Match[str]) -> str:
    """A package as its lock has it, with its hashes."""
    return found[0]


async def _other_file(index: Index, lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text("utf-8")
    found = re.search(r"^([A-Za-z0-9._-]+)==([^\s\\;]+).*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, lock
    index.forge(found[1], found[2])
    wanted, target = index.folder / f"one-{lock}", index.folder / f"installed-{lock}"
    wanted.write_text(_pinned(found))
    command = [*OPTIONS, "--no-index", "--find-links", str(index.folder), "--no-deps", "--no-cache-dir", "--target", str(target), "-r", str(wanted)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    said, _ = await process.communicate()
    must(process.returncode != 0 and not target.exists(), f"{found[1]} {found[2]} was installed")
    must(b"hash" in said.lower(), f"it failed for another reason: {said[-200:]!r}")


def _other_wasm(index: Index) -> None:
    """Nothing is loaded that has not the hash that Keep knows."""
    changed = index.folder / "quickjs.wasm"
    changed.write_bytes(wasm.WASM_PATH.read_bytes()[:-1] + b"\x00")
    with refused("it was loaded", ConfigError):
        wasm.wasm_bytes(changed)


AREA = Area(
    "packages", "what is installed, by an index that has other files", place, attacks, None,
    (Planted("a lock without hashes", lambda: together(
        patch(f"{__name__}.OPTIONS", ("pip", "install", "-qq")), patch(f"{__name__}._pinned", lambda found: f"{found[1]}=={found[2]}\n"),
    ), "dev.lock"),),
)
