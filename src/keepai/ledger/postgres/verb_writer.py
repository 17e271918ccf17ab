"""Verbs that wait at the same time, in one transaction: what all of them ask until each waits for an answer is one
round trip.

Each has a light thread (greenlet). It stands still while what it asked is on the way, and the others go on; they take
turns only where they ask. So a verb is written as if it were alone, and a group of verbs takes as many round trips as
the longest of them. What the transaction begins and ends with goes out with what they ask and change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import psycopg
from greenlet import GreenletExit, greenlet

from ...model import crash_points
from ...model.clock import Clock
from ...model.errors import Conflict, LedgerStopped, LedgerUnusable
from ...model.states import IllegalMove
from .. import account
from ..base import Row
from .connection import PostgresTransaction
from .connection_worker import ConnectionWorker, HostPlace, first, wait_for_others
from .typed_statements import that_hits
from .wire import ServerReply

T = TypeVar("T")
_Verb: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_Run: TypeAlias = Callable[[PostgresTransaction, Sequence[_Verb]], list[Any]]


@dataclass(frozen=True)
class WantedVerb:
    """A verb that somebody waits for."""

    verb: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: asyncio.Future[Any]


def _tell(asker: asyncio.Future[Any], result: object) -> None:
    if not asker.done():
        asker.set_result(result)


def _tell_error(asker: asyncio.Future[Any], error: BaseException) -> None:
    if not asker.done():
        asker.set_exception(error)


class VerbWriter:
    """Runs the verbs of one host, on one connection."""

    def __init__(self, tx: PostgresTransaction, clock: Clock, name: str, place: HostPlace) -> None:
        self.tx, self._clock, self._name, self._place = tx, clock, name, place
        self._lane = LaneTransaction(tx)  # of what the transaction itself does
        self._wanted = deque[WantedVerb]()
        self.worker = ConnectionWorker(tx.wire, place.lose)

    def transact(self, verb: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run a verb in a transaction of its own; `LedgerStopped` if the place is lost, or by it."""
        [given] = self._transact([(verb, args, kwargs)], _straight)
        return given  # type: ignore[no-any-return]

    async def write(self, verb: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """The same, in one transaction with what else is wanted by then."""
        self._place.check()
        result = asyncio.get_running_loop().create_future()
        self._wanted.append(WantedVerb(verb, args, kwargs, result))
        self.worker.do(self._give)
        given: T = await result
        return given

    async def in_order(self, done: Callable[[], T]) -> T:
        """Have something done after the verbs that were wanted before."""
        self._place.check()
        result = asyncio.get_running_loop().create_future()

        def do() -> None:
            try:
                _tell(result, done())
            except BaseException as error:
                _tell_error(result, error)
        self.worker.do(do)
        given: T = await result
        return given

    def _give(self) -> None:
        """Run the verbs that are wanted by now in one transaction, side by side. If one of them is refused, each is run
        again in a transaction of its own: that tells whose refusal it was, and what it was."""
        wanted = [each for each in first(self._wanted) if not each.result.done()]
        if not wanted:
            return
        try:
            results = self._transact([(each.verb, each.args, each.kwargs) for each in wanted], _side_by_side)
            for each, given in zip(wanted, results, strict=True):
                _tell(each.result, given)
        except BaseException as error:
            if not isinstance(error, Exception):
                for each in wanted:
                    _tell_error(each.result, error)
                return
            for each in wanted:  # a place that was lost refuses them all
                self._give_alone(each)

    def _give_alone(self, wanted: WantedVerb) -> None:
        try:
            _tell(wanted.result, self.transact(wanted.verb, wanted.args, wanted.kwargs))
        except BaseException as error:
            _tell_error(wanted.result, error)

    def _transact(self, wanted: Sequence[_Verb], run: _Run) -> list[Any]:
        """Run verbs in one transaction. What it begins and ends with goes out with what the verbs ask and change."""
        self._place.check()
        while True:
            try:
                results, entry = self._committed(wanted, run)
                break
            except psycopg.errors.LockNotAvailable:  # a host stands still in its transaction: the server will end that
                self._roll_back()
                self._place.check()
            except (psycopg.IntegrityError, psycopg.DataError) as error:  # of what a verb wrote, not of the connection
                self._roll_back()
                raise _translated(error) from None
            except (psycopg.Error, LedgerStopped) as error:  # it may have been committed all the same
                self._roll_back()
                raise self._place.lose(error) from None
            except BaseException:
                self._roll_back()
                raise
        try:
            self._confirm(entry)
        except (LedgerStopped, LedgerUnusable) as error:
            raise self._place.lose(error) from None
        _reach("after", wanted)
        return results

    def _committed(self, wanted: Sequence[_Verb], run: _Run) -> tuple[list[Any], ServerReply | None]:
        """What the verbs gave, and the entry of the account that tells of it."""
        wire = self.tx.wire
        self._open_transaction()
        results = run(self.tx, wanted)
        self._nudge()
        entry = self._told()
        if crash_points.heard():
            wire.hear()
            _reach("before", wanted)
        wire.warnings.clear()
        wire.tell(b"commit")
        wire.hear()
        return results, entry

    def _confirm(self, entry: ServerReply | None) -> None:
        """A commit is acknowledged, unless the server warned that it may be lost."""
        if any("synchronous replication" in each for each in self.tx.wire.warnings):
            raise LedgerStopped(f"{self._name} did not wait for its standby: what it committed may be lost.")
        if entry is not None:
            [made] = entry.rows()
            self._place.acknowledge(account.Head(made["seq"], made["chain"]))

    def _open_transaction(self) -> None:
        """Begin a transaction: nobody else writes until it ends. If this place is lost, it fails."""
        self.tx.wire.tell(b"begin isolation level read committed read write")
        self._lane.run("ledger_hold")
        self._lane.expect_or(LedgerStopped(
            f"{self._name} has not heard this host for too long, or a person said that it is dead: others run its "
            "workflows."), "host_stands", epoch=self.tx.epoch)
        self.tx.now = self._lane.now = self._clock.now_ms()
        self.tx.draft.moves.clear()

    def _told(self) -> ServerReply | None:
        """Have the account tell what the transaction did, if it did something."""
        draft = self.tx.draft
        if not draft.moves:
            return None
        return self._lane.give("account_append", at=self.tx.now, told=account.entry_of(self.tx.host, draft),
                               subject_ids=account.subjects_of(draft))

    def _nudge(self) -> None:
        """Let other hosts know of what was changed in workflows that are not this one's."""
        others = {workflow_id for workflow_id, _, _ in self.tx.draft.moves if workflow_id} - self._place.own
        if others:
            self._lane.many("nudge_insert", [{"workflow_id": each} for each in sorted(others)])
            self._lane.run("nudge_others")

    def _roll_back(self) -> None:
        try:
            self.tx.wire.drop()
            self.tx.wire.tell(b"rollback")
            self.tx.wire.hear()
        except psycopg.Error as error:
            self._place.lose(error)


class LaneTransaction(PostgresTransaction):
    """What a verb sees that runs beside others. What it changes without asking goes out with what is asked next."""

    def __init__(self, of: PostgresTransaction) -> None:
        super().__init__(of.connection, of.ids, of.host, of.epoch, of.wire)
        self.now, self.kept, self.parked = of.now, of.kept, of.parked

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
        wait_for_others()


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


def _straight(tx: PostgresTransaction, wanted: Sequence[_Verb]) -> list[Any]:
    """Run one verb after the other, and each statement when it is asked for."""
    return [verb(tx, *args, **kwargs) for verb, args, kwargs in wanted]


def _side_by_side(tx: PostgresTransaction, wanted: Sequence[_Verb]) -> list[Any]:
    """Run the verbs of different workflows side by side; any other runs when those before it have ended."""
    results: list[Any] = []
    for group in _groups(wanted):
        seen = [LaneTransaction(tx) for _ in group]
        results += side_by_side([
            partial(verb, own, *args, **kwargs) for (verb, args, kwargs), own in zip(group, seen, strict=True)],
            tx.wire.hear)
        for own in seen:
            tx.draft.moves += own.draft.moves
    return results


def _groups(wanted: Sequence[_Verb]) -> Iterator[list[_Verb]]:
    group: list[_Verb] = []
    workflows: set[str | None] = set()
    for each in wanted:
        workflow_id = _workflow_of(each)
        if group and (None in (workflow_id, *workflows) or workflow_id in workflows):
            yield group
            group, workflows = [], set()
        group.append(each)
        workflows.add(workflow_id)
    yield group


def _workflow_of(wanted: _Verb) -> str | None:
    """The only workflow that a verb reads or changes something of, if its first argument says so."""
    _, args, _ = wanted
    workflow_id: str | None = getattr(args[0], "workflow_id", None) if args else None
    return workflow_id


def _reach(side: str, wanted: Sequence[_Verb]) -> None:
    if crash_points.heard():
        for verb, _, _ in wanted:
            crash_points.reach(f"{side}:{verb.__name__}")


def _translated(error: psycopg.Error) -> Exception:
    said = str(error).partition("\n")[0]
    if isinstance(error, psycopg.errors.CheckViolation) and ("illegal" in said or "never" in said):
        return IllegalMove(said)
    return Conflict(f"Nothing was changed: the ledger refused it ({said}).")
