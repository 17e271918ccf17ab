"""A script's worker that dies while its routine has a call under way: the call is recorded to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.runs import Stop
from keepai.model.errors import Conflict, HostFault
from keepai.model.operations import Kind
from keepai.model.states import Reason, Status
from keepai.runtime.base import Ended, Host, Job, Operation
from tests.harness import Story
from tests.ledger import rows
from tests.routines import items, routine


class Dies:
    """A runtime whose worker dies after so many rounds of the event loop of its first mutation; then it lives."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self.died = rounds, False

    async def run(self, job: Job, host: Host) -> Ended:
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
                raise HostFault("The script's worker process died in the middle of a step.")
            await answering
        await host.answer(Operation("withItem", Kind.WITH_ITEM, ("a", "Item a", "end"), None))
        return Ended()

    async def close(self) -> None:
        """Nothing to end."""


@pytest.mark.parametrize("rounds", range(8))
async def test_a_worker_that_dies_during_a_call_loses_nothing_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    async with Story(tmp_path) as story:
        wf = await story.deploy(routine())
        real, story.keep.parts.runtime = story.keep.parts.runtime, Dies(rounds)
        await story.run()
        for _ in range(3):
            for asked in await story.keep.needs_you(wf):
                await story.keep.retry(asked.run_id)
            await story.run(minutes=2)
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
