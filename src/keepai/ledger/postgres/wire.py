"""The wire to a server: any number of statements go out together, and their answers come back in the same order.

A round trip costs both sides far more than a statement does, so whoever can wait gives what it wants, and asks for the
answers of all of it at once. Each statement is prepared once per connection.

What is given between two points (`hear`, `leave`) is one transaction for the server, unless one was begun before. A
`pause` hears the answers and ends nothing.
"""

from __future__ import annotations

import itertools
import select
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, PipelineStatus
from psycopg.pq.abc import PGresult

from ...model.errors import Conflict, LedgerStopped
from .. import stored_ids
from ..base import Row
from .tables import Connection

_numbers = itertools.count()  # a connection may have several wires, one after the other
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class ServerReply:
    """What a statement gave; before the wire was heard, nothing."""

    __slots__ = ("hits", "is_heard", "otherwise", "prepared", "values")

    def __init__(self, otherwise: Exception | None = None, prepared: KnownStatement | None = None) -> None:
        self.otherwise, self.prepared = otherwise, prepared
        self.values: list[tuple[Any, ...]] = []
        self.hits, self.is_heard = 0, False

    def rows(self) -> list[Row]:
        """Every row."""
        if not self.values:
            return []
        assert self.prepared is not None
        assert self.prepared.rows is not None
        return self.prepared.rows(self.values)  # type: ignore[return-value]


class KnownStatement:
    """A statement that a connection knows."""

    __slots__ = ("is_known", "name", "rows")

    def __init__(self, name: bytes) -> None:
        self.name, self.is_known = name, False
        self.rows: stored_ids.Rows | None = None  # what makes the rows of its values


class Wire:
    """One connection. Whoever uses it waits for its server in a poll, unless it has another way to `wait`."""

    def __init__(self, connection: Connection) -> None:
        self._raw = connection.pgconn
        self._values = Transformer(connection)
        self._prepared: dict[tuple[str, tuple[int, ...]], KnownStatement] = {}
        self._given: deque[ServerReply | None] = deque()  # what the server has yet to answer; None: a point to wait for
        self.socket = self._raw.socket
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self.wait: Callable[[int], None] = self._wait_here
        self.warnings: list[str] = []  # what the server warned of, since somebody looked
        connection.add_notice_handler(lambda notice: self.warnings.append(notice.message_primary or ""))

    def give(self, name: str, text: str, params: Sequence[object], otherwise: Exception | None = None) -> ServerReply:
        """Have a statement done, with what else is given, when the wire is next heard; its `name` stands for it. With
        `otherwise` it is one that divides by the rows that it hit: if it hit none, that is raised then."""
        values = self._values.dump_sequence(params, [PyFormat.AUTO] * len(params)) if params else []
        key = name, self._values.types or () if params else ()
        prepared = self._prepared.get(key)
        self._begin()
        if prepared is None:
            prepared = self._prepared[key] = KnownStatement(f"{name} {next(_numbers)}".encode())
            self._raw.send_prepare(prepared.name, text.encode(), list(key[1]))
            self._given.append(ServerReply(prepared=prepared))
        self._raw.send_query_prepared(prepared.name, values, self._values.formats if params else None)
        reply = ServerReply(otherwise, prepared)
        self._given.append(reply)
        return reply

    def give_once(self, text: str, params: Sequence[object] = ()) -> ServerReply:
        """The same with a statement that will not come again."""
        values = self._values.dump_sequence(params, [PyFormat.AUTO] * len(params)) if params else None
        self._begin()
        self._raw.send_query_params(
            text.encode(), values, self._values.types if params else None, self._values.formats if params else None)
        known = KnownStatement(b"")
        known.is_known = True
        reply = ServerReply(prepared=known)
        self._given.append(reply)
        return reply

    def tell(self, text: bytes) -> None:
        """The same with a statement that has no parameters and gives nothing."""
        self._begin()
        self._raw.send_query_params(text, None)
        self._given.append(ServerReply())

    def _begin(self) -> None:
        if self._raw.pipeline_status == PipelineStatus.OFF:
            self._raw.enter_pipeline_mode()

    def leave(self) -> None:
        """Give what ends what was given, up to a point. It is sent with what is given next, or by `send`; its answers
        are heard with the next ones."""
        self._raw.pipeline_sync()
        self._given.append(None)

    def send(self) -> None:
        """Send what was given, and wait for nothing."""
        self._raw.flush()

    def drop(self) -> None:
        """Wait for the answers to what was given, whatever they are."""
        with suppress(psycopg.Error, Conflict, LedgerStopped):
            self.hear()

    def hear(self) -> None:
        """Send what was given, up to a point, and wait for the answers to all of it. What the server refused first is
        raised."""
        if self._raw.pipeline_status == PipelineStatus.OFF:
            return
        self._raw.pipeline_sync()
        self._given.append(None)
        refused = self._receive()
        self._raw.exit_pipeline_mode()
        self._raise(refused)

    def pause(self) -> None:
        """The same, and there is no point: what is given next belongs to it. After a refusal only `drop` can follow."""
        if self._given:
            self._raw.send_flush_request()
            self._raise(self._receive())

    def take_in(self) -> None:
        """The server sent something that nobody waits for yet. An error if that is the end of the connection."""
        self._raw.consume_input()

    def _raise(self, refused: Exception | None) -> None:
        if refused is not None:
            self._prepared = {key: prepared for key, prepared in self._prepared.items() if prepared.is_known}
            raise refused

    def _receive(self) -> Exception | None:
        raw, given = self._raw, self._given
        while raw.flush():  # the server may not read on before its answers are read
            self.wait(select.POLLIN | select.POLLOUT)
            raw.consume_input()
        refused: Exception | None = None
        while given:
            while raw.is_busy():
                self.wait(select.POLLIN)
                raw.consume_input()
            result = raw.get_result()
            if result is None:  # between two answers
                continue
            reply = given.popleft()
            if reply is None:
                assert result.status == ExecStatus.PIPELINE_SYNC, result.status
            elif result.status in _DONE:
                self._fill(reply, result)
            elif refused is None:  # what was given after it was not done
                error = psycopg.errors.error_from_result(result)
                missed = reply.otherwise is not None and isinstance(error, psycopg.errors.DivisionByZero)
                refused = reply.otherwise if missed else error
        return refused

    def _wait_here(self, events: int) -> None:
        self._poll.modify(self.socket, events)
        self._poll.poll()

    def _fill(self, reply: ServerReply, result: PGresult) -> None:
        reply.is_heard, prepared = True, reply.prepared
        if prepared is None:
            return
        if not prepared.is_known:
            prepared.is_known = True
            return
        reply.hits = result.command_tuples or 0
        if result.status == ExecStatus.TUPLES_OK:
            if prepared.rows is None:
                prepared.rows = stored_ids.rows(tuple(
                    (result.fname(each) or b"").decode() for each in range(result.nfields)))
            self._values.set_pgresult(result)
            reply.values = self._values.load_rows(0, result.ntuples, tuple)
