"""The compiled interpreter on disk: compiling takes seconds, loading it again a millisecond.

A compiled module is machine code, so a file that another user could have written is never loaded. Without a usable
cache directory the interpreter is compiled each time; that is slow, but safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import platformdirs
import wasmtime

from .wasm import WASM_SHA256


def cache_path(config: str) -> Path:
    """Where the compiled module for this interpreter, wasmtime, configuration and machine is kept."""
    parts = (WASM_SHA256, version("wasmtime"), config, platform.system(), platform.machine())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return Path(platformdirs.user_cache_dir("keepai", appauthor=False)) / "wasm" / f"{key}.cwasm"


def load(engine: wasmtime.Engine, path: Path, compile_: Callable[[], wasmtime.Module]) -> wasmtime.Module:
    """The module from the cache if that can be trusted, else compiled and put there."""
    if trusted(path):
        with contextlib.suppress(wasmtime.WasmtimeError):
            return wasmtime.Module.deserialize_file(engine, str(path))
    module = compile_()
    with contextlib.suppress(OSError):
        store(path, bytes(module.serialize()))
    return module


def trusted(path: Path) -> bool:
    """Whether file and directory are ours, and no other user can write to them."""
    try:
        return _ours(path.parent.lstat(), stat.S_ISDIR) and _ours(path.lstat(), stat.S_ISREG)
    except OSError:
        return False


def store(path: Path, data: bytes) -> None:
    """Write the file in one move, readable only by us."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _ours(path.parent.lstat(), stat.S_ISDIR):
        raise PermissionError(f"{path.parent} belongs to somebody else or can be written by others")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mkstemp creates it with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _ours(info: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    mine = not hasattr(os, "getuid") or info.st_uid == os.getuid()
    return mine and is_kind(info.st_mode) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
