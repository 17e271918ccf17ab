"""A `prepare` that was tried in the same breath as the `next` before it counts as if its run had asked for it, or not
at all.

It is tried only while several workflows are at work, and only for a run that follows another of the same handler: of a
series, the first two runs have theirs run by itself, and the others none, as long as what was tried still holds.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keepai import Call, Connector, Policy, read
from keepai.engine.early import Unbegun
from keepai.model.errors import Conflict
from keepai.model.records import Run
from keepai.runtime.base import Ended, Host, Job, Runtime
from tests.harness import Story, consumer, js, producer, workflow
from tests.stories import test_early as early

SEND = "await ctx.gmail.send({ to: prepared.data.messageId, body: prepared.data });"
COUNT = "return { count: (ctx.state?.count ?? 0) + 1 };"
TELL = "ctx.publish('out', { messageId: prepared.data.messageId, payload: prepared.data.payload });"

#: `prepare` takes the newest event and says what else it has seen, in its data: a line would not be tried.
SEEING = """
  const events = await ctx.peek("in");
  const seen = events.map(e => e.messageId).join(",");
  if (!events.length) return { reservations: [], data: {} };
  const event = events[events.length - 1];
  const { messageId, payload } = event;
  const data = { messageId, payload, seen, state: state ?? null };
  return { reservations: [{ topic: "in", ids: [messageId] }], data };
"""

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
    """A runtime of which it is known what steps it was given, and what was tried after them."""

    def __init__(self, real: Runtime) -> None:
        self.real = real
        self.given: list[tuple[Job, bool]] = []  # and whether its run had not begun
        self.tried: list[Ended] = []  # each `prepare` that came back with the `next` before it

    async def run(self, job: Job, host: Host) -> Ended:
        """Run it."""
        self.given.append((job, isinstance(host, Unbegun)))
        ended = await self.real.run(job, host)
        if ended.followed is not None:
            self.tried.append(ended.followed.ended)
        return ended

    async def load(self, *script: Any) -> None:
        """Load a script."""
        await self.real.load(*script)

    async def close(self) -> None:
        """End every worker."""
        await self.real.close()

    def count(self, step: str) -> int:
        """How many of these steps were given as jobs of their own."""
        return len([job for job, _ in self.given if job.step == step])


class Beside:
    """Sees the steps of a host, and acts beside its commits."""

    def __init__(self, story: Story) -> None:
        self._acts: dict[tuple[str, int, bool], Act] = {}
        self._counts: Counter[str] = Counter()
        parts = story.keep.parts
        parts.runtime = self.steps = Watched(parts.runtime)
        self._write = parts.ledger.write
        parts.ledger.write = self.write  # type: ignore[method-assign]

    def on(self, verb: str, act: Act, nth: int, *, after: bool = False) -> None:
        """Do this once, before the nth of these commits is made, or right after it, before anybody is told."""
        self._acts[verb, nth, after] = act

    async def write(self, verb: Any, *args: Any, **more: Any) -> Any:
        """Commit, with everything else that is to happen around it."""
        name = verb.__name__
        self._counts[name] += 1
        nth = self._counts[name]
        if act := self._acts.pop((name, nth, False), None):
            await act()
        result = await self._write(verb, *args, **more)
        if act := self._acts.pop((name, nth, True), None):
            await act()
        return result

    def all_done(self) -> bool:
        """Whether everything that was to happen has."""
        return not self._acts


class Company(Connector):
    """`ctx.company.stay({})` ends when the workflow that it keeps company has nothing more to do."""

    name = "company"

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()

    @read
    async def stay(self, params: dict[str, Any], call: Call) -> Any:
        """Say nothing, later."""
        await self.may_go.wait()


class Busy(Story):
    """A story beside which another workflow is at work as long as the one of the test is."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.company, self.acts = Company(), list[asyncio.Task[None]]()
        super().__init__(folder, connectors=[self.company], **options)

    async def begin(self, source: str, events: str) -> str:
        """Deploy a workflow with these events, and its company."""
        for id in events:
            self.feed.put(id, {"of": id})
        stays = producer("await ctx.company.stay({});", publishes=())
        await self.deploy(workflow("company", topics=(), producers={"stay": stays}))
        self.wf = await self.deploy(source)
        self.beside = Beside(self)
        return self.wf

    async def run(self, **span: float) -> None:
        """Run what is due; the company goes when there is nothing left of the other."""
        self.company.may_go.clear()
        running = asyncio.create_task(super().run(**span))
        try:
            await asyncio.sleep(0)  # so that whatever is due has begun
            lane = self.keep.host._lanes.get(self.wf)
            if lane is not None:
                await asyncio.wait([lane])
        finally:
            self.company.may_go.set()
            await running


def acting(
    prepare: str = SEEING, *, mutate: str = SEND, next: str | None = TELL, name: str = "story",
    publishes: tuple[str, ...] | None = ("out",), **more: str,
) -> str:
    """A workflow that polls the feed and acts on its events."""
    act = consumer(prepare, mutate=mutate, next=next, publishes=publishes)
    return workflow(
        name, topics=("in", "out", "side"), producers={"poll": producer(publishes=("in", "side"))},
        consumers={"act": act, **more})


def prepared(run: Run) -> Any:
    """What `prepare` gave."""
    return json.loads(run.prepare_result or "null")


def sent(story: Story) -> list[str]:
    """To whom, in order."""
    return [effect.params["to"] for effect in story.world.effects]


# -- that it is tried, and what comes of it ---------------------------------------------------------------------------


async def test_of_a_series_only_the_first_two_runs_have_their_prepare_run_by_itself(tmp_path: Path) -> None:
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(next=TELL + COUNT), "abcdef")
        await story.run()
        runs = await story.runs(wf, "act")
        assert [run.status for run in runs] == ["committed"] * 6
        assert [story.beside.steps.count(step) for step in ("prepare", "mutate", "next")] == [2, 0, 6]
        assert len(story.beside.steps.tried) == 5, "after every next but the first, also if nothing was left to do"
        assert [run.prepare_result for run in runs[2:]] == [each.value for each in story.beside.steps.tried[:4]]
        assert [prepared(run)["data"]["seen"] for run in runs] == [
            "a,b,c,d,e,f", "a,b,c,d,e", "a,b,c,d", "a,b,c", "a,b", "a"]
        assert sent(story) == await story.ids(wf, "out") == list("fedcba")


async def test_a_workflow_that_is_alone_has_every_prepare_run_by_itself(tmp_path: Path) -> None:
    async with Story(tmp_path) as story:
        for id in "abcdef":
            story.feed.put(id)
        await story.deploy(acting(next=TELL + COUNT))
        steps = Beside(story).steps
        await story.run()
        assert sent(story) == list("fedcba")
        assert (steps.tried, [job for job, _ in steps.given if job.then is not None]) == ([], [])
        assert steps.count("prepare") >= 6


async def test_many_events_of_many_workflows_are_each_sent_once_and_the_state_goes_from_run_to_run(
    tmp_path: Path,
) -> None:
    events, names = "abcdefghijkl", "vwxyz"
    async with Story(tmp_path, policy=Policy(workers_max=2)) as story:
        for n, id in enumerate(events):
            story.feed.put(id, {"n": n, "é": [id]})
        mine = SEND.replace("body:", "of: NAME, body:")
        wfs = {name: await story.deploy(acting(
            name=name, mutate=mine.replace("NAME", js(name)), next=TELL + COUNT)) for name in names}
        steps = Beside(story).steps
        await story.run()
        assert len(story.world.effects) == len(events) * len(names)
        for name, wf in wfs.items():
            told = [each.params for each in story.world.effects if each.params["of"] == name]
            left = [events[:n] for n in range(len(events), 0, -1)]
            assert [each["body"] for each in told] == [{
                "messageId": seen[-1], "payload": {"n": len(seen) - 1, "é": [seen[-1]]}, "seen": ",".join(seen),
                "state": {"count": n} if n else None,
            } for n, seen in enumerate(left)]
            assert await story.keep.state(wf, "act") == {"count": len(events)}
            assert await story.ids(wf, "out") == list(reversed(events))
            assert await story.ids(wf, "in", "consumed") == list(events)
            assert [each.status for each in await story.keep.mutations(wf)] == ["applied"] * len(events)
            for run in await story.runs(wf, "act"):
                assert [line.name for line in story.keep.views.trace(run.id)] == ["peek", "gmail.send"]
        assert len(steps.tried) > len(events) * len(names) / 2
        assert steps.count("prepare") < len(events) * len(names) / 2, "most were not given as jobs of their own"


#: Series of `test_early.py` in which nothing but the foreseen peek is asked for, at least from time to time.
TRIED = {
    "peeks once", "peeks where it may not", "reserves several", "has nothing to do", "wants to be woken",
    "reserves what is not there", "returns nonsense", "never ends", "has a mutate that logs", "publishes and forgets",
}
FORGETFUL = {
    "prepare": SEEING,
    "next": TELL + "return 'bd'.includes(prepared.data.messageId) ? null : { z: 1, a: [ctx.state] };",
}
SERIES: dict[str, dict[str, Any]] = {**early.SERIES, "publishes and forgets": FORGETFUL}


async def told(folder: Path, source: str, **options: Any) -> tuple[str, Watched]:
    """The account of a series of events, and the steps that it took."""
    await asyncio.to_thread(folder.mkdir)
    async with Busy(folder, policy=options.get("policy")) as story:
        story.world.deliver(id="m1")
        for id in options.get("side", ""):
            story.feed.put(id, {"of": id}, topic="side")
        wf = await story.begin(source, options.get("events", "abcde"))
        await story.run()
        await story.run(hours=1)
        return await early.account(story, wf), story.beside.steps


@pytest.mark.parametrize("script", SERIES)
async def test_a_series_of_runs_is_the_same_whether_or_not_their_prepare_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str,
) -> None:
    chosen = dict(SERIES[script])
    options = {key: chosen.pop(key) for key in ("events", "side", "policy") if key in chosen}
    source = early.acting(**chosen)
    kept, steps = await told(tmp_path / "tried", source, **options)
    assert bool(steps.tried) == (script in TRIED)
    early.never(monkeypatch)
    alone, steps = await told(tmp_path / "never", source, **options)
    assert (kept, steps.tried) == (alone, [])


STATES = {
    "always": ("return { b: ctx.state?.b + 1 || 1, a: 'é' };", [None, *[{"a": "é", "b": n} for n in (1, 2, 3, 4)]]),
    "sometimes": ("if ('ec'.includes(prepared.data.messageId)) return prepared.data.messageId;",
                  [None, "e", "e", "c", "c"]),
    "null": ("return prepared.data.messageId === 'd' ? null : 0;", [None, 0, None, 0, 0]),
    "never": ("ctx.publish('out', {});", [None] * 5),
}


@pytest.mark.parametrize("next", STATES)
async def test_a_tried_prepare_is_given_the_state_that_the_run_before_leaves(tmp_path: Path, next: str) -> None:
    body, states = STATES[next]
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(next=body), "abcde")
        await story.run()
        assert [prepared(run)["data"]["state"] for run in await story.runs(wf, "act")] == states
        assert (story.beside.steps.count("prepare"), sent(story)) == (2, list("edcba"))


async def test_mutate_sees_the_time_at_which_its_prepare_was_tried(tmp_path: Path) -> None:
    # that of its PrepareResult, so that a mutate that runs again later sees the same
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(mutate="await ctx.gmail.send({ to: `${Date.now()}` });"), "abcd")

        async def wait() -> None:
            assert len(story.beside.steps.tried) == 1
            story.clock.advance(minutes=1)

        story.beside.on("commit_consumer", wait, 2)
        await story.run()
        assert story.beside.all_done()
        runs = await story.runs(wf, "act")
        assert sent(story) == [str(run.prepared_at) for run in runs]
        assert runs[2].created_at == runs[1].created_at + 60_000 > (runs[2].prepared_at or 0)
        assert story.beside.steps.count("prepare") == 2


# -- a prepare that does not count: something changed since it was tried ----------------------------------------------


async def test_what_next_publishes_to_its_own_topic_is_seen_by_the_prepare_after_it(tmp_path: Path) -> None:
    async with Busy(tmp_path) as story:
        again = "const id = prepared.data.messageId; if (id.length < 2) ctx.publish('in', { messageId: id + '2' });"
        wf = await story.begin(acting(next=again, publishes=None), "abc")
        await story.run()
        assert [prepared(run)["data"]["seen"] for run in await story.runs(wf, "act")] == [
            "a,b,c", "a,b,c2", "a,b", "a,b2", "a", "a2"]
        assert sent(story) == ["c", "c2", "b", "b2", "a", "a2"]
        assert story.beside.steps.count("prepare") == 4, "of the first two runs, and of those after a publication"


async def test_what_next_changes_in_an_event_that_waits_is_seen_by_the_prepare_after_it(tmp_path: Path) -> None:
    async with Busy(tmp_path) as story:
        change = "const by = prepared.data.messageId; if (by > 'a') ctx.publish('in', { messageId: 'a', payload: by });"
        wf = await story.begin(acting(next=change, publishes=None), "abcd")
        await story.run()
        assert [prepared(run)["data"]["messageId"] for run in await story.runs(wf, "act")] == list("dcba")
        assert story.world.effects[-1].params["body"]["payload"] == "b"


async def skip_taken(story: Busy) -> None:
    await story.keep.skip_event((await story.event(story.wf, "in", "d")).id)


async def skip_seen(story: Busy) -> None:
    await story.keep.skip_event((await story.event(story.wf, "in", "a")).id)


async def skip_input(story: Busy) -> None:
    await story.keep.skip_input((await story.inputs(story.wf))["d"].id)


async def put_back(story: Busy) -> None:
    await story.keep.reprocess((await story.event(story.wf, "in", "f")).id)


async def skip_and_put_back(story: Busy) -> None:
    event = (await story.event(story.wf, "in", "d")).id
    await story.keep.skip_event(event)
    await story.keep.reprocess(event)


async def skip_beside(story: Busy) -> None:
    """Both reach the ledger in one group, the act first."""
    event = (await story.event(story.wf, "in", "d")).id
    story.acts.append(asyncio.create_task(story.keep.skip_event(event)))
    await asyncio.sleep(0)


async def allow(story: Busy) -> None:
    await story.keep.grant(story.wf, "gmail.send", "allow")


#: What somebody does between the try and the beginning of the third run → what is sent, what that run has seen, and how
#: many `prepare` were run by themselves: two, unless the third was in vain.
ACTS: dict[str, tuple[Callable[[Busy], Awaitable[None]], str, str, int]] = {
    "skips the event that was taken": (skip_taken, "fecba", "a,b,c", 3),
    "skips it in the same group": (skip_beside, "fecba", "a,b,c", 3),
    "skips its input": (skip_input, "fecba", "a,b,c", 3),
    "skips one that was only seen": (skip_seen, "fedcb", "b,c,d", 3),
    "puts one back": (put_back, "fefdcba", "a,b,c,d,f", 3),
    "changes nothing in the end": (skip_and_put_back, "fedcba", "a,b,c,d", 2),
    "allows something": (allow, "fedcba", "a,b,c,d", 2),
}


@pytest.mark.parametrize("act", ACTS)
async def test_a_try_counts_only_if_what_waits_is_what_it_was_told(tmp_path: Path, act: str) -> None:
    does, expected, seen, prepares = ACTS[act]
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(next=TELL + COUNT), "abcdef")

        async def meanwhile() -> None:
            assert story.beside.steps.count("prepare") == 2
            [tried] = story.beside.steps.tried
            assert json.loads(tried.value or "")["data"]["messageId"] == "d", "the third run has been tried"
            await does(story)

        story.beside.on("commit_consumer", meanwhile, 2)
        await story.run()
        await asyncio.gather(*story.acts)
        assert story.beside.all_done()
        assert "".join(sent(story)) == expected
        runs = await story.runs(wf, "act")
        assert [run.status for run in runs] == ["committed"] * len(expected)
        assert prepared(runs[2])["data"]["seen"] == seen
        assert prepared(runs[2])["data"]["state"] == {"count": 2}
        assert story.beside.steps.count("prepare") == prepares
        skipped = "" if set("abcdef") <= set(expected) else "ad"["a" in expected]
        assert "".join(await story.ids(wf, "in", "skipped")) == skipped


# The number of a run says that nothing was counted before it began. What is counted between that commit and the moment
# in which the run takes what was tried for it (a skip in the same group, behind the commit) has to be noticed too.
@pytest.mark.parametrize("when", ["in the same group", "before anybody is told"])
async def test_an_event_that_is_skipped_right_after_the_run_has_begun_is_not_sent_and_nothing_fails(
    tmp_path: Path, when: str,
) -> None:
    async with Busy(tmp_path) as story:
        wf, skipping = await story.begin(acting(next=TELL + COUNT), "abcdef"), list[asyncio.Task[None]]()

        async def behind() -> None:
            """The commit is asked for at once, the act one turn later."""
            event = (await story.event(wf, "in", "d")).id
            skipping.append(asyncio.create_task(story.keep.skip_event(event)))

        if when == "in the same group":
            story.beside.on("commit_consumer", behind, 2)
        else:
            story.beside.on("commit_consumer", lambda: skip_taken(story), 2, after=True)
        await story.run()
        await asyncio.gather(*skipping)
        assert story.beside.all_done()
        assert (await story.event(wf, "in", "d")).status == "skipped"
        assert [run.error for run in await story.runs(wf, "act")] == [None] * 5
        assert sent(story) == list("fecba")


# -- a prepare whose run does not begin -------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["pause", "stop"])
async def test_nothing_starts_in_a_workflow_that_was_paused_or_stopped_after_the_try(tmp_path: Path, act: str) -> None:
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(next=TELL + COUNT), "abcdef")

        async def meanwhile() -> None:
            assert len(story.beside.steps.tried) == 1
            await getattr(story.keep, act)(wf)

        story.beside.on("commit_consumer", meanwhile, 2)
        await story.run()
        await story.run(hours=1)
        assert story.beside.all_done()
        assert [run.status for run in await story.runs(wf, "act")] == ["committed"] * 2
        assert sent(story) == list("fe")
        assert [(e.message_id, e.reserved_by) for e in await story.events(wf, "in", "pending")] == [
            (id, None) for id in "abcd"]
        if act == "pause":
            await story.keep.resume(wf)
            await story.run()
            assert sent(story) == list("fedcba")
            assert [prepared(run)["data"]["state"] for run in await story.runs(wf, "act")] == [
                None, *[{"count": n} for n in range(1, 6)]]


async def test_a_version_that_was_deployed_after_the_try_has_its_own_prepare_run(tmp_path: Path) -> None:
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(next=TELL + COUNT), "abcdef")
        newer = SEEING.replace("seen,", "seen: 'new ' + seen,")

        async def renew() -> None:
            assert len(story.beside.steps.tried) == 1
            await story.deploy(acting(newer, next=TELL + COUNT), workflow_id=wf)

        story.beside.on("commit_consumer", renew, 2)
        await story.run()
        assert story.beside.all_done()
        runs = await story.runs(wf, "act")
        assert [run.version for run in runs] == ["1.0"] * 2 + ["2.0"] * 4
        assert [prepared(run)["data"]["seen"] for run in runs] == [
            "a,b,c,d,e,f", "a,b,c,d,e", "new a,b,c,d", "new a,b,c", "new a,b", "new a"]
        assert [prepared(run)["data"]["state"] for run in runs][2:] == [{"count": n} for n in (2, 3, 4, 5)]
        assert sent(story) == list("fedcba")
        assert story.beside.steps.count("prepare") == 4, "two of each version"


#: `prepare` knows by its state what to reserve, and asks for nothing at all.
BLIND = """
  const messageId = TAKES[state?.count ?? 0];
  return { reservations: [{ topic: TOPIC, ids: [messageId] }], data: { messageId, state: state ?? null } };
"""
TURNS = {"peeks": (SEEING, "dcba", "yx"), "does not": (BLIND, "abcd", "xy")}


@pytest.mark.parametrize("looks", TURNS)
async def test_a_try_is_not_used_by_another_handler_that_is_due_first(tmp_path: Path, looks: str) -> None:
    prepare, *takes = TURNS[looks]
    bodies = [
        prepare.replace("TAKES", js(ids)).replace("TOPIC", js(topic)).replace('"in"', js(topic))
        for topic, ids in zip(("in", "side"), takes, strict=True)]
    async with Busy(tmp_path) as story:
        for id in "abxcdy":  # whose turn it is goes by what came first
            story.feed.put(id, {"of": id}, topic="side" if id in "xy" else "in")
        aside = consumer(bodies[1], subscribe=("side",), mutate=SEND, next=COUNT)
        wf = await story.begin(acting(bodies[0], next=COUNT, aside=aside), "")
        await story.run()
        runs = [run for run in await story.runs(wf) if run.kind == "consumer"]
        assert [run.status for run in runs] == ["committed"] * 6
        assert sorted(sent(story)) == list("abcdxy")
        for handler, ids in zip(("act", "aside"), takes, strict=True):
            taken = [prepared(run)["data"] for run in runs if run.handler == handler]
            assert [each["messageId"] for each in taken] == list(ids)
            assert [each["state"] for each in taken] == [None, *[{"count": n} for n in range(1, len(ids))]]
        turns = "".join(run.handler[1] for run in runs)
        assert "ccs" in turns, "a run in a row was followed by one of the other"
        assert len(story.beside.steps.tried) > 0


async def test_a_try_is_gone_with_a_commit_that_was_refused(tmp_path: Path) -> None:
    async with Busy(tmp_path) as story:
        wf = await story.begin(acting(next=TELL + COUNT), "abcd")

        async def refuse() -> None:
            assert len(story.beside.steps.tried) == 1
            raise Conflict("Nothing was changed: somebody was quicker.")

        story.beside.on("commit_consumer", refuse, 2)
        await story.run()
        assert story.beside.all_done()
        runs = await story.runs(wf, "act")
        assert [run.status for run in runs] == ["committed"] * 4
        assert [prepared(run)["data"]["state"] for run in runs] == [None, *[{"count": n} for n in (1, 2, 3)]]
        assert sent(story) == await story.ids(wf, "out") == list("dcba")


# -- a host that dies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [5, 8, 12])
@pytest.mark.parametrize("point", [
    "before:apply", "after:apply", "before:commit_consumer", "after:commit_consumer", "before:prepare_and_send",
    "after:prepare_and_send",
])
async def test_nothing_is_lost_and_nothing_sent_twice_if_the_host_dies_around_a_try(
    tmp_path: Path, point: str, nth: int,
) -> None:
    events, names = "abcdefg", "xyz"
    async with Story(tmp_path) as story:
        for id in events:
            story.feed.put(id, {"of": id})
        mine = SEND.replace("body:", "of: NAME, body:")
        wfs = {name: await story.deploy(acting(
            name=name, mutate=mine.replace("NAME", js(name)), next=TELL + COUNT)) for name in names}
        steps = Beside(story).steps
        await story.crash(point, nth=nth)
        assert nth < 8 or len(steps.tried) > 0, "one of three workflows has come to its third run"
        await story.run()
        await story.run(hours=1)
        assert Counter((e.params["of"], e.params["to"]) for e in story.world.effects) == Counter(
            (name, id) for name in names for id in events)
        for wf in wfs.values():
            assert await story.ids(wf, "out") == list(reversed(events))
            assert await story.ids(wf, "in", "consumed") == list(events)
            assert await story.keep.state(wf, "act") == {"count": len(events)}
            runs = [run for run in await story.runs(wf, "act") if run.status == "committed"]
            assert [prepared(run)["data"]["state"] for run in runs] == [
                None, *[{"count": n} for n in range(1, len(events))]]
            known = Counter(each.status for each in await story.keep.mutations(wf))
            assert known.pop("applied") == len(events)
            assert known.keys() <= {"failed"}, "what was on record and had not left"
        assert await story.keep.needs_you() == []
