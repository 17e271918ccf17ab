"""Topics: durable, append-only streams. Nothing is lost, doubled, moved or marked by a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepai import Policy, ScriptInvalid, Transient
from keepai.model.errors import Refused
from tests.harness import NOTHING, POLL, Story, consumer, js, producer, take_all, take_first, workflow

LOOK = """
  const events = await ctx.peek("in");
  console.log(JSON.stringify(events));
  return { reservations: [], data: {} };
"""


async def test_events_survive_a_host_that_dies_right_after_the_commit(story: Story) -> None:
    """R001, R003, R015."""
    wf = await story.deploy(workflow(producers={"poll": producer()}))
    story.feed.put("a", {"n": 1})
    story.feed.put("b", {"n": 2})
    await story.crash("after:commit_producer")
    events = await story.events(wf, "in")
    assert [(e.topic, e.message_id, e.payload, e.status) for e in events] == [
        ("in", "a", {"n": 1}, "pending"), ("in", "b", {"n": 2}, "pending"),
    ]
    await story.run()
    assert await story.ids(wf) == ["a", "b"]


async def test_a_republished_event_keeps_its_place_and_takes_the_new_payload(story: Story) -> None:
    """R002, R019, R020, R021, R023, R035: last write wins in place while the event waits."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"look": consumer(LOOK)}))
    for id in ("c", "a", "b"):
        story.feed.put(id, "old")
    await story.run()
    first = await story.events(wf)
    story.feed.put("d", "old")
    story.feed.put("c", "new")
    await story.run(minutes=5)
    events = await story.events(wf)
    assert [(e.message_id, e.payload) for e in events] == [
        ("c", "new"), ("a", "old"), ("b", "old"), ("d", "old"),
    ]
    assert [e.id for e in events[:3]] == [e.id for e in first]
    assert [e.revision for e in events] == [2, 1, 1, 1]
    assert {e.status for e in events} == {"pending"}
    [log] = story.logs(await story.last(wf, "look"))
    assert [(e["messageId"], e["payload"]) for e in json.loads(log)] == [
        ("c", "new"), ("a", "old"), ("b", "old"), ("d", "old"),
    ]


PAYLOADS = [
    None, True, False, 0, -1, 1.5, 1e-300, 2**53 - 1, -(2**53) + 1, "", "plain",
    "ünï ☃ 😀 \u2028 \x00 \"quoted\"\n", [], {},
    [[], {}, None, [None]], {"": {"a": [1, {"b": None}]}}, {"status": "consumed", "caused_by": ["x"], "id": 1},
    {"__proto__": {"x": 1}, "constructor": 2, "toString": 3, "length": -1}, {"2": "two", "10": "ten", "1": "one"},
]


async def test_any_json_payload_comes_back_unchanged(story: Story) -> None:
    """R006: as stored, and as the next script sees it."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"look": consumer(LOOK)}))
    for number, payload in enumerate(PAYLOADS):
        story.feed.put(f"p{number}", payload)
    await story.run()
    assert [e.payload for e in await story.events(wf, "in")] == PAYLOADS
    [log] = story.logs(await story.last(wf, "look"))
    assert [e["payload"] for e in json.loads(log)] == PAYLOADS


BAD_VALUES = {
    "nan": '{ messageId: "m", payload: { n: NaN } }',
    "infinity": '{ messageId: "m", payload: -Infinity }',
    "surrogate": '{ messageId: "m", payload: "\\ud800" }',
    "too-big": '{ messageId: "m", payload: [2 ** 53] }',
    "cycle": '{ messageId: "m", payload: (() => { const a = {}; a.a = a; return a; })() }',
    "deep": '{ messageId: "m", payload: (() => { let a = 1; for (let i = 0; i < 5000; i++) a = [a]; return a; })() }',
    "nul-id": '{ messageId: "a\\0b", payload: 1 }',
    "empty-id": '{ messageId: "", payload: 1 }',
    "long-id": '{ messageId: "x".repeat(100000), payload: 1 }',
    "huge": '{ messageId: "m", payload: "x".repeat(3 << 20) }',
}


async def test_a_payload_or_id_that_cannot_be_kept_exactly_is_the_scripts_error(story: Story) -> None:
    """DESIGN 3: refused with a clear logic error, never changed in silence, never a host exception."""
    ids = {}
    for name, entry in BAD_VALUES.items():
        body = f"""
          const inputId = ctx.registerInput({{ source: "feed", type: "item", id: "i", title: "I" }});
          await ctx.publish("in", {{ messageId: "before", inputId, payload: 1 }});
          try {{ await ctx.publish("in", {{ ...{entry}, inputId }}); }} catch (e) {{}}
        """
        ids[name] = await story.deploy(workflow(name, producers={"poll": producer(body)}))
    await story.run()
    found = {name: (await story.last(wf)).status for name, wf in ids.items()}
    assert found == dict.fromkeys(BAD_VALUES, "failed:logic")
    assert [await story.events(wf) for wf in ids.values()] == [[]] * len(ids)
    huge = (await story.last(ids["huge"])).error
    assert huge is not None
    assert "1,048,576" in huge.message, "the limit is named"
    assert "3,145,7" in huge.message, "so is the size"


async def test_given_message_ids_are_kept_as_they_are(story: Story) -> None:
    """R004."""
    names = ["a b", "A B", "ü/☃?#%", "__proto__", "x" * 512, "0", "auto:1", "' or 1=1 --"]
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"take": consumer()}), *names)
    assert await story.ids(wf, "in") == names
    assert await story.ids(wf, "in", "consumed") == names


async def test_missing_message_ids_are_made_up_and_never_meet(story: Story) -> None:
    """R005: not within a run, not over runs, not over topics; one fan-out shares one id."""
    body = """
      const inputId = ctx.registerInput({ source: "feed", type: "item", id: "i", title: "I" });
      await ctx.publish("in", { inputId, payload: 1 });
      await ctx.publish("in", { inputId, payload: 2 });
      await ctx.publish(["in", "out"], { inputId, payload: 3 });
      await ctx.publish("out", { inputId, payload: 4 });
    """
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(body, publishes=["in", "out"])}))
    await story.crash("before:commit_producer", minutes=5)
    await story.run()
    events = await story.events(wf)
    assert [e.payload for e in events] == [1, 2, 3, 3, 4] * 2
    assert len({e.message_id for e in events}) == 8
    assert events[2].message_id == events[3].message_id
    assert all(e.message_id for e in events)


async def test_scripts_see_topic_id_and_payload_and_nothing_of_the_host(story: Story) -> None:
    """R011."""
    prepare = """
      const [peeked] = await ctx.peek("in");
      const [gotten] = await ctx.getByIds("in", [peeked.messageId]);
      console.log(Reflect.ownKeys(peeked).sort().join(), Reflect.ownKeys(gotten).sort().join());
      return { reservations: [{ topic: "in", ids: [peeked.messageId] }], data: { seen: [peeked, gotten] } };
    """
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(prepare)}))
    story.feed.put("a", {"n": 1})
    await story.run()
    run = await story.last(wf, "take")
    assert story.logs(run) == ["messageId,payload,topic messageId,payload,topic"]
    [event] = await story.events(wf)
    assert run.prepare_result is not None
    for secret in (event.id, event.created_by, *event.caused_by, run.id):
        assert secret not in run.prepare_result


async def test_a_script_cannot_set_what_belongs_to_the_host(story: Story) -> None:
    """R012, R018: field names of the host mean nothing in publish, in a producer and in next."""
    host = """
      status: "consumed", reserved_by: "run_1", reservedBy: "run_1", created_by: "run_2", createdBy: "run_2",
      caused_by: ["inp_1"], causedBy: ["inp_1"], attempt: 9, revision: 9, id: "evt_1", workflow_id: "wf_1"
    """
    poll = f"""
      const inputId = ctx.registerInput({{ source: "feed", type: "item", id: "i", title: "I" }});
      await ctx.publish("in", {{ messageId: "m", inputId, payload: 1, {host} }});
    """
    emit = f'await ctx.publish("out", {{ messageId: "n", payload: 2, {host} }});'
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer(poll)}, consumers={"take": consumer(publishes=["out"], next=emit)},
    ))
    made, taken = (await story.last(wf, "poll")).id, (await story.last(wf, "take")).id
    [source, result] = await story.events(wf)
    [known] = (await story.inputs(wf)).values()
    assert (source.status, source.reserved_by, source.created_by) == ("consumed", None, made)
    assert (result.status, result.reserved_by, result.created_by) == ("pending", None, taken)
    assert source.caused_by == result.caused_by == (known.id,)
    assert (source.attempt, source.revision, result.attempt, result.revision) == (1, 1, 1, 1)
    assert all(e.id.startswith("evt_") and e.id != "evt_1" for e in (source, result))


async def test_a_title_in_publish_is_no_part_of_the_event_and_never_renames_the_input(story: Story) -> None:
    """R013, R014, R051."""
    poll = """
      const inputId = ctx.registerInput({ source: "feed", type: "item", id: "i", title: "The input" });
      await ctx.publish("in", { messageId: "with", inputId, title: "Something else", payload: 1 });
      await ctx.publish("in", { messageId: "without", inputId, payload: 1 });
    """
    emit = 'await ctx.publish("out", { messageId: prepared.data.messageId, title: "Third", payload: 1 });'
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer(poll)}, consumers={"take": consumer(publishes=["out"], next=emit)},
    ))
    assert await story.ids(wf, "in", "consumed") == ["with", "without"]
    assert await story.ids(wf, "out") == ["with", "without"]
    assert [i.title for i in await story.keep.inputs(wf)] == ["The input"]


async def test_an_event_is_reserved_until_its_run_commits_and_consumed_only_then(story: Story) -> None:
    """R007, R008, R009, R016, R029: pending + reserved_by while the run waits."""
    wf = await story.deploy(workflow(
        producers={"poll": producer()},
        consumers={"take": consumer(mutate='await ctx.webhook.fire({ id: prepared.data.messageId });')},
    ))
    story.feed.put("a")
    story.feed.put("b")
    story.world.on("webhook.fire").fail(Transient("busy"))
    await story.run()
    first = await story.last(wf, "take")
    a, b = await story.events(wf)
    assert (a.status, a.reserved_by, b.status, b.reserved_by) == ("pending", first.id, "pending", None)
    await story.run(seconds=30)
    a, b = await story.events(wf)
    assert (a.status, a.reserved_by, b.status, b.reserved_by) == ("consumed", None, "consumed", None)
    made_by = (await story.runs(wf, "poll"))[0].id
    assert (a.created_by, b.created_by) == (made_by, made_by)


async def test_a_next_that_fails_consumes_nothing(story: Story) -> None:
    """R016, R037: events, state and publications wait for the commit together."""
    emit = 'await ctx.publish("out", { messageId: "x", payload: 1 }); throw new Error("late");'
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(publishes=["out"], next=emit)},
    ), "a")
    run = await story.last(wf, "take")
    [event] = await story.events(wf)
    assert (run.status, event.status, event.reserved_by) == ("failed:logic", "pending", run.id)
    assert await story.keep.state(wf, "take") is None


async def test_a_republish_never_changes_what_became_of_an_event(story: Story) -> None:
    """R021, R022, R029: consumed stays consumed and skipped stays skipped, with the payload that was processed."""
    pick = """
      const events = (await ctx.peek("in")).filter(e => e.messageId === "eat");
      return { reservations: events.length ? [{ topic: "in", ids: ["eat"] }] : [], data: {} };
    """
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={"take": consumer(pick)}))
    for id in ("eat", "skip", "wait"):
        story.feed.put(id, "old")
    await story.run()
    await story.keep.skip_event((await story.event(wf, "in", "skip")).id)
    for id in ("eat", "skip", "wait"):
        story.feed.put(id, "new")
    await story.run(minutes=5)
    await story.run(minutes=5)  # the same again is no further revision
    found = [(e.message_id, e.status, e.payload, e.revisions_held) for e in await story.events(wf)]
    assert found == [("eat", "consumed", "old", 1), ("skip", "skipped", "old", 1), ("wait", "pending", "new", 0)]
    assert (await story.workflow(wf)).pending == 1


async def test_a_republish_of_a_reserved_event_leaves_the_pinned_payload_alone(story: Story) -> None:
    """R022, R024: next publishes over the very event that its run holds."""
    emit = 'await ctx.publish("in", { messageId: prepared.data.messageId, payload: "changed" });'
    wf = await story.deploy(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(publishes=None, next=emit)},
    ))
    story.feed.put("a", "pinned")
    await story.run()
    [event] = await story.events(wf)
    assert (event.status, event.payload, event.revisions_held) == ("consumed", "pinned", 1)
    assert len(await story.runs(wf, "take")) == 1


async def test_topics_and_workflows_do_not_share_message_ids(story: Story) -> None:
    """R025, R026: the same id elsewhere is another event, with its own fate."""
    poll = POLL.replace('item.topic ?? "in"', '["in", "out"]')
    source = {"producers": {"poll": producer(poll, publishes=["in", "out"])}}
    eats = await story.deploy(workflow("eats", consumers={"take": consumer()}, **source))
    waits = await story.deploy(workflow("waits", consumers={"take": consumer(NOTHING)}, **source))
    story.feed.put("a", 1)
    await story.run()
    found = {
        (wf, e.topic): (e.message_id, e.status, e.payload) for wf in (eats, waits) for e in await story.events(wf)
    }
    assert found == {
        (eats, "in"): ("a", "consumed", 1), (eats, "out"): ("a", "pending", 1),
        (waits, "in"): ("a", "pending", 1), (waits, "out"): ("a", "pending", 1),
    }
    everything = [e for wf in (eats, waits) for e in await story.events(wf)]
    assert len({e.id for e in everything}) == 4
    assert not {i.id for i in await story.keep.inputs(eats)} & {i.id for i in await story.keep.inputs(waits)}


async def test_one_publish_to_many_topics_makes_one_equal_event_in_each(story: Story) -> None:
    """R027: in a producer and in next; a topic named twice gets it once."""
    poll = POLL.replace('item.topic ?? "in"', '["in", "out", "in"]')
    emit = 'await ctx.publish(["x", "y"], { messageId: "n", payload: { deep: [1] } });'
    wf = await story.deploy(workflow(
        topics=["in", "out", "x", "y"], producers={"poll": producer(poll, publishes=["in", "out"])},
        consumers={"take": consumer(publishes=["x", "y"], next=emit)},
    ))
    story.feed.put("a", {"deep": [1]})
    await story.run()
    found = [(e.topic, e.message_id, e.payload, e.caused_by) for e in await story.events(wf)]
    causes = (next(iter((await story.inputs(wf)).values())).id,)
    assert found == [
        ("in", "a", {"deep": [1]}, causes), ("out", "a", {"deep": [1]}, causes),
        ("x", "n", {"deep": [1]}, causes), ("y", "n", {"deep": [1]}, causes),
    ]


@pytest.mark.parametrize("topics", [["in", "nowhere"], ["in", "other"], ["in", None], [], [["in"]]], ids=str)
async def test_a_publish_to_many_topics_reaches_all_or_none(story: Story, topics: object) -> None:
    """R028, R068: undeclared, not listed in publishes, or no topic at all; the script cannot catch it."""
    poll = f"""
      const inputId = ctx.registerInput({{ source: "feed", type: "item", id: "i", title: "I" }});
      const topics = JSON.parse({js(json.dumps(topics))});
      try {{ await ctx.publish(topics, {{ messageId: "m", inputId, payload: 1 }}); }} catch (e) {{}}
      return {{ reached: true }};
    """
    wf = await story.deploy_and_run(workflow(topics=["in", "other"], producers={"poll": producer(poll)}))
    run = await story.last(wf)
    assert (run.status, run.error and run.error.step) == ("failed:logic", "producer")
    assert await story.events(wf) == []
    assert await story.keep.inputs(wf) == []
    assert await story.keep.state(wf, "poll") is None


async def test_every_event_can_be_listed_whatever_became_of_it(story: Story) -> None:
    """R017, R029, R030: by topic, by status, or all; only a person's act skips."""
    pick = take_all().replace('await ctx.peek(topic)', '(await ctx.peek(topic)).filter(e => e.payload)')
    wf = await story.deploy(workflow(
        producers={"poll": producer(publishes=["in", "out"])}, consumers={"take": consumer(pick)},
    ))
    for id, payload in (("a", 1), ("b", 0), ("c", 1), ("d", 0)):
        story.feed.put(id, payload)
    story.feed.put("e", 1, topic="out")
    await story.run()
    assert await story.ids(wf, status="skipped") == []
    await story.keep.skip_event((await story.event(wf, "in", "b")).id)
    await story.reopen()
    assert await story.ids(wf) == ["a", "b", "c", "d", "e"]
    assert await story.ids(wf, "in") == ["a", "b", "c", "d"]
    assert await story.ids(wf, "in", "consumed") == ["a", "c"]
    assert await story.ids(wf, status="skipped") == ["b"]
    assert await story.ids(wf, status="pending") == ["d", "e"]


async def test_a_skipped_event_is_never_offered_again_and_skips_only_once(story: Story) -> None:
    """R017, DESIGN 14: an act that no longer fits is refused with the new state."""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer()}, consumers={"take": consumer(LOOK)}), "a")
    [event] = await story.events(wf)
    await story.keep.skip_event(event.id)
    with pytest.raises(Exception, match="skipped"):
        await story.keep.skip_event(event.id)
    story.feed.put("b")
    await story.run(minutes=5)
    [log] = story.logs(await story.last(wf, "take"))
    assert [e["messageId"] for e in json.loads(log)] == ["b"]


async def test_a_reserved_event_cannot_be_skipped_and_the_refusal_names_the_run(story: Story) -> None:
    """DESIGN 6, R111."""
    wf = await story.deploy_and_run(workflow(
        producers={"poll": producer()}, consumers={"take": consumer(next='throw new Error("no");')},
    ), "a")
    run, [event] = await story.last(wf, "take"), await story.events(wf)
    with pytest.raises(Exception, match=run.id):
        await story.keep.skip_event(event.id)
    assert (await story.events(wf))[0].status == "pending"


async def test_a_topic_has_one_publisher_and_one_subscriber(story: Story) -> None:
    """R031, R032: found before anything runs, and nothing of it is kept."""
    with pytest.raises(ScriptInvalid) as two_publishers:
        await story.deploy(workflow(producers={"one": producer(), "two": producer()}))
    with pytest.raises(ScriptInvalid) as two_subscribers:
        await story.deploy(workflow(
            producers={"one": producer()}, consumers={"a": consumer(), "b": consumer(take_first())},
        ))
    assert "two-publishers" in {f.code for f in two_publishers.value.findings}
    assert "two-subscribers" in {f.code for f in two_subscribers.value.findings}
    assert await story.keep.workflows() == []


async def test_topics_are_ways_in_inner_edges_and_results(story: Story) -> None:
    """R033, R034, R036: one topic comes in, one leads on, one has no subscriber and stays as a result."""
    pass_on = """
      const {{ messageId, payload }} = prepared.data;
      await ctx.publish("{}", {{ messageId, payload: payload + 1 }});
    """
    wf = await story.deploy(workflow(
        topics=["in", "edge", "result", "unused"], producers={"poll": producer()}, consumers={
            "first": consumer(publishes=["edge"], next=pass_on.format("edge")),
            "second": consumer(subscribe=["edge"], publishes=["result"], next=pass_on.format("result")),
        },
    ))
    story.feed.put("a", 1)
    await story.run()
    found = [(e.topic, e.payload, e.status) for e in await story.events(wf)]
    assert found == [("in", 1, "consumed"), ("edge", 2, "consumed"), ("result", 3, "pending")]
    assert (await story.workflow(wf)).pending == 0, "a result is no work"
    assert await story.keep.mutations(wf) == []


async def test_a_run_that_publishes_too_many_events_publishes_none(tmp_path: Path) -> None:
    """DESIGN 3: limits are policy; the error names the limit."""
    async with Story(tmp_path, policy=Policy(events_per_run_max=5)) as story:
        wf = await story.deploy(workflow(producers={"poll": producer()}))
        for number in range(5):
            story.feed.put(str(number))
        await story.run()
        assert len(await story.events(wf)) == 5
        story.feed.put("6")
        await story.run(minutes=5)
        run = await story.last(wf)
        assert run.status == "failed:logic"
        assert run.error is not None
        assert "5" in run.error.message
        assert len(await story.events(wf)) == 5


async def test_a_reprocessed_event_is_taken_again_with_the_newest_payload(story: Story) -> None:
    """DESIGN 2, 7: the held revision is used then; what came of the first attempt stays on record."""
    wf = await story.deploy(workflow(producers={"poll": producer()}, consumers={
        "take": consumer(mutate="await ctx.webhook.fire({ was: prepared.data.payload });"),
    }))
    for payload in ("first", "second", "third"):
        story.feed.put("a", payload)
        await story.run(minutes=5)
    [event] = await story.events(wf)
    assert (event.status, event.payload, event.revisions_held) == ("consumed", "first", 2)
    await story.keep.reprocess(event.id)
    [event] = await story.events(wf)
    assert (event.status, event.payload, event.attempt, event.revisions_held) == ("pending", "third", 2, 0)
    await story.run()
    assert [e.params["was"] for e in story.world.effects] == ["first", "third"]
    assert [m.status for m in await story.keep.mutations(wf)] == ["applied", "applied"]
    assert await story.ids(wf, status="consumed") == ["a"]


async def test_an_event_that_no_consumer_of_the_active_version_takes_is_not_reprocessed(story: Story) -> None:
    both = workflow(producers={"poll": producer(POLL)}, consumers={"take": consumer(prepare=take_first())})
    wf = await story.deploy_and_run(both, "a")
    event = await story.event(wf, "in", "a")
    assert event.status == "consumed"
    await story.deploy(workflow(producers={"poll": producer(POLL)}))
    with pytest.raises(Refused, match=r"no consumer that takes 'in'. Deploy one that does"):
        await story.keep.reprocess(event.id)
    assert (await story.event(wf, "in", "a")).attempt == 1
    await story.deploy(both)
    await story.keep.reprocess(event.id)
    await story.run()
    assert (await story.event(wf, "in", "a")).attempt == 2
