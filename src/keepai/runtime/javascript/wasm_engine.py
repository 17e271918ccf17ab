"""The compiled interpreter and everything it may import from us: a clock, chance, and one host call.

One engine serves a process for its whole life; each step gets an own `Store` from it (see `vm.py`). There is
no WASI: what QuickJS asks of an operating system is answered here, by the VM that is running, or refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import wasmtime

from . import cache
from .guest import Callbacks, Guest
from .wasm import wasm_bytes

#: wasmtime aborts the process over 2 MiB; the JavaScript stack limit is far below it.
WASM_STACK_BYTES = 2 << 20
_ADDRESSES_BYTES = 4 << 30  # all that a guest can name; addresses, not memory
_BAD_FILE = 8  # WASI's errno for a bad descriptor


class GuestImports(Protocol):
    """What a running VM does for its guest."""

    def host_call(self, argc: int, argv: int) -> int: ...

    def rejected(self, promise: int, reason: int, handled: bool) -> None: ...

    def clock(self, out: int) -> int: ...

    def random(self, out: int, length: int) -> int: ...


class Engine:
    """QuickJS, compiled and linked."""

    def __init__(self, *, parallel: bool = False) -> None:
        self.wasm = wasmtime.Engine(_config(parallel))
        self.module = cache.load(self.wasm, compiled_path(), lambda: wasmtime.Module(self.wasm, wasm_bytes()))
        self._linker = wasmtime.Linker(self.wasm)
        self.callbacks = Callbacks(self._linker)
        self.running: GuestImports | None = None
        self._define_host()
        self._define_wasi()
        self._pre = self._linker.instantiate_pre(self.module)

    def instantiate(self, store: wasmtime.Store) -> Guest:
        """A fresh instance in `store`."""
        return Guest(store, self._pre.instantiate(store), self.callbacks)

    def interrupt(self) -> None:
        """Stop the guest that is computing now; safe from another thread."""
        self.wasm.increment_epoch()

    def _define_host(self) -> None:
        define = self.callbacks.define
        define("env", "host_call", "___ii", 1, self._host_call)
        define("env", "host_promise_rejection", "iii", 0, self._rejection)
        define("env", "host_interrupt", "", 1, _zero)
        # A null module name or source is the refusal: every import fails, static and dynamic.
        define("env", "host_module_normalize", "ii", 1, _zero)
        define("env", "host_module_load", "ii", 1, _zero)
        define("env", "host_get_timezone_offset", "ii", 1, _zero)

    def _define_wasi(self) -> None:
        define, wasi = self.callbacks.define, "wasi_snapshot_preview1"
        define(wasi, "clock_time_get", "ili", 1, lambda _id, _precision, out: self._vm().clock(out))
        define(wasi, "random_get", "ii", 1, lambda out, length: self._vm().random(out, length))
        define(wasi, "fd_close", "i", 1, _bad_file)
        define(wasi, "fd_fdstat_get", "ii", 1, _bad_file)
        define(wasi, "fd_seek", "ilii", 1, _bad_file)
        define(wasi, "fd_write", "iiii", 1, _bad_file)

    def _host_call(self, argc: int, argv: int) -> int:
        assert self.running is not None
        return self.running.host_call(argc, argv)

    def _rejection(self, promise: int, reason: int, handled: int) -> None:
        self._vm().rejected(promise, reason, handled != 0)

    def _vm(self) -> GuestImports:
        assert self.running is not None
        return self.running


_CONFIG_NAME = f"epoch,stack={WASM_STACK_BYTES},threads=no,memory=fixed"


def compiled_path() -> Path:
    """Where the compiled interpreter is kept."""
    return cache.cache_path(_CONFIG_NAME)


def _config(parallel: bool) -> wasmtime.Config:
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = WASM_STACK_BYTES
    config.wasm_threads = False
    config.memory_reservation = _ADDRESSES_BYTES
    config.memory_may_move = False  # `guest.py` keeps its address
    # The fork server compiles alone: threads left over from compiling would make forking unsafe.
    config.parallel_compilation = parallel
    return config


def _zero(*_values: int) -> int:
    return 0


def _bad_file(*_values: int) -> int:
    return _BAD_FILE
