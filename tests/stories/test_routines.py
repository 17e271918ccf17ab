"""Routines work through items: the handler always runs, and a finished item never yields another side effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import OutcomeUnknown, PermissionDenied, Policy, PreconditionFailed, Rejected, ScriptInvalid, Transient
from keepai.model.records import Run
from tests.harness import Story
from tests.routines import (
    FIRE,
    GUARD,
    MAIL,
    ODD,
    ROW,
    ROW_AND_MAIL,
    Desk,
    each,
    guarded,
    item,
    items,
    last_mutation,
    routine,
    sent,
    took_place,
)

# -- an item and its handler ---------------------------------------------------------------------------


async def test_each_item_gets_its_mutations_in_order_with_their_results_and_is_done(story: Story) -> None:
    # R256, R288
    wf = await story.deploy_and_run(routine(), "a", "b")
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"] * 2
    assert sent(story) == [
        {"to": "a@example.com", "body": "row-1"}, {"to": "b@example.com", "body": "row-2"},
    ]
    assert (await story.last(wf)).status == "committed"


async def test_the_handler_runs_for_a_done_item_too_and_is_told_so(story: Story) -> None:
    # R257, R258, R260: what only computes completes normally, and the item stays done
    wf = await story.deploy_and_run(routine(each("ctx.log(`${item.id} ${ctx.item.isDone}`);")), "a")
    await story.run(minutes=5)
    first, second = await story.runs(wf)
    assert (story.logs(first), story.logs(second)) == (["a false"], ["a true"])
    assert await items(story, wf) == {"a": "done"}
    assert second.status == "committed"


async def test_an_item_that_was_done_earlier_in_the_same_run_is_done_when_it_comes_again(story: Story) -> None:
    # R258, R261
    story.feed.put("a")
    story.feed.items *= 2
    wf = await story.deploy_and_run(routine(each(f"ctx.log(`${{ctx.item.isDone}}`); {ROW_AND_MAIL}")))
    assert story.logs(await story.last(wf)) == ["false", "true"]
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


async def test_is_done_is_false_while_the_item_is_failed_and_replayed(story: Story) -> None:
    # R258, R286
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"), times=2)
    wf = await story.deploy_and_run(routine(each("ctx.log(String(ctx.item.isDone));" + ROW_AND_MAIL)))
    assert await items(story, wf) == {"a": "failed"}
    await story.run(minutes=1)
    assert await items(story, wf) == {"a": "failed"}
    await story.run(minutes=2)
    assert await items(story, wf) == {"a": "done"}
    assert [story.logs(run) for run in await story.runs(wf)] == [["false"], ["false"], ["false"]]


async def test_what_an_items_function_returns_is_given_to_the_routine(story: Story) -> None:
    # R256
    wf = await story.deploy_and_run(routine("""
      const got = await ctx.withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return "done";
        return (await ctx.sheets.appendRow({ spreadsheetId: "s", values: [1] })).rowId;
      });
      ctx.log(got);
    """))
    await story.run(minutes=5)
    assert [story.logs(run) for run in await story.runs(wf)] == [["row-1"], ["done"]]


async def test_a_mutation_on_a_done_item_is_a_logic_error_without_effect(story: Story) -> None:
    # R259, R261: the expected repair is the missing guard, and the message says so
    wf = await story.deploy_and_run(routine(each(MAIL)), "a")
    await story.run(minutes=5)
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert run.error
    assert "is done" in run.error.message
    assert "if (ctx.item.isDone) return;" in run.error.message
    assert run.error.line is not None
    assert len(sent(story)) == 1
    assert await items(story, wf) == {"a": "done"}
    asked = await story.question(wf)
    assert (asked.kind, "deploy" in asked.actions) == ("logic", True)
    await story.deploy_and_run(routine(guarded(MAIL)), workflow_id=wf)
    assert (await story.last(wf)).status == "committed"
    assert len(sent(story)) == 1
    assert await story.keep.needs_you(wf) == []


async def test_a_mutation_on_a_skipped_item_is_refused_as_well(story: Story) -> None:
    # R261
    story.feed.put("a")
    story.world.on("gmail.send").fail(Rejected("no such address"))
    wf = await story.deploy_and_run(routine(each(MAIL)))
    await story.keep.skip_run((await story.last(wf)).id)
    await story.run()
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert run.error
    assert "is skipped" in run.error.message
    assert sent(story) == []


# -- what is refused -----------------------------------------------------------------------------------

REFUSED = {
    "a mutation outside of an item": (
        'await ctx.gmail.send({ to: "x" });', "outside of an item. Wrap it: await ctx.withItem("),
    "a mutation after the item": (
        'await ctx.withItem("a", "A", async () => {}); await ctx.gmail.send({ to: "x" });', "outside of an item"),
    "an item in another": (
        """await ctx.withItem("a", "A", async (ctx) => {
             await ctx.withItem("b", "B", async (ctx) => { await ctx.gmail.send({ to: "x" }); });
           });""", '"b" was begun while "a" is at work'),
    "an item in itself": (
        """await ctx.withItem("a", "A", async (ctx) => {
             await ctx.withItem("a", "A", async (ctx) => { await ctx.gmail.send({ to: "x" }); });
           });""", '"a" was begun in itself'),
    "items side by side": (
        """await Promise.all(["a", "b"].map((id) => ctx.withItem(id, id, async (ctx) => {
             await ctx.feed.list({}); await ctx.gmail.send({ to: id });
           })));""", "Items are worked on one after the other: write `await ctx.withItem(…)` in a plain loop"),
    "an item that nobody waits for": (
        """ctx.withItem("a", "A", async (ctx) => { await ctx.feed.list({}); });
           await ctx.withItem("b", "B", async (ctx) => { await ctx.gmail.send({ to: "x" }); });""",
        '"b" was begun while "a" is at work'),
    "an empty id": ('await ctx.withItem("", "A", async () => {});', "withItem: id"),
    "a number as id": ('await ctx.withItem(1, "A", async () => {});', "withItem: id"),
    "no id": ('await ctx.withItem(undefined, "A", async () => {});', "withItem: id"),
    "an empty title": ('await ctx.withItem("a", "", async () => {});', "title must say what this is"),
    "a blank title": ('await ctx.withItem("a", "  ", async () => {});', "title must say what this is"),
    "no title": ('await ctx.withItem("a", undefined, async () => {});', "title must say what this is"),
    "no function": ('await ctx.withItem("a", "A");', "takes an id, a title and a function"),
    "the ctx of an item that has ended": (
        """let kept; await ctx.withItem("a", "A", async (ctx) => { kept = ctx; });
           await ctx.withItem("b", "B", async (ctx) => { await kept.gmail.send({ to: "x" }); });""",
        "belongs to an item that has ended; use the ctx of the item at work"),
    "a call that outlives its item": (
        """await ctx.withItem("a", "A", async (ctx) => {
             (async () => { await ctx.feed.list({}); await ctx.gmail.send({ to: "x" }); })();
           });
           await ctx.withItem("b", "B", async (ctx) => { await ctx.feed.list({}); await ctx.feed.list({}); });""",
        "belongs to an item that has ended"),
    "an empty subkey": (
        'await ctx.withItem("a", "A", async (ctx) => { await ctx.gmail.send({ to: "x", subkey: "" }); });',
        "subkey must be a non-empty string"),
    "a subkey that is no text": (
        'await ctx.withItem("a", "A", async (ctx) => { await ctx.gmail.send({ to: "x", subkey: 1 }); });',
        "subkey must be a non-empty string"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_breaks_the_rules_of_items_is_a_logic_error_that_says_what_to_do(story: Story, case: str) -> None:
    # R259, R288, R289
    body, says = REFUSED[case]
    hidden = body.replace("ctx.withItem(", "ctx[['with', 'Item'].join('')](")  # `check` would find most of them before
    hidden = hidden.replace("ctx.gmail.send(", "ctx.gmail[['se', 'nd'].join('')](")
    wf = await story.deploy_and_run(routine(hidden), grants={"feed.list": "allow", "gmail.send": "allow"})
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert run.error
    assert says in run.error.message
    assert run.error.line is not None, "it names the place"
    assert story.world.effects == []
    assert (await story.question(wf)).kind == "logic"


@pytest.mark.parametrize("call", [
    "await ctx.publish('x', { messageId: '1', payload: {} })", "ctx.registerInput({})", "await ctx.peek('x')",
])
async def test_what_belongs_to_producers_and_consumers_is_found_before_a_routine_runs(story: Story, call: str) -> None:
    # the phase table of DESIGN 3
    with pytest.raises(ScriptInvalid):
        await story.deploy(routine(call))


async def test_what_hides_from_the_check_is_refused_when_it_runs(story: Story) -> None:
    wf = await story.deploy_and_run(routine("const name = ['pub', 'lish'].join(''); await ctx[name]('x', {});"))
    run = await story.last(wf)
    assert (run.status, run.error and run.error.code) == ("failed:logic", "phase_violation")


async def test_two_mutations_started_together_are_made_one_after_the_other(story: Story) -> None:
    # R288
    under_way: list[int] = [0, 0]

    async def note(params: object, call: object) -> None:
        under_way[0] += 1
        under_way[1] = max(under_way)
        flying = [m for m in await story.keep.mutations(wf) if m.status == "in_flight"]
        assert len(flying) == 1
        under_way[0] -= 1

    for operation in ("gmail.send", "sheets.appendRow"):
        story.world.on(operation).before(note)
    wf = await story.deploy(routine("""
      await ctx.withItem("a", "A", async (ctx) => { if (ctx.item.isDone) return;
        const [x, y] = await Promise.all([
          ctx.gmail.send({ to: "x" }), ctx.sheets.appendRow({ spreadsheetId: "s", values: [] })
        ]);
        ctx.log(x.id, y.rowId);
      });
    """))
    await story.run()
    assert story.logs(await story.last(wf)) == ["sent-1 row-1"]
    assert under_way == [0, 1]
    assert await items(story, wf) == {"a": "done"}


# -- nothing that fails can be caught ------------------------------------------------------------------

CAUGHT = """
  try {{
    await ctx.withItem("a", "A", async (ctx) => {{
      if (ctx.item.isDone) return;
      await ctx.sheets.appendRow({{ spreadsheetId: "s", values: [1] }});
      {inner}
    }});
  }} catch (e) {{ ctx.log("caught outside"); }} finally {{ ctx.log("finally outside"); }}
  await ctx.withItem("b", "B", async (ctx) => {{ await ctx.webhook.fire({{ of: "b" }}); }});
"""
CALL_IN_TRY = 'try { await ctx.gmail.send({ to: "x" }); } catch (e) { ctx.log("caught"); } finally { ctx.log("f"); }'
CALL_CAUGHT = 'await ctx.gmail.send({ to: "x" }).catch(() => ctx.log("caught")).finally(() => ctx.log("f"));'


@pytest.mark.parametrize("call", [CALL_IN_TRY, CALL_CAUGHT, 'await ctx.gmail.send({ to: "x" });'])
@pytest.mark.parametrize(("error", "status"), [
    (Transient("busy"), "paused:transient"), (Rejected("no"), "failed:logic"),
    (PermissionDenied("expired"), "paused:approval"), (PreconditionFailed("gone"), "paused:approval"),
    (ValueError("what?"), "paused:reconciliation"),
], ids=lambda given: given if isinstance(given, str) else type(given).__name__)
async def test_a_tool_that_fails_in_an_item_cannot_be_caught_inside_or_outside(
    story: Story, call: str, error: Exception, status: str,
) -> None:
    # R277, R284, R285
    story.world.on("gmail.send").fail(error, times=None)
    story.world.on_reconcile("gmail.send").retry(3600, times=None)
    wf = await story.deploy_and_run(routine(CAUGHT.format(inner=call)))
    run = await story.last(wf)
    assert (run.status, story.logs(run)) == (status, [])
    assert took_place(story) == ["sheets.appendRow"], "what was applied stays, nothing follows"
    assert await items(story, wf) == {"a": "failed"}


@pytest.mark.parametrize("throw", [
    'throw new Error("broken");', "null.x;", 'await Promise.reject(new TypeError("broken"));', 'throw "a text";',
    "const name = ['no', 'thing'].join(''); await ctx.feed[name]({});",
])
async def test_an_exception_of_the_script_in_an_item_cannot_be_caught_outside(story: Story, throw: str) -> None:
    # R284, R285: a pure handler exception is a logic error
    wf = await story.deploy_and_run(routine(CAUGHT.format(inner=throw)))
    run = await story.last(wf)
    assert (run.status, story.logs(run)) == ("failed:logic", [])
    assert run.error
    assert run.error.line is not None or "a text" in throw, "only an Error knows where it was thrown"
    assert await items(story, wf) == {"a": "failed"}
    assert took_place(story) == ["sheets.appendRow"]


async def test_a_read_that_fails_in_an_item_cannot_be_caught_either(story: Story) -> None:
    # R284
    story.world.on("gmail.search").fail(Transient("busy"))
    inner = 'try { await ctx.gmail.search({}); } catch (e) { ctx.log("caught"); }'
    wf = await story.deploy_and_run(routine(CAUGHT.format(inner=inner)))
    run = await story.last(wf)
    assert (run.status, story.logs(run), await items(story, wf)) == ("paused:transient", [], {"a": "failed"})


async def test_what_the_script_throws_and_catches_itself_inside_the_item_is_its_own_affair(story: Story) -> None:
    # R284 is about what leaves the item's function
    inner = 'try { throw new Error("mine"); } catch (e) { ctx.log(e.message); }'
    wf = await story.deploy_and_run(routine(CAUGHT.format(inner=inner)))
    assert (await items(story, wf))["a"] == "done"
    assert "mine" in story.logs(await story.last(wf))


async def test_an_exception_between_items_leaves_what_is_done_and_fails_none(story: Story) -> None:
    # R284, R285
    wf = await story.deploy_and_run(routine(guarded(MAIL, after="throw new Error('between');")), "a")
    assert ((await story.last(wf)).status, await items(story, wf)) == ("failed:logic", {"a": "done"})
    await story.deploy_and_run(routine(guarded(MAIL)), workflow_id=wf)
    assert ((await story.last(wf)).status, len(sent(story))) == ("committed", 1)


# -- the key -------------------------------------------------------------------------------------------


async def keys_of(story: Story, wf: str) -> list[str]:
    return [m.mutation_key for m in await story.keep.mutations(wf)]


async def test_the_order_of_parameters_and_the_payload_do_not_change_the_key(tmp_path: Path) -> None:
    # R263, R264, R270, R282: the second call finds the first, byte for byte or as compared
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await story.deploy_and_run(routine("""
          await ctx.withItem("a", "A", async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.desk.file({ folder: "f", name: "n", text: "one two", more: { x: 1, y: [1.0, 2] } });
            await ctx.desk.file({ more: { y: [1, 2.0], x: 1 }, text: "one two", name: "n", folder: "f" });
            await ctx.desk.file({ text: "one   two", name: "n", folder: "f" });
          });
        """))
        assert (await story.last(wf)).status == "committed"
        assert len(desk.filed) == 1
        assert len(desk.compared) == 1, "an identical payload is not even compared"
        assert len(await story.keep.mutations(wf)) == 1


async def test_different_targets_and_identities_need_no_subkey(tmp_path: Path) -> None:
    # R265
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        wf = await story.deploy_and_run(routine("""
          await ctx.withItem("a", "A", async (ctx) => {
            if (ctx.item.isDone) return;
            for (const to of ["x", "y", "z"]) await ctx.gmail.send({ to, body: "same" });
            for (const name of ["m", "n"]) await ctx.desk.file({ folder: "f", name, text: "t" });
          });
        """))
        assert [mail["to"] for mail in sent(story)] == ["x", "y", "z"]
        assert [params["name"] for params in desk.filed] == ["m", "n"]
        assert len(set(await keys_of(story, wf))) == 5


async def test_the_same_call_in_two_items_takes_place_for_each(story: Story) -> None:
    # R262: the item is part of the key
    wf = await story.deploy_and_run(routine(guarded('await ctx.gmail.send({ to: "boss", body: "same" });')), "a", "b")
    assert len(sent(story)) == 2
    assert len(set(await keys_of(story, wf))) == 2


async def test_the_same_call_again_without_a_subkey_gives_the_first_result(story: Story) -> None:
    # R270
    wf = await story.deploy_and_run(routine("""
      await ctx.withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return;
        const one = await ctx.gmail.send({ to: "x", body: "b" });
        const two = await ctx.gmail.send({ to: "x", body: "b" });
        ctx.log(JSON.stringify([one, two]));
      });
    """))
    run = await story.last(wf)
    assert story.logs(run) == ['[{"id":"sent-1"},{"id":"sent-1"}]']
    assert len(sent(story)) == 1
    assert any("has applied this before" in text for text in story.warnings(run))


async def test_with_different_subkeys_both_take_place_and_no_subkey_leaves_the_host(story: Story) -> None:
    # R271, R272
    story.world.on("webhook.fire").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine("""
      await ctx.withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return;
        await ctx.gmail.send({ to: "x", body: "First", subkey: "welcome" });
        await ctx.gmail.send({ to: "x", body: "Second", subkey: "confirmation" });
        await ctx.gmail.send({ to: "x", body: "Third" });
        await ctx.webhook.fire({ of: "a" });
      });
    """))
    await story.run(minutes=1)
    assert sent(story) == [{"to": "x", "body": text} for text in ("First", "Second", "Third")]
    assert all("subkey" not in asked.params for asked in story.world.asked)
    assert all("subkey" not in str(m.params) for m in await story.keep.mutations(wf))
    assert await items(story, wf) == {"a": "done"}
    assert len(set(await keys_of(story, wf))) == 4


async def test_a_script_cannot_set_the_key(story: Story) -> None:
    # R268: whatever it passes is content
    wf = await story.deploy_and_run(routine("""
      await ctx.withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return;
        const mine = { mutation_key: "k", mutationKey: "k", idempotency_key: "k", idempotencyKey: "k", attempt: 9 };
        await ctx.gmail.send({ to: "x", ...mine });
      });
    """))
    row = await last_mutation(story, wf)
    assert "k" not in (row.mutation_key, row.idempotency_key)
    assert len(row.mutation_key) == 64
    assert story.world.asked[-1].call.idempotency_key == row.idempotency_key


async def test_the_key_stays_over_retries_restarts_and_versions(story: Story) -> None:
    # R266, R269, R275: each new attempt at a failed mutation is a row of its own
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy")).fail(Rejected("bad body"))
    wf = await story.deploy_and_run(routine())
    await story.reopen()
    await story.run(minutes=1)
    assert (await story.last(wf)).status == "failed:logic"
    await story.deploy_and_run(routine(each(ROW_AND_MAIL.replace("body:", "html: true, body:"))), workflow_id=wf)
    rows = [m for m in await story.keep.mutations(wf) if m.connector == "gmail"]
    assert [(m.status, m.attempts) for m in rows] == [("failed", 1), ("failed", 2), ("applied", 3)]
    assert len({m.mutation_key for m in rows}) == 1
    assert len({m.run_id for m in rows}) == 3
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


async def test_a_new_attempt_of_the_item_has_keys_of_its_own(story: Story) -> None:
    # R262, R267
    wf = await story.deploy_and_run(routine(), "a")
    await story.keep.reprocess((await item(story, wf)).id)
    await story.run()
    keys = await keys_of(story, wf)
    assert (len(keys), len(set(keys))) == (4, 4)
    assert took_place(story) == ["sheets.appendRow", "gmail.send"] * 2


# -- replay --------------------------------------------------------------------------------------------


async def test_results_are_byte_for_byte_the_same_in_every_replay_and_after_a_restart(tmp_path: Path) -> None:
    # R274, R287
    show = """
      if (ctx.item.isDone) return;
      const got = await ctx.desk.file({ folder: "f", name: item.id, text: "t" });
      ctx.log(JSON.stringify(got));
      await ctx.gmail.send({ to: "x", body: got });
    """
    async with Story(tmp_path, connectors=[desk := Desk()]) as story:
        story.feed.put("a")
        story.world.on("gmail.send").fail(Transient("busy"), times=3)
        wf = await story.deploy_and_run(routine(each(show)))
        await story.run(minutes=1)
        await story.reopen()
        await story.run(minutes=2)
        await story.crash("before:call", minutes=5)
        await story.run()
        await story.run(minutes=4)
        assert await items(story, wf) == {"a": "done"}
        seen = [line for run in await story.runs(wf) for line in story.logs(run)]
        assert len(seen) >= 4
        assert len(set(seen)) == 1
        assert len(desk.filed) == 1
        assert [mail["body"] for mail in sent(story)] == [ODD]


@pytest.mark.parametrize("nth", [1, 2])
async def test_a_transient_failure_is_retried_with_backoff_and_only_what_is_missing_is_sent(
    story: Story, nth: int,
) -> None:
    # R273, R274, R275, R287
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("gmail.send").fail(Transient("busy"), times=nth)
    wf = await story.deploy_and_run(routine())
    assert await story.keep.needs_you(wf) == [], "nobody is asked during backoff"
    run = await story.last(wf)
    assert (run.status, run.retry_at) == ("paused:transient", story.clock.now_ms() + 30_000)
    assert await items(story, wf) == {"a": "failed"}, "the second item is not begun"
    await story.run(seconds=29)
    assert len(await story.runs(wf)) == 1
    await story.run(seconds=1)
    if nth == 2:
        assert (await story.last(wf)).retry_at == story.clock.now_ms() + 60_000
        await story.run(minutes=1)
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"] * 2
    assert story.world.count("sheets.appendRow") == 2, "the row was not even asked for again"
    runs = await story.runs(wf)
    assert [r.status for r in runs] == ["superseded"] * nth + ["committed"]
    assert len({r.lineage for r in runs}) == 1


async def test_a_transient_failure_that_lasts_becomes_a_question_and_a_person_has_it_tried_again(story: Story) -> None:
    # R275
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"), times=9)
    wf = await story.deploy_and_run(routine())
    for _ in range(8):
        assert await story.keep.needs_you(wf) == []
        await story.run(minutes=15)
    asked = await story.question(wf)
    assert (asked.kind, asked.actions) == ("exhausted", ("retry", "skip_run"))
    await story.keep.retry(asked.run_id)
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


async def test_what_the_outside_refuses_is_mended_by_a_new_version_that_sends_only_what_is_missing(
    story: Story,
) -> None:
    # R266, R273, R275, R287
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("gmail.send").fail(Rejected("the body is empty"))
    wf = await story.deploy_and_run(routine())
    assert (await story.last(wf)).status == "failed:logic"
    assert (await story.question(wf)).kind == "logic"
    mended = ROW_AND_MAIL.replace("body: row.rowId", "body: `Row ${row.rowId}`")
    await story.deploy_and_run(routine(each(mended)), workflow_id=wf)
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert [mail["body"] for mail in sent(story)] == ["Row row-1", "Row row-2"]
    assert len(sent(story, "sheets.appendRow")) == 2
    assert (await story.last(wf)).version == "2.0"


async def test_a_script_that_throws_after_a_mutation_is_mended_and_the_mutation_is_not_made_again(story: Story) -> None:
    # R285, R287
    wf = await story.deploy_and_run(routine(each(ROW_AND_MAIL.replace("row.rowId", "row.id.x"))), "a")
    assert ((await story.last(wf)).status, await items(story, wf)) == ("failed:logic", {"a": "failed"})
    await story.deploy_and_run(routine(), workflow_id=wf)
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]
    assert sent(story) == [{"to": "a@example.com", "body": "row-1"}]


async def test_while_an_outcome_is_unknown_nothing_is_replayed_not_even_by_a_new_version(story: Story) -> None:
    # R276
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer()
    story.world.on_reconcile("gmail.send").retry(7200, times=1)
    wf = await story.deploy_and_run(routine())
    await story.deploy(routine(each(ROW_AND_MAIL + FIRE)), workflow_id=wf)
    await story.keep.run_now(wf)
    await story.run(minutes=30)
    assert len(await story.runs(wf)) == 1
    assert (await last_mutation(story, wf)).status == "needs_reconcile"
    assert await story.keep.needs_you(wf) == [], "nobody is asked while Keep is asking"
    await story.run(hours=2)
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send", "webhook.fire"]


async def test_a_run_that_stopped_in_one_item_starts_from_the_first_and_sends_nothing_for_it(story: Story) -> None:
    # R273, R260
    for name in ("a", "b", "c"):
        story.feed.put(name, name)
    wf = await story.deploy(routine(each("ctx.log(`${item.id}:${ctx.item.isDone}`);" + GUARD + MAIL)))
    story.world.on("gmail.send").before(_fail_once_for("b@example.com"))
    await story.run()
    await story.run(minutes=1)
    first, second = await story.runs(wf)
    assert story.logs(first) == ["a:false", "b:false"]
    assert story.logs(second) == ["a:true", "b:false", "c:false"]
    assert [mail["body"] for mail in sent(story)] == ["a", "b", "c"]


def _fail_once_for(address: str):  # type: ignore[no-untyped-def]
    failed: list[str] = []

    def fail(params: dict[str, object], call: object) -> None:
        if params["to"] == address and not failed:
            failed.append(address)
            raise Transient("busy")

    return fail


async def test_failures_of_different_items_do_not_add_up_to_an_exhausted_retry(story: Story) -> None:
    # policy's retries_max counts failures in a row; each of these is the first of its call
    for number in range(12):
        story.feed.put(f"i{number:02}", "body")
        story.world.on("gmail.send").before(_fail_once_for(f"i{number:02}@example.com"))
    wf = await story.deploy_and_run(routine(guarded(MAIL)))
    for _ in range(12):
        assert await story.keep.needs_you(wf) == []
        await story.run(minutes=15)
    assert len(sent(story)) == 12
    assert set((await items(story, wf)).values()) == {"done"}


@pytest.mark.parametrize("first", [True, False], ids=["the first mutation", "after one that was applied"])
async def test_an_item_proven_undone_after_a_doubt_is_sent_again_only_so_often(story: Story, first: bool) -> None:
    # R303, DESIGN 6: growing waits, then a question
    story.feed.put("a")
    story.world.on("gmail.send").fail(OutcomeUnknown("lost"), times=None)
    wf = await story.deploy_and_run(routine(guarded(MAIL) if first else each(ROW_AND_MAIL)))
    for number, wait in enumerate((30, 60, 120, 240, 480, 900, 900, 900), 1):
        assert await story.keep.needs_you(wf) == []
        await story.run(seconds=wait - 1)
        assert story.world.count("gmail.send") == number, f"sent before {wait} s"
        await story.run(seconds=1)
    await story.run(days=30)
    assert story.world.count("gmail.send") == 9
    assert (await story.question(wf)).kind == "exhausted"


@pytest.mark.parametrize("error", [Transient("busy"), OutcomeUnknown("lost")], ids=["refused", "in doubt"])
async def test_other_items_that_succeed_do_not_excuse_the_one_that_never_does(story: Story, error: Exception) -> None:
    # R303: something new comes before it each time; its own resends still end
    def fail(params: dict[str, object], call: object) -> None:
        if params["to"] == "bad@example.com":
            raise error

    story.world.on("gmail.send").before(fail)
    wf = await story.deploy_and_run(routine(guarded(MAIL)), "bad")
    for number in range(20):
        story.feed.items.insert(0, {"id": f"new{number}", "payload": None})
        await story.run(minutes=15)
    tried = [each.params["to"] for each in story.world.asked if each.kind == "call"]
    assert tried.count("bad@example.com") == 9
    assert (await story.question(wf)).kind == "exhausted"


async def test_an_item_that_got_further_may_fail_as_often_again(tmp_path: Path) -> None:
    # its failures are counted in a row: found outside counts as success too
    async with Story(tmp_path, policy=Policy(retries_max=2)) as story:
        story.feed.put("a")
        rows, mails = story.world.on("sheets.appendRow"), story.world.on("gmail.send")
        rows.fail(Transient("busy"), times=2).lose_answer()
        mails.fail(Transient("busy"), times=2)
        wf = await story.deploy_and_run(routine())
        for _ in range(4):
            assert await story.keep.needs_you(wf) == []
            await story.run(minutes=15)
        assert await items(story, wf) == {"a": "done"}
        assert took_place(story) == ["sheets.appendRow", "gmail.send"]


@pytest.mark.parametrize("name", [
    "x" * 200, "e\u0301", "é", " padded ", "a/b:c#d", "constructor", "__proto__", "0", "🎉", "line\nbreak",
])
async def test_any_text_can_name_an_item_and_names_it_alone(story: Story, name: str) -> None:
    # R256
    story.feed.put(name, "body")
    story.feed.put("other", "body")
    wf = await story.deploy_and_run(routine(guarded('await ctx.gmail.send({ to: "x", body: item.id });')))
    await story.run(minutes=5)
    run = await story.last(wf)
    assert run.status == "committed", run.error
    assert await items(story, wf) == {name: "done", "other": "done"}
    assert [mail["body"] for mail in sent(story)] == [name, "other"]


@pytest.mark.parametrize("verb", ["send", "call", "apply"])
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_crash_between_two_mutations_leaves_only_the_second_to_be_made(
    story: Story, side: str, verb: str,
) -> None:
    # R287, R293
    story.feed.put("a")
    wf = await story.deploy(routine())
    await story.crash(f"{side}:{verb}", nth=2)
    for _ in range(3):
        await story.run(minutes=1)
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


# -- schedule, state, other routines -------------------------------------------------------------------


async def test_the_state_that_a_routine_returns_is_given_to_it_the_next_time(story: Story) -> None:
    story.feed.put("a")
    body = guarded(ROW, after="ctx.log(JSON.stringify(state ?? null)); return { n: (state?.n ?? 0) + 1 };")
    wf = await story.deploy_and_run(routine(body))
    assert await story.keep.state(wf, "work") == {"n": 1}
    await story.run(minutes=5)
    assert await story.keep.state(wf, "work") == {"n": 2}
    assert [story.logs(run) for run in await story.runs(wf)] == [["null"], ['{"n":1}']]


async def test_a_routine_that_stops_keeps_its_old_state_and_every_replay_is_given_it(story: Story) -> None:
    # R273
    body = f"ctx.log(JSON.stringify(state ?? null)); {guarded(MAIL)} return {{ n: (state?.n ?? 0) + 1 }};"
    wf = await story.deploy_and_run(routine(body))
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    await story.run(minutes=5)
    assert await story.keep.state(wf, "work") == {"n": 1}
    await story.run(minutes=1)
    assert await story.keep.state(wf, "work") == {"n": 2}
    assert [story.logs(run) for run in await story.runs(wf)] == [["null"], ['{"n":1}'], ['{"n":1}']]


async def test_a_routine_that_returns_nothing_keeps_its_state(story: Story) -> None:
    wf = await story.deploy_and_run(routine("if (!state) return { kept: true };"))
    await story.run(minutes=5)
    assert (await story.keep.state(wf, "work"), len(await story.runs(wf))) == ({"kept": True}, 2)


async def test_a_routine_runs_at_once_then_by_its_interval_and_when_a_person_asks(story: Story) -> None:
    wf = await story.deploy_and_run(routine("return state;"))
    await story.run(minutes=4)
    assert len(await story.runs(wf)) == 1
    assert await story.keep.run_now(wf) == ["work"]
    await story.run()
    await story.run(minutes=4)
    assert [r.trigger for r in await story.runs(wf)] == ["schedule", "run_now"]
    await story.run(minutes=1)
    assert [r.trigger for r in await story.runs(wf)] == ["schedule", "run_now", "schedule"]


async def test_a_stopped_routine_is_not_started_again_beside_itself_by_its_schedule(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Rejected("no"))
    wf = await story.deploy_and_run(routine())
    await story.keep.run_now(wf)
    await story.run(hours=1)
    assert len(await story.runs(wf)) == 1


async def test_a_paused_workflow_starts_nothing_and_keeps_its_place(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    wf = await story.deploy_and_run(routine())
    await story.keep.pause(wf)
    await story.run(hours=1)
    assert (len(await story.runs(wf)), await items(story, wf)) == (1, {"a": "failed"})
    told = await story.keep.explain((await item(story, wf)).id)
    assert any("resume" in mover.acts for mover in told.moved_by)
    await story.keep.resume(wf)
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert took_place(story) == ["sheets.appendRow", "gmail.send"]


async def test_two_routines_of_a_workflow_run_one_after_the_other_and_share_items_by_their_id(story: Story) -> None:
    # R258, R261: one logical item, whoever works on it
    story.feed.put("a", "body")
    log = "ctx.log(`${item.id} ${ctx.item.isDone}`);"
    wf = await story.deploy_and_run(routine(each(log + GUARD + MAIL), other=each(log + GUARD + MAIL)))
    assert len(sent(story)) == 1
    logs = sorted(line for run in await story.runs(wf) for line in story.logs(run))
    assert logs == ["a false", "a true"]
    assert len(await story.keep.items(wf)) == 1


async def test_a_routine_that_is_stopped_holds_the_other_one_until_it_is_answered(story: Story) -> None:
    story.world.on("gmail.send").fail(Rejected("no"))
    work = 'await ctx.withItem("{0}", "{0}", async (ctx) => {{ if (!ctx.item.isDone) await ctx.{1}({{}}); }});'
    stops, other = work.format("a", "gmail.send"), work.format("b", "webhook.fire")
    wf = await story.deploy_and_run(routine(stops, zeta=other))
    assert await items(story, wf) == {"a": "failed"}
    await story.keep.skip_run((await story.last(wf)).id)
    await story.run()
    assert await items(story, wf) == {"a": "skipped", "b": "done"}
    assert took_place(story) == ["webhook.fire"]


async def test_items_of_two_workflows_have_nothing_to_do_with_each_other(story: Story) -> None:
    # R262
    story.feed.put("a", "body")
    one, two = [await story.deploy(routine(guarded(MAIL), name=name)) for name in ("one", "two")]
    await story.run()
    assert len(sent(story)) == 2
    assert (await items(story, one), await items(story, two)) == ({"a": "done"}, {"a": "done"})


async def test_a_routine_without_items_only_reads_and_commits(story: Story) -> None:
    wf = await story.deploy_and_run(routine("return { found: (await ctx.feed.list({})).length };"))
    run: Run = await story.last(wf)
    assert (run.status, run.kind, await story.keep.items(wf)) == ("committed", "routine", [])
