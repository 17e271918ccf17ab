"""The ledger of side effects: what is unknown is asked for, never repeated on a guess, and never forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import (
    OutcomeUnknown,
    PermissionDenied,
    Policy,
    PreconditionFailed,
    Rejected,
    Transient,
    Verdict,
)
from keepai.model.errors import Refused
from tests.harness import FIRE, POST, SEND, SEND_APART, Slow, Story, acting

# -- definite answers --------------------------------------------------------------------------------


async def test_a_mutation_that_was_applied_is_final(story: Story) -> None:
    # R136, R200, R202, R317
    wf = await story.deploy_and_run(acting(), "a")
    row = await story.mutation(wf)
    assert (row.status, row.result, row.error, row.attempts) == ("applied", {"id": "sent-1"}, None, 1)
    assert story.moves(wf, row.id) == ["in_flight", "applied"]
    for answer in ("try_again", "did_not_happen", "happened", "skip"):
        with pytest.raises(Refused, match="applied"):
            await story.keep.resolve(row.id, answer)
    await story.reopen()
    await story.run(days=1)
    assert await story.mutation(wf) == row


@pytest.mark.parametrize(("error", "status"), [
    (Transient("later"), "paused:transient"),
    (PermissionDenied("the login has expired"), "paused:approval"),
    (PreconditionFailed("the list is gone"), "paused:approval"),
    (Rejected("no such address"), "failed:logic"),
], ids=["transient", "permission", "precondition", "rejected"])
async def test_a_definite_refusal_is_a_proof_that_nothing_happened(story: Story, error: Exception, status: str) -> None:
    # R137, R203, R224, R295, R299, DESIGN 9: the class decides; nothing is asked, nothing is guessed
    story.feed.put("a")
    story.world.on("gmail.send").fail(error)
    wf = await story.deploy_and_run(acting())
    run, row = await story.last(wf), await story.mutation(wf)
    assert (run.status, run.phase) == (status, "mutating")
    assert (row.status, row.closed_at is not None) == ("failed", True)
    assert row.error is not None
    assert str(error) in row.error.message
    assert run.error is not None
    assert run.error.code == type(error).code  # type: ignore[attr-defined]
    assert story.moves(wf, row.id) == ["in_flight", "failed"]
    assert story.world.count("gmail.send", "reconcile") == 0
    assert (await story.event(wf, "in", "a")).reserved_by == run.id


# -- unknown outcomes --------------------------------------------------------------------------------


class Odd(Exception):
    """An exception that no connector declares, with a text that says the opposite."""


UNCLEAR: dict[str, BaseException] = {
    "lost": OutcomeUnknown("lost"),
    "undeclared": Odd("Transient: it definitely did not happen, please retry"),
    "a timeout of its own": TimeoutError("slow"),
    "a connection error": ConnectionResetError("reset"),
    "an operating system error": OSError("disk"),
    "a bug": ZeroDivisionError("division by zero"),
    "a value error": ValueError("bad json in the answer"),
}


@pytest.mark.parametrize("what", UNCLEAR)
async def test_whatever_is_not_a_definite_answer_leaves_the_outcome_unknown(story: Story, what: str) -> None:
    # R206, R208, R219, R228, R241, R301, I4: never `failed`, never sent again; the text decides nothing
    story.feed.put("a")
    story.world.on("webhook.fire").fail(UNCLEAR[what])
    wf = await story.deploy_and_run(acting(FIRE))
    await story.run(days=3)
    run, row = await story.last(wf), await story.mutation(wf)
    assert (row.status, run.status, run.phase) == ("indeterminate", "paused:reconciliation", "mutating")
    assert story.moves(wf, row.id) == ["in_flight", "indeterminate"]
    assert story.world.count("webhook.fire") == 1


async def test_a_call_that_does_not_answer_in_time_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    # R206, R223
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("webhook.fire").hang(applied=True)
        wf = await story.deploy_and_run(acting(FIRE))
        row = await story.mutation(wf)
        assert row.status == "indeterminate"
        assert row.closed_at is not None  # it ended when it was cancelled
        assert row.error is not None
        assert "0.05 s" in row.error.message


async def test_an_answer_that_cannot_be_kept_is_no_answer(story: Story) -> None:
    # R206: the effect took place, only its result is unusable
    story.feed.put("a")
    story.world.on("webhook.fire").answer({"n": float("nan")})
    wf = await story.deploy_and_run(acting(FIRE))
    assert (await story.mutation(wf)).status == "indeterminate"


@pytest.mark.parametrize(("mutate", "point"), [
    (SEND, "after:prepare_and_send"), (SEND, "before:call"), (SEND, "after:call"), (SEND, "before:apply"),
    (SEND_APART, "after:send"), (SEND_APART, "before:call"), (SEND_APART, "after:call"), (SEND_APART, "before:apply"),
])
async def test_a_crash_during_the_call_is_an_unknown_outcome_and_is_looked_up(
    story: Story, mutate: str, point: str,
) -> None:
    # R186, R197, R207, R218, I6: what happened is found by another process, what did not is sent once
    story.feed.put("a")
    wf = await story.deploy(acting(mutate))
    await story.crash(point)
    happened = bool(story.world.effects)
    assert happened is (point in ("after:call", "before:apply"))
    row = await story.mutation(wf)
    assert row.status == "needs_reconcile"
    key = row.idempotency_key
    await story.run()
    [asked] = [a for a in story.world.asked if a.kind == "reconcile"]
    assert (asked.call.idempotency_key, asked.params) == (key, {"to": "a"})
    await story.run(seconds=30)
    assert len(story.world.effects) == 1
    assert (await story.last(wf)).status == "committed"
    assert len(await story.keep.mutations(wf)) == (1 if happened else 2)


@pytest.mark.parametrize(("point", "times"), [("after:prepare_and_send", 0), ("before:call", 0), ("after:call", 1)])
async def test_a_crash_during_a_blind_call_becomes_a_question_at_once(story: Story, point: str, times: int) -> None:
    # R207, R219, I6: nobody can tell whether it left, so nobody but a person has it sent again
    story.feed.put("a")
    wf = await story.deploy(acting(FIRE))
    await story.crash(point)
    assert (await story.mutation(wf)).status == "indeterminate"
    await story.run(days=1)
    assert story.world.count("webhook.fire") == times


# -- reconciliation ----------------------------------------------------------------------------------


async def test_an_unknown_outcome_is_looked_up_at_once_and_the_run_goes_on_in_the_same_pass(story: Story) -> None:
    # R215, R216, R221, R227, R229
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    wf = await story.deploy_and_run(acting())
    [run] = await story.runs(wf, "act")
    row = await story.mutation(wf)
    assert (run.status, row.status, row.result) == ("committed", "applied", {"id": "sent-1"})
    assert story.logs(run) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert story.moves(wf, row.id) == ["in_flight", "needs_reconcile", "applied"]
    assert len(story.world.effects) == 1


async def test_not_found_counts_once_the_call_is_over_and_the_work_is_then_done_again(story: Story) -> None:
    # R221, R230, R235, R240: settle is 0 here and the call has ended
    story.feed.put("a")
    story.world.on("gmail.send").fail(OutcomeUnknown("lost"))
    wf = await story.deploy_and_run(acting())
    row, run = await story.mutation(wf), await story.last(wf)
    assert (row.status, run.status, run.phase) == ("failed", "paused:transient", "mutating")
    assert (await story.event(wf, "in", "a")).reserved_by == run.id
    assert story.world.effects == []
    await story.run(seconds=29)
    assert story.world.count("gmail.send") == 1
    await story.run(seconds=1)
    assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "applied"]
    assert len(story.world.effects) == 1
    assert (await story.last(wf)).retry_of == run.id


async def test_not_found_proves_nothing_until_the_settle_time_has_passed(tmp_path: Path) -> None:
    # R203, I4: asked at once, and again when the time has come, on the clock of the host
    slow = Slow()
    async with Story(tmp_path, connectors=[slow]) as story:
        wf = await story.deploy_and_run(acting(POST), "a")
        assert ((await story.mutation(wf)).status, slow.asked) == ("needs_reconcile", 1)
        await story.run(seconds=59)
        assert (await story.mutation(wf)).status == "needs_reconcile"
        await story.run(seconds=1)
        assert (await story.mutation(wf)).status == "failed"
        await story.run(seconds=30)
        assert (await story.last(wf)).status == "committed"
        assert len(slow.sent) == 2


async def test_a_wall_clock_that_is_set_forward_does_not_settle_anything(tmp_path: Path) -> None:
    # I25: settle is measured on the clock that only grows
    slow = Slow()
    async with Story(tmp_path, connectors=[slow]) as story:
        wf = await story.deploy_and_run(acting(POST), "a")
        story.clock.jump(hours=2)
        await story.run()
        assert (await story.mutation(wf)).status == "needs_reconcile"
        assert len(slow.sent) == 1


async def test_the_settle_time_counts_anew_after_a_restart(tmp_path: Path) -> None:
    # DESIGN 6: the steady clock of another process says nothing about this one
    slow = Slow()
    async with Story(tmp_path, connectors=[slow]) as story:
        wf = await story.deploy_and_run(acting(POST), "a")
        story.clock.advance(seconds=50)
        await story.reopen()
        await story.run(seconds=10)
        assert (await story.mutation(wf)).status == "needs_reconcile"
        await story.run(seconds=60)
        assert (await story.mutation(wf)).status == "failed"


async def test_found_counts_at_once_even_before_anything_has_settled(tmp_path: Path) -> None:
    # DESIGN 6
    slow = Slow()
    slow.verdict = Verdict.applied({"n": 7})
    async with Story(tmp_path, connectors=[slow]) as story:
        wf = await story.deploy_and_run(acting(POST), "a")
        assert ((await story.mutation(wf)).status, (await story.mutation(wf)).result) == ("applied", {"n": 7})


async def test_not_found_proves_nothing_while_the_call_itself_has_not_ended(tmp_path: Path) -> None:
    # I5: a deadline closes nothing; the request lands later, and is found
    async with Story(tmp_path, policy=Policy(call_s=0.05, settle_s=1)) as story:
        story.feed.put("a")
        story.world.on("gmail.send").hang(stubborn=True)
        wf = await story.deploy_and_run(acting())
        row = await story.mutation(wf)
        assert (row.status, row.closed_at) == ("needs_reconcile", None)
        for _ in range(3):
            await story.run(minutes=5)
        assert (await story.mutation(wf)).status == "needs_reconcile"
        assert story.world.count("gmail.send") == 1
        story.world.release()
        await story.run(minutes=30)  # the release lets the coroutine end; its end is recorded
        await story.run(minutes=30)
        row = (await story.keep.mutations(wf))[0]
        assert row.closed_at is not None


async def test_a_request_that_lands_late_is_found_and_not_sent_again(story: Story) -> None:
    # R206, I2
    story.feed.put("a")
    story.world.on("gmail.send").apply_late()
    story.world.on_reconcile("gmail.send").retry(times=2)
    wf = await story.deploy_and_run(acting())
    assert story.world.effects == []
    story.world.land()
    await story.run(seconds=30)
    await story.run(minutes=1)
    assert ((await story.mutation(wf)).status, len(story.world.effects)) == ("applied", 1)
    assert (await story.last(wf)).status == "committed"


async def test_a_lookup_that_cannot_tell_is_repeated_with_backoff_until_a_person_is_asked(story: Story) -> None:
    # R231, R233, R236, R237, R239, DESIGN 14: at once, then after 30 s doubling to 30 min, 12 times
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(times=None)
    wf = await story.deploy_and_run(acting())
    waits = [30, 60, 120, 240, 480, 960, 1800, 1800, 1800, 1800, 1800]
    for number, wait in enumerate(waits, 1):
        row, run = await story.mutation(wf), await story.last(wf)
        assert (row.status, row.reconcile_attempts) == ("needs_reconcile", number)
        assert (run.status, run.phase) == ("paused:reconciliation", "mutating")
        early = int(wait * 0.9) - 1  # a question may come a tenth sooner, so that many do not come at once
        await story.run(seconds=early)
        assert story.world.count("gmail.send", "reconcile") == number, f"asked before {early} s"
        await story.run(seconds=wait - early)
        assert story.world.count("gmail.send", "reconcile") == number + 1
    row, run = await story.mutation(wf), await story.last(wf)
    assert (row.status, row.reconcile_attempts) == ("indeterminate", 12)
    assert (run.status, run.phase) == ("paused:reconciliation", "mutating")
    await story.run(days=2)
    assert story.world.count("gmail.send", "reconcile") == 12
    assert story.world.count("gmail.send") == 1
    assert (await story.event(wf, "in", "a")).reserved_by == run.id


async def test_lookups_end_after_a_day_however_few_they_were(story: Story) -> None:
    # R233: 12 attempts or 24 h
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(after=7 * 3600, times=None)
    wf = await story.deploy_and_run(acting())
    for _ in range(3):
        await story.run(hours=7)
        assert (await story.mutation(wf)).status == "needs_reconcile"
    await story.run(hours=7)
    assert (await story.mutation(wf)).status == "indeterminate"


async def test_the_outside_system_may_say_when_to_ask_again(story: Story) -> None:
    # R217
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(after=300)
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=299)
    assert story.world.count("gmail.send", "reconcile") == 1
    await story.run(seconds=1)
    assert (await story.mutation(wf)).status == "applied"


@pytest.mark.parametrize("how", ["raises", "raises a definite error", "hangs", "returns something else"])
async def test_a_lookup_that_goes_wrong_means_ask_again_later(tmp_path: Path, how: str) -> None:
    # R217
    async with Story(tmp_path, policy=Policy(reconcile_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("gmail.send").lose_answer()
        plan = story.world.on_reconcile("gmail.send")
        if how == "raises":
            plan.fail(ZeroDivisionError("bug"))
        elif how == "raises a definite error":
            plan.fail(Rejected("no such mail"))  # says nothing about the send
        elif how == "hangs":
            plan.hang()
        else:
            plan.answer("applied")
        wf = await story.deploy_and_run(acting())
        row, run = await story.mutation(wf), await story.last(wf)
        assert (row.status, row.reconcile_attempts) == ("needs_reconcile", 1)
        assert (run.status, run.phase) == ("paused:reconciliation", "mutating")
        await story.run(seconds=30)
        assert (await story.mutation(wf)).status == "applied"
        assert len(story.world.effects) == 1


async def test_an_outside_system_that_can_never_tell_leads_to_a_question_at_once(story: Story) -> None:
    # DESIGN 2 "Reconcile verdicts"
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").unknown("It keeps no record of mails.")
    wf = await story.deploy_and_run(acting())
    row, run = await story.mutation(wf), await story.last(wf)
    assert (row.status, run.status) == ("indeterminate", "paused:reconciliation")
    assert run.error is not None
    assert "It keeps no record of mails" in run.error.message
    await story.run(days=1)
    assert story.world.count("gmail.send", "reconcile") == 1


async def test_looking_up_goes_on_after_a_restart_with_its_count(story: Story) -> None:
    # R204, R238
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(times=3)
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=30)
    before = await story.mutation(wf)
    assert before.reconcile_attempts == 2
    await story.reopen()
    assert await story.mutation(wf) == before
    await story.run(seconds=53)
    assert story.world.count("gmail.send", "reconcile") == 2
    await story.run(seconds=7)
    await story.reopen()
    await story.run(minutes=2)
    row = await story.mutation(wf)
    assert (row.status, row.result) == ("applied", {"id": "sent-1"})
    assert (await story.last(wf)).status == "committed"
    assert story.world.count("gmail.send") == 1


async def test_a_new_version_waits_until_the_outcome_is_known(story: Story) -> None:
    # DESIGN 2 last row: while a mutation is open, the version waits; afterwards its `next` runs
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry()
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    await story.deploy(acting(FIRE, next="ctx.log('of the new version');"))
    await story.run(seconds=5)
    assert (await story.last(wf)).id == run.id
    await story.run(seconds=25)
    assert (await story.mutation(wf)).status == "applied"
    assert (await story.last(wf, "act")).status == "committed"
    assert story.world.count("webhook.fire") == 0


# -- keys --------------------------------------------------------------------------------------------


async def test_the_key_is_the_same_when_the_same_thing_is_sent_after_an_unknown_outcome(story: Story) -> None:
    # DESIGN 6: an outside system that honours keys sees one request, even if "not there" was wrong
    story.feed.put("a")
    story.world.on("gmail.send").fail(OutcomeUnknown("lost"))
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=30)
    first, second = await story.keep.mutations(wf)
    assert (first.status, second.status) == ("failed", "applied")
    assert second.idempotency_key == first.idempotency_key
    assert second.mutation_key == first.mutation_key


async def test_the_key_is_the_same_after_a_persons_word(story: Story) -> None:
    # DESIGN 6
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(acting(FIRE))
    await story.keep.resolve((await story.mutation(wf)).id, "did_not_happen")
    await story.run()
    first, second = await story.keep.mutations(wf)
    assert second.idempotency_key == first.idempotency_key


async def test_the_key_differs_after_the_outside_system_itself_refused(story: Story) -> None:
    # DESIGN 6: some replay a stored error for a key
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"), times=2)
    wf = await story.deploy_and_run(acting())
    await story.run(seconds=30)
    await story.run(seconds=60)
    keys = [m.idempotency_key for m in await story.keep.mutations(wf)]
    assert len(set(keys)) == 3
    assert len({m.mutation_key for m in await story.keep.mutations(wf)}) == 1


async def test_the_key_differs_for_other_inputs_and_other_contents(story: Story) -> None:
    story.feed.put("a")
    story.feed.put("b")
    constant = "await ctx.gmail.send({ to: 'x', body: 'same' });"
    wf = await story.deploy_and_run(acting(constant))
    other = await story.deploy_and_run(acting(constant, name="other"))
    rows = [*await story.keep.mutations(wf), *await story.keep.mutations(other)]
    assert len({m.idempotency_key for m in rows}) == len({m.mutation_key for m in rows}) == 4


async def test_processing_an_event_once_more_is_an_attempt_of_its_own(story: Story) -> None:
    # R202, R212, R213: what was applied before stays, the new effect has a key of its own
    wf = await story.deploy_and_run(acting(), "a")
    before = await story.mutation(wf)
    await story.keep.reprocess((await story.event(wf, "in", "a")).id)
    await story.run()
    first, second = await story.keep.mutations(wf)
    assert first == before
    assert (second.status, second.attempts, second.params) == ("applied", 1, first.params)
    assert second.mutation_key != first.mutation_key
    assert second.idempotency_key != first.idempotency_key
    event = await story.event(wf, "in", "a")
    assert (event.status, event.attempt) == ("consumed", 2)
    runs = await story.runs(wf, "act")
    assert [r.retry_of for r in runs] == [None, None]
    assert len(story.world.effects) == 2


async def test_a_reserved_event_cannot_be_processed_once_more(story: Story) -> None:
    # DESIGN 6: refused, naming the run
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    with pytest.raises(Refused, match=run.id):
        await story.keep.reprocess((await story.event(wf, "in", "a")).id)
