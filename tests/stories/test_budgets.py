"""What a script makes the ledger keep has limits: of one run, judged before anything is built, and of its workflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepai import Policy, Transient
from keepai.engine.trace import Trace
from keepai.ledger.transitions import kept_bytes
from keepai.model.ids import number_of
from keepai.model.operations import Step
from keepai.model.records import Kept
from keepai.testing import ManualClock
from tests.harness import Story, consumer, js, producer, take_all, take_first, workflow
from tests.routines import routine

TOPICS = [f"t{n}" for n in range(100)]

FLOOD = f"""
  const inputId = ctx.registerInput({{ source: "system", type: "random", id: "a", title: "x" }});
  const payload = "x".repeat(1 << 20).slice(2);
  for (let n = 0; n < 5; n++) await ctx.publish({js(TOPICS)}, {{ messageId: "m" + n, inputId, payload }});
"""


def publishing(body: str, topics: list[str] = TOPICS) -> str:
    return workflow(topics=topics, producers={"poll": producer(body, publishes=topics)})


def on_disk(story: Story) -> int:
    return sum(each.stat().st_size for each in story.path.parent.iterdir() if each.name.startswith(story.path.name))


@pytest.mark.sqlite("it looks how large the file is")
async def test_what_is_published_to_a_hundred_topics_counts_a_hundred_times(story: Story) -> None:
    wf = await story.deploy(publishing(FLOOD), grants=None)
    before = on_disk(story)
    await story.run()
    run = await story.last(wf)
    assert run.status == "failed:logic"
    assert run.error is not None
    assert "33,554,432 bytes" in run.error.message
    assert "run_bytes_max" in run.error.message
    assert run.error.line is not None
    assert await story.events(wf) == []
    assert on_disk(story) - before < 100_000


async def test_a_payload_that_fits_once_is_refused_before_its_second_topic(tmp_path: Path) -> None:
    body = """
      const inputId = ctx.registerInput({ source: "system", type: "random", id: "a", title: "x" });
      await ctx.publish(["t0", "t1"], { messageId: "m", inputId, payload: "x".repeat(600) });
    """
    async with Story(tmp_path, policy=Policy(run_bytes_max=1000)) as story:
        wf = await story.deploy_and_run(publishing(body))
        assert (await story.last(wf)).status == "failed:logic"
        await story.deploy(publishing(body.replace('["t0", "t1"]', '["t0"]')), workflow_id=wf)
        await story.run(minutes=5)
        assert (await story.last(wf)).status == "committed"
        assert await story.ids(wf) == ["m"]


FLOODS = {
    "titles of inputs": publishing("""
      for (let n = 0; n < 9; n++) ctx.registerInput({
        source: "system", type: "random", id: "i" + n, title: "\\u00e4".repeat(900) });
    """),
    "ids of inputs": publishing("""
      for (let n = 0; n < 30; n++) ctx.registerInput({
        source: "system", type: "random", id: n + "x".repeat(500), title: "x" });
    """),
    "ids of events": publishing("""
      const inputId = ctx.registerInput({ source: "system", type: "random", id: "a", title: "x" });
      for (let n = 0; n < 30; n++) await ctx.publish("t0", { messageId: n + "x".repeat(500), inputId, payload: 1 });
    """),
    "titles in the old dialect": publishing("""
      for (let n = 0; n < 20; n++) await ctx.publish("t0", { messageId: "m" + n, title: "x".repeat(900), payload: 1 });
    """),
    "titles of items": routine("""
      for (let n = 0; n < 9; n++) await ctx.withItem("i" + n, "x".repeat(900), async () => {});
    """),
}


@pytest.mark.parametrize("source", FLOODS.values(), ids=FLOODS.keys())
async def test_whatever_a_run_brings_in_counts(tmp_path: Path, source: str) -> None:
    async with Story(tmp_path, policy=Policy(run_bytes_max=10_000)) as story:
        wf = await story.deploy_and_run(source)
        run = await story.last(wf)
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "10,000 bytes" in run.error.message


async def test_an_input_that_is_known_costs_nothing(tmp_path: Path) -> None:
    body = 'ctx.registerInput({ source: "system", type: "random", id: "a" + state.n, title: "x".repeat(900) });'
    again = "state = state ?? { n: 0 };" + body * 20 + "return state;"
    async with Story(tmp_path, policy=Policy(run_bytes_max=1_000)) as story:
        wf = await story.deploy(publishing(again))
        for _ in range(3):
            await story.run(minutes=5)
        assert {run.status for run in await story.runs(wf)} == {"committed"}


async def test_what_a_run_reserves_is_bounded_before_it_is_copied(tmp_path: Path) -> None:
    source = workflow(producers={"poll": producer()}, consumers={"take": consumer(take_all())})
    async with Story(tmp_path, policy=Policy(run_bytes_max=10_000)) as story:
        wf = await story.deploy(workflow(producers={"poll": producer()}))
        for names in (("e0", "e1"), ("e2", "e3")):
            story.feed.items = [{"id": name, "payload": "x" * 3_000} for name in names]
            await story.run(minutes=5)
        await story.deploy_and_run(source, workflow_id=wf)
        run = await story.last(wf, "take")
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "first 4" in run.error.message
        assert {event.status for event in await story.events(wf)} == {"pending"}
        assert {event.reserved_by for event in await story.events(wf)} == {None}


async def test_a_script_that_calls_and_logs_without_end_keeps_little_and_says_so(tmp_path: Path) -> None:
    body = "for (let n = 0; n < 500; n++) { await ctx.feed.list({}); console.log('x'.repeat(100)); }"
    async with Story(tmp_path, policy=Policy(trace_bytes_per_run_max=20_000)) as story:
        story.feed.put("a", "x" * 2_000)
        wf = await story.deploy_and_run(publishing(body))
        run = await story.last(wf)
        assert run.status == "committed"
        kept = [row async for row in lines(story, run.id)]
        assert sum(len(line["answer"] or "") for line in kept) < 60_000
        assert "further calls and log lines" in kept[-1]["answer"]
        left_out = int(kept[-1]["answer"].split()[0].replace(",", ""))
        assert left_out + len(kept) - 1 == 1_000, "each is kept or counted"


async def lines(story: Story, run_id: str) -> Any:
    reader = story.reader()
    [run] = reader.all("run_by_id", run_id=run_id)
    for row in trace_rows(story, run["id"]):
        yield row


def trace_rows(story: Story, run_id: str) -> list[dict[str, Any]]:
    with story.store.raw() as tables:
        rows = list(tables.execute(
            "select kind, answer from trace where run_id = ? order by position", (number_of(run_id),)))
    return [{"kind": kind, "answer": answer} for kind, answer in rows]


def test_a_trace_cuts_what_calls_said_first_and_counts_them_later() -> None:
    trace = Trace("run_1", ManualClock(), 4096, 0, None, 1_000)
    for _ in range(20):
        trace.call(Step.PRODUCER, "feed.list", "{}", "x" * 400, None, 1)
    lines = trace.take()
    assert [len(line.answer or "") for line in lines[:2]] == [400, 400]
    assert all("400 characters" in (line.answer or "") for line in lines[2:-1])
    assert "further calls and log lines of this run are not kept" in (lines[-1].answer or "")
    trace.call(Step.PRODUCER, "feed.list", "{}", "x" * 400, None, 1)
    assert [line.kind for line in trace.take()] == ["warning"], "taking it makes no new room"


async def test_a_title_of_a_prepare_result_is_cut(story: Story) -> None:
    prepare = take_first().replace("ui: { title: event.messageId }", 'ui: { title: "x".repeat(100000) }')
    source = workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(prepare, mutate='await ctx.gmail.send({ to: "a", subject: "x" });')},
    )
    wf = await story.deploy_and_run(source, "a")
    [sent] = await story.keep.mutations(wf)
    assert sent.title == "x" * 1_000


# -- the room of a workflow ----------------------------------------------------------------------------------

FILL = """
  const inputId = ctx.registerInput({ source: "system", type: "random", id: "i", title: "Numbers" });
  const n = (state?.n ?? 0) + 1;
  await ctx.publish("in", { messageId: "m" + n, inputId, payload: "x".repeat(50000) });
  return { n };
"""


def filling(**more: str) -> str:
    return workflow(producers={"poll": producer(FILL)}, consumers={"take": consumer(**more)})  # type: ignore[arg-type]


SMALL = Policy(workflow_bytes_max=1_000_000)


async def full(story: Story, wf: str) -> int:
    """Let a workflow fill its room; how many events it has published by then."""
    for _ in range(40):
        await story.run(minutes=5)
        if await story.keep.needs_you(wf):
            return len(await story.events(wf))
    raise AssertionError("it never stopped")


@pytest.mark.sqlite("it looks how large the file is")
async def test_a_workflow_that_has_used_up_its_room_stops_and_asks(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=SMALL) as story:
        wf = await story.deploy(filling())
        published = await full(story, wf)
        assert published < 20
        [asked] = await story.keep.needs_you(wf)
        assert (asked.kind, asked.actions) == ("precondition", ("retry", "skip_run"))
        why = str(asked.facts["why"])
        for part in ("1,000,000", "workflow_bytes_max", "keep db prune", f"keep retry {asked.run_id}", "events use"):
            assert part in why
        assert (await story.last(wf)).status == "paused:approval"
        before = on_disk(story)
        for _ in range(10):
            await story.run(hours=1)
        assert on_disk(story) - before < 10_000, "nothing of it runs"
        assert len(await story.events(wf)) == published


async def test_a_retry_without_room_asks_again_and_with_room_nothing_was_lost(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=SMALL) as story:
        wf = await story.deploy(filling())
        published = await full(story, wf)
        [asked] = await story.keep.needs_you(wf)
        await story.keep.retry(asked.run_id)
        await story.run()
        [again] = await story.keep.needs_you(wf)
        assert (again.kind, again.run_id != asked.run_id) == ("precondition", True)
        story.policy = replace(SMALL, workflow_bytes_max=10_000_000)
        await story.reopen()
        await story.keep.retry(again.run_id)
        await story.run(minutes=5)
        assert await story.keep.needs_you(wf) == []
        ids = [event.message_id for event in await story.events(wf)]
        assert ids == [f"m{n + 1}" for n in range(len(ids))]
        assert len(ids) > published
        assert {event.status for event in await story.events(wf)} == {"consumed"}


async def test_throwing_away_what_has_ended_makes_room(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=SMALL) as story:
        wf = await story.deploy(filling())
        published = await full(story, wf)
        [asked] = await story.keep.needs_you(wf)
        story.clock.advance(days=3)
        await story.keep.prune(days=1)
        assert (await story.workflow(wf)).bytes.total < 200_000
        await story.keep.retry(asked.run_id)
        await story.run()
        assert await story.keep.needs_you(wf) == []
        assert len(await story.events(wf)) > published


async def test_a_run_that_has_begun_may_finish_without_room(story: Story) -> None:
    """Its mutation has happened: what follows from it must not be stuck behind a limit."""
    source = workflow(producers={"poll": producer()}, consumers={"take": consumer(
        mutate='await ctx.gmail.send({ to: "a", subject: "x" });', publishes=["out"],
        next='await ctx.publish("out", { messageId: prepared.data.messageId, payload: "x".repeat(5000) });',
    )})
    story.feed.put("a", "x" * 2_000)
    story.feed.put("b", "x" * 2_000)
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}))
    story.policy = Policy(workflow_bytes_max=(await story.workflow(wf)).bytes.total + 1)
    await story.reopen()
    await story.deploy(source, workflow_id=wf)
    story.world.on("gmail.send").fail(Transient("Come later."))
    await story.run()
    assert (await story.last(wf)).status == "paused:transient"
    kept = (await story.workflow(wf)).bytes
    assert kept.total > kept.most
    await story.run(minutes=1)
    assert await story.ids(wf, "out") == ["a"]
    [asked] = await story.keep.needs_you(wf)
    assert (asked.kind, (await story.last(wf)).handler) == ("precondition", "take")
    assert len(await story.keep.mutations(wf)) == 2, "the second event waits for room"


@pytest.mark.parametrize("kind", ["routine", "consumer"])
async def test_what_a_person_approved_is_sent_without_room(story: Story, kind: str) -> None:
    source = {
        "routine": routine("""
          await ctx.withItem("a", "One", async (ctx) => { if (!ctx.item.isDone) await ctx.gmail.send({ to: "a" }); });
        """),
        "consumer": workflow(producers={"poll": producer()}, consumers={
            "take": consumer(mutate='await ctx.gmail.send({ to: "a" });')}),
    }[kind]
    wf = await story.deploy_and_run(source, "a", grants={"gmail.send": "ask", "feed.list": "allow"})
    [asked] = await story.keep.needs_you(wf)
    assert asked.kind == "approval"
    story.policy = Policy(workflow_bytes_max=1)
    await story.reopen()
    await story.keep.approve(asked.id)
    await story.run()
    assert [sent.status for sent in await story.keep.mutations(wf)] == ["applied"]
    assert (await story.last(wf, asked.facts["handler"])).status == "committed"  # type: ignore[arg-type]


# -- the count -----------------------------------------------------------------------------------------------

_COUNTS = {
    "events": """
      select (select coalesce(sum(octet_length(payload) + octet_length(message_id) + :event), 0) from event)
      + (select coalesce(sum(octet_length(payload) + :row), 0) from event_revision)""",
    "runs": """
      select (select coalesce(sum(:row + coalesce(octet_length(prepare_result), 0) + coalesce(octet_length(outcome), 0)
        ), 0) from run)
      + (select coalesce(sum(:row + coalesce(octet_length(payload), 0) + octet_length(message_id)), 0) from reservation)
      + (select coalesce(sum(:line + coalesce(octet_length(args), 0) + coalesce(octet_length(answer), 0)
        + coalesce(octet_length(error), 0)), 0) from trace)
      + (select coalesce(sum(:row + octet_length(target) + octet_length(identity) + octet_length(payload)
        + octet_length(params) + coalesce(octet_length(title), 0) + octet_length(preview)
        + coalesce(octet_length(result), 0)), 0) from mutation)
      + (select coalesce(sum(:row + octet_length(intent)), 0) from approval)
      + (select coalesce(sum(coalesce(octet_length(state), 0)), 0) from handler_state)""",
    "inputs": """
      select (select coalesce(sum(:row + octet_length(title) + octet_length(external_id)), 0) from input)
      + (select coalesce(sum(:row + octet_length(title) + octet_length(external_id)), 0) from item)""",
}


def in_ledger(story: Story) -> dict[str, int]:
    """What lies in the ledger, weighed anew; the errors of runs, which come and go, are left out."""
    weigh = {"row": kept_bytes.ROW, "event": kept_bytes.EVENT, "line": kept_bytes.LINE}
    with story.store.raw() as tables:
        return {name: int(next(iter(tables.execute(text, {k: v for k, v in weigh.items() if f":{k}" in text})))[0])
                for name, text in _COUNTS.items()}


def counted(kept: Kept) -> dict[str, int]:
    return {"events": kept.events, "runs": kept.runs, "inputs": kept.inputs}


async def same(story: Story, wf: str) -> None:
    assert counted((await story.workflow(wf)).bytes) == in_ledger(story)


async def test_the_count_is_what_lies_in_the_ledger(tmp_path: Path) -> None:
    source = workflow(producers={"poll": producer("return await (async () => {" + POLLED + "})();")}, consumers={
        "take": consumer(take_all(), mutate='await ctx.gmail.send({ to: "a", subject: "ä" });', publishes=["out"],
                         next='await ctx.publish("out", { messageId: "o", payload: prepared.data }); return { n: 1 };'),
    })
    async with Story(tmp_path, policy=Policy(revisions_max=2)) as story:
        wf = await story.deploy(source)
        for n in range(6):
            story.feed.put("a", {"n": n, "text": "ä" * n * 10})
            story.feed.put(f"b{n}", "x" * n)
            await story.run(minutes=5)
            await same(story, wf)
        story.clock.advance(days=3)
        await story.keep.prune(days=1)
        await same(story, wf)
        assert (await story.workflow(wf)).bytes.total > 0


POLLED = """
  for (const item of await ctx.feed.list({})) {
    const inputId = ctx.registerInput({ source: "feed", type: "item", id: item.id, title: `Item ${item.id}` });
    await ctx.publish("in", { messageId: item.id, inputId, payload: item.payload });
  }
  return { looked: "é".repeat(((state?.looked.length ?? 0) + 3) % 7) };
"""


async def test_the_count_is_right_after_retries_questions_and_a_new_version(story: Story) -> None:
    source = workflow(producers={"poll": producer(POLLED)}, consumers={
        "take": consumer(mutate='await ctx.gmail.send({ to: "a", subject: "ä" });')})
    wf = await story.deploy(source, grants={"gmail.send": "ask", "feed.list": "allow"})
    story.feed.put("a", "x" * 300)
    await story.run()
    await same(story, wf)
    [asked] = await story.keep.needs_you(wf)
    await story.keep.approve(asked.id)
    story.world.on("gmail.send").fail(Transient("Come later."))
    await story.run()
    await same(story, wf)
    await story.run(minutes=1)
    [asked] = await story.keep.needs_you(wf)
    await same(story, wf)
    await story.deploy_and_run(source.replace("subject", "body"), workflow_id=wf)
    await same(story, wf)
    for asked in await story.keep.needs_you(wf):
        await story.keep.skip_run(asked.run_id)
    await story.run(minutes=5)
    await same(story, wf)


async def test_the_count_is_right_for_routines(story: Story) -> None:
    body = """
      for (const item of await ctx.feed.list({})) await ctx.withItem(item.id, "Ä " + item.id, async (ctx) => {
        if (!ctx.item.isDone) await ctx.gmail.send({ to: item.id });
      });
      return { seen: 1 };
    """
    wf = await story.deploy(routine(body))
    for n in range(3):
        story.feed.put(f"i{n}")
        await story.run(minutes=5)
        await same(story, wf)


@pytest.mark.parametrize("point", ["after:prepare_and_send", "before:apply", "after:apply", "before:commit_consumer"])
async def test_a_crash_does_not_lose_the_count(story: Story, point: str) -> None:
    source = workflow(producers={"poll": producer()}, consumers={
        "take": consumer(mutate='await ctx.gmail.send({ to: "a", subject: "x" });')})
    wf = await story.deploy(source)
    story.feed.put("a", "x" * 3_000)
    await story.crash(point)
    for _ in range(3):
        await story.run(minutes=5)
    found, lies = counted((await story.workflow(wf)).bytes), in_ledger(story)
    assert found["events"] == lies["events"]
    assert abs(found["runs"] - lies["runs"]) < 3_000, "only a call that was cut off, or an error, may be missing"


# -- looking ---------------------------------------------------------------------------------------------------

async def test_a_page_of_peek_loads_no_more_than_it_may_show(tmp_path: Path) -> None:
    policy = Policy(peek_bytes_max=10_000)
    async with Story(tmp_path, policy=policy) as story:
        source = workflow(producers={"poll": producer()}, consumers={
            "take": consumer("const page = await ctx.peek('in', { limit: 1000 }); console.log(page.length);"
                             "return { reservations: [], data: {} };")})
        for n in range(50):
            story.feed.put(f"e{n:02}", "x" * 3_000)
        wf = await story.deploy(source)
        loaded = list[int]()
        reads = story.reader()
        real = type(reads).iterate

        def counting(self: Any, query: str, **params: object) -> Any:
            for row in real(self, query, **params):
                loaded.append(len(row["payload"]))
                yield row

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(reads), "iterate", counting)
            await story.run()
        assert story.logs(await story.last(wf, "take")) == ["3"]
        assert len(loaded) <= 2 * 4, "three that fit and one that does not, for a guess and for the run"
