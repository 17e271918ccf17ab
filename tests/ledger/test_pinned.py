"""What a run has pinned stays as it was: the payload stands in its event, and moves to the run before that changes."""

from __future__ import annotations

import pytest

from keepai.ledger.base import Ledger, Tx
from keepai.ledger.transitions import events, runs
from keepai.ledger.transitions.events import Publication
from keepai.ledger.transitions.runs import Begin, Carry, Stop
from keepai.model.records import Run
from keepai.model.states import Phase, Reason, Status
from tests.ledger import rows
from tests.ledger.stores import REFUSED, Store

OLD, NEW = '{"n":1}', '{"n":2}'


def publish(tx: Tx, workflow_id: str, payload: str) -> None:
    """A producer publishes m1 anew."""
    run = runs.begin(tx, Begin(workflow_id, "poll", "producer", (1, 0), Phase.EXECUTING, "schedule"))
    [cause] = tx.all(
        "input_find", workflow_id=workflow_id, source="gmail", type="email", external_id="m1")
    runs.commit_producer(
        tx, run, [], [Publication("in", "m1", payload, (str(cause["id"]),))], None, tx.now + 300_000, [])


def stopped(tx: Tx, run: Run) -> Run:
    """A run that waits to be tried again."""
    runs.stop(tx, run, Stop(Status.PAUSED, Reason.TRANSIENT, '{"code":"x","message":"y"}', retry_at=1))
    return runs.get(tx, run.id)


def give_up(tx: Tx, run: Run) -> None:
    """A run ends without having sent anything, and its event waits again."""
    runs.abandon(tx, stopped(tx, run))


def carry_on(tx: Tx, run: Run) -> Run:
    """A run stops, and another goes on with what it has pinned."""
    how = Carry(Status.SUPERSEDED, (1, 0), Phase.PREPARED, keep=True, trigger="retry")
    return runs.carry_on(tx, stopped(tx, run), how)


async def pinned(ledger: Ledger, run: Run) -> list[str]:
    """The payloads that a run has pinned."""
    found = await ledger.all("reservation_of_run", workflow_id=run.workflow_id, run_id=run.id)
    return [str(row["payload"]) for row in found]


def copies(store: Store) -> int:
    """How many reservations have a payload of their own."""
    with store.raw() as tables:
        [(number,)] = tables.execute("select count(payload) from reservation").fetchall()
    return int(number)


async def begun(ledger: Ledger) -> tuple[str, Run]:
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1")
    return workflow_id, await ledger.write(rows.prepare, workflow_id, "m1")


async def test_a_payload_is_stored_once_while_nobody_publishes_anew(any_ledger: Ledger, store: Store) -> None:
    _, run = await begun(any_ledger)
    await any_ledger.write(rows.finish, await any_ledger.write(runs.advance, run, Phase.MUTATING))
    assert (await pinned(any_ledger, run), copies(store)) == ([OLD], 0)


async def test_a_run_that_was_given_up_keeps_what_it_had_pinned_when_the_event_changes(
    any_ledger: Ledger, store: Store,
) -> None:
    workflow_id, run = await begun(any_ledger)
    await any_ledger.write(give_up, run)
    before = await any_ledger.kept_bytes(workflow_id)
    await any_ledger.write(publish, workflow_id, NEW)
    again = await any_ledger.write(rows.prepare, workflow_id, "m1")
    assert (await pinned(any_ledger, run), await pinned(any_ledger, again), copies(store)) == ([OLD], [NEW], 1)
    assert await any_ledger.kept_bytes(workflow_id) - before >= len(OLD), "what is kept twice counts twice"


async def test_what_comes_too_late_reaches_the_event_when_the_run_lets_go_of_it_and_not_the_run(
    any_ledger: Ledger,
) -> None:
    workflow_id, run = await begun(any_ledger)
    await any_ledger.write(events_late, workflow_id)
    assert await pinned(any_ledger, run) == [OLD]
    new = await any_ledger.write(carry_on, run)
    both = await pinned(any_ledger, run), await pinned(any_ledger, new)
    assert both == ([OLD], [OLD]), "who carries on has it as it was pinned"
    await any_ledger.write(give_up, new)
    last = await any_ledger.write(rows.prepare, workflow_id, "m1")
    assert [await pinned(any_ledger, each) for each in (run, new, last)] == [[OLD], [OLD], [NEW]]


def events_late(tx: Tx, workflow_id: str) -> None:
    """A payload comes while a run has the event."""
    events.publish(tx, workflow_id, "run_000000000001", [Publication("in", "m1", NEW)])


async def test_an_event_that_is_processed_again_leaves_the_first_run_as_it_was(any_ledger: Ledger) -> None:
    workflow_id, run = await begun(any_ledger)
    await any_ledger.write(rows.finish, await any_ledger.write(runs.advance, run, Phase.MUTATING))
    await any_ledger.write(events_late, workflow_id)
    [event] = await any_ledger.all("reservation_of_run", workflow_id=workflow_id, run_id=run.id)
    assert await any_ledger.write(events.reprocess, workflow_id, event["event_id"])
    again = await any_ledger.write(rows.prepare, workflow_id, "m1")
    assert (await pinned(any_ledger, run), await pinned(any_ledger, again)) == ([OLD], [NEW])


async def test_the_database_refuses_another_payload_for_what_is_pinned(any_ledger: Ledger, store: Store) -> None:
    _, run = await begun(any_ledger)
    for change in ("payload = '{}'", "revision = revision + 1"):
        with store.raw() as tables, pytest.raises(REFUSED, match="pinned"):
            tables.execute(f"update event set {change}")
    assert await pinned(any_ledger, run) == [OLD]
