"""The lowest layer: one wasm instance, its memory, and calls into it without wasmtime-py's overhead.

wasmtime-py builds type objects on every call, which costs more than the calls themselves; here handles are
looked up once and calls are unchecked. Types are right by construction: every number is an i32. The memory never
moves (`wasm_engine.py` makes sure of that), so its address is looked up once.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import wasmtime
from wasmtime import _bindings as c

#: A part of an image: from, to, and what is there.
Piece = tuple[int, int, bytes]
HostFunction = Callable[..., int | None]
Function = Callable[..., int]

_VALUES_MAX = 8
_KIND_I32 = 0  # WASMTIME_I32
_WORDS = 4  # i32s in a raw wasm value
_PARAMETERS = {"i": "i12x", "l": "q8x", "_": "16x"}  # by letter, how a raw value is read: an i32, an i64, not at all
#: How QuickJS keeps things, checked when the image is built: a value is a payload and a tag; a string is its length,
#: whose highest bit says that a character takes two bytes, flags, two of which say that it is a part of another
#: string, and 16 bytes later its characters.
_VALUE, _STRING = struct.Struct("<Ii").unpack_from, struct.Struct("<II").unpack_from
_EXCEPTION, _TEXT = 6, -7
_WIDE, _PARTIAL, _CHARACTERS_AT = 1 << 31, 3 << 28, 24
_address = ctypes.c_void_p
# The generated bindings make an object of every pointer; plain addresses are several times cheaper to use.
_CallbackType = ctypes.CFUNCTYPE(ctypes.c_size_t, _address, _address, _address, ctypes.c_size_t)
_NO_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(0)


def _bound(function: Any, result: Any, *words: int) -> Callable[[], Any]:
    """A C function with its arguments, all of 64 bits, which are converted here once and not at every call."""
    plain = ctypes.CFUNCTYPE(result)(ctypes.cast(function, _address).value or 0)
    return partial(plain, *map(_address.from_param, words))


def _delete(function: Any) -> Any:
    return ctypes.CFUNCTYPE(None, _address)(ctypes.cast(function, _address).value or 0)


_delete_error, _delete_trap = _delete(c._wasmtime_error_delete), _delete(c._wasm_trap_delete)
_WHY = ctypes.create_string_buffer(b"host")
_new_trap = _bound(c._wasmtime_trap_new, _address, ctypes.addressof(_WHY), len(_WHY.value))


class OutOfTime(Exception):
    """The epoch deadline passed while the guest was computing."""


class OutOfStack(Exception):
    """The guest used up the wasm stack."""


class OutOfMemory(Exception):
    """The guest could not get the memory that a call into it needs."""


class GuestCrashed(Exception):
    """The guest trapped by itself: unreachable code, a bad pointer."""


class Callbacks:
    """Host functions of a linker, kept alive with it; what they raise passes through the guest as a trap."""

    def __init__(self, linker: wasmtime.Linker) -> None:
        self._linker = linker
        self._alive: list[object] = []
        self.raised: BaseException | None = None

    def define(self, module: str, name: str, params: str, results: int, function: HostFunction) -> None:
        """Define `module.name`; `params` has a letter each: `l` for i64, `i` for i32, `_` for one not looked at."""
        callback = _CallbackType(self._guarded(function, params, results))
        i32 = wasmtime.ValType.i32
        kinds = [wasmtime.ValType.i64() if letter == "l" else i32() for letter in params]
        kind = wasmtime.FuncType(kinds, [i32()] * results)
        self._alive += [callback, kind]
        where, what = module.encode(), name.encode()
        error = c._wasmtime_linker_define_func_unchecked(
            self._linker.ptr(), ctypes.create_string_buffer(where), len(where),
            ctypes.create_string_buffer(what), len(what), kind.ptr(),
            ctypes.cast(callback, c.wasmtime_func_unchecked_callback_t), None, _NO_FINALIZER,
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)

    def _guarded(self, function: HostFunction, params: str, results: int) -> Callable[..., int]:
        values, answered = struct.Struct("<" + "".join([_PARAMETERS[letter] for letter in params])), struct.Struct("<i")
        unpack, pack_into = values.unpack_from, answered.pack_into
        held_at = (ctypes.c_char * max(values.size, answered.size)).from_address

        def call(_env: object, _caller: object, raw: int, _count: int) -> int:
            try:
                held = held_at(raw)
                answer = function(*unpack(held))
                if results:
                    pack_into(held, 0, answer)
                return 0
            except BaseException as error:  # anything: a trap carries it past all of the script's code
                self.raised = error
                return int(_new_trap())
        return call

    def raise_again(self) -> None:
        """Raise what the last host function raised, once."""
        error, self.raised = self.raised, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it knows this frame: together they would stay until a collection


class Guest:
    """One instance of the interpreter."""

    def __init__(self, store: wasmtime.Store, instance: wasmtime.Instance, callbacks: Callbacks) -> None:
        self._store, self._callbacks = store, callbacks
        self._instance = instance._instance
        self._context = ctypes.cast(store._context(), _address).value or 0
        # Read when a call begins and written when it ends, so calls within calls may share them.
        self._values = (ctypes.c_int32 * (_VALUES_MAX * _WORDS))()
        self._trap = ctypes.c_uint64()
        self._trapped = memoryview(self._trap).cast("B").cast("Q")
        self._alive: list[Any] = []
        self._functions: dict[str, Function] = {}
        self._memory = self._address_of(self._export("memory").of.memory)
        self._stack_global = self._address_of(self._export("__stack_pointer").of.global_)
        self._rest, self._resting = c.wasmtime_val_t(_KIND_I32), 0  # where the stack begins
        context, memory, rest = self._context, self._memory, ctypes.addressof(self._rest)
        #: How much linear memory the guest has.
        self.memory_size: Callable[[], int] = _bound(c._wasmtime_memory_data_size, ctypes.c_size_t, context, memory)
        #: From now on the next interruption stops the guest; those of the past do not.
        self.allow_epoch: Callable[[], None] = _bound(c._wasmtime_context_set_epoch_deadline, None, context, 1)
        self._set_stack = _bound(c._wasmtime_global_set, _address, context, self._stack_global, rest)
        self._base = int(_bound(c._wasmtime_memory_data, _address, context, memory)())
        self._look()

    def function(self, name: str) -> Function:
        """An exported function of i32s; it raises what a host function raised, or one of the errors above."""
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = self._callable(name)
        return known

    def call(self, name: str, *args: int) -> int:
        """Call an exported function once."""
        return self.function(name)(*args)

    def read(self, pointer: int, length: int) -> bytes:
        """Bytes of the guest's memory; a pointer outside of it is a crash of the guest, not of the host."""
        return bytes(self._part(pointer, length))

    def read_text(self, pointer: int, length: int) -> str:
        """Text in the guest's memory, in QuickJS's UTF-8, which knows lone surrogates."""
        return str(self._part(pointer, length), "utf-8", "surrogatepass")

    def read_string(self, handle: int) -> str | None:
        """The text of a handle, if it is a string in one piece and of one byte per character, as most are."""
        view = self._view
        try:
            pointer, tag = _VALUE(view, handle & 0xFFFFFFFF)
            length, flags = _STRING(view, pointer)
        except struct.error:
            return None
        start = pointer + _CHARACTERS_AT
        if tag != _TEXT or length & _WIDE or flags & _PARTIAL or start + length > self._size:
            return None
        return str(view[start : start + length], "latin-1")

    def is_exception(self, handle: int) -> bool:
        """Whether a handle stands for a thrown exception."""
        return bool(_VALUE(self._part(handle, 8))[1] == _EXCEPTION)

    def read_words(self, pointer: int, count: int) -> tuple[int, ...]:
        """Some i32s of the guest's memory."""
        return struct.unpack(f"<{count}i", self._part(pointer, 4 * count))

    def write(self, pointer: int, data: bytes) -> None:
        """Put bytes into the guest's memory."""
        start = pointer & 0xFFFFFFFF
        end = start + len(data)
        if end > self._size:
            self._look_again(end)
        self._view[start:end] = data

    def restore(self, pieces: Sequence[Piece]) -> None:
        """Put the pieces of an image, all of which lie within the memory, where they belong."""
        view = self._view
        for start, end, data in pieces:
            view[start:end] = data

    def clear(self, start: int, end: int) -> None:
        """Make a range of whole pages zero."""
        if end > self._size or start % mmap.PAGESIZE or end % mmap.PAGESIZE:
            raise GuestCrashed("a range that is not the memory's")
        if _madvise is None or _madvise(self._base + start, end - start, mmap.MADV_DONTNEED):
            ctypes.memset(self._base + start, 0, end - start)

    def grow_to(self, size: int) -> None:
        """Make the memory at least `size` bytes."""
        missing = size - self._size
        if missing > 0:
            memory = wasmtime.Memory._from_raw(self._export("memory").of.memory)
            memory.grow(self._store, -(-missing // 65536))
            self._look()

    def set_stack_pointer(self, value: int) -> None:
        """Set the guest's shadow stack pointer."""
        if self._resting != value:
            self._resting = self._rest.of.i32 = value
        if self._set_stack():
            raise GuestCrashed("the stack pointer could not be set")

    def stack_pointer(self) -> int:
        """The guest's shadow stack pointer."""
        extern = self._export("__stack_pointer")
        return int(wasmtime.Global._from_raw(extern.of.global_).value(self._store))

    def _part(self, pointer: int, length: int) -> memoryview:
        start = pointer & 0xFFFFFFFF
        end = start + (length & 0xFFFFFFFF)
        if end > self._size:
            self._look_again(end)
        return self._view[start:end]

    def _look(self) -> None:
        self._size = self.memory_size()
        self._view = memoryview((ctypes.c_ubyte * self._size).from_address(self._base)).cast("B")

    def _look_again(self, end: int) -> None:
        self._look()
        if end > self._size:
            raise GuestCrashed("a pointer outside of the memory")

    def _callable(self, name: str) -> Function:
        function, values, trap = self._address_of(self._export(name).of.func), self._values, self._trap
        at, trap_at, trapped = ctypes.addressof(values), ctypes.addressof(trap), self._trapped
        call = _bound(c._wasmtime_func_call_unchecked, _address, self._context, function, at, _VALUES_MAX, trap_at)
        words = memoryview(values).cast("B").cast("i")

        def called(a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
            words[0], words[4], words[8], words[12] = a, b, c, d
            error = call()
            if error or trapped[0]:
                self._raise(error)
            return words[0]
        return called

    def _address_of(self, item: Any) -> int:
        self._alive.append(item)
        return ctypes.addressof(item)

    def _export(self, name: str) -> Any:
        item, encoded = c.wasmtime_extern_t(), name.encode()
        found = c._wasmtime_instance_export_get(
            self._store._context(), ctypes.byref(self._instance), ctypes.create_string_buffer(encoded), len(encoded),
            ctypes.byref(item),
        )
        if not found:
            raise KeyError(name)
        return item

    def _raise(self, error: int | None) -> None:
        trap, self._trapped[0] = self._trapped[0], 0
        if error:
            _delete_error(error)
            self._callbacks.raise_again()
            raise GuestCrashed("trap")
        if self._callbacks.raised is not None:
            _delete_trap(trap)
            self._callbacks.raise_again()
        code = wasmtime.Trap._from_ptr(ctypes.cast(trap, ctypes.POINTER(c.wasm_trap_t))).trap_code
        if code == wasmtime.TrapCode.INTERRUPT:
            raise OutOfTime
        if code == wasmtime.TrapCode.STACK_OVERFLOW:
            raise OutOfStack
        raise GuestCrashed(code.name.lower() if code else "trap")


def _libc_madvise() -> Any:
    function: Any = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = (_address, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return function


_madvise: Any = _libc_madvise() if sys.platform == "linux" else None  # elsewhere it does not promise zeros
