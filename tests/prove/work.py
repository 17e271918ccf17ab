"""Work for a real ledger whose disk is watched: several workflows side by side, people between them, all by a seed.

`Recording` keeps what the ledger held after every commit and what callers were told, beside the tape of its files.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

import apsw

from keepai.ledger.base import Tx
from keepai.ledger.rows import mutation_record, run_record
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import mutations, runs, workflows
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.mutations import Doubt
from keepai.ledger.transitions.runs import Begin, Carry, ConsumerEnd, Prepared, Stop
from keepai.model.clock import Ids
from keepai.model.errors import Refused
from keepai.model.ids import KINDS, text_of
from keepai.model.permissions import Grant, Mode
from keepai.model.records import Mutation, Run
from keepai.model.states import MutationStatus, Phase, Reason, Status, WorkflowStatus
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.prove.tape import Acknowledged, Committed, Tape

#: Frames in the log before it is brought into the file: a few, so that it happens in the middle of the work.
LOG_PAGES = 40

#: Statements after which nothing new can be committed.
_NO_STATE = ("pragma synchronous", "pragma page_size", "rollback")


#: What a run that stopped keeps as its reason.
_ERROR = '{"code":"transient","message":"busy"}'


#: Table, key and state of what a caller may build on.
Promises = tuple[tuple[str, str, str], ...]

#: The content of a file without a table.
EMPTY = 0


@dataclass(frozen=True)
class State:
    """What a ledger holds: hashes over its pages and over its rows. Pages that are free may differ."""

    pages: int
    content: int


class Recording:
    """One tape, and the ledger's content after each commit on it: number 0 is what was there before."""

    def __init__(self, path: Path, tape: Tape, before: State) -> None:
        self.path, self.tape = path, tape
        self.states = [before]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch every connection that is opened on the tape's disk."""
        apsw.connection_hooks.append(self._watch)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        if connection.open_vfs == self.tape.name:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ran)

    def _ran(self, event: dict[str, Any]) -> None:
        """A statement ended: if that ended a transaction, look at what is committed."""
        if event["connection"].in_transaction or event["sql"].lower().startswith(_NO_STATE):
            return
        self.states.append(state_of(self.path))
        self.tape.ops.append(Committed(len(self.states) - 1))

    async def say(
        self, ledger: SqliteLedger, verb: Callable[..., Any], *args: Any, barrier: bool = False,
        promises: Callable[[Any], Promises] | None = None,
    ) -> Any:
        """Write, and note when a barrier was acknowledged and what it promised."""
        number = 0

        def told(tx: Tx) -> Any:
            nonlocal number
            number = len(self.states)  # what this transaction will be when it is committed
            return verb(tx, *args)

        told.__name__ = verb.__name__
        result = await ledger.write(told, barrier=barrier)
        if barrier:
            self.tape.ops.append(Acknowledged(number, promises(result) if promises else ()))
        return result

    async def flush(self, ledger: SqliteLedger) -> None:
        """`ledger.barrier()`: all that is committed is promised."""
        number = len(self.states) - 1
        await ledger.barrier()
        self.tape.ops.append(Acknowledged(number))


def state_of(path: Path) -> State:
    """A file as a reader sees it now; its log is left where it is."""
    if not path.exists():
        return State(hash(b""), EMPTY)
    with reading(path) as connection:
        return State(pages(connection), content(connection))


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A connection that does not bring the log into the file when it ends."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        yield connection
    finally:
        connection.close()


def pages(connection: apsw.Connection) -> int:
    """A hash over every page."""
    return hash(connection.serialize("main") or b"")


def content(connection: apsw.Connection) -> int:
    """A hash over every row of every table, and over the schema; `EMPTY` if there are none."""
    schema = connection.execute("select * from sqlite_schema").fetchall()
    return hash((repr(schema), rows_of(connection))) if schema else EMPTY


def rows_of(connection: apsw.Connection, *, without: str = "") -> int:
    """A hash over every row of every table but one."""
    named = "select name from sqlite_schema where type = 'table' and name <> ? order by 1"
    names = [name for (name,) in connection.execute(named, (without,)).fetchall()]
    return hash(repr({name: connection.execute(f"select * from {name}").fetchall() for name in names}))


def small_log(ledger: SqliteLedger, pages: int = LOG_PAGES) -> None:
    """Have the log brought into the file often."""
    ledger._writer.log_pages_max = pages


@contextmanager
def seeded_ids(rng: Random) -> Iterator[None]:
    """Ids by the seed, so that the same seed does the same work."""
    def new(ids: Ids, prefix: str) -> str:
        return text_of(rng.getrandbits(59) << 4 | KINDS[prefix][0])

    with patch.object(Ids, "new", new):
        yield


# -- the work --------------------------------------------------------------------------------------------------


async def session(recording: Recording, rng: Random, lanes: int, rounds: int, name: str, nothing: bool) -> None:
    """A host's life from opening to closing: lanes side by side, each a workflow of its own, and people."""
    ledger = SqliteLedger(recording.path, ManualClock(), vfs=recording.tape.name)
    small_log(ledger, rng.choice((8, LOG_PAGES, LOG_PAGES, 400)))
    ledger._writer.crew = lanes
    try:
        await recording.say(ledger, adopt_all, barrier=rng.random() < 0.5)
        await asyncio.gather(*(
            Lane(recording, ledger, Random(rng.random()), f"{name}-{n}", nothing).work(rounds) for n in range(lanes)
        ))
    finally:
        await ledger.close()


class Teller(Protocol):
    """Writes for a lane, and keeps what it was told."""

    async def say(
        self, ledger: SqliteLedger, verb: Callable[..., Any], *args: Any, barrier: bool = False,
        promises: Callable[[Any], Promises] | None = None,
    ) -> Any: ...

    async def flush(self, ledger: SqliteLedger) -> None: ...


class Lane:
    """One workflow: events come, runs take them, mutations end in every way, people act."""

    def __init__(self, recording: Teller, ledger: SqliteLedger, rng: Random, name: str, nothing: bool = False) -> None:
        self._recording, self._ledger, self._rng, self._name = recording, ledger, rng, name
        self._nothing = nothing
        self._workflow, self._count = "", 0

    async def work(self, rounds: int) -> None:
        self._workflow = await self._say(rows.deploy, self._name, barrier=True)
        for _ in range(rounds):
            await self._round()
            await self._person()
            if self._rng.random() < 0.2:
                await self._recording.flush(self._ledger)

    async def _say(self, verb: Callable[..., Any], *args: Any, **how: Any) -> Any:
        return await self._recording.say(self._ledger, verb, *args, **how)

    async def _round(self) -> None:
        self._count += 1
        key, size = f"{self._name}.{self._count}", self._rng.choice((10, 200, 3000, 9000))
        await self._say(produce, self._workflow, key, size)
        if self._rng.random() < 0.2:
            return  # it waits for ever
        together = zlib.crc32(f"{self._workflow} {key}".encode()) % 2  # both ways, and nothing is drawn for it
        run, mutation = await (self._sent_with_prepare if together else self._sent)(key)
        run = await self._rng.choice((self._applied, self._refused, self._doubted))(run, mutation)
        await self._say(finish, run.id, key)

    async def _sent(self, key: str) -> tuple[Run, Mutation]:
        run = await self._say(rows.mutating, self._workflow, key)
        return run, await self._say(rows.send, run, key, barrier=True, promises=_is_in_flight)

    async def _sent_with_prepare(self, key: str) -> tuple[Run, Mutation]:
        run = await self._say(begin, self._workflow)
        return await self._say(  # type: ignore[no-any-return]
            prepare_and_send, run, key, barrier=True, promises=lambda sent: _is_in_flight(sent[1]),
        )

    async def _applied(self, run: Run, mutation: Mutation) -> Run:
        return await self._say(apply, run.id, mutation.id, barrier=True, promises=_is(mutation, "applied"))  # type: ignore[no-any-return]

    async def _refused(self, run: Run, mutation: Mutation) -> Run:
        await self._say(refuse, run.id, mutation.id, barrier=True, promises=_is(mutation, "failed"))
        carried = await self._say(carry_on, run.id)
        again = await self._say(rows.send, carried, mutation.mutation_key, barrier=True, promises=_is_in_flight)
        return await self._applied(carried, again)

    async def _doubted(self, run: Run, mutation: Mutation) -> Run:
        await self._say(doubt, run.id, mutation.id, barrier=True, promises=_is(mutation, "needs_reconcile"))
        return await self._say(found, run.id, mutation.id, barrier=True, promises=_is(mutation, "applied"))  # type: ignore[no-any-return]

    async def _person(self) -> None:
        self._count += 1
        subject = f"{self._name}.act.{self._count}"
        act = self._rng.choice((self._note, self._pause, self._grant, self._overstep, self._idle))
        await act(subject)

    async def _note(self, subject: str) -> None:
        await self._say(note, self._workflow, subject, barrier=True, promises=lambda _: (("action", subject, ""),))

    async def _pause(self, subject: str) -> None:
        await self._say(move, self._workflow, WorkflowStatus.PAUSED, barrier=True)
        await self._say(move, self._workflow, WorkflowStatus.ACTIVE, barrier=True)

    async def _grant(self, subject: str) -> None:
        await self._say(workflows.grant, self._workflow, "sheets.read", Grant(Mode.ASK), "ann", barrier=True)

    async def _overstep(self, subject: str) -> None:
        """A verb that is refused after it wrote: nothing of it may ever be found."""
        try:
            await self._say(overstep, self._workflow, subject, barrier=self._rng.random() < 0.5)
        except Refused:
            return

    async def _idle(self, subject: str) -> None:
        """A plain commit, and perhaps a barrier that has nothing to write itself."""
        await self._say(note, self._workflow, subject)
        if self._nothing:
            await self._say(nothing, barrier=True)


def _is_in_flight(mutation: Mutation) -> Promises:
    return (("mutation", mutation.id, "in_flight"),)


def _is(mutation: Mutation, state: str) -> Callable[[Any], Promises]:
    return lambda _: (("mutation", mutation.id, state),)


# -- verbs -----------------------------------------------------------------------------------------------------


def produce(tx: Tx, workflow_id: str, message: str, size: int) -> None:
    run = runs.begin(tx, Begin(workflow_id, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule"))
    entry = Registration(tx.new_id("inp"), "gmail", "email", message, message)
    event = Publication("in", message, f'"{"x" * size}"', (entry.input_id,))
    runs.commit_producer(tx, run, [entry], [event], '{"cursor":1}', tx.now + 300_000, [])


def begin(tx: Tx, workflow_id: str) -> Run:
    return runs.begin(tx, Begin(workflow_id, "take", "consumer", (1, 0), Phase.PREPARING, "event"))


def prepare_and_send(tx: Tx, run: Run, key: str) -> tuple[Run, Mutation]:
    prepared = Prepared(tx.now, '{"data":{}}', [("in", key)])
    run, mutation, _ = mutations.prepare_and_send(tx, run, prepared, [], rows.intent(key))
    assert mutation is not None
    return run, mutation


def apply(tx: Tx, run_id: str, mutation_id: str) -> Run:
    return mutations.apply(tx, run_of(tx, run_id), mutation_of(tx, mutation_id), "{}", '{"status":"applied"}', [])


def refuse(tx: Tx, run_id: str, mutation_id: str) -> None:
    why = Stop(Status.PAUSED, Reason.TRANSIENT, _ERROR, tx.now, 1)
    mutations.refuse(tx, run_of(tx, run_id), mutation_of(tx, mutation_id), why, [])


def carry_on(tx: Tx, run_id: str) -> Run:
    how = Carry(Status.SUPERSEDED, (1, 0), Phase.PREPARED, keep=True, trigger="retry")
    return runs.advance(tx, runs.carry_on(tx, run_of(tx, run_id), how), Phase.MUTATING)


def doubt(tx: Tx, run_id: str, mutation_id: str) -> None:
    why = Stop(Status.PAUSED, Reason.RECONCILIATION, _ERROR, tx.now)
    lost = Doubt(MutationStatus.NEEDS_RECONCILE, why)
    mutations.doubt(tx, run_of(tx, run_id), mutation_of(tx, mutation_id), lost, [])


def found(tx: Tx, run_id: str, mutation_id: str) -> Run:
    return mutations.confirm_applied(tx, run_of(tx, run_id), mutation_of(tx, mutation_id), "{}", '{"status":"applied"}')


def finish(tx: Tx, run_id: str, message: str) -> None:
    emitting = runs.advance(tx, run_of(tx, run_id), Phase.EMITTING)
    runs.commit_consumer(tx, emitting, ConsumerEnd(publications=(Publication("out", message, "{}"),)))


def move(tx: Tx, workflow_id: str, target: WorkflowStatus) -> None:
    workflows.move(tx, workflow_id, target, "move", "ann")


def note(tx: Tx, workflow_id: str, subject: str) -> None:
    workflows.note(tx, workflow_id, "note", subject, "ann", None)


def overstep(tx: Tx, workflow_id: str, subject: str) -> None:
    note(tx, workflow_id, subject)
    raise Refused("No.")


def nothing(tx: Tx) -> None:
    """As deploying what is deployed already."""


def adopt_all(tx: Tx) -> None:
    """What recovery does first with runs of a dead host; and a line, so that something is written."""
    for row in tx.all("run_active_all"):
        runs.adopt(tx, run_record(row))
    workflows.note(tx, None, "note", "adopted", "host", None)


def run_of(tx: Tx, run_id: str) -> Run:
    row = tx.one("run_by_id", run_id=run_id)
    assert row is not None
    return run_record(row)


def mutation_of(tx: Tx, mutation_id: str) -> Mutation:
    row = tx.one("mutation_by_id", mutation_id=mutation_id)
    assert row is not None
    return mutation_record(row)
