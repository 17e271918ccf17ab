"""`mutate` makes at most one call, which ends it: the host does the rest, and the script never learns how."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, OutcomeUnknown, Policy, Rejected, Transient, mutation
from tests.harness import APPEND, TOLD, Story, acting, consumer, producer, take_all, workflow

GRANTS = dict.fromkeys(("feed.list", "gmail.send", "sheets.appendRow", "webhook.fire"), "allow")


# -- what mutate is given, and what it gives ---------------------------------------------------------


async def test_mutate_and_next_are_given_exactly_the_result_that_was_kept(story: Story) -> None:
    # R121, R144: every member, byte for byte, also what the host does not read
    prepare = """
  const [event] = await ctx.peek("in");
  if (!event) return { reservations: [], data: {} };
  return {
    reservations: [{ topic: "in", ids: [event.messageId] }],
    data: { nested: [1, 2.5, null, "ü\\u2028"], date: new Date(0), gone: undefined },
    ui: { title: "Do it" }, wakeAt: "2026-01-05T12:00:00Z"
  };
"""
    wf = await story.deploy_and_run(acting(
        "ctx.log(JSON.stringify(prepared));", prepare=prepare, next="ctx.log(JSON.stringify(prepared));"), "a")
    run = await story.last(wf, "act")
    seen, again = [json.loads(line) for line in story.logs(run)]
    assert seen == again
    assert seen.pop("events") == [{"messageId": "a", "payload": None, "topic": "in"}]
    assert seen == json.loads(run.prepare_result or "") == {
        "reservations": [{"topic": "in", "ids": ["a"]}],
        "data": {"nested": [1, 2.5, None, "ü\u2028"], "date": "1970-01-01T00:00:00.000Z"},
        "ui": {"title": "Do it"}, "wakeAt": "2026-01-05T12:00:00Z",
    }


async def test_which_mutation_is_called_may_depend_on_the_data_and_may_be_none(story: Story) -> None:
    # R122, R132: no call leaves no ledger record, and the event is consumed all the same
    for id, what in {"a": "mail", "b": "row", "c": "nothing"}.items():
        story.feed.put(id, what)
    wf = await story.deploy_and_run(acting("""
  const what = prepared.data.payload;
  if (what === "mail") await ctx.gmail.send({ to: "ann@example.com" });
  else if (what === "row") await ctx.sheets.appendRow({ spreadsheetId: "s" });
"""))
    assert [(m.connector, m.operation) for m in await story.keep.mutations(wf)] == [
        ("gmail", "send"), ("sheets", "appendRow")]
    told = [json.loads(story.logs(r)[0])["status"] for r in await story.runs(wf, "act")]
    assert told == ["applied", "applied", "none"]
    assert {e.status for e in await story.events(wf, "in")} == {"consumed"}


async def test_what_mutate_returns_is_thrown_away(story: Story) -> None:
    # R131: neither a state nor a mutation result
    wf = await story.deploy_and_run(acting("return { status: 'applied', result: 5, state: 1 };"), "a")
    assert story.logs(await story.last(wf, "act")) == ['{"status":"none"}']
    assert await story.keep.state(wf, "act") is None


async def test_a_consumer_without_mutate_has_nothing_to_tell_next(story: Story) -> None:
    # R132, R146
    story.feed.put("a")
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"act": consumer(next=TOLD)}))
    await story.run()
    assert story.logs(await story.last(wf, "act")) == ['{"status":"none"}']
    assert await story.ids(wf, "in", "consumed") == ["a"]


# -- one call, and it ends the handler ---------------------------------------------------------------

#: Ways to go on after a mutation, all hidden from `check`: `send` is ctx.gmail.send.
GOING_ON = {
    "a statement after it": "await send({ to: 'first' }); ctx.log('after'); await send({ to: 'second' });",
    "catch and finally":
        "try { await send({ to: 'first' }); } catch (e) { ctx.log('caught'); } finally { ctx.log('finally'); }",
    "then and catch": "send({ to: 'first' }).then(() => ctx.log('then'), () => ctx.log('no')); ctx.log('after');",
    "not awaited": "send({ to: 'first' }); send({ to: 'second' }); ctx.log('after');",
    "all at once": "await Promise.all([send({ to: 'first' }), send({ to: 'second' })]); ctx.log('after');",
    "a race": "await Promise.race([send({ to: 'first' }), Promise.resolve(1)]); ctx.log('after');",
    "a loop": "for (const to of ['first', 'second', 'third']) await send({ to });",
    "its result": "const r = await send({ to: 'first' }); ctx.log('result ' + JSON.stringify(r));",
    "a microtask that was waiting": "Promise.resolve().then(() => ctx.log('micro')); await send({ to: 'first' });",
    "an async function that was waiting":
        "const other = async () => { await null; ctx.log('other'); await send({ to: 'second' }); };"
        "const p = other(); await send({ to: 'first' }); await p;",
}


@pytest.mark.parametrize("way", GOING_ON)
async def test_nothing_of_the_script_runs_after_a_mutation_and_one_effect_results(story: Story, way: str) -> None:
    # R123, R124, R128, R129, I9: and next is told what really happened
    story.feed.put("a")
    hidden = "const send = ctx['gma' + ['il'].join('')].send;"
    wf = await story.deploy_and_run(acting(hidden + GOING_ON[way]), grants=GRANTS)
    run = await story.last(wf, "act")
    assert run.status == "committed", run.error
    assert story.logs(run) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert [e.params for e in story.world.effects] == [{"to": "first"}]
    assert story.world.count("gmail.send") == 1
    assert len(await story.keep.mutations(wf)) == 1


async def test_a_mutation_that_definitely_failed_is_not_seen_by_the_script_either(story: Story) -> None:
    # R128, R232, R302: no handler of the script manages a failure
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("busy"))
    hidden = "const send = ctx['gma' + ['il'].join('')].send;"
    wf = await story.deploy_and_run(acting(hidden + """
  try { await send({ to: "first" }); } catch (e) { ctx.log("caught"); await send({ to: "second" }); }
"""), grants=GRANTS)
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("paused:transient", "mutating")
    assert story.logs(run) == []
    assert story.world.count("gmail.send") == 1


# -- the same inputs, the same call ------------------------------------------------------------------

CHANCY = """
  await ctx.sheets.appendRow({
    spreadsheetId: "s", values: [Date.now(), new Date().toISOString(), Math.random(), Math.random(), prepared.data]
  });
"""


async def test_time_and_chance_are_the_same_whenever_mutate_runs_again(story: Story) -> None:
    # R140, DESIGN 3: after a failure, after a restart, and hours later
    story.feed.put("a")
    story.world.on("sheets.appendRow").fail(Transient("busy"), times=2)
    await story.deploy_and_run(acting(CHANCY))
    await story.reopen()
    await story.run(seconds=30)
    await story.run(hours=5)
    first, second, third = [a.params["values"] for a in story.world.asked if a.operation == "sheets.appendRow"]
    assert first == second == third
    assert first[2] != first[3]  # chance within one run is still chance
    assert first[1] == "2026-01-05T09:00:00.000Z"


@pytest.mark.parametrize("point", ["after:prepare", "before:send"])
async def test_time_and_chance_are_the_same_after_a_crash(story: Story, point: str) -> None:
    # R141, R187: the result of prepare was kept, and the call that follows from it was never recorded
    story.feed.put("a")
    wf = await story.deploy(acting("ctx.log(Math.random());" + CHANCY))  # a line: it is run by itself
    await story.crash(point)
    story.clock.advance(hours=3)
    assert story.world.asked == []
    await story.run()
    [effect] = story.world.effects
    assert effect.params["values"][1] == "2026-01-05T09:00:00.000Z"
    assert [r.status for r in await story.runs(wf, "act")] == ["crashed", "committed"]


async def test_what_was_foreseen_is_what_mutate_calls_when_it_is_run_by_itself_later(story: Story) -> None:
    # R140, R197: the call was recorded with the result of prepare, never left, and is made anew after that is proven
    story.feed.put("a")
    wf = await story.deploy(acting(CHANCY))
    await story.crash("after:prepare_and_send")
    story.clock.advance(hours=3)
    assert story.world.asked == []
    await story.run()
    await story.run(seconds=30)
    foreseen, sent = await story.keep.mutations(wf)
    assert (foreseen.status, sent.status, len(story.world.effects)) == ("failed", "applied", 1)
    assert foreseen.params == sent.params == story.world.effects[0].params
    assert (foreseen.mutation_key, foreseen.idempotency_key) == (sent.mutation_key, sent.idempotency_key)
    assert foreseen.params["values"][1] == "2026-01-05T09:00:00.000Z"


async def test_what_was_never_pinned_is_decided_anew_after_a_crash(story: Story) -> None:
    # R187, I12: mutate was foreseen, but neither it nor the result it follows from was kept
    story.feed.put("a")
    wf = await story.deploy(acting(CHANCY))
    await story.crash("before:prepare_and_send")
    assert (await story.event(wf, "in", "a")).reserved_by is None
    story.clock.advance(hours=3)
    assert (story.world.asked, await story.keep.mutations(wf)) == ([], [])
    await story.run()
    [effect] = story.world.effects
    assert effect.params["values"][1] == "2026-01-05T12:00:00.000Z"
    assert [r.status for r in await story.runs(wf, "act")] == ["crashed", "committed"]


async def test_different_inputs_draw_different_chances(story: Story) -> None:
    await story.deploy_and_run(acting(CHANCY), "a", "b")
    first, second = [e.params["values"][2] for e in story.world.effects]
    assert first != second


async def test_after_a_definite_failure_a_linked_run_acts_on_the_same_result(story: Story) -> None:
    # R139, R140, R143, R185, R203
    story.feed.put("a")
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    wf = await story.deploy_and_run(acting(APPEND, prepare="ctx.log('prepare');" + """
  const [event] = await ctx.peek("in");
  return event ? { reservations: [{ topic: "in", ids: [event.messageId] }], data: { ...event, chance: Math.random() } }
: { reservations: [], data: {} };
"""))
    [first] = await story.runs(wf, "act")
    await story.run(seconds=30)
    old, new = await story.runs(wf, "act")
    assert (old.id, old.status, old.phase) == (first.id, "superseded", "mutating")
    assert (new.retry_of, new.lineage, new.attempt, new.trigger) == (old.id, old.lineage, 2, "retry")
    assert new.prepare_result == old.prepare_result
    assert story.logs(new) == ['{"result":{"rowId":"row-1","row":1},"status":"applied"}']  # prepare did not run
    assert [(m.run_id, m.status, m.attempts, m.lineage) for m in await story.keep.mutations(wf)] == [
        (old.id, "failed", 1, old.id), (new.id, "applied", 2, old.id)]


# -- the host owns the call --------------------------------------------------------------------------


async def test_the_intent_is_in_the_ledger_before_the_call_starts(story: Story) -> None:
    # R134, R198, R201, R214, I1
    story.feed.put("a", 7)
    seen: list[Any] = []

    async def look(params: Any, call: Call) -> None:
        [row] = await story.keep.mutations("story")
        seen.append((row, await story.keep.run(row.run_id), call))

    story.world.on("sheets.appendRow").before(look)
    wf = await story.deploy_and_run(acting(APPEND))
    [(row, run, call)] = seen
    assert (row.status, row.result, row.attempts, row.closed_at) == ("in_flight", None, 1, None)
    assert row.params == {"spreadsheetId": "s", "values": ["a"]}
    assert (row.title, row.target, row.connector, row.operation) == ("a", "s", "sheets", "appendRow")
    assert row.preview == 'sheets.appendRow: spreadsheetId="s", values=["a"]'
    assert (run.phase, run.status) == ("mutating", "active")
    assert (call.idempotency_key, call.run_id, call.workflow_id) == (row.idempotency_key, run.id, wf)
    assert call.idempotency_key
    [row] = await story.keep.mutations(wf)
    assert (row.status, row.result) == ("applied", {"row": 1, "rowId": "row-1"})
    assert row.closed_at is not None


async def test_the_call_is_made_from_the_recorded_parameters(story: Story) -> None:
    # R135: what the script does to its object afterwards, or hides in it, changes nothing
    await story.deploy_and_run(acting("""
  let reads = 0;
  const params = { get to() { reads += 1; return "reader " + reads; }, toJSON: undefined };
  await ctx.gmail.send(params);
"""), "a")
    [row] = await story.keep.mutations("story")
    [effect] = story.world.effects
    assert row.params == effect.params


async def test_mutate_is_not_run_again_while_its_outcome_is_unknown(story: Story) -> None:
    # R138, R141, R239
    story.feed.put("a")
    story.world.on("gmail.send").fail(OutcomeUnknown("lost"))
    story.world.on_reconcile("gmail.send").retry(times=None)
    wf = await story.deploy_and_run(acting("ctx.log('mutate'); await ctx.gmail.send({ to: 'ann@example.com' });"))
    for _ in range(4):
        await story.run(hours=1)
        await story.reopen()
    assert story.world.count("gmail.send") == 1
    assert [story.logs(r) for r in await story.runs(wf, "act")] == [["mutate"]]
    story.feed.put("b")
    await story.run(hours=1)
    assert len(await story.runs(wf)) == 2  # no other run starts


async def test_a_new_version_may_make_a_different_call_after_a_definite_failure(story: Story) -> None:
    # R142, R172
    story.feed.put("a")
    story.world.on("sheets.appendRow").fail(Rejected("there is no such column"))
    wf = await story.deploy_and_run(acting(APPEND))
    assert (await story.last(wf)).status == "failed:logic"
    await story.deploy_and_run(acting("await ctx.gmail.send({ to: prepared.data.messageId });"))
    assert [(m.operation, m.status) for m in await story.keep.mutations(wf)] == [
        ("appendRow", "failed"), ("send", "applied")]
    assert [e.params for e in story.world.effects] == [{"to": "a"}]


async def test_several_reserved_events_lead_to_one_effect(story: Story) -> None:
    # R120
    for id in "abc":
        story.feed.put(id)
    wf = await story.deploy(acting(
        "await ctx.gmail.send({ to: 'x', of: prepared.data.events.map(e => e.messageId) });", prepare=take_all()))
    await story.run()
    assert [e.params["of"] for e in story.world.effects] == [["a", "b", "c"]]
    assert await story.ids(wf, "in", "consumed") == ["a", "b", "c"]


# -- what a script may not send ----------------------------------------------------------------------


@dataclass(frozen=True)
class Paper:
    """What the desk wants to know."""

    drawer: str
    papers: list[int]
    copies: int


class Desk(Connector):
    """A connector that says what its params are."""

    def __init__(self) -> None:
        super().__init__()
        self.filed: list[Paper] = []

    @mutation(identity=("drawer",))
    async def file(self, params: Paper, call: Call) -> dict[str, int]:
        """Keep a paper."""
        self.filed.append(params)
        return {"papers": len(self.filed)}


WRONG_PARAMS: dict[str, tuple[str, list[str]]] = {
    "several at once": ('{ drawer: 5, papers: "no", colour: "red" }', ["drawer", "papers", "colour", "copies"]),
    "nothing": ("", ["drawer", "papers", "copies"]),
    "not an object": ('"a"', ["object"]),
    "null inside": ('{ drawer: "d", papers: [1, null], copies: 1 }', ["papers[1]"]),
    "a subkey that is no text": ('{ drawer: "d", papers: [], copies: 1, subkey: 5 }', ["subkey"]),
    "an infinity": ('{ drawer: "d", papers: [1], copies: 1 / 0 }', ["Infinity"]),
    "an integer beyond what JSON carries": ('{ drawer: "d", papers: [1], copies: 2 ** 60 }', ["2^53"]),
}


@pytest.mark.parametrize("what", WRONG_PARAMS)
async def test_wrong_params_are_refused_with_all_that_is_wrong_before_anything_is_sent(
    tmp_path: Path, what: str,
) -> None:
    # R137, DESIGN 11: a logic error with the line of the call; no ledger row
    given, words = WRONG_PARAMS[what]
    desk = Desk()
    source = acting(f"\nawait ctx.desk.file((() => ({given or 'undefined'}))());\n")  # out of the sight of `check`
    [line] = [n for n, each in enumerate(source.splitlines(), 1) if "desk.file" in each]
    async with Story(tmp_path, connectors=[desk]) as story:
        wf = await story.deploy_and_run(source, "a")
        run = await story.last(wf, "act")
        assert (run.status, run.phase) == ("failed:logic", "mutating")
        assert run.error is not None
        assert [w for w in words if w not in run.error.message] == []
        assert run.error.line == line
        assert await story.keep.mutations(wf) == []
        assert desk.filed == []
        assert (await story.event(wf, "in", "a")).reserved_by == run.id


async def test_right_params_arrive_as_what_the_connector_declared(tmp_path: Path) -> None:
    desk = Desk()
    async with Story(tmp_path, connectors=[desk]) as story:
        wf = await story.deploy_and_run(acting('await ctx.desk.file({ drawer: "d", papers: [1, 2], copies: 3 });'), "a")
        assert desk.filed == [Paper("d", [1, 2], 3)]
        assert story.logs(await story.last(wf)) == ['{"result":{"papers":1},"status":"applied"}']


async def test_the_subkey_is_taken_out_of_what_is_sent(tmp_path: Path) -> None:
    # DESIGN 14
    desk = Desk()
    async with Story(tmp_path, connectors=[desk]) as story:
        story.feed.put("a")
        wf = await story.deploy(acting('await ctx.desk.file({ drawer: "d", papers: [], copies: 1, subkey: "k" });'))
        await story.run()
        assert desk.filed == [Paper("d", [], 1)]
        [row] = await story.keep.mutations(wf)
        assert row.params == {"drawer": "d", "papers": [], "copies": 1}


async def test_a_script_never_sees_keys_or_runs(story: Story) -> None:
    # R220, R129: the idempotency key reaches the connector and nobody else
    story.feed.put("a")
    wf = await story.deploy(acting(APPEND, next="ctx.log(JSON.stringify([prepared, mutationResult, ctx]));"))
    await story.run()
    [row] = await story.keep.mutations(wf)
    [line] = story.logs(await story.last(wf))
    assert row.idempotency_key not in line
    assert row.mutation_key not in line


@pytest.mark.parametrize("order", ["read first", "race"])
async def test_a_read_that_is_still_under_way_does_not_disturb_the_mutation(tmp_path: Path, order: str) -> None:
    # R126, R128: with by-id reads allowed, one that nobody awaits
    start = "const reading = ctx.gmail.get({ id: '1' });"
    if order == "race":
        start += "await Promise.race([reading, Promise.resolve()]);"
    async with Story(tmp_path, policy=Policy(mutate_reads="by_id")) as story:
        wf = await story.deploy_and_run(acting(start + "await ctx.gmail.send({ to: 'first' });"), "a")
        run = await story.last(wf)
        assert run.status == "committed", run.error
        assert len(story.world.effects) == 1
