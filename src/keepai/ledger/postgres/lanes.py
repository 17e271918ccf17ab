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

from ...model.errors import Conflict
from ..base import Row
from .connection import PostgresStatements, PostgresTransaction
from .typed_statements import that_hits
from .wire import ServerReply

T = TypeVar("T")


def side_by_side(functions: Sequence[Callable[[], T]], hear: Callable[[], None]) -> list[T]:
    """What they give; `hear` waits for the server's answers. The first error of one, or of what it asked, ends all of
    them."""
    lanes = [greenlet(each) for each in functions]
    given: dict[greenlet, T] = {}
    try:
        asking = lanes
        while asking:
            for lane in asking:
                given[lane] = lane.switch()
            asking = [lane for lane in asking if not lane.dead]
            if asking:
                hear()
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

    def __init__(self, of: PostgresStatements, begin_block: Callable[[], None]) -> None:
        super().__init__(of.connection, of.wire)
        self._begin_block = begin_block  # type: ignore[method-assign]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """They have one in common."""
        yield

    def _hear(self) -> None:
        _wait()


def ask_side_by_side(reads: PostgresStatements, questions: Sequence[Callable[[PostgresStatements], None]]) -> None:
    """Ask questions, of one moment: all that they ask is one transaction, without a statement that begins or ends it.
    That it is over is sent, and not waited for. The connection reads only, and each transaction one moment."""
    wire, begun = reads.wire, False

    def begin_block() -> None:
        nonlocal begun
        if not begun:
            begun = True
            wire.tell(b"begin")

    try:
        side_by_side([partial(each, LaneReader(reads, begin_block)) for each in questions], wire.pause)
    except BaseException:
        wire.drop()
        if begun:
            wire.tell(b"rollback")
            wire.hear()
        raise
    if begun:
        wire.tell(b"commit")
    wire.leave()


class LaneTransaction(PostgresTransaction):
    """What a verb sees that runs beside others. What it changes without asking goes out with what is asked next."""

    def __init__(self, of: PostgresTransaction) -> None:
        super().__init__(of.connection, of.ids, of.host, of.epoch, of.wire)
        self.now, self.kept = of.now, of.kept

    def ask_early(self, query: str, **params: object) -> Callable[[], list[Row]]:
        """Ask for rows with what is asked next."""
        reply = self._give(query, params)
        return lambda: self._heard(reply).rows()

    def hit_early(self, query: str, **params: object) -> Callable[[], int]:
        """Execute a change with what is asked next."""
        reply = self._give(query, params)
        return lambda: self._heard(reply).hits

    def _heard(self, reply: ServerReply) -> ServerReply:
        if not reply.is_heard:
            self._hear()
        return reply

    def run(self, query: str, **params: object) -> None:
        """Execute a change, before anything else is read."""
        self._give(query, params)

    def expect(self, query: str, why: str, **params: object) -> None:
        """Execute a guarded change that must hit a row; if it does not, that ends the group."""
        self.expect_or(Conflict(f"Nothing was changed: {why}."), query, **params)

    def expect_or(self, otherwise: Exception, query: str, **params: object) -> None:
        """Execute what must hit a row; if it does not, that ends the group with this error."""
        text, picked = that_hits(query)
        self.wire.give(f"{query} that hits", text, picked(params), otherwise)

    def give(self, query: str, **params: object) -> ServerReply:
        """Execute a statement with what is asked next."""
        return self._give(query, params)

    def many(self, query: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a change once for each of these, before anything else is read."""
        self._give_many(query, rows)

    def _hear(self) -> None:
        _wait()
