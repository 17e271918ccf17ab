"""One side effect, from the script's call to a recorded outcome.

The intent is on disk before the first byte leaves; what is sent is built from the recorded parameters
only. Whatever happens to the call, the ledger says afterwards: applied, failed, or nobody knows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..connectors.base import OperationSpec
from ..ledger.base import Reader, Row
from ..ledger.transitions import mutations, runs
from ..ledger.transitions.mutations import Intent
from ..ledger.transitions.turns import Turn
from ..model import crash_points
from ..model.codec import Json, canonical, digest, shown, sound, stored, text_of
from ..model.errors import HeldBack, KeepError, LedgerStopped, LimitExceeded, NeedsAttention, RuleBroken, Transient
from ..model.fast_record import fast_record
from ..model.operations import Step
from ..model.permissions import Judged, Mode, Use
from ..model.records import Approval, Mutation, Run
from ..model.states import AFTER_APPLIED, MutationStatus
from ..runtime.base import Operation
from . import approval, failure, late_evidence, next_turn, outside, reconcile, restored_ledger
from .gate import check_allowed
from .host_parts import Parts
from .outcome import outcome_of
from .outside import Answer
from .permission import Permissions, grants_of
from .run_context import RunContext


@fast_record
@dataclass(frozen=True)
class Unit:
    """What a mutation is for, so that the same thing for the same unit is found again in the ledger."""

    step: Step
    key: str  # the reserved events, or the item, in their attempts
    title: str | None  # the script's word for it
    item_id: str | None = None


@fast_record
@dataclass(frozen=True)
class Wanted:
    """A call that a script made, checked, in the words of its operation."""

    operation: Operation
    spec: OperationSpec
    params: Json
    subkey: str | None
    target: str
    identity: str
    payload: str
    preview: str


async def perform(context: RunContext, operation: Operation, unit: Unit) -> str | None:
    """Check, record, send, record; the result as it is kept, or None if the run has to wait."""
    wanted, ledger = checked_call(context, operation, unit.step), context.parts.ledger
    decision = await ledger.look(_decide, context, wanted, unit)
    if decision.applied is not None:
        return await _use_applied(context, decision.applied, wanted.spec, decision.intent, unit.step)
    assert decision.judged is not None, "what was not applied before is judged"
    if decision.judged.mode is Mode.ASK:
        await approval.ask(context, decision.intent, decision.judged.because)
        return None
    if decision.turn is not None:
        await _wait_turn(context, decision.intent, decision.turn, unit.step)
        return None
    mutation = await ledger.write(
        mutations.send, context.run, decision.intent, context.trace.take(), context.limits(decision.intent.connector),
        barrier=True,
    )
    return await complete(context, mutation, unit.step)


async def _wait_turn(context: RunContext, intent: Intent, turn: Turn, step: Step) -> None:
    """A limit holds the call back: its run waits, which is no failure, and goes on in its place."""
    parts, run = context.parts, context.run
    held = HeldBack(f"“{intent.preview}” waits its turn. {turn.why}", intent.connector)
    why = failure.stop(held, run, step, parts.policy, parts.clock.now_ms(), context.item_id)
    await parts.ledger.write(runs.stop, run, failure.until(why, turn.at), context.trace.take())


@dataclass(frozen=True)
class Decision:
    """What is to be done with a call, by one look at the ledger."""

    intent: Intent
    applied: Row | None = None  # the ledger has this for the same unit: nothing is sent
    judged: Judged | None = None  # whether a person must see it first, and by which rule
    turn: Turn | None = None  # if that is yet to come


def _decide(read: Reader, context: RunContext, wanted: Wanted, unit: Unit) -> Decision:
    """Consult the ledger, then the grants as a person has them at this moment; a call that is not allowed is refused.

    What is answered from the ledger does not count as sent: a replay gets as far as it likes."""
    parts, run, operation = context.parts, context.run, wanted.operation
    earlier = read.all("mutation_same", workflow_id=run.workflow_id, mutation_key=key_of(run, wanted, unit))
    intent = _intent(parts, run, wanted, unit, sum([
        r["status"] == MutationStatus.FAILED and r["resolution"] is None and r["doubted_at"] is None for r in earlier
    ]))
    applied = next((row for row in earlier if row["status"] == MutationStatus.APPLIED), None)
    if applied is not None:
        return Decision(intent, applied)
    context.sends += 1
    limit = parts.policy.script_calls_max
    if context.sends > limit:
        raise LimitExceeded(
            f"This run wants to send more than {limit:,} mutations, the limit. Spread them over runs.", at=operation.at,
        )
    try:
        now = Permissions(parts, run, grants_of(read, run.workflow_id), context.loaded.manifest.name)
        judged = now.check(read, operation.name, wanted.params, may_ask=True)
    except KeepError as error:
        error.at = error.at or operation.at
        raise
    return Decision(intent, None, judged, _turn(read, context, intent))


def _turn(read: Reader, context: RunContext, intent: Intent) -> Turn | None:
    """When the call may be sent; None: now."""
    parts, limits = context.parts, context.limits(intent.connector)
    return next_turn.turn(read, limits, context.run.workflow_id, intent.connector, parts.clock.now_ms(), parts)


async def complete(context: RunContext, mutation: Mutation, step: Step) -> str | None:
    """Send what is on record, and record what came of it."""
    try:
        context.parts.line.leave(mutation.workflow_id)
        return await _complete(context, mutation, step)
    finally:
        next_turn.call_ended(context.parts, mutation.connector)


async def _complete(context: RunContext, mutation: Mutation, step: Step) -> str | None:
    parts = context.parts
    spec = parts.connectors[mutation.connector].operations[mutation.operation]
    known = None
    if mutation.workflow_id in parts.put_back:
        known = await restored_ledger.look_up(parts, context.run, spec, mutation)
    answer = known or await _call(context, spec, mutation, step)
    try:
        return await _record(context, mutation, answer)
    except LedgerStopped:
        late_evidence.keep_answer(parts, mutation, answer)
        raise


async def plain_intent(context: RunContext, operation: Operation, unit: Unit) -> Intent | None:
    """The intent of a call that can be recorded together with what it follows from, if it is the first of its kind;
    None if the call needs approval, waits its turn, or is invalid.

    Then it is decided again when what it follows from is recorded. The decision relies on what was read since the run
    began; if anybody has changed something since, or the same was sent before, the intent is not recorded."""
    permissions, ledger, name = context.permissions, context.parts.ledger, operation.name
    try:
        wanted = checked_call(context, operation, Step.MUTATE)
        judged = permissions.judge(name, wanted.params, may_ask=True, used=(
            await ledger.look(permissions.used, name) if permissions.counts(name) else Use()))
        if judged.mode is Mode.ASK:
            return None
        intent = _intent(context.parts, context.run, wanted, unit, refusals=0)
        waits = context.limits(intent.connector) and await ledger.look(_turn, context, intent) is not None
        return None if waits else intent
    except LedgerStopped:
        raise
    except KeepError:
        return None


async def _use_applied(context: RunContext, row: Row, spec: OperationSpec, intent: Intent, step: Step) -> str:
    """The result that the ledger already has for the same unit; nothing is sent."""
    _check_content(spec, row, intent)
    context.trace.warning(step, f"{row['id']} has applied this before; its result is used and nothing is sent.")
    outcome = outcome_of(context.run, row["result"])
    if outcome is not None:
        context.run = await context.parts.ledger.write(
            runs.advance, context.run, AFTER_APPLIED[context.run.phase], outcome, context.trace.take(), barrier=True,
        )
    return str(row["result"])


def _check_content(spec: OperationSpec, row: Row, intent: Intent) -> None:
    """Refuse to pass off what was applied as what is wanted now, unless the difference does not matter."""
    wanted = digest(intent.payload)
    if row["payload"] == intent.payload or row["kept"] == wanted:
        return
    if spec.compare(stored(row["payload"]), stored(intent.payload)) != "significant":
        return
    raise NeedsAttention(
        f"“{row['preview']}” was applied before for the same work ({row['id']}), and the script now wants "
        f"“{intent.preview}”. Nothing was sent. Keep what was applied, or skip.",
        {
            "mutation_id": row["id"], "applied": stored(row["params"]), "wanted": stored(intent.params),
            "wanted_preview": intent.preview, "wanted_payload": wanted,
        },
    )


async def perform_approved(context: RunContext, approved: Approval) -> str | None:
    """Send what a person approved, from what was held; the result as it is kept, or None if the run has to wait."""
    mutation = await approval.send(context, approved)
    return await complete(context, mutation, Step.ROUTINE if mutation.item_id else Step.MUTATE)


def checked_call(context: RunContext, operation: Operation, step: Step) -> Wanted:
    """A call whose parameters fit its operation, or an error that names its place."""
    check_allowed(step, operation, mutate_reads=False)
    connector, _, name = operation.name.partition(".")
    spec = context.parts.connectors[connector].operations[name]
    given, subkey = operation.args[0] if operation.args else None, None
    try:
        if isinstance(given, dict) and "subkey" in given:
            named = given["subkey"]
            if not isinstance(named, str) or not named:
                raise RuleBroken(f"ctx.{operation.name}: subkey must be a non-empty string, not {shown(named)}.")
            if "\0" in named:
                raise RuleBroken(f"ctx.{operation.name}: subkey contains a NUL character; ids must not.")
            subkey = named
            given = {k: v for k, v in given.items() if k != "subkey"}
        params = spec.parse(given)
        return Wanted(
            operation, spec, params, subkey, spec.target(params), canonical(spec.identity(params)),
            canonical(spec.payload(params)), spec.preview(params),
        )
    except KeepError as error:
        error.at = error.at or operation.at
        raise
    except Exception as error:  # that is none of ours: a fault of the connector
        fault = failure.as_fault(error, f"ctx.{operation.name}")
        fault.at = operation.at
        raise fault from error


def key_of(run: Run, wanted: Wanted, unit: Unit) -> str:
    """What is the same for the same thing for the same unit."""
    connector, _, operation = wanted.operation.name.partition(".")
    return digest(
        run.workflow_id, unit.key, connector, operation, wanted.target, wanted.identity, wanted.subkey or "")


def _intent(parts: Parts, run: Run, wanted: Wanted, unit: Unit, refusals: int) -> Intent:
    """What is about to be sent, if the outside system itself has refused the same so often before."""
    connector, _, operation = wanted.operation.name.partition(".")
    key, payload = key_of(run, wanted, unit), wanted.payload
    # The same for every send of the same thing, unless the outside system itself refused it before.
    sent_as = reconcile.key_of_try(digest(key, payload)[:40], refusals + 1)
    return Intent(
        mutation_key=key, idempotency_key=sent_as, connector=connector, operation=operation,
        account=parts.connectors[connector].account, target=sound(wanted.target), identity=wanted.identity,
        payload=payload, params=text_of(wanted.params), subkey=wanted.subkey, title=unit.title, preview=wanted.preview,
        deadline_at=parts.clock.now_ms() + int(parts.policy.call_s * 1000), item_id=unit.item_id,
    )


async def _call(context: RunContext, spec: OperationSpec, mutation: Mutation, step: Step) -> Answer:
    parts, name = context.parts, f"{mutation.connector}.{mutation.operation}"
    seconds, started = parts.policy.call_s, time.monotonic()
    call = outside.call_of(
        context.run, seconds, lambda text: context.trace.log(step, mutation.connector, str(text)),
        attempt=mutation.attempts, idempotency_key=mutation.idempotency_key, lock_fd=parts.ledger.lock_fd,
    )
    crash_points.reach("before:call")
    if time.monotonic() - started > seconds:  # the host was frozen between the record and the call
        return Answer(refused=Transient(f"{name} was not sent: the host stood still for too long before it could."))
    parts.ledger.check()  # others may take this host for dead
    parts.call_ends.begin(mutation)
    answer = await outside.mutate(
        spec, name, mutation.params, call, seconds, lambda pending: late_evidence.watch_call(parts, mutation, pending),
    )
    if answer.closed:
        parts.call_ends.seen(mutation.id, parts.clock.steady_ms())
    crash_points.reach("after:call")
    error = answer.refused or answer.unknown
    context.trace.call(
        step, name, text_of(mutation.params), answer.result, error.message if error else None,
        int((time.monotonic() - started) * 1000),
    )
    return answer


async def _record(context: RunContext, mutation: Mutation, answer: Answer) -> str | None:
    run, ledger, trace = context.run, context.parts.ledger, context.trace.take()
    if answer.result is not None:
        outcome = outcome_of(run, answer.result)
        context.run = await ledger.write(mutations.apply, run, mutation, answer.result, outcome, trace, barrier=True)
        context.parts.call_ends.forget(mutation.id)
        return answer.result
    if answer.refused is not None:
        parts, step = context.parts, context.at or Step.MUTATE
        stop = failure.stop(answer.refused, run, step, parts.policy, parts.clock.now_ms())
        await ledger.write(mutations.refuse, run, mutation, stop, trace, barrier=True)
        context.parts.call_ends.forget(mutation.id)
        return None
    assert answer.unknown is not None
    doubt = reconcile.doubt(context.parts, run, mutation, answer.unknown, closed=answer.closed)
    await ledger.write(mutations.doubt, run, mutation, doubt, trace, barrier=True)
    return None
