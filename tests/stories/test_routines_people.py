"""What people decide for routines: permissions, approvals, unknown outcomes, work once more, items left behind."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from keepai import PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.model.errors import KeepError, Refused
from tests.harness import Story, views
from tests.routines import (
    FIRE,
    MAIL,
    ROW_AND_MAIL,
    each,
    guarded,
    item,
    items,
    last_mutation,
    routine,
    sent,
    took_place,
)

# -- permissions ---------------------------------------------------------------------------------------


async def test_a_missing_grant_is_asked_for_and_the_routine_goes_on_when_it_is_given(story: Story) -> None:
    # R285, R287
    story.feed.put("a")
    grants = {"feed.list": "allow", "sheets.appendRow": "allow"}
    wf = await story.deploy_and_run(routine(), grants=grants)
    asked = await story.question(wf)
    assert (asked.kind, asked.facts["capability"]) == ("permission", "gmail.send")
    assert asked.facts["inputs"] == ["Item a"]
    assert await items(story, wf) == {"a": "failed"}
    assert took_place(story) == ["sheets.appendRow"]
    await story.keep.grant(wf, "gmail.send")
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


@pytest.mark.parametrize("error", [PermissionDenied("expired"), PreconditionFailed("the sheet is gone")])
async def test_what_a_person_must_mend_outside_is_a_question_that_retry_answers(story: Story, error: KeepError) -> None:
    # R284, R285
    story.feed.put("a")
    story.world.on("gmail.send").fail(error)
    wf = await story.deploy_and_run(routine())
    asked = await story.question(wf)
    assert asked.kind == error.code
    await story.run(hours=5)
    assert len(await story.runs(wf)) == 1
    await story.keep.retry(asked.run_id)
    await story.run()
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]
    assert await items(story, wf) == {"a": "done"}


async def test_a_limit_per_run_counts_what_was_sent_over_all_replays_and_not_what_was_found_again(story: Story) -> None:
    for name in ("a", "b", "c"):
        story.feed.put(name, "body")
    story.world.on("webhook.fire").fail(Transient("busy"), times=1)
    grants: Any = {"feed.list": "allow", "webhook.fire": "allow", "gmail.send": {"mode": "allow", "per_run": 2}}
    wf = await story.deploy(routine(guarded(MAIL, FIRE)), grants=grants)
    await story.run()  # a's mail, then a transient failure
    await story.run(minutes=1)  # a again (found), b, then c is one too many
    assert len(sent(story)) == 2
    assert (await story.question(wf)).kind == "permission"
    assert await items(story, wf) == {"a": "done", "b": "done", "c": "failed"}
    await story.keep.grant(wf, "gmail.send", {"mode": "allow", "per_run": 3})
    await story.run()
    assert len(sent(story)) == 3
    assert await items(story, wf) == {"a": "done", "b": "done", "c": "done"}


async def test_a_limit_per_run_does_not_count_calls_that_were_refused(story: Story) -> None:
    story.feed.put("a", "body")
    story.feed.put("b", "body")
    story.world.on("gmail.send").fail(Transient("busy"), times=2)
    grants: Any = {"feed.list": "allow", "gmail.send": {"mode": "allow", "per_run": 2}}
    wf = await story.deploy_and_run(routine(guarded(MAIL), interval="1d"), grants=grants)
    for _ in range(3):
        await story.run(minutes=15)
    assert [m.status for m in await story.keep.mutations(wf)] == ["failed", "failed", "applied", "applied"]
    assert await story.keep.needs_you(wf) == []
    assert await items(story, wf) == {"a": "done", "b": "done"}


async def test_a_limit_per_day_is_not_used_up_by_replays(story: Story) -> None:
    story.feed.put("a", "body")
    story.world.on("webhook.fire").fail(Transient("busy"), times=5)
    grants: Any = {"feed.list": "allow", "webhook.fire": "allow", "gmail.send": {"mode": "allow", "per_day": 1}}
    wf = await story.deploy_and_run(routine(guarded(MAIL, FIRE)), grants=grants)
    for _ in range(5):
        await story.run(minutes=15)
    assert (await items(story, wf), len(sent(story))) == ({"a": "done"}, 1)
    story.feed.put("b", "body")
    await story.run(minutes=5)
    assert (await story.question(wf)).kind == "permission"
    await story.keep.retry((await story.last(wf)).id)
    await story.run()
    assert len(sent(story)) == 1
    await story.run(days=1)
    await story.keep.retry((await story.last(wf)).id)
    await story.run()
    assert (await items(story, wf), len(sent(story))) == ({"a": "done", "b": "done"}, 2)


# -- approvals -----------------------------------------------------------------------------------------

ASK: Any = {"feed.list": "allow", "sheets.appendRow": "allow", "gmail.send": "ask", "webhook.fire": "allow"}


async def asking(story: Story, body: str | None = None) -> str:
    """A workflow whose first mail waits for a person."""
    return await story.deploy_and_run(routine(body), "a", "b", grants=ASK)


async def test_the_held_call_is_shown_and_approving_sends_exactly_it_then_the_script_goes_on(story: Story) -> None:
    # R276, R277
    wf = await asking(story, each(ROW_AND_MAIL + "ctx.log('after the mail');"))
    asked = await story.question(wf)
    assert (asked.kind, asked.actions) == ("approval", ("approve", "reject"))
    assert asked.facts["params"] == {"to": "a@example.com", "body": "row-1"}
    assert asked.facts["inputs"] == ["Item a"]
    assert await items(story, wf) == {"a": "processing"}
    story.feed.items[0]["payload"] = "changed meanwhile"
    await story.keep.approve(asked.id)
    await story.run()
    assert sent(story) == [{"to": "a@example.com", "body": "row-1"}]
    assert await items(story, wf) == {"a": "done", "b": "processing"}
    assert (await story.question(wf)).facts["params"] == {"to": "b@example.com", "body": "row-2"}
    assert story.logs(await story.last(wf)) == ["after the mail"]
    await story.keep.approve((await story.question(wf)).id)
    await story.run()
    assert took_place(story) == ["sheets.appendRow", "gmail.send"] * 2
    assert (await story.last(wf)).status == "committed"


async def test_rejecting_skips_the_item_and_goes_on_with_the_others(story: Story) -> None:
    # DESIGN 10: to reject is to skip
    wf = await asking(story)
    await story.keep.reject((await story.question(wf)).id)
    await story.run()
    assert await items(story, wf) == {"a": "skipped", "b": "processing"}
    await story.keep.approve((await story.question(wf)).id)
    await story.run()
    assert await items(story, wf) == {"a": "skipped", "b": "done"}
    assert [mail["to"] for mail in sent(story)] == ["b@example.com"]


async def test_a_new_version_makes_an_approval_void_and_asks_for_what_it_wants(story: Story) -> None:
    wf = await asking(story)
    first = await story.question(wf)
    await story.deploy_and_run(routine(each(ROW_AND_MAIL.replace("row.rowId", "`Row ${row.rowId}`"))), workflow_id=wf,
                       grants=ASK)
    second = await story.question(wf)
    assert second.id != first.id
    assert second.facts["params"] == {"to": "a@example.com", "body": "Row row-1"}
    with pytest.raises(Refused):
        await story.keep.approve(first.id)
    await story.keep.approve(second.id)
    await story.run()
    assert [mail["body"] for mail in sent(story)] == ["Row row-1"]
    assert len(sent(story, "sheets.appendRow")) == 2


async def test_an_approval_given_before_a_new_version_is_not_used_for_it(story: Story) -> None:
    wf = await asking(story)
    await story.keep.approve((await story.question(wf)).id)
    await story.deploy_and_run(routine(each(ROW_AND_MAIL.replace("row.rowId", "`Row ${row.rowId}`"))), workflow_id=wf,
                       grants=ASK)
    assert sent(story) == []
    assert (await story.question(wf)).facts["params"] == {"to": "a@example.com", "body": "Row row-1"}


async def test_an_approval_that_nobody_gives_is_shown_afresh(story: Story) -> None:
    wf = await asking(story)
    first = await story.question(wf)
    await story.run(days=2)
    second = await story.question(wf)
    assert (second.id != first.id, second.facts["params"]) == (True, first.facts["params"])
    await story.keep.approve(second.id)
    await story.run()
    assert len(sent(story)) == 1


@pytest.mark.parametrize("error", [Transient("busy"), Rejected("no")])
async def test_an_approved_call_that_fails_is_asked_for_again_and_made_once(story: Story, error: KeepError) -> None:
    # R275: an approval is for one send
    wf = await asking(story)
    story.world.on("gmail.send").fail(error)
    await story.keep.approve((await story.question(wf)).id)
    await story.run()
    assert (sent(story), await items(story, wf)) == ([], {"a": "failed"})
    if isinstance(error, Rejected):
        await story.keep.retry((await story.last(wf)).id)
    await story.run(minutes=1)
    await story.keep.approve((await story.question(wf)).id)
    await story.run()
    assert len(sent(story)) == 1
    assert (await items(story, wf))["a"] == "done"


async def test_an_approved_call_whose_answer_is_lost_is_found_and_not_approved_twice(story: Story) -> None:
    # R276
    wf = await asking(story)
    story.world.on("gmail.send").lose_answer()
    await story.keep.approve((await story.question(wf)).id)
    await story.run()
    assert await items(story, wf) == {"a": "done", "b": "processing"}
    assert [mail["to"] for mail in sent(story)] == ["a@example.com"]


# -- unknown outcomes ----------------------------------------------------------------------------------


async def test_a_lost_answer_is_looked_up_and_the_script_gets_the_result_that_was_found(story: Story) -> None:
    # R276, R274
    story.feed.put("a")
    story.world.on("sheets.appendRow").lose_answer()
    wf = await story.deploy_and_run(routine())
    assert await items(story, wf) == {"a": "done"}
    assert sent(story) == [{"to": "a@example.com", "body": "row-1"}]
    assert story.world.count("sheets.appendRow") == 1


async def test_a_request_that_was_lost_is_proven_absent_and_sent_again(story: Story) -> None:
    # R275, R276
    story.feed.put("a")
    story.world.on("sheets.appendRow").fail(OSError("reset"))
    wf = await story.deploy_and_run(routine())
    assert (await last_mutation(story, wf)).status == "failed"
    assert await items(story, wf) == {"a": "failed"}
    await story.run(minutes=1)
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]
    first, second = [a.call for a in story.world.asked if (a.operation, a.kind) == ("sheets.appendRow", "call")]
    assert first.idempotency_key == second.idempotency_key, "the same thing, in case it was not lost after all"


async def in_doubt(story: Story, *, happened: bool, body: str | None = None) -> tuple[str, str]:
    """A workflow of two items whose first mail nobody can verify: its id and the mutation's."""
    story.feed.put("a")
    story.feed.put("b")
    if happened:
        story.world.on("gmail.send").lose_answer()
    else:
        story.world.on("gmail.send").fail(OSError("reset"))
    story.world.on_reconcile("gmail.send").unknown()
    wf = await story.deploy_and_run(routine(body))
    asked = await story.question(wf)
    assert asked.kind == "unknown_outcome"
    assert asked.facts["inputs"] == ["Item a"]
    assert await items(story, wf) == {"a": "failed"}
    assert asked.mutation_id
    return wf, asked.mutation_id


TOLD = each("""
  if (ctx.item.isDone) return;
  await ctx.sheets.appendRow({ spreadsheetId: "s", values: [item.id] });
  const mail = await ctx.gmail.send({ to: `${item.id}@example.com` });
  ctx.log(JSON.stringify(mail));
""")


@pytest.mark.parametrize("happened", [True, False])
async def test_trying_again_looks_once_more_and_what_is_found_counts(story: Story, happened: bool) -> None:
    # R276
    wf, mutation_id = await in_doubt(story, happened=happened)
    await story.keep.resolve(mutation_id, "try_again")
    await story.run()
    await story.run(minutes=1)
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert [mail["to"] for mail in sent(story)] == ["a@example.com", "b@example.com"]


async def test_it_did_not_happen_has_it_sent_again_at_once(story: Story) -> None:
    # R275
    wf, mutation_id = await in_doubt(story, happened=False)
    await story.keep.resolve(mutation_id, "did_not_happen")
    await story.run()
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"] * 2
    mails = [m for m in await story.keep.mutations(wf) if m.connector == "gmail"]
    assert [(m.status, m.attempts) for m in mails] == [("failed", 1), ("applied", 2), ("applied", 1)]
    assert mails[0].idempotency_key == mails[1].idempotency_key


@pytest.mark.parametrize("result", [None, {"id": "by hand", "n": [1, 2.5]}, "a text"])
async def test_it_happened_gives_the_script_the_result_that_the_person_gave(story: Story, result: Any) -> None:
    # R274, R276
    wf, mutation_id = await in_doubt(story, happened=True, body=TOLD)
    await story.keep.resolve(mutation_id, "happened", result)
    await story.run()
    assert await items(story, wf) == {"a": "done", "b": "done"}
    logged = [line for run in await story.runs(wf) for line in story.logs(run)]
    assert [json.loads(line) for line in logged] == [result, {"id": "sent-4"}]
    assert len(sent(story)) == 2


async def test_skipping_an_unknown_outcome_skips_the_item_and_goes_on(story: Story) -> None:
    wf, mutation_id = await in_doubt(story, happened=True)
    await story.keep.resolve(mutation_id, "skip")
    await story.run()
    assert await items(story, wf) == {"a": "skipped", "b": "done"}
    mails = [m for m in await story.keep.mutations(wf) if m.connector == "gmail"]
    assert [m.status for m in mails] == ["skipped", "applied"]
    assert [mail["to"] for mail in sent(story)] == ["a@example.com", "b@example.com"]
    assert await story.keep.needs_you(wf) == []


async def test_skip_run_on_an_unknown_outcome_does_the_same(story: Story) -> None:
    wf, _ = await in_doubt(story, happened=True)
    await story.keep.skip_run((await story.last(wf)).id)
    await story.run()
    assert await items(story, wf) == {"a": "skipped", "b": "done"}


async def test_a_request_that_may_still_arrive_cannot_be_declared_absent_or_skipped_past(story: Story) -> None:
    # R276, R294
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(600)
    wf = await story.deploy_and_run(routine())
    row, run = await last_mutation(story, wf), await story.last(wf)
    for act in (
        story.keep.resolve(row.id, "did_not_happen"), story.keep.skip_run(run.id), story.keep.retry(run.id),
        story.keep.reprocess((await item(story, wf)).id), story.keep.skip_input((await item(story, wf)).input_id),
    ):
        with pytest.raises(Refused):
            await act
    assert await items(story, wf) == {"a": "failed"}


async def test_a_webhook_whose_answer_is_lost_is_a_question_at_once(story: Story) -> None:
    # R276, R294: nobody can be asked, so a person is
    story.feed.put("a")
    story.world.on("webhook.fire").lose_answer()
    wf = await story.deploy_and_run(routine(guarded(FIRE, 'ctx.log("went on");')))
    asked = await story.question(wf)
    assert (asked.kind, asked.actions) == ("unknown_outcome", ("did_not_happen", "happened", "skip"))
    with pytest.raises(Refused, match="no way to look up"):
        await story.keep.resolve(str(asked.mutation_id), "try_again")
    await story.reopen()
    await story.run(days=3)
    assert (await story.runs(wf))[-1].status == "paused:reconciliation"
    await story.keep.resolve(str(asked.mutation_id), "happened", {"ok": True})
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert story.logs(await story.last(wf)) == ["went on"]
    assert took_place(story) == ["webhook.fire"]


@pytest.mark.parametrize("applied", [True, False])
async def test_a_host_that_dies_while_a_webhook_is_under_way_leaves_a_question(story: Story, applied: bool) -> None:
    # R276, R294
    story.feed.put("a")
    wf = await story.deploy(routine(guarded(FIRE)))
    await story.crash("after:call" if applied else "before:call")
    await story.run(days=1)
    asked = await story.question(wf)
    assert asked.kind == "unknown_outcome"
    await story.run(minutes=2)
    await story.keep.resolve(str(asked.mutation_id), "happened" if applied else "did_not_happen")
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["webhook.fire"]


@pytest.mark.parametrize("grant", ["allow", "ask", "deny"])
async def test_a_question_names_the_item_that_it_is_about_and_no_other(story: Story, grant: str) -> None:
    story.feed.put("a")
    story.feed.put("b", "fire")
    story.world.on("webhook.fire").lose_answer()
    grants = {**ASK, "gmail.send": "allow", "webhook.fire": grant}
    wf = await story.deploy_and_run(routine(each(ROW_AND_MAIL + f"if (item.payload) {{ {FIRE} }}")), grants=grants)
    asked = await story.question(wf)
    assert asked.kind == {"allow": "unknown_outcome", "ask": "approval", "deny": "permission"}[grant]
    assert asked.facts["inputs"] == ["Item b"]


# -- an item once more ---------------------------------------------------------------------------------


@pytest.mark.parametrize("skipped", [False, True])
async def test_reprocessing_sends_everything_again_and_keeps_the_history(story: Story, skipped: bool) -> None:
    # R267
    story.feed.put("a")
    story.feed.put("b")
    if skipped:
        story.world.on("gmail.send").fail(Rejected("no"))
    wf = await story.deploy_and_run(routine())
    if skipped:
        await story.keep.skip_run((await story.last(wf)).id)
        await story.run()
    before = await story.keep.mutations(wf)
    a = await item(story, wf)
    assert a.status == ("skipped" if skipped else "done")
    await story.keep.reprocess(a.id)
    again = await item(story, wf)
    assert (again.status, again.attempt, again.id) == ("processing", 2, a.id)
    await story.run()
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert (await item(story, wf)).attempt == 2
    after = await story.keep.mutations(wf)
    assert after[: len(before)] == before, "what was done stays on record"
    assert [m.status for m in after[len(before) :]] == ["applied", "applied"]
    assert not {m.mutation_key for m in before} & {m.mutation_key for m in after[len(before) :]}
    assert [mail["to"] for mail in sent(story)] == [
        *([] if skipped else ["a@example.com"]), "b@example.com", "a@example.com"]
    await story.run(minutes=5)
    assert len(await story.keep.mutations(wf)) == len(after)


async def test_reprocessing_is_refused_while_a_run_has_the_item_in_hand(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine())
    run = await story.last(wf)
    with pytest.raises(Refused, match=f"run {run.id} holds it. Retry or skip that run."):
        await story.keep.reprocess((await item(story, wf)).id)
    assert (await item(story, wf)).attempt == 1


async def test_reprocessing_what_is_already_to_be_worked_on_once_more_is_refused(story: Story) -> None:
    wf = await story.deploy_and_run(routine(), "a")
    a = await item(story, wf)
    await story.keep.reprocess(a.id)
    with pytest.raises(Refused, match="it is processing"):
        await story.keep.reprocess(a.id)
    assert (await item(story, wf)).attempt == 2


async def test_an_item_done_earlier_in_a_run_that_waits_can_be_reprocessed_and_is_worked_on_in_the_replay(
    story: Story,
) -> None:
    # R267, R293
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("gmail.send").before(_only_once("b@example.com", Transient("busy")))
    wf = await story.deploy_and_run(routine())
    assert await items(story, wf) == {"a": "done", "b": "failed"}
    await story.keep.reprocess((await item(story, wf)).id)
    await story.run(minutes=1)
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert [mail["to"] for mail in sent(story)] == ["a@example.com", "a@example.com", "b@example.com"]


@pytest.mark.parametrize("where", ["inside it", "after it"])
async def test_an_item_reprocessed_while_its_routine_runs_is_worked_on_once_more_by_the_next_run(
    story: Story, where: str,
) -> None:
    # R267, R293: the run under way has seen it as done; it must not end it, or leave it, unworked
    wf = await story.deploy_and_run(routine(each("await ctx.gmail.search({ of: item.id });" + ROW_AND_MAIL)), "a")
    story.feed.put("b")
    stood = list[str]()

    async def reprocess(params: Any, call: Any) -> None:
        if params["of"] == ("a" if where == "inside it" else "b") and not stood:
            await story.keep.reprocess((await item(story, wf)).id)
            stood.append((await story.last(wf)).id)

    story.world.on("gmail.search").before(reprocess)
    await story.run(minutes=5)
    assert [mail["to"] for mail in sent(story)] == ["a@example.com", "b@example.com", "a@example.com"]
    assert await items(story, wf) == {"a": "done", "b": "done"}
    a = await item(story, wf)
    assert (a.attempt, len(await story.runs(wf))) == (2, 3)
    assert [m["target"] for m in views(story.keep).history(wf, a.id)] == ["processing", "done", "processing", "done"]


@pytest.mark.parametrize("how", ["found by asking", "approved", "a person says it happened"])
async def test_the_same_if_that_run_goes_on_in_its_place(story: Story, how: str) -> None:
    # R267, R293: a run whose call was found, approved or vouched for is replayed as the same run
    story.feed.put("a")
    story.feed.put("b")
    wf = await story.deploy(routine(each(ROW_AND_MAIL + "if (item.id === 'b') await ctx.webhook.fire({});")),
                            grants={**ASK, "gmail.send": "allow",
                                    "webhook.fire": "ask" if how == "approved" else "allow"})
    if how == "found by asking":
        story.world.on("gmail.send").before(_only_once("b@example.com", OSError("reset")))
        story.world.on_reconcile("gmail.send").retry(60)
        story.world.on_reconcile("gmail.send").found({"id": "x"})
    elif how != "approved":
        story.world.on("webhook.fire").lose_answer()
    await story.run()
    assert await items(story, wf) == {"a": "done", "b": "processing" if how == "approved" else "failed"}
    await story.keep.reprocess((await item(story, wf)).id)
    if how == "approved":
        await story.keep.approve((await story.question(wf)).id)
    elif how != "found by asking":
        await story.keep.resolve((await last_mutation(story, wf)).id, "happened", {})
    await story.run(minutes=2)
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert [mail["to"] for mail in sent(story)].count("a@example.com") == 2
    assert len([m for m in await story.keep.mutations(wf) if m.status == "applied"]) == 7


def _only_once(address: str, error: Exception):  # type: ignore[no-untyped-def]
    failed: list[str] = []

    def fail(params: dict[str, object], call: object) -> None:
        if params["to"] == address and not failed:
            failed.append(address)
            raise error

    return fail


# -- an item that was left behind ----------------------------------------------------------------------


async def left_behind(story: Story) -> str:
    """A workflow whose first item was begun, stopped, and then no longer offered."""
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine())
    kept = list(story.feed.items)
    story.feed.items = [i for i in story.feed.items if i["id"] != "a"]
    await story.run(minutes=1)
    story.feed.items = kept
    assert await items(story, wf) == {"a": "failed", "b": "done"}
    assert (await story.last(wf)).status == "committed"
    return wf


async def test_an_item_that_is_no_longer_offered_is_a_question_and_not_forgotten(story: Story) -> None:
    # R285, R294: nothing that was started ends in silence
    wf = await left_behind(story)
    a = await item(story, wf)
    asked = await story.question(wf)
    assert (asked.id, asked.kind, asked.actions) == (f"ask_{a.id}", "attention", ("reprocess", "skip_input"))
    assert asked.title == "Item a"
    assert "began “Item a” and ended without finishing it" in str(asked.facts["why"])
    assert len(asked.facts["already_applied"]) == 1  # type: ignore[arg-type]
    assert (asked.facts["input_id"], asked.facts["item_id"]) == (a.input_id, a.id)
    found = (await story.inputs(wf))["a"]
    assert (found.status, found.needs_you) == ("pending", True)


async def test_an_item_that_is_offered_again_is_finished_with_what_is_missing(story: Story) -> None:
    # R274, R287: the key is the item's, not the run's
    wf = await left_behind(story)
    await story.run(minutes=5)
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert await story.keep.needs_you(wf) == []
    assert len(sent(story, "sheets.appendRow")) == 2
    assert sorted(mail["to"] for mail in sent(story)) == ["a@example.com", "b@example.com"]


async def test_reprocessing_answers_the_question_with_a_new_attempt(story: Story) -> None:
    # R267
    wf = await left_behind(story)
    await story.keep.reprocess((await item(story, wf)).id)
    assert await story.keep.needs_you(wf) == []
    await story.run()
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert len(sent(story, "sheets.appendRow")) == 3, "everything of it again"


async def test_skipping_its_input_answers_the_question_too(story: Story) -> None:
    wf = await left_behind(story)
    await story.keep.skip_input((await item(story, wf)).input_id)
    assert await items(story, wf) == {"a": "skipped", "b": "done"}
    assert await story.keep.needs_you(wf) == []
    assert (await story.inputs(wf))["a"].status == "skipped"
    await story.run(minutes=5)
    assert await items(story, wf) == {"a": "skipped", "b": "done"}
    assert [mail["to"] for mail in sent(story)] == ["b@example.com"]


async def test_every_act_that_the_question_offers_is_accepted_also_the_second_time(story: Story) -> None:
    # "An act is offered only if it would be accepted now"
    wf = await left_behind(story)
    a = await item(story, wf)
    await story.keep.skip_input(a.input_id)
    await story.keep.reprocess(a.id)
    story.world.on("gmail.send").fail(Transient("busy"))
    await story.run()
    story.feed.items = [i for i in story.feed.items if i["id"] != "a"]
    await story.run(minutes=1)
    asked = await story.question(wf)
    assert asked.id == f"ask_{a.id}"
    for act in asked.actions:
        assert act in ("reprocess", "skip_input")
    if "skip_input" in asked.actions:
        await story.keep.skip_input(a.input_id)
        assert await items(story, wf) == {"a": "skipped", "b": "done"}


async def test_an_item_whose_routine_is_gone_from_the_script_is_a_question(story: Story) -> None:
    # R294
    story.feed.put("a")
    story.world.on("gmail.send").fail(Rejected("no"))
    wf = await story.deploy_and_run(routine(ROUTINE_GONE, other=each()))
    assert await items(story, wf) == {"a": "failed"}
    await story.deploy_and_run(routine(ROUTINE_GONE), workflow_id=wf)
    asked = await story.question(wf)
    a = await item(story, wf)
    assert (asked.id, asked.kind) == (f"ask_{a.id}", "attention")
    await story.keep.skip_input(a.input_id)
    assert await story.keep.needs_you(wf) == []


ROUTINE_GONE = "return state;"


async def test_an_item_whose_routine_is_gone_is_not_lost_by_asking_for_it_once_more(story: Story) -> None:
    # R294: nobody would ever come to it
    wf = await story.deploy_and_run(routine(ROUTINE_GONE, other=each()), "a")
    await story.deploy_and_run(routine(ROUTINE_GONE), workflow_id=wf)
    with contextlib.suppress(Refused):
        await story.keep.reprocess((await item(story, wf)).id)
    await story.run(days=1)
    assert await items(story, wf) == {"a": "done"} or await story.keep.needs_you(wf)


async def test_an_item_to_be_worked_on_once_more_that_its_routine_no_longer_offers_is_asked_about(story: Story) -> None:
    # R294: the usual case of a routine that keeps a cursor in its state
    wf = await story.deploy_and_run(routine(), "a")
    story.feed.items = []
    await story.keep.reprocess((await item(story, wf)).id)
    await story.run()
    await story.run(days=1)
    asked = await story.question(wf)
    assert asked.facts["item_id"] == (await item(story, wf)).id


async def test_an_item_in_doubt_whose_routine_is_gone_ends_under_the_version_that_knows_it(story: Story) -> None:
    # R276
    story.feed.put("a")
    story.world.on("sheets.appendRow").lose_answer()
    story.world.on_reconcile("sheets.appendRow").retry(600)
    wf = await story.deploy_and_run(routine(ROUTINE_GONE, other=each()))
    await story.deploy(routine(ROUTINE_GONE), workflow_id=wf)
    await story.run(minutes=10)
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


async def test_giving_up_a_routine_between_items_leaves_nothing_behind(story: Story) -> None:
    wf = await story.deploy_and_run(routine(guarded(FIRE, after="throw new Error('between');")), "a")
    await story.keep.skip_run((await story.last(wf)).id)
    await story.run()
    assert ((await story.last(wf)).status, await items(story, wf)) == ("abandoned", {"a": "done"})
    assert await story.keep.needs_you(wf) == []
    await story.run(minutes=5)
    assert ((await story.last(wf)).status, took_place(story)) == ("failed:logic", ["webhook.fire"])


async def test_an_item_that_the_script_does_not_wait_for_is_finished_or_asked_about(story: Story) -> None:
    # R294: a floating promise does not lose work in silence
    wf = await story.deploy_and_run(routine("""
      ctx.withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.feed.list({}); await ctx.feed.list({}); await ctx.gmail.send({ to: "x" });
      });
    """))
    assert await items(story, wf) == {"a": "done"} or await story.keep.needs_you(wf)
    assert len(sent(story)) == 1
