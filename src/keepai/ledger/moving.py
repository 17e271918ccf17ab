"""Moves a ledger that no host has from one place to another, whole: between a file and PostgreSQL, in either direction.

The mark in the source is the decision. Until it says that the ledger went, the source is the ledger; from then on the
target is. The order, and what a crash leaves behind:

1. Both places are held, so that no host can begin at either. Nothing is changed.
2. Calls of hosts that are certainly dead are closed in the source: the target could not prove that they have ended.
3. One commit fills the target, with a mark that says from where it comes and that no host may open it. After a crash
   the source is the ledger. The same command throws the copy away and begins anew.
4. Every row of both places is compared, both are checked as by `keep db check`, and what people are shown is compared.
   If anything differs, it ends here: the source is the ledger. Deliveries of webhooks are carried over.
5. One commit puts a mark into the source: the ledger went. It is the decision. If its answer is lost, the mark is there
   or it is not, and what is said here of the step before or after it holds.
6. The mark in the target is taken off. After a crash before that, whoever opens the target looks into the source, finds
   its mark, and takes this one off (`has_gone`); so does the same command. If the source cannot be read from there,
   nobody opens the target until the command was given again.

So at no moment can hosts begin at both places. A mark names the mover, which is the same in both and new for each try:
a copy that an earlier try left is never taken for the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

from ..model import crash_points
from ..model.clock import Clock, Ids, iso
from ..model.codec import Json
from ..model.errors import LedgerMoved, LedgerUnusable, Refused
from ..model.records import Record
from .base import Reader, Row
from .checks import check

Values = Sequence[Any]

#: Called with a table and how many of its rows were copied, or compared, so far.
Progress = Callable[[str, str, int], None]

#: What is shown of a ledger, piece by piece: the name of the piece, and the piece.
Told = Callable[[Reader], Iterator[tuple[str, Json]]]

_PROGRESS_ROWS = 5_000


@dataclass(frozen=True)
class TableShape:
    """The columns of a table, and those of its key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


class LedgerPlace(Protocol):
    """One end of a move, held so that nobody else writes there, until `close`."""

    name: str  # for people: without a password
    read: Reader

    def shapes(self) -> Mapping[str, TableShape]:
        """Its tables."""
        ...

    def rows(self, table: str, shape: TableShape) -> Iterator[Values]:
        """Every row of a table as it is kept, in the order of its key, without holding all of them in memory."""
        ...

    def close(self) -> None:
        """Let go. What was not committed is not there."""
        ...


class MoveSource(LedgerPlace, Protocol):
    """The place that a ledger leaves."""

    def close_calls(self, now: int) -> None:
        """Have it on record that the calls of dead hosts have ended; refuse if one may still be on its way."""
        ...

    def depart(self, mover: str, to: str, now: int) -> None:
        """Commit that the ledger went: it is on disk when this returns."""
        ...


class MoveTarget(LedgerPlace, Protocol):
    """The place that it goes to."""

    def holds(self) -> bool:
        """Whether anything is there that is a ledger."""
        ...

    def prepare(self, mover: str, source: str, now: int, read: Reader) -> None:
        """Begin to make an empty ledger with the mark; a copy that an earlier try left is thrown away. `read` reads the
        source: a place that was one of a ledger before takes only that one."""
        ...

    def load(self, table: str, shape: TableShape, rows: Iterable[Values]) -> None:
        """Put rows into a table."""
        ...

    def commit_copy(self) -> None:
        """Commit all of that at once: it is there, and on disk, when this returns; before, nothing is."""
        ...

    def arrive(self, mover: str) -> None:
        """Commit that this is the ledger."""
        ...


@dataclass(frozen=True)
class MovedTable(Record):
    """What one table had: how many rows, and a hash of them in the order of their key."""

    name: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Moved(Record):
    """What a move did, or would do."""

    source: str
    target: str
    state: str  # "would_move", "moved", or "finished": all but the last step had been done before
    tables: tuple[MovedTable, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(each.rows for each in self.tables)


def refusal(name: str, mark: Row | None) -> LedgerMoved | None:
    """Why no host opens a ledger with this mark."""
    if mark is None:
        return None
    place, at, known = mark["place"], iso(mark["at"]), (mark["mover"], mark["place"])
    if mark["went"]:
        return LedgerMoved(
            f"{name} was moved to {place} on {at}. That is the ledger now: what was done there is not on record here, "
            "and would be done again. Name it in keep.toml, or with --db. If it is lost for good, look at the "
            "outside systems for what was sent, and say `keep db accept-older` to go on here.", *known, went=True)
    return LedgerMoved(
        f"{name} was copied from {place} on {at}, and that move has not ended, or {place} cannot be read from here. "
        f"Type the same `keep db move` again: it goes on, or begins anew. If {place} is lost for good, look at the "
        "outside systems for what was sent, and say `keep db accept-older` to go on here.", *known, went=False)


def has_gone(refused: LedgerMoved, mark_at_source: Row | None) -> bool:
    """Whether a copy that was refused is the ledger after all: the source says that it went, by the same mover."""
    return (not refused.went and mark_at_source is not None and bool(mark_at_source["went"])
            and mark_at_source["mover"] == refused.mover)


def move(
    source: MoveSource, target: MoveTarget, clock: Clock, told: Told, progress: Progress,
    carry: Callable[[], None] = lambda: None, *, dry_run: bool = False,
) -> Moved:
    """Move a ledger, or finish a move that was cut off. `carry` brings what must be there too before hosts begin."""
    left, came = source.read.one("moved_mark"), target.read.one("moved_mark") if target.holds() else None
    if left is not None:
        return _finished(source, target, left, came, dry_run)
    if target.holds() and not _may_be_overwritten(source.read, target.read):
        raise Refused(
            f"There is a ledger at {target.name} already, or the copy of another one, and a move overwrites neither. "
            "Name an empty database, or a new file."
        )
    _check_sound(source)
    if dry_run:
        tables = [_counted(source, table, shape, progress, "reads") for table, shape in _tables(source).items()]
        return Moved(source.name, target.name, "would_move", tuple(tables))
    now, mover = clock.now_ms(), Ids(clock).new("hst")
    source.close_calls(now)
    copied = _copy(source, target, mover, now, progress)
    _check_same(source, target, copied, told, progress)
    carry()
    crash_points.reach("before:move_departs")
    source.depart(mover, target.name, now)
    crash_points.reach("after:move_departs")
    target.arrive(mover)
    crash_points.reach("after:move_arrives")
    return Moved(source.name, target.name, "moved", tuple(was for _, was in copied.values()))


def copy(source: LedgerPlace, target: MoveTarget, clock: Clock) -> None:
    """Make the target a ledger of its own with all that is in the source. Nothing is compared."""
    now, mover = clock.now_ms(), Ids(clock).new("hst")
    _copy(source, target, mover, now, lambda *told: None)
    target.arrive(mover)


def _may_be_overwritten(source: Reader, target: Reader) -> bool:
    """Whether what is at the target is a copy that no host has opened, and all that it tells is in the source too."""
    mark, here, there = target.one("moved_mark"), target.one("ledger_reached"), source.one("ledger_reached")
    assert here is not None
    assert there is not None
    return (mark is not None and not mark["went"] and here["ledger"] == there["ledger"]
            and (here["epoch"], here["entries"]) <= (there["epoch"], there["entries"]))


def _finished(source: MoveSource, target: MoveTarget, left: Row, came: Row | None, dry_run: bool) -> Moved:
    """The last step of a move that was cut off before it, or was done already."""
    refused = refusal(source.name, left)
    assert refused is not None
    if not left["went"]:
        raise refused
    copy = refusal(target.name, came)
    if copy is None or not has_gone(copy, left):
        raise refused
    if not dry_run:
        target.arrive(left["mover"])
    return Moved(source.name, target.name, "finished")


def _copy(
    source: LedgerPlace, target: MoveTarget, mover: str, now: int, progress: Progress,
) -> dict[str, tuple[TableShape, MovedTable]]:
    """Fill the target; gives what was copied of each table of the source, and what it had then."""
    crash_points.reach("before:move_copies")
    target.prepare(mover, source.name, now, source.read)
    copied, own = {}, target.shapes()
    for table, shape in _tables(source).items():
        columns = tuple(column for column in shape.columns if column in own[table].columns)
        both, counting = TableShape(columns, shape.key), _Counting(table, progress, "copies")
        target.load(table, both, counting.through(source.rows(table, both)))
        copied[table] = both, counting.told()
    target.commit_copy()
    crash_points.reach("after:move_copies")
    return copied


#: What only one store has, and what only belongs to a ledger that is in use: it is not moved.
NOT_MOVED = frozenset(("moved", "ledger", "heartbeat", "owner", "nudge", "late_mark", "inbox", "delivery"))


def _tables(place: LedgerPlace) -> dict[str, TableShape]:
    return {table: shape for table, shape in sorted(place.shapes().items()) if table not in NOT_MOVED}


class _Counting:
    """Counts and hashes rows that pass, in a form that is the same whichever store they come from."""

    def __init__(self, table: str, progress: Progress, does: str) -> None:
        self._table, self._progress, self._does = table, progress, does
        self._rows, self._hash = 0, hashlib.sha256()

    def through(self, rows: Iterable[Values]) -> Iterator[Values]:
        """The same rows."""
        for row in rows:
            self._hash.update(_encoded(self._table, row))
            self._rows += 1
            if not self._rows % _PROGRESS_ROWS:
                self._progress(self._does, self._table, self._rows)
            yield row
        self._progress(self._does, self._table, self._rows)

    def told(self) -> MovedTable:
        """What passed."""
        return MovedTable(self._table, self._rows, self._hash.hexdigest())


def _encoded(table: str, row: Values) -> bytes:
    """A row as bytes: no two different rows have the same."""
    parts = []
    for value in row:
        if value is None:
            parts.append(b"-")
        elif type(value) is int:
            parts.append(b"i%d;" % value)
        elif type(value) is str:
            text = value.encode()
            parts.append(b"t%d:%b" % (len(text), text))
        elif type(value) is bytes:
            parts.append(b"b%d:%b" % (len(value), value))
        else:
            raise LedgerUnusable(
                f"The table {table} has a value of the type {type(value).__name__}, which Keep never writes. Nothing "
                "was moved. `keep db check` may say more.")
    return b"".join(parts) + b"\n"


def _counted(place: LedgerPlace, table: str, shape: TableShape, progress: Progress, does: str) -> MovedTable:
    counting = _Counting(table, progress, does)
    for _ in counting.through(place.rows(table, shape)):
        pass
    return counting.told()


def _check_same(
    source: MoveSource, target: MoveTarget, copied: Mapping[str, tuple[TableShape, MovedTable]], told: Told,
    progress: Progress,
) -> None:
    """Refuse a copy that is not the same, row by row and as people see it; the source stays the ledger."""
    for table, (shape, was) in copied.items():
        found = _counted(target, table, shape, progress, "compares")
        if found != was:
            raise _different(source, target, f"the table {table} has {was.rows:,} rows there and {found.rows:,} here, "
                             "or the same number with other content")
    _check_sound(target)
    for there, here in zip_longest(told(source.read), told(target.read)):
        if there != here:
            raise _different(source, target, f"{(there or here)[0]} is shown otherwise")


def _check_sound(place: LedgerPlace) -> None:
    for found in check(place.read):
        if not found.sound:
            raise LedgerUnusable(
                f"{place.name} is not sound, so nothing was moved. {found.name}: {found.said} `keep db check` lists "
                "everything.")


def _different(source: MoveSource, target: MoveTarget, what: str) -> LedgerUnusable:
    return LedgerUnusable(
        f"The copy in {target.name} is not what is in {source.name}: {what}. So {source.name} stays the ledger, and "
        "no host opens the copy. Please report this."
    )
