"""Functions that ask a server side by side: what all of them ask until each waits for an answer is one round trip.

Each has a lane, which is a light thread (greenlet). It stands still while what it asked is on the way, and the others
go on; all take turns in one thread, only where they ask. So a verb is written as if it were alone, and a group of verbs
takes as many round trips as the longest of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from greenlet import GreenletExit, getcurrent, greenlet

from ...model.errors import Conflict
from ..base import Row
from .connection import PostgresStatements, PostgresTransaction
from .typed_statements import that_hits
from .wire import ServerReply, Wire

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


class SharedMoment:
    """What several questions have in common: all that they ask is one transaction, without a statement that begins or
    ends it. The connection reads only, and each of its transactions one moment."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._is_block = wire, False

    def begin_block(self) -> None:
        """A cursor of the server needs a transaction that was begun."""
        if not self._is_block:
            self._is_block = True
            self._wire.tell(b"begin")

    def end(self) -> None:
        """That it is over is sent with what is asked next."""
        if self._is_block:
            self._wire.tell(b"commit")
        self._wire.leave()

    def give_up(self) -> None:
        """Let go of it after an error."""
        self._wire.drop()
        if self._is_block:
            self._wire.tell(b"rollback")
            self._wire.hear()


class LaneReader(PostgresStatements):
    """What a question sees that is asked beside others."""

    def __init__(self, of: PostgresStatements) -> None:
        super().__init__(of.connection, of.wire)
        self.of: SharedMoment | None = None

    @contextmanager
    def moment(self) -> Iterator[None]:
        """They have one in common."""
        yield

    def _begin_moment(self) -> None:
        """Whoever asks for the first time waits for its turn."""
        if self.of is None:
            _wait()

    def _begin_block(self) -> None:
        self._begin_moment()
        assert self.of is not None, "its turn has come"
        self.of.begin_block()

    def _hear(self) -> None:
        _wait()


class LaneQuestion:
    """A question that somebody asked. It goes on until it asks the server for the first time; many a one never does."""

    def __init__(
        self, function: Callable[[PostgresStatements], Any], of: PostgresStatements, asker: asyncio.Future[Any],
    ) -> None:
        self.function, self.asker, self.reader = function, asker, LaneReader(of)
        self.lane = greenlet(self._run)
        self.lane.switch()

    def _run(self) -> None:
        try:
            answer = self.function(self.reader)
        except psycopg.Error:
            raise
        except Exception as error:  # that it has itself found
            if not self.asker.done():
                self.asker.set_exception(error)
        else:
            if not self.asker.done():
                self.asker.set_result(answer)

    @property
    def is_over(self) -> bool:
        """Whether it needs the server no more."""
        return bool(self.lane.dead)

    def give_up(self) -> None:
        """Let go of what it does."""
        if not self.lane.dead:
            self.lane.throw(GreenletExit)


def ask_side_by_side(wire: Wire, questions: Sequence[LaneQuestion]) -> None:
    """Have questions that wait for their turn answered, of one moment."""
    moment = SharedMoment(wire)
    for each in questions:
        each.lane.parent, each.reader.of = getcurrent(), moment
    asking = questions
    try:
        while asking:
            for each in asking:
                each.lane.switch()
            asking = [each for each in asking if not each.is_over]
            if asking:
                wire.pause()
    except BaseException:
        for each in questions:
            each.give_up()
        moment.give_up()
        raise
    moment.end()


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
