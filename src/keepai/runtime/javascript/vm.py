"""One JavaScript VM: an instance of the interpreter with its limits, a clock, and strings in and out.

A VM lives for one step and is thrown away. It starts as a copy of a memory image in which `bootstrap.js` has
already run, because copying half a megabyte is cheaper than starting QuickJS. What the script asks for comes
out of `host`, a function of strings; whatever that raises ends the script as a trap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import wasmtime

from .engine import Engine
from .guest import GuestCrashed, OutOfMemory, pack_pointers
from .places import SCRIPT_NAME

HostCall = Callable[..., str | None]

_ENTRY_POINTS = ("seed", "start", "settle", "describe")
_MODULE = 1  # JS_EVAL_TYPE_MODULE
_PENDING, _FULFILLED = 0, 1
_SLACK_BYTES = 4 << 20  # beyond the script's own limit, for strings on their way in and out
_REJECTIONS_MAX = 1000
_PAGE = 4096


class Thrown(Exception):
    """The script threw: a handle of the exception."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.handle = handle


@dataclass(frozen=True)
class Image:
    """How the memory of a VM at rest differs from a fresh one, and where in it our own functions are."""

    memory_size: int
    runs: tuple[tuple[int, bytes], ...]  # (address, bytes): writing only these saves most of the page faults
    stack_pointer: int
    runtime: int
    context: int
    entries: Mapping[str, int]


@dataclass(frozen=True)
class Size:
    """What a VM may take."""

    memory_bytes: int = 64 << 20
    stack_bytes: int = 256 << 10
    message_bytes: int = 4 << 20


class Vm:
    """A script's whole world."""

    def __init__(self, engine: Engine, size: Size, host: HostCall, now_ms: Callable[[], int]) -> None:
        self._engine, self._size, self._host, self._now_ms = engine, size, host, now_ms
        self._store = wasmtime.Store(engine.wasm)
        limit = size.memory_bytes + size.message_bytes + _SLACK_BYTES
        self._store.set_limits(memory_size=limit, instances=1, tables=2, memories=1)
        self._store.set_epoch_deadline(1)
        engine.running = self
        self._guest = engine.instantiate(self._store)
        self._call = self._guest.call
        self._entries: Mapping[str, int] = {}
        self._length_pointer = 0
        self._unhandled: dict[int, int] = {}

    @classmethod
    def restore(cls, engine: Engine, image: Image, size: Size, host: HostCall, now_ms: Callable[[], int]) -> Vm:
        """A VM as it was when the image was taken."""
        vm = cls(engine, size, host, now_ms)
        vm._guest.grow_to(image.memory_size)
        for address, data in image.runs:
            vm._guest.write(address, data)
        vm._guest.stack_pointer = image.stack_pointer
        vm._call("qjs_set_runtime_and_context", image.runtime, image.context)
        vm._entries = image.entries
        vm._call("qjs_set_memory_limit", size.memory_bytes)
        vm._call("qjs_set_max_stack_size", size.stack_bytes)
        return vm

    def close(self) -> None:
        """Give the memory back."""
        self._store.close()

    def memory_full(self) -> bool:
        """Whether the guest has grown to its limit, as far as can be seen from outside."""
        return self._guest.memory_size() >= self._size.memory_bytes * 9 // 10

    # What the script's owner does with the VM.

    def load(self, source: str) -> int:
        """Evaluate the script as a module; a handle of its namespace. Raises `Thrown`."""
        promise = self._evaluate(source, SCRIPT_NAME, _MODULE)
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
        array = self._allocate(pack_pointers(handles) or b"\0")
        undefined = self._call("qjs_get_undefined")
        result = self._checked(self._call("qjs_call", self._entries[name], undefined, len(handles), array))
        for handle in (*handles, undefined, result):
            self._call("qjs_free_value", handle)
        self._call("wasm_free", array)

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

    def _evaluate(self, code: str, name: str, flags: int) -> int:
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
        pointer = self._allocate(data + b"\0")
        handle = self._handle(self._call("qjs_new_string", pointer, len(data)))
        self._call("wasm_free", pointer)
        if self._call("qjs_is_exception", handle):
            raise OutOfMemory
        return handle

    def _text(self, handle: int) -> str:
        self._length_pointer = length_at = self._length_pointer or self._allocate(bytes(4))
        pointer = self._handle(self._call("qjs_get_string_len", handle, length_at))
        length = int.from_bytes(self._guest.read(length_at, 4), "little")
        data = self._guest.read(pointer, length)
        self._call("qjs_free_cstring", pointer)
        return data.decode("utf-8", "surrogatepass")

    # Only while the image is built.

    def _host_function(self) -> int:
        name = self._allocate(b"host\0")
        return self._handle(self._call("qjs_new_host_function", name, 4, 0))

    def _set_global(self, name: str, handle: int) -> None:
        self._call("qjs_set_prop_string", self._call("qjs_get_global"), self._allocate(name.encode() + b"\0"), handle)

    def _property(self, owner: int, name: str) -> int:
        return self._checked(self._call("qjs_get_prop_string", owner, self._allocate(name.encode() + b"\0")))


def build_image(engine: Engine) -> Image:
    """Start QuickJS, run our own scripts in it and keep its memory."""
    vm = Vm(engine, Size(), _no_host, _epoch)
    fresh = vm._guest.read(0, vm._guest.memory_size())
    vm._call("_initialize")
    if vm._call("qjs_init"):
        raise GuestCrashed("QuickJS did not start")
    vm._call("qjs_set_promise_rejection_handler", 1)
    vm._set_global("__host", vm._host_function())
    entries = vm._evaluate(_source("bootstrap.js"), "<keep>", 0)
    vm._evaluate(_source("globals.js"), "<keep>", 0)
    found = {name: vm._property(entries, name) for name in _ENTRY_POINTS}
    guest = vm._guest
    memory = guest.read(0, guest.memory_size())
    image = Image(
        len(memory), tuple(_changes(fresh, memory)), guest.stack_pointer,
        vm._call("qjs_get_runtime_ptr"), vm._call("qjs_get_context_ptr"), found,
    )
    vm.close()
    return image


def _changes(before: bytes, after: bytes) -> Iterator[tuple[int, bytes]]:
    """Runs of pages of `after` that differ from `before`, which is zero beyond its end."""
    before = before.ljust(len(after), b"\0")
    start = None
    for page in range(0, len(after) + _PAGE, _PAGE):
        differs = before[page : page + _PAGE] != after[page : page + _PAGE]
        if differs and start is None:
            start = page
        elif not differs and start is not None:
            yield start, after[start:page]
            start = None


def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _no_host(*_args: str) -> None:
    raise GuestCrashed("a host call while the image was built")


def _epoch() -> int:
    return 0
