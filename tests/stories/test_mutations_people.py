"""What people may answer when nobody knows what became of a mutation, and what they may give up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepai import Policy, Rejected, Transient, Verdict
from keepai.model.errors import KeepError, Refused
from keepai.model.records import Mutation
from tests.harness import FIRE, POST, SEND, TOLD, Slow, Story, acting

# -- a question to a person --------------------------------------------------------------------------


async def in_question(story: Story, mutate: str = FIRE) -> tuple[str, Mutation]:
    """A workflow whose mutation took effect without anybody knowing."""
    story.feed.put("a")
    if mutate == FIRE:
        story.world.on("webhook.fire").lose_answer()
    else:
        story.world.on("gmail.send").lose_answer()
        story.world.on_reconcile("gmail.send").unknown()
    wf = await story.deploy_and_run(acting(mutate))
    row = await story.mutation(wf)
    assert row.status == "indeterminate"
    return wf, row


async def test_an_open_question_holds_its_workflow_and_no_other(story: Story) -> None:
    # R183, R205, R241, R242, R331
    wf, row = await in_question(story)
    other = await story.deploy(acting(SEND, name="other"))
    story.feed.put("b")
    await story.run(minutes=5)
    await story.run(days=2)
    assert len(await story.runs(wf)) == 2
    state = await story.workflow(wf)
    assert (state.status, state.blocked_by, state.blocked_status) == ("active", row.run_id, "paused:reconciliation")
    assert await story.ids(other, "in", "consumed") == ["a", "b"]
    assert await story.mutation(wf) == row
    assert (await story.inputs(wf))["a"].needs_you


async def test_it_did_not_happen_has_the_work_done_again_at_once_with_the_same_inputs(story: Story) -> None:
    # R203, R235, R249, R253
    wf, row = await in_question(story)
    await story.keep.resolve(row.id, "did_not_happen")
    assert (await story.keep.run(row.run_id)).status == "paused:transient"
    await story.run()
    old, new = await story.runs(wf, "act")
    assert (new.status, new.retry_of, new.prepare_result) == ("committed", old.id, old.prepare_result)
    assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "applied"]
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert story.world.count("webhook.fire") == 2


@pytest.mark.parametrize("result", [None, {"id": "by hand"}])
async def test_it_happened_runs_next_with_the_result_that_the_person_gave(story: Story, result: Any) -> None:
    # R251
    wf, row = await in_question(story)
    await story.keep.resolve(row.id, "happened", result)
    await story.run()
    assert ((await story.mutation(wf)).status, (await story.mutation(wf)).result) == ("applied", result)
    run = await story.last(wf)
    assert (run.id, run.status) == (row.run_id, "committed")
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert story.world.count("webhook.fire") == 1


async def test_skip_goes_on_without_knowing(story: Story) -> None:
    # R211, R250, R163
    wf, row = await in_question(story)
    await story.keep.resolve(row.id, "skip")
    await story.run()
    assert story.logs(await story.last(wf)) == ['{"status":"skipped"}']
    assert ((await story.mutation(wf)).status, await story.ids(wf, "in", "skipped")) == ("skipped", ["a"])
    assert story.moves(wf, row.id) == ["in_flight", "indeterminate", "skipped"]


async def test_try_again_asks_from_the_start_where_there_is_somebody_to_ask(story: Story) -> None:
    # R248
    wf, row = await in_question(story, SEND)
    assert row.reconcile_attempts == 1
    story.world.on_reconcile("gmail.send").retry()
    await story.keep.resolve(row.id, "try_again")
    again = await story.mutation(wf)
    assert (again.status, again.reconcile_attempts) == ("needs_reconcile", 0)
    await story.run()
    assert (await story.mutation(wf)).reconcile_attempts == 1
    await story.run(seconds=30)
    assert (await story.mutation(wf)).status == "applied"
    assert story.world.count("gmail.send") == 1


async def test_try_again_begins_a_new_term_of_asking(tmp_path: Path) -> None:
    # R248: however long ago the doubt began, the outside system is asked again and again before a person is
    async with Story(tmp_path, policy=Policy(reconcile_total_s=3600)) as story:
        wf, row = await in_question(story, SEND)
        story.clock.advance(days=2)
        story.world.on_reconcile("gmail.send").retry(times=2)
        await story.keep.resolve(row.id, "try_again")
        await story.run()
        assert (await story.mutation(wf)).status == "needs_reconcile"
        await story.run(minutes=2)
        assert (await story.mutation(wf)).status == "needs_reconcile"
        await story.run(minutes=5)
        assert (await story.mutation(wf)).status == "applied"


async def test_try_again_is_refused_where_nobody_can_be_asked(story: Story) -> None:
    # R248
    wf, row = await in_question(story)
    with pytest.raises(Refused, match=r"webhook\.fire"):
        await story.keep.resolve(row.id, "try_again")
    assert await story.mutation(wf) == row


@pytest.mark.parametrize("answer", ["try_again", "did_not_happen", "happened", "skip"])
async def test_an_answer_counts_once_and_is_refused_afterwards_with_the_new_state(story: Story, answer: str) -> None:
    # R252, I31: two tabs, two answers
    wf, row = await in_question(story, SEND)
    await story.keep.resolve(row.id, answer)
    before = await story.mutation(wf)
    for second in ("try_again", "did_not_happen", "happened", "skip"):
        with pytest.raises(Refused, match=before.status):
            await story.keep.resolve(row.id, second)
    assert await story.mutation(wf) == before
    await story.run(minutes=1)
    assert (await story.last(wf)).status == "committed"
    assert len(story.world.effects) == (2 if answer == "did_not_happen" else 1)


async def test_an_answer_that_means_nothing_is_refused(story: Story) -> None:
    wf, row = await in_question(story)
    with pytest.raises(Refused, match="try_again, did_not_happen, happened, skip"):
        await story.keep.resolve(row.id, "maybe")
    assert await story.mutation(wf) == row


async def test_it_did_not_happen_is_refused_while_the_request_may_still_arrive(tmp_path: Path) -> None:
    # R252, I33: with how long to wait; the other answers are open
    slow = Slow()
    slow.verdict = Verdict.unknown("no record")
    async with Story(tmp_path, connectors=[slow]) as story:
        wf = await story.deploy_and_run(acting(POST), "a")
        row = await story.mutation(wf)
        assert row.status == "indeterminate"
        with pytest.raises(Refused, match="60 s"):
            await story.keep.resolve(row.id, "did_not_happen")
        story.clock.advance(seconds=45)
        with pytest.raises(Refused, match="15 s"):
            await story.keep.resolve(row.id, "did_not_happen")
        assert await story.mutation(wf) == row
        story.clock.advance(seconds=15)
        await story.keep.resolve(row.id, "did_not_happen")
        await story.run()
        assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "applied"]


async def test_it_did_not_happen_is_refused_while_the_call_has_not_ended(tmp_path: Path) -> None:
    # I5, I33
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("webhook.fire").hang(stubborn=True)
        wf = await story.deploy_and_run(acting(FIRE))
        row = await story.mutation(wf)
        assert (row.status, row.closed_at) == ("indeterminate", None)
        story.clock.advance(days=1)
        try:
            with pytest.raises(Refused, match="not ended"):
                await story.keep.resolve(row.id, "did_not_happen")
        finally:
            story.world.release()


async def test_answering_never_undoes_a_persons_pause(story: Story) -> None:
    # DESIGN 4: blocked is derived, paused is a person's
    wf, row = await in_question(story)
    await story.keep.pause(wf)
    await story.keep.resolve(row.id, "skip")
    await story.run(days=1)
    assert (await story.workflow(wf)).status == "paused"
    assert (await story.event(wf, "in", "a")).status == "pending"
    await story.keep.resume(wf)
    await story.run()
    assert (await story.event(wf, "in", "a")).status == "skipped"


async def test_an_open_question_and_its_answer_survive_restarts(story: Story) -> None:
    # R113, R186, R205
    wf, row = await in_question(story)
    await story.reopen()
    await story.run(days=1)
    assert await story.mutation(wf) == row
    await story.keep.resolve(row.id, "happened", {"by": "me"})
    await story.reopen()
    await story.run()
    assert story.logs((await story.runs(wf, "act"))[-1])[-1] == '{"result":{"by":"me"},"status":"applied"}'
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert story.world.count("webhook.fire") == 1


# -- skipping and finishing runs ---------------------------------------------------------------------


async def test_a_run_whose_mutation_definitely_failed_can_be_skipped(story: Story) -> None:
    # I32: next is told, the event ends as skipped, the ledger keeps the failure
    story.feed.put("a")
    story.world.on("gmail.send").fail(Rejected("no such address"))
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    await story.keep.skip_run(run.id)
    await story.run()
    assert story.logs(await story.keep.run(run.id)) == ['{"status":"skipped"}']
    assert await story.ids(wf, "in", "skipped") == ["a"]
    assert (await story.mutation(wf)).status == "failed"


async def test_a_run_that_failed_in_mutate_before_any_call_can_be_skipped(story: Story) -> None:
    # I32
    wf = await story.deploy_and_run(acting("throw new Error('no');"), "a")
    await story.keep.skip_run((await story.last(wf)).id)
    await story.run()
    assert (await story.last(wf)).status == "committed"
    assert await story.ids(wf, "in", "skipped") == ["a"]
    assert await story.keep.mutations(wf) == []


async def test_skipping_a_run_with_an_open_question_answers_it(story: Story) -> None:
    # I32, R211
    wf, row = await in_question(story)
    await story.keep.skip_run(row.run_id)
    await story.run()
    assert (await story.mutation(wf)).status == "skipped"
    assert await story.ids(wf, "in", "skipped") == ["a"]


async def test_a_run_whose_outcome_is_being_looked_up_cannot_be_skipped_nor_retried(story: Story) -> None:
    # I3, I32
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry()
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    for act in (story.keep.skip_run, story.keep.retry, story.keep.finish):
        with pytest.raises(Refused, match=run.id):
            await act(run.id)
    assert await story.last(wf) == run
    await story.run(seconds=30)
    assert ((await story.mutation(wf)).status, len(story.world.effects)) == ("applied", 1)


async def test_a_run_with_an_open_question_cannot_be_retried(story: Story) -> None:
    # I3
    wf, row = await in_question(story)
    with pytest.raises(Refused, match="Resolve"):
        await story.keep.retry(row.run_id)
    await story.run(days=1)
    assert story.world.count("webhook.fire") == 1
    assert (await story.mutation(wf)).status == "indeterminate"


async def test_a_run_whose_mutation_was_applied_cannot_be_skipped_but_can_be_finished(story: Story) -> None:
    # I32, DESIGN 6: events consumed, result and state kept, nothing published
    wf = await story.deploy_and_run(acting(next="throw new Error('for ever');"), "a")
    run = await story.last(wf)
    with pytest.raises(Refused, match="happened"):
        await story.keep.skip_run(run.id)
    await story.keep.finish(run.id)
    done = await story.keep.run(run.id)
    assert (done.status, done.phase) == ("committed", "committed")
    assert await story.ids(wf, "in", "consumed") == ["a"]
    assert await story.events(wf, "out") == []
    assert ((await story.mutation(wf)).status, (await story.mutation(wf)).result) == ("applied", {"id": "sent-1"})
    await story.run(minutes=5)
    assert len(await story.runs(wf, "act")) == 1
    with pytest.raises(Refused):
        await story.keep.finish(run.id)


async def test_finish_is_refused_before_the_mutation(story: Story) -> None:
    # DESIGN 6
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    with pytest.raises(Refused, match="paused:transient"):
        await story.keep.finish(run.id)
    assert (await story.event(wf, "in", "a")).reserved_by == run.id


async def test_finishing_a_skipped_run_whose_next_fails_leaves_its_events_skipped(story: Story) -> None:
    # I16, R163: a skip stays a skip
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(acting(FIRE, next="throw new Error('for ever');"))
    await story.keep.resolve((await story.mutation(wf)).id, "skip")
    await story.run()
    run = await story.last(wf)
    assert (run.status, run.phase) == ("failed:logic", "emitting")
    await story.keep.finish(run.id)
    assert (await story.event(wf, "in", "a")).status == "skipped"


async def test_a_run_without_mutation_whose_next_fails_can_be_skipped(story: Story) -> None:
    # DESIGN 6: "any blocked run whose last mutation is none … can be skipped"
    wf = await story.deploy_and_run(acting(
        "ctx.log('nothing to do');",
        next="if (mutationResult.status !== 'skipped') { throw new Error('no'); }" + TOLD), "a")
    run = await story.last(wf)
    assert (run.status, run.phase) == ("failed:logic", "emitting")
    await story.keep.skip_run(run.id)
    await story.run()
    assert (await story.last(wf)).status == "committed"
    assert await story.ids(wf, "in", "skipped") == ["a"]


async def test_a_reserved_event_cannot_be_skipped_by_itself(story: Story) -> None:
    # DESIGN 6: refused, naming the run
    wf, row = await in_question(story)
    with pytest.raises(Refused, match=row.run_id):
        await story.keep.skip_event((await story.event(wf, "in", "a")).id)
    assert (await story.event(wf, "in", "a")).reserved_by == row.run_id


# -- several people at once --------------------------------------------------------------------------


async def test_of_several_answers_at_the_same_moment_one_counts_and_the_others_are_told_so(story: Story) -> None:
    # R252, I31
    wf, row = await in_question(story)
    ledger = story.keep.parts.ledger
    with ledger.under_way(), ledger.under_way():  # as while other workflows run: commits are gathered
        ended = await asyncio.gather(
            *(story.keep.resolve(row.id, answer) for answer in ("skip", "happened", "did_not_happen", "skip")),
            return_exceptions=True)
    refused = [e for e in ended if e is not None]
    assert len(refused) == 3
    assert {type(e) for e in refused} == {Refused}, refused
    await story.run()
    assert (await story.last(wf)).status == "committed"


async def test_a_person_who_retries_in_the_moment_in_which_the_host_does_harms_nothing(story: Story) -> None:
    # I8, I31: one of both starts the run; neither the host nor the person gets a crash
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    story.clock.advance(seconds=30)
    ledger = story.keep.parts.ledger
    with ledger.under_way(), ledger.under_way():
        host, person = await asyncio.gather(
            story.keep.run_until_idle(), story.keep.retry(run.id), return_exceptions=True)
    assert host is None
    assert isinstance(person, str | Refused), person
    await story.run()
    assert [r.status for r in await story.runs(wf, "act")] == ["superseded", "committed"]
    assert len(story.world.effects) == 1


async def test_a_host_that_finds_its_run_already_carried_on_looks_again(
    story: Story, monkeypatch: pytest.MonkeyPatch,
) -> None:
    # I8, DESIGN 14: run_until_idle does not raise; here the person is faster, between the host's look and its write
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    wf = await story.deploy_and_run(acting())
    run = await story.last(wf)
    ledger, raced = story.keep.parts.ledger, []
    write = ledger.write

    async def slow_write(verb: Any, *args: Any, **more: Any) -> Any:
        if verb.__name__ == "carry_on" and not raced:
            raced.append(await story.keep.retry(run.id))
        return await write(verb, *args, **more)

    monkeypatch.setattr(ledger, "write", slow_write)
    await story.run(seconds=30)
    assert [r.status for r in await story.runs(wf, "act")] == ["superseded", "committed"]
    assert (await story.last(wf)).id == raced[0]
    assert len(story.world.effects) == 1


async def test_a_result_that_cannot_be_kept_is_refused_and_the_question_stays_open(story: Story) -> None:
    # R251
    wf, row = await in_question(story)
    with pytest.raises(KeepError):
        await story.keep.resolve(row.id, "happened", {"n": float("nan")})
    assert await story.mutation(wf) == row


async def test_what_a_call_says_after_it_was_given_up_is_kept_as_evidence_and_decides_nothing(tmp_path: Path) -> None:
    # I5, I10
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("webhook.fire").hang(stubborn=True, applied=True)
        wf = await story.deploy_and_run(acting(FIRE))
        row = await story.mutation(wf)
        assert (row.status, row.closed_at) == ("indeterminate", None)
        story.world.release()
        while story.keep.parts.calls:  # until what it says is on record
            await asyncio.wait(story.keep.parts.calls)
        late = await story.mutation(wf)
        assert late.status == "indeterminate"
        assert late.closed_at is not None
        [stored] = await story.rows("mutation_by_id", mutation_id=row.id)
        assert stored is not None
        assert "call" in stored["evidence"]
        await story.keep.resolve(row.id, "skip")
        await story.run()
        assert len(story.world.effects) == 1
