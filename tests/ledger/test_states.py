"""Every pair of states of every machine: Python's tables and the real databases refuse the same moves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from typing import Any

import pytest

from keepai.ledger import guards
from keepai.model import states
from keepai.model.states import MACHINES, Machine, Phase, Reason, Status
from tests.ledger.rows import insert, scalar
from tests.ledger.stores import REFUSED, PostgresStore, Raw, SqliteStore

SCHEMAS = {
    name: files(f"keepai.ledger.{name}").joinpath("schema.sql").read_text("utf-8") for name in ("sqlite", "postgres")
}
BOUND = [MACHINES[name] for name in guards.BINDINGS]
PAIRS = [(machine, s, t) for machine in BOUND for s in machine.states for t in machine.states if s is not t]
REASON = {Status.PAUSED: Reason.TRANSIENT, Status.FAILED: Reason.LOGIC}


@pytest.fixture(scope="module", params=list(SCHEMAS))
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    """A real ledger with one workflow and one run that the rows of a test may refer to."""
    store: Any = SqliteStore(tmp_path_factory.mktemp("ledger")) if request.param == "sqlite" else PostgresStore()
    store.make()
    with store.raw() as connection:
        insert(connection, "workflow", id="wf", name="wf")
        insert(connection, "run", id="run", seq=0)
        connection.execute("update run set status = 'crashed'")
        insert(connection, "input", id="inp")
        yield connection


@pytest.fixture
def connection(tables: Raw) -> Iterator[Raw]:
    tables.execute("begin")
    yield tables
    tables.execute("rollback")


def columns(machine: Machine, state: StrEnum) -> dict[str, object]:
    """What a row must hold beside its state so that only the move can be what is refused."""
    extra: dict[str, object] = {}
    if machine is states.STATUS:
        extra["reason"] = REASON.get(Status(state))
        if state is Status.COMMITTED:
            extra["phase"] = Phase.COMMITTED
    if machine is states.PHASE and state is Phase.COMMITTED:
        extra["status"] = Status.COMMITTED
    if machine is states.MUTATION and state == "applied":
        extra["result"] = "{}"
    return extra


def move(connection: Raw, machine: Machine, subject: str, target: StrEnum) -> None:
    table, column = guards.BINDINGS[machine.name]
    values = {column: str(target), **columns(machine, target)}
    settings = ", ".join(f"{name} = :{name}" for name in values)
    connection.execute(f"update {table} set {settings} where id = :subject", {**values, "subject": subject})


def born(connection: Raw, machine: Machine, state: StrEnum) -> str:
    table, column = guards.BINDINGS[machine.name]
    first: dict[str, object] = {"phase": "emitting"} if machine is states.STATUS else {}
    return insert(connection, table, **{**first, column: str(state), **columns(machine, state)})


def walk(connection: Raw, machine: Machine, goal: StrEnum) -> str:
    """A real row in the state `goal`, brought there by legal moves alone."""
    paths = {state: [state] for state in machine.initial}
    left = list(paths)
    while left:
        state = left.pop(0)
        for target in machine.moves[state]:
            if target not in paths:
                paths[target] = [*paths[state], target]
                left.append(target)
    first, *rest = paths[goal]
    subject = born(connection, machine, first)
    for state in rest:
        move(connection, machine, subject, state)
    return subject


@pytest.mark.parametrize(("machine", "source", "target"), PAIRS, ids=lambda part: getattr(part, "name", part))
def test_python_and_the_database_agree_on_a_move(
    connection: Raw, machine: Machine, source: StrEnum, target: StrEnum,
) -> None:
    subject = walk(connection, machine, source)
    table, column = guards.BINDINGS[machine.name]
    legal = target in machine.moves[source]
    if legal or (source, target) in machine.at_once:  # two moves of one commit, which the account tells as two
        if legal:
            states.check(machine, source, target)
        move(connection, machine, subject, target)
        legal = True
    else:
        with pytest.raises(states.IllegalMove):
            states.check(machine, source, target)
        with pytest.raises(REFUSED, match=r"illegal move|never changes"):
            move(connection, machine, subject, target)
    assert scalar(connection, f"select {column} from {table} where id = ?", subject) == (target if legal else source)


@pytest.mark.parametrize("machine", BOUND, ids=lambda machine: machine.name)
def test_a_row_begins_only_in_a_first_state(connection: Raw, machine: Machine) -> None:
    for state in machine.states:
        if state in machine.initial:
            connection.execute("savepoint one")
            born(connection, machine, state)
            connection.execute("rollback to one")
        else:
            with pytest.raises(REFUSED, match="illegal first state"):
                born(connection, machine, state)


def test_every_machine_is_bound_to_its_table() -> None:
    assert set(guards.BINDINGS) == set(MACHINES)


# What schema.sql says


def known(schema: str, name: str) -> set[str]:
    """The words that the check `<name>_known` lists."""
    found = re.search(rf"constraint {name}_known check \((\w+ in\s*\([^)]*\)|[^)]*)\)", schema)
    assert found, f"schema.sql has no check {name}_known"
    return set(re.findall(r"'(\w+)'", found[1]))


@pytest.fixture(params=list(SCHEMAS))
def schema(request: pytest.FixtureRequest) -> str:
    return SCHEMAS[request.param]


@pytest.mark.parametrize("machine", BOUND, ids=lambda machine: machine.name)
def test_checks_list_exactly_the_states(schema: str, machine: Machine) -> None:
    table, column = guards.BINDINGS[machine.name]
    assert known(schema, f"{table}_{column}") == set(machine.states)


def test_the_check_on_reasons_lists_exactly_the_reasons(schema: str) -> None:
    assert known(schema, "run_reason") == set(Reason)


@pytest.mark.parametrize("name", ["author", "impact"])
def test_words_of_a_script_are_those_of_the_design(schema: str, name: str) -> None:
    words = {"author": {"person", "planner", "maintainer"}, "impact": {"safe", "potentially_impactful"}}
    assert known(schema, f"script_{name}") == words[name]


@pytest.mark.parametrize(("index", "expected"), [("run_one_open", states.OPEN), ("mutation_one_open", states.DOUBTFUL)])
def test_unique_indexes_cover_exactly_what_is_open(
    schema: str, index: str, expected: frozenset[StrEnum],
) -> None:
    found = re.search(rf"create unique index {index} on \w+ \(workflow_id, parked\)\s+where ([^;]*);", schema)
    assert found
    assert set(re.findall(r"'(\w+)'", found[1])) == expected


@pytest.mark.parametrize("status", Status)
def test_a_status_takes_only_its_reasons(connection: Raw, status: Status) -> None:
    for reason in [None, *Reason]:
        connection.execute("savepoint one")
        subject = born(connection, states.STATUS, Status.ACTIVE)
        phase = "committed" if status is Status.COMMITTED else "emitting"
        fits = reason in states.REASONS[status] if status in states.REASONS else reason is None
        act = "update run set status = ?, reason = ?, phase = ? where id = ?"
        values = (str(status), str(reason) if reason else None, phase, subject)
        if fits and (status is Status.ACTIVE or status in states.STATUS.moves[Status.ACTIVE]):
            connection.execute(act, values)
        else:
            with pytest.raises(REFUSED, match=r"run_reason_fits|illegal move"):
                connection.execute(act, values)
        connection.execute("rollback to one")


@pytest.mark.parametrize(("status", "phase"), [("committed", "emitting"), ("active", "committed")])
def test_status_and_phase_commit_together(connection: Raw, status: str, phase: str) -> None:
    subject = born(connection, states.STATUS, Status.ACTIVE)
    with pytest.raises(REFUSED, match="run_commits_whole"):
        connection.execute("update run set status = ?, phase = ? where id = ?", (status, phase, subject))


@pytest.mark.parametrize("table", sorted({table for table, _ in guards.BINDINGS.values()}))
def test_a_word_that_is_no_state_is_refused(connection: Raw, table: str) -> None:
    with pytest.raises(REFUSED):
        insert(connection, table, status="odd")
