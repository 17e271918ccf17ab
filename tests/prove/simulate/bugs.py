"""Faults to plant: each is switched on by name, and the schedules must find every one of them.

A suite that finds nothing proves only that it looked; these say what it would have seen. `seeds_literally` is the
sentence of the oldest text, "if reconcile finds nothing → failed", taken at its word. That what was applied can be
skipped is looked for in tests/explore, which reaches it in every way: here hardly any schedule comes by.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from keepai import Verdict, app
from keepai.engine import (
    commands,
    consumer_run,
    failure,
    holds,
    host,
    mutation,
    next_step,
    outside,
    producer_run,
    reconcile,
    recovery,
    relaunch,
    routine_run,
    run_context,
    runner,
    scheduler,
)
from keepai.engine.call_ends import CallEnds
from keepai.ledger import queries
from keepai.ledger.sqlite import connection
from keepai.ledger.sqlite.lock import HostLock
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.ledger.transitions import events, items, mutations, parking, runs, shown_acts
from keepai.model.codec import encode
from keepai.model.errors import OutcomeUnknown, RuleBroken, Transient
from keepai.model.operations import Step
from keepai.model.permissions import Mode
from keepai.model.records import Run
from keepai.model.states import ItemStatus, MutationStatus, Phase
from keepai.reading import questions, views
from tests.prove.simulate.memory import Patch, replaced


def _is(value: Any) -> Callable[..., Any]:
    """A function that always gives the same."""
    return lambda *args, **kwargs: value


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Done in appearance only."""


# -- what is known of a call -------------------------------------------------------------------------

_mutate = outside.mutate
_answer = outside._answer
_reconcile = outside.reconcile
_settled = CallEnds.settled
_believe = reconcile._believe
_doubt = reconcile.doubt


async def _timeout_is_failure(*args: Any) -> Any:
    answer = await _mutate(*args)
    return replace(answer, unknown=None, refused=Transient("Timed out.")) if answer.unknown else answer


def _odd_is_failure(task: Any, name: str) -> Any:
    error = task.exception()
    if isinstance(error, ValueError):
        return outside.Answer(refused=Transient(str(error)))
    return _answer(task, name)


def _unclosed_counts(self: CallEnds, mutation_: Any, settle_s: float, steady_ms: int) -> int | None:
    return _settled(self, replace(mutation_, closed_at=mutation_.closed_at or 1), settle_s, steady_ms)


def _blind_is_failure(parts: Any, run: Any, mutation_: Any, why: Any, *, closed: bool) -> Any:
    doubt = _doubt(parts, run, mutation_, why, closed=closed)
    return replace(doubt, becomes=MutationStatus.NEEDS_RECONCILE, why=failure.until(doubt.why, 0))


async def _says(status: str, *args: Any) -> Any:
    verdict = await _reconcile(*args)
    return Verdict("failed") if verdict.status == status else verdict


async def _stale_answer(parts: Any, run: Any, mutation_: Any, verdict: Any, left: int | None) -> Any:
    """Judge by the moment of the answer, not of the question."""
    spec = reconcile.spec_of(parts, mutation_)
    if spec is not None:
        left = parts.call_ends.settled(mutation_, reconcile.settle_s(parts, spec), parts.clock.steady_ms())
    return await _believe(parts, run, mutation_, verdict, left)


# -- when it is recorded -----------------------------------------------------------------------------


async def _record_after_call(context: Any, operation: Any, unit: Any) -> str | None:
    """Call first, write down afterwards."""
    parts, run = context.parts, context.run
    wanted = mutation.checked_call(context, operation, unit.step)
    decision = await parts.ledger.look(mutation._decide, context, wanted, unit)
    intent = decision.intent
    if decision.applied is not None:
        return await mutation._use_applied(context, decision.applied, wanted.spec, intent, unit.step)
    if decision.judged.mode is Mode.ASK:
        await mutation.approval.ask(context, intent, decision.judged.because)
        return None
    answer = await _called(run, wanted.spec, operation.name, wanted.params, intent.idempotency_key)
    row = await parts.ledger.write(mutations.send, run, intent, [], barrier=True)
    return await mutation._record(context, row, answer)


async def _called(run: Any, spec: Any, name: str, params: Any, key: str) -> Any:
    call = outside.call_of(run, 10.0, _nothing, idempotency_key=key)
    return await _mutate(spec, name, params, call, 10.0, _nothing)


class _Rehearsed(Exception):
    """What a verb would have written: it carries the row, and nothing is kept."""


def _rehearse(tx: Any, *args: Any) -> None:
    raise _Rehearsed(mutations.prepare_and_send(tx, *args)[1])


class _CallFirst:
    """A run's ledger that makes the call before it pins anything of it, where one commit records both."""

    def __init__(self, context: Any) -> None:
        self._context, self._ledger = context, context.parts.ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def write(self, verb: Any, *args: Any, **kwargs: Any) -> Any:
        if verb is mutations.prepare_and_send:
            self._context.answer = await self._answer(args)
        return await self._ledger.write(verb, *args, **kwargs)

    async def _answer(self, args: Any) -> Any:
        try:
            await self._ledger.write(_rehearse, *args)
        except _Rehearsed as seen:
            [sent] = seen.args
        if sent is None:
            return None
        spec = reconcile.spec_of(self._context.parts, sent)
        return await _called(
            self._context.run, spec, f"{sent.connector}.{sent.operation}", sent.params, sent.idempotency_key)


_prepare = consumer_run._prepare
_complete = mutation.complete


async def _prepare_after_call(context: Any) -> Any:
    parts = context.parts
    context.parts = replace(parts, ledger=_CallFirst(context))
    try:
        return await _prepare(context)
    finally:
        context.parts = parts


async def _complete_as_answered(context: Any, mutation_: Any, step: Any) -> str | None:
    answer = getattr(context, "answer", None)
    return await (mutation._record(context, mutation_, answer) if answer else _complete(context, mutation_, step))


_PINNED_AFTER_CALL: tuple[Patch, ...] = (
    (consumer_run, "_prepare", _prepare_after_call), (mutation, "complete", _complete_as_answered))


async def _unchecked(context: Any, operation: Any, unit: Any) -> Any:
    """A call that came with the PrepareResult leaves, whether or not a person must see it or it was made before."""
    wanted = mutation.checked_call(context, operation, mutation.Step.MUTATE)
    return mutation._intent(context.parts, context.run, wanted, unit, refusals=0)


_write = SqliteLedger.write


def _relaxed(*verbs: str) -> Any:
    """What these write is committed, and not waited for until it is on disk."""
    async def write(self: SqliteLedger, verb: Any, *args: Any, barrier: bool = False, **kwargs: Any) -> Any:
        return await _write(self, verb, *args, barrier=barrier and verb.__name__ not in verbs, **kwargs)
    return write


async def _outcome_in_two(context: Any, mutation_: Any, answer: Any) -> str | None:
    """First the row, then the run: two transactions where one belongs."""
    if answer.result is None:
        return await _record(context, mutation_, answer)
    ledger, run = context.parts.ledger, context.run
    await ledger.write(_only_applied, mutation_, answer.result)
    context.run = await ledger.write(
        runs.advance, run, mutation.AFTER_APPLIED[run.phase], mutation.outcome_of(run, answer.result), [])
    return str(answer.result)


def _only_applied(tx: Any, mutation_: Any, result: str) -> None:
    mutations._move(tx, mutation_, MutationStatus.APPLIED, result=result, closed=True)


_record = mutation._record


async def _commit_in_two(context: Any) -> None:
    """First what it brought, then that it is done."""
    parts, run = context.parts, context.run
    ended, gate = await context.step(producer_run.Step.PRODUCER, (context.state,))
    state = producer_run.kept_state(parts, ended.value, context.handler.name)
    await parts.ledger.write(_keep_state, run, state)
    await parts.ledger.write(
        runs.commit_producer, run, tuple(gate.gathered.inputs.values()), tuple(gate.gathered.publications.values()),
        None, await producer_run.next_run_at(context), [],
    )


def _keep_state(tx: Any, run: Any, state: str | None) -> None:
    if state is not None:
        tx.run("handler_store", workflow_id=run.workflow_id, handler=run.handler, state=state, now=tx.now)


_commit_consumer = runs.commit_consumer


def _first_cause(tx: Any, run: Any, end: Any, *follow: Any) -> Any:
    class First:
        def __getattr__(self, name: str) -> Any:
            return getattr(tx, name)

        def ask_early(self, query: str, **params: Any) -> Any:
            rows = tx.ask_early(query, **params)
            return (lambda: rows()[:1]) if query == "cause_of_run" else rows

    return _commit_consumer(First(), run, end, *follow)


_hold = events._hold


def _hold_and_tie(tx: Any, event: Any, run_id: str, entry: Any, revisions_max: int) -> None:
    """What is published over an event that has ended is behind what was done for it before, too."""
    _hold(tx, event, run_id, entry, revisions_max)
    events._tie(tx, event["workflow_id"], event["id"], entry.causes, event["attempt"], event["revision"])


# -- who goes on, and from where ---------------------------------------------------------------------

_carry = relaunch.carry


def _new_version_keeps(run: Any, mutation: Any, active: Any, leaves: Any, trigger: str, failures: int = 0) -> Any:
    how = _carry(run, mutation, active, leaves, trigger, failures)
    stale = how is not None and how.phase is Phase.PREPARING and run.phase is not Phase.PREPARING
    return replace(how, keep=True) if stale else how


def _never_counted(run: Any, mutation: Any, active: Any, leaves: Any, trigger: str, failures: int = 0) -> Any:
    return _carry(run, mutation, active, leaves, trigger)


def _retry_never(error: Any, run: Any, step: Any, policy: Any, now: int, *item: Any) -> Any:
    return replace(_stop(error, run, step, policy, now, *item), retry_at=None)


_stop = failure.stop


def _doubt_resets(error: Any, run: Any, step: Any, policy: Any, now: int, *item: Any) -> Any:
    """Only refusals in a row count: an unknown outcome in between begins the count anew."""
    why = _stop(error, run, step, policy, now, *item)
    return replace(why, failures=0) if isinstance(error, OutcomeUnknown) else why


async def _no_recovery(*args: Any) -> int:
    return 0


def _without_attempt(value: Any) -> str:
    """An item's key without its attempt."""
    return encode(value[:2] if isinstance(value, list) and value[:1] == ["item"] else value)


_take_over = recovery._take_over


async def _guess(parts: Any, run: Run) -> None:
    """A dead host's call did not happen."""
    found = await parts.ledger.look(relaunch.in_flight, run)
    if found is None:
        await _take_over(parts, run)
        return
    adopted = await parts.ledger.write(runs.adopt, run)
    step = Step.ROUTINE if run.kind == "routine" else Step.MUTATE
    why = failure.stop(Transient("The host died."), adopted, step, parts.policy, parts.clock.now_ms())
    await parts.ledger.write(mutations.refuse, adopted, found, why, [])


_key = mutation.key_of
_fixed_by_item = routine_run._fixed_by_item
_stop_item = items.stop


def _keyed_by_run(run: Run, wanted: Any, unit: mutation.Unit) -> str:
    return _key(run, wanted, replace(unit, key=unit.key + run.id))


def _keyed_by_text(run: Run, wanted: Any, unit: mutation.Unit) -> str:
    return _key(run, replace(wanted, subkey=wanted.params.get("text")), unit)


async def _forgotten(*args: Any) -> str:
    return '{"id":"forgotten"}'


_kind = questions._kind


def _without_exhausted(run: Any, mutation_: Any) -> Any:
    kind = _kind(run, mutation_)
    return None if kind == "exhausted" else kind


_known = app.Keep.known


def _all_settled(self: app.Keep, mutation_: Any) -> Any:
    return replace(_known(self, mutation_), settled=True, settles_at=0)


def _unlocked(self: HostLock, ledger: Any) -> None:
    self._ledger, self.path = ledger, ledger.with_name(ledger.name + ".lock")
    self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _statement(name: str, old: str, new: str) -> Patch:
    return _statements({name: (old, new)})


def _statements(changed: Mapping[str, tuple[str, str]]) -> Patch:
    texts = dict(queries.load())
    for name, (old, new) in changed.items():
        assert old in texts[name], f"{name} has changed: {old!r} is not in it"
        texts[name] = texts[name].replace(old, new)
    return (connection, "load", _is(texts))


#: Name → what to replace by what. `load` is cached by whoever opens a file, so statements change with the next host.
BUGS: Mapping[str, Callable[[], list[Patch]]] = {
    # An unknown outcome taken for a failure.
    "seeds_literally": lambda: [(CallEnds, "settled", _is(0))],
    "timeout_is_failure": lambda: [(outside, "mutate", _timeout_is_failure)],
    "odd_error_is_failure": lambda: [(outside, "_answer", _odd_is_failure)],
    "no_settle": lambda: [(reconcile, "settle_s", _is(0.0))],
    "no_closure": lambda: [(CallEnds, "settled", _unclosed_counts)],
    "stale_answer_counts": lambda: [(reconcile, "_believe", _stale_answer)],
    "unknown_is_failure": lambda: [
        (outside, "reconcile", lambda *a: _says("unknown", *a)), (CallEnds, "settled", _is(0))],
    "retry_is_failure": lambda: [(outside, "reconcile", lambda *a: _says("retry", *a)), (CallEnds, "settled", _is(0))],
    "crash_is_failure": lambda: [(each, "in_flight", _is(None)) for each in (run_context, runner, recovery)],
    # People.
    "did_not_happen_too_early": lambda: [
        (host.Host, "check_settled", _nothing), (app.Keep, "known", _all_settled)],
    "exhausted_asks_nobody": lambda: [(questions, "_kind", _without_exhausted)],
    "approval_asks_nobody": lambda: [(questions, "_PERSON_KINDS", {}), (questions, "ACTIONS", {
        **questions.ACTIONS, "attention": ()})],
    "act_without_version_check": lambda: [(shown_acts, "judge", _nothing)],
    "skip_during_prepare_fails_the_run": lambda: [(events, "Overtaken", lambda said, event_id: RuleBroken(said))],
    # What is recorded, and when.
    "intent_not_synced": lambda: [(SqliteLedger, "write", _relaxed("send", "prepare_and_send"))],
    "intent_not_synced_with_prepare": lambda: [(SqliteLedger, "write", _relaxed("prepare_and_send"))],
    "recorded_after_the_call": lambda: [(mutation, "perform", _record_after_call), *_PINNED_AFTER_CALL],
    "pinned_after_the_call": lambda: list(_PINNED_AFTER_CALL),
    "what_came_with_prepare_is_not_checked": lambda: [(mutation, "plain_intent", _unchecked)],
    "outcome_in_two_transactions": lambda: [(mutation, "_record", _outcome_in_two)],
    "cursor_before_events": lambda: [(runner, "_EXECUTE", {
        **runner._EXECUTE, runner.HandlerKind.PRODUCER: _commit_in_two})],
    "first_cause_only": lambda: [(runs, "commit_consumer", _first_cause)],
    "events_stay_pending": lambda: [
        _statement("event_end_reserved", "where reserved_by = :run_id", "where 0 and :run_id")],
    "ledger_not_consulted": lambda: [_statement("mutation_same", "= :mutation_key", "= :mutation_key and 0")],
    "late_input_is_a_cause": lambda: [(events, "_hold", _hold_and_tie)],
    # Items.
    "item_attempt_not_pinned": lambda: [_statement("item_enter", ", attempt = excluded.attempt", "")],
    "item_never_done": lambda: [(items, "end_item", _nothing)],
    "attempt_not_in_key": lambda: [(routine_run, "encode", _without_attempt)],
    "done_items_are_open": lambda: [(routine_run, "_unfinished", _is(True))],
    "item_key_is_the_runs": lambda: [(mutation, "key_of", _keyed_by_run)],
    "another_content_is_sent_as_well": lambda: [(mutation, "key_of", _keyed_by_text)],
    "results_are_not_kept": lambda: [(mutation, "_use_applied", _forgotten)],
    "stopped_item_is_done": lambda: [
        (items, "stop", lambda tx, run, becomes: _stop_item(tx, run, ItemStatus.DONE if becomes else None))],
    "left_behind_is_forgotten": lambda: [(views, "left_behind", _is([]))],
    "replay_sees_another_time": lambda: [(routine_run, "_fixed_by_item", lambda read, run, item: replace(
        _fixed_by_item(read, run, item), now_ms=run.created_at))],
    "replay_draws_other_numbers": lambda: [(routine_run, "_fixed_by_item", lambda read, run, item: replace(
        _fixed_by_item(read, run, item), seed=run.id.encode()))],
    # Who wakes whom.
    "recovery_guesses": lambda: [(recovery, "_take_over", _guess)],
    "no_recovery": lambda: [(host, "recover", _no_recovery)],
    "never_reconciled": lambda: [(next_step, "LookUp", lambda run, mutation: next_step.Wait(run.retry_at))],
    "doubt_resets_the_count": lambda: [(failure, "stop", _doubt_resets)],
    "each_retry_is_the_first": lambda: [(m, "carry", _never_counted) for m in (next_step, recovery)],
    "never_retried": lambda: [(failure, "stop", _retry_never)],
    "clock_set_back_is_believed": lambda: [
        (scheduler, "nearer", _is([])),
        (scheduler, "time_has_come", lambda run, now: run.retry_at is not None and run.retry_at <= now)],
    "new_version_keeps_what_it_did_not_choose": lambda: [
        (m, "carry", _new_version_keeps) for m in (next_step, commands, recovery)],
    # Hosts.
    "no_host_lock": lambda: [(HostLock, "__init__", _unlocked)],
}


def _without_handler(run: Run, facts: Any) -> Any:
    """Only what has chosen nothing holds its handler."""
    found = _holds(run, facts)
    return found if run.phase in (Phase.PREPARING, Phase.EXECUTING) else replace(found, handler=None)


def _commit_with_state(tx: Any, run: Run, trace: Any) -> None:
    """A run that carried on one item leaves the state that it was given, as any run of its routine does."""
    runs._commit(tx, run, run.bytes, run.prepare_result or '{"seen":0}', trace, None)
    tx.count(run.workflow_id, 0, runs=run.bytes)


_holds = holds.holds

#: The same for runs that are parked: name → how what is found begins, and what to replace by what.
PARKING_BUGS: Mapping[str, tuple[str, Callable[[], list[Patch]]]] = {
    "target_not_held": ("target not held", lambda: [(parking, "check_target", _nothing)]),
    "cause_not_held": ("cause not held", lambda: [(parking, "hold_events", _nothing)]),
    "state_not_held": ("state not held", lambda: [(holds, "holds", _without_handler)]),
    "order_broken": ("order broken", lambda: [_statements({
        "parked_before": ("where p.workflow_id = :workflow_id", "where p.workflow_id = :workflow_id and not exists "
                          "(select 1 from run h where h.id = p.run_id and h.reason = 'held')"),
        "parked_runs": ("order by p.turn", "order by p.turn desc")})]),
    "place_given_up": ("", lambda: [_statement("parked_insert", "from run r where r.id = :lineage",
                                               "from run r where :lineage <> 0 and r.id = :run_id")]),
    "parked_item_begun": ("item not held", lambda: [(items, "with_parked_run", _is(False))]),
    "state_of_item_kept": ("state went back", lambda: [(runs, "commit_item", _commit_with_state)]),
    "item_with_a_later_state": ("item lost", lambda: [
        _statement("run_part", "prepare_result = h.state", "prepare_result = json_object('seen', 99)")]),
    "answered_stays_parked": ("", lambda: [(next_step, "_of_parked", lambda now: [
        (run, next_step.Wait(run.retry_at)) for run, _ in now.parked])]),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Within it, the fault is there."""
    with replaced(BUGS[name]() if name in BUGS else PARKING_BUGS[name][1]()):
        yield
