"""A host's place on a ledger in PostgreSQL, from when it is taken until it is lost or given up, and its connections.

A place is lost with any of its connections, after a commit whose outcome is unknown, and when it was not heard for too
long. It never comes back: what the server has of the last change is read from another one.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from ...model import crash_points
from ...model.clock import Clock, Ids, SystemClock
from ...model.errors import Conflict, LedgerStopped, LedgerUnusable
from ...model.states import IllegalMove
from .. import account
from ..base import Share
from . import lease
from .connection import PostgresStatements, PostgresTransaction, connect, pin_plans, shown, unusable
from .lanes import LaneTransaction, ask_side_by_side, side_by_side
from .lease import MachineLock, machine
from .mark_file import MarkFile
from .tables import Connection, known, migrate, number, refuse_newer

T = TypeVar("T")


_TIMED_OUT = psycopg.errors.IdleInTransactionSessionTimeout


@dataclass(frozen=True)
class WantedVerb:
    """A verb that somebody waits for."""

    verb: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Future[Any] = field(default_factory=Future)

    @property
    def workflow_id(self) -> str | None:
        """The only workflow that it reads or changes something of, if its first argument says so."""
        workflow_id: str | None = getattr(self.args[0], "workflow_id", None) if self.args else None
        return workflow_id


@dataclass(frozen=True)
class AskedQuestion:
    """A question whose answer somebody waits for; what it reads is of one moment, if it needs that."""

    question: Callable[[PostgresStatements], Any]
    of_one_moment: bool
    result: Future[Any] = field(default_factory=Future)

    def answer(self, read: PostgresStatements) -> None:
        """Tell the answer, or the error that it has itself found."""
        try:
            self.result.set_result(self.question(read))
        except psycopg.Error:
            raise
        except Exception as error:
            self.result.set_exception(error)


class Place:
    """One host. Its verbs and its questions are given by one thread each; a third says that it lives."""

    def __init__(
        self, url: str, clock: Clock, ids: Ids, mark: MarkFile, *, accept_older: bool, works: bool,
        stir: Callable[[], None],
    ) -> None:
        self._url, self._name, self._clock, self._stir, self._works = url, shown(url), clock, stir, works
        self._steady = SystemClock()
        self._ids, self._mark = ids, mark
        self.lost: str | None = None  # the first reason is the one that counts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_moved, self._closing = 0, False
        self._reads: PostgresStatements | None = None
        self._beats: Connection | None = None  # of the thread that says that it lives
        self._connection = connect(url)
        try:
            pin_plans(self._connection)
            statements = PostgresStatements(self._connection)
            if not accept_older:  # before anything is made there
                mark.check(None if number(self._connection) is None else statements)
            migrate(self._connection, self._name)
            newest = statements.one("id_newest")
            if newest and newest["id"]:
                ids.go_on_from(newest["id"])
            self.host = ids.new("hst")
            self.lock = MachineLock(self.host)
            try:
                with self._connection.transaction():
                    head = self._begin(statements, accept_older)
                if not self.opening.accepted:  # that a person accepted it is on record first: that commit is told
                    self._acknowledge(head)
            except BaseException:
                self.lock.release(told=False)  # perhaps the server has it: that it is free says that this host is dead
                raise
        except psycopg.Error as error:
            self._connection.close()
            raise unusable(error, url) from None
        except BaseException:
            self._connection.close()
            raise
        self._tx = PostgresTransaction(self._connection, ids, self.host, self.epoch)
        self._lane = LaneTransaction(self._tx)  # of what the transaction itself does
        self._own: set[str] = set()  # the workflows that it runs, as the writing thread knows
        self._woken, self._wake = os.pipe()
        self._attending = threading.Thread(target=self._attend, name="keep-heartbeat", daemon=True)
        self._attending.start()

    def _begin(self, statements: PostgresStatements, accept_older: bool) -> account.Head:
        """Take the place; gives the newest entry of the account."""
        held = statements.one("ledger_hold")
        assert held is not None
        refuse_newer(held["schema_needed"], self._name)  # a newer host may have come in since `migrate` looked
        now = self._clock.now_ms()
        self.opening = self._mark.begin(statements, now, accept_older=accept_older)
        row = statements.one("host_insert", id=self.host, machine=machine(), pid=os.getpid(), now=now)
        assert row is not None
        self.epoch = int(row["epoch"])
        self._heard = self._steady.steady_ms()
        statements.one("heartbeat_begin", epoch=self.epoch, boot=self.lock.boot, lock=str(self.lock.path),
                       works=int(self._works), knows=known())
        reached = statements.one("ledger_reached")
        assert reached is not None
        self._ledger = reached["ledger"]
        return account.head(statements)

    def _acknowledge(self, head: account.Head) -> None:
        """What the server has now must still be there on every new connection, and for every later host."""
        self._mark.tell(self._ledger, self.host, self.epoch, head, self._clock.now_ms())

    def _connect(self) -> Connection:
        """A further connection, to what this host knows."""
        connection = connect(self._url)
        try:
            pin_plans(connection)
            self._mark.check(PostgresStatements(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    # -- writing -----------------------------------------------------------------------------------

    def transact(self, verb: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run a verb in a transaction of its own; `LedgerStopped` if the place is lost, or by it."""
        [given] = self._transact([WantedVerb(verb, args, kwargs)], _straight)
        return given  # type: ignore[no-any-return]

    def give(self, wanted: Sequence[WantedVerb]) -> None:
        """Run verbs in one transaction, side by side. If one of them is refused, each is run again in a transaction of
        its own: that tells whose refusal it was, and what it was."""
        wanted = [each for each in wanted if each.result.set_running_or_notify_cancel()]
        if not wanted:
            return
        try:
            for each, result in zip(wanted, self._transact(wanted, _side_by_side), strict=True):
                each.result.set_result(result)
        except BaseException as error:
            if not isinstance(error, Exception):
                for each in wanted:
                    each.result.set_exception(error)
                return
            for each in wanted:  # a place that was lost refuses them all
                self._give_alone(each)

    def _give_alone(self, wanted: WantedVerb) -> None:
        try:
            wanted.result.set_result(self._transact([wanted], _straight)[0])
        except BaseException as error:
            wanted.result.set_exception(error)

    def _transact(
        self, wanted: Sequence[WantedVerb], run: Callable[[PostgresTransaction, Sequence[WantedVerb]], list[Any]],
    ) -> list[Any]:
        self.check()
        try:
            before = self._open_transaction()
            results = run(self._tx, wanted)
            self._nudge()
            self._lane.now = self._tx.now
            head = account.append(self._lane, self._tx.draft, before)
            self._tx.wire.hear()
            _reach("before", wanted)
        except (psycopg.IntegrityError, psycopg.DataError) as error:  # of what a verb wrote, not of the connection
            self._roll_back()
            raise _translated(error) from None
        except (psycopg.Error, LedgerStopped) as error:
            self._roll_back()
            raise self.lose(error) from None
        except BaseException:
            self._roll_back()
            raise
        try:
            self._tx.wire.tell(b"commit")
            self._tx.wire.hear()
            if head is not before:
                self._acknowledge(head)
        except (psycopg.Error, LedgerUnusable) as error:  # it may have been committed all the same
            raise self.lose(error) from None
        _reach("after", wanted)
        return results

    def _open_transaction(self) -> account.Head:
        """Begin a transaction, unless this place is lost: nobody else writes until it ends.

        If another host stands still in the midst of one, the server ends that one's in the end."""
        while True:
            self._tx.wire.tell(b"begin isolation level read committed read write")
            try:
                self._lane.run("ledger_hold")
                found = self._tx.row("host_stands", "there is no ledger", epoch=self.epoch)
                break
            except psycopg.errors.LockNotAvailable:
                self._tx.wire.tell(b"rollback")
                self._tx.wire.hear()
                self.check()
        if found["stands"] is None:
            raise LedgerStopped(
                f"{self._name} has not heard this host for too long, or a person said that it is dead: others run its "
                "workflows.")
        head = account.Head(found["seq"] or 0, found["chain"] or b"")
        self._tx.now = self._clock.now_ms()
        self._tx.draft.moves.clear()
        self._tx.entry = head.seq + 1
        return head

    def _nudge(self) -> None:
        """Let other hosts know of what was changed in workflows that are not this one's."""
        others = {workflow_id for workflow_id, _, _ in self._tx.draft.moves if workflow_id} - self._own
        if others:
            self._lane.many("nudge_insert", [{"workflow_id": each} for each in sorted(others)])
            self._lane.run("nudge_others")

    def _roll_back(self) -> None:
        try:
            self._tx.wire.drop()
            self._tx.wire.tell(b"rollback")
            self._tx.wire.hear()
        except psycopg.Error as error:
            self.lose(error)

    def share(self, spare: list[str]) -> Share:
        """Take this host's part of the workflows."""
        locks: list[Path] = []
        done = self.transact(lease.share, (self._works, spare, locks), {})
        self._own = (self._own | done.claimed) - done.given
        for workflow_id in done.claimed:
            self._tx.kept.pop(workflow_id, None)  # another host has counted there since
        for lock in locks:
            with suppress(OSError):
                lock.unlink()
        return done

    def kept(self, workflow_id: str) -> int | None:
        """How many bytes were kept for a workflow when this host last counted in it."""
        return self._tx.kept.get(workflow_id)

    # -- looking -----------------------------------------------------------------------------------

    def answer(self, asked: Sequence[AskedQuestion]) -> None:
        """Answer questions, side by side. If the server refuses a statement of one, those that have no answer yet are
        asked again, each alone: that tells whose it was."""
        asked = [each for each in asked if each.result.set_running_or_notify_cancel()]
        try:
            self._ask(asked)
        except Exception:
            for each in asked:
                if not each.result.done():
                    self._ask_alone(each)

    def _ask_alone(self, asked: AskedQuestion) -> None:
        try:
            self._ask([asked])
        except Exception as error:
            asked.result.set_exception(error)

    def _ask(self, asked: Sequence[AskedQuestion]) -> None:
        self.check()
        try:
            if self._reads is None:
                self._reads = PostgresStatements(self._connect())
                self._reads.connection.execute("set default_transaction_read_only = on")
            ask_side_by_side(
                self._reads, [each.answer for each in asked], of_one_moment=any(each.of_one_moment for each in asked))
        except (psycopg.OperationalError, psycopg.InterfaceError, _TIMED_OUT, LedgerUnusable) as error:
            raise self.lose(error) from None

    # -- whether it still has its place ------------------------------------------------------------

    def check(self) -> None:
        """Raise `LedgerStopped` if this place is lost, or soon may be."""
        unheard = self._steady.steady_ms() - self._heard
        if self.lost is None and unheard > lease.LEASE_MS - lease.MARGIN_MS:
            self.lose(LedgerStopped(
                f"{self._name} has not answered this host for {unheard // 1000} s, and lets others run its workflows."))
        if self.lost is not None:
            raise self._without_place()

    def lose(self, error: psycopg.Error | LedgerUnusable | LedgerStopped) -> LedgerStopped:
        """Write nothing any more; gives what to raise."""
        if self.lost is None:
            if isinstance(error, psycopg.Error):
                said = " ".join(str(error).split()) or type(error).__name__
                self.lost = f"The connection to {self._name} was lost: {said}."
            else:
                self.lost = error.message
            self._cut_off()
            self._stir()
        return self._without_place()

    def _cut_off(self) -> None:
        """End the connections under whoever waits for an answer: a server that stands still gives none."""
        reads = self._reads.connection if self._reads else None
        for connection in (self._connection, reads, self._beats):
            if connection is not None:
                with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)

    def _without_place(self) -> LedgerStopped:
        return LedgerStopped(f"{self.lost} This host writes nothing and sends nothing until it has another place.")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on it keeps its place only while this loop moves."""
        self._loop, self._loop_moved = loop, self._steady.steady_ms()
        loop.call_soon(self._note_that_it_moves, loop)

    def _note_that_it_moves(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop_moved = self._steady.steady_ms()
        if loop is self._loop and self.lost is None and not self._closing:
            loop.call_later(1.0, self._note_that_it_moves, loop)

    def _loop_hangs(self) -> bool:
        waited = self._steady.steady_ms() - self._loop_moved
        return self._loop is not None and not self._loop.is_closed() and waited > lease.LEASE_MS

    def _attend(self) -> None:
        """Say again and again that this host lives, and listen whether others have done something."""
        connection = self._beats
        while self.lost is None:
            try:
                if connection is None:
                    connection = self._beats = self._connect()
                    connection.execute("listen keep")
                    statements = PostgresTransaction(connection, self._ids, self.host, self.epoch)
                self._beat(statements)
                if statements.one("nudge_waits", epoch=self.epoch) is not None:
                    self._stir()
                ready, _, _ = select.select([connection.fileno(), self._woken], [], [], lease.BEAT_S)
                if self._woken in ready:
                    break
                if ready:
                    self._stir()
                    deque(connection.notifies(timeout=0), maxlen=0)
            except (psycopg.Error, LedgerUnusable):
                if connection is not None:
                    connection.close()
                connection = self._beats = None
                if select.select([self._woken], [], [], lease.BEAT_S / 3)[0]:
                    break
            with suppress(LedgerStopped):
                self.check()
        if connection is not None:
            connection.close()

    def _beat(self, statements: PostgresTransaction) -> None:
        asked = self._steady.steady_ms()
        if asked - self._heard < lease.BEAT_S * 1000 or self._loop_hangs():
            return
        if not statements.hits("heartbeat_beat", epoch=self.epoch, silent_ms=lease.LEASE_MS):
            self.lose(LedgerStopped(f"{self._name} has not heard this host for too long: others run its workflows."))
        self._heard = asked  # before it was asked: the database counts no less

    # -- ending ------------------------------------------------------------------------------------

    def end(self, *, calls_go_on: bool) -> bool:
        """Give up the place and every workflow. True if the ledger knows from now on that this host is dead."""
        if self.lost is not None:
            return False
        try:
            with self._connection.transaction():
                self._tx.run("owner_give_all", epoch=self.epoch)
                if calls_go_on:
                    self._tx.run("heartbeat_lose", epoch=self.epoch, now=self._clock.now_ms())
                else:
                    self._tx.run("heartbeat_end", epoch=self.epoch)
                self._tx.one("nudge_others")
        except psycopg.Error:
            return False
        return not calls_go_on

    def close_reads(self) -> None:
        """Let go of the connection that questions are asked on, in the thread that asks them."""
        if self._reads is not None:
            self._reads.connection.close()

    def close(self) -> None:
        """Let go of the other connections; nothing is said."""
        self._closing = True
        os.write(self._wake, b"\0")
        self._attending.join()
        for fd in (self._woken, self._wake):
            os.close(fd)
        self._connection.close()


def _straight(tx: PostgresTransaction, wanted: Sequence[WantedVerb]) -> list[Any]:
    """Run one verb after the other, and each statement when it is asked for."""
    return [each.verb(tx, *each.args, **each.kwargs) for each in wanted]


def _side_by_side(tx: PostgresTransaction, wanted: Sequence[WantedVerb]) -> list[Any]:
    """Run the verbs of different workflows side by side; any other runs when those before it have ended."""
    results: list[Any] = []
    for group in _groups(wanted):
        seen = [LaneTransaction(tx) for _ in group]
        results += side_by_side(tx.wire, [
            partial(each.verb, own, *each.args, **each.kwargs) for each, own in zip(group, seen, strict=True)])
        for own in seen:
            tx.draft.moves += own.draft.moves
    return results


def _groups(wanted: Sequence[WantedVerb]) -> Iterator[list[WantedVerb]]:
    group: list[WantedVerb] = []
    workflows: set[str | None] = set()
    for each in wanted:
        workflow_id = each.workflow_id
        if group and (None in (workflow_id, *workflows) or workflow_id in workflows):
            yield group
            group, workflows = [], set()
        group.append(each)
        workflows.add(workflow_id)
    yield group


def _reach(side: str, wanted: Sequence[WantedVerb]) -> None:
    if crash_points.heard():
        for each in wanted:
            crash_points.reach(f"{side}:{each.verb.__name__}")


def _translated(error: psycopg.Error) -> Exception:
    said = str(error).partition("\n")[0]
    if isinstance(error, psycopg.errors.CheckViolation) and ("illegal" in said or "never" in said):
        return IllegalMove(said)
    return Conflict(f"Nothing was changed: the ledger refused it ({said}).")
