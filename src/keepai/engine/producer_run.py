"""A producer's run: its inputs, events, state and next due time are one commit, or nothing is."""

from __future__ import annotations

from ..ledger.transitions import runs
from ..model.codec import check_size, size
from ..model.operations import Step
from ..model.records import Run
from . import scheduler
from .parts import Parts
from .stepping import Stepper


async def execute(stepper: Stepper) -> Run | None:
    """Run the handler and commit what it brought; gives the run that begins in the same commit, if one does."""
    parts, run = stepper.parts, stepper.run
    ended, gate = await stepper.step(Step.PRODUCER, (stepper.state(),))
    state, due_at = kept_state(parts, ended.value, stepper.handler.name), next_run_at(stepper)
    inputs, publications = tuple(gate.gathered.inputs.values()), tuple(gate.gathered.publications.values())
    return await parts.ledger.write(
        runs.commit_producer, run, inputs, publications, state, due_at, stepper.trace.take(),
        stepper.follows({"next_run_at": due_at}, publications), grows(stepper, state), parts.policy.revisions_max,
    )


def next_run_at(stepper: Stepper) -> int:
    """When this producer is due after now."""
    parts = stepper.parts
    now = parts.clock.now_ms()
    ran = scheduler.taken(parts.ledger.read(), stepper.run.workflow_id, stepper.handler, now)
    return scheduler.next_run_at(stepper.handler, now, parts.policy, ran)


def kept_state(parts: Parts, returned: str | None, handler: str) -> str | None:
    """What a handler returned; None keeps the old state."""
    if returned is not None:
        check_size(returned, f"the state of {handler}", parts.policy.state_bytes_max)
    return returned


def grows(stepper: Stepper, state: str | None) -> int:
    """By how many bytes a handler's state grows with what it returned."""
    return 0 if state is None else size(state) - size(stepper.state())
