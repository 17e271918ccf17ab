"""A ledger in PostgreSQL: opened and owned by one host from here to `close`.

Verbs run on one connection in a thread of its own, one transaction each; questions on others, each over one moment. The
loop waits for neither. Every transaction first locks the one row of `ledger` and looks whether this host still has it.

After any error of a connection, and after a commit that failed, what the server has is unknown: this host writes and
sends nothing more until it is started again.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg

from ...model import crash_points
from ...model.clock import Clock, Ids, SystemClock
from ...model.errors import Conflict, LedgerStopped, LedgerUnusable
from ...model.states import IllegalMove
from .. import account, moving
from ..base import Behind, Reader, Row
from .connection import PostgresStatements, PostgresTransaction, connect, one_moment, shown, unusable
from .lease import BEAT_S, SILENT_MS_MAX, MachineLock, machine, refuse_if_taken
from .tables import migrate

T = TypeVar("T")
P = ParamSpec("P")

#: A host that was not heard for so long may soon be taken for silent: it sends nothing more.
_UNHEARD_MS_MAX = SILENT_MS_MAX - 3_000


class PostgresLedger:
    """The host's hold on one database."""

    accepted = False
    behind: Behind | None = None

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._url, self._name = url, shown(url)
        self._clock, self._steady = clock or SystemClock(), SystemClock()
        self.ids = Ids(self._clock)
        self._stopped: LedgerStopped | None = None
        self._connection = connect(url)
        try:
            self._begin()
        except psycopg.Error as error:
            self._connection.close()
            raise unusable(error, url) from None
        except BaseException:
            self._connection.close()
            raise
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="keep-writer")
        # One thread asks all questions: what a question counts, such as the calls of a run, is not counted by two.
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="keep-look")
        self._reads: PostgresStatements | None = None  # that thread's, on a connection of its own
        self._closing = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="keep-heartbeat", daemon=True)
        self._beating.start()

    def _begin(self) -> None:
        """Take the ledger, if no other host has it."""
        migrate(self._connection, self._name)
        statements = PostgresStatements(self._connection)
        with self._connection.transaction():
            statements.one("ledger_hold")
            moved = moving.refusal(self._name, statements.one("moved_mark"))
            if moved is not None:
                raise moved
            refuse_if_taken(statements, self._name)
            newest, now = statements.one("id_newest"), self._clock.now_ms()
            if newest and newest["id"]:
                self.ids.go_on_from(newest["id"])
            self.host = self.ids.new("hst")
            self._lock = MachineLock(self.host)
            try:
                row = statements.one("host_insert", id=self.host, machine=machine(), pid=os.getpid(), now=now)
                assert row is not None
                self.epoch = int(row["epoch"])
                statements.one("heartbeat_end_all")
                self._heard = self._steady.steady_ms()
                statements.one(
                    "heartbeat_begin", epoch=self.epoch, boot=self._lock.boot, lock=str(self._lock.path))
            except BaseException:
                self._lock.release(told=True)
                raise
        self.lock_fd: int | None = self._lock.fd
        self._tx = PostgresTransaction(self._connection, self.ids, self.host, self.epoch)
        self._head = account.head(self._tx)

    # -- writing -----------------------------------------------------------------------------------

    async def write(self, verb: Callable[..., T], *args: Any, barrier: bool = False, **kwargs: Any) -> T:
        """Run `verb(tx, …)` in one transaction. Each is on disk when it has returned, with a barrier or without."""
        return await asyncio.wrap_future(self._writing.submit(self._transact, verb, args, kwargs))

    async def barrier(self) -> None:
        """Wait until everything committed so far is on disk."""
        await asyncio.wrap_future(self._writing.submit(self.check))

    def _transact(self, verb: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        if self._stopped:
            raise self._stopped
        name = verb.__name__
        try:
            self._open_transaction()
            result = verb(self._tx, *args, **kwargs)
            head = account.append(self._tx, self._tx.draft, self._head)
            _reach(f"before:{name}")
        except (psycopg.IntegrityError, psycopg.DataError) as error:  # of what the verb wrote, not of the connection
            self._roll_back()
            raise _translated(error) from None
        except (psycopg.Error, LedgerStopped) as error:
            self._stop(error)
            self._roll_back()
            raise self._told() from None
        except BaseException:
            self._roll_back()
            raise
        try:
            self._connection.execute("commit")
        except psycopg.Error as error:  # it may have been committed all the same
            self._stop(error)
            raise self._told() from None
        self._head = head
        _reach(f"after:{name}")
        return result

    def _open_transaction(self) -> None:
        """Begin a transaction, unless another host has the ledger or anybody has written to it since our last."""
        self._connection.execute("begin isolation level read committed read write")
        self._tx.one("ledger_hold")
        [(epoch, last, chain)] = self._tx.values("account_head")
        if epoch != self.epoch:
            raise self._taken_over(self._tx)
        if (last or 0, chain or b"") != (self._head.seq, self._head.chain):
            raise LedgerStopped(
                f"Something else has written to the account of {self._name}: it ends with entry {last or 0:,}, and "
                f"this host left it at {self._head.seq:,}. {_UNTIL_CHECKED}"
            )
        self._tx.now = self._clock.now_ms()
        self._tx.draft.moves.clear()
        self._tx.entry = self._head.seq + 1

    def _roll_back(self) -> None:
        try:
            self._connection.execute("rollback")
        except psycopg.Error as error:
            self._stop(error)

    # -- looking -----------------------------------------------------------------------------------

    async def look(self, question: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer to `question(read, …)`: everything that it reads is committed, and of one moment."""
        def asked(read: PostgresStatements) -> T:
            with one_moment(read.connection):
                return question(read, *args, **kwargs)

        return await self._read(asked)

    async def one(self, query: str, **params: object) -> Row | None:
        """The first row of one statement, if any."""
        return await self._read(lambda read: read.one(query, **params))

    async def all(self, query: str, **params: object) -> list[Row]:
        """Every row of one statement."""
        return await self._read(lambda read: read.all(query, **params))

    async def _read(self, asked: Callable[[PostgresStatements], T]) -> T:
        def answer() -> T:
            try:
                return asked(self._reader())
            except (psycopg.OperationalError, psycopg.InterfaceError, LedgerUnusable) as error:
                self._stop(error)
                raise self._told() from None

        return await asyncio.wrap_future(self._looking.submit(answer))

    def _reader(self) -> PostgresStatements:
        """What the questions are asked of: a connection that cannot write."""
        if self._reads is None:
            connection = connect(self._url)
            connection.execute("set default_transaction_read_only = on")
            self._reads = PostgresStatements(connection)
        return self._reads

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """For as long as a run is under way. Each verb has a commit of its own here."""
        yield

    async def kept_bytes(self, workflow_id: str) -> int:
        """How much was kept for a workflow when this host last counted in it, or is now."""
        kept = self._tx.kept.get(workflow_id)
        if kept is None:
            row = await self.one("workflow_by_id", workflow_id=workflow_id)
            kept = row["event_bytes"] + row["run_bytes"] + row["input_bytes"] if row else 0
        return int(kept)

    # -- whether this host still has it ----------------------------------------------------------------

    def check(self) -> None:
        """Stop, and raise `LedgerStopped`, if this host has lost the ledger, or was not heard there for too long."""
        unheard = self._steady.steady_ms() - self._heard
        if unheard > _UNHEARD_MS_MAX:
            self._stop(LedgerStopped(
                f"{self._name} has not heard this host for {unheard // 1000} s, and lets another have it. The host has "
                "stopped, and sends nothing any more. Look at the server and the network, then start again."
            ))
        if self._stopped:
            raise self._stopped

    def stopped(self) -> str | None:
        """Why nothing can be written any more, if so."""
        return self._stopped.message if self._stopped else None

    def _beat(self) -> None:
        """Say again and again that this host lives, on a connection of its own."""
        try:
            connection = connect(self._url)
        except LedgerUnusable as error:
            self._stop(error)
            return
        try:
            statements = PostgresTransaction(connection, self.ids, self.host, self.epoch)
            while not self._closing.wait(BEAT_S) and not self._stopped:
                asked = self._steady.steady_ms()
                if not statements.run("heartbeat_beat", epoch=self.epoch):
                    self._stop(self._taken_over(statements))
                self._heard = asked
        except psycopg.Error as error:
            self._stop(error)
        finally:
            connection.close()

    def _taken_over(self, read: Reader) -> LedgerStopped:
        other = read.one("host_newest")
        assert other is not None
        return LedgerStopped(
            f"Another host ({other['id']}, process {other['pid']} on {other['machine']}) has taken {self._name}: this "
            f"one was silent for too long. {_UNTIL_CHECKED}"
        )

    def _stop(self, error: psycopg.Error | LedgerUnusable | LedgerStopped) -> None:
        """Write nothing any more; the first reason is the one that counts."""
        if self._stopped is None:
            if isinstance(error, psycopg.Error):
                error = unusable(error, self._url)
            self._stopped = error if isinstance(error, LedgerStopped) else LedgerStopped(
                f"{error.message} Until then nothing starts and nothing is sent.")

    def _told(self) -> LedgerStopped:
        assert self._stopped is not None
        return self._stopped

    async def close(self, *, keep_lock: bool = False) -> None:
        """Finish and let go; with `keep_lock`, nobody else may have it while this process lives."""
        self._closing.set()
        await asyncio.to_thread(self._writing.shutdown)
        await asyncio.to_thread(self._looking.shutdown)
        await asyncio.to_thread(self._beating.join)
        told = False
        if not self._stopped and not keep_lock:
            with suppress(psycopg.Error):
                told = self._tx.run("heartbeat_end", epoch=self.epoch) > 0
        if self._reads is not None:
            self._reads.connection.close()
        self._connection.close()
        if not keep_lock:
            self._lock.release(told=told)


_UNTIL_CHECKED = "It has stopped, and sends nothing any more. `keep db check` says whether the ledger is whole."


def _reach(point: str) -> None:
    if crash_points.heard():
        crash_points.reach(point)


def _translated(error: psycopg.Error) -> Exception:
    said = str(error).partition("\n")[0]
    if isinstance(error, psycopg.errors.CheckViolation) and ("illegal" in said or "never" in said):
        return IllegalMove(said)
    return Conflict(f"Nothing was changed: the ledger refused it ({said}).")
