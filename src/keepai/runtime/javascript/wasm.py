"""The interpreter's file: its path and its pinned hash.

`quickjs.wasm` is put beside this module when Keep is installed and is never committed. This module must be
importable without wasmtime, because the build reads the pinned hash from it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...model.errors import ConfigError

#: `quickjs.wasm` of the npm package quickjs-wasi 3.6.2 (QuickJS-ng, MIT).
WASM_SHA256 = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
WASM_PATH = Path(__file__).with_name("quickjs.wasm")
_REMEDY = "run `make setup` or reinstall keepai."


def wasm_bytes(path: Path = WASM_PATH) -> bytes:
    """The interpreter, or a `ConfigError` that says how to get it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"The script interpreter quickjs.wasm is missing; {_REMEDY}") from None
    if hashlib.sha256(data).hexdigest() != WASM_SHA256:
        raise ConfigError(f"The script interpreter quickjs.wasm is not the pinned one; {_REMEDY}")
    return data
