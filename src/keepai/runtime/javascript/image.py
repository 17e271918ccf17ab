"""Builds the memory image that every VM starts from: QuickJS started, our own scripts run, nothing of a user's."""

from __future__ import annotations

from pathlib import Path

from .guest import Guest, GuestCrashed
from .instance import Image, Instance, VmLimits
from .vm import SCRATCH_BYTES, Vm
from .wasm_engine import Engine

_ENTRY_POINTS = ("ready", "start", "settle", "describe", "trace")
_OWN_NAME = "<keep>"  # of our scripts in stack traces
_ROOM_BYTES = 1 << 20  # that a small step may use before its memory has to grow


def build_image(engine: Engine) -> Image:
    """Start QuickJS, run our own scripts in it and keep its memory."""
    instance = Instance(engine, VmLimits())
    guest = instance.guest
    vm = Vm(instance)
    engine.running = vm
    guest.call("_initialize")
    if guest.call("qjs_init"):
        raise GuestCrashed("QuickJS did not start")
    _check_layout(guest)
    guest.call("qjs_set_promise_rejection_handler", 1)
    host = guest.call("qjs_new_host_function", _text(guest, "host"), len("host"), 0)
    guest.call("qjs_set_prop_string", guest.call("qjs_get_global"), _text(guest, "__host"), host)
    own = vm.evaluate(_source("bootstrap.js"), _OWN_NAME, 0)
    vm.evaluate(_source("globals.js"), _OWN_NAME, 0)
    entries = {name: guest.call("qjs_get_prop_string", own, _text(guest, name)) for name in _ENTRY_POINTS}
    scratch, undefined, spare = (
        guest.call("wasm_malloc", SCRATCH_BYTES), guest.call("qjs_get_undefined"), guest.call("qjs_get_undefined"),
    )
    guest.call("wasm_free", guest.call("wasm_malloc", _ROOM_BYTES))
    image = Image.of(guest, entries, scratch, undefined, spare)
    instance.store.close()
    return image


def _check_layout(guest: Guest) -> None:
    """See that this QuickJS keeps strings and exceptions as `guest.py` reads them."""
    handles = [guest.call("qjs_new_string", _text(guest, text), len(text.encode())) for text in ("plain \xe9", "€")]
    thrown = guest.call("qjs_eval", _text(guest, "throw 0"), len("throw 0"), _text(guest, _OWN_NAME), 0)
    values = [*handles, guest.call("qjs_get_undefined"), guest.call("qjs_get_exception"), thrown]
    texts, exceptions = [guest.read_string(value) for value in values], [guest.is_exception(value) for value in values]
    if texts != ["plain \xe9", None, None, None, None] or exceptions != [False, False, False, False, True]:
        raise GuestCrashed("QuickJS keeps its values in another way than is known here")


def _text(guest: Guest, text: str) -> int:
    data = text.encode() + b"\0"
    pointer = guest.call("wasm_malloc", len(data))
    guest.write(pointer, data)
    return pointer


def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
