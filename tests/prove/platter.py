"""What a power cut may leave behind: what is surely on disk at a place of the tape, and any part of the rest.

A disk keeps its promise about a synced file and about nothing else. Of what was not synced any subset survives, in any
order, over all files: whole writes, or single sectors of 512 bytes, or rubbish where a sector was being written. It
is assumed that a write leaves the bytes beside its own as they were, which SQLite assumes of every disk too
("powersafe overwrite"). Nothing of SQLite's own order is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.prove.tape import Link, Op, Sync, SyncFailed, Truncate, Unlink, Write

SECTOR = 512

Change = Write | Truncate


class Platter:
    """The disk at one place of the tape; `play` moves on."""

    def __init__(self, base: Mapping[str, bytes], names: Mapping[str, int]) -> None:
        self._names = dict(names)
        self._bytes = {number: bytearray(base[name]) for name, number in names.items()}
        self._loose: dict[int, list[Change]] = {}  # by file: written, not synced
        self._after: dict[int, list[tuple[bool, list[Change]]]] = {}  # by file, from a failed sync on: surely there?
        self._renames: list[Link | Unlink] = []

    def play(self, op: Op) -> bool:
        """Let one more thing happen; False if it is nothing to a disk."""
        match op:
            case Write(file=file) | Truncate(file=file):
                self._loose.setdefault(file, []).append(op)
            case Sync(file=file, folder=folder):
                self._sync_file(file)
                if folder:
                    self._sync_folder()
            case SyncFailed(file=file):
                self._after.setdefault(file, []).append((False, self._loose.pop(file, [])))
            case Link(file=file):
                self._renames.append(op)
            case Unlink(folder=folder):
                self._renames.append(op)
                if folder:
                    self._sync_folder()
            case _:
                return False
        return True

    def image(self, rng: Random) -> dict[str, bytes]:
        """One of the many disks that a power cut may leave now."""
        names = dict(self._names)
        for rename in _some(self._renames, rng):
            _rename(names, rename)
        return {name: bytes(self._survivor(file, rng)) for name, file in names.items()}

    def _survivor(self, file: int, rng: Random) -> bytearray:
        found = bytearray(self._bytes.get(file, b""))
        for sure, changes in [*self._after.get(file, []), (False, self._loose.get(file, []))]:
            if changes:
                (_everything if sure else rng.choice(FATES))(found, changes, rng)
        return found

    def _sync_file(self, file: int) -> None:
        changes = self._loose.pop(file, [])
        if file in self._after:
            self._after[file].append((True, changes))
        else:
            self._bytes[file] = applied(self._bytes.get(file, b""), changes)

    def _sync_folder(self) -> None:
        for rename in self._renames:
            _rename(self._names, rename)
        self._renames = []


def _rename(names: dict[str, int], rename: Link | Unlink) -> None:
    if isinstance(rename, Link):
        names[rename.name] = rename.file
    else:
        names.pop(rename.name, None)


def applied(content: bytes | bytearray, changes: Sequence[Change]) -> bytearray:
    """A file after all of these."""
    found = bytearray(content)
    for change in changes:
        _apply(found, change)
    return found


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Truncate):
        del content[change.size :]
    else:
        _put(content, change.offset, change.data)


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _some(ops: Sequence[Link | Unlink], rng: Random) -> Sequence[Link | Unlink]:
    share = rng.choice((0.0, 0.5, 1.0))
    return [op for op in ops if rng.random() < share]


# What may become of a file's writes that were not synced


def _nothing(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    """All lost."""


def _everything(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    for change in changes:
        _apply(content, change)


def _beginning(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    """Those before some moment, the last of them torn."""
    cut = rng.randrange(len(changes))
    _everything(content, changes[:cut], rng)
    _tear(content, changes[cut], rng, 0.5)


def _subset(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    share = rng.random()
    for change in changes:
        if rng.random() < share:
            _apply(content, change)


def _all_but_one(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    left = rng.randrange(len(changes))
    for number, change in enumerate(changes):
        if number != left:
            _apply(content, change)


def _sectors(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    """Any subset of sectors."""
    share = rng.random()
    for change in changes:
        _tear(content, change, rng, share)


def _rubbish(content: bytearray, changes: Sequence[Change], rng: Random) -> None:
    """Any subset of sectors, and rubbish in some that were being written."""
    share = rng.random()
    for change in changes:
        _tear(content, change, rng, share, rubbish=0.3)


FATES: tuple[Callable[[bytearray, Sequence[Change], Random], None], ...] = (
    _nothing, _everything, _beginning, _subset, _all_but_one, _sectors, _rubbish,
)


def _tear(content: bytearray, change: Change, rng: Random, share: float, rubbish: float = 0.0) -> None:
    if isinstance(change, Truncate):
        if rng.random() < share:
            _apply(content, change)
        return
    at, end = change.offset, change.offset + len(change.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        if rng.random() < share:
            _put(content, at, change.data[at - change.offset : stop - change.offset])
        elif rng.random() < rubbish:
            _put(content, at, rng.randbytes(stop - at) if rng.random() < 0.5 else bytes(stop - at))
        at = stop
