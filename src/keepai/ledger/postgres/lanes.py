"""Functions that ask a server side by side: what all of them ask until each waits for an answer is one round trip.

Each has a lane, which is a light thread (greenlet). It stands still while what it asked is on the way, and the others
go on; all take turns in one thread, only where they ask. So a verb is written as if it were alone, and a group of verbs
takes as many round trips as the longest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from .connection import PostgresStatements, PostgresTransaction
from .wire import Wire

T = TypeVar("T")


def side_by_side(wire: Wire, functions: Sequence[Callable[[], T]]) -> list[T]:
    """What they give. The first error of one, or of what it asked, ends all of them."""
    lanes = [greenlet(each) for each in functions]
    given: dict[greenlet, T] = {}
    try:
        asking = lanes
        while asking:
            for lane in asking:
                given[lane] = lane.switch()
            asking = [lane for lane in asking if not lane.dead]
            if asking:
                wire.hear()
    finally:
        for lane in lanes:
            if not lane.dead:
                lane.throw(GreenletExit)
    return [given[lane] for lane in lanes]


def _wait() -> None:
    """Let the other lanes go on until all that was given is answered."""
    hub = getcurrent().parent
    assert hub is not None, "only what has a lane can wait in it"
    hub.switch()


class LaneReader(PostgresStatements):
    """What a question sees that is asked beside others."""

    def __init__(self, of: PostgresStatements, begin: Callable[[], None]) -> None:
        super().__init__(of.connection, of.wire)
        self._begin_moment = begin  # type: ignore[method-assign]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """They have one in common."""
        yield

    def _hear(self) -> None:
        _wait()


def ask_side_by_side(
    reads: PostgresStatements, questions: Sequence[Callable[[PostgresStatements], None]], *, of_one_moment: bool,
) -> None:
    """Ask questions, of one moment if that is wanted: it begins with what is read first. That it is over is sent, and
    not waited for."""
    wire, began = reads.wire, False

    def begin() -> None:
        nonlocal began
        if of_one_moment and not began:
            began = True
            wire.tell(b"begin isolation level repeatable read read only")

    try:
        side_by_side(wire, [partial(each, LaneReader(reads, begin)) for each in questions])
    except BaseException:
        wire.drop()
        wire.tell(b"rollback")
        wire.hear()
        raise
    if began:
        wire.tell(b"commit")
        wire.leave()


class LaneTransaction(PostgresTransaction):
    """What a verb sees that runs beside others. What it changes without asking goes out with what is asked next."""

    def __init__(self, of: PostgresTransaction) -> None:
        super().__init__(of.connection, of.ids, of.host, of.epoch, of.wire)
        self.now, self.entry, self.kept, self.parked = of.now, of.entry, of.kept, of.parked

    def run(self, query: str, **params: object) -> None:
        """Execute a change, before anything else is read."""
        self._give(query, params)

    def expect(self, query: str, why: str, **params: object) -> None:
        """Execute a guarded change that must hit a row; if it does not, that ends the group."""
        self._give(query, params, must_hit=why)

    def many(self, query: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a change once for each of these, before anything else is read."""
        self._give_many(query, rows)

    def _hear(self) -> None:
        _wait()
