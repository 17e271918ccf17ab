"""Failures: the class of an error decides what becomes of a run; every retry is bounded, linked and on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import Call, OutcomeUnknown, PermissionDenied, Policy, PreconditionFailed, Rejected, Transient
from keepai.model.errors import Refused
from tests.harness import NOTHING, POLL, SEND, Story, consumer, producer, take_first, workflow

LOOK = 'await ctx.gmail.get({ id: "m1" });'


def looking(where: str, *, call: str = LOOK, name: str = "story") -> str:
    """A workflow that reads the world in its producer or in `prepare`."""
    first = where == "producer"
    return workflow(
        name, producers={"poll": producer((call if first else "") + POLL + "return { polled: true };", interval="7d")},
        consumers={"act": consumer(("" if first else call) + take_first(), mutate=SEND)})


HANDLER = {"producer": "poll", "prepare": "act"}
PHASE = {"producer": "executing", "prepare": "preparing"}

CLASSES = {
    # error → (status, code)
    "transient": (Transient("later"), "paused:transient", "transient"),
    "permission": (PermissionDenied("the login has expired"), "paused:approval", "permission"),
    "precondition": (PreconditionFailed("the mailbox is gone"), "paused:approval", "precondition"),
    "rejected": (Rejected("no such folder"), "failed:logic", "rejected"),
    "unknown": (OutcomeUnknown("lost"), "paused:transient", "transient"),  # a read has no outcome to doubt
    "a timeout of its own": (TimeoutError("slow"), "paused:transient", "transient"),
    "a connection that broke": (ConnectionResetError("reset by peer"), "paused:transient", "transient"),
    "the operating system": (OSError(113, "no route to host"), "paused:transient", "transient"),
    "a bug": (ZeroDivisionError("division by zero"), "failed:internal", "connector_broke"),
    "a bug that says it is transient": (RuntimeError("Transient: try later"), "failed:internal", "connector_broke"),
}


@pytest.mark.parametrize("where", ["producer", "prepare"])
async def test_the_class_of_a_failed_read_decides_what_becomes_of_the_run(story: Story, where: str) -> None:
    # R168, R169, R224, R295–R301, DESIGN 9; and what a script catches changes nothing
    story.feed.put("a")
    call = f"try {{ {LOOK} }} catch (e) {{ ctx.log('caught'); }}"
    for name, (error, status, code) in CLASSES.items():
        story.world.on("gmail.get").fail(error)
        wf = await story.deploy_and_run(looking(where, call=call, name=name))
        run = await story.last(wf, HANDLER[where])
        assert (run.status, run.phase) == (status, PHASE[where]), name
        assert run.error is not None
        assert (run.error.code, run.error.step) == (code, where), name
        assert str(error) in run.error.message, name
        assert story.logs(run) == [], name
        if where == "producer":
            assert (await story.events(wf), await story.inputs(wf)) == ([], {}), name
            assert await story.keep.state(wf, "poll") is None
        assert await story.keep.mutations(wf) == []


async def test_a_read_that_does_not_answer_in_time_is_tried_again_later(tmp_path: Path) -> None:
    # R297
    async with Story(tmp_path, policy=Policy(call_s=0.05)) as story:
        story.feed.put("a")
        story.world.on("gmail.get").hang()
        wf = await story.deploy_and_run(looking("prepare"))
        run = await story.last(wf)
        assert run.status == "paused:transient"
        assert run.error is not None
        assert "gmail.get" in run.error.message
        await story.run(seconds=30)
        assert (await story.last(wf)).status == "committed"


# -- transient: backoff ------------------------------------------------------------------------------

WAITS = [30, 60, 120, 240, 480, 900, 900, 900]


@pytest.mark.parametrize("where", ["producer", "prepare", "mutate"])
async def test_a_transient_failure_is_tried_again_with_doubling_waits_and_then_a_person_is_asked(
    story: Story, where: str,
) -> None:
    # R143, R173, R185, R297, R303, R329, DESIGN 14: 30 s doubling to 15 min, 8 times
    operation = "gmail.send" if where == "mutate" else "gmail.get"
    story.feed.put("a")
    story.world.on(operation).fail(Transient("later"), times=None)
    wf = await story.deploy(looking("prepare", call="") if where == "mutate" else looking(where))
    handler = HANDLER.get(where, "act")
    await story.run()
    for number, wait in enumerate(WAITS, 1):
        await story.run(seconds=wait - 1)
        assert story.world.count(operation) == number, f"tried before {wait} s"
        await story.run(seconds=1)
        assert story.world.count(operation) == number + 1
    await story.run(days=3)
    assert story.world.count(operation) == 9
    runs = await story.runs(wf, handler)
    assert [r.status for r in runs] == ["superseded"] * 8 + ["paused:transient"]
    assert [r.retry_of for r in runs] == [None, *(r.id for r in runs[:-1])]
    assert {r.lineage for r in runs} == {runs[0].id}
    assert [r.attempt for r in runs] == list(range(1, 10))
    assert [r.failures for r in runs] == list(range(1, 10))
    assert [r.exhausted for r in runs] == [False] * 8 + [True]
    assert runs[-1].retry_at is None


UNKNOWN = {
    # how a call fails without saying whether it happened; in truth it never does
    "it says so": OutcomeUnknown("lost"),
    "a bug": ValueError("odd"),
    "the connection breaks": ConnectionResetError("reset"),
}


@pytest.mark.parametrize("how", UNKNOWN)
async def test_work_that_is_proven_undone_after_a_doubt_is_sent_again_as_rarely_as_after_a_refusal(
    story: Story, how: str,
) -> None:
    # R303, DESIGN 6: every resend counts; 9 sends with growing waits, then a question
    story.feed.put("a")
    story.world.on("gmail.send").fail(UNKNOWN[how], times=None)
    wf = await story.deploy_and_run(looking("prepare", call=""))
    for number, wait in enumerate(WAITS, 1):
        assert await story.keep.needs_you(wf) == []
        await story.run(seconds=wait - 1)
        assert story.world.count("gmail.send") == number, f"sent before {wait} s"
        await story.run(seconds=1)
        assert story.world.count("gmail.send") == number + 1
    await story.run(days=30)
    assert story.world.count("gmail.send") == 9
    [asked] = await story.keep.needs_you(wf)
    assert (asked.kind, asked.actions) == ("exhausted", ("retry", "skip_run"))
    runs = await story.runs(wf, "act")
    assert [r.failures for r in runs] == list(range(1, 10))
    assert [m.status for m in await story.keep.mutations(wf)] == ["failed"] * 9


async def test_no_kind_of_doubt_in_between_resets_the_count_of_failures(tmp_path: Path) -> None:
    # DESIGN 6: a refusal, a lost answer, a look-up that cannot tell yet, a restart and a host's death are one row
    async with Story(tmp_path, policy=Policy(retries_max=5)) as story:
        story.feed.put("a")
        send, look = story.world.on("gmail.send"), story.world.on_reconcile("gmail.send")
        wf = await story.deploy(looking("prepare", call=""))
        send.fail(Transient("later"))
        await story.run()
        send.fail(OutcomeUnknown("lost"))
        look.retry(10)
        await story.run(minutes=15)
        await story.reopen()
        await story.run(seconds=10)
        await story.crash("before:call", minutes=15)
        await story.run()
        send.fail(Transient("later"))
        await story.run(minutes=15)
        send.fail(OutcomeUnknown("lost"), times=None)
        await story.run(minutes=15)
        await story.run(minutes=15)
        await story.run(days=30)
        runs = await story.runs(wf, "act")
        assert [r.failures for r in runs] == [1, 2, 3, 4, 5, 6]
        assert [each.kind for each in await story.keep.needs_you(wf)] == ["exhausted"]


async def test_a_lookup_that_searches_the_wrong_place_ends_in_a_question(story: Story) -> None:
    # R303: the connector is wrong, so each resend doubles the effect; the bound is all that stands in between
    story.feed.put("a")
    story.world.on("gmail.send").lose_answer(times=None)
    story.world.on_reconcile("gmail.send").not_found(times=None)
    wf = await story.deploy(looking("prepare", call=""))
    for _ in range(24 * 6):
        await story.run(minutes=10)
    assert len(story.world.effects) == 9
    assert [each.kind for each in await story.keep.needs_you(wf)] == ["exhausted"]


async def test_a_persons_word_about_a_doubt_begins_the_count_anew(tmp_path: Path) -> None:
    # DESIGN 6: only automatic resends count
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        story.feed.put("a")
        story.world.on("gmail.send").fail(OutcomeUnknown("lost"), times=3)
        look = story.world.on_reconcile("gmail.send")
        wf = await story.deploy_and_run(looking("prepare", call=""))
        look.unknown()
        await story.run(seconds=30)
        [asked] = await story.keep.needs_you(wf)
        assert asked.kind == "unknown_outcome"
        await story.keep.resolve(asked.mutation_id, "did_not_happen")
        await story.run()
        assert (await story.last(wf)).status == "paused:transient"
        assert await story.keep.needs_you(wf) == []
        await story.run(seconds=30)
        assert (await story.last(wf)).status == "committed"


async def test_a_person_may_go_on_after_the_retries_are_used_up_and_gets_as_many_again(tmp_path: Path) -> None:
    # R303
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        story.feed.put("a")
        story.world.on("gmail.send").fail(Transient("later"), times=3)
        wf = await story.deploy_and_run(looking("prepare", call=""))
        await story.run(seconds=30)
        last = await story.last(wf)
        assert (last.status, last.exhausted, last.failures) == ("paused:transient", True, 2)
        new = await story.keep.retry(last.id)
        await story.run()
        again = await story.keep.run(new)
        assert (again.status, again.exhausted, again.failures) == ("paused:transient", False, 1)
        await story.run(seconds=30)
        assert (await story.last(wf)).status == "committed"
        assert len(story.world.effects) == 1


@pytest.mark.parametrize("when", ["while it waits", "when its time has come", "when its host has died"])
@pytest.mark.parametrize("where", ["producer", "prepare", "mutate"])
async def test_a_new_version_gets_as_many_tries_as_the_one_before(tmp_path: Path, where: str, when: str) -> None:
    # R303: whoever deploys it may have mended what failed, and whether the next try was just due makes no difference
    handler, source = HANDLER.get(where, "act"), looking("prepare", call="") if where == "mutate" else looking(where)
    async with Story(tmp_path, policy=Policy(retries_max=2)) as story:
        story.feed.put("a")
        operation = "gmail.send" if where == "mutate" else "gmail.get"
        story.world.on(operation).fail(Transient("later"), times=None)
        wf = await story.deploy_and_run(source)
        await story.run(seconds=30)
        assert (await story.last(wf, handler)).failures == 2
        if when == "when its host has died":
            await story.crash("after:carry_on", seconds=60)
        await story.keep.pause(wf)
        if when == "when its time has come":
            await story.run(seconds=60)
        await story.deploy("// another\n" + source)
        await story.keep.resume(wf)
        for seconds in (0, 30, 60):
            assert await story.keep.needs_you(wf) == []
            await story.run(seconds=seconds)
        [asked] = await story.keep.needs_you(wf)
        assert asked.kind == "exhausted"
        tries = [run for run in await story.runs(wf, handler) if run.version == "2.0"]
        assert [run.failures for run in tries] == [1, 2, 3]
        assert story.world.count(operation) == 5


async def test_success_ends_the_count_of_failures(tmp_path: Path) -> None:
    # R303: so many in a row, not so many ever
    async with Story(tmp_path, policy=Policy(retries_max=1)) as story:
        for id in "abc":
            story.feed.put(id)
        seen: set[object] = set()

        def fail_once_each(params: dict[str, object], call: Call) -> None:
            if params["to"] not in seen:
                seen.add(params["to"])
                raise Transient("later")

        story.world.on("gmail.send").before(fail_once_each)
        wf = await story.deploy_and_run(looking("prepare", call=""))
        for _ in range(3):
            assert (await story.last(wf)).failures == 1
            await story.run(seconds=30)
        assert await story.ids(wf, "in", "consumed") == ["a", "b", "c"]


@pytest.mark.parametrize(("retry_after", "wait"), [(100, 100), (5, 30), (None, 30), (0, 30)])
async def test_the_outside_system_may_ask_for_a_longer_wait(story: Story, retry_after: float | None, wait: int) -> None:
    # DESIGN 9: retry_after honoured, never shorter than the backoff
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("rate limit", retry_after=retry_after))
    wf = await story.deploy_and_run(looking("prepare", call=""))
    await story.run(seconds=wait - 1)
    assert story.world.count("gmail.send") == 1
    await story.run(seconds=1)
    assert (await story.last(wf)).status == "committed"


async def test_a_person_need_not_wait_for_the_backoff(story: Story) -> None:
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    wf = await story.deploy_and_run(looking("prepare", call=""))
    await story.keep.retry((await story.last(wf)).id)
    await story.run()
    assert (await story.last(wf)).status == "committed"


async def test_a_failed_producer_is_not_run_by_its_schedule_while_it_waits(story: Story) -> None:
    # R183, R303: the schedule is no way round the backoff
    story.world.on("gmail.get").fail(Transient("later", retry_after=3600))
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(LOOK + "return 1;", interval="1m")}))
    await story.run(minutes=30)
    assert story.world.count("gmail.get") == 1
    await story.run(minutes=30)
    assert [r.status for r in await story.runs(wf)] == ["superseded", "committed"]


# -- logic -------------------------------------------------------------------------------------------

THROWN = {
    "an error": ("throw new Error('the reason');", "the reason"),
    "an error of another kind": ("throw new TypeError('the reason');", "the reason"),
    "a bug": ("const nothing = undefined; nothing.member;", "member"),
    "an unknown name": ("noSuchThing();", "noSuchThing"),
    "a text": ("throw 'the reason';", "the reason"),
    "null": ("throw null;", "null"),
    "an object": ("throw { message: 'the reason' };", "the reason"),
    "a rejection": ("await Promise.reject(new Error('the reason'));", "the reason"),
    "something that cannot be shown": (
        "throw { get message() { throw new Error('again'); }, toString() { throw new Error('again'); } };", ""),
}
STEPS = ["producer", "prepare", "mutate", "next"]
STOPPED_IN = {"producer": "executing", "prepare": "preparing", "mutate": "mutating", "next": "emitting"}


async def test_whatever_a_script_throws_is_a_logic_failure_with_its_place(story: Story) -> None:
    # R176, R296, R168, DESIGN 9
    story.feed.put("a")
    for what, (thrown, words) in THROWN.items():
        source = workflow(what, producers={"poll": producer()}, consumers={
            "act": consumer(f"\n    {thrown}  // HERE\n" + NOTHING)})
        [line] = [n for n, each in enumerate(source.splitlines(), 1) if "// HERE" in each]
        wf = await story.deploy_and_run(source)
        run = await story.last(wf, "act")
        assert (run.status, run.phase) == ("failed:logic", "preparing"), what
        assert run.error is not None
        assert (run.error.code, run.error.step) == ("script_threw", "prepare"), what
        assert words in run.error.message, what
        if ("new " in thrown.replace("get message", "") and "toString" not in thrown) or "a bug" in what:
            assert run.error.line == line, what
            assert run.error.column is not None, what
        await story.run(days=2)
        assert len(await story.runs(wf, "act")) == 1, what  # not tried again by itself


async def test_a_script_that_throws_fails_in_its_own_phase(story: Story) -> None:
    # R168, R170: the status says why, the phase where
    thrown = "\n  throw new Error('here');  // HERE\n"
    story.feed.put("a")
    for step in STEPS:
        source = workflow(
            step, producers={"poll": producer(thrown if step == "producer" else POLL)},
            consumers={"act": consumer(
                (thrown if step == "prepare" else "") + take_first(),
                mutate=thrown if step == "mutate" else None, next=thrown if step == "next" else None)})
        [line] = [n for n, each in enumerate(source.splitlines(), 1) if "// HERE" in each]
        wf = await story.deploy_and_run(source)
        run = await story.last(wf)
        assert (run.status, run.phase) == ("failed:logic", STOPPED_IN[step])
        assert run.error is not None
        assert (run.error.step, run.error.line) == (step, line)
        assert "here" in run.error.message


async def test_the_line_of_an_error_inside_a_helper_is_the_line_where_it_was_thrown(story: Story) -> None:
    # DESIGN 9 "location in the script"
    source = workflow(
        producers={"poll": producer()}, consumers={"act": consumer("check(5);" + NOTHING)},
        head="function check(n) {\n  if (n > 3) {\n    throw new RangeError('too many');\n  }\n}")
    wf = await story.deploy_and_run(source, "a")
    error = (await story.last(wf)).error
    assert error is not None
    assert (error.line, error.column is not None) == (3, True)
    assert "RangeError" in error.message


async def test_a_script_that_computes_for_ever_hits_its_limit_and_the_host_goes_on(tmp_path: Path) -> None:
    # R324, DESIGN 9: a limit is a logic failure that names it
    async with Story(tmp_path, policy=Policy(script_s=0.2)) as story:
        story.feed.put("a")
        wf = await story.deploy(workflow(
            producers={"poll": producer()}, consumers={"act": consumer("for (;;) {}")}))
        other = await story.deploy_and_run(looking("prepare", call="", name="other"))
        run = await story.last(wf)
        assert (run.status, run.phase) == ("failed:logic", "preparing")
        assert run.error is not None
        assert run.error.code == "limit_exceeded"
        assert "0.2" in run.error.message
        assert (await story.last(other)).status == "committed"


async def test_a_mended_script_starts_again_from_fresh_reads(story: Story) -> None:
    # R172, R176, R187, DESIGN 2: a new version resets a run that had no effect; its events are let go
    story.feed.put("a", 1)
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "act": consumer(mutate="throw new Error('no');")}))
    broken = await story.last(wf)
    assert (await story.event(wf, "in", "a")).reserved_by == broken.id
    await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "act": consumer("ctx.log('prepared afresh');" + take_first(), mutate=SEND)}))
    mended = next(r for r in await story.runs(wf, "act") if r.retry_of == broken.id)
    assert (mended.status, mended.version, mended.trigger) == ("committed", "2.0", "new_version")
    assert story.logs(mended) == ["prepared afresh"]
    assert (await story.keep.run(broken.id)).status == "superseded"
    assert len(story.world.effects) == 1


async def test_the_same_script_again_mends_nothing(story: Story) -> None:
    source = workflow(producers={"poll": producer()}, consumers={"act": consumer("throw new Error('no');")})
    wf = await story.deploy_and_run(source, "a")
    await story.deploy_and_run(source)
    assert len(await story.runs(wf, "act")) == 1


# -- permission and precondition ---------------------------------------------------------------------


@pytest.mark.parametrize("error", [PermissionDenied("expired"), PreconditionFailed("the sheet is gone")])
@pytest.mark.parametrize("operation", ["gmail.get", "gmail.send"])
async def test_what_only_a_person_can_mend_waits_for_them_and_then_goes_on(
    story: Story, error: Exception, operation: str,
) -> None:
    # R174, R299, R171
    story.feed.put("a")
    story.world.on(operation).fail(error, times=2)
    wf = await story.deploy_and_run(looking("prepare"))
    await story.run(days=3)
    assert story.world.count(operation) == 1  # time mends nothing
    run = await story.last(wf)
    assert run.status == "paused:approval"
    await story.keep.retry(run.id)
    await story.run()
    assert (await story.last(wf)).status == "paused:approval"  # not yet mended
    await story.keep.retry((await story.last(wf)).id)
    await story.run()
    assert (await story.last(wf)).status == "committed"
    assert len(story.world.effects) == 1


# -- internal ----------------------------------------------------------------------------------------


async def test_a_fault_of_the_connector_stops_with_evidence_and_is_not_tried_again_by_itself(story: Story) -> None:
    # R177, R300
    story.feed.put("a")
    story.world.on("gmail.get").fail(KeyError("missing"))
    wf = await story.deploy_and_run(looking("prepare"))
    run = await story.last(wf)
    assert run.status == "failed:internal"
    assert run.error is not None
    assert "KeyError" in run.error.message
    assert "Traceback" in str(run.error.evidence)
    await story.run(days=3)
    assert len(await story.runs(wf, "act")) == 1
    await story.keep.retry(run.id)
    await story.run()
    assert (await story.last(wf)).status == "committed"


async def test_a_new_script_does_not_mend_a_fault_of_the_host(story: Story) -> None:
    # R177
    story.feed.put("a")
    story.world.on("gmail.get").fail(KeyError("missing"))
    wf = await story.deploy_and_run(looking("prepare"))
    await story.deploy_and_run(looking("prepare") + "// another version\n")
    assert [r.status for r in await story.runs(wf, "act")] == ["failed:internal"]


async def test_a_run_that_keeps_killing_its_host_is_stopped(story: Story) -> None:
    # DESIGN 5: after three crashes of a lineage
    story.feed.put("a")
    wf = await story.deploy(looking("prepare", call=""))
    for _ in range(3):
        await story.crash("before:prepare_and_send")
    runs = await story.runs(wf, "act")
    assert [r.status for r in runs] == ["crashed", "crashed", "failed:internal"]
    assert {r.lineage for r in runs} == {runs[0].id}
    await story.run(days=1)
    assert len(await story.runs(wf, "act")) == 3
    await story.keep.retry(runs[-1].id)
    await story.run()
    assert (await story.last(wf, "act")).status == "committed"


# -- acts that do not fit ----------------------------------------------------------------------------


async def test_a_run_that_is_over_can_neither_be_retried_nor_skipped_nor_finished(story: Story) -> None:
    # R179, I31
    story.feed.put("a")
    story.world.on("gmail.send").fail(Transient("later"))
    wf = await story.deploy_and_run(looking("prepare", call=""))
    await story.run(seconds=30)
    old, new = await story.runs(wf, "act")
    for run, said in ((old, "superseded"), (new, "committed")):
        for act in (story.keep.retry, story.keep.skip_run, story.keep.finish):
            with pytest.raises(Refused, match=said):
                await act(run.id)
    assert await story.runs(wf, "act") == [old, new]
    assert len(story.world.effects) == 1


async def test_two_people_who_retry_the_same_run_start_one(story: Story) -> None:
    # I31
    story.feed.put("a")
    story.world.on("gmail.send").fail(PreconditionFailed("gone"))
    wf = await story.deploy_and_run(looking("prepare", call=""))
    run = await story.last(wf)
    await story.keep.retry(run.id)
    with pytest.raises(Refused, match="superseded"):
        await story.keep.retry(run.id)
    await story.run()
    assert len(story.world.effects) == 1


# -- chains of events --------------------------------------------------------------------------------

FEED_ITSELF = 'await ctx.publish("in", { messageId: `${prepared.data.messageId}+`, payload: 1 });'
NEVER_TAKES = {
    "a new event": 'await ctx.publish("in", { messageId: `own${prepared.data}`, payload: 1 });',
    "the same event": 'await ctx.publish("in", { messageId: "own", payload: prepared.data });',
}


async def test_a_consumer_that_feeds_its_own_topic_is_stopped_as_a_fault_of_the_script(tmp_path: Path) -> None:
    # R324: it never ends by itself, and every turn sends something
    async with Story(tmp_path, policy=Policy(chain_max=5)) as story:
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(interval="7d")}, consumers={
            "loop": consumer(publishes=None, mutate=SEND, next=FEED_ITSELF)}), "a")
        runs = await story.runs(wf, "loop")
        assert [run.status for run in runs] == ["committed"] * 5 + ["failed:logic"]
        error = runs[-1].error
        assert error is not None
        assert (error.code, error.step) == ("limit_exceeded", "next")
        assert "loop → in → loop" in error.message
        assert "chain_max" in error.message
        assert len(story.world.effects) == 6
        assert [each.kind for each in await story.keep.needs_you(wf)] == ["logic"]
        await story.keep.finish(runs[-1].id)
        await story.run(days=1)
        assert len(await story.runs(wf, "loop")) == 6, "the chain has ended"


async def test_a_circle_of_several_consumers_is_named_whole(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(chain_max=7)) as story:
        story.feed.put("a")
        pass_on = 'await ctx.publish("{}", {{ messageId: `${{prepared.data.messageId}}+`, payload: 1 }});'
        wf = await story.deploy_and_run(workflow(
            topics=("start", "one", "two", "three"),
            producers={"poll": producer(POLL.replace('"in"', '"start"'), publishes=["start"], interval="7d")},
            consumers={
                "enter": consumer(subscribe=["start"], publishes=None, next=pass_on.format("one")),
                "a": consumer(subscribe=["one"], publishes=["two"], next=pass_on.format("two")),
                "b": consumer(subscribe=["two"], publishes=["three"], next=pass_on.format("three")),
                "c": consumer(subscribe=["three"], publishes=None, next=pass_on.format("one")),
            }))
        run = await story.last(wf)
        assert (run.handler, run.status) == ("a", "failed:logic")
        assert run.error is not None
        assert "a → two → b → three → c → one → a" in run.error.message
        assert "enter" not in run.error.message


@pytest.mark.parametrize("what", NEVER_TAKES)
async def test_a_consumer_that_publishes_to_itself_without_taking_anything_is_stopped_too(
    tmp_path: Path, what: str,
) -> None:
    async with Story(tmp_path, policy=Policy(chain_max=5)) as story:
        story.feed.put("a")
        count = 'const n = (state ?? 0) + 1; return { reservations: [], data: n + (await ctx.peek("in")).length };'
        wf = await story.deploy_and_run(workflow(producers={"poll": producer(interval="7d")}, consumers={
            "loop": consumer(count, publishes=None, next=NEVER_TAKES[what] + "return (ctx.state ?? 0) + 1;")}))
        runs = await story.runs(wf, "loop")
        assert [run.status for run in runs] == ["committed"] * 5 + ["failed:logic"]
        assert runs[-1].error is not None
        assert "loop → in → loop" in runs[-1].error.message


async def test_a_chain_that_ends_is_no_fault_however_many_events_it_handles(tmp_path: Path) -> None:
    # the bound is on depth: a hundred events through three consumers are chains of three
    async with Story(tmp_path, policy=Policy(chain_max=2)) as story:
        for number in range(20):
            story.feed.put(f"i{number}")
        pass_on = 'await ctx.publish("{}", {{ messageId: prepared.data.messageId, payload: 1 }});'
        wf = await story.deploy(workflow(topics=("in", "mid", "end"), producers={"poll": producer()}, consumers={
            "one": consumer(publishes=["mid"], next=pass_on.format("mid")),
            "two": consumer(subscribe=["mid"], publishes=["end"], next=pass_on.format("end")),
        }))
        await story.run()
        assert len(await story.ids(wf, "end")) == 20
        assert await story.keep.needs_you(wf) == []
