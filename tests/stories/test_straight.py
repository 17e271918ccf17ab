"""A call that is known with the result of `prepare` is recorded with it, in one commit; any other goes its own way.

`mutate` is tried right after `prepare`. If all it did was to make one plain call (granted, not applied before, with
valid parameters), what it follows from and that it is about to leave are one commit. Whatever is not plain is looked
at when the result of `prepare` is kept, as if nothing had been foreseen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from keepai import Call, Connector, OutcomeUnknown, Policy, PreconditionFailed, Rejected, Transient, mutation
from keepai.engine import consumer_run
from keepai.engine.mutation import Unit
from keepai.engine.permission import Permissions
from keepai.ledger.base import Row
from keepai.ledger.transitions import runs
from keepai.ledger.transitions.runs import Stop
from keepai.model.clock import parse_iso
from keepai.model.codec import encode
from keepai.model.operations import Step
from keepai.model.permissions import Judged
from keepai.model.records import Mutation, Run
from keepai.model.states import Reason, Status
from keepai.testing import CrashAt
from tests.harness import FIRE, START, TOLD, Story, consumer, producer, take_first, views, workflow

pytestmark = pytest.mark.speculates

SEND = "await ctx.gmail.send({ to: prepared.data.messageId, body: prepared.data.payload });"
GRANTS = dict.fromkeys(("feed.list", "gmail.get", "gmail.send", "webhook.fire"), "allow")
BEFORE, AFTER = "before:prepare_and_send", "after:prepare_and_send"

#: `prepare` looks into the world before it decides, so that a test can do something meanwhile.
LOOK = 'await ctx.gmail.get({ id: "m1" });'
LOOKING = take_first().replace("if (!event)", f"{LOOK} if (!event)")

STRAIGHT = ["prepare_and_send", "call", "apply", "commit_consumer"]
APART = ["prepare", "send", "call", "apply", "commit_consumer"]


def acting(mutate: str = SEND, *, name: str = "story", prepare: str | None = None, head: str = "") -> str:
    """A workflow that polls the feed and acts on its events."""
    return workflow(
        name, producers={"poll": producer()}, consumers={"act": consumer(prepare, mutate=mutate, next=TOLD)}, head=head)


async def commits(story: Story, **span: float) -> list[str]:
    """Run what is due; every commit and every call in order, but for those of producers and of who shares the work."""
    with CrashAt(None) as heard:
        await story.run(**span)
    done = [point.removeprefix("after:") for point in heard.reached if point.startswith("after:")]
    return [verb for verb in done if verb not in ("begin", "commit_producer", "nothing", "share")]


def traced(story: Story, run: Run) -> list[tuple[str, str, str]]:
    """The lines of a run; their positions leave no gap."""
    lines = views(story.keep).trace(run.id)
    assert [line.position for line in lines] == list(range(1, len(lines) + 1))
    return [(line.step, line.kind, line.name) for line in lines]


# -- the plain case ----------------------------------------------------------------------------------


async def test_a_plain_call_is_recorded_in_the_commit_that_pins_what_it_follows_from(story: Story) -> None:
    # R134, R197, R198, I1, I12: all of it is there when the call starts, and was not there a commit before
    story.feed.put("a", "hello")
    seen: list[tuple[Run, Mutation]] = []

    async def look(params: Any, call: Call) -> None:
        seen.append((await story.keep.run(call.run_id), await story.mutation(call.workflow_id)))

    story.world.on("gmail.send").before(look)
    wf = await story.deploy(acting())
    assert await commits(story) == STRAIGHT
    [(run, row)] = seen
    assert (run.phase, run.status, json.loads(run.prepare_result or "")["data"]["messageId"]) == (
        "mutating", "active", "a")
    assert (row.status, row.run_id, row.attempts, row.title) == ("in_flight", run.id, 1, "a")
    assert (row.params, row.target) == ({"to": "a", "body": "hello"}, "a")
    moves = [(str(r["machine"]), str(r["target"])) for r in views(story.keep).history(wf, run.id)]
    assert [target for machine, target in moves if machine == "phase"] == [
        "preparing", "prepared", "mutating", "mutated", "emitting", "committed"]
    assert [e.params for e in story.world.effects] == [row.params]
    assert (await story.mutation(wf)).status == "applied"


async def test_nothing_is_kept_of_a_result_whose_commit_did_not_take_place(story: Story) -> None:
    # R187, I12: neither the result nor the reservation nor the intent nor a line of the trace
    story.feed.put("a", "old")
    wf = await story.deploy(acting())
    await story.crash(BEFORE)
    [first, second] = await story.runs(wf, "act")
    assert (first.status, first.phase, first.prepare_result, first.prepared_at) == (
        "crashed", "preparing", None, None)
    assert views(story.keep).trace(first.id) == []
    assert (await story.event(wf, "in", "a")).reserved_by is None
    assert (await story.keep.mutations(wf), story.world.asked) == ([], [])
    story.feed.put("a", "new")  # what was not pinned may still change
    await story.keep.run_now(wf)
    assert (second.phase, second.retry_of) == ("preparing", first.id)
    await story.run()
    assert len(story.world.effects) == 1
    assert (await story.mutation(wf)).run_id == second.id
    assert await story.ids(wf, "in", "consumed") == ["a"]


@pytest.mark.parametrize("answer", ["happened", "did_not_happen", "skip"])
async def test_a_crash_right_after_that_commit_is_a_doubt_that_a_person_ends(story: Story, answer: str) -> None:
    # R207, R228, I3, I6: it had not left, but nobody who comes later can know that; so nothing is sent on a guess
    story.feed.put("a")
    wf = await story.deploy(acting(FIRE, prepare="ctx.log('prepare');" + take_first()))
    await story.crash(AFTER)
    row, [run] = await story.mutation(wf), await story.runs(wf, "act")
    assert (row.status, run.status, run.phase) == ("indeterminate", "paused:reconciliation", "mutating")
    assert (await story.event(wf, "in", "a")).reserved_by == run.id
    await story.run(days=1)
    [asked] = await story.keep.needs_you(wf)
    assert (asked.mutation_id, story.world.asked) == (row.id, [])
    await story.keep.resolve(row.id, answer)
    await story.run()
    await story.run(minutes=1)
    assert len(story.world.effects) == (answer == "did_not_happen")
    assert (await story.last(wf, "act")).status == "committed"
    assert sum(story.logs(r).count("prepare") for r in await story.runs(wf, "act")) == 1, "it was pinned"
    assert await story.ids(wf, "in", "skipped" if answer == "skip" else "consumed") == ["a"]


async def test_a_crash_right_after_that_commit_is_looked_up_where_it_can_be(story: Story) -> None:
    # R207, R218, R221, I3: it is not there, so it is sent, once, under the key that was recorded
    story.feed.put("a", "hello")
    wf = await story.deploy(acting())
    await story.crash(AFTER)
    assert ((await story.mutation(wf)).status, story.world.asked) == ("needs_reconcile", [])
    await story.run()
    assert await commits(story, seconds=30) == ["carry_on", "advance", "send", "call", "apply", "commit_consumer"]
    first, second = await story.keep.mutations(wf)
    assert (first.status, second.status, second.attempts) == ("failed", "applied", 2)
    assert first.idempotency_key == second.idempotency_key == story.world.effects[0].idempotency_key
    assert (first.params, len(story.world.effects)) == (second.params, 1)


@pytest.mark.parametrize(("error", "status", "then"), [
    (Transient("busy"), "failed", "paused:transient"), (PreconditionFailed("gone"), "failed", "paused:approval"),
    (Rejected("wrong"), "failed", "failed:logic"), (OutcomeUnknown("lost"), "indeterminate", "paused:reconciliation"),
])
async def test_what_the_outside_says_to_a_plain_call_counts_as_ever(
    story: Story, error: Exception, status: str, then: str,
) -> None:
    # R137, R224, R228: the error is one of `mutate`, and the event stays with the run
    story.feed.put("a")
    story.world.on("webhook.fire").fail(error)
    wf = await story.deploy(acting(FIRE))
    assert (await commits(story))[:2] == ["prepare_and_send", "call"]
    run = await story.last(wf, "act")
    assert ((await story.mutation(wf)).status, run.status, run.phase) == (status, then, "mutating")
    assert run.error is not None
    assert run.error.step == "mutate" or then == "paused:reconciliation"
    assert (await story.event(wf, "in", "a")).reserved_by == run.id


async def test_what_the_outside_refused_is_sent_under_another_key_when_it_is_prepared_anew(story: Story) -> None:
    # R203, DESIGN 6: a new version prepares from the start; the commit sees that the same was sent before, and leaves
    # it to be decided anew
    story.feed.put("a")
    story.world.on("gmail.send").fail(Rejected("wrong"))
    wf = await story.deploy_and_run(acting())
    await story.deploy(acting() + "// mended\n")
    assert await commits(story) == ["carry_on", STRAIGHT[0], "send", *STRAIGHT[1:]]
    first, second = await story.keep.mutations(wf)
    assert (first.status, second.status, second.attempts) == ("failed", "applied", 2)
    assert first.mutation_key == second.mutation_key
    assert second.idempotency_key == first.idempotency_key + "-2"
    assert len(story.world.effects) == 1


# -- what is not plain -------------------------------------------------------------------------------

SUBKEY = "const params = { to: 'x' }; params['sub' + 'key'] = 7; await ctx.gmail.send(params);"

#: What goes its own way → (mutate, grant of gmail.send, commits and calls, status of the run, code of its error)
WAYS: dict[str, tuple[str, Any, list[str], str, str | None]] = {
    "to be asked": (SEND, "ask", ["prepare", "ask"], "paused:approval", "approval"),
    "denied": (SEND, "deny", ["prepare", "stop"], "paused:approval", "permission"),
    "out of the rule": (
        SEND, {"mode": "allow", "match": {"to": "b*"}}, ["prepare", "stop"], "paused:approval", "permission"),
    "a wrong parameter": (SUBKEY, "allow", ["prepare", "stop"], "failed:logic", "rule_broken"),
    "a line for the log": ("ctx.log('now');" + SEND, "allow", APART, "committed", None),
    "no call": ("const nothing = 1;", "allow", ["prepare", "advance", "commit_consumer"], "committed", None),
    "thrown": ("throw new Error('no');", "allow", ["prepare", "stop"], "failed:logic", "script_threw"),
    "a lone surrogate": (
        "await ctx.gmail.send({ to: 'x', body: '\\ud800' });", "allow", ["prepare", "stop"], "failed:logic",
        "bad_value"),
    "nested too deep": (
        "let deep = {}; for (let n = 0; n < 70; n++) deep = { deep }; await ctx.gmail.send({ to: 'x', body: deep });",
        "allow", ["prepare", "stop"], "failed:logic", "bad_value"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_not_plain_is_looked_at_when_the_result_of_prepare_is_kept(story: Story, way: str) -> None:
    # R122, R195, I12, I29: the result is pinned first, and what is wrong is an error of `mutate`
    mutate, grant, verbs, status, code = WAYS[way]
    story.feed.put("a", "hello")
    wf = await story.deploy(acting(mutate), grants={**GRANTS, "gmail.send": grant})
    assert await commits(story) == verbs
    run = await story.last(wf, "act")
    sent = "call" in verbs
    assert run.status == status
    assert run.prepare_result is not None
    assert len(story.world.effects) == len(await story.keep.mutations(wf)) == sent
    if code is not None:
        assert run.error is not None
        assert (run.phase, run.error.code, run.error.step) == ("mutating", code, "mutate")
        assert (await story.event(wf, "in", "a")).reserved_by == run.id
    else:
        told = json.loads(story.logs(run)[-1])["status"]
        assert told == ("applied" if sent else "none")


async def test_what_was_asked_about_is_sent_as_it_was_foreseen_and_only_after_a_yes(story: Story) -> None:
    # I29, I30, R305–R308
    story.feed.put("a", "hello")
    wf = await story.deploy_and_run(acting(), grants={**GRANTS, "gmail.send": "ask"})
    [asked] = await story.keep.needs_you(wf)
    assert asked.facts["params"] == {"to": "a", "body": "hello"}
    await story.run(hours=1)
    assert (story.world.asked, await story.keep.mutations(wf)) == ([], [])
    await story.keep.approve(asked.id)
    assert await commits(story) == ["send", "call", "apply", "commit_consumer"]
    assert [e.params for e in story.world.effects] == [asked.facts["params"]]


@pytest.mark.parametrize("grant", ["ask", "deny"])
async def test_a_crash_before_the_question_is_put_sends_nothing_unasked(story: Story, grant: str) -> None:
    # R305, I29: that commit held no intent, so there is nothing to doubt
    story.feed.put("a", "hello")
    wf = await story.deploy(acting(), grants={**GRANTS, "gmail.send": grant})
    await story.crash("after:prepare")
    first, second = await story.runs(wf, "act")
    assert (first.status, second.phase, second.prepare_result) == ("crashed", "prepared", first.prepare_result)
    await story.run()
    assert (await story.last(wf, "act")).status == "paused:approval"
    assert (story.world.asked, await story.keep.mutations(wf)) == ([], [])
    [asked] = await story.keep.needs_you(wf)
    if grant == "ask":
        await story.keep.approve(asked.id)
    else:
        await story.keep.grant(wf, "gmail.send", "allow")
    await story.run()
    assert [e.params for e in story.world.effects] == [{"to": "a", "body": "hello"}]


async def test_a_refused_call_goes_out_once_when_it_is_granted(story: Story) -> None:
    # R195, DESIGN 10: what prepare decided is used, and it is recorded by itself
    story.feed.put("a", "hello")
    wf = await story.deploy_and_run(acting(), grants={**GRANTS, "gmail.send": "deny"})
    await story.keep.grant(wf, "gmail.send", "allow")
    assert await commits(story) == ["carry_on", "advance", "send", "call", "apply", "commit_consumer"]
    first, second = await story.runs(wf, "act")
    assert second.prepare_result == first.prepare_result
    assert len(story.world.effects) == 1


async def test_what_a_day_allows_is_counted_call_by_call(story: Story) -> None:
    # DESIGN 10: of three calls two go out, however quickly they follow each other
    for id in "abc":
        story.feed.put(id)
    wf = await story.deploy(acting(), grants={**GRANTS, "gmail.send": {"mode": "allow", "per_day": 2}})
    assert await commits(story) == [*STRAIGHT, *STRAIGHT, "prepare", "stop"]
    assert len(story.world.effects) == 2
    run = await story.last(wf, "act")
    assert (run.status, run.phase) == ("paused:approval", "mutating")


@pytest.mark.parametrize("grant", ["ask", "deny"])
async def test_a_grant_that_is_taken_back_while_prepare_runs_counts(story: Story, grant: str) -> None:
    # R195, I21, I29: as a person has it at the moment of the commit, not when the run began
    story.feed.put("a")
    wf = await story.deploy(acting(prepare=LOOKING), grants=GRANTS)

    async def change(params: Any, call: Call) -> None:
        await story.keep.grant(wf, "gmail.send", grant)

    story.world.on("gmail.get").before(change)
    await story.run()
    assert (await story.last(wf, "act")).status == "paused:approval"
    assert (story.world.count("gmail.send"), await story.keep.mutations(wf)) == (0, [])
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == ("approval" if grant == "ask" else "permission")


@pytest.mark.parametrize("during", ["gmail.get", "gmail.send"])
@pytest.mark.parametrize("grant", ["ask", "deny"])
async def test_a_grant_that_is_taken_back_while_one_run_acts_counts_for_the_next(
    story: Story, grant: str, during: str,
) -> None:
    # R195, I29: the next run begins in the commit that ends the first, and knows the grants from it
    for event in "abc":
        story.feed.put(event)
    wf = await story.deploy(acting(prepare=LOOKING), grants=GRANTS)

    async def change(params: Any, call: Call) -> None:
        if story.world.count(during) == 2:
            await story.keep.grant(wf, "gmail.send", grant)

    story.world.on(during).before(change)
    await story.run()
    assert (await story.last(wf, "act")).status == "paused:approval"
    assert story.world.count("gmail.send") == (1 if during == "gmail.get" else 2)
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == ("approval" if grant == "ask" else "permission")


def one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all runs of a consumer be for the same thing, so that a later one finds what an earlier one applied."""
    def unit(reserved: Sequence[Row], title: str | None) -> Unit:
        return Unit(Step.MUTATE, "the same", title)

    monkeypatch.setattr(consumer_run, "_unit", unit)


@pytest.mark.parametrize("line", ["", "ctx.log('now');"])
async def test_what_was_applied_before_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str,
) -> None:
    # R120, R202, I2: its result is used
    one_unit(monkeypatch)
    async with Story(tmp_path) as story:
        story.feed.put("a")
        story.feed.put("b")
        wf = await story.deploy(acting(line + "await ctx.gmail.send({ to: 'x', body: 'same' });"))
        first = APART if line else STRAIGHT
        pinned = "prepare" if line else STRAIGHT[0]
        assert await commits(story) == [*first, pinned, "advance", "advance", "commit_consumer"]
        assert (len(story.world.effects), (await story.mutation(wf)).status) == (1, "applied")
        one, two = await story.runs(wf, "act")
        assert story.logs(one)[-1] == story.logs(two)[-1] == '{"result":{"id":"sent-1"},"status":"applied"}'
        assert ["has applied this before" in text for text in story.warnings(two)] == [True]
        assert await story.ids(wf, "in", "consumed") == ["a", "b"]


@pytest.mark.parametrize("line", ["", "ctx.log('now');"])
async def test_something_else_than_what_was_applied_before_is_a_persons_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str,
) -> None:
    # R120, R278, I7: nothing is sent, and nothing is passed off as what is wanted now
    one_unit(monkeypatch)
    async with Story(tmp_path) as story:
        story.feed.put("a", 1)
        story.feed.put("b", 2)
        wf = await story.deploy(acting(line + "await ctx.gmail.send({ to: 'x', body: prepared.data.payload });"))
        first = APART if line else STRAIGHT
        assert await commits(story) == [*first, "prepare" if line else STRAIGHT[0], "stop"]
        assert [e.params for e in story.world.effects] == [{"to": "x", "body": 1}]
        run = await story.last(wf, "act")
        assert run.error is not None
        assert (run.phase, run.error.step, run.error.code) == ("mutating", "mutate", "attention")
        [asked] = await story.keep.needs_you(wf)
        assert (asked.kind, asked.run_id) == ("attention", run.id)
        assert run.error.evidence["mutation_id"] == (await story.mutation(wf)).id  # type: ignore[index, call-overload]


class Odd(Connector):
    """Cannot say what it is about to do."""

    name = "odd"
    broken = True

    @mutation(identity=("to",), target="to")
    async def send(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        return {"ok": True}

    @send.preview
    def shown(self, params: dict[str, Any]) -> str:
        if self.broken:
            raise KeyError("subject")
        return "To somebody"


async def test_a_connector_that_breaks_over_a_foreseen_call_breaks_in_mutate(tmp_path: Path) -> None:
    # R177, I12: what prepare decided is pinned all the same, and it goes on from there
    odd = Odd()
    async with Story(tmp_path, connectors=[odd]) as story:
        wf = await story.deploy_and_run(acting("await ctx.odd.send({ to: prepared.data.messageId });"), "a")
        run = await story.last(wf, "act")
        assert run.error is not None
        assert (run.status, run.error.step, run.phase) == ("failed:internal", "mutate", "mutating")
        assert (await story.event(wf, "in", "a")).reserved_by == run.id
        odd.broken = False
        await story.keep.retry(run.id)
        await story.run()
        assert (await story.mutation(wf)).status == "applied"


async def test_a_disk_that_fails_while_a_foreseen_call_is_judged_is_not_the_connectors_fault(
    story: Story, monkeypatch: pytest.MonkeyPatch,
) -> None:
    # I36: nothing is sent, and the run says that its host failed
    story.feed.put("a")
    wf = await story.deploy(acting())
    judge = Permissions.judge

    def judged(self: Permissions, capability: str, *args: Any, **more: Any) -> Judged:
        if capability == "gmail.send":
            raise apsw.IOError("the disk is gone")
        return judge(self, capability, *args, **more)

    monkeypatch.setattr(Permissions, "judge", judged)
    await story.run()
    run = await story.last(wf, "act")
    assert (run.status, "the disk is gone" in str(run.error)) == ("failed:internal", True)
    assert story.world.count("gmail.send") == 0


async def test_a_read_in_mutate_is_not_made_ahead(tmp_path: Path) -> None:
    # DESIGN 3: where policy allows it, it is made once, after the result of prepare is kept
    async with Story(tmp_path, policy=Policy(mutate_reads="by_id")) as story:
        story.feed.put("a")
        await story.deploy(acting(LOOK + SEND))
        assert await commits(story) == APART
        assert (story.world.count("gmail.get"), len(story.world.effects)) == (1, 1)


async def test_with_nothing_reserved_nothing_that_mutate_would_do_counts(story: Story) -> None:
    # I9: also where a reservation is there that names no event
    story.feed.put("a")
    for name, none in {"none": "[]", "empty": '[{ topic: "in", ids: [] }]'}.items():
        wf = await story.deploy(acting(prepare=f'return {{ reservations: {none}, data: {{}} }};', name=name,
                                       mutate="await ctx.gmail.send({ to: 'x' });"))
        assert await commits(story) == ["prepare", "commit_consumer"], name
        assert (story.world.asked, await story.keep.mutations(wf)) == ([], []), name


async def test_as_many_calls_as_prepare_may_make_leave_room_for_the_one_of_mutate(tmp_path: Path) -> None:
    # R324: the limit is one of each step
    async with Story(tmp_path, policy=Policy(script_calls_max=3)) as story:
        wf = await story.deploy_and_run(acting(prepare=LOOK + LOOK + take_first()), "a")
        run = await story.last(wf, "act")
        assert (run.status, run.error) == ("committed", None)
        assert len(story.world.effects) == 1


# -- the same as if it had been run by itself --------------------------------------------------------

MOMENT = """await ctx.gmail.send({ to: "x", body: [
  Date.now(), new Date().toISOString(), Math.random(), box.seen, typeof globalThis.left, prepared.data.messageId
] });"""


@pytest.mark.parametrize("line", ["", "ctx.log('now');"])
async def test_mutate_sees_the_moment_at_which_prepare_began_and_nothing_that_prepare_left_behind(
    story: Story, line: str,
) -> None:
    # R140, DESIGN 3: in a context of its own, foreseen or not
    story.feed.put("a")
    story.world.on("gmail.get").before(lambda params, call: story.clock.advance(seconds=10))
    prepare = "const own = (x) => x; own(box).seen = 1; own(globalThis).left = 1;" + LOOKING
    wf = await story.deploy(acting(line + MOMENT, prepare=prepare, head="const box = { seen: 0 };"))
    assert await commits(story) == (APART if line else STRAIGHT)
    run, [effect] = await story.last(wf, "act"), story.world.effects
    began, body = parse_iso(START), effect.params["body"]
    assert (run.prepared_at, run.updated_at) == (began, began + 10_000)
    assert (body[:2], body[3:]) == ([began, "2026-01-05T09:00:00.000Z"], [0, "undefined", "a"])
    assert (await story.mutation(wf)).first_sent_at == began + 10_000


async def test_what_is_foreseen_and_what_is_run_by_itself_are_the_same_call(story: Story) -> None:
    # R139, R140: the first attempt was foreseen; the two after it ran `mutate` from what was kept
    story.feed.put("a", {"ü\u2028": [1.5, 10**15, "€"], "b": None, "a": {}})
    story.world.on("gmail.send").fail(Transient("busy"), times=2)
    wf = await story.deploy(acting(
        "await ctx.gmail.send({ to: 'x', body: [Date.now(), Math.random(), prepared], subkey: 'one' });"))
    assert (await commits(story))[0] == "prepare_and_send"
    assert "send" in await commits(story, seconds=30)
    await story.run(hours=1)
    rows = await story.keep.mutations(wf)
    assert [(m.status, m.attempts) for m in rows] == [("failed", 1), ("failed", 2), ("applied", 3)]
    assert rows[0].params == rows[1].params == rows[2].params
    assert len({m.mutation_key for m in rows}) == len({m.preview for m in rows}) == 1


async def test_a_mutate_that_is_plain_for_some_events_only_acts_on_all_of_them_alike(story: Story) -> None:
    # R122: whatever was foreseen of one says nothing about another
    for id, what in {"a": "mail", "b": "say", "c": "mail", "d": "nothing", "e": "mail"}.items():
        story.feed.put(id, what)
    wf = await story.deploy_and_run(acting("""
  if (prepared.data.payload === "say") ctx.log("now");
  if (prepared.data.payload !== "nothing") await ctx.gmail.send({ to: prepared.data.messageId });
"""))
    assert [e.params["to"] for e in story.world.effects] == ["a", "b", "c", "e"]
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied"] * 4
    logs = [story.logs(r) for r in await story.runs(wf, "act")]
    assert [len(lines) for lines in logs] == [1, 2, 1, 1, 1]
    assert [json.loads(lines[-1])["status"] for lines in logs] == ["applied"] * 3 + ["none", "applied"]


@pytest.mark.parametrize(("line", "way"), [("", STRAIGHT), ("ctx.log('now');", APART)])
async def test_the_trace_tells_in_order_what_a_run_did(story: Story, line: str, way: list[str]) -> None:
    # R317, R318: also of the run whose first peek was foreseen, as it is from the second run on
    prepare = "ctx.log('before');" + LOOKING.replace(LOOK, "ctx.log('after');" + LOOK).replace(
        "data: event,", "data: event, wakeAt: 'soon',")
    for id in "abc":
        story.feed.put(id)
    wf = await story.deploy(acting(line + SEND, prepare=prepare))
    assert await commits(story) == way * 3
    done = await story.runs(wf, "act")
    assert len(done) == 3
    for run in done:
        assert traced(story, run) == [
            ("prepare", "log", "info"), ("prepare", "call", "peek"), ("prepare", "log", "info"),
            ("prepare", "call", "gmail.get"), ("prepare", "warning", "host"),
            *([("mutate", "log", "info")] if line else []),
            ("mutate", "call", "gmail.send"), ("next", "log", "info"),
        ]
    peeks = [line for run in done for line in views(story.keep).trace(run.id) if line.name == "peek"]
    first = [json.loads(peek.answer or "")[0]["messageId"] for peek in peeks]
    assert (first, {peek.args for peek in peeks}) == (["a", "b", "c"], {'["in"]'})


async def test_what_prepare_did_is_on_record_when_the_call_starts(story: Story) -> None:
    # R197, R317: the trace of prepare is part of that commit
    for id in "ab":
        story.feed.put(id)
    wf = await story.deploy(acting(FIRE))
    await story.crash(AFTER, nth=2)
    run = await story.last(wf, "act")
    assert traced(story, run) == [("prepare", "call", "peek")]
    row = (await story.keep.mutations(wf))[-1]
    await story.keep.resolve(row.id, "happened")
    await story.run()
    assert traced(story, run) == [("prepare", "call", "peek"), ("next", "log", "info")]


# -- others at the same time -------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["", "ctx.log('now');"])
async def test_a_run_that_is_stopped_while_prepare_runs_sends_nothing(story: Story, line: str) -> None:
    # I8, I12: the commit is refused whole, the host looks again, and the next attempt sends once
    story.feed.put("a")
    why = encode({"code": "transient", "message": "Somebody was quicker.", "line": None, "column": None,
                  "step": None, "evidence": None})
    stopped: list[str] = []

    async def stop(params: Any, call: Call) -> None:
        if not stopped:
            stopped.append(call.run_id)
            retry_at = story.clock.now_ms() + 60_000
            run = await story.keep.run(call.run_id)
            ledger = story.keep.parts.ledger
            await ledger.write(runs.stop, run, Stop(Status.PAUSED, Reason.TRANSIENT, why, retry_at))

    story.world.on("gmail.get").before(stop)
    wf = await story.deploy_and_run(acting(line + SEND, prepare=LOOKING))
    [run] = await story.runs(wf, "act")
    assert (run.id, run.status, run.phase, run.prepare_result) == (
        stopped[0], "paused:transient", "preparing", None)
    assert (await story.event(wf, "in", "a")).reserved_by is None
    assert (story.world.count("gmail.send"), await story.keep.mutations(wf)) == (0, [])
    await story.run(minutes=1)
    assert len(story.world.effects) == len(await story.keep.mutations(wf)) == 1
    assert [r.status for r in await story.runs(wf, "act")] == ["superseded", "committed"]


@pytest.mark.parametrize("line", ["", "ctx.log('now');"])
async def test_an_event_that_a_person_skips_while_prepare_runs_is_not_acted_on(story: Story, line: str) -> None:
    # I12, I14: it cannot be reserved any more, so nothing is pinned and nothing leaves; `prepare` is run again
    story.feed.put("a")
    wf = await story.deploy(acting(line + SEND, prepare=LOOKING))

    async def skip(params: Any, call: Call) -> None:
        event = await story.event(wf, "in", "a")
        if event.status == "pending":
            await story.keep.skip_event(event.id)

    story.world.on("gmail.get").before(skip)
    await story.run()
    run = await story.last(wf, "act")
    assert (run.status, run.error) == ("committed", None)
    assert story.world.count("gmail.get") == 2
    assert (story.world.count("gmail.send"), await story.keep.mutations(wf)) == (0, [])


async def test_many_workflows_at_once_send_each_of_their_calls_once(story: Story) -> None:
    # I2, I22: plain ones, ones that are asked about, and ones that are refused, in the same groups
    for id in "abc":
        story.feed.put(id)
    grants = {"plain": "allow", "asked": "ask", "denied": "deny"}
    wfs: dict[str, str] = {}
    for n in range(4):
        for name, grant in grants.items():
            source = acting("await ctx.gmail.send({ to: prepared.data.messageId, of: NAME });".replace(
                "NAME", json.dumps(f"{name}{n}")), name=f"{name}{n}")
            wfs[f"{name}{n}"] = await story.deploy(source, grants={**GRANTS, "gmail.send": grant})
    await story.run()
    sent = sorted((str(e.params["of"]), str(e.params["to"])) for e in story.world.effects)
    assert sent == [(f"plain{n}", id) for n in range(4) for id in "abc"]
    for name, wf in wfs.items():
        statuses = [m.status for m in await story.keep.mutations(wf)]
        assert statuses == (["applied"] * 3 if name.startswith("plain") else []), name
