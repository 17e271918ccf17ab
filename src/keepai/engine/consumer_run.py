"""A consumer's run: prepare → mutate → next, each phase a commit, so that a crash loses at most one step."""

from __future__ import annotations

from collections.abc import Sequence

from ..ledger.base import Row
from ..ledger.transitions import mutations, runs
from ..ledger.transitions.events import Publication
from ..ledger.transitions.mutations import Intent
from ..ledger.transitions.runs import ConsumerEnd, Prepared
from ..model.clock import iso
from ..model.codec import canonical
from ..model.errors import Overtaken, RuleBroken
from ..model.operations import Step
from ..model.records import Run
from ..model.states import Phase, Status
from ..runtime.base import Operation
from . import approval, chain, mutation, prepare_result
from .mutation import Unit
from .outcome import NONE, check_fits
from .producer_run import grows, kept_state
from .relaunch import last_mutation
from .stepping import Stepper, fixed_by


async def execute(stepper: Stepper) -> Run | None:
    """Go on from whatever phase the run is in, until it commits or has to wait.

    Gives the run that begins in the same commit, if one does."""
    approved = approval.of_run(stepper.parts, stepper.run) if stepper.run.state is Status.PAUSED else None
    if approved is not None and await mutation.perform_approved(stepper, approved) is None:
        return None
    if stepper.run.phase is Phase.PREPARING:
        await _prepare(stepper)
    if stepper.run.phase is Phase.PREPARED:
        await _advance(stepper, *_entered(stepper.reserved))
    if stepper.run.phase is Phase.MUTATING and not await _mutate(stepper):
        return None
    if stepper.run.phase is Phase.MUTATED:
        await _advance(stepper, Phase.EMITTING)
    return await _next(stepper)


async def _prepare(stepper: Stepper) -> None:
    """Run `prepare` and pin what it chose; again for every event that a person skipped meanwhile."""
    ledger, gone = stepper.parts.ledger, set[str]()
    while True:
        prepared, intent = await _chosen(stepper)
        trace = stepper.trace.take()
        try:
            if intent is None:
                stepper.run = await ledger.write(runs.prepare, stepper.run, prepared, trace, *_entered(prepared.wanted))
            else:
                stepper.run, stepper.sent, stepper.reserved = await ledger.write(
                    mutations.prepare_and_send, stepper.run, prepared, trace, intent, barrier=True,
                )
            return
        except Overtaken as error:
            if error.event_id in gone:
                raise RuleBroken(
                    f"{error.message} prepare was run again, and reserved it once more. "
                    "Reserve only events that ctx.peek or ctx.getByIds returned in this run."
                ) from error
            gone.add(error.event_id)
            stepper.trace.put_back(trace)
            stepper.trace.warning(Step.PREPARE, f"{error.message} So prepare is run again.")


async def _chosen(stepper: Stepper) -> tuple[Prepared, Intent | None]:
    """What `prepare` chose, and the call that is recorded with it, if that is known already."""
    ended, gate = await stepper.step(Step.PREPARE, (stepper.state(),))
    warnings: list[str] = []
    result = prepare_result.parse(ended, stepper.handler, stepper.parts.policy, warnings)
    for text in warnings:
        stepper.trace.warning(Step.PREPARE, text)
    stepper.wishes, stepper.foreseen, stepper.given = result.wishes, ended.ahead, gate.given
    prepared = Prepared(stepper.begun_ms, result.text, result.wanted, stepper.parts.policy.run_bytes_max)
    return prepared, _intent(stepper, result.wanted)


def _intent(stepper: Stepper, wanted: Sequence[tuple[str, str]]) -> Intent | None:
    """The call of `mutate` for what `prepare` chose, if it is known already and nothing is in its way."""
    if stepper.foreseen is None or not wanted or not all(address in stepper.given for address in wanted):
        return None
    chosen = [stepper.given[address] for address in wanted]
    return mutation.plain_intent(stepper, stepper.foreseen, _unit(stepper, chosen))


def _as_given(stepper: Stepper, reserved: Sequence[Row]) -> bool:
    """Whether the events are as `prepare` was shown them: `mutate` was tried with these."""
    return all(
        stepper.given.get((row["topic"], row["message_id"]), row)["payload"] == row["payload"] for row in reserved
    )


def _entered(reserved: Sequence[object]) -> tuple[Phase, str | None]:
    """What follows `prepared`: nothing reserved means nothing to do, and `mutate` is passed over."""
    return (Phase.MUTATING, None) if reserved else (Phase.EMITTING, NONE)


async def _mutate(stepper: Stepper) -> bool:
    """Run `mutate` and make its call; False if the run has to wait."""
    if stepper.sent is not None:
        stepper.at = Step.MUTATE
        return await mutation.complete(stepper, stepper.sent, Step.MUTATE) is not None
    called = await _called(stepper) if stepper.handler.has_mutate else None
    if called is not None:
        return await mutation.perform(stepper, called, _unit(stepper, stepper.reserved)) is not None
    await _advance(stepper, Phase.EMITTING, NONE)
    return True


async def _called(stepper: Stepper) -> Operation | None:
    """The call that `mutate` makes, given the pinned PrepareResult."""
    if stepper.foreseen is not None and _as_given(stepper, stepper.reserved):
        stepper.at = Step.MUTATE
        return stepper.foreseen
    prepared, cuts = stepper.prepared()
    ended, _ = await stepper.step(Step.MUTATE, (prepared,), cuts=cuts, fixed=fixed_by(stepper.run))
    return ended.mutation


def _unit(stepper: Stepper, reserved: Sequence[Row]) -> Unit:
    """What a consumer's one mutation is for: the events that it reserved, in their attempts.

    By the script's own names for them, so that a ledger that was put back finds the same key for the same thing."""
    events = sorted((str(r["topic"]), str(r["message_id"]), int(r["attempt"])) for r in reserved)
    return Unit(Step.MUTATE, canonical([list(event) for event in events]), stepper.wishes.title)


async def _advance(stepper: Stepper, phase: Phase, outcome: str | None = None) -> None:
    stepper.run = await stepper.parts.ledger.write(
        runs.advance, stepper.run, phase, outcome, stepper.trace.take(),
    )


async def _next(stepper: Stepper) -> Run | None:
    run, parts = stepper.run, stepper.parts
    assert run.outcome is not None, run
    publications: tuple[Publication, ...] = ()
    state: str | None = None
    if stepper.handler.has_next:
        _check_result(stepper)
        prepared, cuts = stepper.prepared()
        ended, gate = await stepper.step(Step.NEXT, (prepared, run.outcome), cuts=cuts, state=stepper.state())
        publications = tuple(gate.gathered.publications.values())
        state = kept_state(parts, ended.value, stepper.handler.name)
    nothing_taken = not stepper.reserved
    end = ConsumerEnd(
        publications=publications, depth=chain.depth(stepper, publications) if publications else 0,
        revisions_max=parts.policy.revisions_max, state=state, state_grows=grows(stepper, state),
        wake_at=_wake_at(stepper), trace=stepper.trace.take(),
        recheck_at=parts.clock.now_ms() + int(parts.policy.recheck_s * 1000) if nothing_taken else None,
    )
    stepper.leave_state(state)
    leaves = {"observed": run.observed, "progressed": int(not nothing_taken), "wake_at": end.wake_at,
              "recheck_at": end.recheck_at}
    return await parts.ledger.write(runs.commit_consumer, run, end, stepper.follows(leaves, publications))


def _check_result(stepper: Stepper) -> None:
    """The result of the mutation must fit into the step that is given it."""
    run, bytes_max = stepper.run, stepper.parts.policy.message_bytes_max
    if len(run.outcome or "") * 4 <= bytes_max:  # it fits, whatever its characters are
        return
    sent = last_mutation(stepper.parts, run)
    if sent is not None and run.outcome is not None:
        check_fits(run.outcome, f"{sent.connector}.{sent.operation}", bytes_max)


def _wake_at(stepper: Stepper) -> int | None:
    """wakeAt as policy allows it; a changed one leaves a note."""
    wanted = stepper.wishes.wake_at
    if wanted is None:
        return None
    now, policy = stepper.parts.clock.now_ms(), stepper.parts.policy
    soonest, latest = now + int(policy.wake_soonest_s * 1000), now + int(policy.wake_latest_s * 1000)
    clamped = min(max(wanted, soonest), latest)
    if clamped != wanted:
        moved = f"wakeAt {_shown(wanted)} was moved to {iso(clamped)}, the nearest that policy allows."
        stepper.trace.warning(Step.NEXT, moved)
    return clamped


def _shown(ms: int) -> str:
    """A time for people, or its number if no calendar has it."""
    try:
        return iso(ms)
    except (ValueError, OverflowError, OSError):
        return str(ms)
