"""QuestionLanes that ask a server side by side: what all of them ask until each waits for an answer is one round trip.

Each has a light thread (greenlet). It stands still while what it asked is on the way, and the others go on; they take
turns only where they ask. All that they ask is of one moment.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from greenlet import GreenletExit, getcurrent, greenlet

from ...model.errors import LedgerUnusable
from .connection import PostgresStatements
from .connection_worker import ConnectionWorker, HostPlace, first, wait_for_others
from .wire import Wire

T = TypeVar("T")

_TIMED_OUT = psycopg.errors.IdleInTransactionSessionTimeout


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
            wait_for_others()

    def _begin_block(self) -> None:
        self._begin_moment()
        assert self.of is not None, "its turn has come"
        self.of.begin_block()

    def _hear(self) -> None:
        wait_for_others()


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
            self.lane.parent = getcurrent()  # where it ends is where this goes on, and not who asked
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


class QuestionLanes:
    """Has the questions of one host answered, on one connection that reads only."""

    def __init__(self, reads: PostgresStatements, place: HostPlace) -> None:
        self._reads, self._place, self.connection = reads, place, reads.connection
        self._asked = deque[LaneQuestion]()
        self.worker = ConnectionWorker(reads.wire, place.lose)

    async def ask(self, question: Callable[[PostgresStatements], T]) -> T:
        """The answer to a question: everything that it reads is of one moment."""
        self._place.check()
        asked = LaneQuestion(question, self._reads, asyncio.get_running_loop().create_future())
        if not asked.is_over:
            self._asked.append(asked)
            self.worker.do(self._answer)
        answer: T = await asked.asker
        return answer

    def _answer(self) -> None:
        """Answer the questions that are asked by now, side by side. If the server refuses a statement of one, those
        that have no answer yet are asked again, each alone: that tells whose it was."""
        asked = first(self._asked)
        try:
            self._ask(asked)
        except Exception:
            for each in asked:
                each.give_up()
                if not each.asker.done():
                    self._ask_alone(each)

    def _ask_alone(self, asked: LaneQuestion) -> None:
        try:
            again = LaneQuestion(asked.function, self._reads, asked.asker)
            if not again.is_over:
                self._ask([again])
        except Exception as error:
            if not asked.asker.done():
                asked.asker.set_exception(error)

    def _ask(self, asked: Sequence[LaneQuestion]) -> None:
        if not asked:
            return
        self._place.check()
        try:
            ask_side_by_side(self._reads.wire, asked)
        except (psycopg.OperationalError, psycopg.InterfaceError, _TIMED_OUT, LedgerUnusable) as error:
            raise self._place.lose(error) from None
