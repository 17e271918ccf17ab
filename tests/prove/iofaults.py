"""I/O errors at every call: the n-th write, sync, truncate or read of a real workload fails, for every n.

From then on the ledger must be stopped and say why; nothing more is written or synced, not even by closing; looking
still works; and once the disk is well and the file is opened again, every barrier that was acknowledged is there, every
rule of `invariants.py` holds, and the work goes on. One seed is one workload, one kind of fault, and every n.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import apsw

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import KeepError, LedgerStopped, LedgerUnusable
from keepai.testing import ManualClock
from tests.crashes.invariants import violations
from tests.prove.base import Result, rounds, trial
from tests.prove.broken import FAULTS, OPENING, Broken, Closed, Fault
from tests.prove.images import (
    NAME,
    Count,
    Plan,
    broken_promise,
    check_all,
    folder,
    lay,
    look_at,
    start_recording,
    used,
)
from tests.prove.tape import SyncFailed
from tests.prove.work import Lane, Promises, Recording, Teller, note, seeded_ids, small_log

_NEVER = 8000  #: frames in the log that this work does not reach
_OPENS = "while it is opened: "

#: A power cut after a sync that failed.
CUT = "power cut after a failed sync"
KINDS = (*FAULTS, CUT, *(f"{_OPENS}{kind}" for kind in OPENING))


@dataclass(frozen=True)
class Load:
    """How the work is done: so many lanes, a log of so many frames, a cache of so many pages."""

    seed: int = 1
    lanes: int = 1
    log: int = _NEVER
    cache: int = 2000
    untouched: bool = False  # the log is left alone when the ledger is closed


@dataclass
class Trial:
    """What became of one fault."""

    struck: str | None = None
    broken: list[str] = field(default_factory=list)


KIND_S_MAX = 600.0  # for one kind of fault at every call, where ten seconds are usual


def run(seconds: float, first_seed: int, only: str | None) -> Result:
    """One kind of fault after the other until the time is up."""
    result, began = Result("iofaults", "faults"), time.monotonic()
    for seed in rounds(seconds, first_seed, only):
        kind = KINDS[seed % len(KINDS)]
        with trial(result, seed, KIND_S_MAX):
            for nth, broken in _tried(kind, _load(seed)):
                result.tried += 1
                for what in broken:
                    result.broke(seed, f"{kind}, call {nth}: {what}")
    result.seconds = time.monotonic() - began
    result.note = f"seeds {first_seed}–{seed}, {len(KINDS)} kinds of fault"
    return result


def _load(seed: int) -> Load:
    rng = Random(seed // len(KINDS))
    return Load(seed, rng.choice((1, 1, 3)), rng.choice((8, 40, _NEVER)), rng.choice((10, 2000)))


def _tried(kind: str, load: Load) -> Iterator[tuple[int, list[str]]]:
    """Each call at which a fault of this kind struck, and what was broken then."""
    if kind in FAULTS:
        yield from ((nth, trial.broken) for nth, trial in every(FAULTS[kind], load))
    elif kind == CUT:
        yield from every_cut(load)
    else:
        for base in ({}, used()):
            yield from every_opening(kind.removeprefix(_OPENS), base)


def every(fault: Fault, load: Load, step: int = 1, first: int = 1) -> list[tuple[int, Trial]]:
    """The fault at each call until the work ends before it strikes."""
    found, nth = list[tuple[int, Trial]](), first
    with folder() as place:
        while True:
            trial = try_fault(place, fault, nth, load)
            if trial.struck is None:
                return found
            found.append((nth, trial))
            nth += step


def try_fault(place: Path, fault: Fault, nth: int, load: Load) -> Trial:
    """Work until the fault strikes; then all that must be true."""
    lay(place, used())
    with seeded_ids(Random(load.seed)):
        return asyncio.run(_try_fault(place, fault, nth, load))


async def _try_fault(place: Path, fault: Fault, nth: int, load: Load) -> Trial:
    path, disk, trial, said = place / NAME, Broken(fault, nth), Trial(), Said()
    ledger = SqliteLedger(path, ManualClock())
    small_log(ledger, load.log)
    ledger._connection.execute(f"pragma cache_size = {load.cache}")
    disk.attach(ledger._connection)
    said.struck = lambda: disk.struck is not None
    try:
        trial.broken += await work(ledger, said, load)
    finally:
        trial.struck = disk.struck
        if disk.struck:
            trial.broken += said.late
            trial.broken += await stopped(ledger, disk, path)
        disk.mend()
        tried = disk.changes
        await ledger.close()
        if disk.struck and disk.changes > tried:
            trial.broken.append(CLOSING.format(disk.changes - tried))
    trial.broken += await reopened(path, said)
    return trial


#: The one sentence that tests tell apart.
CLOSING = "closing the stopped ledger did {} more things to its files"


class Said:
    """Writes and keeps what was acknowledged; what is acknowledged after the fault is one thing too many."""

    def __init__(self) -> None:
        self.promises: dict[tuple[str, str], str] = {}
        self.late: list[str] = []
        self.struck: Callable[[], bool] = lambda: False

    async def say(
        self, ledger: SqliteLedger, verb: Callable[..., Any], *args: Any, barrier: bool = False,
        promises: Callable[[Any], Promises] | None = None,
    ) -> Any:
        before = self.struck()
        result = await ledger.write(verb, *args, barrier=barrier)
        if before:
            self.late.append(f"{verb.__name__} was written after the fault")
        if barrier and promises:
            self.promises.update({(table, key): state for table, key, state in promises(result)})
        return result

    async def flush(self, ledger: SqliteLedger) -> None:
        await ledger.barrier()


async def work(ledger: SqliteLedger, said: Teller, load: Load) -> list[str]:
    """Lanes side by side; each ends when the ledger is stopped. What ended one otherwise."""
    ledger._writer.crew, rng = load.lanes, Random(load.seed)
    lanes = [Lane(said, ledger, Random(rng.random()), f"lane-{n}") for n in range(load.lanes)]
    ends = await asyncio.gather(*(lane.work(2) for lane in lanes), return_exceptions=True)
    return [f"the work broke: {end!r}" for end in ends if end is not None and not isinstance(end, LedgerStopped)]


async def stopped(ledger: SqliteLedger, disk: Broken, path: Path) -> list[str]:
    """What is wrong with a ledger under which the disk has failed."""
    found = []
    why = ledger.stopped()
    if why is None:
        found.append("nobody noticed: the ledger is not stopped")
    elif str(path) not in why or ("start again" not in why and "permissions" not in why):
        found.append(f"it does not say what to do: {why}")
    disk.mend()
    tried = disk.changes
    for barrier in (True, False):
        try:
            await ledger.write(note, None, "later", barrier=barrier)
            found.append("it wrote after the fault")
        except LedgerStopped as error:
            if error.message != why:
                found.append(f"it says something else: {error.message}")
    try:
        await ledger.barrier()
        found.append("a barrier was acknowledged after the fault")
    except LedgerStopped:
        pass
    if disk.changes > tried:
        found.append("it did something to its files after the fault")
    return found + _looked(ledger)


def _looked(ledger: SqliteLedger) -> list[str]:
    try:
        ledger.reads.all("workflow_all")
    except (apsw.Error, KeepError) as error:
        return [f"it cannot be read: {error}"]
    return []


async def reopened(path: Path, said: Said) -> list[str]:
    """What is wrong with the file when the disk is well again."""
    look = look_at(path)
    lost = broken_promise(said.promises, look)
    found = [*look.broken, lost] if lost else list(look.broken)
    try:
        ledger = SqliteLedger(path, ManualClock())
    except KeepError as error:
        return [*found, f"it cannot be opened again: {error}"]
    try:
        await Lane(Said(), ledger, Random(1), "afterwards").work(1)
    except KeepError as error:
        found.append(f"the work does not go on: {error}")
    finally:
        await ledger.close()
    return found + violations(path)


# -- power cuts after a failed sync -------------------------------------------------------------------------------


def every_cut(load: Load, tries: int = 150, step: int = 1) -> Iterator[tuple[int, list[str]]]:
    """The sync fails at each call until the work ends before that."""
    for nth in count(1, step):
        struck, tried = cut_after_failed_sync(nth, load, tries)
        if struck is None:
            return
        yield nth, tried.broken


def cut_after_failed_sync(nth: int, load: Load, tries: int) -> tuple[str | None, Count]:
    """The nth sync fails once, which on Linux gives up what it was to bring to disk; the work goes on if it can, and
    the power goes at any moment after that. Gives the file in which it struck, and what was found."""
    found, seed = Count(), load.seed
    with folder() as place, seeded_ids(Random(seed)):
        recording = start_recording(place / "life", used(), Plan())
        disk = Broken(FAULTS["sync fails once"], nth)
        files, ops = recording.tape.files, recording.tape.ops
        disk.on_struck = lambda name: ops.append(SyncFailed(files[name]))
        with recording.running():
            asyncio.run(_work_taped(recording, disk, load))
        recording.tape.unregister()
        struck = next((at for at, op in enumerate(ops) if isinstance(op, SyncFailed)), None)
        if struck is not None:
            check_all(recording, place / "image", Random(seed), found, seed, tries, since=struck)
    return disk.struck, found


async def _work_taped(recording: Recording, disk: Broken, load: Load) -> None:
    ledger = SqliteLedger(recording.path, ManualClock(), vfs=recording.tape.name)
    small_log(ledger, load.log)
    disk.attach(ledger._connection)
    try:
        assert not await work(ledger, recording, load)
    finally:
        ledger._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(load.untouched))
        await ledger.close()


# -- while it is opened -------------------------------------------------------------------------------------------


def every_opening(kind: str, base: Mapping[str, bytes], step: int = 1) -> list[tuple[int, list[str]]]:
    """The fault at each call while a ledger is opened, until it strikes no more."""
    found, nth = list[tuple[int, list[str]]](), 1
    with folder() as place:
        while True:
            lay(place, base)
            struck, broken = asyncio.run(_try_opening(place / NAME, kind, nth))
            if not struck:
                return found
            found.append((nth, broken))
            nth += step


async def _try_opening(path: Path, kind: str, nth: int) -> tuple[bool, list[str]]:
    act, error = OPENING[kind]
    disk, found = Closed(act, nth, error), list[str]()
    try:
        ledger = SqliteLedger(path, ManualClock())
        struck = disk.struck
        if struck:
            found.append("it was opened though the disk failed")
        disk.mend()
        await ledger.close()
    except LedgerUnusable as refusal:
        struck = True
        if str(path) not in refusal.message:
            found.append(f"it does not name the file: {refusal.message}")
    except apsw.Error as raw:
        struck = True
        found.append(f"no sentence for people, but {type(raw).__name__}: {raw}")
    finally:
        disk.unregister()
    return struck, found + await reopened(path, Said())


def counted(trials: list[tuple[int, Trial]]) -> Mapping[str, int]:
    """How often a fault struck which file."""
    files = [trial.struck or "" for _, trial in trials]
    return {name: files.count(name) for name in set(files)}
