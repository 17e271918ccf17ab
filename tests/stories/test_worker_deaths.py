"""A script's worker process that dies, or its fork server: the step is run again by itself, and nobody is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from keepai.model.errors import WorkerDied
from keepai.runtime.base import Ended, Job, LogLine, Operation, Reply, StepHost
from keepai.runtime.javascript import fork_client
from tests.harness import POLL, Story, consumer, producer, take_all, workflow
from tests.routines import each, items, routine, sent

#: Every step says where it is; `mutate` and `next` are not tried ahead then.
FLOW = workflow(
    producers={"poll": producer("ctx.log('in producer');" + POLL)},
    consumers={"take": consumer(
        prepare="ctx.log('in prepare');" + take_all(), publishes=("out",),
        mutate='ctx.log("in mutate"); await ctx.gmail.send({ to: "a@example.com" });',
        next='await ctx.publish("out", { messageId: "o", payload: {} }); ctx.log("in next");',
    )},
)


class Deadly:
    """The real runtime, in which a process is killed at a word of the script, so many times."""

    def __init__(self, real: Any, word: str, times: int, kill: Callable[[Any], None]) -> None:
        self.real, self.word, self.left, self._kill = real, word, times, kill

    async def run(self, job: Job, host: StepHost) -> Ended:
        left = self.left
        ended = await self.real.run(job, _Listening(host, self))
        if self.left < left:  # the step was quicker than its end
            raise WorkerDied("The worker died (signal SIGKILL) as it said its last word.")
        return ended

    async def load(self, *args: Any) -> None:
        await self.real.load(*args)

    async def close(self) -> None:
        await self.real.close()

    def heard(self, word: str) -> None:
        if word == self.word and self.left > 0:
            self.left -= 1
            self._kill(self.real)


class _Listening:
    def __init__(self, host: StepHost, deadly: Deadly) -> None:
        self._host, self._deadly = host, deadly

    async def answer(self, operation: Operation) -> Reply:
        reply = await self._host.answer(operation)
        self._deadly.heard(operation.name)
        return reply

    async def foresee(self, operation: Operation) -> Reply | None:
        return await self._host.foresee(operation)

    def used(self, operation: Operation, reply: Reply) -> None:
        self._host.used(operation, reply)
        self._deadly.heard(operation.name)

    def log(self, line: LogLine) -> None:
        self._host.log(line)
        self._deadly.heard(line.text)


def the_worker(runtime: Any) -> None:
    for worker in runtime._pool.workers:
        os.kill(worker.pid, signal.SIGKILL)


def the_fork_server(runtime: Any) -> None:
    runtime._server.process.kill()


def both(runtime: Any) -> None:
    the_worker(runtime)
    the_fork_server(runtime)


def deadly(story: Story, word: str, times: int = 1, kill: Callable[[Any], None] = the_worker) -> Deadly:
    made = story.keep.parts.runtime = Deadly(story.keep.parts.runtime, word, times, kill)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("kill", [the_worker, the_fork_server, both])
@pytest.mark.parametrize("word", [
    "in producer", "feed.list", "registerInput", "publish", "in prepare", "peek", "in mutate", "in next",
])
async def test_a_step_whose_worker_dies_is_run_again_and_counts_once(
    story: Story, word: str, kill: Callable[[Any], None],
) -> None:
    story.feed.put("a")
    story.feed.put("b")
    wf = await story.deploy(FLOW)
    killer = deadly(story, word, times=2, kill=kill)
    await story.run()
    assert killer.left == 0
    assert await story.keep.needs_you(wf) == []
    assert {run.status for run in await story.runs(wf)} == {"committed"}
    assert await story.ids(wf, "in") == ["a", "b"]
    assert await story.ids(wf, "out") == ["o"]
    assert len(sent(story)) == 1


@pytest.mark.parametrize("kill", [the_worker, the_fork_server])
@pytest.mark.parametrize("word", ["feed.list", "withItem", "sheets.appendRow", "gmail.send"])
async def test_a_routine_whose_worker_dies_is_replayed_at_once_and_sends_nothing_twice(
    story: Story, word: str, kill: Callable[[Any], None],
) -> None:
    story.feed.put("a")
    story.feed.put("b")
    wf = await story.deploy(routine())
    killer = deadly(story, word, times=3, kill=kill)
    await story.run()
    assert killer.left == 0 or word != "withItem"
    assert await story.keep.needs_you(wf) == []
    assert await items(story, wf) == {"a": "done", "b": "done"}
    assert len(sent(story)) == len(sent(story, "sheets.appendRow")) == 2


async def test_that_a_step_was_run_again_is_noted_with_the_run(story: Story) -> None:
    story.feed.put("a")
    wf = await story.deploy(FLOW)
    deadly(story, "in producer")
    await story.run()
    [noted] = story.warnings((await story.runs(wf, "poll"))[0])
    assert "SIGKILL" in noted
    assert "run again" in noted


async def test_a_script_that_kills_its_worker_every_time_ends_as_a_failure_that_says_so(story: Story) -> None:
    story.feed.put("a")
    work = 'if (ctx.item.isDone) return; await ctx.gmail.send({ to: "a@example.com" });'
    wf = await story.deploy(routine(each(work + 'ctx.log("die"); for (;;);')))
    killer = deadly(story, "die", times=1000)
    await story.run()
    [asked] = await story.keep.needs_you(wf)
    run = await story.last(wf)
    assert (asked.kind, run.status) == ("internal", "failed:internal")
    assert run.error is not None
    assert "worker process died" in run.error.message
    assert "SIGKILL" in run.error.message
    assert 1000 - killer.left <= 20
    assert len(sent(story)) == 1
    killer.left = 0
    await story.deploy(routine(each(work)), workflow_id=wf)
    await story.keep.retry(run.id)
    await story.run()
    assert await items(story, wf) == {"a": "done"}
    assert len(sent(story)) == 1


async def test_a_step_that_is_wanted_again_later_has_all_its_tries(story: Story) -> None:
    wf = await story.deploy(FLOW)
    for turn in range(4):
        story.feed.put(f"i{turn}")
        killer = deadly(story, "in producer", times=8)
        await story.run(minutes=5)
        assert killer.left == 0
        story.keep.parts.runtime = killer.real
    assert await story.keep.needs_you(wf) == []


async def test_a_fork_server_that_dies_as_it_starts_asks_nobody(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = fork_client._spawn, []

    def spawn(descriptor: int) -> Any:
        started.append(descriptor)
        return subprocess.Popen([sys.executable, "-c", ""]) if len(started) <= 3 else real(descriptor)

    story.feed.put("a")
    wf = await story.deploy(FLOW)
    await story.keep.parts.runtime.protections()  # type: ignore[attr-defined]
    deadly(story, "in producer", kill=the_fork_server)
    monkeypatch.setattr(fork_client, "_spawn", spawn)
    await story.run()
    assert len(started) == 4
    assert await story.keep.needs_you(wf) == []
    assert await story.ids(wf, "in") == ["a"]
