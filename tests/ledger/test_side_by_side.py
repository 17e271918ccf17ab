"""Verbs and questions that ask PostgreSQL side by side do what they do one after the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from keepai.ledger import account
from keepai.ledger.base import Reader
from keepai.ledger.checks import check
from keepai.ledger.postgres import typed_statements
from keepai.ledger.postgres.store import PostgresLedger
from keepai.ledger.transitions import mutations, runs
from keepai.ledger.transitions.events import Publication, Registration
from keepai.ledger.transitions.runs import Begin, ConsumerEnd, Prepared
from keepai.model.errors import Conflict, LimitExceeded
from keepai.model.ids import number_of
from keepai.model.records import Mutation, Run
from keepai.model.states import Phase
from keepai.testing import ManualClock
from tests.ledger import rows
from tests.ledger.stores import Store, new_store, reads

pytestmark = pytest.mark.asyncio

Wanted = tuple[Any, ...]  # a verb and its arguments


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store("postgres", tmp_path)


@pytest.fixture
async def ledger(store: Store) -> AsyncIterator[PostgresLedger]:
    opened = PostgresLedger(str(store.path), ManualClock())
    yield opened
    await opened.close()


async def together(ledger: PostgresLedger, wanted: Sequence[Wanted]) -> list[Any]:
    """What is wanted in one turn of the loop is one group."""
    acts = [asyncio.create_task(ledger.write(*each)) for each in wanted]
    return await asyncio.gather(*acts, return_exceptions=True)


async def one_by_one(ledger: PostgresLedger, wanted: Sequence[Wanted]) -> list[Any]:
    found: list[Any] = []
    for each in wanted:
        try:
            found.append(await ledger.write(*each))
        except Exception as error:
            found.append(error)
    return found


Manner = Callable[[PostgresLedger, Sequence[Wanted]], Any]


class Walk:
    """A workflow's life, step by step; each step is a verb that needs what the one before gave."""

    def __init__(self, ledger: PostgresLedger, workflow_id: str, messages: int) -> None:
        self.new_id, self.workflow_id, self.messages = ledger.ids.new, workflow_id, [f"m{n}" for n in range(messages)]
        self.run: Run | None = None
        self.mutation: Mutation | None = None
        self.steps: list[Callable[[], Wanted]] = [
            self._poll, self._produce, self._take, self._send, self._apply, self._end, self._take_again]

    def _poll(self) -> Wanted:
        return runs.begin, Begin(self.workflow_id, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule")

    def _produce(self) -> Wanted:
        inputs = [Registration(self.new_id("inp"), "gmail", "email", each, each) for each in self.messages]
        events = [Publication("in", each.external_id, '{"n":1}', (each.input_id,)) for each in inputs]
        return runs.commit_producer, self.run, inputs, events, '{"cursor":1}', 300_000, []

    def _take(self) -> Wanted:
        return runs.begin, Begin(self.workflow_id, "take", "consumer", (1, 0), Phase.PREPARING, "event")

    def _send(self) -> Wanted:
        prepared = Prepared(0, '{"data":{}}', [("in", each) for each in self.messages])
        return mutations.prepare_and_send, self.run, prepared, [], rows.intent(f"key of {self.workflow_id}")

    def _apply(self) -> Wanted:
        return mutations.apply, self.run, self.mutation, '{"row":7}', '{"status":"applied"}', []

    def _end(self) -> Wanted:
        return runs.commit_consumer, self.run, ConsumerEnd(
            publications=(Publication("out", "a", "{}"), Publication("out", "b", "{}")), state='{"seen":1}')

    _take_again = _take

    def learn(self, given: Any) -> None:
        if isinstance(given, Exception):
            raise given
        if isinstance(given, tuple):
            self.run, self.mutation, _ = given
        elif given is not None:
            self.run = given


async def walked(ledger: PostgresLedger, manner: Manner) -> list[str]:
    """Five workflows, each a step behind the one before: every group has all kinds of verbs."""
    walks = [Walk(ledger, await ledger.write(rows.deploy, f"flow {n}"), n) for n in range(1, 6)]
    for turn in range(len(walks) + len(walks[0].steps)):
        active = [(walk, walk.steps[turn - late]) for late, walk in enumerate(walks)
                  if 0 <= turn - late < len(walk.steps)]
        for (walk, _), given in zip(active, await manner(ledger, [step() for _, step in active]), strict=True):
            walk.learn(given)
    return [walk.workflow_id for walk in walks]


#: What is kept of a workflow, and in which order it is compared.
TABLES = {
    "workflow": "id", "input": "seq", "event": "seq", "event_cause": "event_id", "run": "seq", "mutation": "seq",
    "reservation": "run_id, position", "handler_state": "handler", "topic": "topic",
}
_ID = re.compile(r"\b[a-z]{2,4}_[0-9a-z]{12,}\b")


def left(store: Store, ledger: PostgresLedger, workflow_id: str) -> list[object]:
    """What is told of a workflow and kept of it, each id as its place among the ids of that workflow."""
    places: dict[int | None, int] = {number_of(ledger.host): 0}

    def placed(value: object) -> object:
        if isinstance(value, str):
            return _ID.sub(lambda found: f"#{places.setdefault(number_of(found[0]), len(places))}", value)
        return f"#{places[value]}" if isinstance(value, int) and value in places else value

    told = [[placed(move[name]) for name in ("machine", "subject", "source", "target", "why")]
            for move in account.walk(reads(ledger)) if move["workflow_id"] == workflow_id]
    with store.raw() as tables:
        kept = [
            (table, [placed(value) for value in row if not isinstance(value, bytes)])
            for table, order in TABLES.items()
            for row in tables.execute(
                f"select * from {table} where {'id' if table == 'workflow' else 'workflow_id'} = ? order by {order}",
                [number_of(workflow_id)])
        ]
    return [*told, *kept]


async def test_a_group_leaves_what_its_verbs_leave_one_after_the_other(tmp_path: Path) -> None:
    found = []
    for manner in (together, one_by_one):
        store = new_store("postgres", tmp_path)
        ledger = PostgresLedger(str(store.path), ManualClock())
        ids = await walked(ledger, manner)
        assert [each for each in check(reads(ledger)) if not each.sound] == []
        found.append([left(store, ledger, each) for each in ids])
        await ledger.close()
    assert found[0] == found[1]
    assert min(map(len, found[0])) > 40  # of each workflow there is all of a walk


async def test_a_group_is_one_commit_and_one_entry_of_the_account(ledger: PostgresLedger) -> None:
    ids = [await ledger.write(rows.deploy, f"flow {n}") for n in range(4)]
    before = account.head(reads(ledger)).seq
    await together(ledger, [Walk(ledger, each, 0)._take() for each in ids])
    assert account.head(reads(ledger)).seq == before + 1


async def test_who_asked_for_something_that_is_no_longer_so_is_told_and_the_others_are_done(
    ledger: PostgresLedger,
) -> None:
    ids = [await ledger.write(rows.deploy, f"flow {n}") for n in range(3)]
    started = [await ledger.write(rows.prepare, each) for each in ids]
    await ledger.write(runs.advance, started[1], Phase.MUTATING)
    first, stale, third = await together(ledger, [(runs.advance, each, Phase.MUTATING) for each in started])
    assert (first.phase, third.phase) == (Phase.MUTATING, Phase.MUTATING)
    assert isinstance(stale, Conflict)
    assert f"run {started[1].id} is no longer active in prepared under this host" in str(stale)


async def test_a_verb_that_refuses_what_a_script_wants_undoes_only_itself(ledger: PostgresLedger) -> None:
    walks = [Walk(ledger, await ledger.write(rows.deploy, f"flow {n}"), 2) for n in range(3)]
    for walk in walks:
        await ledger.write(rows.produce, walk.workflow_id, *walk.messages)
        walk.learn(await ledger.write(*walk._take()))
    wanted = [(runs.prepare, walk.run, Prepared(0, "{}", [("in", "m0"), ("in", "m1")], bytes_max), [])
              for walk, bytes_max in zip(walks, (1_000, 8, 1_000), strict=True)]
    first, refused, third = await together(ledger, wanted)
    assert isinstance(refused, LimitExceeded)
    assert [len(pinned) for _, pinned in (first, third)] == [2, 2]
    held = await ledger.all("reservation_of_run", workflow_id=walks[1].workflow_id, run_id=walks[1].run.id)
    assert held == []
    again = await ledger.write(runs.prepare, walks[1].run, Prepared(0, "{}", [("in", "m1")]), [])
    assert len(again[1]) == 1


async def test_verbs_of_one_workflow_run_one_after_the_other_in_a_group_too(ledger: PostgresLedger) -> None:
    """Each counts: had they run side by side, two would have got the same number."""
    ids = [await ledger.write(rows.deploy, f"flow {n}") for n in range(2)]
    run = await ledger.write(rows.mutating, ids[0])
    sent = await together(ledger, [
        (mutations.send, run, rows.intent("a"), []), (mutations.send, run, rows.intent("a"), []),
        Walk(ledger, ids[1], 0)._take()])
    assert isinstance(sent[1], Conflict)  # a run has at most one call under way
    assert sent[0].attempts == 1
    assert isinstance(sent[2], Run)


async def asked_together(ledger: PostgresLedger, questions: Sequence[Callable[[Reader], Any]]) -> list[Any]:
    """What is asked in one turn of the loop is one group."""
    acts = [asyncio.create_task(ledger.look(each)) for each in questions]
    return await asyncio.gather(*acts, return_exceptions=True)


async def test_a_question_that_fails_does_not_disturb_the_others(ledger: PostgresLedger) -> None:
    ids = [await ledger.write(rows.deploy, f"flow {n}") for n in range(3)]

    def name(workflow_id: str) -> Callable[[Reader], str]:
        return lambda read: str(read.all("workflow_by_id", workflow_id=workflow_id)[0]["name"])

    def refused(read: Reader) -> object:
        """The server has no such numbers."""
        return read.all("account_page", first=1 << 70, limit=1)

    found = await asked_together(ledger, [name(ids[0]), name("wf_nobody"), refused, name(ids[2])])
    assert (found[0], found[3]) == ("flow 0", "flow 2")
    assert isinstance(found[1], IndexError)
    assert isinstance(found[2], psycopg.Error)
    assert await ledger.look(name(ids[1])) == "flow 1"


async def test_questions_that_are_asked_together_are_answered_of_one_moment(
    store: Store, ledger: PostgresLedger,
) -> None:
    """The second of them reads when somebody else has long committed something."""
    workflow_id = await ledger.write(rows.deploy)

    def sequence(read: Reader) -> int:
        return int(read.all("workflow_by_id", workflow_id=workflow_id)[0]["sequence"])

    def count_meanwhile(read: Reader) -> int:
        before = sequence(read)
        with store.raw() as tables:
            tables.execute("update workflow set sequence = sequence + 1")
        return before

    def look_twice(read: Reader) -> list[int]:
        return [sequence(read), sequence(read)]

    first, twice = await asked_together(ledger, [count_meanwhile, look_twice])
    assert twice == [first, first]
    assert await ledger.look(sequence) == first + 1


#: What every run of a consumer asks and changes.
USED = (
    "workflow_tick", "run_insert", "event_reserve", "reservation_insert", "run_prepared", "mutation_count",
    "mutation_insert", "mutation_move", "run_phase", "cause_of_run", "event_insert", "event_end_reserved",
    "handler_committed", "run_commit", "topic_touch", "run_by_id", "reservation_of_run", "workflow_by_id",
)


@pytest.mark.parametrize("query", USED)
async def test_a_host_reads_no_table_whole_although_the_server_knows_it_as_empty(
    ledger: PostgresLedger, query: str,
) -> None:
    text = typed_statements.numbered()[query][0]
    connection = ledger._place._connection
    if connection.info.server_version < 160000:
        pytest.skip("older servers explain no statement without its values")
    plan = "\n".join(row[0] for row in psycopg.RawCursor(connection).execute(f"explain (generic_plan) {text}"))
    assert "Seq Scan" not in plan
