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
from ..ledger.transitions.runs import Stop
from ..model import crash_points
from ..model.codec import Json, canonical, digest, shown, stored, text_of
from ..model.errors import KeepError, LimitExceeded, NeedsAttention, RuleBroken, Transient
from ..model.fast_record import fast_record
from ..model.operations import Step
from ..model.permissions import Judged, Mode
from ..model.records import Approval, Mutation, Run
from ..model.states import AFTER_APPLIED, MutationStatus
from ..runtime.base import Operation
from . import approval, failure, late_evidence, outside, put_back, reconcile
from .gate import check_allowed
from .outcome import outcome_of
from .outside import Answer
from .parts import Parts
from .permission import Permissions
from .stepping import Stepper


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


async def perform(stepper: Stepper, operation: Operation, unit: Unit) -> str | None:
    """Check, record, send, record; the result as it is kept, or None if the run has to wait."""
    parts, run = stepper.parts, stepper.run
    wanted = _wanted(stepper, operation, unit.step)
    intent, earlier = _intent(parts, parts.ledger.read(), run, wanted, unit)
    before = await _applied_before(stepper, wanted.spec, intent, earlier, unit.step)
    if before is not None:
        return before
    _count(stepper, operation)
    judged = _judged(parts, parts.ledger.read(), run, wanted)
    if judged.mode is Mode.ASK:
        await approval.ask(stepper, intent, judged.because)
        return None
    mutation = await parts.ledger.write(mutations.send, run, intent, stepper.trace.take(), barrier=True)
    return await complete(stepper, mutation, unit.step)


def _count(stepper: Stepper, operation: Operation) -> None:
    """What is answered from the ledger does not count: a replay gets as far as it likes."""
    stepper.sends += 1
    limit = stepper.parts.policy.script_calls_max
    if stepper.sends > limit:
        raise LimitExceeded(
            f"This run wants to send more than {limit:,} mutations, the limit. Spread them over runs.", at=operation.at,
        )


async def complete(stepper: Stepper, mutation: Mutation, step: Step) -> str | None:
    """Send what is on record, and record what came of it."""
    parts = stepper.parts
    spec = parts.connectors[mutation.connector].operations[mutation.operation]
    known = None
    if mutation.workflow_id in parts.put_back:
        known = await put_back.look_up(parts, stepper.run, spec, mutation)
    return await _record(stepper, mutation, known or await _call(stepper, spec, mutation, step))


def plain_intent(stepper: Stepper, operation: Operation, unit: Unit) -> Intent | None:
    """The intent of a call that can be recorded together with what it follows from; None if that is no plain matter.

    Then nothing is lost: it is looked at once more when that is done, and whatever is wrong with it is said. What it
    relies on was read since the run began; if anybody has changed something since, it is not recorded."""
    parts, read, run = stepper.parts, stepper.parts.ledger.read(), stepper.run
    try:
        wanted = _wanted(stepper, operation, Step.MUTATE)
        intent, earlier = _intent(parts, read, run, wanted, unit)
        if any(row["status"] == MutationStatus.APPLIED for row in earlier):
            return None
        judged = stepper.permissions.check(operation.name, wanted.params, may_ask=True)
        return None if judged.mode is Mode.ASK else intent
    except KeepError:
        return None


async def _applied_before(
    stepper: Stepper, spec: OperationSpec, intent: Intent, earlier: list[Row], step: Step,
) -> str | None:
    """The result that the ledger already has for the same unit; then nothing is sent."""
    row = next((r for r in earlier if r["status"] == MutationStatus.APPLIED), None)
    if row is None:
        return None
    _check_content(spec, row, intent)
    stepper.trace.warning(step, f"{row['id']} has applied this before; its result is used and nothing is sent.")
    outcome = outcome_of(stepper.run, row["result"])
    if outcome is not None:
        stepper.run = await stepper.parts.ledger.write(
            runs.advance, stepper.run, AFTER_APPLIED[stepper.run.phase], outcome, stepper.trace.take(), barrier=True,
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


async def perform_approved(stepper: Stepper, approved: Approval) -> str | None:
    """Send what a person approved, from what was held; the result as it is kept, or None if the run has to wait."""
    mutation = await approval.send(stepper, approved)
    return await complete(stepper, mutation, Step.ROUTINE if mutation.item_id else Step.MUTATE)


def _wanted(stepper: Stepper, operation: Operation, step: Step) -> Wanted:
    """A call whose parameters fit its operation, or an error that names its place."""
    check_allowed(step, operation, mutate_reads=False)
    connector, _, name = operation.name.partition(".")
    spec = stepper.parts.connectors[connector].operations[name]
    given, subkey = operation.args[0] if operation.args else None, None
    try:
        if isinstance(given, dict) and "subkey" in given:
            named = given["subkey"]
            if not isinstance(named, str) or not named:
                raise RuleBroken(f"ctx.{operation.name}: subkey must be a non-empty string, not {shown(named)}.")
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


def _judged(parts: Parts, read: Reader, run: Run, wanted: Wanted) -> Judged:
    """Whether a person must see this call first, and by which rule; one that nobody allowed is refused."""
    try:
        now = Permissions(parts, run, read)  # as a person has it at this moment
        return now.check(wanted.operation.name, wanted.params, may_ask=True)
    except KeepError as error:
        error.at = error.at or wanted.operation.at
        raise


def _intent(parts: Parts, read: Reader, run: Run, wanted: Wanted, unit: Unit) -> tuple[Intent, list[Row]]:
    """What is about to be sent, and what the ledger has of the same thing for the same unit."""
    connector, _, operation = wanted.operation.name.partition(".")
    target, identity, payload, subkey = wanted.target, wanted.identity, wanted.payload, wanted.subkey
    key = digest(run.workflow_id, unit.key, connector, operation, target, identity, subkey or "")
    earlier = read.all("mutation_same", workflow_id=run.workflow_id, mutation_key=key)
    refusals = sum([
        r["status"] == MutationStatus.FAILED and r["resolution"] is None and r["doubted_at"] is None for r in earlier
    ])
    # The same for every send of the same thing, unless the outside system itself refused it before.
    sent_as = digest(key, payload)[:40] + (f"-{refusals + 1}" if refusals else "")
    return Intent(
        mutation_key=key, idempotency_key=sent_as, connector=connector,
        operation=operation, account=parts.connectors[connector].account, target=target, identity=identity,
        payload=payload, params=text_of(wanted.params), subkey=subkey, title=unit.title, preview=wanted.preview,
        deadline_at=parts.clock.now_ms() + int(parts.policy.call_s * 1000), item_id=unit.item_id,
    ), earlier


async def _call(stepper: Stepper, spec: OperationSpec, mutation: Mutation, step: Step) -> Answer:
    parts, name = stepper.parts, f"{mutation.connector}.{mutation.operation}"
    seconds, started = parts.policy.call_s, time.monotonic()
    call = outside.call_of(
        stepper.run, seconds, lambda text: stepper.trace.log(step, mutation.connector, str(text)),
        attempt=mutation.attempts, idempotency_key=mutation.idempotency_key, lock_fd=parts.ledger.lock_fd,
    )
    crash_points.reach("before:call")
    if time.monotonic() - started > seconds:  # the host was frozen between the record and the call
        return Answer(refused=Transient(f"{name} was not sent: the host stood still for too long before it could."))
    parts.ledger.check()  # another host may have declared this one dead
    answer = await outside.mutate(
        spec, name, mutation.params, call, seconds, lambda pending: late_evidence.watch_call(parts, mutation, pending),
    )
    crash_points.reach("after:call")
    if answer.closed:
        parts.call_ends.seen(mutation.id, parts.clock.steady_ms())
    error = answer.refused or answer.unknown
    stepper.trace.call(
        step, name, text_of(mutation.params), answer.result, error.message if error else None,
        int((time.monotonic() - started) * 1000),
    )
    return answer


async def _record(stepper: Stepper, mutation: Mutation, answer: Answer) -> str | None:
    run, ledger, trace = stepper.run, stepper.parts.ledger, stepper.trace.take()
    if answer.result is not None:
        outcome = outcome_of(run, answer.result)
        stepper.run = await ledger.write(mutations.apply, run, mutation, answer.result, outcome, trace, barrier=True)
        stepper.parts.call_ends.forget(mutation.id)
        return answer.result
    if answer.refused is not None:
        await ledger.write(mutations.refuse, run, mutation, _stop(stepper, answer.refused), trace, barrier=True)
        stepper.parts.call_ends.forget(mutation.id)
        return None
    assert answer.unknown is not None
    doubt = reconcile.doubt(stepper.parts, run, mutation, answer.unknown, closed=answer.closed)
    await ledger.write(mutations.doubt, run, mutation, doubt, trace, barrier=True)
    return None


def _stop(stepper: Stepper, error: KeepError) -> Stop:
    parts = stepper.parts
    return failure.stop(error, stepper.run, stepper.at or Step.MUTATE, parts.policy, parts.clock.now_ms())
