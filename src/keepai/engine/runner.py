"""Executes one run until it commits or stops; whatever goes wrong becomes the run's status."""

from __future__ import annotations

from ..ledger.rows import mutation_record
from ..ledger.transitions import mutations, runs
from ..model.errors import (
    Conflict,
    HostFault,
    KeepError,
    LedgerStopped,
    OutcomeUnknown,
    RuleBroken,
    WorkflowFull,
    in_words,
)
from ..model.records import Mutation, Run
from ..model.states import AFTER_APPLIED, Phase, Status
from ..script.manifest import HandlerKind
from . import consumer_run, failure, permission, producer_run, reconcile, routine_run
from .parts import Parts
from .stepping import Before, Follow, Stepper


async def execute(
    parts: Parts, run: Run, follow: Follow, before: Before | None = None,
) -> tuple[Run, Before] | None:
    """Go on with `run` from its phase; one whose call is on record without an outcome is in doubt: it never runs on.

    Gives the run that began in the commit that ended it, if one did, with what it has to know of this one."""
    may_send = run.state is Status.ACTIVE and run.phase in AFTER_APPLIED
    if may_send and in_flight(parts, run) is not None:
        await _stop(parts, run, None, OutcomeUnknown("The call was cut off; it may or may not have happened."))
        return None
    loaded = parts.script(run.workflow_id, run.number)
    handler = loaded.manifest.handler(run.handler)
    if handler is None:
        gone = RuleBroken(f"The script version {run.version} has no handler {run.handler!r}.")
        await _stop(parts, run, None, gone)
        return None
    stepper = Stepper(parts, run, loaded, handler, follow, before)
    try:
        if run.state is Status.ACTIVE and run.phase in (Phase.PREPARING, Phase.EXECUTING):
            _check_room(parts, run)  # one that waits was begun before, and has what a person approved in hand
        following = await _EXECUTE[handler.kind](stepper)
        return None if following is None else (following, stepper.passed_on())
    except (LedgerStopped, Conflict):
        raise  # nothing can be kept, or somebody was quicker: the lane looks again
    except KeepError as error:
        await _stop(parts, stepper.run, stepper, permission.lacking(parts, loaded.manifest, error) or error)
    except Exception as error:
        fault = HostFault(f"The host failed in {run.handler!r}: {in_words(error)}. The evidence is kept.")
        fault.__cause__ = error
        await _stop(parts, stepper.run, stepper, fault)
    return None


_EXECUTE = {
    HandlerKind.PRODUCER: producer_run.execute,
    HandlerKind.CONSUMER: consumer_run.execute,
    HandlerKind.ROUTINE: routine_run.execute,
}


def _check_room(parts: Parts, run: Run) -> None:
    """Refuse to begin a run of a workflow for which the ledger keeps as much as it may.

    It is judged before the first step of a run, and only there: what a run has begun it may finish, for its mutation
    may have happened already. What one run adds has a limit of its own (policy run_bytes_max). No statement is needed
    unless there is no room."""
    most = parts.policy.workflow_bytes_max
    kept = parts.ledger.kept_bytes(run.workflow_id)
    if kept < most:
        return
    row = parts.ledger.read().one("workflow_by_id", workflow_id=run.workflow_id)
    assert row is not None, run
    raise WorkflowFull(
        f"The ledger keeps {kept:,} bytes for the workflow {row['name']!r}; the limit is {most:,} (policy "
        f"workflow_bytes_max). Its events use {row['event_bytes']:,} of them, its runs with their traces "
        f"{row['run_bytes']:,}, its inputs {row['input_bytes']:,}. Nothing of the workflow starts until there is room. "
        "See why it keeps so much. Then make room with `keep db prune --days N`, which throws away the content of work "
        f"that has ended, or raise the limit; and say `keep retry {run.id}`."
    )


async def _stop(parts: Parts, run: Run, stepper: Stepper | None, error: KeepError) -> None:
    step, trace = (stepper.at, stepper.trace.take()) if stepper else (None, [])
    open_mutation = in_flight(parts, run)
    if open_mutation is not None:  # whatever broke, the request may have left
        closed = open_mutation.id in parts.call_ends.seen_ms
        doubt = reconcile.doubt(parts, run, open_mutation, error, closed=closed)
        await parts.ledger.write(mutations.doubt, run, open_mutation, doubt, trace, barrier=True)
        return
    item_id = stepper.item_id if stepper else None
    why = failure.stop(error, run, step, parts.policy, parts.clock.now_ms(), item_id)
    await parts.ledger.write(runs.stop, run, why, trace)


def in_flight(parts: Parts, run: Run) -> Mutation | None:
    """The mutation of this run whose call is recorded and whose outcome is not."""
    row = parts.ledger.read().one("mutation_under_way", workflow_id=run.workflow_id, run_id=run.id)
    return mutation_record(row) if row else None
