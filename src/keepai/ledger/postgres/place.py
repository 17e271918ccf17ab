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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psycopg

from ...model.clock import Clock, Ids, SystemClock
from ...model.errors import LedgerStopped, LedgerUnusable
from .. import account
from ..base import Share
from . import lease
from .connection import PostgresStatements, PostgresTransaction, connect, pin_plans, shown, unusable
from .lease import MachineLock, machine
from .mark_file import MarkFile
from .question_lanes import QuestionLanes
from .tables import Connection, known, migrate, number, refuse_newer
from .verb_writer import VerbWriter

T = TypeVar("T")

class Place:
    """One host. Its verbs and its questions have a connection each, in the thread of the loop; a thread of its own says
    that the host lives."""

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
                    self.acknowledge(head)
                reads = PostgresStatements(self._connect())
                reads.connection.execute(
                    "set default_transaction_read_only = on; set default_transaction_isolation = 'repeatable read'")
            except BaseException:
                self.lock.release(told=False)  # perhaps the server has it: that it is free says that this host is dead
                raise
        except psycopg.Error as error:
            self._connection.close()
            raise unusable(error, url) from None
        except BaseException:
            self._connection.close()
            raise
        self.own: frozenset[str] = frozenset()  # the workflows that it runs
        self._tx = PostgresTransaction(self._connection, ids, self.host, self.epoch)
        self.verbs, self.questions = VerbWriter(self._tx, clock, self._name, self), QuestionLanes(reads, self)
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

    def acknowledge(self, head: account.Head) -> None:
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

    def share(self, spare: list[str]) -> Share:
        """Take this host's part of the workflows."""
        locks: list[Path] = []
        done = self.verbs.transact(lease.share, (self._works, spare, locks), {})
        self.own = (self.own | done.claimed) - done.given
        for workflow_id in done.claimed:
            self._tx.kept.pop(workflow_id, None)  # another host has counted there since
        for lock in locks:
            with suppress(OSError):
                lock.unlink()
        return done

    def kept(self, workflow_id: str) -> int | None:
        """How many bytes were kept for a workflow when this host last counted in it."""
        return self._tx.kept.get(workflow_id)

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
        for connection in (self._connection, self.questions.connection, self._beats):
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

    async def finished(self) -> None:
        """Wait until everything that was wanted and asked is done."""
        await self.verbs.worker.finished()
        await self.questions.worker.finished()

    async def close(self) -> None:
        """Let go of the connections; nothing is said."""
        await self.finished()
        self._closing = True
        self.verbs.worker.close()
        self.questions.worker.close()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        os.write(self._wake, b"\0")
        self._attending.join()
        for fd in (self._woken, self._wake):
            os.close(fd)
        self.questions.connection.close()
        self._connection.close()
