"""The lowest layer: one wasm instance, its memory, and calls into it without wasmtime-py's overhead.

wasmtime-py builds type objects on every call, which costs more than the calls themselves; here handles are
looked up once and calls are unchecked. Types are right by construction: every number is an i32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import wasmtime
from wasmtime import _bindings as c

Raw = Any  # a ctypes array of wasmtime_val_raw_t
HostFunction = Callable[[Raw], int | None]

_ARGS_MAX = 8
_Values = c.wasmtime_val_raw_t * _ARGS_MAX
_TrapPointer = ctypes.POINTER(c.wasm_trap_t)
_call = c._wasmtime_func_call_unchecked
_memory_size = c._wasmtime_memory_data_size
# The generated binding returns a ctypes pointer object; a plain address is several times cheaper to use.
_memory_data = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ctypes.cast(c._wasmtime_memory_data, ctypes.c_void_p).value or 0
)
_NO_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(0)


class OutOfTime(Exception):
    """The epoch deadline passed while the guest was computing."""


class OutOfStack(Exception):
    """The guest used up the wasm stack."""


class OutOfMemory(Exception):
    """The guest could not get the memory that a call into it needs."""


class GuestCrashed(Exception):
    """The guest trapped by itself: unreachable code, a bad pointer."""


class Callbacks:
    """Host functions of a linker, kept alive with it; they raise through the guest as traps."""

    def __init__(self, linker: wasmtime.Linker) -> None:
        self._linker = linker
        self._alive: list[object] = []
        self.raised: BaseException | None = None

    def define(self, module: str, name: str, params: str, results: int, function: HostFunction) -> None:
        """Define `module.name`; `params` has one letter per parameter, `i` for i32 and `l` for i64."""
        callback = c.wasmtime_func_unchecked_callback_t(self._guarded(function, results))
        i32 = wasmtime.ValType.i32
        kinds = [i32() if letter == "i" else wasmtime.ValType.i64() for letter in params]
        kind = wasmtime.FuncType(kinds, [i32()] * results)
        self._alive += [callback, kind]
        where, what = module.encode(), name.encode()
        error = c._wasmtime_linker_define_func_unchecked(
            self._linker.ptr(), ctypes.create_string_buffer(where), len(where),
            ctypes.create_string_buffer(what), len(what), kind.ptr(), callback, None, _NO_FINALIZER,
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)

    def _guarded(self, function: HostFunction, results: int) -> Callable[..., int]:
        def call(_env: object, _caller: object, raw: Raw, _count: int) -> int:
            try:
                answer = function(raw)
                if results:
                    raw[0].i32 = answer
                return 0
            except BaseException as error:  # anything: a trap carries it out, past all of the script's code
                self.raised = error
                return ctypes.cast(wasmtime.Trap("host")._consume(), ctypes.c_void_p).value or 0
        return call

    def take_raised(self) -> BaseException | None:
        """What the last host function raised, once."""
        error, self.raised = self.raised, None
        return error


class Guest:
    """One instance of the interpreter."""

    def __init__(self, store: wasmtime.Store, instance: wasmtime.Instance, callbacks: Callbacks) -> None:
        self._store, self._callbacks = store, callbacks
        self._instance = instance._instance
        self._context = store._context()
        self._context_address = ctypes.cast(self._context, ctypes.c_void_p).value
        self._functions: dict[str, Any] = {}
        self._memory_extern = self._export("memory")
        self._memory = ctypes.pointer(self._memory_extern.of.memory)
        self._memory_address = ctypes.cast(self._memory, ctypes.c_void_p).value

    def call(self, name: str, *args: int) -> int:
        """Call an exported function of i32s; raises what a host function raised, or one of the errors above."""
        function = self._functions.get(name) or self._look_up(name)
        raw = _Values()
        for index, value in enumerate(args):
            raw[index].i32 = value
        trap = _TrapPointer()
        error = _call(self._context, function, raw, _ARGS_MAX, ctypes.byref(trap))
        if error or trap:
            self._raise(error, trap)
        return int(raw[0].i32)

    def read(self, pointer: int, length: int) -> bytes:
        """Bytes of the guest's memory; a pointer outside of it is a crash of the guest, not of the host."""
        return ctypes.string_at(self._address(pointer, length), length & 0xFFFFFFFF)

    def write(self, pointer: int, data: bytes) -> None:
        """Put bytes into the guest's memory."""
        ctypes.memmove(self._address(pointer, len(data)), data, len(data))

    def memory_size(self) -> int:
        """How much linear memory the guest has."""
        return int(_memory_size(self._context, self._memory))

    def grow_to(self, size: int) -> None:
        """Make the memory at least `size` bytes."""
        missing = size - self.memory_size()
        if missing > 0:
            memory = wasmtime.Memory._from_raw(self._memory_extern.of.memory)
            memory.grow(self._store, -(-missing // 65536))

    @property
    def stack_pointer(self) -> int:
        """The guest's shadow stack pointer."""
        return int(self._stack_global().value(self._store))

    @stack_pointer.setter
    def stack_pointer(self, value: int) -> None:
        self._stack_global().set_value(self._store, value)

    def _stack_global(self) -> wasmtime.Global:
        return wasmtime.Global._from_raw(self._export("__stack_pointer").of.global_)

    def _address(self, pointer: int, length: int) -> int:
        start, size = pointer & 0xFFFFFFFF, length & 0xFFFFFFFF
        if start + size > self.memory_size():
            raise GuestCrashed("a pointer outside of the memory")
        return int(_memory_data(self._context_address, self._memory_address)) + start

    def _look_up(self, name: str) -> Any:
        extern = self._export(name)
        self._functions[":" + name] = extern  # the pointer below points into it
        function = self._functions[name] = ctypes.pointer(extern.of.func)
        return function

    def _export(self, name: str) -> Any:
        item, encoded = c.wasmtime_extern_t(), name.encode()
        found = c._wasmtime_instance_export_get(
            self._context, ctypes.byref(self._instance), ctypes.create_string_buffer(encoded), len(encoded),
            ctypes.byref(item),
        )
        if not found:
            raise KeyError(name)
        return item

    def _raise(self, error: Any, trap: Any) -> None:
        raised = self._callbacks.take_raised()
        cause = wasmtime.WasmtimeError._from_ptr(error) if error else wasmtime.Trap._from_ptr(trap)
        if raised is not None:
            raise raised
        code = cause.trap_code if isinstance(cause, wasmtime.Trap) else None
        if code == wasmtime.TrapCode.INTERRUPT:
            raise OutOfTime
        if code == wasmtime.TrapCode.STACK_OVERFLOW:
            raise OutOfStack
        raise GuestCrashed(code.name.lower() if code else "trap")


def pack_pointers(pointers: Sequence[int]) -> bytes:
    """Pointers as the guest's array of u32."""
    return b"".join((pointer & 0xFFFFFFFF).to_bytes(4, "little") for pointer in pointers)
