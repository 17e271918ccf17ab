"""One verb pins what prepare decided and records what follows from it: both, the first alone, or nothing."""

from __future__ import annotations

import asyncio

import pytest

from keepai.ledger.base import Tx
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import mutations, runs, workflows
from keepai.ledger.transitions.runs import Begin, Prepared, Stop
from keepai.model.errors import Conflict, RuleBroken
from keepai.model.permissions import Grant, Mode
from keepai.model.records import Run, Traced
from keepai.model.states import Phase, Reason, Status
from tests.ledger import rows

RESULT = '{"data":{}}'
AT = 1_767_603_600_000 - 7


async def begun(ledger: SqliteLedger, *messages: str) -> Run:
    """A consumer's run that has not pinned anything, and events for it."""
    workflow_id = await ledger.write(rows.deploy, f"demo-{len(ledger.reads.all('workflow_all'))}")
    await ledger.write(rows.produce, workflow_id, *messages)
    new = Begin(workflow_id, "take", "consumer", (1, 0), Phase.PREPARING, "event")
    return await ledger.write(runs.begin, new)


def prepared(*messages: str) -> Prepared:
    return Prepared(AT, RESULT, [("in", message) for message in messages])


def line(run: Run) -> Traced:
    return Traced(run.id, 1, "prepare", "call", "peek", '["in"]', "[]", None, 0, AT)


def kept(ledger: SqliteLedger, run: Run) -> tuple[object, ...]:
    """Phase, PrepareResult, its time, reserved events, statuses of mutations, lines of the trace."""
    of_run = {"workflow_id": run.workflow_id, "run_id": run.id}
    row = ledger.reads.one("run_by_id", run_id=run.id)
    assert row is not None
    return (
        row["phase"], row["prepare_result"], row["prepared_at"],
        [r["message_id"] for r in ledger.reads.all("reservation_of_run", **of_run)],
        [m["status"] for m in ledger.reads.all("look_mutations", workflow_id=run.workflow_id, limit=9)],
        (ledger.reads.one("trace_last", **of_run) or {"position": None})["position"],
    )


NOTHING = ("preparing", None, None, [], [], None)
PINNED = ("mutating", RESULT, AT, ["m1", "m2"], [], 1)


async def test_what_was_decided_and_the_intent_are_one_step(ledger: SqliteLedger) -> None:
    # I1, I12
    run = await begun(ledger, "m1", "m2")
    now, sent, pinned = await ledger.write(
        mutations.prepare_and_send, run, prepared("m1", "m2"), [line(run)], rows.intent(), barrier=True)
    assert sent is not None
    assert (now.phase, now.prepared_at, sent.run_id, sent.attempts) == (Phase.MUTATING, AT, run.id, 1)
    assert pinned == ledger.reads.all("reservation_of_run", workflow_id=now.workflow_id, run_id=now.id)
    assert kept(ledger, run) == (*PINNED[:4], ["in_flight"], 1)


async def test_if_somebody_changed_the_workflow_since_the_run_began_only_what_was_chosen_is_pinned(
    ledger: SqliteLedger,
) -> None:
    # a grant, a skipped event, a reprocessed one: each counts in the workflow, and the call is decided anew
    run = await begun(ledger, "m1", "m2")
    await ledger.write(workflows.grant, run.workflow_id, "sheets.appendRow", Grant(Mode.DENY), "ann")
    now, sent, pinned = await ledger.write(
        mutations.prepare_and_send, run, prepared("m1", "m2"), [line(run)], rows.intent(), barrier=True)
    assert (now.phase, sent, [row["message_id"] for row in pinned]) == (Phase.MUTATING, None, ["m1", "m2"])
    assert kept(ledger, run) == PINNED
    assert (await ledger.write(mutations.send, now, rows.intent(), [])).attempts == 1, "it can be sent by itself"


@pytest.mark.parametrize("crew", [0, 2])
async def test_what_goes_wrong_in_it_undoes_all_of_it(ledger: SqliteLedger, crew: int) -> None:
    # I12
    run = await begun(ledger, "m1", "m2")
    ledger._writer.crew = crew
    with pytest.raises(RuleBroken):
        await ledger.write(
            mutations.prepare_and_send, run, prepared("m1", "nobody"), [line(run)], rows.intent(), barrier=True)
    assert kept(ledger, run) == NOTHING


async def test_a_run_that_is_no_longer_as_it_was_sends_nothing(ledger: SqliteLedger) -> None:
    # I8, I23: stopped by somebody, pinned by somebody, or of a host that is gone
    async def refused(run: Run) -> tuple[object, ...]:
        before = kept(ledger, run)
        with pytest.raises(Conflict):
            await ledger.write(
                mutations.prepare_and_send, run, prepared("m1"), [line(run)], rows.intent(), barrier=True)
        assert kept(ledger, run) == before
        return before

    stopped, pinned, orphan = [await begun(ledger, "m1") for _ in range(3)]
    await ledger.write(runs.stop, stopped, Stop(Status.PAUSED, Reason.TRANSIENT, "{}", retry_at=1))
    assert await refused(stopped) == NOTHING
    await ledger.write(runs.prepare, pinned, prepared("m1"), [])
    assert (await refused(pinned))[0] == "prepared"
    ledger._connection.execute("insert into host values (2, 'hst_next', 'here', 1, 1, null)")
    ledger._writer._tx.epoch = 2  # as the next host would have it
    assert await refused(orphan) == NOTHING


@pytest.mark.parametrize("first", [True, False])
async def test_a_refused_neighbour_has_it_done_over_and_not_twice(ledger: SqliteLedger, first: bool) -> None:
    # I2, I9: what the group did before it was undone is gone, and whoever sends knows the mutation that stands
    run = await begun(ledger, "m1")

    def refuse(tx: Tx) -> None:
        raise RuleBroken("No.")

    ledger._writer.crew = 8
    good = (mutations.prepare_and_send, run, prepared("m1"), [line(run)], rows.intent())
    verbs = [(refuse,), good] if first else [good, (refuse,)]
    answers = await asyncio.gather(*(ledger.write(*verb, barrier=True) for verb in verbs), return_exceptions=True)
    ledger._writer.crew = 0
    refusal, done = answers if first else answers[::-1]
    assert isinstance(refusal, RuleBroken)
    assert isinstance(done, tuple)
    [row] = ledger.reads.all("look_mutations", workflow_id=run.workflow_id, limit=9)
    assert (row["id"], row["attempts"], row["status"]) == (done[1].id, 1, "in_flight")
    assert kept(ledger, run) == ("mutating", RESULT, AT, ["m1"], ["in_flight"], 1)
    await ledger.write(mutations.apply, done[0], done[1], "{}", '{"status":"applied"}', [])
