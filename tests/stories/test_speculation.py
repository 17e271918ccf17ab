"""What a host foresees cannot be told from what it does step by step: the account, the outside world and the questions
are the same with the policy `speculate` on and off. And whatever was foreseen, a run sees what is true when it begins.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Keep, Policy, read
from keepai.engine.gate import Gate
from keepai.model.records import Run
from keepai.runtime.base import Ended, Job, Operation, Reply
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.harness import Story, consumer, js, producer, take_first, views, workflow

SEND = "await ctx.gmail.send({ to: prepared.data.messageId, body: prepared.data.payload });"
TELL = "ctx.log(JSON.stringify(mutationResult)); ctx.publish('out', { messageId: prepared.data.messageId });"
COUNT = "return { count: (ctx.state?.count ?? 0) + 1 };"

#: `prepare` takes the newest event and says all that it sees.
SEEING = """
  const events = await ctx.peek("in");
  const seen = events.map(e => e.messageId).join(",");
  ctx.log(`sees ${seen}`);
  if (!events.length) return { reservations: [], data: {} };
  const event = events[events.length - 1];
  const data = { ...event, seen, state: state ?? null };
  return { reservations: [{ topic: "in", ids: [event.messageId] }], data };
"""
LOOKING = "ctx.log('looks'); await ctx.gmail.get({ id: 'm1' });" + take_first()

Act = Callable[[], Awaitable[Any]]


class Beside:
    """Sees the steps that a host asks for, and acts before its commits."""

    def __init__(self, story: Story) -> None:
        self._acts: dict[tuple[str, int], Act] = {}
        self._counts: Counter[str] = Counter()
        parts = story.keep.parts
        self.steps: Counter[str] = Counter()
        self._run, self._write = parts.runtime.run, parts.ledger.write
        parts.runtime.run = self.run  # type: ignore[method-assign]
        parts.ledger.write = self.write  # type: ignore[method-assign]

    def on(self, verb: str, nth: int, act: Act) -> None:
        """Do this once, before the nth of these commits is made."""
        self._acts[verb, nth] = act

    async def run(self, job: Job, host: Any) -> Ended:
        """Run a step."""
        self.steps[job.step] += 1
        return await self._run(job, host)

    async def write(self, verb: Any, *args: Any, **more: Any) -> Any:
        """Commit, after what is to happen before it."""
        self._counts[verb.__name__] += 1
        act = self._acts.pop((verb.__name__, self._counts[verb.__name__]), None)
        if act is not None:
            await act()
        return await self._write(verb, *args, **more)

    def all_done(self) -> bool:
        """Whether everything that was to happen has."""
        return not self._acts


def acting(
    prepare: str | None = None, *, mutate: str | None = SEND, next: str | None = TELL, name: str = "story",
    subscribe: tuple[str, ...] = ("in",), publishes: tuple[str, ...] | None = ("out",), **more: str,
) -> str:
    """A workflow that polls the feed and acts on its events."""
    act = consumer(prepare, mutate=mutate, next=next, subscribe=subscribe, publishes=publishes)
    return workflow(
        name, topics=("in", "out", "side"), producers={"poll": producer(publishes=("in", "side"))},
        consumers={"act": act, **more})


async def account(story: Story, wf: str) -> str:
    """All that is on record of a workflow and was done outside, without ids and times, as a text."""
    runs, mutations = await story.runs(wf), await story.keep.mutations(wf)
    inputs, events = sorted(await story.keep.inputs(wf), key=lambda each: each.external_id), await story.events(wf)
    names = {each.id: f"<{kind} {n}>" for kind, records in (
        ("run", runs), ("mutation", mutations), ("event", events),
    ) for n, each in enumerate(records, 1)}
    causes = {each.id: each.external_id for each in inputs}
    kept = {
        "runs": [{**_plain(run), "trace": [_plain(line) for line in views(story.keep).trace(run.id)], "moves": [
            (move["machine"], move["target"]) for move in views(story.keep).history(wf, run.id)]} for run in runs],
        "events": [{**_plain(each), "caused_by": sorted(causes[id] for id in each.caused_by)} for each in events],
        "inputs": [{**_plain(each), "id": each.external_id} for each in inputs],
        "mutations": [_plain(each) for each in mutations], "state": await story.keep.state(wf, "act"),
        "asked": [(asked.operation, asked.kind, asked.params, asked.call.run_id) for asked in story.world.asked],
        "questions": [(each.run_id, each.kind) for each in await story.keep.needs_you(wf)],
    }
    text = re.sub("auto:[0-9a-f]+", "<auto>", json.dumps(kept, indent=1, default=str).replace(wf, "<workflow>"))
    for id, name in names.items():
        text = text.replace(id, name)
    return text


def _plain(record: Any) -> dict[str, Any]:
    """A record without what is another one every time."""
    strange = {"at", "bytes", "duration_ms", "host", "sender", "mutation_key", "idempotency_key"}
    return {key: value for key, value in asdict(record).items() if key not in strange and not key.endswith("_at")}


def prepared(run: Run) -> Any:
    """What `prepare` gave."""
    return json.loads(run.prepare_result or "null")


def sent(story: Story) -> list[str]:
    """To whom, in order."""
    return [effect.params["to"] for effect in story.world.effects]


# -- the switch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speculate", [True, False])
async def test_with_the_policy_off_every_step_is_asked_for_by_itself_and_asks_for_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speculate: bool,
) -> None:
    monkeypatch.setattr("keepai.app.JavaScriptRuntime", JavaScriptRuntime)  # also if these tests are run with it off
    async with Story(tmp_path, policy=Policy(speculate=speculate)) as story:
        for id in "abcd":
            story.feed.put(id)
        wf = await story.deploy(acting(take_first()))
        beside, answered = Beside(story), Counter[str]()
        gate_answer = Gate.answer

        async def answer(gate: Gate, operation: Operation) -> Reply:
            answered[operation.name] += 1
            return await gate_answer(gate, operation)

        monkeypatch.setattr(Gate, "answer", answer)
        await story.run()
        assert await story.ids(wf, "out") == list("abcd")
        assert beside.steps["mutate"] == (0 if speculate else 4)
        assert answered["peek"] == (1 if speculate else beside.steps["prepare"]), "the first is learnt"


# -- the same account -------------------------------------------------------------------------------------------------


RESERVE = "return { reservations: [{ topic: 'in', ids: [event.messageId] }], data: event };"
NONE = "if (!event) return { reservations: [], data: {} };"

SERIES: dict[str, dict[str, Any]] = {
    "peeks once": {"prepare": take_first()},
    "peeks twice": {"prepare": f"""
        const [event] = await ctx.peek('in', {{ limit: 1 }}); {NONE}
        ctx.log((await ctx.peek('in')).map(e => e.messageId).join(',')); {RESERVE}"""},
    "peeks differently every time": {
        "prepare": f"const [event] = await ctx.peek('in', {{ limit: 1 + (state?.count ?? 0) % 3 }}); {NONE} {RESERVE}",
        "next": TELL + COUNT},
    "peeks at two topics": {"side": "xy", "subscribe": ("in", "side"), "prepare": """
        const all = [...await ctx.peek('side'), ...await ctx.peek('in')];
        ctx.log(all.map(e => e.messageId).join(','));
        const [event] = all;
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: event.topic, ids: [event.messageId] }], data: event };"""},
    "peeks where it may not": {"prepare": f"const [event] = await ctx.peek('in'); {NONE} "
                               f"if (event.messageId === 'd') await ctx.peek(['o', 'ut'].join('')); {RESERVE}"},
    "reads": {"prepare": LOOKING},
    "reads after it peeked": {"prepare": f"""
        const [event] = await ctx.peek('in'); {NONE}
        const mail = await ctx.gmail.get({{ id: 'm1' }}); ctx.log(mail.id); {RESERVE}"""},
    "gets by id": {"prepare": f"""
        const [first] = await ctx.peek('in'); if (!first) return {{ reservations: [], data: {{}} }};
        const [event] = await ctx.getByIds('in', [first.messageId]); {RESERVE}"""},
    "gets by id, first of all": {
        "prepare": f"const id = 'abcde'[state?.count ?? 0] ?? 'none'; "
                   f"const [event] = await ctx.getByIds('in', [id]); {NONE} {RESERVE}",
        "next": TELL + COUNT},
    "logs": {"prepare": f"""
        ctx.log('first'); const [event] = await ctx.peek('in'); console.warn('then'); {NONE} {RESERVE}"""},
    "sees the time and chance": {
        "prepare": f"""
        const [event] = await ctx.peek('in'); ctx.log(new Date().toISOString().slice(0, 16)); {NONE} {RESERVE}""",
        "mutate": "await ctx.gmail.send({ to: `${Date.now()} ${Math.random()}` });"},
    "sees what next returned": {
        "prepare": f"ctx.log(JSON.stringify(state ?? null)); const [event] = await ctx.peek('in'); {NONE} {RESERVE}",
        "next": TELL + COUNT},
    "sees what next returned last": {
        "prepare": f"ctx.log(JSON.stringify(state ?? null)); const [event] = await ctx.peek('in'); {NONE} {RESERVE}",
        "next": f"if ('bd'.includes(prepared.data.messageId)) {{ {COUNT} }}"},
    "forgets": {"prepare": f"ctx.log(JSON.stringify(state)); const [event] = await ctx.peek('in'); {NONE} {RESERVE}",
                "next": "return 'bd'.includes(prepared.data.messageId) ? null : prepared.data.messageId;"},
    "reserves several": {
        "events": "abcdefgh", "mutate": "await ctx.gmail.send({ to: prepared.data.ids.join() });",
        "next": "ctx.publish('out', { payload: prepared.data.ids });", "prepare": """
        const ids = (await ctx.peek('in', { limit: 2 })).map(e => e.messageId);
        return { reservations: ids.length ? [{ topic: 'in', ids }] : [], data: { ids } };"""},
    "has nothing to do": {"prepare": f"""
        const [event] = await ctx.peek('in'); {NONE}
        if (event.messageId === 'd') return {{ reservations: [], data: {{}} }}; {RESERVE}"""},
    "wants to be woken": {"prepare": f"""
        const [event] = await ctx.peek('in'); const wakeAt = '2026-01-05T09:10:00Z';
        if (!event || event.messageId === 'd') return {{ reservations: [], data: {{}}, wakeAt }}; {RESERVE}"""},
    "throws": {"prepare": f"const [event] = await ctx.peek('in'); ctx.log('so far'); "
                          f"if (event.messageId === 'd') throw new Error('not d'); {RESERVE}"},
    "reserves what is not there": {"prepare": f"const [event] = await ctx.peek('in'); {NONE} "
                                   f"if (event.messageId === 'd') event.messageId = 'nobody'; {RESERVE}"},
    "returns nonsense": {"prepare": f"const [event] = await ctx.peek('in'); {NONE} "
                                    f"if (event.messageId === 'd') return 7; {RESERVE}"},
    "has no next": {"prepare": take_first(), "next": None},
    "has no mutate": {"prepare": take_first(), "mutate": None, "next": "ctx.log('done');"},
    "has a mutate that logs": {"prepare": take_first(), "mutate": "ctx.log('sends'); " + SEND},
    "publishes to itself": {"prepare": SEEING, "publishes": None, "next": """
        const { messageId } = prepared.data;
        if (messageId.length < 3) ctx.publish('in', { messageId: messageId + '+', payload: 0 });"""},
}


@pytest.mark.parametrize("script", SERIES)
async def test_a_series_of_runs_is_the_same_whether_or_not_anything_is_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str,
) -> None:
    monkeypatch.setattr("keepai.app.JavaScriptRuntime", JavaScriptRuntime)
    chosen = dict(SERIES[script])
    policy, side, events = chosen.pop("policy", Policy()), chosen.pop("side", ""), chosen.pop("events", "abcde")
    found = []
    for speculate in (True, False):
        folder = tmp_path / str(speculate)
        await asyncio.to_thread(folder.mkdir)
        async with Story(folder, policy=replace(policy, speculate=speculate)) as story:
            story.world.deliver(id="m1")
            for topic, ids in (("in", events), ("side", side)):
                for id in ids:
                    story.feed.put(id, {"of": id}, topic=topic)
            wf = await story.deploy_and_run(acting(**chosen))
            await story.run(hours=1)
            found.append(await account(story, wf))
    foreseen, by_itself = found
    assert foreseen == by_itself
    assert len([run for run in json.loads(foreseen)["runs"] if run["handler"] == "act"]) > 3


# -- what a run sees --------------------------------------------------------------------------------------------------


async def test_a_run_sees_what_the_run_before_it_published_to_its_topic(story: Story) -> None:
    for id in "abc":
        story.feed.put(id)
    again = "const id = prepared.data.messageId; if (id.length < 2) ctx.publish('in', { messageId: id + '2' });"
    wf = await story.deploy_and_run(acting(SEEING, next=again, publishes=None))
    assert [prepared(run)["data"]["seen"] for run in await story.runs(wf, "act")] == [
        "a,b,c", "a,b,c2", "a,b", "a,b2", "a", "a2"]


async def test_what_next_changes_in_an_event_that_waits_is_seen_by_the_prepare_after_it(story: Story) -> None:
    for id in "abcd":
        story.feed.put(id)
    change = "const by = prepared.data.messageId; if (by > 'a') ctx.publish('in', { messageId: 'a', payload: by });"
    wf = await story.deploy_and_run(acting(SEEING, next=change, publishes=None))
    assert [prepared(run)["data"]["messageId"] for run in await story.runs(wf, "act")] == list("dcba")
    assert story.world.effects[-1].params["body"] == "b"


async def _skip(keep: Keep, ids: dict[str, str]) -> None:
    await keep.skip_event(ids["d"])


async def _put_back(keep: Keep, ids: dict[str, str]) -> None:
    await keep.reprocess(ids["f"])


async def _skip_and_put_back(keep: Keep, ids: dict[str, str]) -> None:
    await keep.skip_event(ids["d"])
    await keep.reprocess(ids["d"])


#: What a person does before the commit of the second run → what is sent, and what the third run sees.
ACTS: dict[str, tuple[Callable[[Keep, dict[str, str]], Awaitable[None]], str, str]] = {
    "skips an event": (_skip, "fecba", "a,b,c"), "puts one back": (_put_back, "fefdcba", "a,b,c,d,f"),
    "changes nothing in the end": (_skip_and_put_back, "fedcba", "a,b,c,d"),
}


@pytest.mark.parametrize("act", ACTS)
async def test_a_run_sees_what_a_person_did_before_it_began(story: Story, act: str) -> None:
    does, expected, seen = ACTS[act]
    for id in "abcdef":
        story.feed.put(id)
    wf, beside = await story.deploy(acting(SEEING, next=TELL + COUNT)), Beside(story)

    async def meanwhile() -> None:
        await does(story.keep, {each.message_id: each.id for each in await story.events(wf, "in")})

    beside.on("commit_consumer", 2, meanwhile)
    await story.run()
    runs = await story.runs(wf, "act")
    assert beside.all_done()
    assert "".join(sent(story)) == expected
    assert [run.status for run in runs] == ["committed"] * len(expected)
    assert (prepared(runs[2])["data"]["seen"], prepared(runs[2])["data"]["state"]) == (seen, {"count": 2})


@pytest.mark.parametrize("verb", ["prepare", "prepare_and_send"])
async def test_an_event_that_is_skipped_while_prepare_runs_is_not_sent_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str,
) -> None:
    monkeypatch.setattr("keepai.app.JavaScriptRuntime", JavaScriptRuntime)
    async with Story(tmp_path, policy=Policy(speculate=verb == "prepare_and_send")) as story:
        for id in "abcdef":
            story.feed.put(id)
        wf, beside = await story.deploy(acting(SEEING, next=TELL + COUNT)), Beside(story)

        async def skip() -> None:
            await story.keep.skip_event((await story.event(wf, "in", "d")).id)

        beside.on(verb, 3, skip)
        await story.run()
        assert beside.all_done()
        assert (await story.event(wf, "in", "d")).status == "skipped"
        assert [run.error for run in await story.runs(wf, "act")] == [None] * 5
        assert sent(story) == list("fecba")


async def test_many_events_of_many_workflows_are_each_sent_once_and_the_state_goes_from_run_to_run(
    tmp_path: Path,
) -> None:
    events, names = "abcdefghijkl", "vwxyz"
    async with Story(tmp_path, policy=Policy(workers_max=2)) as story:
        for n, id in enumerate(events):
            story.feed.put(id, {"n": n, "é": [id]})
        mine = "await ctx.gmail.send({ to: prepared.data.messageId, of: NAME, body: prepared.data });"
        wfs = {name: await story.deploy(acting(
            SEEING, name=name, mutate=mine.replace("NAME", js(name)), next=TELL + COUNT)) for name in names}
        await story.run()
        assert len(story.world.effects) == len(events) * len(names)
        for name, wf in wfs.items():
            told = [each.params["body"] for each in story.world.effects if each.params["of"] == name]
            left = [events[:n] for n in range(len(events), 0, -1)]
            assert [(each["payload"], each["seen"], each["state"]) for each in told] == [
                ({"n": len(seen) - 1, "é": [seen[-1]]}, ",".join(seen), {"count": n} if n else None)
                for n, seen in enumerate(left)]
            assert await story.keep.state(wf, "act") == {"count": len(events)}
            assert await story.ids(wf, "out") == list(reversed(events))
            assert await story.ids(wf, "in", "consumed") == list(events)
            assert [each.status for each in await story.keep.mutations(wf)] == ["applied"] * len(events)
            for run in await story.runs(wf, "act"):
                calls = [line.name for line in views(story.keep).trace(run.id) if line.kind == "call"]
                assert calls == ["peek", "gmail.send"]


# -- when a run may ask -----------------------------------------------------------------------------------------------


class Witness(Connector):
    """Looks, when it is asked, at how the run stands that asks."""

    name = "witness"

    def __init__(self) -> None:
        super().__init__()
        self.story: Story | None = None
        self.seen: list[tuple[str, str, str]] = []
        self.before: list[list[str]] = []

    @read
    async def look(self, params: dict[str, Any], call: Call) -> Any:
        """Say nothing."""
        assert self.story is not None
        run = await self.story.keep.run(call.run_id)
        self.seen.append((run.id, run.status, run.phase))
        runs = await self.story.runs(run.workflow_id, "act")
        self.before.append([each.status for each in runs if each.id != run.id])


@pytest.mark.parametrize("prepare", [
    "await ctx.witness.look({}); await ctx.witness.look({});" + take_first(),
    take_first().replace("if (!event)", "await ctx.witness.look({}); await ctx.witness.look({}); if (!event)"),
    "const looks = [ctx.witness.look({}), ctx.witness.look({})];" + take_first().replace(
        "if (!event)", "await Promise.all(looks); if (!event)"),
], ids=["first of all", "after a peek", "at once with a peek"])
async def test_a_connector_is_read_only_when_the_run_that_reads_is_on_record(tmp_path: Path, prepare: str) -> None:
    witness = Witness()
    async with Story(tmp_path, connectors=[witness]) as story:
        witness.story = story
        wf = await story.deploy_and_run(acting(prepare), *"abcd")
        runs = await story.runs(wf, "act")
        assert witness.seen == [(run.id, "active", "preparing") for run in runs for _ in range(2)]
        assert witness.before == [["committed"] * n for n in range(4) for _ in range(2)]


class Reading(Connector):
    """`ctx.reading.on({})` takes a while; it is noted whether the lane of its run was still there."""

    name = "reading"

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.lanes = asyncio.Event(), list[int]()
        self.lane: Callable[[], int] = lambda: 0

    @read
    async def on(self, params: dict[str, Any], call: Call) -> Any:
        """Say nothing."""
        self.lanes.append(self.lane())
        self.begun.set()
        await asyncio.sleep(0.01)


async def test_a_run_that_is_cut_off_when_its_host_closes_asks_for_nothing_more(tmp_path: Path) -> None:
    reading = Reading()
    policy = Policy(call_s=0.05, script_s=0.05)  # a host that closes waits for a quarter of a second
    async with Story(tmp_path, policy=policy, connectors=[reading]) as story:
        for id in "abc":
            story.feed.put(id)
        ways = f"if (state?.count === 2) for (let n = 0; n < 500; n++) await ctx.reading.on({{}}); {take_first()}"
        wf = await story.deploy(acting(ways, mutate=None, next=COUNT))
        host = story.keep.host
        reading.lane = lambda: len(host._lanes)
        running = asyncio.create_task(story.run())
        await reading.begun.wait()
        await story.keep.close()
        await asyncio.gather(running, return_exceptions=True)
        assert set(reading.lanes) == {1}
        await story.open()
        assert [run.status for run in await story.runs(wf, "act")][:3] == ["committed", "committed", "superseded"]
