"""`prepare` selects and pins: its result and its reservations are one step, or nothing is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from keepai import Policy, Transient
from keepai.ledger.transitions import events
from keepai.ledger.transitions.events import Publication
from keepai.model.errors import RuleBroken
from keepai.model.records import Event, Run
from tests.harness import NOTHING, POLL, Story, consumer, producer, take_all, take_first, views, workflow

APPEND = 'await ctx.sheets.appendRow({ spreadsheetId: "s", values: [prepared.data] });'


def taking(prepare: str | None = None, *, mutate: str | None = APPEND, next: str | None = None) -> str:
    """A workflow that polls the feed and takes its events."""
    return workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(prepare, mutate=mutate, next=next, publishes=["out"] if next else [])},
    )


# -- what prepare is given ---------------------------------------------------------------------------


async def test_prepare_sees_the_state_of_the_last_committed_run_and_nothing_before_the_first(story: Story) -> None:
    # R099, R153
    wf = await story.deploy_and_run(taking(
        "ctx.log(state === undefined || state === null ? 'none' : state.count);" + take_first(),
        mutate=None, next="return { count: (ctx.state?.count ?? 0) + 1 };"), "a", "b")
    assert [story.logs(r) for r in await story.runs(wf, "take")] == [["none"], ["1"]]


async def test_prepare_reads_the_world_and_its_topics(story: Story) -> None:
    # R100, R101: a page is an array with extra fields; getByIds finds what is pending only
    story.world.deliver(subject="One", id="m1")
    story.world.deliver(subject="Two", id="m2")
    story.feed.put("a", {"n": 1})
    story.feed.put("b", {"n": 2})
    wf = await story.deploy_and_run(taking("""
  const mails = await ctx.gmail.search({});
  ctx.log(mails.map(m => m.subject).join(), mails.lastCursor, Array.isArray(mails));
  const mail = await ctx.gmail.get({ id: "m2" });
  ctx.log(mail.subject);
  const found = await ctx.getByIds("in", ["b", "nobody", "a"]);
  ctx.log(JSON.stringify(found.map(e => [e.messageId, e.payload])));
  const seen = await ctx.peek("in", { limit: 1 });
  ctx.log(JSON.stringify(seen));
""" + NOTHING, mutate=None))
    assert story.logs((await story.runs(wf, "take"))[0]) == [
        "One,Two 2 true", "Two", '[["b",{"n":2}],["a",{"n":1}]]',
        '[{"messageId":"a","payload":{"n":1},"topic":"in"}]',
    ]


async def test_prepare_reads_the_clock_of_the_host(tmp_path: Path) -> None:
    # R102 with DESIGN 4, "times come from one injectable clock": a wakeAt made from Date.now() must mean something
    async with Story(tmp_path, start="2026-01-05T09:00:00Z") as story:
        wf = await story.deploy_and_run(taking("ctx.log(new Date().toISOString());" + NOTHING, mutate=None), "a")
        [line] = story.logs((await story.runs(wf, "take"))[0])
        assert line.startswith("2026-01-05T09:00:0")


async def test_a_wake_up_that_prepare_counts_from_now_comes_at_that_time(story: Story) -> None:
    # R102, R119
    wf = await story.deploy_and_run(taking(
        "return { reservations: [], data: {}, wakeAt: new Date(Date.now() + 10 * 60_000).toISOString() };",
        mutate=None), "a")
    before = len(await story.runs(wf, "take"))
    await story.run(minutes=9)
    assert len(await story.runs(wf, "take")) == before
    await story.run(minutes=2)
    assert len(await story.runs(wf, "take")) == before + 1


async def test_chance_differs_from_one_prepare_to_the_next(story: Story) -> None:
    # R102
    wf = await story.deploy_and_run(taking("ctx.log(Math.random());" + take_first(), mutate=None), "a", "b")
    first, second = [story.logs(r) for r in await story.runs(wf, "take")]
    assert first != second


# -- what prepare must return ------------------------------------------------------------------------

WRONG: dict[str, tuple[str, str]] = {
    # name → (what prepare returns, a word of the error)
    "nothing": ("undefined", "reservations"),
    "null": ("null", "reservations"),
    "a number": ("5", "reservations"),
    "a text": ('"in"', "reservations"),
    "an array": ('[{ topic: "in", ids: ["a"] }]', "reservations"),
    "an empty object": ("{}", "reservations"),
    "no reservations": ("{ data: {} }", "reservations"),
    "no data": ("{ reservations: [] }", "data"),
    "data undefined": ("{ reservations: [], data: undefined }", "data"),
    "reservations null": ("{ reservations: null, data: {} }", "reservations"),
    "reservations an object": ('{ reservations: { topic: "in", ids: ["a"] }, data: {} }', "reservations"),
    "reservations a text": ('{ reservations: "in", data: {} }', "reservations"),
    "a reservation that is a text": ('{ reservations: ["a"], data: {} }', "reservation"),
    "a reservation that is null": ("{ reservations: [null], data: {} }", "reservation"),
    "a reservation without ids": ('{ reservations: [{ topic: "in" }], data: {} }', "ids"),
    "ids a text": ('{ reservations: [{ topic: "in", ids: "a" }], data: {} }', "ids"),
    "a reservation without topic": ('{ reservations: [{ ids: ["a"] }], data: {} }', "topic"),
    "a topic that is not subscribed": ('{ reservations: [{ topic: "out", ids: ["a"] }], data: {} }', "out"),
    "a topic that is not declared": ('{ reservations: [{ topic: "nowhere", ids: ["a"] }], data: {} }', "nowhere"),
    "an id that is a number": ('{ reservations: [{ topic: "in", ids: [1] }], data: {} }', "in"),
    "an id that is null": ('{ reservations: [{ topic: "in", ids: [null] }], data: {} }', "in"),
    "an id that is an event": ('{ reservations: [{ topic: "in", ids: [{ messageId: "a" }] }], data: {} }', "in"),
    "an empty id": ('{ reservations: [{ topic: "in", ids: [""] }], data: {} }', "in"),
    "an event twice": ('{ reservations: [{ topic: "in", ids: ["a", "a"] }], data: {} }', "twice"),
    "an event twice in two entries": (
        '{ reservations: [{ topic: "in", ids: ["a"] }, { topic: "in", ids: ["a"] }], data: {} }', "twice"),
    "an event that does not exist": ('{ reservations: [{ topic: "in", ids: ["nobody"] }], data: {} }', "nobody"),
    "one good and one bad id": ('{ reservations: [{ topic: "in", ids: ["a", "nobody"] }], data: {} }', "nobody"),
    "ui a text": ('{ reservations: [], data: {}, ui: "Title" }', "ui"),
    "ui.title a number": ("{ reservations: [], data: {}, ui: { title: 5 } }", "ui"),
    "data with NaN": ("{ reservations: [], data: { n: NaN } }", "NaN"),
    "data with an infinity": ("{ reservations: [], data: { n: 1 / 0 } }", "Infinity"),
    "data with a lone surrogate": (r'{ reservations: [], data: "\ud800" }', "surrogate"),
    "data with a cycle": ("(() => { const data = {}; data.self = data; return { reservations: [], data }; })()", ""),
    "data with a BigInt": ("{ reservations: [], data: { n: 10n } }", ""),
    "data too deep": (
        "(() => { let data = 1; for (let i = 0; i < 2000; i++) data = [data]; return { reservations: [], data }; })()",
        "deep"),
    "a result too large": ('{ reservations: [], data: "x".repeat(3_000_000) }', "2,097,152"),
    "too many reservations": (
        '{ reservations: [{ topic: "in", ids: Array.from({ length: 1001 }, (_, i) => `i${i}`) }], data: {} }', "1,000"),
}

RIGHT: dict[str, str] = {
    "only what is required": "{ reservations: [], data: {} }",
    "data may be null": "{ reservations: [], data: null }",
    "a reservation without ids in it": '{ reservations: [{ topic: "in", ids: [] }], data: 1 }',
    "ui without title": "{ reservations: [], data: {}, ui: {} }",
    "ui with title": '{ reservations: [], data: {}, ui: { title: "Do it" } }',
    "wakeAt": '{ reservations: [], data: {}, wakeAt: "2026-01-05T10:00:00Z" }',
    "wakeAt null": "{ reservations: [], data: {}, wakeAt: null }",
    "an undefined member is dropped": "{ reservations: [], data: { gone: undefined } }",
    "a thenable is awaited": "Promise.resolve({ reservations: [], data: {} })",
}

ODD_WAKES = {
    "no date": '"tomorrow"', "a number": "5", "an object": "{}", "empty": '""', "the year 99999": '"99999-01-01"',
    "a boolean": "true", "the 32nd": '"2026-01-32T00:00:00Z"',
}


@dataclass(frozen=True)
class Tried:
    run: Run
    events: list[Event]
    warnings: list[str]
    asked: int


async def _tried(folder: Path) -> dict[str, Tried]:
    found = {}
    async with Story(folder) as story:
        story.feed.put("a", 1)
        odd = {f"wake {k}": f"{{ reservations: [], data: {{}}, wakeAt: {v} }}" for k, v in ODD_WAKES.items()}
        results = {k: v for k, (v, _) in WRONG.items()} | RIGHT | odd
        deployed = {}
        for name, result in results.items():
            deployed[name] = await story.deploy(workflow(
                name, producers={"poll": producer()},
                consumers={"take": consumer(
                    f"const give = () => ({result}); return give();",
                    mutate='await ctx.webhook.fire({ of: "shape" });')}))
        await story.run()
        for name, wf in deployed.items():
            run = (await story.runs(wf, "take"))[0]
            found[name] = Tried(run, await story.events(wf), story.warnings(run), len(await story.keep.mutations(wf)))
        assert story.world.asked == []
    return found


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tried]:
    """Every result above, each returned by a workflow of its own in one host; no connector was asked."""
    return asyncio.run(_tried(tmp_path_factory.mktemp("shapes")))


@pytest.mark.parametrize("name", WRONG)
def test_a_result_of_the_wrong_shape_fails_the_run_and_pins_nothing(tried: dict[str, Tried], name: str) -> None:
    # R106, R108, R110, R114
    one, word = tried[name], WRONG[name][1]
    assert (one.run.status, one.run.phase) == ("failed:logic", "preparing")
    assert one.run.prepare_result is None
    assert one.run.error is not None
    assert word in one.run.error.message
    assert one.run.error.step == "prepare"
    assert [(e.status, e.reserved_by) for e in one.events] == [("pending", None)]
    assert one.asked == 0


@pytest.mark.parametrize("name", RIGHT)
def test_a_result_of_the_right_shape_is_taken(tried: dict[str, Tried], name: str) -> None:
    # R106, R107
    one = tried[name]
    assert one.run.status == "committed", one.run.error
    assert one.run.outcome == '{"status":"none"}'
    assert one.warnings == []


@pytest.mark.parametrize("name", ODD_WAKES)
def test_a_wake_up_time_that_is_none_is_ignored_with_a_warning(tried: dict[str, Tried], name: str) -> None:
    # R328, DESIGN 3
    one = tried[f"wake {name}"]
    assert one.run.status == "committed", one.run.error
    assert any("wakeAt" in w for w in one.warnings)


# -- reservations ------------------------------------------------------------------------------------


async def test_every_listed_event_is_reserved_for_this_run_in_the_step_that_keeps_the_result(story: Story) -> None:
    # R108, R109, R212
    for id in "abc":
        story.feed.put(id, {"of": id})
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    wf = await story.deploy_and_run(taking(
        'const [, b, c] = await ctx.peek("in");'
        'return { reservations: [{ topic: "in", ids: [b, c].map(e => e.messageId) }], data: {} };'))
    run = await story.last(wf, "take")
    assert {e.message_id: e.reserved_by for e in await story.events(wf)} == {"a": None, "b": run.id, "c": run.id}
    assert run.prepare_result is not None
    assert json.loads(run.prepare_result)["reservations"] == [{"topic": "in", "ids": ["b", "c"]}]


async def test_reserved_events_stay_reserved_through_pause_resume_and_restart(story: Story) -> None:
    # R113, R178
    story.feed.put("a", 1)
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    wf = await story.deploy_and_run(taking())
    run = await story.last(wf, "take")

    async def reserved() -> list[str | None]:
        return [e.reserved_by for e in await story.events(wf)]

    assert await reserved() == [run.id]
    await story.keep.pause(wf)
    assert await reserved() == [run.id]
    await story.reopen()
    assert await reserved() == [run.id]
    await story.keep.resume(wf)
    await story.run()
    assert await reserved() == [run.id]
    await story.run(seconds=30)
    assert (await story.events(wf))[0].status == "consumed"


async def test_a_reserved_event_is_not_offered_to_anyone_else(story: Story) -> None:
    # R110, R111, R184: neither by a new run nor, at the ledger, by any other run's reservation
    story.feed.put("a", 1)
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    wf = await story.deploy_and_run(taking())
    poll, take = await story.runs(wf)
    story.feed.put("b", 2)
    await story.run(seconds=10)
    assert len(await story.runs(wf)) == 2  # nothing else of this workflow starts
    with pytest.raises(RuleBroken, match=take.id):
        await story.keep.parts.ledger.write(events.reserve, wf, poll.id, [("in", "a")])
    assert (await story.event(wf, "in", "a")).reserved_by == take.id


@pytest.mark.parametrize("why", ["consumed", "skipped"])
async def test_an_event_that_is_no_longer_pending_cannot_be_reserved(story: Story, why: str) -> None:
    # R110
    story.feed.put("a", 1)
    story.feed.put("b", 2)
    wf = await story.deploy(taking('return { reservations: [{ topic: "in", ids: ["a"] }], data: {} };'))
    if why == "consumed":
        await story.run()  # the first run takes "a", the second wants it again
    else:
        await story.deploy_and_run(taking(NOTHING))
        await story.keep.skip_event((await story.event(wf, "in", "a")).id)
        await story.deploy_and_run(taking('return { reservations: [{ topic: "in", ids: ["b", "a"] }], data: {} };'))
    run = await story.last(wf, "take")
    assert (run.status, run.phase) == ("failed:logic", "preparing")
    assert run.error is not None
    assert "'a'" in run.error.message
    assert why in run.error.message
    assert (await story.event(wf, "in", "b")).reserved_by is None
    assert len(story.world.effects) == (1 if why == "consumed" else 0)


async def test_what_a_run_pinned_does_not_change_whatever_happens_outside(story: Story) -> None:
    # R112, R121, I13: the world and the topic change between two attempts, the mutation does not
    story.world.deliver(subject="Before", id="m1")
    story.feed.put("a", {"price": 10})
    story.world.on("sheets.appendRow").fail(Transient("busy"))
    wf = await story.deploy_and_run(taking("""
  const [event] = await ctx.peek("in");
  if (!event) return { reservations: [], data: {} };
  const mail = await ctx.gmail.get({ id: "m1" });
  return { reservations: [{ topic: "in", ids: [event.messageId] }], data: [event.payload.price, mail.subject] };
"""))
    take = await story.last(wf, "take")
    story.world.mails[0]["subject"] = "After"
    await story.keep.parts.ledger.write(
        events.publish, wf, take.id, [Publication("in", "a", '{"price":99}')])
    await story.run(seconds=30)
    assert [e.params["values"] for e in story.world.effects] == [[[10, "Before"]]]
    event = await story.event(wf, "in", "a")
    assert (event.status, event.payload, event.revisions_held) == ("consumed", {"price": 10}, 1)


async def test_a_payload_that_came_while_the_event_was_reserved_counts_once_it_is_released(story: Story) -> None:
    # DESIGN 2 "Republish": frozen while reserved, adopted when a new version resets the run
    story.feed.put("a", {"price": 10})
    wf = await story.deploy_and_run(taking(mutate="throw new Error('not yet');"))
    take = await story.last(wf, "take")
    await story.keep.parts.ledger.write(events.publish, wf, take.id, [Publication("in", "a", '{"price":99}')])
    assert (await story.event(wf, "in", "a")).payload == {"price": 10}
    await story.deploy_and_run(taking())
    assert [e.params["values"][0]["payload"] for e in story.world.effects] == [{"price": 99}]


async def test_events_that_were_not_reserved_stay_for_the_next_run(story: Story) -> None:
    # R105, R111, R120: each event leads to exactly one effect
    for id in "abc":
        story.feed.put(id, id)
    wf = await story.deploy_and_run(taking())
    await story.run(minutes=5)  # the same items are published again
    assert [e.params["values"][0]["messageId"] for e in story.world.effects] == ["a", "b", "c"]
    assert {e.status for e in await story.events(wf)} == {"consumed"}


# -- when a person is quicker ------------------------------------------------------------------------

#: Take everything that waits; between looking and choosing, a read during which anything may happen.
SLOWLY = """
  const seen = await ctx.peek("in");
  await ctx.gmail.get({ id: "m1" });
  return {
    reservations: seen.length ? [{ topic: "in", ids: seen.map(e => e.messageId) }] : [],
    data: seen.map(e => e.messageId).join(), ui: { title: "All" },
  };
"""


async def overtaken(story: Story, act: Callable[[str], Awaitable[object]], prepare: str = SLOWLY) -> str:
    """Three events wait, and during the read of `prepare` somebody acts on the first, once; gives the workflow."""
    story.world.deliver(subject="Slow", id="m1")
    wf = await story.deploy(taking(prepare))
    acted = False

    async def meanwhile(params: object, call: object) -> None:
        nonlocal acted
        if not acted:
            acted = True
            await act(wf)

    story.world.on("gmail.get").before(meanwhile)
    for id in "abc":
        story.feed.put(id)
    await story.run()
    assert acted
    return wf


async def skip_event(story: Story, wf: str, id: str = "a") -> None:
    await story.keep.skip_event((await story.event(wf, "in", id)).id)


async def skip_input(story: Story, wf: str, id: str = "a") -> None:
    await story.keep.skip_input((await story.inputs(wf))[id].id)


@pytest.mark.parametrize("act", [skip_event, skip_input])
async def test_a_skip_during_prepare_makes_prepare_run_again(
    story: Story, act: Callable[[Story, str], Awaitable[None]],
) -> None:
    """DESIGN 6: it is no fault of the script; nothing fails, nothing is asked, and the rest is taken."""
    wf = await overtaken(story, lambda wf: act(story, wf))
    [run] = [r for r in await story.runs(wf, "take") if r.prepare_result and "b" in r.prepare_result]
    assert (run.status, run.retry_of, run.failures) == ("committed", None, 0)
    assert {r.status for r in await story.runs(wf)} == {"committed"}
    assert [e.params["values"] for e in story.world.effects] == [["b,c"]]
    statuses = {e.message_id: e.status for e in await story.events(wf)}
    assert statuses == {"a": "skipped", "b": "consumed", "c": "consumed"}
    assert await story.keep.needs_you() == []
    [warning] = story.warnings(run)
    assert "'a'" in warning
    assert "A person skipped it after this run had begun. So prepare is run again." in warning
    reads = [t.name for t in views(story.keep).trace(run.id) if t.kind == "call"]
    assert reads[:-1] == ["peek", "gmail.get"] * 2, "what was looked at before stays on record"


async def test_every_event_may_be_skipped_during_prepare_one_after_the_other(story: Story) -> None:
    story.world.deliver(subject="Slow", id="m1")
    wf = await story.deploy(taking(SLOWLY))
    ids = [f"e{number:02}" for number in range(30)]
    left = list(ids)

    async def meanwhile(params: object, call: object) -> None:
        if left:
            await skip_event(story, wf, left.pop(0))

    story.world.on("gmail.get").before(meanwhile)
    for id in ids:
        story.feed.put(id)
    await story.run()
    assert {e.status for e in await story.events(wf)} == {"skipped"}
    assert {r.status for r in await story.runs(wf)} == {"committed"}
    assert story.world.effects == []


async def test_a_skip_that_is_taken_back_during_prepare_changes_nothing(story: Story) -> None:
    async def there_and_back(wf: str) -> None:
        await skip_event(story, wf)
        await story.keep.reprocess((await story.event(wf, "in", "a")).id)

    wf = await overtaken(story, there_and_back)
    assert [e.params["values"] for e in story.world.effects] == [["a,b,c"]]
    assert {r.status for r in await story.runs(wf)} == {"committed"}


async def test_a_script_that_reserves_what_was_skipped_whatever_it_sees_fails(story: Story) -> None:
    """Once it may not have known; the second time it does not look."""
    stubborn = """
      await ctx.gmail.get({ id: "m1" });
      return { reservations: [{ topic: "in", ids: ["a"] }], data: "a" };
    """
    wf = await overtaken(story, lambda wf: skip_event(story, wf), stubborn)
    run = await story.last(wf, "take")
    assert (run.status, run.phase) == ("failed:logic", "preparing")
    assert run.error is not None
    assert "'a'" in run.error.message
    assert "prepare was run again, and reserved it once more" in run.error.message
    assert story.world.effects == []


# -- when prepare fails ------------------------------------------------------------------------------


async def test_a_failed_prepare_reserves_nothing_and_its_relaunch_reads_afresh(story: Story) -> None:
    # R114, R115
    story.world.deliver(subject="Old", id="m1")
    story.feed.put("a", 1)
    story.world.on("gmail.get").fail(Transient("busy"))
    wf = await story.deploy_and_run(taking("""
  const [event] = await ctx.peek("in");
  if (!event) return { reservations: [], data: {} };
  const mail = await ctx.gmail.get({ id: "m1" });
  return { reservations: [{ topic: "in", ids: [event.messageId] }], data: mail.subject };
"""))
    first = await story.last(wf, "take")
    assert (first.status, first.phase, first.prepare_result) == ("paused:transient", "preparing", None)
    assert (await story.event(wf, "in", "a")).reserved_by is None
    story.world.mails[0]["subject"] = "New"
    await story.run(seconds=30)
    assert [e.params["values"] for e in story.world.effects] == [["New"]]


async def test_everything_that_a_failed_prepare_did_is_kept_with_it(story: Story) -> None:
    # R116: calls with arguments and answers, logs, in order, also of what failed
    story.world.deliver(subject="One", id="m1")
    story.feed.put("a", 1)
    wf = await story.deploy_and_run(taking("""
  console.log("looking", { at: 1 });
  await ctx.peek("in", { limit: 2 });
  await ctx.gmail.get({ id: "m1" });
  console.warn("about to fail");
  throw new Error("because");
"""))
    trace = views(story.keep).trace((await story.last(wf)).id)
    assert [(t.step, t.kind, t.name) for t in trace] == [
        ("prepare", "log", "info"), ("prepare", "call", "peek"), ("prepare", "call", "gmail.get"),
        ("prepare", "log", "warn"),
    ]
    assert "looking" in (trace[0].answer or "")
    assert json.loads(trace[1].args or "") == ["in", {"limit": 2}]
    assert json.loads(trace[2].answer or "")["subject"] == "One"
    assert [t.position for t in trace] == [1, 2, 3, 4]


async def test_a_read_that_failed_is_kept_with_its_error(story: Story) -> None:
    # R116
    story.feed.put("a", 1)
    story.world.on("gmail.get").fail(Transient("the line is busy"))
    wf = await story.deploy_and_run(taking('await ctx.gmail.get({ id: "m1" });' + NOTHING))
    [call] = [t for t in views(story.keep).trace((await story.last(wf)).id) if t.kind == "call"]
    assert (call.name, call.error, call.answer) == ("gmail.get", "the line is busy", None)


# -- nothing to do -----------------------------------------------------------------------------------


async def test_empty_reservations_pass_mutate_over_and_run_next(story: Story) -> None:
    # R117, R133, R148
    story.feed.put("a", 1)
    wf = await story.deploy_and_run(taking(
        NOTHING, mutate="ctx.log('mutate ran');" + APPEND, next="ctx.log(JSON.stringify(mutationResult));"))
    run = await story.last(wf, "take")
    assert story.logs(run) == ['{"status":"none"}']
    assert (await story.event(wf, "in", "a")).status == "pending"
    assert story.world.asked == []


async def test_a_consumer_that_reserved_nothing_is_not_asked_again_at_once(story: Story) -> None:
    # R118: no busy loop, however often the host is told to run
    story.feed.put("a", 1)
    wf = await story.deploy(taking(NOTHING))
    for _ in range(5):
        await story.run()
    assert len(await story.runs(wf, "take")) == 1
    story.feed.put("b", 2)
    await story.run(minutes=5)
    assert len(await story.runs(wf, "take")) == 2


async def test_a_wake_up_time_counts_also_when_something_was_reserved(tmp_path: Path) -> None:
    # R119: and without any event waiting
    async with Story(tmp_path, policy=Policy(recheck_s=86_400 * 7)) as story:
        story.feed.put("a", 1)
        wf = await story.deploy_and_run(workflow(
            producers={"poll": producer(POLL, interval="7d")},
            consumers={"take": consumer(
                take_all().replace("ui:", 'wakeAt: state ? undefined : "2026-01-05T12:00:00Z", ui:'),
                next="return { ran: true };")}))
        assert [r.trigger for r in await story.runs(wf, "take")] == ["event"]
        assert (await story.event(wf, "in", "a")).status == "consumed"
        await story.run(hours=2, minutes=59)
        assert len(await story.runs(wf, "take")) == 1
        await story.run(minutes=2)
        assert [r.trigger for r in await story.runs(wf, "take")] == ["event", "wake"]
        await story.run(days=2)  # not kept across runs
        assert len(await story.runs(wf, "take")) == 2
