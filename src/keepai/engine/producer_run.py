"""A producer's run: its inputs, events, state and next due time are one commit, or nothing is."""

from __future__ import annotations

from ..ledger.transitions import runs
from ..model.codec import check_size, size
from ..model.operations import Step
from ..model.records import Run
from . import scheduler
from .host_parts import Parts
from .recording import made_of
from .run_context import RunContext


async def execute(context: RunContext) -> Run | None:
    """Run the handler and commit what it brought; gives the run that begins in the same commit, if one does."""
    parts, run = context.parts, context.run
    ended, gate = await context.step(Step.PRODUCER, (context.state,))
    state, due_at = kept_state(parts, ended.value, context.handler.name), await next_run_at(context)
    inputs, publications = tuple(gate.gathered.inputs.values()), tuple(gate.gathered.publications.values())
    idle = not inputs and not publications and state in (None, context.state)
    follows = await context.follows({"next_run_at": due_at}, publications)
    return await parts.ledger.write(
        runs.commit_producer, run, inputs, publications, state, due_at, context.trace.take(), follows,
        grows(context, state), parts.policy.revisions_max,
        context.recorded(gate, made_of(inputs, publications, state), idle=idle),
    )


async def next_run_at(context: RunContext) -> int:
    """When this producer is due after now."""
    parts = context.parts
    now = parts.clock.now_ms()
    ran = await parts.ledger.look(scheduler.taken, context.run.workflow_id, context.handler, now)
    return scheduler.next_run_at(context.handler, now, parts.policy, ran)


def kept_state(parts: Parts, returned: str | None, handler: str) -> str | None:
    """What a handler returned; None keeps the old state."""
    if returned is not None:
        check_size(returned, f"the state of {handler}", parts.policy.state_bytes_max)
    return returned


def grows(context: RunContext, state: str | None) -> int:
    """By how many bytes a handler's state grows with what it returned."""
    return 0 if state is None else size(state) - size(context.state)
