"""Causality: every event and every mutation leads back to the inputs behind it, and forward from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai import OutcomeUnknown, Policy, Rejected, Transient
from keepai.ledger.transitions import events
from keepai.ledger.transitions.events import Publication, Registration
from keepai.model.codec import encode
from tests.harness import FIRE, NOTHING, Story, consumer, producer, take_all, take_first, workflow


def passing_on(topic: str) -> str:
    """A `next` that publishes what was taken."""
    return f'await ctx.publish("{topic}", {{ messageId: `${{prepared.data.messageId}}`, payload: mutationResult }});'


async def causes(story: Story, wf: str) -> dict[tuple[str, str], set[str]]:
    """Per event the ids outside of the inputs behind it; each cause is an input and stands once."""
    names = {i.id: i.external_id for i in await story.keep.inputs(wf)}
    found = await story.events(wf)
    assert all(len(set(e.caused_by)) == len(e.caused_by) for e in found)
    return {(e.topic, e.message_id): {names[c] for c in e.caused_by} for e in found}


async def test_every_hop_leads_back_to_the_same_input(story: Story) -> None:
    """R053, R056, R057, R059, R061: I1 → E1 → E2 → E3, each caused by I1 and by no event."""
    wf = await story.deploy_and_run(workflow(
        topics=["in", "two", "three"], producers={"poll": producer()}, consumers={
            "first": consumer(publishes=["two"], next=passing_on("two")),
            "second": consumer(subscribe=["two"], publishes=["three"], next=passing_on("three")),
            "third": consumer(subscribe=["three"]),
        },
    ), "a", "b")
    assert await causes(story, wf) == {
        (topic, id): {id} for topic in ("in", "two", "three") for id in ("a", "b")
    }
    one = await story.keep.input((await story.inputs(wf))["a"].id)
    assert one.events is not None
    assert [(e.topic, e.message_id) for e in one.events] == [("in", "a"), ("two", "a"), ("three", "a")]


async def test_an_event_made_from_several_is_caused_by_all_their_inputs_once(story: Story) -> None:
    """R056, R058: fan-in of different inputs, and of two ways from one input."""
    poll = """
      const [x, y] = ["x", "y"].map(id => ctx.registerInput({ source: "feed", type: "item", id, title: id }));
      await ctx.publish(["in", "side"], { messageId: "x", inputId: x, payload: 1 });
      await ctx.publish("in", { messageId: "y", inputId: y, payload: 1 });
    """
    emit = 'await ctx.publish("out", { messageId: "sum", payload: prepared.data.events.length });'
    wf = await story.deploy_and_run(workflow(
        topics=["in", "side", "out"], producers={"poll": producer(poll, publishes=["in", "side"])},
        consumers={"sum": consumer(take_all("in", "side"), subscribe=["in", "side"], publishes=["out"], next=emit)},
    ))
    found = await causes(story, wf)
    assert found["out", "sum"] == {"x", "y"}
    assert found["in", "x"] == found["side", "x"] == {"x"}
    assert (await story.event(wf, "out", "sum")).payload == 3


async def test_an_event_is_caused_by_what_its_run_reserved_and_not_by_what_it_saw(story: Story) -> None:
    """R056: peeking is no cause; with nothing reserved there is none."""
    look = 'await ctx.peek("in"); return { reservations: [], data: { messageId: "seen" } };'
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()},
        consumers={"look": consumer(look, publishes=["out"], next=passing_on("out"))},
    ), "a")
    assert await causes(story, wf) == {("in", "a"): {"a"}, ("out", "seen"): set()}


BAD_INPUT_IDS = {"missing": "undefined", "null": "null", "made up": '"inp_1"', "number": "7", "empty": '""'}


async def test_a_producer_must_name_an_input_of_its_own_workflow(story: Story) -> None:
    """R054, R055, R074: missing, made up, an event's id, or another workflow's input."""
    body = """
      const entry = {{ messageId: "m", payload: 1, inputId: {} }};
      try {{ await ctx.publish("in", entry); }} catch (e) {{}}
    """
    other = await story.deploy_and_run(workflow("other", producers={"poll": producer()}), "a")
    [event], [foreign] = await story.events(other), await story.keep.inputs(other)
    tries = {**BAD_INPUT_IDS, "foreign": f'"{foreign.id}"', "an event": f'"{event.id}"'}
    ids = {
        name: await story.deploy(workflow(name, producers={"poll": producer(body.format(text))}))
        for name, text in tries.items()
    }
    await story.run()
    for name, wf in ids.items():
        run = await story.last(wf)
        assert (name, run.status) == (name, "failed:logic")
        assert run.error is not None
        assert "inputId" in run.error.message, name
        assert await story.events(wf) == [], name


async def test_an_input_of_an_earlier_run_may_be_named_again(story: Story) -> None:
    """R055: registered in this workflow, not necessarily in this run."""
    poll = """
      const inputId = state ?? ctx.registerInput({ source: "feed", type: "item", id: "i", title: "I" });
      await ctx.publish("in", { messageId: state ? "second" : "first", inputId, payload: 1 });
      return inputId;
    """
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(poll)}))
    await story.run(minutes=5)
    assert await causes(story, wf) == {("in", "first"): {"i"}, ("in", "second"): {"i"}}


async def test_next_cannot_choose_its_causes(story: Story) -> None:
    """R060: neither by inputId nor by the host's own name for it; another input's id is not believed."""
    emit = """
      const more = { inputId: prepared.data.payload, caused_by: [prepared.data.payload], causedBy: [] };
      await ctx.publish("out", { messageId: prepared.data.messageId, payload: 1, ...more });
    """
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(publishes=["out"], next=emit)},
    ), "a")
    story.feed.put("b", (await story.inputs(wf))["a"].id)
    await story.run(minutes=5)
    assert (await causes(story, wf))["out", "b"] == {"b"}


async def test_publishing_again_unites_causes_and_never_drops_one(story: Story) -> None:
    """DESIGN 2, I20: in one run, over runs and with the same payload; an event that has ended keeps its causes."""
    poll = """
      for (const item of await ctx.feed.list({})) {
        const inputId = ctx.registerInput({ source: "feed", type: "item", id: item.id, title: item.id });
        await ctx.publish("in", { messageId: "shared", inputId, payload: 1 });
      }
    """
    source = {"producers": {"poll": producer(poll)}}
    wf = await story.deploy_and_run(workflow(consumers={"take": consumer(NOTHING)}, **source), "a", "b")
    assert await causes(story, wf) == {("in", "shared"): {"a", "b"}}
    story.feed.items = [{"id": "c"}]
    await story.run(minutes=5)
    assert await causes(story, wf) == {("in", "shared"): {"a", "b", "c"}}
    await story.deploy_and_run(workflow(consumers={"take": consumer()}, **source))
    story.feed.items = [{"id": "d"}]
    await story.run(minutes=5)
    assert await causes(story, wf) == {("in", "shared"): {"a", "b", "c"}}
    statuses = {id: i.status for id, i in (await story.inputs(wf)).items()}
    assert statuses == {"a": "done", "b": "done", "c": "done", "d": "late"}


#: Everything in the feed is published as one event.
SHARED = """
  for (const item of await ctx.feed.list({})) {
    const inputId = ctx.registerInput({ source: "feed", type: "item", id: item.id, title: `Mail ${item.id}` });
    await ctx.publish("in", { messageId: "shared", inputId, payload: item.payload });
  }
"""
POST = "await ctx.webhook.fire({ said: prepared.data.payload });"


async def comes(story: Story, id: str, payload: object, **span: float) -> None:
    """One thing comes in, alone."""
    story.feed.items = [{"id": id, "payload": payload}]
    await story.run(**span)


async def behind(story: Story, wf: str) -> list[tuple[object, list[str]]]:
    """Per mutation what was said, and the ids outside of the inputs behind it; the same from the inputs' side."""
    outputs = await story.keep.outputs(wf)
    for entry in await story.keep.inputs(wf):
        led_to = [m.id for m in (await story.keep.input(entry.id)).outputs or ()]
        assert led_to == [o.mutation.id for o in outputs if entry.id in {i.id for i in o.inputs}]
    return [(o.mutation.params["said"], sorted(i.external_id for i in o.inputs)) for o in outputs]


async def standing(story: Story, wf: str) -> dict[str, str]:
    """Per input its status."""
    return {id: entry.status for id, entry in (await story.inputs(wf)).items()}


async def test_what_comes_after_its_event_was_finished_is_late_and_behind_nothing_that_was_done(story: Story) -> None:
    """DESIGN 2: the new input belongs to the held revision, which can be seen; `reprocess` takes it with its cause."""
    wf = await story.deploy(workflow(
        producers={"poll": producer(SHARED)},
        consumers={"post": consumer(mutate=POST, publishes=["out"], next=passing_on("out"))},
    ))
    await comes(story, "m1", "one")
    await comes(story, "m2", "two", minutes=5)
    assert await behind(story, wf) == [("one", ["m1"])]
    assert await causes(story, wf) == {("in", "shared"): {"m1"}, ("out", "shared"): {"m1"}}
    assert await standing(story, wf) == {"m1": "done", "m2": "late"}
    m2 = (await story.inputs(wf))["m2"]
    event = await story.event(wf, "in", "shared")
    assert [i.id for i in await story.keep.inputs(wf, status="late")] == [m2.id]
    why = await story.keep.explain(m2.id)
    assert why.standing == "late"
    assert "it came after its event was finished; revision 2 was not processed" in why.because
    assert "0 outputs" in why.because
    assert [(m.acts, m.subject) for m in why.moved_by if m.kind == "person"] == [(("reprocess",), event.id)]
    whole = await story.keep.input(m2.id)
    for held in (whole.held, why.held, (await story.keep.event(event.id)).held):
        assert [(h.event_id, h.revision, h.payload, h.caused_by) for h in held or ()] == [
            (event.id, 2, "two", (m2.id,))]
    await story.keep.reprocess(event.id)
    assert await standing(story, wf) == {"m1": "done", "m2": "pending"}
    await story.run()
    assert await behind(story, wf) == [("one", ["m1"]), ("two", ["m2"])]
    assert await standing(story, wf) == {"m1": "done", "m2": "done"}
    assert (await story.keep.event(event.id)).held == ()


async def test_of_several_that_came_late_reprocess_takes_the_newest_and_the_others_stay_late(story: Story) -> None:
    wf = await story.deploy(workflow(
        producers={"poll": producer(SHARED)}, consumers={"post": consumer(mutate=POST)},
    ))
    for number, id in enumerate(("m1", "m2", "m3")):
        await comes(story, id, id, minutes=5 * bool(number))
    await comes(story, "m4", "m3", minutes=5)  # the same as the newest: behind that one too
    event = await story.event(wf, "in", "shared")
    assert [h.revision for h in (await story.keep.event(event.id)).held or ()] == [2, 3]
    await story.keep.reprocess(event.id)
    await story.run()
    assert await behind(story, wf) == [("m1", ["m1"]), ("m3", ["m3", "m4"])]
    assert await standing(story, wf) == {"m1": "done", "m2": "late", "m3": "done", "m4": "done"}
    why = await story.keep.explain((await story.inputs(wf))["m2"].id)
    assert "revision 2 was not processed" in why.because
    assert [h.payload for h in why.held] == ["m2"]
    await story.keep.reprocess(event.id)  # nothing newer: as it was
    await story.run()
    assert (await behind(story, wf))[2] == ("m3", ["m3", "m4"])


async def test_an_input_that_repeats_a_finished_payload_is_late_too(story: Story) -> None:
    """It brought nothing new, and nothing was done for it: it is not done, and not lost."""
    wf = await story.deploy(workflow(
        producers={"poll": producer(SHARED)}, consumers={"post": consumer(mutate=POST)},
    ))
    await comes(story, "m1", "same")
    await comes(story, "m2", "same", minutes=5)
    await comes(story, "m2", "same", minutes=5)
    await comes(story, "m1", "same", minutes=5)
    assert await behind(story, wf) == [("same", ["m1"])]
    assert await standing(story, wf) == {"m1": "done", "m2": "late"}
    assert (await story.event(wf, "in", "shared")).revisions_held == 1


async def test_a_later_payload_of_the_same_input_leaves_it_done_and_is_told(story: Story) -> None:
    wf = await story.deploy(workflow(
        producers={"poll": producer(SHARED)}, consumers={"post": consumer(mutate=POST)},
    ))
    await comes(story, "m1", "one")
    await comes(story, "m1", "two", minutes=5)
    assert await standing(story, wf) == {"m1": "done"}
    why = await story.keep.explain((await story.inputs(wf))["m1"].id)
    assert "revision 2 was not processed" in why.because
    await story.keep.reprocess((await story.event(wf, "in", "shared")).id)
    await story.run()
    assert await behind(story, wf) == [("one", ["m1"]), ("two", ["m1"])]


async def test_what_comes_while_the_event_is_reserved_is_a_cause_of_it_and_not_of_what_was_sent(story: Story) -> None:
    """DESIGN 2: while reserved `caused_by` is united; a mutation's causes are those of the moment of reserving."""
    wf = await story.deploy(workflow(
        producers={"poll": producer(SHARED)},
        consumers={"post": consumer(mutate=POST, publishes=["out"], next=passing_on("out"))},
    ))
    story.world.on("webhook.fire").fail(Transient("busy"))
    await comes(story, "m1", "one")
    [run] = await story.runs(wf, "post")
    assert run.status == "paused:transient"
    await publish_as(story, wf, "m2", "two")
    assert await causes(story, wf) == {("in", "shared"): {"m1", "m2"}}
    assert await standing(story, wf) == {"m1": "pending", "m2": "pending"}
    assert await behind(story, wf) == [("one", ["m1"])]
    story.feed.items = []
    await story.run(seconds=30)
    assert await behind(story, wf) == [("one", ["m1"])] * 2
    assert await causes(story, wf) == {("in", "shared"): {"m1", "m2"}, ("out", "shared"): {"m1"}}
    assert await standing(story, wf) == {"m1": "done", "m2": "late"}
    await story.keep.reprocess((await story.event(wf, "in", "shared")).id)
    await story.run()
    assert (await behind(story, wf))[2:] == [("two", ["m2"])]
    assert await standing(story, wf) == {"m1": "done", "m2": "done"}


async def publish_as(story: Story, wf: str, id: str, payload: str) -> None:
    """What a producer's commit would bring while a run of the same workflow is open."""
    write, run = story.keep.parts.ledger.write, await story.last(wf, "poll")
    await write(events.register, wf, run.id, [Registration(f"inp_{id}", "feed", "item", id, f"Mail {id}")])
    await write(events.publish, wf, run.id, [Publication("in", "shared", encode(payload), (f"inp_{id}",))])


async def test_a_run_that_was_given_up_is_not_caused_by_what_came_after_it(story: Story) -> None:
    """Released and reserved again in one attempt: each send has the causes of its own reservation."""
    def version(mutate: str) -> str:
        return workflow(producers={"poll": producer(SHARED)}, consumers={"post": consumer(mutate=mutate)})
    wf = await story.deploy(version(POST))
    story.world.on("webhook.fire").fail(Rejected("no"))
    await comes(story, "m1", "one")
    assert (await story.last(wf, "post")).status == "failed:logic"
    await story.deploy(version(POST + "\n"))  # resets the run: the event waits again
    await story.keep.pause(wf)
    await story.run()
    run = await story.last(wf, "post")
    assert run.status == "failed:logic"
    await publish_as(story, wf, "m2", "one")
    await story.keep.resume(wf)
    story.feed.items = []
    await story.run()
    assert await behind(story, wf) == [("one", ["m1"]), ("one", ["m1", "m2"])]
    assert await standing(story, wf) == {"m1": "done", "m2": "done"}


async def test_revisions_of_one_event_are_bounded_the_newest_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(revisions_max=3)) as story:
        wf = await story.deploy(workflow(
            producers={"poll": producer(SHARED)}, consumers={"post": consumer(mutate=POST)},
        ))
        for number in range(1, 8):
            await comes(story, f"m{number}", number, minutes=5)
        event = await story.keep.event((await story.event(wf, "in", "shared")).id)
        assert [(h.revision, h.payload) for h in event.held or ()] == [(5, 5), (6, 6), (7, 7)]
        assert (event.revisions_held, event.revisions_dropped) == (3, 3)
        assert "3 older payloads of these are no longer kept" in (await story.keep.explain(event.id)).because
        m2 = (await story.inputs(wf))["m2"]
        assert m2.status == "late"
        [held] = (await story.keep.input(m2.id)).held or ()
        assert (held.revision, held.payload, held.pruned) == (2, None, True)
        await story.keep.reprocess(event.id)
        await story.run()
        assert (await behind(story, wf))[1:] == [(7, ["m7"])]


def test_ten_revisions_of_an_event_are_kept() -> None:
    assert Policy().revisions_max == 10


async def test_an_inputs_outputs_are_all_its_mutations_and_no_others(story: Story) -> None:
    """R062: over hops, over retries, and only of runs that reserved its events."""
    wf = await story.deploy(workflow(
        topics=["in", "two"], producers={"poll": producer()}, consumers={
            "first": consumer(publishes=["two"], mutate=FIRE, next=passing_on("two")),
            "second": consumer(subscribe=["two"], mutate=FIRE.replace("of:", "hop: 2, of:")),
        },
    ))
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("webhook.fire").fail(Transient("busy"))
    await story.run()
    await story.run(seconds=30)
    inputs = await story.inputs(wf)
    outputs = {id: (await story.keep.input(entry.id)).outputs for id, entry in inputs.items()}
    told = {id: [(m.params, m.status) for m in found or ()] for id, found in outputs.items()}
    assert told == {
        "a": [({"of": "a"}, "failed"), ({"of": "a"}, "applied"), ({"hop": 2, "of": "a"}, "applied")],
        "b": [({"of": "b"}, "applied"), ({"hop": 2, "of": "b"}, "applied")],
    }
    backwards = [(o.mutation.params["of"], [i.external_id for i in o.inputs]) for o in await story.keep.outputs(wf)]
    assert len(backwards) == 5
    assert all(behind == [id] for id, behind in backwards)


async def test_a_mutation_for_several_events_is_an_output_of_each_input(story: Story) -> None:
    """R062, R058."""
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()},
        consumers={"all": consumer(take_all(), mutate="await ctx.webhook.fire({});")},
    ), "a", "b")
    [output] = await story.keep.outputs(wf)
    assert sorted(i.external_id for i in output.inputs) == ["a", "b"]
    for entry in await story.keep.inputs(wf):
        assert [m.id for m in (await story.keep.input(entry.id)).outputs or ()] == [output.mutation.id]


async def test_an_input_is_pending_until_its_last_descendant_is_done(story: Story) -> None:
    """R063: pending while reserved too; what nobody subscribes to is a result, not work."""
    wf = await story.deploy(workflow(
        topics=["in", "two", "result"], producers={"poll": producer()}, consumers={
            "first": consumer(publishes=["two"], next=passing_on("two")),
            "second": consumer(subscribe=["two"], publishes=["result"], mutate=FIRE, next=passing_on("result")),
        },
    ))
    story.feed.put("a")
    story.world.on("webhook.fire").fail(Transient("busy"))
    await story.run()
    assert [(e.topic, e.status) for e in await story.events(wf)] == [("in", "consumed"), ("two", "pending")]
    assert (await story.event(wf, "two", "a")).reserved_by is not None
    [entry] = await story.keep.inputs(wf)
    assert (entry.status, (await story.keep.input(entry.id)).status) == ("pending", "pending")
    await story.run(seconds=30)
    [entry] = await story.keep.inputs(wf)
    assert (entry.status, (await story.keep.input(entry.id)).status) == ("done", "done")
    assert await story.ids(wf, "result", "pending") == ["a"]


@pytest.mark.parametrize("how", ["resolve", "skip_run"])
async def test_causes_are_inherited_also_after_a_skip(story: Story, how: str) -> None:
    """R064: next is told "skipped", publishes, and its event has the same causes."""
    wf = await story.deploy(workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(publishes=["out"], mutate=FIRE, next=passing_on("out"))},
    ))
    story.feed.put("a")
    story.world.on("webhook.fire").fail(OutcomeUnknown("lost"))
    await story.run()
    [mutation] = await story.keep.mutations(wf)
    assert mutation.status == "indeterminate"
    if how == "resolve":
        await story.keep.resolve(mutation.id, "skip")
    else:
        await story.keep.skip_run((await story.last(wf, "take")).id)
    await story.run()
    assert await causes(story, wf) == {("in", "a"): {"a"}, ("out", "a"): {"a"}}
    assert (await story.event(wf, "out", "a")).payload == {"status": "skipped"}
    assert (await story.event(wf, "in", "a")).status == "skipped"


async def test_causes_are_inherited_also_when_a_mended_next_runs_again(story: Story) -> None:
    """R064, R157: the retry of next in a new version, after a crash on top."""
    def version(emit: str) -> str:
        return workflow(producers={"poll": producer()}, consumers={
            "take": consumer(take_first(), publishes=["out"], mutate=FIRE, next=emit),
        })
    wf = await story.deploy_and_run(version('throw new Error("no");'), "a")
    await story.deploy(version(passing_on("out")))
    await story.crash("before:commit_consumer")
    await story.run()
    assert await causes(story, wf) == {("in", "a"): {"a"}, ("out", "a"): {"a"}}
    assert len(story.world.effects) == 1
