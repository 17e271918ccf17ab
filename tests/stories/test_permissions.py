"""Permissions: what is not granted is not called; the run waits, names the capability, and goes on once it is."""

from __future__ import annotations

import pytest

from keepai.model.errors import ConfigError, NotFound
from tests.harness import Story, acting, producer, workflow

LOOK = "await ctx.gmail.search({});"


async def test_nothing_is_granted_unless_somebody_says_so(story: Story) -> None:
    # R195, R304
    done = await story.keep.deploy(acting())
    assert set(done.not_granted) == set(done.capabilities) == {"feed.list", "gmail.send"}
    await story.run()
    run = await story.last(done.workflow_id)
    assert (run.handler, run.status) == ("poll", "paused:approval")
    assert story.feed.count == 0


@pytest.mark.parametrize("mode", [None, "deny", "ask"])
async def test_a_mutation_without_a_grant_is_neither_sent_nor_recorded_as_sent(story: Story, mode: str | None) -> None:
    # R174, R304, R305, I21: paused before in_flight, naming the capability, the reservation kept
    story.feed.put("a")
    grants = {"feed.list": "allow"} | ({"gmail.send": mode} if mode else {})
    wf = await story.deploy_and_run(acting(), grants=grants)
    await story.run(days=3)
    run = await story.last(wf)
    assert (run.status, run.phase) == ("paused:approval", "mutating")
    assert story.world.asked == []
    assert [m for m in await story.keep.mutations(wf) if m.status == "in_flight"] == []
    assert (await story.event(wf, "in", "a")).reserved_by == run.id
    if mode != "ask":
        assert run.error is not None
        assert run.error.code == "permission"
        assert "gmail.send" in run.error.message
        assert run.error.line is not None


async def test_a_grant_lets_the_run_go_on_with_what_it_had_pinned(story: Story) -> None:
    # R171, R310
    wf = await story.deploy_and_run(acting(before="ctx.log('prepare');"), "a", grants={"feed.list": "allow"})
    waiting = await story.last(wf)
    await story.reopen()
    await story.keep.grant(wf, "gmail.send", "allow")
    await story.run()
    run = await story.last(wf)
    assert (run.status, run.retry_of, run.prepare_result) == ("committed", waiting.id, waiting.prepare_result)
    assert story.logs(run) == ['{"result":{"id":"sent-1"},"status":"applied"}']
    assert len(story.world.effects) == 1


async def test_a_grant_of_something_else_changes_nothing(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a", grants={"feed.list": "allow"})
    waiting = await story.last(wf)
    await story.keep.grant(wf, "gmail.search", "allow")
    await story.keep.grant(wf, "gmail.send", "deny")
    await story.run(days=1)
    assert await story.last(wf) == waiting
    assert story.world.asked == []


async def test_reads_are_checked_too_also_where_check_could_not_see_them(story: Story) -> None:
    # R195
    story.feed.put("a")
    hidden = "try { await ctx['gma' + ['il'].join('')].search({}); } catch { ctx.log('caught'); }"
    for name, call in {"seen": LOOK, "hidden": hidden}.items():
        wf = await story.deploy_and_run(
            acting(name=name, before=call), grants={"feed.list": "allow", "gmail.send": "allow"})
        run = await story.last(wf)
        assert (run.status, run.phase, story.logs(run)) == ("paused:approval", "preparing", []), name
        assert run.error is not None
        assert "gmail.search" in run.error.message
        assert story.world.count("gmail.search") == 0
        assert (await story.event(wf, "in", "a")).reserved_by is None
        await story.keep.grant(wf, "gmail.search", "allow")
        await story.run()
        assert (await story.last(wf)).status == "committed", name
        story.world.asked.clear()


async def test_a_grant_counts_for_its_own_workflow_only(story: Story) -> None:
    # I21
    story.feed.put("a")
    one = await story.deploy(acting(name="one"))
    two = await story.deploy_and_run(acting(name="two"), grants={"feed.list": "allow"})
    assert (await story.last(one)).status == "committed"
    assert (await story.last(two)).status == "paused:approval"
    await story.keep.grant(one, "gmail.send", "allow")
    await story.run()
    assert (await story.last(two)).status == "paused:approval"
    assert len(story.world.effects) == 1


async def test_a_capability_that_is_taken_away_stops_the_next_call(story: Story) -> None:
    # R304
    wf = await story.deploy_and_run(acting(), "a")
    await story.keep.grant(wf, "gmail.send", "deny")
    story.feed.put("b")
    await story.run(minutes=5)
    assert (await story.last(wf)).status == "paused:approval"
    assert len(story.world.effects) == 1


async def test_a_new_version_does_not_widen_what_was_granted(story: Story) -> None:
    # DESIGN 10
    wf = await story.deploy_and_run(acting(mutate="ctx.log('nothing');"), "a")
    story.feed.put("b")
    done = await story.keep.deploy(acting())
    assert (done.version, done.not_granted) == ("2.0", ("gmail.send",))
    await story.run(minutes=5)
    assert (await story.last(wf)).status == "paused:approval"
    assert story.world.asked == []


async def test_a_script_cannot_grant_itself_anything_by_naming_it(story: Story) -> None:
    # R193: members of ctx that are no operations, and ways around them
    wf = await story.deploy_and_run(acting(mutate="""
  const found = Object.getOwnPropertyNames(ctx).concat(Object.getOwnPropertyNames(Object.getPrototypeOf(ctx) ?? {}));
  ctx.log(found.filter(n => /grant|keep|ledger|secret|fetch|require|process/i.test(n)).join());
  ctx.log([typeof fetch, typeof require, typeof process, typeof Deno, typeof std, typeof os].join());
"""), "a")
    assert story.logs(await story.last(wf))[:2] == ["", ",".join(["undefined"] * 6)]


async def test_grants_that_mean_nothing_are_refused(story: Story) -> None:
    wf = await story.deploy(acting())
    with pytest.raises(NotFound, match=r"gmail\.fly"):
        await story.keep.grant(wf, "gmail.fly", "allow")
    with pytest.raises(NotFound, match="gmail"):
        await story.keep.grant(wf, "gmail", "allow")
    with pytest.raises(ConfigError, match="perhaps"):
        await story.keep.grant(wf, "gmail.send", "perhaps")
    with pytest.raises(ConfigError, match="everything"):
        await story.keep.deploy(acting(name="other"), grants="everything")
    assert [w.name for w in await story.keep.workflows()] == ["story"]


# -- sources of inputs -------------------------------------------------------------------------------


async def test_inputs_of_a_denied_source_stop_the_run_until_it_is_allowed(story: Story) -> None:
    # R048
    story.feed.put("a")
    wf = await story.deploy(acting(), grants={"feed.list": "allow", "gmail.send": "allow", "inputs.feed": "deny"})
    await story.run()
    run = await story.last(wf)
    assert (run.handler, run.status) == ("poll", "paused:approval")
    assert run.error is not None
    assert "inputs of the source 'feed' are denied" in run.error.message
    assert run.error.line is not None
    assert (await story.inputs(wf), await story.events(wf)) == ({}, [])
    [asked] = await story.keep.needs_you()
    assert (asked.kind, asked.facts["capability"], asked.actions[0]) == ("permission", "inputs.feed", "grant")
    await story.keep.grant(wf, "inputs.feed", "allow")
    await story.run()
    assert await story.ids(wf, "in", "consumed") == ["a"]


async def test_what_is_said_of_no_source_is_allowed_and_all_grants_leave_a_deny(story: Story) -> None:
    wf = await story.deploy_and_run(acting(), "a")
    assert set(await story.inputs(wf)) == {"a"}
    await story.keep.grant(wf, "inputs.feed", "deny")
    await story.deploy(acting(before="ctx.log('2');"))
    await story.run(minutes=5)
    assert (await story.last(wf)).status == "paused:approval"
    grants = await story.rows("grant_all", workflow_id=wf)
    assert {g["capability"]: g["mode"] for g in grants}["inputs.feed"] == "deny"


async def test_publishing_with_an_earlier_input_of_a_denied_source_stops_too(story: Story) -> None:
    poll = """
      const inputId = state ?? ctx.registerInput({ source: "feed", type: "item", id: "a", title: "A" });
      await ctx.publish("in", { messageId: `m${(await ctx.feed.list({})).length}`, inputId, payload: {} });
      return inputId;"""
    wf = await story.deploy_and_run(workflow(producers={"poll": producer(poll)}))
    await story.keep.grant(wf, "inputs.feed", "deny")
    story.feed.put("b")
    await story.run(minutes=5)
    assert (await story.last(wf)).status == "paused:approval"
    assert await story.ids(wf, "in") == ["m0"]


@pytest.mark.parametrize(("capability", "rule", "error"), [
    ("inputs.nothing", "deny", NotFound), ("inputs", "deny", NotFound), ("inputs.feed", "ask", ConfigError),
    ("inputs.feed", {"mode": "allow", "per_day": 1}, ConfigError),
    ("inputs.feed", {"mode": "deny", "match": {"title": "*"}}, ConfigError),
])
async def test_a_rule_that_makes_no_sense_for_inputs_is_refused(
    story: Story, capability: str, rule: object, error: type[Exception],
) -> None:
    wf = await story.deploy(acting())
    with pytest.raises(error):
        await story.keep.grant(wf, capability, rule)  # type: ignore[arg-type]
    with pytest.raises(error):
        await story.deploy(acting(name="other"), grants={capability: rule})
