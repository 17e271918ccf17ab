"""One JavaScript VM: an instance of the interpreter with its limits, a clock, and strings in and out.

A step begins as a copy of a memory image in which `bootstrap.js`, and if possible the script's own top level, has
already run (see `instance.py`, `image.py` and `loaded_scripts.py`). What the script asks for goes to the step, its
`GuestHost`, as strings; an exception there ends the script as a trap.
"""

from __future__ import annotations

import struct
from typing import Protocol

from .guest import GuestCrashed, OutOfMemory
from .instance import Image, Instance, VmLimits
from .wasm_engine import Engine

#: The file name of the script in stack traces.
SCRIPT_NAME = "script.js"
_MODULE = 1  # JS_EVAL_TYPE_MODULE
_PENDING, _FULFILLED = 0, 1
_REJECTIONS_MAX = 1000
#: The scratch memory, through which short strings go in: a length, then pointers to arguments, then a short string.
_ARGUMENTS_AT, _STRING_AT, _STRING_MAX = 16, 32, 8000
SCRATCH_BYTES = 8192
_POINTERS = [struct.Struct(f"<{count}i").pack for count in range(3)]  # by number; there are at most two


class Thrown(Exception):
    """The script threw: a handle of the exception."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.handle = handle


class GuestHost(Protocol):
    """What answers a running script: its step."""

    def host(self, what: str, *args: str) -> str | None: ...

    def now_ms(self) -> int: ...


class NoStep:
    """Between steps the guest may ask for nothing."""

    def host(self, what: str, *args: str) -> str | None:
        raise GuestCrashed("a host call outside of a step")

    def now_ms(self) -> int:
        return 0


_NO_STEP = NoStep()


class Vm:
    """The interpreter that one step runs in; the next step may use it after a reset."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.guest = instance, instance.guest
        self._step: GuestHost = _NO_STEP
        self._image: Image | None = None
        self._limits = VmLimits()
        self._unhandled: dict[int, int] = {}
        self._scratch = self._spare = 0
        #: Whether the script has met anything of this one step since it began: time, chance, its host.
        self.consulted = False
        function = instance.guest.function
        self._qjs_call, self._qjs_new_string = function("qjs_call"), function("qjs_new_string")
        self._qjs_get_string_len, self._qjs_free_cstring = function("qjs_get_string_len"), function("qjs_free_cstring")
        self._qjs_free_value, self._qjs_get_undefined = function("qjs_free_value"), function("qjs_get_undefined")
        self._qjs_execute_pending_job = function("qjs_execute_pending_job")
        self._call = instance.guest.call

    def begin(self, image: Image, limits: VmLimits, step: GuestHost) -> None:
        """Reset to the image, for one step."""
        self.instance.reset(image, limits)
        self._image, self._limits, self._step = image, limits, step
        self._scratch, self._spare = image.scratch, image.spare
        self._unhandled.clear()
        self.consulted = False
        self.instance.engine.running = self

    def end(self) -> None:
        """The step is over."""
        self._step = _NO_STEP

    def memory_full(self) -> bool:
        """Whether the guest has grown to its limit, as far as its memory shows."""
        return self.guest.memory_size() >= self._limits.memory_bytes * 9 // 10

    # What a step does with the VM.

    def limit(self) -> None:
        """Let the interpreter itself keep the limits; an image remembers them."""
        self._call("qjs_set_memory_limit", self._limits.memory_bytes)
        self._call("qjs_set_max_stack_size", self._limits.stack_bytes)

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

    def start(self, text: str) -> None:
        """Call bootstrap's `start`; a short text stays until the step is over: to free it would cost more."""
        handle = self._string(text)
        self._entered("start", handle)
        if len(text) > _STRING_MAX:
            self._qjs_free_value(handle)

    def enter(self, name: str, *args: str | int) -> None:
        """Call one of bootstrap's functions with a few strings and handles, which are gone then."""
        handles = [self._string(arg) if isinstance(arg, str) else arg for arg in args]
        self._qjs_free_value(self._entered(name, *handles))
        for handle in handles:
            self._qjs_free_value(handle)

    def ask(self, name: str) -> str:
        """The text that one of bootstrap's functions returns."""
        return self._text(self._entered(name))

    def run_jobs(self) -> None:
        """Run microtasks until none is left."""
        execute = self._qjs_execute_pending_job
        while done := execute():
            if done < 0:
                raise Thrown(self._handle(self._call("qjs_get_exception")))

    def unhandled_rejection(self) -> int | None:
        """A handle of the first rejection that nothing has handled."""
        return next(iter(self._unhandled.values()), None)

    # What the guest calls (wasm_engine.GuestImports).

    def host_call(self, argc: int, argv: int) -> int:
        self.consulted = True
        answer = self._step.host(*map(self._text, self.guest.read_words(argv, argc)))
        if answer is not None:
            return self._string(answer)
        spare, self._spare = self._spare, 0  # the guest frees it
        return spare or self._qjs_get_undefined()

    def rejected(self, promise: int, reason: int, handled: bool) -> None:
        self.consulted = True  # what becomes of it is this step's matter
        key = self._call("qjs_get_value_ptr", promise)
        if handled:
            known = self._unhandled.pop(key, None)
            if known is not None:
                self._qjs_free_value(known)
            self._qjs_free_value(reason)
        elif len(self._unhandled) < _REJECTIONS_MAX:
            self._unhandled[key] = reason
        self._qjs_free_value(promise)

    def clock(self, out: int) -> int:
        self.consulted = True
        self.guest.write(out, (self._step.now_ms() * 1_000_000).to_bytes(8, "little"))
        return 0

    def random(self, out: int, length: int) -> int:
        # Only QuickJS itself asks, for hash seeds; Math.random is bootstrap's own and seeded per step.
        self.guest.write(out, bytes(min(length & 0xFFFFFFFF, 64)))
        return 0

    # Strings and handles.

    def evaluate(self, code: str, name: str, flags: int) -> int:
        """Run source; a handle of its value. Raises `Thrown`."""
        data = code.encode("utf-8", "surrogatepass")
        text, where = self._allocate(data + b"\0"), self._allocate(name.encode() + b"\0")
        handle = self._call("qjs_eval", text, len(data), where, flags)
        self._call("wasm_free", text)
        self._call("wasm_free", where)
        return self._value(handle)

    def _entered(self, name: str, *handles: int) -> int:
        image, at = self._image, self._scratch + _ARGUMENTS_AT
        assert image is not None
        self.guest.write(at, _POINTERS[len(handles)](*handles))
        return self._value(self._qjs_call(image.entries[name], image.undefined, len(handles), at))

    def _value(self, handle: int) -> int:
        """A handle that the guest returned, if it stands for a value. Raises `Thrown` if it stands for an exception."""
        if not handle:
            raise OutOfMemory
        if self.guest.is_exception(handle):
            raise Thrown(self._handle(self._call("qjs_get_exception")))
        return handle

    def _handle(self, handle: int) -> int:
        if not handle:
            raise OutOfMemory
        return handle

    def _allocate(self, data: bytes) -> int:
        pointer = self._handle(self._call("wasm_malloc", len(data)))
        self.guest.write(pointer, data)
        return pointer

    def _string(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= _STRING_MAX:  # most are short: no allocation for them
            at = self._scratch + _STRING_AT
            self.guest.write(at, data)
            handle = self._qjs_new_string(at, len(data))
            if not handle:
                raise OutOfMemory
            return handle
        pointer = self._allocate(data)
        handle = self._handle(self._qjs_new_string(pointer, len(data)))
        if self.guest.is_exception(handle):
            raise OutOfMemory
        self._call("wasm_free", pointer)
        return handle

    def _text(self, handle: int) -> str:
        plain = self.guest.read_string(handle)
        if plain is not None:
            return plain
        pointer = self._handle(self._qjs_get_string_len(handle, self._scratch))
        (length,) = self.guest.read_words(self._scratch, 1)
        text = self.guest.read_text(pointer, length)
        self._qjs_free_cstring(pointer)
        return text


class Vms:
    """Hands out the VM of a worker; there is one, because a worker runs one step at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._vm: Vm | None = None

    def begin(self, image: Image, limits: VmLimits, step: GuestHost) -> Vm:
        """A VM that holds the image and nothing else."""
        if self._vm is None:
            self._vm = Vm(Instance(self._engine, limits))
        self._vm.begin(image, limits, step)
        return self._vm

    def end(self, image: Image) -> None:
        """After a step. An instance cannot shrink, so one that has grown is dropped."""
        if self._vm is None:
            return
        self._vm.end()
        if self._vm.guest.memory_size() != image.size:
            self.drop()

    def drop(self) -> None:
        """Have the next step begin in a new instance."""
        if self._vm is not None:
            self._vm.instance.store.close()
            self._vm = None
