"""The wasm instance in which VMs live, one after the other, and the memory images that they start from.

A step must find nothing of the step before. The whole state of an instance is its linear memory and one global,
the stack pointer; both are overwritten from an image before every step. That is as good as a new instance
and costs a tenth, because the pages are already there. An instance that has grown is not used again.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import wasmtime

from .guest import Guest, GuestCrashed, Piece
from .wasm_engine import Engine

_PAGE_BYTES = mmap.PAGESIZE
_GAP_PAGES_MIN = (64 << 10) // _PAGE_BYTES  # shorter gaps are not worth a system call
_STACK_KEPT_BYTES = 16 << 10  # that most steps use: written over with zeros, not given back and faulted in again
_BLOCK_BYTES = 512  # of memory, by which the image of a script is compared with the base
_COMPARED_BYTES = 32 << 10  # at a time
_JOINED_BYTES = 1024  # between two blocks: to write them as well is quicker than another write
_SLACK_BYTES = 4 << 20  # beyond the script's own limit, for strings on their way in and out


@dataclass(frozen=True)
class Image:
    """The memory of a VM at rest, and the addresses in it that we need."""

    pieces: tuple[Piece, ...]  # the rest is zero
    gaps: tuple[tuple[int, int], ...]  # the rest: from, to
    size: int  # of the whole memory
    stack_pointer: int  # at rest: the stack's beginning, and it goes down to zero
    entries: Mapping[str, int]  # handles of bootstrap's functions
    scratch: int  # a piece of memory for small strings on their way in
    undefined: int  # a handle
    spare: int  # another, which a step may give away once
    changes: tuple[Piece, ...] = ()  # in the image of a loaded script: where it differs from the base

    @classmethod
    def of(cls, guest: Guest, entries: Mapping[str, int], scratch: int, undefined: int, spare: int) -> Image:
        """The image of a guest that is at rest now."""
        stack_pointer = guest.stack_pointer()
        pieces, gaps = _parts(guest, stack_pointer)
        return cls(pieces, gaps, guest.memory_size(), stack_pointer, entries, scratch, undefined, spare)

    def after(self, guest: Guest) -> Image:
        """The image of a guest that started from this one, has not grown, and is at rest again."""
        return replace(self, changes=_differences(self, guest))

    def part(self, start: int, end: int) -> bytes:
        """What is in a range of the memory, without the changes."""
        found = bytearray(end - start)
        for first, last, data in self.pieces:
            if first < end and start < last:
                low, high = max(first, start), min(last, end)
                found[low - start : high - start] = data[low - first : high - first]
        return bytes(found)

    @property
    def changed_bytes(self) -> int:
        """What it takes beside the base, which all images share."""
        return sum(len(data) for _, _, data in self.changes)


@dataclass(frozen=True)
class VmLimits:
    """How much memory a VM may take."""

    memory_bytes: int = 64 << 20
    stack_bytes: int = 256 << 10
    message_bytes: int = 4 << 20


class Instance:
    """One instance of the interpreter."""

    def __init__(self, engine: Engine, limits: VmLimits) -> None:
        self.engine = engine
        self.store = wasmtime.Store(engine.wasm)
        self._limited_to: VmLimits | None = None
        self._limit(limits)
        self.guest: Guest = engine.instantiate(self.store)
        self.guest.allow_epoch()

    def reset(self, image: Image, limits: VmLimits) -> None:
        """Make it what the image says."""
        guest = self.guest
        if limits is not self._limited_to and limits != self._limited_to:
            self._limit(limits)
        guest.allow_epoch()
        guest.grow_to(image.size)
        for start, end in image.gaps:
            guest.clear(start, end)
        guest.restore(image.pieces)
        guest.restore(image.changes)
        guest.set_stack_pointer(image.stack_pointer)

    def _limit(self, limits: VmLimits) -> None:
        most = limits.memory_bytes + limits.message_bytes + _SLACK_BYTES
        self.store.set_limits(memory_size=most, instances=1, tables=2, memories=1)
        self._limited_to = limits


def _differences(base: Image, guest: Guest) -> tuple[Piece, ...]:
    """Where the memory of a guest at rest differs from its base, and what it has there; in blocks, near ones joined.

    It is compared in small parts: a copy of it all would leave the worker with a heap of that size."""
    differ = list[int]()
    for start in range(base.stack_pointer, base.size, _COMPARED_BYTES):
        length = min(_COMPARED_BYTES, base.size - start)
        before, now = base.part(start, start + length), guest.read(start, length)
        if before != now:
            differ += [
                start + at for at in range(0, length, _BLOCK_BYTES)
                if before[at : at + _BLOCK_BYTES] != now[at : at + _BLOCK_BYTES]
            ]
    joined: list[tuple[int, int]] = []
    for at in differ:
        if joined and at - joined[-1][1] <= _JOINED_BYTES:
            joined[-1] = joined[-1][0], at + _BLOCK_BYTES
        else:
            joined.append((at, at + _BLOCK_BYTES))
    return tuple((start, end, guest.read(start, end - start)) for start, end in joined)


def _parts(guest: Guest, stack_pointer: int) -> tuple[tuple[Piece, ...], tuple[tuple[int, int], ...]]:
    """The memory, cut into pieces of something and long gaps of zeros; all of the stack is zero, most of it a gap."""
    if stack_pointer % _PAGE_BYTES:
        raise GuestCrashed("the interpreter's stack does not begin where a page does")
    memory = bytes(stack_pointer) + guest.read(stack_pointer, guest.memory_size() - stack_pointer)
    kept, empty = range(stack_pointer - _STACK_KEPT_BYTES, stack_pointer), bytes(_PAGE_BYTES)
    pages = range(0, len(memory), _PAGE_BYTES)
    marks = "".join("1" if at in kept or memory[at : at + _PAGE_BYTES] != empty else "0" for at in pages)
    found = [match.span() for match in re.finditer(f"0{{{_GAP_PAGES_MIN},}}", marks)]
    gaps = tuple((start * _PAGE_BYTES, end * _PAGE_BYTES) for start, end in found)
    borders = [0, *(border for gap in gaps for border in gap), len(memory)]
    between = zip(borders[::2], borders[1::2], strict=True)
    return tuple((start, end, memory[start:end]) for start, end in between if start < end), gaps
