"""The input ledger: what came in, once, in a person's words, whatever the script does with it later."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from keepai.ledger.transitions import events
from keepai.ledger.transitions.events import Publication, Registration
from keepai.model.clock import parse_iso
from keepai.model.errors import Refused
from keepai.testing import World
from keepai.testing.world import WorldMail
from tests.harness import NOTHING, POLL, START, Feed, Story, consumer, js, producer, take_first, workflow


def registering(entry: str, then: str = "") -> str:
    """A producer that registers `entry` in a way that `check` cannot see through."""
    return producer(f"""
      const entry = {entry};
      let inputId;
      try {{ inputId = ctx.registerInput({{ ...entry }}); }} catch (e) {{ inputId = "caught"; }}
      console.log(typeof inputId, inputId);
      {then}
      return {{ inputId }};
    """)


async def test_a_registered_input_is_kept_whole_and_its_id_comes_back_at_once(story: Story) -> None:
    """R038, R039: registerInput is synchronous; the id is the host's."""
    wf = await story.deploy_and_run(workflow(producers={
        "poll": registering('{ source: "feed", type: "item", id: "i-1", title: "Order 1" }'),
    }))
    run, [entry] = await story.last(wf), await story.keep.inputs(wf)
    assert story.logs(run) == [f"string {entry.id}"]
    assert entry.id.startswith("inp_")
    assert (entry.source, entry.type, entry.external_id, entry.title) == ("feed", "item", "i-1", "Order 1")
    assert (entry.created_by, entry.created_at) == (run.id, parse_iso(START))
    assert entry.status == "done", "nothing waits because of it"


async def test_the_same_thing_registered_again_is_the_same_input_with_its_first_title(story: Story) -> None:
    """R040, R041: within a run, in a later run, after a crash and after a restart."""
    poll = """
      const register = title => ctx.registerInput({ source: "feed", type: "item", id: "i", title });
      const nth = (state?.nth ?? 0) + 1;
      console.log([register(`A${nth}`), register(`B${nth}`)].join());
      return { nth };
    """
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(poll)}))
    await story.crash("before:commit_producer", minutes=5)
    await story.run()
    await story.reopen()
    await story.run(minutes=5)
    [entry] = await story.keep.inputs(wf)
    assert entry.title == "A1"
    assert entry.created_by == (await story.runs(wf))[0].id
    seen = {log for run in await story.runs(wf) for log in story.logs(run)}
    assert seen == {f"{entry.id},{entry.id}"}
    assert await story.keep.state(wf, "poll") == {"nth": 3}


async def test_inputs_differ_by_workflow_source_type_and_id(story: Story) -> None:
    """R042, R043: no part of the key stands for another."""
    entries = [
        ("feed", "item", "a"), ("feed", "note", "a"), ("feed", "item", "b"), ("gmail", "email", "a"),
        ("gmail", "thread", "a"), ("system", "schedule", "a"), ("system", "random", "a"), ("feed", "item", "A"),
    ]
    body = f"""
      for (const [source, type, id] of {js(entries)}) ctx.registerInput({{ source, type, id, title: "T" }});
    """
    one = await story.deploy(workflow("one", producers={"poll": producer(body)}))
    two = await story.deploy_and_run(workflow("two", producers={"poll": producer(body)}))
    of_one, of_two = await story.keep.inputs(one), await story.keep.inputs(two)
    assert [(i.source, i.type, i.external_id) for i in of_one] == entries  # R047 among them
    assert [(i.source, i.type, i.external_id) for i in of_two] == entries
    assert len({i.id for i in of_one + of_two}) == 2 * len(entries)


REFUSED = {
    "source": ('{ source: "fax", type: "item", id: "i", title: "T" }', "fax"),
    "nobody's": ('{ type: "item", id: "i", title: "T" }', "source"),
    "the host's own": ('{ source: "workflow", type: "in", id: "i", title: "T" }', "workflow"),
    "a prototype's": ('{ source: "constructor", type: "name", id: "i", title: "T" }', "constructor"),
    "type": ('{ source: "feed", type: "fax", id: "i", title: "T" }', "fax"),
    "another's type": ('{ source: "feed", type: "email", id: "i", title: "T" }', "email"),
    "no type": ('{ source: "webhook", type: "item", id: "i", title: "T" }', "webhook"),
    "system type": ('{ source: "system", type: "item", id: "i", title: "T" }', "system"),
    "no id": ('{ source: "feed", type: "item", title: "T" }', "id"),
    "empty id": ('{ source: "feed", type: "item", id: "", title: "T" }', "id"),
    "NUL id": ('{ source: "feed", type: "item", id: "a\\0", title: "T" }', "id"),
    "no title": ('{ source: "feed", type: "item", id: "i" }', "title"),
    "blank title": ('{ source: "feed", type: "item", id: "i", title: " " }', "title"),
    "no word": ('{ source: "feed", type: "item", id: "i", title: { a: 1 } }', "title"),
}


async def test_an_input_without_a_known_source_and_type_an_id_and_a_title_is_refused(story: Story) -> None:
    """R044, R045, R049: whatever was registered before stays out too; the script cannot catch it."""
    fine = 'ctx.registerInput({ source: "feed", type: "item", id: "fine", title: "Fine" });'
    ids = {
        name: await story.deploy(workflow(name, producers={
            "poll": registering(f"({{}}, (() => {{ {fine} return {entry}; }})())"),
        })) for name, (entry, _) in REFUSED.items()
    }
    await story.run()
    for name, (_, word) in REFUSED.items():
        run = await story.last(ids[name])
        assert (name, run.status) == (name, "failed:logic")
        assert run.error is not None
        assert word in run.error.message, name
        assert story.logs(run) == [], name
        assert await story.keep.inputs(ids[name]) == [], name


async def test_a_connectors_own_name_and_types_are_its_source(tmp_path: Path) -> None:
    """R046: a connector that the host was given, under the name that it was given."""
    world = World()
    async with Story(tmp_path, connectors=[WorldMail(world, name="work")]) as story:
        wf = await story.deploy_and_run(workflow(producers={
            "poll": registering('{ source: "work", type: "thread", id: "i", title: "T" }'),
        }))
        assert [(i.source, i.type) for i in await story.keep.inputs(wf)] == [("work", "thread")]
        assert Feed.input_types == ("item", "note")


@pytest.mark.parametrize("step", ["prepare", "mutate", "next"])
async def test_only_producers_register_inputs(story: Story, step: str) -> None:
    """R050: elsewhere it is a phase violation that no catch can hold, with its line."""
    call = """
      const how = ["register", "Input"].join("");
      try { ctx[how]({ source: "feed", type: "item", id: "x", title: "X" }); } catch (e) {}
    """
    bodies = {"prepare": take_first(), "mutate": "", "next": ""}
    bodies[step] = call + bodies[step]
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(bodies["prepare"], mutate=bodies["mutate"], next=bodies["next"]),
    }), "a")
    run = await story.last(wf, "take")
    assert run.status == "failed:logic"
    assert run.error is not None
    assert (run.error.code, run.error.step) == ("phase_violation", step)
    assert run.error.line is not None
    assert list(await story.inputs(wf)) == ["a"]


async def test_a_producer_that_fails_late_leaves_no_input(story: Story) -> None:
    """R052."""
    entry = '{ source: "feed", type: "item", id: "i", title: "T" }'
    wf = await story.deploy_and_run(workflow(producers={"poll": registering(entry, 'throw new Error("late");')}))
    assert (await story.last(wf)).status == "failed:logic"
    assert await story.keep.inputs(wf) == []


async def test_a_published_title_without_input_id_registers_the_input_of_the_older_dialect(story: Story) -> None:
    """DESIGN 2: source workflow, type = topic, id = messageId; check warns and shows the newer form."""
    body = """
      for (const item of await ctx.feed.list({}))
        await ctx.publish("in", { messageId: item.id, title: item.title, payload: item.payload });
    """
    story.feed.put("a", 1, title="First words")
    done = await story.keep.deploy(workflow(producers={"poll": producer(body)}), grants="all")
    wf = done.workflow_id
    assert "input-by-title" in {f.code for f in done.findings if f.severity == "warning"}
    assert any("registerInput" in f.fix for f in done.findings)
    await story.run()
    story.feed.put("a", 2, title="Other words")
    await story.run(minutes=5)
    [entry], [event] = await story.keep.inputs(wf), await story.events(wf)
    assert (entry.source, entry.type, entry.external_id) == ("workflow", "in", "a")
    assert entry.title == "First words"
    assert event.caused_by == (entry.id,)
    assert event.payload == 2


async def test_inputs_are_found_by_status_and_by_the_words_of_their_title(story: Story) -> None:
    """DESIGN 14: oldest first; the search takes its text literally, in any case."""
    titles = {
        "a": "Order 50% off", "b": "Order 50 pieces", "c": "Ärger mit Ölheizung", "d": "under_score",
        "e": "underXscore",
    }
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(take_first().replace('await ctx.peek("in")', 'await ctx.getByIds("in", ["a"])')),
    }))
    for id, title in titles.items():
        story.feed.put(id, title=title)
    await story.run()
    async def found(**how: str) -> list[str]:
        return [i.external_id for i in await story.keep.inputs(wf, **how)]
    assert await found() == ["a", "b", "c", "d", "e"]
    assert await found(status="done") == ["a"]
    assert await found(status="pending") == ["b", "c", "d", "e"]
    assert await found(search="order") == ["a", "b"]
    assert await found(search="ORDER", status="pending") == ["b"]
    assert await found(search="50%") == ["a"]
    assert await found(search="r_s") == ["d"]
    assert await found(search="Ärger") == ["c"]
    assert await found(search="ÖLHEIZUNG") == ["c"]
    assert await found(search="nothing") == []


async def test_a_question_to_a_person_names_the_inputs_behind_it(story: Story) -> None:
    """R049, R316, R063: by title; the input itself says that it needs somebody."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(mutate="await ctx.webhook.fire({});"),
    }))
    story.feed.put("a", title="Invoice 7 from Ann")
    story.feed.put("b", title="Invoice 8 from Bob")
    story.world.on("webhook.fire").lose_answer()
    await story.run()
    [question] = await story.keep.needs_you(wf)
    told = str(question.to_json())
    assert "Invoice 7 from Ann" in told
    assert "Invoice 8 from Bob" not in told
    assert [(i.needs_you, i.status) for i in await story.keep.inputs(wf)] == [(True, "pending"), (False, "pending")]


async def test_skipping_an_input_skips_what_waits_because_of_it_alone(story: Story) -> None:
    """DESIGN 6: an event with another cause that is not skipped goes on."""
    poll = """
      const [one, two] = ["1", "2"].map(id => ctx.registerInput({ source: "feed", type: "item", id, title: id }));
      await ctx.publish("in", { messageId: "only", inputId: one, payload: 1 });
      await ctx.publish("in", { messageId: "both", inputId: one, payload: 1 });
      await ctx.publish("in", { messageId: "both", inputId: two, payload: 1 });
    """
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(poll)}, consumers={"take": consumer(NOTHING)}))
    inputs = await story.inputs(wf)
    await story.keep.skip_input(inputs["1"].id)
    assert [(e.message_id, e.status) for e in await story.events(wf)] == [("only", "skipped"), ("both", "pending")]
    with pytest.raises(Exception, match="skipped"):
        await story.keep.skip_input(inputs["1"].id)
    await story.keep.skip_input(inputs["2"].id)
    assert await story.ids(wf, status="skipped") == ["only", "both"]
    assert {i.status for i in await story.keep.inputs(wf)} == {"skipped"}


async def test_an_input_is_not_skipped_while_a_run_has_its_event_in_hand(story: Story) -> None:
    """DESIGN 6: refused, naming the run; nothing is kept of it."""
    wf = await story.deploy(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(mutate="await ctx.webhook.fire({});")},
    ))
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("webhook.fire").lose_answer()
    await story.run()
    run, inputs = await story.last(wf, "take"), await story.inputs(wf)
    assert run.phase == "mutating"
    before = await story.keep.version()
    with pytest.raises(Refused, match=run.id):
        await story.keep.skip_input(inputs["a"].id)
    assert await story.keep.version() == before
    assert (await story.keep.input(inputs["a"].id)).status == "pending"
    assert await story.keep.skip_input(inputs["b"].id) == [(await story.event(wf, "in", "b")).id]


async def test_an_input_that_is_done_is_not_skipped(story: Story) -> None:
    """DESIGN 6: what came of it stays what came of it."""
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(mutate="await ctx.webhook.fire({});")},
    ), "a")
    [entry] = await story.keep.inputs(wf)
    before = await story.keep.version()
    with pytest.raises(Refused, match=r"it is done already"):
        await story.keep.skip_input(entry.id)
    assert await story.keep.version() == before
    assert [i.status for i in await story.keep.inputs(wf)] == ["done"]


async def test_a_late_input_can_be_skipped(story: Story) -> None:
    shared = POLL.replace("messageId: item.id", 'messageId: "shared"')
    wf = await story.deploy(workflow(producers={"poll": producer(shared)}, consumers={"take": consumer()}))
    for id in "ab":
        story.feed.items = [{"id": id, "payload": id}]
        await story.run(minutes=5)
    inputs = await story.inputs(wf)
    assert {id: i.status for id, i in inputs.items()} == {"a": "done", "b": "late"}
    assert await story.keep.skip_input(inputs["b"].id) == []
    assert (await story.inputs(wf))["b"].status == "skipped"


async def test_what_comes_later_of_skipped_inputs_is_skipped_from_its_beginning(story: Story) -> None:
    """DESIGN 6: if all its causes are skipped; it is never work, it says why, and a person may still want it."""
    poll = """
      const [one, two] = ["1", "2"].map(id => ctx.registerInput({ source: "feed", type: "item", id, title: id }));
      const nth = (state ?? 0) + 1;
      await ctx.publish("in", { messageId: `only ${nth}`, inputId: one, payload: nth });
      await ctx.publish("in", { messageId: `both ${nth}`, inputId: one, payload: nth });
      await ctx.publish("in", { messageId: `both ${nth}`, inputId: two, payload: nth });
      return nth;
    """
    fire = "await ctx.webhook.fire({ id: prepared.data.messageId });"
    def version(prepare: str) -> str:
        take = consumer(prepare, mutate=fire, publishes=["out"], next=(
            'await ctx.publish("out", { messageId: prepared.data.messageId, payload: 1 });'))
        return workflow(producers={"poll": producer(poll)}, consumers={"take": take, "end": consumer(
            subscribe=["out"])})
    wf = await story.deploy_and_run(version(NOTHING))
    await story.keep.skip_input((await story.inputs(wf))["1"].id)
    await story.deploy(version(take_first()))
    await story.run(minutes=5)
    assert sorted(e.params["id"] for e in story.world.effects) == ["both 1", "both 2"]
    born = await story.event(wf, "in", "only 2")
    assert (born.status, born.payload) == ("skipped", 2)
    why = await story.keep.explain(born.id)
    assert why.because == "It was skipped when it came: a person had skipped every input behind it."
    assert why.story[0].why == "every input behind it was skipped before it came"
    assert (await story.inputs(wf))["1"].status == "skipped"
    await story.keep.reprocess(born.id)  # the newest word counts, for all that follows from it
    await story.run()
    assert story.world.effects[-1].params["id"] == "only 2"
    assert (await story.event(wf, "out", "only 2")).status == "consumed"
    assert (await story.inputs(wf))["1"].status == "done"


async def test_a_skip_while_the_producer_runs_holds_for_what_it_publishes(story: Story) -> None:
    poll = """
      const inputId = ctx.registerInput({ source: "feed", type: "item", id: "1", title: "One" });
      if (state) await ctx.gmail.search({ query: "" });
      await ctx.publish("in", { messageId: `m${state ?? 0}`, inputId, payload: 1 });
      return (state ?? 0) + 1;
    """
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(poll)}, consumers={"take": consumer(NOTHING)}))
    [entry] = await story.keep.inputs(wf)

    async def meanwhile(params: object, call: object) -> None:
        await story.keep.skip_input(entry.id)

    story.world.on("gmail.search").before(meanwhile)
    await story.run(minutes=5)
    assert [(e.message_id, e.status) for e in await story.events(wf)] == [("m0", "skipped"), ("m1", "skipped")]


async def test_the_status_of_twenty_thousand_inputs_is_there_at_once(story: Story) -> None:
    """R063 over months of work: neither the list, nor one input, nor the workflow may get slow."""
    take = """
      const events = await ctx.peek("in", { limit: 500 });
      return { reservations: state ? [] : [{ topic: "in", ids: events.map(e => e.messageId) }], data: {} };
    """
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(take, next="return 1;")},
    ))
    run, write = await story.last(wf, "poll"), story.keep.parts.ledger.write
    numbers = range(20_000)
    known = [story.keep.parts.ids.new("inp") for _ in numbers]
    await write(events.register, wf, run.id, [
        Registration(known[n], "feed", "item", str(n), f"Item {n}") for n in numbers
    ])
    await write(events.publish, wf, run.id, [Publication("in", str(n), "1", (known[n],)) for n in numbers])
    await story.run()
    started = time.process_time()  # what it costs, however busy the machine is
    everything = await story.keep.inputs(wf)
    one = await story.keep.input(known[-1])
    whole = await story.workflow(wf)
    took = time.process_time() - started
    assert Counter(i.status for i in everything) == {"pending": 19_500, "done": 500}
    assert (one.status, whole.pending) == ("pending", 19_500)
    assert took < 1.0, took
