"""What is written for good: nothing is deleted, and what was committed, sent or applied never changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keepai.ledger import guards
from keepai.ledger.base import Behind, Ledger
from keepai.ledger.transitions import mutations, workflows
from keepai.model.errors import Conflict
from keepai.model.permissions import Grant, Mode
from keepai.model.states import MACHINES, IllegalMove
from tests.ledger import rows
from tests.ledger.rows import scalar
from tests.ledger.stores import REFUSED, Raw, Store, columns

KEPT = [
    "workflow", "script", "input", "event", "event_cause", "run", "reservation", "item_run", "mutation", "account",
    "account_subject", "action", "put_back",
]
#: Kept as well; here filled with anything that fits.
MORE = {name: sorted(MACHINES[name].initial)[0] for name in ("item", "approval", "repair", "proposal")}


@pytest.fixture
async def full(store: Store) -> Store:
    """A ledger with a row in every table that is kept for good, closed."""
    ledger = store.open()
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1", "m2")
    run = await ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await ledger.write(rows.send, run)
    run = await ledger.write(mutations.apply, run, mutation, '{"rowId":1}', '{"status":"applied"}', [])
    await ledger.write(rows.finish, run, "o1")
    await ledger.write(workflows.accept_older, "ann", Behind(1, 2))
    await ledger.close()
    return store


@pytest.fixture
def file(full: Store) -> Iterator[Raw]:
    with full.raw() as connection:
        ids = {f"{name}_id": scalar(connection, f"select id from {name}") for name in ("workflow", "run", "input")}
        for table, status in MORE.items():
            refers = {column: id for column, id in ids.items() if column in columns_of(connection, table)}
            ids[f"{table}_id"] = rows.insert(connection, table, status=status, **refers)
        connection.execute(
            "insert into item_run (workflow_id, run_id, item_id, seq, attempt) "
            "values (:workflow_id, :run_id, :item_id, 1, 1)", ids,
        )
        yield connection


def columns_of(connection: Raw, table: str) -> set[str]:
    return {name for name, _, _ in columns(connection, table)}


@pytest.mark.parametrize("column", ["run_id", "capability", "account", "intent", "digest"])
def test_what_a_person_was_shown_never_changes(file: Raw, column: str) -> None:
    with pytest.raises(REFUSED, match="what was shown for approval never changes"):
        file.execute(f"update approval set {column} = {column}")


@pytest.mark.parametrize("column", ["source", "cases", "wanted", "why", "work", "proposer", "name", "workflow_id"])
def test_what_was_proposed_never_changes(file: Raw, column: str) -> None:
    with pytest.raises(REFUSED, match="what was proposed never changes"):
        file.execute(f"update proposal set {column} = {column}")


def test_a_proposal_that_has_ended_never_changes(file: Raw) -> None:
    file.execute("update proposal set digest = 'shown anew'")
    file.execute("update proposal set status = 'declined'")
    with pytest.raises(REFUSED, match="a proposal that was decided never changes"):
        file.execute("update proposal set digest = 'another'")


def test_everything_that_is_kept_for_good_is_tested() -> None:
    assert set(guards.NEVER_DELETED) == {*KEPT, *MORE}


@pytest.mark.parametrize("table", [*KEPT, *MORE])
def test_no_row_can_be_deleted(file: Raw, table: str) -> None:
    count = scalar(file, f"select count(*) from {table}")
    assert count
    with pytest.raises(REFUSED, match=f"{table} is never deleted"):
        file.execute(f"delete from {table}")
    assert scalar(file, f"select count(*) from {table}") == count


@pytest.mark.parametrize("table", ["account", "account_subject", "action", "reservation", "script", "put_back"])
def test_rows_that_tell_what_happened_never_change(file: Raw, table: str) -> None:
    for column in columns_of(file, table):
        with pytest.raises(REFUSED, match=f"{table} is never changed"):
            file.execute(f"update {table} set {column} = {column}")


def test_a_committed_run_never_changes(file: Raw) -> None:
    for column in columns_of(file, "run"):
        with pytest.raises(REFUSED, match="a committed run never changes"):
            file.execute(f"update run set {column} = {column} where status = 'committed'")


@pytest.mark.parametrize("change", [
    "status = 'failed'", "status = 'needs_reconcile'", "result = '{}'", "result = null",
    "params = '{}'", "mutation_key = 'k'", "idempotency_key = 'k'", "connector = 'c'", "operation = 'o'",
])
def test_an_applied_mutation_keeps_its_status_result_and_what_was_sent(file: Raw, change: str) -> None:
    assert scalar(file, "select status from mutation") == "applied"
    with pytest.raises(REFUSED, match="never changes"):
        file.execute(f"update mutation set {change}")


@pytest.mark.parametrize("column", ["payload", "identity", "target", "run_id", "lineage", "first_sent_at"])
def test_what_identifies_a_send_never_changes(file: Raw, column: str) -> None:
    with pytest.raises(REFUSED, match="never changes"):
        file.execute(f"update mutation set {column} = {column}")


def test_evidence_may_still_be_added_to_an_applied_mutation(file: Raw) -> None:
    file.execute("update mutation set evidence = '{}'")
    assert scalar(file, "select evidence from mutation") == "{}"


def test_an_applied_mutation_has_a_result(file: Raw) -> None:
    rows.insert(file, "workflow", id="wf", name="wf")
    rows.insert(file, "run", id="run", seq=0)
    subject = rows.insert(file, "mutation")
    with pytest.raises(REFUSED, match="mutation_result_when_applied"):
        file.execute("update mutation set status = 'applied' where id = ?", (subject,))


def test_a_cause_names_an_input_and_an_event_that_exist(file: Raw) -> None:
    workflow_id = scalar(file, "select id from workflow")
    event_id = scalar(file, "select id from event")
    with pytest.raises(REFUSED):
        file.execute("insert into event_cause values (?, ?, 1, 77, 1)", (workflow_id, event_id))
    with pytest.raises(REFUSED):
        file.execute("insert into event_cause values (?, 78, 1, 77, 1)", (workflow_id,))


def test_only_a_pending_event_can_be_reserved(file: Raw) -> None:
    run_id = scalar(file, "select id from run")
    with pytest.raises(REFUSED, match="event_reserved_only_while_pending"):
        file.execute("update event set reserved_by = ? where status = 'consumed'", (run_id,))


# One at a time


async def test_a_workflow_has_one_open_run(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    other = await any_ledger.write(rows.deploy, "other")
    await any_ledger.write(rows.produce, workflow_id, "m1", "m2")
    await any_ledger.write(rows.produce, other, "m1")
    await any_ledger.write(rows.prepare, workflow_id, "m1")
    for _ in range(3):
        with pytest.raises(Conflict):
            await any_ledger.write(rows.prepare, workflow_id, "m2")
    await any_ledger.write(rows.prepare, other, "m1")
    assert len(await any_ledger.all("run_open_all")) == 2


async def test_a_workflow_has_one_open_mutation(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1")
    run = await any_ledger.write(rows.mutating, workflow_id, "m1")
    await any_ledger.write(rows.send, run, "one")
    with pytest.raises(Conflict):
        await any_ledger.write(rows.send, run, "two")
    assert len(await any_ledger.all("look_mutations", workflow_id=workflow_id, limit=9)) == 1


async def test_a_deed_is_applied_once(file: Raw) -> None:
    rows.insert(file, "workflow", id="wf", name="wf")
    rows.insert(file, "run", id="run", seq=0)
    for expected in (None, REFUSED):
        subject = rows.insert(file, "mutation", mutation_key="same")
        act = "update mutation set status = 'applied', result = '{}' where id = ?"
        if expected:
            with pytest.raises(expected, match="the same thing was applied before"):
                file.execute(act, (subject,))
        else:
            file.execute(act, (subject,))


async def test_an_illegal_move_by_a_verb_is_an_illegal_move(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1")
    run = await any_ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await any_ledger.write(rows.send, run)

    def jump(tx: object) -> None:
        mutations.resolve(tx, mutation, "skipped", "by hand")  # type: ignore[arg-type]

    with pytest.raises(IllegalMove):
        await any_ledger.write(jump)
    kept = await any_ledger.all("look_mutations", workflow_id=workflow_id, limit=9)
    assert [row["status"] for row in kept] == ["in_flight"]


async def test_a_move_from_another_state_than_expected_is_a_conflict(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1")
    run = await any_ledger.write(rows.mutating, workflow_id, "m1")
    mutation = await any_ledger.write(rows.send, run)
    await any_ledger.write(mutations.apply, run, mutation, "{}", '{"status":"applied"}', [])
    with pytest.raises(Conflict, match="no longer in_flight"):
        await any_ledger.write(mutations.apply, run, mutation, "{}", '{"status":"applied"}', [])


async def test_a_verb_of_another_epoch_changes_nothing(store: Store) -> None:
    first = store.open()
    workflow_id = await first.write(rows.deploy)
    await first.write(rows.produce, workflow_id, "m1")
    run = await first.write(rows.prepare, workflow_id, "m1")
    await first.close()
    second = store.open()
    try:
        assert second.epoch > first.epoch
        with pytest.raises(Conflict, match="under this host"):
            await second.write(rows.finish, run, "o1")
        assert await second.one("event_find", workflow_id=workflow_id, topic="out", message_id="o1") is None
    finally:
        await second.close()


async def test_an_event_is_reserved_by_one_run_or_none_is(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(rows.produce, workflow_id, "m1", "m2")
    with pytest.raises(Exception, match="there is no such event"):
        await any_ledger.write(rows.prepare, workflow_id, "m1", "m2", "m3")
    assert await any_ledger.all("run_open_all") == []
    found = await any_ledger.all("look_events", workflow_id=workflow_id, topic=None, status=None, limit=9)
    assert [event["reserved_by"] for event in found] == [None, None]
    with pytest.raises(Exception, match="it is reserved by run_"):
        await any_ledger.write(rows.prepare, workflow_id, "m1", "m1")


async def test_acts_of_people_are_kept_with_who_and_what(any_ledger: Ledger) -> None:
    workflow_id = await any_ledger.write(rows.deploy)
    await any_ledger.write(workflows.grant, workflow_id, "gmail.send", Grant(Mode.ASK), "ann")
    acts = [(a["act"], a["actor"], a["subject"]) for a in await any_ledger.all("action_all", workflow_id=workflow_id)]
    assert acts == [("deploy", "person", f"{workflow_id} 1.0"), ("grant", "ann", "gmail.send")]
