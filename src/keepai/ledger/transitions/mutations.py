"""The ledger of side effects: intent before the first byte, then what became known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.codec import size, stored
from ...model.fast_record import fast_record
from ...model.records import Mutation, Run, Traced
from ...model.states import AFTER_APPLIED, DOUBTFUL, MutationStatus, Phase
from ..account import as_facts, brief
from ..base import Row, Tx
from ..rows import mutation_record
from . import items, kept_bytes, parking, runs
from .runs import Prepared, Stop


@fast_record
@dataclass(frozen=True)
class Intent:
    """Exactly what is about to be sent."""

    mutation_key: str
    idempotency_key: str
    connector: str
    operation: str
    account: str
    target: str
    identity: str
    payload: str
    params: str
    subkey: str | None
    title: str | None
    preview: str
    deadline_at: int
    item_id: str | None = None  # in a routine: the item that it belongs to

    @property
    def bytes(self) -> int:
        """How much of the ledger it takes."""
        texts = (self.target, self.identity, self.payload, self.params, self.title, self.preview)
        return kept_bytes.ROW + sum([size(text) for text in texts])


@dataclass(frozen=True)
class Doubt:
    """What is to become of a mutation whose outcome is unknown."""

    becomes: MutationStatus
    why: Stop
    closed: bool = False
    attempts: int = 0  # how often the outside system has been asked
    evidence: str | None = None  # what it said that cannot be used as a result, as JSON


#: Characters of late evidence that the account tells. Of a longer text it has the hash; the mutation has the text.
EVIDENCE_MAX = 1_000

#: Outcome on record → what late evidence must say of `happened` to contradict it.
CONTRADICTED = {MutationStatus.FAILED: True, MutationStatus.SKIPPED: True, MutationStatus.APPLIED: False}


@dataclass(frozen=True)
class LateEvidence:
    """Something that became known of a mutation out of turn."""

    said: str  # in words, as JSON
    happened: bool | None = None  # None: it says neither
    result: str | None = None  # with which it happened, if that can be kept
    outcome: str | None = None  # the same, as `next` is given it, if there is one


def prepare_and_send(
    tx: Tx, run: Run, prepared: Prepared, trace: Sequence[Traced], intent: Intent,
) -> tuple[Run, Mutation | None, list[Row]]:
    """Pin what prepare decided and record the intent that follows from it, in one step. If somebody has changed
    something since the run began, the intent has to be decided anew: then pin only. Gives what is pinned as well."""
    run, pinned = runs.prepare(tx, run, prepared, trace, Phase.MUTATING)
    earlier = _earlier(tx, run, intent)
    if earlier["sequence"] != runs.last_number(run):
        return run, None, pinned
    mutation = _record(tx, run, intent, earlier)
    return runs.moved(run, bytes=run.bytes + intent.bytes), mutation, pinned  # counted with its outcome


def send(tx: Tx, run: Run, intent: Intent, trace: Sequence[Traced]) -> Mutation:
    """Record the intent; the caller may send only after this commit is on disk."""
    tx.count(run.workflow_id, 0, runs=intent.bytes + kept_bytes.of_trace(trace))
    parking.check_target(tx, run, intent.connector, intent.account, intent.target)
    mutation = _record(tx, run, intent, _earlier(tx, run, intent))
    runs.keep_trace(tx, run.workflow_id, trace)
    return mutation


def _earlier(tx: Tx, run: Run, intent: Intent) -> Row:
    """What was sent before."""
    return tx.row(
        "mutation_count", "counts are always there", workflow_id=run.workflow_id, run_id=run.id, lineage=run.lineage,
        item_id=intent.item_id, mutation_key=intent.mutation_key,
    )


def _record(tx: Tx, run: Run, intent: Intent, earlier: Row) -> Mutation:
    assert run.phase in AFTER_APPLIED, run
    if intent.item_id is not None:
        items.expect_executing(tx, run)
        items.expect_at_work(tx, run, intent.item_id)
    mutation = Mutation(
        id=tx.new_id("mut"), workflow_id=run.workflow_id, run_id=run.id, ordinal=earlier["ordinal"] + 1,
        lineage=run.lineage, mutation_key=intent.mutation_key, idempotency_key=intent.idempotency_key,
        connector=intent.connector, operation=intent.operation, account=intent.account, target=intent.target,
        params=stored(intent.params), title=intent.title, preview=intent.preview, status=MutationStatus.IN_FLIGHT,
        result=None, attempts=earlier["attempts"] + 1, sender=tx.host, epoch=tx.epoch, first_sent_at=tx.now,
        closed_at=None, doubted_at=None, reconcile_attempts=0, evidence=None, resolution=None, contradicted_at=None,
        error=None, item_id=intent.item_id, created_at=tx.now, updated_at=tx.now,
    )
    number = run.seq + 1 if intent.item_id is None else tx.tick(run.workflow_id)  # a consumer's run has taken both
    tx.run("mutation_insert", seq=number, now=tx.now, **{**vars(mutation), **vars(intent)})
    facts = as_facts({
        "run": run.id, "item": intent.item_id, "call": f"{intent.connector}.{intent.operation}",
        "account": intent.account, "target": intent.target, "idempotency_key": intent.idempotency_key,
    })
    tx.tell(run.workflow_id, "mutation", mutation.id, None, mutation.status,
            facts=f'{facts[:-1]},"params":{brief(intent.params)}}}')
    return mutation


def apply(tx: Tx, run: Run, mutation: Mutation, result: str, outcome: str | None, trace: Sequence[Traced]) -> Run:
    """It happened: the result is stored and the run goes on, in one step."""
    _move(tx, mutation, MutationStatus.APPLIED, result=result, closed=True)
    run = _got_further(tx, runs.moved(run, bytes=run.bytes + size(result)), mutation)
    if outcome is not None:  # a consumer's: what is left is to tell of it
        return runs.advance(tx, run, Phase.EMITTING, outcome, trace, through=Phase.MUTATED)
    return runs.advance(tx, run, AFTER_APPLIED[run.phase], None, trace)


def _got_further(tx: Tx, run: Run, mutation: Mutation) -> Run:
    """A routine counts failures in a row: an applied mutation ends the count, unless another item has failed."""
    if mutation.item_id is None or not tx.hits("run_progress", run_id=run.id, item_id=mutation.item_id):
        return run
    return runs.moved(run, failures=0)


def refuse(tx: Tx, run: Run, mutation: Mutation, why: Stop, trace: Sequence[Traced]) -> None:
    """It did not happen, and the outside system said so."""
    _move(tx, mutation, MutationStatus.FAILED, error=why.error, closed=True)
    runs.stop(tx, run, why, trace)


def doubt(tx: Tx, run: Run, mutation: Mutation, doubt: Doubt, trace: Sequence[Traced]) -> None:
    """Nobody knows whether it happened: the run waits, and nothing is sent again."""
    _doubt(tx, mutation, doubt)
    runs.stop(tx, run, doubt.why, trace)


def still_doubt(tx: Tx, run: Run, mutation: Mutation, doubt: Doubt, trace: Sequence[Traced] = ()) -> None:
    """The outside system was asked and could not tell."""
    _doubt(tx, mutation, doubt)
    if doubt.evidence is not None:
        _keep_evidence(tx, mutation, doubt.evidence, contradicts=False)
    runs.rest(tx, run, doubt.why)
    tx.count(run.workflow_id, 0, runs=kept_bytes.of_trace(trace) + size(doubt.evidence))
    runs.keep_trace(tx, run.workflow_id, trace)


def _doubt(tx: Tx, mutation: Mutation, doubt: Doubt) -> None:
    _move(
        tx, mutation, doubt.becomes, error=doubt.why.error, closed=doubt.closed,
        doubted_at=tx.now if mutation.doubted_at is None or doubt.attempts == 0 else None,
        reconcile_attempts=doubt.attempts,
    )


def confirm_applied(
    tx: Tx, run: Run, mutation: Mutation, result: str, outcome: str | None, resolution: str | None = None,
) -> Run:
    """It turned out to have happened: the run goes on in its place."""
    _move(tx, mutation, MutationStatus.APPLIED, result=result, resolution=resolution)
    tx.count(run.workflow_id, 0, runs=size(result) + size(outcome))
    run = _got_further(tx, run, mutation)
    return runs.resume(tx, run, AFTER_APPLIED[run.phase], outcome)


def confirm_absent(tx: Tx, run: Run, mutation: Mutation, why: Stop, resolution: str | None = None) -> None:
    """It is proven, or a person says, that it did not happen: the work is tried again."""
    _move(tx, mutation, MutationStatus.FAILED, error=why.error, resolution=resolution)
    runs.rest(tx, run, why)


def close(tx: Tx, mutation_id: str, evidence: LateEvidence) -> bool:
    """A call that was given up has ended after all: it is closed, and what it said is heard, by this host if it still
    runs the workflow, or otherwise by the one that does."""
    mutation = _get(tx, mutation_id)
    is_taken_over = mutation.status is not MutationStatus.IN_FLIGHT or mutation.epoch == tx.epoch
    if not is_taken_over or tx.one("workflow_here", workflow_id=mutation.workflow_id, epoch=tx.epoch) is None:
        happened = None if evidence.happened is None else int(evidence.happened)
        tx.run("late_mark_insert", mutation_id=mutation_id, epoch=tx.epoch, now=tx.now,
               **{**vars(evidence), "happened": happened})
        tx.run("nudge_insert", workflow_id=mutation.workflow_id)
        tx.one("nudge_others")
        return False
    tx.run("mutation_close", mutation_id=mutation_id, now=tx.now)
    return hear(tx, mutation_id, evidence)


def hear(tx: Tx, mutation_id: str, evidence: LateEvidence) -> bool:
    """Keep late evidence. True if it ended a doubt, so that the run goes on; it changes no outcome on record."""
    mutation = _get(tx, mutation_id)
    contradicts = evidence.happened is not None and CONTRADICTED.get(mutation.status) is evidence.happened
    _keep_evidence(tx, mutation, evidence.said, contradicts)
    if mutation.status in DOUBTFUL and evidence.result is not None:
        run = runs.get(tx, mutation.run_id)
        if mutation.status is MutationStatus.IN_FLIGHT:
            apply(tx, run, mutation, evidence.result, evidence.outcome, ())
        else:
            confirm_applied(tx, run, mutation, evidence.result, evidence.outcome)
        return True
    return False


def _keep_evidence(tx: Tx, mutation: Mutation, said: str, contradicts: bool) -> None:
    tx.run("mutation_evidence", mutation_id=mutation.id, evidence=said, contradicts=int(contradicts), now=tx.now)
    about, is_short = (mutation.workflow_id, "sign", mutation.id), len(said) <= EVIDENCE_MAX
    tx.tell(*about, None, "contradicts" if contradicts else "heard", said if is_short else None,
            facts=None if is_short else brief(said))


def close_dead(tx: Tx) -> None:
    """Nothing of the calls of hosts that are known to be dead can leave any more."""
    tx.run("mutation_close_dead", epoch=tx.epoch, now=tx.now)


def resolve(
    tx: Tx, mutation: Mutation, target: MutationStatus, resolution: str, result: str | None = None,
) -> None:
    """A person says what became of a mutation that nobody could verify."""
    _move(tx, mutation, target, result=result, resolution=resolution)


def _move(
    tx: Tx, mutation: Mutation, target: MutationStatus, *, result: str | None = None, error: str | None = None,
    closed: bool = False, resolution: str | None = None, doubted_at: int | None = None,
    reconcile_attempts: int | None = None,
) -> None:
    tx.expect(
        "mutation_move", f"mutation {mutation.id} is no longer {mutation.status}", mutation_id=mutation.id,
        source=mutation.status, target=target, result=result, error=error, resolution=resolution,
        closed_at=tx.now if closed else None, doubted_at=doubted_at, reconcile_attempts=reconcile_attempts, now=tx.now,
    )
    about = mutation.workflow_id, "mutation", mutation.id
    if target is mutation.status:
        if reconcile_attempts not in (None, mutation.reconcile_attempts):
            tx.tell(mutation.workflow_id, "reconcile", mutation.id, str(mutation.reconcile_attempts),
                    str(reconcile_attempts), facts=error)
    elif resolution is not None:
        tx.tell(*about, mutation.status, target, resolution)
    else:
        tx.tell(*about, mutation.status, target, facts=error if result is None else brief(result))


def _get(tx: Tx, mutation_id: str) -> Mutation:
    row = tx.one("mutation_by_id", mutation_id=mutation_id)
    assert row is not None, f"mutation {mutation_id} is never deleted"
    return mutation_record(row)
