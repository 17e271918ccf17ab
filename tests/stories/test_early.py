"""A step that was started beside the commit that leads to it counts as if it had been started after it, or not at all.

`next` runs while the outcome that it is told is being written; the `prepare` of a run that is likely to follow, while
the run before is being committed. A commit that takes its time is made by waiting, before it, until every step that
was started has ended or asks for something that only its run may have.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from keepai import Call, Connector, Policy, read
from keepai.engine.early import Unbegun
from keepai.engine.stepping import Stepper
from keepai.ledger.sqlite.store import SqliteLedger
from keepai.model.clock import parse_iso
from keepai.model.errors import Conflict
from keepai.model.records import Run
from keepai.runtime.base import Ended, Host, Job, LogLine, Operation, Reply, Runtime
from keepai.testing import CrashAt
from tests.harness import START, Story, consumer, js, producer, take_first, workflow
from tests.ledger.disk import Disk

SEND = "await ctx.gmail.send({ to: prepared.data.messageId, body: prepared.data.payload });"
TELL = "ctx.log(JSON.stringify(mutationResult)); ctx.publish('out', { messageId: prepared.data.messageId });"
COUNT = "return { count: (ctx.state?.count ?? 0) + 1 };"

#: `prepare` says all that it sees, so that a result made of anything else shows.
SEEING = """
  const events = await ctx.peek("in");
  const seen = events.map(e => e.messageId).join(",");
  ctx.log(`sees ${seen}`);
  if (!events.length) return { reservations: [], data: {} };
  const event = events[events.length - 1];
  return { reservations: [{ topic: "in", ids: [event.messageId] }], data: { ...event, seen } };
"""

#: `prepare` looks into the world first, which only a run that has begun may do.
LOOKING = "ctx.log('looks'); await ctx.gmail.get({ id: 'm1' });" + take_first()

Act = Callable[[], Awaitable[Any]]


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> Iterator[None]:
    """What was there before these tests is not looked through after each of them."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_is_left_unheard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No step that was left is forgotten: neither a task under way nor an error that nobody looked at."""
    yield
    gc.collect()
    said = [r.getMessage() for r in (*caplog.get_records("call"), *caplog.records) if r.name == "asyncio"]
    assert [text for text in said if "never retrieved" in text or "was destroyed" in text] == []


# -- what is seen of the steps, and what happens beside a commit ------------------------------------------------------


class Watched:
    """A runtime of which it is known what steps it was given, and whether any still goes its own way."""

    def __init__(self, real: Runtime) -> None:
        self.real = real
        self.given: list[tuple[Job, bool]] = []  # and whether its run had not begun
        self._going: set[int] = set()
        self._turn = asyncio.Event()

    async def run(self, job: Job, host: Host) -> Ended:
        """Run it."""
        number = len(self.given)
        self.given.append((job, isinstance(host, Unbegun)))
        self._going.add(number)
        try:
            return await self.real.run(job, Asked(host, partial(self._rest, number)))
        finally:
            self._rest(number)

    async def load(self, *script: Any) -> None:
        """Load a script."""
        await self.real.load(*script)

    async def close(self) -> None:
        """End every worker."""
        await self.real.close()

    def count(self, step: str, *, unbegun: bool | None = None) -> int:
        """How many of these steps were started."""
        return len([job for job, early in self.given if job.step == step and unbegun in (None, early)])

    async def rest(self) -> None:
        """Wait until every step has ended, or waits for its run."""
        async with asyncio.timeout(10):
            while self._going:
                self._turn.clear()
                await self._turn.wait()

    def _rest(self, number: int) -> None:
        self._going.discard(number)
        self._turn.set()


class Asked:
    """A step's host; `rests` is called when the step asks for something and its run has not begun."""

    def __init__(self, host: Host, rests: Callable[[], None]) -> None:
        self._host, self._rests = host, rests

    async def answer(self, operation: Operation) -> Reply:
        """As the host does."""
        if isinstance(self._host, Unbegun):
            self._rests()
        return await self._host.answer(operation)

    def foresee(self, operation: Operation) -> Reply | None:
        """As the host does."""
        return self._host.foresee(operation)

    def used(self, operation: Operation, reply: Reply) -> None:
        """As the host does."""
        self._host.used(operation, reply)

    def log(self, line: LogLine) -> None:
        """As the host does."""
        self._host.log(line)


class Beside:
    """Sees the steps of a host, and acts beside its commits."""

    def __init__(self, story: Story, *, slow: bool = True) -> None:
        self._slow = slow  # whether a commit takes as long as what was started beside it
        self._acts: dict[tuple[str, int], Act] = {}
        self._counts: dict[str, int] = {}
        self.watch(story)

    def watch(self, story: Story) -> None:
        """See the host that a story has now."""
        parts = story.keep.parts
        parts.runtime = self.steps = Watched(parts.runtime)
        self._write = parts.ledger.write
        parts.ledger.write = self.write  # type: ignore[method-assign]

    def on(self, verb: str, act: Act, nth: int = 1) -> None:
        """Do this once, while the nth of these commits is being written."""
        self._acts[verb, nth] = act

    async def write(self, verb: Any, *args: Any, **more: Any) -> Any:
        """Commit, after everything else that is to happen meanwhile."""
        name = verb.__name__
        self._counts[name] = self._counts.get(name, 0) + 1
        if name in ("apply", "commit_consumer"):
            if self._slow:
                await self.steps.rest()
            act = self._acts.pop((name, self._counts[name]), None)
            if act is not None:
                await act()
        return await self._write(verb, *args, **more)

    def all_done(self) -> bool:
        """Whether everything that was to happen has."""
        return not self._acts


def never(patch: pytest.MonkeyPatch) -> None:
    """Let no step start before its time."""
    async def start(stepper: Stepper, *_: Any) -> None:
        """Do nothing."""
    patch.setattr(Stepper, "start_next", start)
    patch.setattr(Stepper, "start_prepare", start)


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
        "runs": [{**_plain(run), "trace": [_plain(line) for line in story.keep.views.trace(run.id)], "moves": [
            (move["machine"], move["target"]) for move in story.keep.views.history(wf, run.id)]} for run in runs],
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
    strange = {"at", "duration_ms", "host", "sender", "mutation_key", "idempotency_key"}
    return {key: value for key, value in asdict(record).items() if key not in strange and not key.endswith("_at")}


def prepared(run: Run) -> Any:
    """What `prepare` gave."""
    return json.loads(run.prepare_result or "null")


# -- next, beside the commit of its outcome ---------------------------------------------------------------------------


async def test_next_runs_while_the_outcome_that_it_is_told_is_being_written(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        beside = Beside(story)

        async def look() -> None:
            assert beside.steps.count("next") == 1, "it has gone as far as it may"
            [row], run = await story.keep.mutations(wf), await story.last(wf)
            assert (row.status, run.phase, run.outcome) == ("in_flight", "mutating", None)
            assert (await story.ids(wf, "out"), story.logs(run)) == ([], [])

        beside.on("apply", look)
        with CrashAt(None) as heard:
            await story.run()
        assert beside.all_done()
        assert [p for p in heard.reached if p in ("after:apply", "before:commit_consumer")] == [
            "after:apply", "before:commit_consumer"], "what it gave is on record in a commit of its own"
        assert (await story.ids(wf, "out"), beside.steps.count("next")) == (["a"], 1)
        assert story.logs(await story.last(wf)) == ['{"result":{"id":"sent-1"},"status":"applied"}']


@pytest.mark.parametrize("point", ["before:apply", "after:apply", "before:commit_consumer"])
async def test_what_next_gave_is_gone_with_a_host_that_dies_before_it_is_committed(tmp_path: Path, point: str) -> None:
    async with Story(tmp_path) as story:
        story.feed.put("a")
        wf = await story.deploy(acting(next=TELL + COUNT))
        Beside(story)
        await story.crash(point)
        assert await story.ids(wf, "out") == []
        assert await story.keep.state(wf, "act") is None
        assert [line for run in await story.runs(wf) for line in story.logs(run)] == []
        await story.run()
        assert (await story.ids(wf, "out"), await story.keep.state(wf, "act")) == (["a"], {"count": 1})
        assert [line for run in await story.runs(wf) for line in story.logs(run)] == [
            '{"result":{"id":"sent-1"},"status":"applied"}']
        assert len(story.world.effects) == 1


#: A `next` that goes wrong if it runs at once, and does its work a minute later.
AT_FIRST = {
    "is well": "",
    "throws": "throw new Error('too early');",
    "publishes where it may not": "ctx.publish(['si', 'de'].join(''), { messageId: 'wrong' });",
    "meets a limit": "for (let n = 0; n < 50; n++) ctx.publish('out', { messageId: `n${n}` });",
}


def later(first: str) -> str:
    """What `next` does at once, and then, a minute later, what it does for good."""
    soon = f"Date.now() < {parse_iso(START)} + 60000"
    return f"ctx.log(new Date().toISOString().slice(11, 16)); if ({soon}) {{ {first} }} {TELL}"


@pytest.mark.parametrize("first", AT_FIRST)
async def test_nothing_remains_of_next_if_the_ledger_stops_before_its_outcome_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str,
) -> None:
    disk = Disk()
    monkeypatch.setattr("keepai.app.open_ledger", partial(SqliteLedger, vfs=disk.name))
    async with Story(tmp_path, policy=Policy(script_calls_max=10)) as story:
        story.feed.put("a")
        wf = await story.deploy(acting(next=later(AT_FIRST[first]) + COUNT))
        beside = Beside(story)

        async def fail() -> None:
            assert beside.steps.count("next") == 1
            disk.fail("write", 1, apsw.FullError("database or disk is full"))

        beside.on("apply", fail)
        with pytest.raises(Exception, match="full"):
            await story.run()
        assert beside.all_done()
        disk.mend()
        async with asyncio.timeout(10):
            await story.keep.close()

        await story.open()
        [row], run = await story.keep.mutations(wf), await story.last(wf)
        assert (row.status, run.status) == ("needs_reconcile", "paused:reconciliation")
        assert (await story.ids(wf, "out"), await story.keep.state(wf, "act"), story.logs(run)) == ([], None, [])

        await story.run(minutes=1)
        [row], run = await story.keep.mutations(wf), await story.last(wf)
        assert (row.status, run.status, run.error) == ("applied", "committed", None)
        assert story.logs(run) == ["09:01", '{"result":{"id":"sent-1"},"status":"applied"}']
        assert (await story.ids(wf, "out"), await story.keep.state(wf, "act")) == (["a"], {"count": 1})
        assert len(story.world.effects) == 1


@pytest.mark.parametrize("first", AT_FIRST)
async def test_nothing_remains_of_next_if_somebody_was_quicker_than_its_outcome(tmp_path: Path, first: str) -> None:
    async with Story(tmp_path, policy=Policy(script_calls_max=10)) as story:
        story.feed.put("a")
        wf = await story.deploy(acting(next=later(AT_FIRST[first]) + COUNT))
        beside = Beside(story)

        async def refuse() -> None:
            assert beside.steps.count("next") == 1
            story.clock.advance(minutes=1)
            raise Conflict("Nothing was changed: somebody was quicker.")

        beside.on("apply", refuse)
        await story.run()
        assert beside.all_done()
        [row], [run] = await story.keep.mutations(wf), await story.runs(wf, "act")
        assert (row.status, run.status, run.error, run.failures) == ("applied", "committed", None, 0)
        assert row.doubted_at is not None, "its result was not on record, so it was asked for"
        assert story.logs(run) == ["09:01", '{"result":{"id":"sent-1"},"status":"applied"}']
        assert (await story.ids(wf, "out"), await story.keep.state(wf, "act")) == (["a"], {"count": 1})
        assert len(story.world.effects) == 1


@pytest.mark.parametrize("mode", ["never", "slow"])
async def test_nothing_remains_of_next_if_the_host_itself_fails_with_its_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str,
) -> None:
    if mode == "never":
        never(monkeypatch)
    async with Story(tmp_path) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        beside = Beside(story)

        async def fail() -> None:
            raise RuntimeError("a fault of the host")

        beside.on("apply", fail)
        await story.run()
        [run] = await story.runs(wf, "act")
        assert (run.status, await story.ids(wf, "out"), len(story.world.effects)) == ("committed", ["a"], 1)
        assert story.logs(run) == ['{"result":{"id":"sent-1"},"status":"applied"}'], "only what counted is told"


# -- the same account, whether or not anything is started early -------------------------------------------------------

SMALL = Policy(
    script_calls_max=10, script_log_bytes_max=500, script_memory_bytes=16 << 20, state_bytes_max=100,
    payload_bytes_max=100, events_per_run_max=8, script_s=0.3)

PUBLISHED = "ctx.log('so far'); ctx.publish('out', { messageId: 'before' });"

ENDS = {
    "returns": TELL,
    "returns a state": COUNT,
    "logs": "ctx.log('one'); console.warn('two'); ctx.log({ three: 3 });",
    "logs too much": "for (let n = 0; n < 100; n++) ctx.log('word '.repeat(20));",
    "throws": PUBLISHED + "throw new TypeError('it cannot be');",
    "never ends": PUBLISHED + "while (true) {}",
    "waits for nothing": PUBLISHED + "await new Promise(() => {});",
    "uses too much memory": PUBLISHED + "const held = []; while (true) held.push(new Array(10000).fill(n => n));",
    "calls too often": "for (let n = 0; n < 50; n++) ctx.publish('out', { messageId: 'same' });",
    "publishes too much": "ctx.publish(['out', 'out'], {}); for (let n = 0; n < 9; n++) ctx.publish('out', {});",
    "publishes to a forbidden topic": PUBLISHED + "ctx.publish(['si', 'de'].join(''), { messageId: 'x' });",
    "publishes to an unknown topic": PUBLISHED + "ctx.publish(['no', 'where'].join(''), { messageId: 'x' });",
    "publishes too large a payload": PUBLISHED + "ctx.publish('out', { messageId: 'x', payload: 'y'.repeat(200) });",
    "reads": PUBLISHED + "await ctx[['gm', 'ail'].join('')].get({ id: 'm1' });",
    "sends": PUBLISHED + "await ctx[['gm', 'ail'].join('')].send({ to: 'x' });",
    "returns too large a state": PUBLISHED + "return 'x'.repeat(200);",
    "returns no value": PUBLISHED + "const round = {}; round.of = round; return round;",
}


async def told(folder: Path, mode: str, source: str, **options: Any) -> tuple[str, Watched]:
    """The account of a series of events in one mode, and the steps that it took."""
    await asyncio.to_thread(folder.mkdir)
    with pytest.MonkeyPatch.context() as patch:
        if mode == "never":
            never(patch)
        async with Story(folder, policy=options.get("policy")) as story:
            for id in options.get("events", "abcde"):
                story.feed.put(id, {"of": id})
            for id in options.get("side", ""):
                story.feed.put(id, {"of": id}, topic="side")
            story.world.deliver(id="m1")
            beside = Beside(story, slow=mode == "slow")
            wf = await story.deploy(source)
            await story.run()
            for act in options.get("then", ()):
                await act(story, wf)
                await story.run(hours=1)
            return await account(story, wf), beside.steps


async def same(
    folder: Path, source: str, modes: tuple[str, ...] = ("quick", "slow"), **options: Any,
) -> tuple[str, Watched]:
    """The account, which does not depend on what was started when; and the steps of slow commits."""
    kept, steps = await told(folder / "never", "never", source, **options)
    assert steps.count("prepare", unbegun=True) == 0
    for mode in modes:
        other, steps = await told(folder / mode, mode, source, **options)
        assert other == kept, f"commits are {mode}"
    return kept, steps


@pytest.mark.parametrize("end", ENDS)
async def test_next_ends_as_it_would_after_the_commit(tmp_path: Path, end: str) -> None:
    kept, _ = await same(tmp_path, acting(next=ENDS[end]), ("slow",), events="ab", policy=SMALL)
    known = json.loads(kept)
    fails = not end.startswith(("logs", "returns a state")) and end != "returns"
    assert [run["state"] for run in known["runs"] if run["handler"] == "act"] == (
        ["failed"] if fails else ["committed", "committed"])
    if fails:
        assert known["runs"][-1]["error"]["step"] == "next"
        assert [e for e in known["events"] if e["topic"] == "out"] == []
        assert [line["answer"] for line in known["runs"][-1]["trace"] if line["kind"] == "log"] == (
            ["so far"] if ENDS[end].startswith(PUBLISHED) else [])


async def test_next_after_an_approved_call_ends_as_it_would_after_the_commit(tmp_path: Path) -> None:
    async def ask(story: Story, wf: str) -> None:
        await story.keep.grant(wf, "gmail.send", "ask")
        story.feed.put("later")

    async def approve(story: Story, wf: str) -> None:
        [asked] = await story.keep.needs_you(wf)
        await story.keep.approve(asked.id)

    kept, _ = await same(tmp_path, acting(next=TELL + COUNT), events="ab", then=(ask, approve))
    known = json.loads(kept)
    assert known["state"] == {"count": 3}
    assert [e["message_id"] for e in known["events"] if e["topic"] == "out"] == ["a", "b", "later"]


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
    "never ends": {"policy": Policy(script_s=0.3), "prepare": f"const [event] = await ctx.peek('in'); {NONE} "
                   f"if (event.messageId === 'd') while (true) {{}} {RESERVE}"},
    "has no next": {"prepare": take_first(), "next": None},
    "has no mutate": {"prepare": take_first(), "mutate": None, "next": "ctx.log('done');"},
    "has a mutate that logs": {"prepare": take_first(), "mutate": "ctx.log('sends'); " + SEND},
    "publishes to itself": {"prepare": SEEING, "publishes": None, "next": """
        const { messageId } = prepared.data;
        if (messageId.length < 3) ctx.publish('in', { messageId: messageId + '+', payload: 0 });"""},
}

_OPTIONS = ("events", "side", "policy")


@pytest.mark.parametrize("script", SERIES)
async def test_a_series_of_runs_is_the_same_whether_or_not_they_are_prepared_early(tmp_path: Path, script: str) -> None:
    # R153, R154 among others: the account has every run, event, mutation, line of the trace, and the state
    chosen = dict(SERIES[script])
    options = {key: chosen.pop(key) for key in _OPTIONS if key in chosen}

    async def nothing(story: Story, wf: str) -> None:
        """Let an hour pass."""

    kept, steps = await same(tmp_path, acting(**chosen), then=(nothing,), **options)
    runs = [run for run in json.loads(kept)["runs"] if run["handler"] == "act"]
    assert len(runs) > 3
    assert steps.count("prepare", unbegun=True) > 1


@pytest.mark.parametrize("next", [TELL, TELL + COUNT], ids=["without state", "with state"])
async def test_a_prepare_that_was_started_early_is_not_run_again(tmp_path: Path, next: str) -> None:
    kept, steps = await same(tmp_path, acting(next=next), ("slow",))
    runs = [run for run in json.loads(kept)["runs"] if run["handler"] == "act"]
    assert len(runs) == 5
    assert steps.count("prepare", unbegun=True) == 4, "of all that followed a run of the same handler, and of one more"
    assert steps.count("prepare") == 6, "that one was in vain: there was nothing left to do"
    assert steps.count("next") == 5


async def test_one_worker_is_enough_for_steps_beside_commits(tmp_path: Path) -> None:
    policy = Policy(workers_max=1)
    async with asyncio.timeout(20):
        await same(tmp_path, acting(LOOKING, next=TELL + COUNT), policy=policy)


async def test_workflows_side_by_side_keep_what_was_started_for_each(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(workers_max=2)) as story:
        for id in "abcde":
            story.feed.put(id)
        beside = Beside(story, slow=False)
        mine = "await ctx.gmail.send({ to: prepared.data.messageId, of: NAME, seen: prepared.data.seen });"
        wfs = {name: await story.deploy(acting(
            SEEING, name=name, mutate=mine.replace("NAME", js(name)), next=TELL + COUNT)) for name in "xyz"}
        await story.run()
        assert beside.steps.count("prepare", unbegun=True) > 0
        for name, wf in wfs.items():
            assert await story.ids(wf, "out") == list("edcba")
            assert await story.keep.state(wf, "act") == {"count": 5}
            sent = [e.params for e in story.world.effects if e.params["of"] == name]
            assert [p["seen"] for p in sent] == ["a,b,c,d,e", "a,b,c,d", "a,b,c", "a,b", "a"]


# -- a prepare whose peek is no longer true ---------------------------------------------------------------------------


async def test_a_run_sees_what_the_run_before_it_published_to_its_topic(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        for id in "abc":
            story.feed.put(id)
        again = "const id = prepared.data.messageId; if (id.length < 2) ctx.publish('in', { messageId: id + '2' });"
        wf = await story.deploy(acting(SEEING, next=again, publishes=None))
        beside = Beside(story)
        await story.run()
        assert [prepared(run)["data"]["seen"] for run in await story.runs(wf, "act")] == [
            "a,b,c", "a,b,c2", "a,b", "a,b2", "a", "a2"]
        assert [story.logs(run) for run in await story.runs(wf, "act")][2:4] == [["sees a,b"], ["sees a,b2"]]
        assert beside.steps.count("prepare", unbegun=True) > 0


async def test_a_run_does_not_see_an_event_that_a_person_skipped_meanwhile(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        for id in "abcd":
            story.feed.put(id)
        wf = await story.deploy(acting(SEEING))
        beside = Beside(story)

        async def skip() -> None:
            assert beside.steps.count("prepare", unbegun=True) == 1, "the third run was told of a and b"
            await story.keep.skip_event((await story.event(wf, "in", "a")).id)
            story.clock.advance(minutes=1)

        beside.on("commit_consumer", skip, nth=2)
        await story.run()
        assert beside.all_done()
        third = (await story.runs(wf, "act"))[2]
        assert (prepared(third)["data"]["seen"], story.logs(third)[0]) == ("b", "sees b")
        assert third.prepared_at == third.created_at, "nor is the time that of what was left"
        assert [e.params["to"] for e in story.world.effects] == ["d", "c", "b"]
        assert (await story.event(wf, "in", "a")).status == "skipped"


async def test_a_run_sees_an_event_that_a_person_put_back_meanwhile(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        for id in "abc":
            story.feed.put(id)
        wf = await story.deploy(acting(SEEING))
        beside = Beside(story)

        async def put_back() -> None:
            assert beside.steps.count("prepare", unbegun=True) == 1
            await story.keep.reprocess((await story.event(wf, "in", "c")).id)

        beside.on("commit_consumer", put_back, nth=2)
        await story.run()
        assert beside.all_done()
        assert [prepared(run)["data"]["seen"] for run in await story.runs(wf, "act")] == ["a,b,c", "a,b", "a,c", "a"]


async def test_a_second_look_of_an_early_prepare_shows_what_is_true_when_its_run_has_begun(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        for id in "abc":
            story.feed.put(id)
        twice = """
          const [event] = await ctx.peek("in", { limit: 1 });
          const all = (await ctx.peek("in")).map(e => e.messageId).join(",");
          if (!event) return { reservations: [], data: {} };
          return { reservations: [{ topic: "in", ids: [event.messageId] }], data: { ...event, all } };
        """
        more = "if (prepared.data.messageId === 'b') ctx.publish('in', { messageId: 'd' });"
        wf = await story.deploy(acting(twice, next=more, publishes=None))
        beside = Beside(story)
        await story.run()
        assert [prepared(run)["data"]["all"] for run in await story.runs(wf, "act")] == ["a,b,c", "b,c", "c,d", "d"]
        assert beside.steps.count("prepare") == 6, "it was true, but for c: with d behind it has a cursor"


# -- a prepare whose run does not begin -------------------------------------------------------------------------------


async def paused(story: Story, wf: str) -> None:
    """A person wants nothing more to start."""
    await story.keep.pause(wf)


async def renewed(story: Story, wf: str) -> None:
    """There is another version."""
    await story.deploy(acting(LOOKING, next="ctx.log('new');"), workflow_id=wf)


async def stopped(story: Story, wf: str) -> None:
    """A person ends the workflow."""
    await story.keep.stop(wf)


@pytest.mark.parametrize(
    "prepare", [LOOKING, "ctx.log('peeks');" + take_first(), "ctx.log('spins'); while (true) {}"],
    ids=["looks", "peeks", "spins"])
@pytest.mark.parametrize("act", [paused, renewed, stopped])
async def test_nothing_comes_of_a_prepare_whose_run_does_not_begin(
    tmp_path: Path, act: Callable[[Story, str], Awaitable[None]], prepare: str,
) -> None:
    async with Story(tmp_path, policy=Policy(script_s=0.3)) as story:
        for id in "abcd":
            story.feed.put(id)
        # the way of `prepare` that is tried out is taken from the third event on
        ways = f"if (state?.count === 2) {{ {prepare} }} {take_first()}"
        wf = await story.deploy(acting(ways, next=COUNT))
        beside = Beside(story, slow=False)

        async def meanwhile() -> None:
            assert beside.steps.count("prepare", unbegun=True) == 1
            await act(story, wf)

        beside.on("commit_consumer", meanwhile, nth=2)
        await story.run()
        runs = [run for run in await story.runs(wf, "act") if run.version == "1.0"]
        assert [run.status for run in runs] == ["committed"] * 2
        assert [line for run in runs for line in story.logs(run)] == []
        asked = story.world.count("gmail.get")
        assert asked == (2 if act is renewed else 0), "only the new version's runs have looked"
        waiting = await story.events(wf, "in", "pending")
        left = [] if act is renewed else ["c", "d"]
        assert [(e.message_id, e.reserved_by) for e in waiting] == [(id, None) for id in left]

        other = await story.deploy(acting(name="other"))
        await story.run()
        assert await story.ids(other, "out") == list("abcd"), "the same workers go on"
        async with asyncio.timeout(10):
            await story.keep.close()


async def test_nothing_comes_of_a_prepare_if_another_handler_is_due_first(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(workers_max=1)) as story:
        for id, topic in (("a", "in"), ("b", "in"), ("x", "side"), ("c", "in")):
            story.feed.put(id, topic=topic)
        beside_it = consumer(subscribe=("side",), mutate=SEND, next="ctx.log('aside');")
        wf = await story.deploy(acting(LOOKING, aside=beside_it))
        beside = Beside(story)
        async with asyncio.timeout(10):  # the only worker is free again at once
            await story.run()
        runs = [run for run in await story.runs(wf) if run.kind == "consumer"]
        assert [run.handler for run in runs] == ["act", "act", "aside", "act"]
        assert beside.steps.count("prepare", unbegun=True) == 1, "for the handler that was not due"
        assert [asked.call.run_id for asked in story.world.asked if asked.operation == "gmail.get"] == [
            run.id for run in runs if run.handler == "act"]
        assert story.logs(runs[2]) == ["aside"]
        assert [line.name for line in story.keep.views.trace(runs[2].id)] == ["peek", "gmail.send", "info"]
        assert await story.ids(wf, "in", "consumed") == ["a", "b", "c"]


async def test_a_prepare_that_nobody_wants_does_not_keep_its_worker(tmp_path: Path) -> None:
    async with Story(tmp_path, policy=Policy(workers_max=1, script_s=60)) as story:
        for id in "abc":
            story.feed.put(id)
        wf = await story.deploy(acting("if (state?.count === 2) while (true) {}" + take_first(), next=COUNT))
        Beside(story, slow=False).on("commit_consumer", partial(paused, story, wf), nth=2)
        await story.run()
        other = await story.deploy(acting(name="other"))
        async with asyncio.timeout(30):
            await story.run()
        assert await story.ids(other, "out") == list("abc")


async def test_while_a_step_that_nobody_wants_is_under_way_none_is_started_before_its_time(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        for id in "abc":
            story.feed.put(id)
        wf = await story.deploy(acting())
        beside, left = Beside(story), asyncio.get_running_loop().create_future()
        story.keep.parts.left.add(left)
        await story.run()
        assert [beside.steps.count(step, unbegun=True) for step in ("prepare", "next")] == [0, 0]
        assert await story.ids(wf, "out") == list("abc")
        story.keep.parts.left.discard(left)


async def test_an_outcome_that_is_known_is_recorded_also_if_its_run_is_cut_off_before_next_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cut_off(_stepper: Stepper, _outcome: str | None) -> None:
        raise asyncio.CancelledError

    async with Story(tmp_path) as story:
        story.feed.put("a")
        wf = await story.deploy(acting())
        monkeypatch.setattr(Stepper, "start_next", cut_off)
        await asyncio.gather(story.run(), return_exceptions=True)
        assert [each.status for each in await story.keep.mutations(wf)] == ["applied"]
        monkeypatch.undo()


@pytest.mark.parametrize("prepare", [LOOKING, take_first()], ids=["looks", "peeks"])
async def test_a_host_that_is_closed_during_a_commit_does_not_wait_for_a_run_that_will_not_begin(
    tmp_path: Path, prepare: str,
) -> None:
    async with Story(tmp_path) as story:
        for id in "abc":
            story.feed.put(id)
        wf = await story.deploy(acting(prepare))
        beside, closing = Beside(story), list[asyncio.Task[None]]()

        async def close() -> None:
            assert beside.steps.count("prepare", unbegun=True) == 1
            closing.append(asyncio.create_task(story.keep.close()))
            await asyncio.sleep(0)  # so that the host knows

        beside.on("commit_consumer", close, nth=2)
        async with asyncio.timeout(10):
            await story.run()
            await closing[0]
            await story.open()
        assert [run.status for run in await story.runs(wf, "act")] == ["committed"] * 2
        assert story.world.count("gmail.get") == (2 if prepare is LOOKING else 0)
        await story.run()
        assert await story.ids(wf, "in", "consumed") == ["a", "b", "c"]


@pytest.mark.parametrize("prepare", [LOOKING, take_first()], ids=["looks", "peeks"])
async def test_nothing_comes_of_a_prepare_if_the_commit_before_it_was_refused(tmp_path: Path, prepare: str) -> None:
    async with Story(tmp_path) as story:
        for id in "abc":
            story.feed.put(id)
        wf = await story.deploy(acting(prepare))
        beside = Beside(story)

        async def refuse() -> None:
            assert beside.steps.count("prepare", unbegun=True) == 1
            raise Conflict("Nothing was changed: somebody was quicker.")

        beside.on("commit_consumer", refuse, nth=2)
        await story.run()
        assert beside.all_done()
        runs = await story.runs(wf, "act")
        assert [run.status for run in runs] == ["committed"] * 3
        assert await story.ids(wf, "out") == ["a", "b", "c"]
        assert [a.call.run_id for a in story.world.asked if a.operation == "gmail.get"] == (
            [run.id for run in runs] if prepare is LOOKING else [])


class Reading(Connector):
    """`ctx.reading.on({})` takes a while; it is noted whether the lane of its run was still there when it began."""

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


@pytest.mark.parametrize("mode", ["never", "slow"])
async def test_a_run_that_is_cut_off_when_its_host_closes_asks_for_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str,
) -> None:
    reading = Reading()
    policy = Policy(call_s=0.05, script_s=0.05)  # a host that closes waits for a quarter of a second
    if mode == "never":
        never(monkeypatch)
    async with Story(tmp_path, policy=policy, connectors=[reading]) as story:
        for id in "abc":
            story.feed.put(id)
        ways = f"if (state?.count === 2) for (let n = 0; n < 500; n++) await ctx.reading.on({{}}); {take_first()}"
        wf = await story.deploy(acting(ways, mutate=None, next=COUNT))
        Beside(story)
        host = story.keep.host
        reading.lane = lambda: len(host._lanes)
        running = asyncio.create_task(story.run())
        await reading.begun.wait()
        await story.keep.close()
        await asyncio.gather(running, return_exceptions=True)
        assert set(reading.lanes) == {1}
        await story.open()
        assert [run.status for run in await story.runs(wf, "act")][:3] == ["committed", "committed", "superseded"]


# -- what a prepare may have only when its run is there ---------------------------------------------------------------


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
        for id in "abcd":
            story.feed.put(id)
        wf = await story.deploy(acting(prepare))
        beside = Beside(story)
        await story.run()
        runs = await story.runs(wf, "act")
        assert beside.steps.count("prepare", unbegun=True) == 3
        assert witness.seen == [(run.id, "active", "preparing") for run in runs for _ in range(2)]
        assert witness.before == [["committed"] * n for n in range(4) for _ in range(2)]
        for run in runs:
            calls = [line.name for line in story.keep.views.trace(run.id) if line.kind == "call"]
            assert sorted(calls) == ["gmail.send", "peek", "witness.look", "witness.look"]


async def test_mutate_sees_the_time_at_which_an_early_prepare_began(tmp_path: Path) -> None:
    # that of its PrepareResult, so that a mutate that runs again later sees the same
    async with Story(tmp_path) as story:
        for id in "abcd":
            story.feed.put(id)
        wf = await story.deploy(acting(mutate="await ctx.gmail.send({ to: `${Date.now()}` });"))
        beside = Beside(story)

        async def wait() -> None:
            assert beside.steps.count("prepare", unbegun=True) == 1
            story.clock.advance(minutes=1)

        beside.on("commit_consumer", wait, nth=2)
        await story.run()
        assert beside.all_done()
        runs = await story.runs(wf, "act")
        assert [e.params["to"] for e in story.world.effects] == [str(run.prepared_at) for run in runs]
        assert runs[2].created_at == runs[1].created_at + 60_000, "and the run itself began when it was committed"
