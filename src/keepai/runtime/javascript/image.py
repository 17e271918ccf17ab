"""Builds the memory image that every VM starts from: QuickJS started, our own scripts run, nothing of a user's."""

from __future__ import annotations

from pathlib import Path

from .cell import Cell, Image, Size
from .engine import Engine
from .guest import Guest, GuestCrashed
from .vm import DESK_BYTES, Vm

_ENTRY_POINTS = ("ready", "start", "settle", "describe", "trace")
_OWN_NAME = "<keep>"  # of our scripts in stack traces
_ROOM_BYTES = 1 << 20  # that a small step may use before its memory has to grow


def build_image(engine: Engine) -> Image:
    """Start QuickJS, run our own scripts in it and keep its memory."""
    cell = Cell(engine, Size())
    guest = cell.guest
    vm = Vm(cell)
    engine.running = vm
    guest.call("_initialize")
    if guest.call("qjs_init"):
        raise GuestCrashed("QuickJS did not start")
    guest.call("qjs_set_promise_rejection_handler", 1)
    _give_host_function(guest)
    own = vm.evaluate(_source("bootstrap.js"), _OWN_NAME, 0)
    vm.evaluate(_source("globals.js"), _OWN_NAME, 0)
    entries = {name: guest.call("qjs_get_prop_string", own, _text(guest, name)) for name in _ENTRY_POINTS}
    desk, undefined = guest.call("wasm_malloc", DESK_BYTES), guest.call("qjs_get_undefined")
    guest.call("wasm_free", guest.call("wasm_malloc", _ROOM_BYTES))
    image = Image.of(guest, entries, desk, undefined)
    cell.store.close()
    return image


def _give_host_function(guest: Guest) -> None:
    function = guest.call("qjs_new_host_function", _text(guest, "host"), len("host"), 0)
    guest.call("qjs_set_prop_string", guest.call("qjs_get_global"), _text(guest, "__host"), function)


def _text(guest: Guest, text: str) -> int:
    pointer = guest.call("wasm_malloc", len(text) + 1)
    guest.write(pointer, text.encode() + b"\0")
    return pointer


def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
