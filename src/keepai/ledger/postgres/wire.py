"""The wire to a server: any number of statements go out together, and their answers come back in the same order.

A round trip costs both sides far more than a statement does, so whoever can wait gives what it wants, and asks for the
answers of all of it at once. Each statement is prepared once per connection.
"""

from __future__ import annotations

import itertools
import select
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from ...model.errors import Conflict
from .. import stored_ids
from ..base import Row
from .tables import Connection

_numbers = itertools.count()  # a connection may have several wires, one after the other
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class ServerReply:
    """What a statement gave; before the wire was heard, nothing."""

    __slots__ = ("hits", "must_hit", "prepared", "values")

    def __init__(self, must_hit: str | None = None, prepared: KnownStatement | None = None) -> None:
        self.must_hit, self.prepared = must_hit, prepared
        self.values: list[tuple[Any, ...]] = []
        self.hits = 0

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
    """One connection, of one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._raw = connection, connection.pgconn
        self._values = Transformer(connection)
        self._prepared: dict[tuple[str, tuple[int, ...]], KnownStatement] = {}
        self._given: deque[ServerReply | None] = deque()  # what the server has yet to answer; None: a point to wait for
        self._poll = select.poll()
        self._poll.register(self._raw.socket, select.POLLIN)

    def give(self, name: str, text: str, params: Sequence[object], must_hit: str | None = None) -> ServerReply:
        """Have a statement done, with what else is given, when the wire is next heard; its `name` stands for it. If it
        must hit a row and hits none, that is a `Conflict` then."""
        values = self._values.dump_sequence(params, [PyFormat.AUTO] * len(params)) if params else []
        key = name, self._values.types or () if params else ()
        prepared = self._prepared.get(key)
        self._begin()
        if prepared is None:
            prepared = self._prepared[key] = KnownStatement(f"{name} {next(_numbers)}".encode())
            self._raw.send_prepare(prepared.name, text.encode(), list(key[1]))
            self._given.append(ServerReply(prepared=prepared))
        self._raw.send_query_prepared(prepared.name, values, self._values.formats if params else None)
        reply = ServerReply(must_hit, prepared)
        self._given.append(reply)
        return reply

    def tell(self, text: bytes) -> None:
        """The same with a statement that has no parameters and gives nothing."""
        self._begin()
        self._raw.send_query_params(text, None)
        self._given.append(ServerReply())

    def _begin(self) -> None:
        if not self._given:
            self._raw.enter_pipeline_mode()

    def leave(self) -> None:
        """Send what was given; its answers are heard with the next ones."""
        self._raw.pipeline_sync()
        self._given.append(None)
        self._raw.flush()

    def drop(self) -> None:
        """Wait for the answers to what was given, whatever they are."""
        with suppress(psycopg.Error, Conflict):
            self.hear()

    def hear(self) -> None:
        """Send what was given, and wait for the answers to all of it. The first statement that the server refused is
        raised, otherwise the first that hit nothing and had to."""
        if not self._given:
            return
        self._raw.pipeline_sync()
        self._given.append(None)
        refused, missed = self._receive()
        self._raw.exit_pipeline_mode()
        if refused is not None:
            self._prepared = {key: prepared for key, prepared in self._prepared.items() if prepared.is_known}
            raise refused
        if missed is not None:
            raise Conflict(f"Nothing was changed: {missed}.")

    def _receive(self) -> tuple[psycopg.Error | None, str | None]:
        raw, given = self._raw, self._given
        while raw.flush():  # the server may not read on before its answers are read
            [(_, ready)] = self._ready(select.POLLIN | select.POLLOUT)
            if ready & ~select.POLLOUT:
                raw.consume_input()
        refused, missed = None, None
        while given:
            while raw.is_busy():
                self._ready(select.POLLIN)
                raw.consume_input()
            result = raw.get_result()
            if result is None:  # between two answers
                continue
            reply = given.popleft()
            if reply is None:
                assert result.status == ExecStatus.PIPELINE_SYNC, result.status
            elif result.status in _DONE:
                self._fill(reply, result)
                if reply.must_hit is not None and not reply.hits:
                    missed = missed or reply.must_hit
            elif refused is None:  # what was given after it was not done
                refused = psycopg.errors.error_from_result(result)
        return refused, missed

    def _ready(self, events: int) -> list[tuple[int, int]]:
        self._poll.modify(self._raw.socket, events)
        return self._poll.poll()

    def _fill(self, reply: ServerReply, result: PGresult) -> None:
        prepared = reply.prepared
        if prepared is None:
            return
        if not prepared.is_known:
            prepared.is_known = True
            return
        reply.hits = result.command_tuples or 0
        if result.status == ExecStatus.TUPLES_OK:
            if prepared.rows is None:
                prepared.rows = stored_ids.rows([
                    (result.fname(each) or b"").decode() for each in range(result.nfields)])
            self._values.set_pgresult(result)
            reply.values = self._values.load_rows(0, result.ntuples, tuple)
