"""The wasm instance in which VMs live, one after the other, and the memory image that each starts from.

A step must find nothing of the step before. The whole state of an instance is its linear memory and one global,
the stack pointer; both are overwritten from the image before every step. That is as good as a new instance
and costs a third, because the pages are already there. An instance that has grown is not used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import wasmtime

from .engine import Engine
from .guest import Guest

_SLACK_BYTES = 4 << 20  # beyond the script's own limit, for strings on their way in and out


@dataclass(frozen=True)
class Image:
    """The memory of a VM at rest, and where in it our own things are."""

    memory: bytes
    stack_pointer: int
    runtime: int
    context: int
    entries: Mapping[str, int]  # handles of bootstrap's functions
    desk: int  # a piece of memory for small strings on their way in
    undefined: int  # a handle


@dataclass(frozen=True)
class Size:
    """What a VM may take."""

    memory_bytes: int = 64 << 20
    stack_bytes: int = 256 << 10
    message_bytes: int = 4 << 20


class Cell:
    """One instance of the interpreter."""

    def __init__(self, engine: Engine, size: Size) -> None:
        self.engine = engine
        self.store = wasmtime.Store(engine.wasm)
        self.limit(size)
        self.guest: Guest = engine.instantiate(self.store)

    def limit(self, size: Size) -> None:
        """Set what the guest may take from now on."""
        most = size.memory_bytes + size.message_bytes + _SLACK_BYTES
        self.store.set_limits(memory_size=most, instances=1, tables=2, memories=1)
        self.store.set_epoch_deadline(1)

    def reset(self, image: Image, size: Size) -> None:
        """Make it what the image says."""
        self.limit(size)
        self.guest.grow_to(len(image.memory))
        self.guest.write(0, image.memory)
        self.guest.stack_pointer = image.stack_pointer


class Cells:
    """Hands out the cell of a worker; there is one, because a worker runs one step at a time."""

    def __init__(self, engine: Engine, image: Image) -> None:
        self.engine, self.image = engine, image
        self._cell: Cell | None = None

    def take(self, size: Size) -> Cell:
        """A cell that holds the image and nothing else."""
        if self._cell is None:
            self._cell = Cell(self.engine, size)
        self._cell.reset(self.image, size)
        return self._cell

    def give_back(self) -> None:
        """After a step: an instance cannot shrink, so one that has grown is given up."""
        if self._cell is not None and self._cell.guest.memory_size() != len(self.image.memory):
            self._cell.store.close()
            self._cell = None
