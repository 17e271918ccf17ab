"""One JavaScript VM: an instance of the interpreter with its limits, a clock, and strings in and out.

A VM lives for one step and is thrown away. It starts as a copy of a memory image in which `bootstrap.js` has
already run (see `cell.py` and `image.py`). What the script asks for comes out of `host`, a function of strings;
whatever that raises ends the script as a trap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .cell import Cell, Cells, Size
from .guest import OutOfMemory, pack_pointers
from .places import SCRIPT_NAME

HostCall = Callable[..., str | None]

_MODULE = 1  # JS_EVAL_TYPE_MODULE
_PENDING, _FULFILLED = 0, 1
_REJECTIONS_MAX = 1000
#: The desk: a length, then pointers to arguments, then a short string.
_ARGUMENTS_AT, _STRING_AT, _STRING_MAX = 16, 64, 4000
DESK_BYTES = 4096


class Thrown(Exception):
    """The script threw: a handle of the exception."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.handle = handle


class Vm:
    """A script's whole world."""

    def __init__(self, cell: Cell, size: Size, host: HostCall, now_ms: Callable[[], int]) -> None:
        self._size, self._host, self._now_ms = size, host, now_ms
        self._guest, self._call = cell.guest, cell.guest.call
        self._entries: Mapping[str, int] = {}
        self._desk = self._undefined = 0
        self._unhandled: dict[int, int] = {}
        cell.engine.running = self

    @classmethod
    def open(cls, cells: Cells, size: Size, host: HostCall, now_ms: Callable[[], int]) -> Vm:
        """A VM as it was when the image was taken."""
        vm, image = cls(cells.take(size), size, host, now_ms), cells.image
        vm._call("qjs_set_runtime_and_context", image.runtime, image.context)
        vm._call("qjs_set_memory_limit", size.memory_bytes)
        vm._call("qjs_set_max_stack_size", size.stack_bytes)
        vm._entries, vm._desk, vm._undefined = image.entries, image.desk, image.undefined
        return vm

    def memory_full(self) -> bool:
        """Whether the guest has grown to its limit, as far as can be seen from outside."""
        return self._guest.memory_size() >= self._size.memory_bytes * 9 // 10

    # What the script's owner does with the VM.

    def load(self, source: str) -> int:
        """Evaluate the script as a module; a handle of its namespace. Raises `Thrown`."""
        promise = self.evaluate(source, SCRIPT_NAME, _MODULE)
        self.run_jobs()
        state = self._call("qjs_promise_state", promise)
        if state == _PENDING:
            return 0
        result = self._handle(self._call("qjs_promise_result", promise))
        if state != _FULFILLED:
            self._unhandled.clear()
            raise Thrown(result)
        return result

    def enter(self, name: str, *args: str | int) -> None:
        """Call one of bootstrap's functions with strings and handles."""
        handles = [self._string(arg) if isinstance(arg, str) else arg for arg in args]
        self._guest.write(self._desk + _ARGUMENTS_AT, pack_pointers(handles))
        arguments = self._desk + _ARGUMENTS_AT
        result = self._call("qjs_call", self._entries[name], self._undefined, len(handles), arguments)
        for handle in (*handles, self._checked(result)):
            self._call("qjs_free_value", handle)

    def run_jobs(self) -> None:
        """Run microtasks until none is left."""
        call = self._call
        while call("qjs_is_job_pending"):
            if call("qjs_execute_pending_job") < 0:
                raise Thrown(self._handle(call("qjs_get_exception")))

    def unhandled_rejection(self) -> int | None:
        """A handle of the first rejection that nothing has handled."""
        return next(iter(self._unhandled.values()), None)

    # What the guest asks of its VM (engine.Answers).

    def host_call(self, argc: int, argv: int) -> int:
        pointers = self._guest.read(argv, 4 * argc)
        handles = [int.from_bytes(pointers[at : at + 4], "little") for at in range(0, len(pointers), 4)]
        answer = self._host(*[self._text(handle) for handle in handles])
        return self._call("qjs_get_undefined") if answer is None else self._string(answer)

    def rejected(self, promise: int, reason: int, handled: bool) -> None:
        key = self._call("qjs_get_value_ptr", promise)
        if handled:
            known = self._unhandled.pop(key, None)
            if known is not None:
                self._call("qjs_free_value", known)
            self._call("qjs_free_value", reason)
        elif len(self._unhandled) < _REJECTIONS_MAX:
            self._unhandled[key] = reason
        self._call("qjs_free_value", promise)

    def clock(self, out: int) -> int:
        self._guest.write(out, (self._now_ms() * 1_000_000).to_bytes(8, "little"))
        return 0

    def random(self, out: int, length: int) -> int:
        # Only QuickJS itself asks, for hash seeds; Math.random is bootstrap's own and seeded per step.
        self._guest.write(out, bytes(min(length & 0xFFFFFFFF, 64)))
        return 0

    # Strings and handles.

    def evaluate(self, code: str, name: str, flags: int) -> int:
        """Run source; a handle of its value. Raises `Thrown`."""
        data = code.encode("utf-8", "surrogatepass")
        text, where = self._allocate(data + b"\0"), self._allocate(name.encode() + b"\0")
        handle = self._call("qjs_eval", text, len(data), where, flags)
        self._call("wasm_free", text)
        self._call("wasm_free", where)
        return self._checked(handle)

    def _checked(self, handle: int) -> int:
        if self._call("qjs_is_exception", self._handle(handle)):
            raise Thrown(self._handle(self._call("qjs_get_exception")))
        return handle

    def _handle(self, handle: int) -> int:
        if not handle:
            raise OutOfMemory
        return handle

    def _allocate(self, data: bytes) -> int:
        pointer = self._handle(self._call("wasm_malloc", len(data)))
        self._guest.write(pointer, data)
        return pointer

    def _string(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= _STRING_MAX:  # most are short: no allocation for them
            self._guest.write(self._desk + _STRING_AT, data)
            return self._new_string(self._desk + _STRING_AT, len(data))
        pointer = self._allocate(data)
        handle = self._new_string(pointer, len(data))
        self._call("wasm_free", pointer)
        return handle

    def _new_string(self, pointer: int, length: int) -> int:
        handle = self._handle(self._call("qjs_new_string", pointer, length))
        if length > _STRING_MAX and self._call("qjs_is_exception", handle):
            raise OutOfMemory
        return handle

    def _text(self, handle: int) -> str:
        pointer = self._handle(self._call("qjs_get_string_len", handle, self._desk))
        length = int.from_bytes(self._guest.read(self._desk, 4), "little")
        data = self._guest.read(pointer, length)
        self._call("qjs_free_cstring", pointer)
        return data.decode("utf-8", "surrogatepass")
