"""Rows to put into a real ledger: a workflow with an input, an event, a run and a mutation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw

from keepai.ledger.base import Ledger, Tx
from keepai.ledger.stored_ids import IDS
from keepai.ledger.transitions import mutations, runs, workflows
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.mutations import Intent
from keepai.ledger.transitions.runs import Begin, ConsumerEnd, Prepared
from keepai.ledger.transitions.workflows import Version
from keepai.model.permissions import Grant, Mode
from keepai.model.records import Mutation, Run
from keepai.model.states import Phase
from tests.ledger.stores import Raw, columns

_numbers = itertools.count(1)


def version(name: str = "demo") -> Version:
    return Version(
        name=name, source="", hash="h", manifest="{}", author="person", impact="safe",
        topics={"in": "take", "out": None}, handlers={"poll": "producer", "take": "consumer"}, due={"poll": 0},
        grants={"sheets.appendRow": Grant(Mode.ALLOW)},
    )


def deploy(tx: Tx, name: str = "demo") -> str:
    return workflows.deploy(tx, None, version(name), (1, 0))


def produce(tx: Tx, workflow_id: str, *messages: str) -> Run:
    """A producer's run that brought events, each with an input of its own."""
    run = runs.begin(tx, Begin(workflow_id, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule"))
    inputs = [Registration(tx.new_id("inp"), "gmail", "email", message, message) for message in messages]
    events = [Publication("in", entry.external_id, '{"n":1}', (entry.input_id,)) for entry in inputs]
    runs.commit_producer(tx, run, inputs, events, '{"cursor":1}', tx.now + 300_000, [])
    return run


def prepare(tx: Tx, workflow_id: str, *messages: str) -> Run:
    """A consumer's run that has reserved events."""
    run = runs.begin(tx, Begin(workflow_id, "take", "consumer", (1, 0), Phase.PREPARING, "event"))
    prepared = Prepared(tx.now, '{"data":{}}', [("in", message) for message in messages])
    return runs.prepare(tx, run, prepared, [])[0]


def mutating(tx: Tx, workflow_id: str, *messages: str) -> Run:
    return runs.advance(tx, prepare(tx, workflow_id, *messages), Phase.MUTATING)


def intent(key: str = "key") -> Intent:
    return Intent(
        mutation_key=key, idempotency_key=f"{key}-1", connector="sheets", operation="appendRow", account="",
        target="sheet",
        identity="{}", payload="{}", params="{}", subkey=None, title=None, preview="Append a row", deadline_at=0,
    )


def send(tx: Tx, run: Run, key: str = "key") -> Mutation:
    return mutations.send(tx, run, intent(key), [])


def finish(tx: Tx, run: Run, *published: str) -> None:
    """The run commits."""
    emitting = runs.advance(tx, run, Phase.EMITTING, '{"status":"none"}')
    events = tuple(Publication("out", message, "{}") for message in published)
    runs.commit_consumer(tx, emitting, ConsumerEnd(publications=events))


@contextmanager
def under_way(ledger: Ledger, crew: int) -> Iterator[None]:
    """So many runs are under way."""
    with ExitStack() as stack:
        for _ in range(crew):
            stack.enter_context(ledger.under_way())
        yield


@contextmanager
def raw(path: Path) -> Iterator[apsw.Connection]:
    """The file itself, past all verbs: only what the database refuses is refused."""
    connection = apsw.Connection(str(path))
    connection.execute("pragma foreign_keys = on")
    try:
        yield connection
    finally:
        connection.close()


def scalar(connection: Raw, text: str, *values: Any) -> Any:
    row = connection.execute(text, values).fetchone()
    return row[0] if row else None


def insert(connection: Raw, table: str, **values: object) -> str:
    """Insert one row; what is not given is filled with something that fits."""
    row = {**_defaults(connection, table, next(_numbers)), **values}
    row.update({name: NAMED.get(row[name], row[name]) for name in IDS & row.keys()})
    names = ", ".join(row)
    connection.execute(f"insert into {table} ({names}) values ({', '.join(':' + name for name in row)})", row)
    return str(row["id"])


def _defaults(connection: Raw, table: str, number: int) -> dict[str, object]:
    return _known(number).get(table) or _filled(connection, table, number)


def _filled(connection: Raw, table: str, number: int) -> dict[str, object]:
    """Something in every column that must have something."""
    row: dict[str, object] = {
        name: number if kind in ("integer", "bigint") else f"{table}-{number}"
        for name, kind, needed in columns(connection, table) if needed
    }
    return {**row, **{name: wanted for name, wanted in _REFERRED if name in row}}


#: What rows refer to where nothing else is said, and the ids that stand for these names.
NAMED: dict[object, int] = {"wf": 1, "run": 2, "inp": 3, "itm": 4, "hst": 5}
_REFERRED = (("workflow_id", "wf"), ("run_id", "run"), ("input_id", "inp"), ("item_id", "itm"))


def _known(number: int) -> dict[str, dict[str, object]]:
    times: dict[str, object] = {"created_at": 1, "updated_at": 1}
    keyed = {"workflow_id": "wf", "seq": number, "id": 1_000 + number, **times}
    return {
        "workflow": {
            "id": 1_000 + number, "name": f"name-{number}", "status": "active", "major": 1, "minor": 0, **times,
        },
        "input": {
            **keyed, "source": "gmail", "type": "email", "external_id": str(number), "title": "t", "status": "active",
            "created_by": "run",
        },
        "event": {
            **keyed, "topic": "in", "message_id": str(number), "payload": "{}", "status": "pending",
            "created_by": "run",
        },
        "run": {
            **keyed, "handler": "take", "kind": "consumer", "major": 1, "minor": 0, "trigger": "event",
            "lineage": "run", "attempt": 1, "phase": "preparing", "status": "active", "observed": 0, "host": "hst",
            "epoch": 1,
        },
        "mutation": {
            **keyed, "run_id": "run", "ordinal": number, "lineage": "run", "mutation_key": str(number),
            "idempotency_key": str(number), "connector": "sheets", "operation": "appendRow", "account": "",
            "target": "t",
            "identity": "{}", "payload": "{}", "params": "{}", "preview": "p", "status": "in_flight", "attempts": 1,
            "sender": "hst", "epoch": 1, "first_sent_at": 1, "deadline_at": 1,
        },
    }
