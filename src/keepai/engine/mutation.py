"""One side effect, from the script's call to a recorded outcome.

The intent is on disk before the first byte leaves; what is sent is built from the recorded parameters
only. Whatever happens to the call, the ledger says afterwards: applied, failed, or nobody knows.
"""

from __future__ import annotations

import asyncio
import time

from ..connectors.base import OperationSpec
from ..ledger.transitions import mutations, runs
from ..ledger.transitions.mutations import Intent
from ..ledger.transitions.runs import Stop
from ..model import points
from ..model.codec import Json, digest, encode, sound, stored
from ..model.errors import KeepError, NeedsAttention, RuleBroken, Transient
from ..model.operations import Step
from ..model.permissions import Mode
from ..model.records import Approval, Mutation
from ..model.states import Phase
from ..runtime.base import Operation
from . import approval, failure, outside, reconcile
from .gate import check_allowed
from .outcome import applied
from .outside import Answer
from .parts import Parts
from .permission import Permissions
from .prepare_result import title_of
from .stepping import Stepper


async def perform(stepper: Stepper, operation: Operation) -> bool:
    """Check, record, send, record; True if it is applied and `next` may run."""
    parts = stepper.parts
    spec, params, subkey, must_ask = _checked(stepper, operation)
    intent = _intent(stepper, operation.name, spec, params, subkey)
    if await _applied_before(stepper, spec, intent):
        return True
    if must_ask:
        await approval.ask(stepper, intent)
        return False
    mutation = await parts.ledger.write(
        mutations.send, stepper.run, intent, stepper.trace.take(), barrier=True,
    )
    return await _record(stepper, mutation, await _call(stepper, spec, mutation))


async def _applied_before(stepper: Stepper, spec: OperationSpec, intent: Intent) -> bool:
    """Whether the ledger already has this for the same inputs and attempt; then its result is used, nothing is sent."""
    row = stepper.parts.ledger.read().one(
        "mutation_applied_by_key", workflow_id=stepper.run.workflow_id, mutation_key=intent.mutation_key,
    )
    if row is None:
        return False
    if spec.compare(stored(row["payload"]), stored(intent.payload)) == "significant":
        raise NeedsAttention(
            f"“{row['preview']}” was applied before for the same inputs ({row['id']}), and the script now wants "
            f"“{intent.preview}”. Nothing was sent. Skip the run to keep what was applied."
        )
    stepper.trace.warning(Step.MUTATE, f"{row['id']} has applied this before; its result is used and nothing is sent.")
    stepper.run = await stepper.parts.ledger.write(
        runs.advance, stepper.run, Phase.MUTATED, applied(row["result"]), stepper.trace.take(), barrier=True,
    )
    return True


async def perform_approved(stepper: Stepper, approved: Approval) -> bool:
    """Send what a person approved, from what was held; True if it is applied and `next` may run."""
    connector, _, operation = approved.capability.partition(".")
    spec = stepper.parts.connectors[connector].operations[operation]
    mutation = await approval.send(stepper, approved)
    return await _record(stepper, mutation, await _call(stepper, spec, mutation))


def _checked(stepper: Stepper, operation: Operation) -> tuple[OperationSpec, Json, str | None, bool]:
    """Everything that can be refused before anything is recorded or sent, and whether a person must be asked."""
    check_allowed(Step.MUTATE, operation, mutate_reads=False)
    connector, _, name = operation.name.partition(".")
    spec = stepper.parts.connectors[connector].operations[name]
    given = operation.args[0] if operation.args else None
    try:
        params, subkey = _without_subkey(given, operation.name)
        params = spec.parse(params)
        must_ask = Permissions(stepper.parts, stepper.run).check(operation.name, params, may_ask=True) is Mode.ASK
    except KeepError as error:
        error.at = error.at or operation.at
        raise
    return spec, params, subkey, must_ask


def _without_subkey(given: Json, name: str) -> tuple[Json, str | None]:
    if not isinstance(given, dict) or "subkey" not in given:
        return given, None
    subkey = given["subkey"]
    if not isinstance(subkey, str) or not subkey:
        raise RuleBroken(f"ctx.{name}: subkey must be a non-empty string, not {subkey!r}.")
    return {k: v for k, v in given.items() if k != "subkey"}, subkey


def _intent(stepper: Stepper, name: str, spec: OperationSpec, params: Json, subkey: str | None) -> Intent:
    run, parts = stepper.run, stepper.parts
    assert run.prepare_result is not None
    connector, _, operation = name.partition(".")
    identity, payload = encode(spec.identity(params)), encode(spec.payload(params))
    target = spec.target(params)
    unit = encode([[r["event_id"], r["attempt"]] for r in sorted(
        parts.ledger.read().all("reservation_of_run", workflow_id=run.workflow_id, run_id=run.id),
        key=lambda r: str(r["event_id"]),
    )])
    key = digest(run.workflow_id, unit, connector, operation, target, identity, subkey or "")
    return Intent(
        mutation_key=key, idempotency_key=_idempotency_key(stepper, key, payload), connector=connector,
        operation=operation, account=parts.connectors[connector].account, target=target, identity=identity,
        payload=payload, params=encode(params), subkey=subkey,
        title=title_of(run.prepare_result), preview=spec.preview(params),
        deadline_at=parts.clock.now_ms() + int(parts.policy.call_s * 1000),
    )


def _idempotency_key(stepper: Stepper, mutation_key: str, payload: str) -> str:
    """The same for every send of the same thing, unless the outside system itself refused it before."""
    row = stepper.parts.ledger.read().one(
        "mutation_refusals", workflow_id=stepper.run.workflow_id, lineage=stepper.run.lineage,
    )
    refusals = row["refusals"] if row else 0
    return digest(mutation_key, payload)[:40] + (f"-{refusals + 1}" if refusals else "")


async def _call(stepper: Stepper, spec: OperationSpec, mutation: Mutation) -> Answer:
    parts, name = stepper.parts, f"{mutation.connector}.{mutation.operation}"
    seconds, started = parts.policy.call_s, time.monotonic()
    call = outside.call_of(
        stepper.run, seconds, lambda text: stepper.trace.log(Step.MUTATE, mutation.connector, str(text)),
        attempt=mutation.attempts, idempotency_key=mutation.idempotency_key, lock_fd=parts.ledger.lock_fd,
    )
    points.reach("before:call")
    if time.monotonic() - started > seconds:  # the host was frozen between the record and the call
        return Answer(refused=Transient(f"{name} was not sent: the host stood still for too long before it could."))
    answer = await outside.mutate(
        spec, name, mutation.params, call, seconds, lambda pending: _watch(parts, mutation.id, pending),
    )
    points.reach("after:call")
    if answer.closed:
        parts.closures.seen(mutation.id, parts.clock.steady_ms())
    error = answer.refused or answer.unknown
    stepper.trace.call(
        Step.MUTATE, name, mutation.params, stored(answer.result) if answer.result is not None else None,
        error.message if error else None, int((time.monotonic() - started) * 1000),
    )
    return answer


async def _record(stepper: Stepper, mutation: Mutation, answer: Answer) -> bool:
    run, ledger, trace = stepper.run, stepper.parts.ledger, stepper.trace.take()
    if answer.result is not None:
        stepper.run = await ledger.write(
            mutations.apply, run, mutation, answer.result, applied(answer.result), trace, barrier=True,
        )
        return True
    if answer.refused is not None:
        await ledger.write(mutations.refuse, run, mutation, _stop(stepper, answer.refused), trace, barrier=True)
        return False
    assert answer.unknown is not None
    doubt = reconcile.doubt(stepper.parts, run, mutation, answer.unknown, closed=answer.closed)
    await ledger.write(mutations.doubt, run, mutation, doubt, trace, barrier=True)
    return False


def _stop(stepper: Stepper, error: KeepError) -> Stop:
    parts = stepper.parts
    return failure.stop(error, stepper.run, Step.MUTATE, parts.policy, parts.clock.now_ms())


def _watch(parts: Parts, mutation_id: str, pending: outside.Pending) -> None:
    """A call that was given up but goes on: when it ends it is closed, and what it said is evidence."""

    async def close() -> None:
        await asyncio.wait({pending})
        parts.closures.seen(mutation_id, parts.clock.steady_ms())
        said = encode({"ended_late": sound(outside.said_late(pending))})
        await parts.ledger.write(mutations.close, mutation_id, said)

    watching = asyncio.get_running_loop().create_task(close())
    parts.calls.add(watching)
    watching.add_done_callback(parts.calls.discard)
