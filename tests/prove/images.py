"""Crash images: the files as a power cut may leave them at every place of a real workload's tape, each opened again.

One seed is one recording (a host's life or several, on a new file, a used one or one that a crash left) and an image
or more for every prefix of it. An image must open, be whole, obey every rule of `invariants.py`, and hold exactly what
some commit left: none later than the one under way, none earlier than the last barrier that was acknowledged, nothing
in between. Whatever a barrier promised by name is looked up as well.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import apsw

from keepai.ledger.sqlite.migrate import migrations
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.errors import KeepError
from keepai.model.ids import text_of
from keepai.model.states import MACHINES
from keepai.testing import ManualClock
from tests.crashes.invariants import violations
from tests.folders import memory_folder
from tests.prove.base import Result, rounds, trial
from tests.prove.platter import Platter
from tests.prove.tape import Acknowledged, Committed, Lies, Sync, SyncFailed, Tape
from tests.prove.work import Recording, content, note, pages, reading, rows_of, seeded_ids, session, state_of

NAME = "keep.db"
PER_PLACE = 1  #: images at each place of the tape
PER_EDGE = 4  #: and where something was just synced or promised
REOPENED = 0.05  #: share of the images that a whole host's ledger opens and writes to
MIGRATED = 0.2  #: the same, of those whose schema is not finished
BROKEN_MAX = 20  #: then a seed has shown enough


@dataclass(frozen=True)
class Plan:
    """What is wrong on purpose; nothing, unless a test of this suite plants it."""

    lies: Lies = frozenset()  # files whose syncs do nothing
    planted: Callable[[], AbstractContextManager[object]] = nullcontext  # put a fault into the ledger
    nothing: bool = True  # barriers that write nothing themselves
    keeps: int = 0  # broken images that are kept for a look, per seed


@dataclass
class Count:
    """What a seed tried."""

    images: int = 0
    distinct: int = 0
    reopened: int = 0
    keeps: int = 0
    crashes: int = 0  # recordings that began on what a crash had left
    ops: int = 0
    broken: list[str] = field(default_factory=list)


SEED_S_MAX = 600.0  # for one recording and all its images, where ten seconds are usual


def run(seconds: float, first_seed: int, only: str | None) -> Result:
    """Images of one recording after the other until the time is up."""
    result, total = Result("images", "images"), Count()
    began = time.monotonic()
    for seed in rounds(seconds, first_seed, only):
        with trial(result, seed, SEED_S_MAX):
            found = try_seed(seed, Plan(keeps=3))
            result.tried += found.images
            for name in ("distinct", "reopened", "ops", "crashes"):
                setattr(total, name, getattr(total, name) + getattr(found, name))
            for what in found.broken:
                result.broke(seed, what)
    result.seconds = time.monotonic() - began
    result.note = (
        f"seeds {first_seed}–{seed}, {total.distinct:,} distinct, {total.reopened:,} opened by a host, "
        f"{total.ops:,} disk operations, {total.crashes} recordings on a crashed file"
    )
    return result


def try_seed(seed: int, plan: Plan | None = None, most: int | None = None) -> Count:
    """One recording and its images; with `most`, at about so many places of the tape, chosen by the seed."""
    rng, chance, count, plan = Random(seed), Random(-seed - 1), Count(), plan or Plan()
    count.keeps = plan.keeps
    base: Mapping[str, bytes] = {} if seed % 4 == 0 else used()
    with folder() as place, seeded_ids(Random(seed)), plan.planted():
        recording = record(place / "life-1", base, rng, plan, "a")
        left = check_all(recording, place / "image", chance, count, seed, most)
        if rng.random() < 0.5 and not count.broken:
            count.crashes += 1
            recording = record(place / "life-2", left, rng, plan, "b")
            check_all(recording, place / "image", chance, count, seed, most)
    return count


@contextmanager
def folder() -> Iterator[Path]:
    """Somewhere in memory, where the machine has that."""
    with tempfile.TemporaryDirectory(prefix="keep-images-", dir=memory_folder()) as name:
        yield Path(name)


def record(place: Path, base: Mapping[str, bytes], rng: Random, plan: Plan, name: str) -> Recording:
    """A workload on these files, taped."""
    recording = start_recording(place, base, plan)
    lanes = rng.choice((1, 1, 2, 4))
    with recording.running():
        for life in range(rng.choice((1, 1, 2))):
            asyncio.run(session(recording, rng, lanes, rng.choice((1, 2)), f"{name}{life}", plan.nothing))
    recording.tape.unregister()
    return recording


def start_recording(place: Path, base: Mapping[str, bytes], plan: Plan) -> Recording:
    """A tape for work on these files."""
    lay(place, base)
    before = state_of(place / NAME)
    lay(place, base)  # looking may leave an empty log behind
    return Recording(place / NAME, Tape(base, plan.lies), before)


@cache
def used() -> Mapping[str, bytes]:
    """A file that was opened and closed before: most recordings need not begin with the schema."""
    with folder() as place:
        path = place / NAME
        place.mkdir(exist_ok=True)
        with seeded_ids(Random("used")):  # others than any work's
            asyncio.run(SqliteLedger(path, ManualClock()).close())
        return {NAME: path.read_bytes()}


def lay(place: Path, files: Mapping[str, bytes]) -> None:
    """A folder with these files and nothing else."""
    place.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(place):
        os.unlink(entry)
    for name, data in files.items():
        (place / name).write_bytes(data)


# -- checking --------------------------------------------------------------------------------------------------


def check_all(
    recording: Recording, place: Path, rng: Random, count: Count, seed: int, most: int | None,
    since: int = 0,
) -> dict[str, bytes]:
    """Images at every place of the tape from one on; gives one of them, for a next life to begin on."""
    tape = recording.tape
    platter, judge = Platter(tape.base, tape.base_files), Judge(recording, place, count)
    chosen, left = rng.randrange(len(tape.ops)), dict(tape.base)
    share = 1.0 if most is None else most / len(tape.ops)
    for at, op in enumerate(tape.ops):
        platter.play(op)
        judge.hear(op)
        edge, drawn = isinstance(op, Sync | Acknowledged), rng.random() < share
        if at < since or not (edge or drawn or at == chosen):
            continue
        for _ in range(PER_EDGE if edge and drawn else PER_PLACE):
            image = platter.image(rng)
            found = judge.look(image, rng)
            if found and len(count.broken) < count.keeps:
                found += f" (kept in {keep(image, seed, at)})"
            if found:
                count.broken.append(f"at {at} of {len(tape.ops)}: {found}")
        if at == chosen:
            left = image
        if len(count.broken) >= BROKEN_MAX:
            break
    count.ops += len(tape.ops)
    return left


def keep(image: Mapping[str, bytes], seed: int, at: int) -> Path:
    """Keep a broken image where it can be looked at."""
    place = Path(tempfile.gettempdir()) / "keep-broken-images" / f"seed-{seed}-{at}"
    lay(place, image)
    return place


@dataclass(frozen=True)
class Look:
    """What is in an image, once SQLite has recovered it."""

    broken: tuple[str, ...]
    content: int
    finished: bool  # the schema is
    rest: int = 0  # its rows without the hosts, to which every opening adds
    mutations: Mapping[str, str] = field(default_factory=dict)
    acts: frozenset[str] = frozenset()


class Judge:
    """Knows what was committed and promised up to a place of the tape, and looks at images of it."""

    def __init__(self, recording: Recording, place: Path, count: Count) -> None:
        self._place, self._count = place, count
        self._states = recording.states
        self._committed, self._promised = 0, 0
        self._doubtful = False  # a commit failed, and may be there all the same
        self._promises: dict[tuple[str, str], str] = {}
        self._looks: dict[int, Look] = {}  # by the hash of the pages
        self._seen: dict[int, int | str] = {}  # by the hash of the files

    def hear(self, op: object) -> None:
        """The next thing on the tape."""
        if isinstance(op, Committed):
            self._committed = op.number
        elif isinstance(op, SyncFailed):
            self._doubtful = True
        elif isinstance(op, Acknowledged):
            self._promised = max(self._promised, op.number)
            self._promises.update({(table, key): state for table, key, state in op.promises})

    def look(self, image: Mapping[str, bytes], rng: Random) -> str | None:
        """What is wrong with an image, if anything."""
        self._count.images += 1
        state = self._state(image)
        if isinstance(state, str):
            return state
        look = self._looks[state]
        if look.broken:
            return "; ".join(look.broken)
        found = self._of_time(state, look) or broken_promise(self._promises, look)
        if found is None and rng.random() < (REOPENED if look.finished else MIGRATED):
            found = self._reopen(image, look, rng)
        return found

    def _state(self, image: Mapping[str, bytes]) -> int | str:
        """The content that SQLite recovers; a sentence if it cannot."""
        key = hash(tuple(sorted(image.items())))
        if key not in self._seen:
            self._count.distinct += 1
            lay(self._place, image)
            try:
                self._seen[key] = self._recover()
            except (apsw.Error, UnicodeDecodeError) as error:  # torn bytes may be no text
                self._seen[key] = f"it cannot be opened: {type(error).__name__}: {error}"
        return self._seen[key]

    def _recover(self) -> int:
        path = self._place / NAME
        with reading(path) as connection:
            state = pages(connection)
        if state not in self._looks:
            self._looks[state] = look_at(path)
        return state

    def _of_time(self, state: int, look: Look) -> str | None:
        """The content must be that after some commit: not before what was promised, not after what is under way."""
        fits = [n for n, s in enumerate(self._states) if state == s.pages or look.content == s.content]
        if any(self._promised <= n <= self._committed + 1 for n in fits):
            return None
        if not fits:
            return None if self._doubtful else "its content is not what any commit left"
        return f"it is back at commit {max(fits)}, and {self._promised} was acknowledged"

    def _reopen(self, image: Mapping[str, bytes], look: Look, rng: Random) -> str | None:
        """A host opens it with its own recovery, finds the same, and can go on."""
        self._count.reopened += 1
        path = self._place / NAME
        lay(self._place, {**image, f"{NAME}-shm": rng.randbytes(32768)} if rng.random() < 0.5 else image)
        try:
            rest = asyncio.run(go_on(path))
        except KeepError as error:
            return f"a host cannot open it: {error}"
        if look.finished and look.rest != rest:
            return "a host finds something else in it"
        return "; ".join(violations(path)) or None


async def go_on(path: Path) -> int:
    """Open as a host does, look, write; what was found."""
    ledger = SqliteLedger(path, ManualClock())
    try:
        found = rows_of(ledger._connection, without="host")
        await ledger.write(note, None, "after", barrier=True)
        assert ledger.stopped() is None
    finally:
        await ledger.close()
    return found


def broken_promise(promises: Mapping[tuple[str, str], str], look: Look) -> str | None:
    """What a caller was told and is not there."""
    for (table, key), state in promises.items():
        if table == "action" and key not in look.acts:
            return f"the act {key} was acknowledged and is lost"
        if table == "mutation" and look.mutations.get(key) not in _later("mutation", state):
            return f"mutation {key} was acknowledged as {state} and is {look.mutations.get(key)}"
    return None


@cache
def _later(machine: str, state: str) -> frozenset[str]:
    """The state and all that can follow it."""
    moves, found, todo = MACHINES[machine].moves, {state}, [state]
    while todo:
        for target in moves[MACHINES[machine].states(todo.pop())]:
            if target not in found:
                found.add(str(target))
                todo.append(str(target))
    return frozenset(found)


def look_at(path: Path) -> Look:
    """Everything there is to know of a file."""
    with reading(path) as file:
        whole = content(file)
        if int(file.pragma("user_version")) < max(migrations()):
            broken = [str(row[0]) for row in file.execute("pragma integrity_check") if row[0] != "ok"]
            return Look(tuple(broken), whole, finished=False)
        return Look(
            tuple(violations(path)), whole, True, rows_of(file, without="host"),
            {text_of(id): status for id, status in file.execute("select id, status from mutation")},
            frozenset(subject for (subject,) in file.execute("select subject from action")),
        )
