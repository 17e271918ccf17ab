"""One verb pins what prepare decided and records what follows from it: both, the first alone, or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from keepai.ledger.base import Ledger, Tx
from keepai.ledger.transitions import mutations, runs, workflows
from keepai.ledger.transitions.runs import Begin, Carry, Prepared, Stop
from keepai.model.errors import Conflict, RuleBroken
from keepai.model.permissions import Grant, Mode
from keepai.model.records import Run, Traced
from keepai.model.states import Phase, Reason, Status
from tests.ledger import rows
from tests.ledger.stores import Store, reads

RESULT = '{"data":{}}'
AT = 1_767_603_600_000 - 7


async def begun(ledger: Ledger, *messages: str) -> Run:
    """A consumer's run that has not pinned anything, and events for it."""
    workflow_id = await ledger.write(rows.deploy, f"demo-{len(reads(ledger).all('workflow_all'))}")
    await ledger.write(rows.produce, workflow_id, *messages)
    new = Begin(workflow_id, "take", "consumer", (1, 0), Phase.PREPARING, "event")
    return await ledger.write(runs.begin, new)


def prepared(*messages: str) -> Prepared:
    return Prepared(AT, RESULT, [("in", message) for message in messages])


def line(run: Run) -> Traced:
    return Traced(run.id, 1, "prepare", "call", "peek", '["in"]', "[]", None, 0, AT)


def kept(ledger: Ledger, run: Run) -> tuple[object, ...]:
    """Phase, PrepareResult, its time, reserved events, statuses of mutations, lines of the trace."""
    of_run = {"workflow_id": run.workflow_id, "run_id": run.id}
    row = reads(ledger).one("run_by_id", run_id=run.id)
    assert row is not None
    return (
        row["phase"], row["prepare_result"], row["prepared_at"],
        [r["message_id"] for r in reads(ledger).all("reservation_of_run", **of_run)],
        [m["status"] for m in reads(ledger).all("look_mutations", workflow_id=run.workflow_id, limit=9)],
        (reads(ledger).one("trace_last", **of_run) or {"position": None})["position"],
    )


NOTHING = ("preparing", None, None, [], [], None)
PINNED = ("mutating", RESULT, AT, ["m1", "m2"], [], 1)


async def test_what_was_decided_and_the_intent_are_one_step(any_ledger: Ledger) -> None:
    # I1, I12
    run = await begun(any_ledger, "m1", "m2")
    now, sent, pinned = await any_ledger.write(
        mutations.prepare_and_send, run, prepared("m1", "m2"), [line(run)], rows.intent(), barrier=True)
    assert sent is not None
    assert (now.phase, now.prepared_at, sent.run_id, sent.attempts) == (Phase.MUTATING, AT, run.id, 1)
    assert pinned == reads(any_ledger).all("reservation_of_run", workflow_id=now.workflow_id, run_id=now.id)
    assert kept(any_ledger, run) == (*PINNED[:4], ["in_flight"], 1)


async def test_if_somebody_changed_the_workflow_since_the_run_began_only_what_was_chosen_is_pinned(
    any_ledger: Ledger,
) -> None:
    # a grant, a skipped event, a reprocessed one: each counts in the workflow, and the call is decided anew
    run = await begun(any_ledger, "m1", "m2")
    await any_ledger.write(workflows.grant, run.workflow_id, "sheets.appendRow", Grant(Mode.DENY), "ann")
    now, sent, pinned = await any_ledger.write(
        mutations.prepare_and_send, run, prepared("m1", "m2"), [line(run)], rows.intent(), barrier=True)
    assert (now.phase, sent, [row["message_id"] for row in pinned]) == (Phase.MUTATING, None, ["m1", "m2"])
    assert kept(any_ledger, run) == PINNED
    assert (await any_ledger.write(mutations.send, now, rows.intent(), [])).attempts == 1, "it can be sent by itself"


@pytest.mark.parametrize("key", ["k1", "k2"])
async def test_after_something_was_sent_before_only_what_was_chosen_is_pinned(any_ledger: Ledger, key: str) -> None:
    # the same thing may be sent under another key then; another thing may not be what a person thinks was tried
    run = await begun(any_ledger, "m1", "m2")
    now, sent, _ = await any_ledger.write(
        mutations.prepare_and_send, run, prepared("m1", "m2"), [], rows.intent("k1"), barrier=True)
    assert sent is not None
    await any_ledger.write(mutations.refuse, now, sent, Stop(Status.FAILED, Reason.LOGIC, "{}"), [])
    anew = Carry(Status.SUPERSEDED, (1, 0), Phase.PREPARING, keep=False, trigger="new_version")
    run = await any_ledger.write(runs.carry_on, replace(now, state=Status.FAILED), anew)
    now, sent, pinned = await any_ledger.write(
        mutations.prepare_and_send, run, prepared("m1", "m2"), [], rows.intent(key), barrier=True)
    assert (now.phase, sent, len(pinned)) == (Phase.MUTATING, None, 2)


@pytest.mark.parametrize("crew", [0, 2])
async def test_what_goes_wrong_in_it_undoes_all_of_it(any_ledger: Ledger, crew: int) -> None:
    # I12
    run = await begun(any_ledger, "m1", "m2")
    with rows.under_way(any_ledger, crew), pytest.raises(RuleBroken):
        await any_ledger.write(
            mutations.prepare_and_send, run, prepared("m1", "nobody"), [line(run)], rows.intent(), barrier=True)
    assert kept(any_ledger, run) == NOTHING


async def test_a_run_that_is_no_longer_as_it_was_sends_nothing(store: Store) -> None:
    # I8, I23: stopped by somebody, pinned by somebody, or of a host that is gone
    ledger = store.open()

    async def refused(run: Run) -> tuple[object, ...]:
        before = kept(ledger, run)
        with pytest.raises(Conflict):
            await ledger.write(mutations.prepare_and_send, run, prepared("m1"), [line(run)], rows.intent(),
                               barrier=True)
        assert kept(ledger, run) == before
        return before

    stopped, pinned, orphan = [await begun(ledger, "m1") for _ in range(3)]
    await ledger.write(runs.stop, stopped, Stop(Status.PAUSED, Reason.TRANSIENT, "{}", retry_at=1))
    assert await refused(stopped) == NOTHING
    await ledger.write(runs.prepare, pinned, prepared("m1"), [])
    assert (await refused(pinned))[0] == "prepared"
    await ledger.close()
    ledger = store.open()
    assert await refused(orphan) == NOTHING
    await ledger.close()


@pytest.mark.parametrize("first", [True, False])
async def test_a_refused_neighbour_has_it_done_over_and_not_twice(any_ledger: Ledger, first: bool) -> None:
    # I2, I9: what the group did before it was undone is gone, and whoever sends knows the mutation that stands
    run = await begun(any_ledger, "m1")

    def refuse(tx: Tx) -> None:
        raise RuleBroken("No.")

    good = (mutations.prepare_and_send, run, prepared("m1"), [line(run)], rows.intent())
    verbs = [(refuse,), good] if first else [good, (refuse,)]
    with rows.under_way(any_ledger, 8):
        asked = (any_ledger.write(*verb, barrier=True) for verb in verbs)
        answers = await asyncio.gather(*asked, return_exceptions=True)
    refusal, done = answers if first else answers[::-1]
    assert isinstance(refusal, RuleBroken)
    assert isinstance(done, tuple)
    [row] = reads(any_ledger).all("look_mutations", workflow_id=run.workflow_id, limit=9)
    assert (row["id"], row["attempts"], row["status"]) == (done[1].id, 1, "in_flight")
    assert kept(any_ledger, run) == ("mutating", RESULT, AT, ["m1"], ["in_flight"], 1)
    await any_ledger.write(mutations.apply, done[0], done[1], "{}", '{"status":"applied"}', [])
