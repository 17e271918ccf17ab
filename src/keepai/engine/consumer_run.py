"""A consumer's run: prepare → mutate → next, each phase a commit, so that a crash loses at most one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ledger.base import Reader, Row
from ..ledger.transitions import mutations, runs
from ..ledger.transitions.events import Publication
from ..ledger.transitions.mutations import Intent
from ..ledger.transitions.recordings import Recorded
from ..ledger.transitions.runs import ConsumerEnd, Prepared
from ..model.clock import iso
from ..model.codec import canonical
from ..model.errors import LimitExceeded, Overtaken, RuleBroken
from ..model.fast_record import fast_record
from ..model.operations import Step
from ..model.records import Mutation, Run
from ..model.states import Phase, Status
from ..runtime.base import Fixed, Operation
from . import approval, mutation, prepare_result
from .gate import Gate
from .mutation import Unit
from .outcome import NONE, check_fits
from .prepare_result import Wishes, wishes_of
from .producer_run import grows, kept_state
from .recording import made_of
from .relaunch import last_mutation
from .run_context import RunContext

_CIRCLE_SHOWN_MAX = 12  # topics of a circle that an error names


@fast_record
@dataclass(frozen=True)
class Chosen:
    """What `prepare` chose, and what is known already of the `mutate` that was tried right after it."""

    prepared: Prepared
    wishes: Wishes
    given: Mapping[tuple[str, str], Row]  # the events that `prepare` was shown, by topic and messageId
    call: Operation | None  # that `mutate` makes
    intent: Intent | None  # of that call, if it can be recorded together with what `prepare` chose


async def execute(context: RunContext) -> Run | None:
    """Go on from whatever phase the run is in, until it commits or has to wait.

    Gives the run that begins in the same commit, if one does."""
    ledger, chosen, sent = context.parts.ledger, None, None
    approved = await ledger.look(approval.of_run, context.run) if context.run.state is Status.PAUSED else None
    if approved is not None and await mutation.perform_approved(context, approved) is None:
        return None
    if context.run.phase is Phase.PREPARING:
        chosen, sent = await _prepare(context)
    if context.run.phase is Phase.PREPARED:
        await _advance(context, *_entered(context.reserved))
    assert context.run.prepare_result is not None, context.run
    wishes = wishes_of(context.run.prepare_result) if chosen is None else chosen.wishes
    if context.run.phase is Phase.MUTATING and not await _mutate(context, chosen, sent, wishes.title):
        return None
    if context.run.phase is Phase.MUTATED:
        await _advance(context, Phase.EMITTING)
    return await _next(context, wishes, chosen)


async def _prepare(context: RunContext) -> tuple[Chosen, Mutation | None]:
    """Run `prepare` and pin what it chose; again for every event that a person skipped meanwhile.

    Gives the mutation too, if its intent could be recorded in the same commit."""
    ledger, gone, sent = context.parts.ledger, set[str](), None
    while True:
        chosen = await choose(context)
        trace, prepared = context.trace.take(), chosen.prepared
        try:
            if chosen.intent is None:
                context.run, context.reserved = await ledger.write(
                    runs.prepare, context.run, prepared, trace, *_entered(prepared.wanted))
            else:
                context.run, sent, context.reserved = await ledger.write(
                    mutations.prepare_and_send, context.run, prepared, trace, chosen.intent,
                    context.limits(chosen.intent.connector), barrier=True,
                )
            return chosen, sent
        except Overtaken as error:
            if error.event_id in gone:
                raise RuleBroken(
                    f"{error.message} prepare was run again, and reserved it once more. "
                    "Reserve only events that ctx.peek or ctx.getByIds returned in this run."
                ) from error
            gone.add(error.event_id)
            context.trace.put_back(trace)
            context.trace.warning(Step.PREPARE, f"{error.message} So prepare is run again.")


async def choose(context: RunContext) -> Chosen:
    """Run `prepare` once."""
    ended, gate = await context.step(Step.PREPARE, (context.state,))
    warnings: list[str] = []
    policy = context.parts.policy
    result = prepare_result.parse(ended, context.handler, policy, warnings)
    for text in warnings:
        context.trace.warning(Step.PREPARE, text)
    prepared = Prepared(
        gate.begun_ms, result.text, result.wanted, policy.run_bytes_max,
        context.recorded(gate, idle=not result.wanted))
    intent = None
    if ended.ahead is not None and result.wanted and all(address in gate.given for address in result.wanted):
        unit = _unit([gate.given[address] for address in result.wanted], result.wishes.title)
        intent = await mutation.plain_intent(context, ended.ahead, unit)
    return Chosen(prepared, result.wishes, gate.given, ended.ahead, intent)


def _entered(reserved: Sequence[object]) -> tuple[Phase, str | None]:
    """What follows `prepared`: nothing reserved means nothing to do, and `mutate` is passed over."""
    return (Phase.MUTATING, None) if reserved else (Phase.EMITTING, NONE)


async def _mutate(context: RunContext, chosen: Chosen | None, sent: Mutation | None, title: str | None) -> bool:
    """Run `mutate` and make its call; False if the run has to wait."""
    if sent is not None:
        context.at = Step.MUTATE
        return await mutation.complete(context, sent, Step.MUTATE) is not None
    called = await called_by(context, chosen) if context.handler.has_mutate else None
    if called is not None:
        return await mutation.perform(context, called, _unit(context.reserved, title)) is not None
    await _advance(context, Phase.EMITTING, NONE)
    return True


async def called_by(context: RunContext, chosen: Chosen | None) -> Operation | None:
    """The call that `mutate` makes, given the pinned PrepareResult. It was tried with the events as `prepare` was shown
    them; if the pinned ones differ, that does not count."""
    run = context.run
    if chosen is not None and chosen.call is not None and all(
        chosen.given.get((row["topic"], row["message_id"]), row)["payload"] == row["payload"]
        for row in context.reserved
    ):
        context.at = Step.MUTATE
        return chosen.call
    assert run.prepare_result is not None, run
    assert run.prepared_at is not None, run
    prepared, cuts = context.prepared()
    # Time and chance are the same whenever this PrepareResult is used.
    fixed = Fixed.by(run.prepare_result, run.prepared_at)
    ended, _ = await context.step(Step.MUTATE, (prepared,), cuts=cuts, fixed=fixed)
    return ended.mutation


def _unit(reserved: Sequence[Row], title: str | None) -> Unit:
    """What a consumer's one mutation is for: the events that it reserved, in their attempts.

    By the script's own names for them, so that a ledger that was put back finds the same key for the same thing."""
    events = sorted((str(r["topic"]), str(r["message_id"]), int(r["attempt"])) for r in reserved)
    return Unit(Step.MUTATE, canonical([list(event) for event in events]), title)


async def _advance(context: RunContext, phase: Phase, outcome: str | None = None) -> None:
    context.run = await context.parts.ledger.write(
        runs.advance, context.run, phase, outcome, context.trace.take(),
    )


async def _next(context: RunContext, wishes: Wishes, chosen: Chosen | None) -> Run | None:
    run, parts = context.run, context.parts
    assert run.outcome is not None, run
    publications: tuple[Publication, ...] = ()
    state: str | None = None
    recorded: Recorded | None = None
    if context.handler.has_next:
        await _check_result(context)
        publications, state, gate = await follow_up(context)
        # A run that is compared must be recorded whole: if prepare is, so is a next that does nothing.
        whole = bool(context.reserved) or (chosen is not None and chosen.prepared.recorded is not None)
        idle = not whole and not publications and state in (None, context.state)
        recorded = context.recorded(gate, made_of((), publications, state), idle=idle)
    nothing_taken = not context.reserved
    end = ConsumerEnd(
        publications=publications, depth=await _depth(context, publications) if publications else 0,
        revisions_max=parts.policy.revisions_max, state=state, state_grows=grows(context, state),
        wake_at=_wake_at(context, wishes.wake_at), trace=context.trace.take(),
        recheck_at=parts.clock.now_ms() + int(parts.policy.recheck_s * 1000) if nothing_taken else None,
        recorded=recorded,
    )
    context.leave_state(state)
    leaves = {"observed": run.observed, "progressed": int(not nothing_taken), "wake_at": end.wake_at,
              "recheck_at": end.recheck_at}
    follows = await context.follows(leaves, publications)
    return await parts.ledger.write(runs.commit_consumer, run, end, follows)


async def follow_up(context: RunContext) -> tuple[tuple[Publication, ...], str | None, Gate]:
    """Run `next`: what it publishes, and the state that it leaves."""
    prepared, cuts = context.prepared()
    ended, gate = await context.step(Step.NEXT, (prepared, context.run.outcome), cuts=cuts, state=context.state)
    state = kept_state(context.parts, ended.value, context.handler.name)
    return tuple(gate.gathered.publications.values()), state, gate


async def _depth(context: RunContext, publications: Sequence[Publication]) -> int:
    """How far what a run publishes is from the producer that began its chain: one more than what it took, or than what
    it saw if it took nothing. A chain that feeds itself is a fault of the script."""
    run, limit = context.run, context.parts.policy.chain_max
    ledger = context.parts.ledger
    taken = _deepest(context.reserved) or await ledger.look(_deepest_seen, run.workflow_id, context.handler.subscribe)
    deep = int(taken["depth"]) + 1 if taken else 1
    if deep > limit:
        way = await ledger.look(_circle, run.handler, taken, publications[0].topic)
        raise LimitExceeded(
            f"A chain of events went on through {limit:,} consumers and did not end: {way}. That is the limit (policy "
            "chain_max). Let the script end it, or publish to a topic that does not lead back."
        )
    return deep


def _deepest(events: Sequence[Row]) -> Row | None:
    return max(events, key=lambda event: int(event["depth"]), default=None)


def _deepest_seen(read: Reader, workflow_id: str, topics: Sequence[str]) -> Row | None:
    """The deepest event that waits in these topics."""
    return _deepest([
        row for topic in topics
        if (row := read.one("event_waiting_deepest", workflow_id=workflow_id, topic=topic)) is not None
    ])


def _circle(read: Reader, handler: str, event: Row | None, topic: str) -> str:
    """The way by which an event came back to the handler, in words; only what was found on record."""
    way = [handler]
    while event is not None and len(way) < 2 * _CIRCLE_SHOWN_MAX:
        source = read.one("event_source", event_id=event["event_id"])
        if source is None:
            break
        way += [str(source["topic"]), str(source["handler"])]
        if source["handler"] == handler:
            return " → ".join(reversed(way))
        event = _deepest(read.all("reservation_of_run", workflow_id=source["workflow_id"], run_id=source["run_id"]))
    return " → ".join([*reversed(way), topic])


async def _check_result(context: RunContext) -> None:
    """The result of the mutation must fit into the step that is given it."""
    run, bytes_max = context.run, context.parts.policy.message_bytes_max
    if len(run.outcome or "") * 4 <= bytes_max:  # it fits, whatever its characters are
        return
    sent = await context.parts.ledger.look(last_mutation, run)
    if sent is not None and run.outcome is not None:
        check_fits(run.outcome, f"{sent.connector}.{sent.operation}", bytes_max)


def _wake_at(context: RunContext, wanted: int | None) -> int | None:
    """wakeAt as policy allows it; a changed one leaves a note."""
    if wanted is None:
        return None
    now, policy = context.parts.clock.now_ms(), context.parts.policy
    soonest, latest = now + int(policy.wake_soonest_s * 1000), now + int(policy.wake_latest_s * 1000)
    clamped = min(max(wanted, soonest), latest)
    if clamped != wanted:
        moved = f"wakeAt {_shown(wanted)} was moved to {iso(clamped)}, the nearest that policy allows."
        context.trace.warning(Step.NEXT, moved)
    return clamped


def _shown(ms: int) -> str:
    """A time for people, or its number if no calendar has it."""
    try:
        return iso(ms)
    except (ValueError, OverflowError, OSError):
        return str(ms)
