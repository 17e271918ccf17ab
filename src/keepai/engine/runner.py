"""Executes one run until it commits or stops; whatever goes wrong becomes the run's status."""

from __future__ import annotations

from ..ledger.transitions import mutations, runs
from ..model.errors import (
    Conflict,
    HostFault,
    KeepError,
    LedgerStopped,
    WorkflowFull,
    in_words,
)
from ..model.records import Run
from ..model.states import Phase, Reason, Status
from ..script.manifest import HandlerKind
from . import consumer_run, failure, permission, producer_run, reconcile, routine_run
from .host_parts import Parts
from .relaunch import in_flight
from .run_context import Before, Follow, RunContext


async def execute(
    parts: Parts, run: Run, follow: Follow, before: Before | None = None,
) -> tuple[Run, Before] | None:
    """Go on with `run` from its phase.

    Gives the run that began in the commit that ended it, if one did, with what it has to know of this one."""
    context = None
    try:
        context = await parts.ledger.look(RunContext.load, parts, run, follow, before)
        if run.state is Status.ACTIVE and run.phase in (Phase.PREPARING, Phase.EXECUTING):
            await _check_room(parts, run)  # a run that waits was begun before, and may hold what a person approved
        following = await _EXECUTE[context.handler.kind](context)
        return None if following is None else (following, context.passed_on())
    except (LedgerStopped, Conflict):
        raise  # nothing can be written, or another change came first: the lane looks again
    except KeepError as error:
        lacking = permission.lacking(parts, context.loaded.manifest, error) if context else None
        await _stop(parts, run, context, lacking or error)
    except Exception as error:
        fault = HostFault(f"The host failed in {run.handler!r}: {in_words(error)}. The evidence is kept.")
        fault.__cause__ = error
        await _stop(parts, run, context, fault)
    return None


_EXECUTE = {
    HandlerKind.PRODUCER: producer_run.execute,
    HandlerKind.CONSUMER: consumer_run.execute,
    HandlerKind.ROUTINE: routine_run.execute,
}


async def _check_room(parts: Parts, run: Run) -> None:
    """Refuse to begin a run of a workflow for which the ledger keeps as much as it may.

    It is judged before the first step of a run, and only there: what a run has begun it may finish, for its mutation
    may have happened already. What one run adds has a limit of its own (policy run_bytes_max). No statement is needed
    unless there is no room."""
    most = parts.policy.workflow_bytes_max
    kept = await parts.ledger.kept_bytes(run.workflow_id)
    if kept < most:
        return
    row = await parts.ledger.one("workflow_bytes", workflow_id=run.workflow_id)
    assert row is not None, run
    raise WorkflowFull(
        f"The ledger keeps {kept:,} bytes for the workflow {row['name']!r}; the limit is {most:,} (policy "
        f"workflow_bytes_max). Its events use {row['event_bytes']:,} of them, its runs with their traces "
        f"{row['run_bytes']:,}, its inputs {row['input_bytes']:,}. Nothing of the workflow starts until there is room. "
        "See why it keeps so much. Then make room with `keep db prune --days N`, which throws away the content of work "
        f"that has ended, or raise the limit; and say `keep retry {run.id}`."
    )


async def _stop(parts: Parts, run: Run, context: RunContext | None, error: KeepError) -> None:
    run, step, trace = (context.run, context.at, context.trace.take()) if context else (run, None, [])
    open_mutation = await parts.ledger.look(in_flight, run)
    if open_mutation is not None:  # whatever broke, the request may have left
        closed = open_mutation.id in parts.call_ends.seen_ms
        doubt = reconcile.doubt(parts, run, open_mutation, error, closed=closed)
        await parts.ledger.write(mutations.doubt, run, open_mutation, doubt, trace, barrier=True)
        return
    item_id = context.item_id if context else None
    why = failure.stop(error, run, step, parts.policy, parts.clock.now_ms(), item_id)
    faulty = why.reason is Reason.LOGIC and context is not None  # a repair is tried with what the script was given
    recorded = context.recorded(context.gate) if faulty and context is not None else None
    await parts.ledger.write(runs.stop, run, why, trace, recorded)
