"""Finding out what became of a mutation whose outcome is unknown.

The outside system is asked at once and then again with backoff. "It happened" counts whenever it is said.
"It did not happen" counts only when the call is closed, so that nothing of it can leave this host any
more, and the connector's settle time has passed since; before that the request may still land. What
cannot be found out becomes a question to a person.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..connectors.base import OperationSpec, Verdict
from ..ledger.rows import mutation_record, run_record
from ..ledger.transitions import mutations
from ..ledger.transitions.mutations import Doubt
from ..model.codec import digest, encode
from ..model.errors import Conflict, KeepError, NoLookUp, OutcomeUnknown, SenderNotDead, Transient
from ..model.operations import Step
from ..model.records import Mutation, Run
from ..model.states import MutationStatus
from . import failure, late_evidence, outside
from .host_parts import Parts
from .outcome import outcome_of
from .trace import Trace

_NO_CONNECTOR = "no connector is configured for the account that it was sent with"


async def withdraw(parts: Parts, workflow_ids: Collection[str] | None = None) -> None:
    """Look up again what is in question only because a connector was missing that is there now, or because a host was
    not known to be dead whose call has ended by now. In these workflows, or in all."""
    for row in await parts.ledger.all("mutation_in_question"):
        mutation = mutation_record(row)
        back = _answered(mutation) if workflow_ids is None or mutation.workflow_id in workflow_ids else None
        spec = spec_of(parts, mutation) if back else None
        if back is not None and spec is not None and spec.can_reconcile:
            found = await parts.ledger.one("run_by_id", run_id=mutation.run_id)
            assert found is not None, f"{mutation.run_id} is never deleted"
            run, told = run_record(found), OutcomeUnknown(f"{back}, and is asked what became of “{mutation.preview}”.")
            again = doubt(parts, run, mutation, told, closed=False)
            await parts.ledger.write(mutations.still_doubt, run, mutation, again)


def _answered(mutation: Mutation) -> str | None:
    """What has changed since a person was asked, if only that kept the question open; its connector must be there."""
    name, error = f"{mutation.connector}.{mutation.operation}", mutation.error
    if error is None or error.evidence is None:
        return None
    if error.code != SenderNotDead.code:
        return f"{name} is configured again"
    return f"The call has ended: {name} can tell now" if mutation.closed_at is not None else None


def doubt(parts: Parts, run: Run, mutation: Mutation, why: KeepError, *, closed: bool) -> Doubt:
    """What an unknown outcome becomes: to be reconciled at once, or a question to a person."""
    spec = spec_of(parts, mutation)
    if spec is None:
        why = NoLookUp(f"{why.message.rstrip('.')}; {_NO_CONNECTOR}.", f"{mutation.connector}.{mutation.operation}")
    stop = failure.stop(_as_unknown(why), run, Step.MUTATE, parts.policy, parts.clock.now_ms())
    if spec is None or not spec.can_reconcile:
        return Doubt(MutationStatus.INDETERMINATE, stop, closed)
    return Doubt(MutationStatus.NEEDS_RECONCILE, failure.until(stop, parts.clock.now_ms()), closed)


async def attempt(parts: Parts, run: Run, mutation: Mutation) -> None:
    """Ask the outside system once, and record what it says; the next look at the workflow goes on from there."""
    spec = spec_of(parts, mutation)
    # Measured before asking: "it is not there" proves absence only if the question came after the settle time.
    left = parts.call_ends.settled(mutation, settle_s(parts, spec), parts.clock.steady_ms()) if spec else None
    verdict = await ask(parts, run, spec, mutation, proves=left == 0) if spec else Verdict.unknown(_NO_CONNECTOR)
    try:
        await _believe(parts, run, mutation, verdict, left)
    except Conflict:  # somebody was quicker: what was found out must not be lost
        await late_evidence.hear(parts, mutation, verdict, proves=left == 0)
        raise


async def _believe(parts: Parts, run: Run, mutation: Mutation, verdict: Verdict, left: int | None) -> None:
    """Record what a verdict means; `left` are the milliseconds for which the request might still have arrived."""
    if verdict.status == "applied":
        await _found(parts, run, mutation, verdict.result)
    elif verdict.status == "failed" and late_evidence.was_found(mutation):
        await _ask_person(parts, run, mutation, "the outside system found it before, and does not find it now")
    elif verdict.status == "failed" and left == 0:
        await _absent(parts, run, mutation)
    elif verdict.status == "failed":
        await _again(parts, run, mutation, left, "It is not there yet, but may still arrive")
    elif verdict.status == "unknown":
        await _ask_person(parts, run, mutation, verdict.why or "the outside system cannot tell")
    else:
        after = None if verdict.after is None else int(min(verdict.after, parts.policy.reconcile_total_s) * 1000)
        why = verdict.why or "The outside system could not tell yet"
        await _again(parts, run, mutation, after, why, late_evidence.of_found(verdict) if verdict.found else None)


async def ask(parts: Parts, run: Run, spec: OperationSpec, mutation: Mutation, *, proves: bool) -> Verdict:
    """What the outside system says. In a ledger that was put back, it may have been sent before the record says, and
    under a further key, if the outside had refused it before: each is asked for until one is not absent."""
    seconds, back = parts.policy.reconcile_s, parts.put_back.get(mutation.workflow_id)
    keys = [mutation.idempotency_key]
    if back:
        keys += [key_of_try(keys[0], tried) for tried in range(2, parts.policy.retries_max + 2)]
    for key in dict.fromkeys(keys):
        call = outside.call_of(
            run, seconds, lambda text: None, attempt=mutation.attempts, idempotency_key=key,
            lock_fd=parts.ledger.lock_fd,
            since_ms=min(mutation.first_sent_at, back["since_at"]) if back else mutation.first_sent_at,
        )
        verdict = await outside.reconcile(
            spec, f"{mutation.connector}.{mutation.operation}", mutation.params, call, seconds,
            lambda question: late_evidence.watch_question(parts, mutation, question, proves=proves),
        )
        if verdict.status != "failed":
            break
    return verdict


def key_of_try(key: str, tried: int) -> str:
    """The key under which a thing is sent when it was refused before: for the second time with -2 at its end."""
    first = key.partition("-")[0]
    return first if tried == 1 else f"{first}-{tried}"


async def _found(parts: Parts, run: Run, mutation: Mutation, result: object) -> None:
    text = encode(result, what="the reconciled result")
    await parts.ledger.write(mutations.confirm_applied, run, mutation, text, outcome_of(run, text), barrier=True)
    parts.call_ends.forget(mutation.id)


async def _absent(parts: Parts, run: Run, mutation: Mutation) -> None:
    proven = Transient(f"“{mutation.preview}” did not happen: the outside system has no trace of it.")
    why = failure.stop(proven, run, Step.MUTATE, parts.policy, parts.clock.now_ms())
    await parts.ledger.write(mutations.confirm_absent, run, mutation, why, barrier=True)
    parts.call_ends.forget(mutation.id)


async def _again(
    parts: Parts, run: Run, mutation: Mutation, after_ms: int | None, why: str, found: str | None = None,
) -> None:
    """Ask later, or a person if it was asked often enough; what was `found` without a usable result is kept."""
    policy, now = parts.policy, parts.clock.now_ms()
    attempts = mutation.reconcile_attempts + 1
    begun = mutation.doubted_at or now
    if mutation.closed_at is None and mutation.epoch != parts.ledger.epoch and now - begun >= policy.call_s * 1000:
        await _ask_person(parts, run, mutation, "the host that sent it is not known to be dead", attempts, found)
        return
    if attempts >= policy.reconciles_max or now - begun >= policy.reconcile_total_s * 1000:
        await _ask_person(parts, run, mutation, f"{why}; it was asked {attempts} times", attempts, found)
        return
    wait = int(min(policy.reconcile_first_s * 2 ** (attempts - 1), policy.reconcile_longest_s) * 1000)
    wait -= int(wait * _JITTER * _spread(mutation.id, attempts))
    stop = failure.stop(OutcomeUnknown(f"{why}."), run, Step.MUTATE, policy, now)
    await _keep_doubt(parts, run, mutation, Doubt(
        MutationStatus.NEEDS_RECONCILE, failure.until(stop, now + (after_ms or wait)), attempts=attempts,
        evidence=found,
    ), why, barrier=found is not None)


async def _keep_doubt(parts: Parts, run: Run, mutation: Mutation, doubt: Doubt, why: str, *, barrier: bool) -> None:
    """Record that nothing is known yet; what was found without a usable result is kept once, with a warning."""
    if doubt.evidence is None or doubt.evidence in (mutation.evidence or ""):
        await parts.ledger.write(mutations.still_doubt, run, mutation, replace(doubt, evidence=None), barrier=barrier)
        return
    last = await parts.ledger.one("trace_last", workflow_id=run.workflow_id, run_id=run.id)
    trace = Trace(
        run.id, parts.clock, parts.policy.trace_bytes_max, int(last["position"]) if last else 0, parts.redactor,
    )
    trace.warning(Step.MUTATE, f"{mutation.id}: {why}. What it returned is kept as evidence, and is not used.")
    await parts.ledger.write(mutations.still_doubt, run, mutation, doubt, trace.take(), barrier=barrier)


async def _ask_person(
    parts: Parts, run: Run, mutation: Mutation, why: str, attempts: int = 0, found: str | None = None,
) -> None:
    told = f"Nobody can tell whether “{mutation.preview}” happened: {why.rstrip('.')}."
    unknown = OutcomeUnknown(told)
    if spec_of(parts, mutation) is None:
        unknown = NoLookUp(told, f"{mutation.connector}.{mutation.operation}")
    elif mutation.closed_at is None and mutation.epoch != parts.ledger.epoch:
        unknown = SenderNotDead(
            f"{told} Host {mutation.sender} was cut off while it sent this, and may still send it. If it is dead, say "
            f"`keep host dead {mutation.sender}`; if it lives, wait until it is back.", mutation.sender)
    stop = failure.stop(unknown, run, Step.MUTATE, parts.policy, parts.clock.now_ms())
    attempts = attempts or mutation.reconcile_attempts + 1
    doubt = Doubt(MutationStatus.INDETERMINATE, stop, attempts=attempts, evidence=found)
    await _keep_doubt(parts, run, mutation, doubt, why, barrier=True)


#: By how much of the wait a question may come sooner, so that many of them do not come at once.
_JITTER = 0.1


def _spread(mutation_id: str, attempts: int) -> float:
    """A number from 0 to 1 that differs between mutations and attempts, and is the same when it is asked for again."""
    return int(digest(mutation_id, str(attempts))[:8], 16) / 0xFFFFFFFF


def spec_of(parts: Parts, mutation: Mutation) -> OperationSpec | None:
    """The operation that a mutation was sent with, if its connector still stands for the same account."""
    connector = parts.connectors.get(mutation.connector)
    if connector is None or connector.account != mutation.account:
        return None
    return connector.operations.get(mutation.operation)


def settle_s(parts: Parts, spec: OperationSpec) -> float:
    """How long after closure an effect may still show."""
    return parts.policy.settle_s if spec.settle_s is None else spec.settle_s


def _as_unknown(why: KeepError) -> KeepError:
    return why if isinstance(why, OutcomeUnknown) else OutcomeUnknown(why.message)


