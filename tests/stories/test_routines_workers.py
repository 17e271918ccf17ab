"""A script's worker that dies while its routine has a call under way: the call is recorded to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.runs import Stop
from keepai.model.errors import Conflict, OutcomeUnknown, WorkerDied
from keepai.model.operations import Kind
from keepai.model.states import Reason, Status
from keepai.runtime.base import Ended, Job, Operation, StepHost
from tests.harness import Story
from tests.ledger import rows
from tests.routines import items, routine


class Dies:
    """A runtime whose worker dies after so many rounds of the event loop of its first mutation; then it lives."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self.died = rounds, False

    async def run(self, job: Job, host: StepHost) -> Ended:
        begun = await host.answer(Operation("withItem", Kind.WITH_ITEM, ("a", "Item a", "begin"), None))
        if not begun.value["isDone"]:  # type: ignore[index, call-overload]
            send = Operation("gmail.send", Kind.MUTATION, ({"to": "a@example.com"},), None)
            answering = asyncio.ensure_future(host.answer(send))
            if not self.died:
                self.died = True
                for _ in range(self._rounds):
                    await asyncio.sleep(0)
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
                raise WorkerDied("Its worker died.")
            await answering
        await host.answer(Operation("withItem", Kind.WITH_ITEM, ("a", "Item a", "end"), None))
        return Ended()

    async def load(self, *script: Any) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        """Nothing to end."""


@pytest.mark.parametrize("rounds", range(8))
async def test_a_worker_that_dies_during_a_call_loses_nothing_and_asks_nobody(story: Story, rounds: int) -> None:
    wf = await story.deploy(routine())
    real, story.keep.parts.runtime = story.keep.parts.runtime, Dies(rounds)
    await story.run()
    assert await story.keep.needs_you(wf) == []
    assert await items(story, wf) == {"a": "done"}
    assert len(story.world.effects_of("gmail.send")) == 1
    await real.close()


@pytest.mark.parametrize("happened", [True, False])
async def test_a_call_in_doubt_is_looked_up_after_its_worker_died_and_not_sent_by_a_replay(
    story: Story, happened: bool,
) -> None:
    wf = await story.deploy(routine())
    call = story.world.on("gmail.send")
    call.lose_answer() if happened else call.fail(OutcomeUnknown("The request was lost."))
    story.world.on_reconcile("gmail.send").retry()
    real, story.keep.parts.runtime = story.keep.parts.runtime, Dies(rounds=0)
    await story.run()
    [run] = await story.runs(wf)
    assert run.status == "paused:reconciliation"
    assert await story.keep.needs_you(wf) == []
    await story.run(minutes=2)
    await story.run(minutes=2)
    assert await items(story, wf) == {"a": "done"}
    assert len(story.world.effects_of("gmail.send")) == 1
    await real.close()


async def test_a_call_that_waits_for_a_person_waits_also_if_its_worker_died(story: Story) -> None:
    wf = await story.deploy(routine(), grants={"feed.list": "allow", "gmail.send": "ask"})
    real, story.keep.parts.runtime = story.keep.parts.runtime, Dies(rounds=0)
    await story.run()
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == "approval"
    await story.keep.approve(asked.id)
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert len(story.world.effects_of("gmail.send")) == 1
    await real.close()


async def test_a_run_with_a_call_on_record_is_never_stopped_as_if_there_were_none(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "keep.db")
    workflow_id = await ledger.write(rows.deploy)
    await ledger.write(rows.produce, workflow_id, "m1")
    run = await ledger.write(rows.mutating, workflow_id, "m1")
    await ledger.write(rows.send, run)
    with pytest.raises(Conflict, match="on record without an outcome"):
        await ledger.write(runs.stop, run, Stop(Status.FAILED, Reason.INTERNAL, "{}"))
    await ledger.close()
