"""Several quick steps share a worker and a message; whatever one of them does, the others are not harmed by it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from keepai.model.errors import HostFault, LimitExceeded, ScriptError, ScriptThrew, WorkerDied
from keepai.model.operations import Step
from keepai.runtime.base import Ended, Job, LogLine, Operation, Reply
from keepai.runtime.javascript import pool, step_session
from keepai.runtime.javascript.fork_client import Worker
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from keepai.runtime.javascript.worker_link import WorkerLink
from tests.runtime.forger import call, end
from tests.runtime.script_world import LIMITS, FakeHost, Stalling, children, job

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUMBERS = itertools.count()
LONG_S = 60.0


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a step counts as quick, and when one is overtaken, does not depend on the machine."""
    monkeypatch.setattr(step_session, "_QUICK_S", LONG_S)
    monkeypatch.setattr(pool, "_SLOW_S", LONG_S)


@pytest_asyncio.fixture(loop_scope="session")
async def one() -> AsyncIterator[JavaScriptRuntime]:
    """A runtime with one worker at most."""
    made = JavaScriptRuntime(workers_max=1)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def two() -> AsyncIterator[JavaScriptRuntime]:
    """A runtime with two workers at most."""
    made = JavaScriptRuntime(workers_max=2)
    yield made
    await made.close()


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs there are in each message to a worker."""
    sent, send = list[int](), WorkerLink.send

    def listen(link: WorkerLink, data: bytes) -> None:
        if count := data.count(b'{"t":"job"'):
            sent.append(count)
        send(link, data)

    monkeypatch.setattr(WorkerLink, "send", listen)
    return sent


async def practised(runtime: JavaScriptRuntime, body: str, step: Step = Step.PREPARE, **changes: object) -> Job:
    """A step that has been run, and was quick."""
    made = job(f"/* {next(NUMBERS)} */ {body}", step, args=("0",), **changes)
    await runtime.run(made, FakeHost())
    return made


def of(made: Job, arg: object) -> Job:
    return replace(made, args=(str(arg),))


def started(runtime: JavaScriptRuntime, made: Job, *hosts: FakeHost) -> list[asyncio.Task[Ended]]:
    """The step once for each host, numbered from 1, all asked for in the same turn of the loop."""
    return [asyncio.create_task(runtime.run(of(made, n), each)) for n, each in enumerate(hosts, 1)]


#: It stalls, or does not, as its host likes; with other arguments it does something else.
PEEK = "const got = await ctx.peek('t'); return one;"


# ---- together ---------------------------------------------------------------------------------------------


async def test_quick_steps_that_are_asked_for_at_once_travel_in_one_message(one, messages) -> None:
    made = await practised(one, "return one;")
    messages.clear()
    ended = await asyncio.gather(*started(one, made, *[FakeHost() for _ in range(5)]))
    assert [each.value for each in ended] == ["1", "2", "3", "4", "5"]
    assert messages == [5]


async def test_steps_that_come_while_others_are_at_work_go_out_together_afterwards(one, messages) -> None:
    made, stalling = await practised(one, PEEK), Stalling()
    messages.clear()
    [first] = started(one, made, stalling)
    await asyncio.wait_for(stalling.asked.wait(), 10)
    rest = [asyncio.create_task(one.run(of(made, n), FakeHost())) for n in range(2, 14)]
    await asyncio.sleep(0)
    stalling.go_on.set()
    assert [each.value for each in await asyncio.gather(first, *rest)] == [str(n) for n in range(1, 14)]
    assert messages == [1, 8, 4], "and no more than eight at once"


async def test_each_step_of_a_message_is_answered_by_its_own_host(one, messages) -> None:
    body = "ctx.log(`line ${one}`); const got = await ctx.peek('t', {limit: one}); ctx.log('end'); return [one, got];"
    made, hosts = await practised(one, body), [FakeHost() for _ in range(6)]
    messages.clear()
    ended = await asyncio.gather(*started(one, made, *hosts))
    assert messages == [6]
    assert [each.read() for each in ended] == [[n, ["t", {"limit": n}]] for n in range(1, 7)]
    assert [host.texts for host in hosts] == [[f"line {n}", "end"] for n in range(1, 7)]
    assert [[operation.args for operation in host.operations] for host in hosts] == [
        [("t", {"limit": n})] for n in range(1, 7)]


async def test_a_step_that_fails_does_not_trouble_those_behind_it(one, messages) -> None:
    made = await practised(one, "if (one === 2) throw new Error('two'); return one;")
    messages.clear()
    ended = await asyncio.gather(*started(one, made, *[FakeHost() for _ in range(3)]), return_exceptions=True)
    assert messages == [3]
    assert (ended[0], ended[2]) == (Ended("1"), Ended("3"))
    assert isinstance(ended[1], ScriptThrew)


async def test_a_host_that_fails_to_foresee_fails_its_own_step_alone(one, messages) -> None:
    def broken(_operation: Operation) -> Reply | None:
        raise HostFault("no ledger")

    made = await practised(one, "await ctx.peek('t'); return one;")
    hosts = [FakeHost(), FakeHost(foreseeing=broken), FakeHost()]
    ended = await asyncio.gather(*started(one, made, *hosts), return_exceptions=True)
    assert (ended[0], ended[2]) == (Ended("1"), Ended("3"))
    assert isinstance(ended[1], HostFault)


NOT_QUICK = {
    "was never run": None,
    "reads": ("await ctx.gmail.get(1);", Step.PREPARE),
    "reads, whoever answers": ("await ctx.gmail.search(1);", Step.PRODUCER),
    "begins an item": ("await ctx.withItem('a', 'A', async () => {});", Step.ROUTINE),
}


@pytest.mark.parametrize("what", NOT_QUICK)
async def test_a_step_that_is_not_known_to_be_quick_has_a_worker_for_itself(one, messages, what) -> None:
    known = NOT_QUICK[what]
    made = job(f"/* {next(NUMBERS)} */ return one;", args=("0",)) if known is None else await practised(one, *known)
    messages.clear()
    answers = {"withItem": lambda _: Reply.of({"isDone": False})}
    await asyncio.gather(*started(one, made, *[FakeHost(answers=answers) for _ in range(3)]))
    assert messages[0] == 1
    assert known is None or messages == [1, 1, 1]


async def test_a_step_that_took_long_has_a_worker_for_itself_the_next_time(one, messages, monkeypatch) -> None:
    made = await practised(one, "return one;")
    monkeypatch.setattr(step_session, "_QUICK_S", 0.0)
    await one.run(made, FakeHost())
    messages.clear()
    await asyncio.gather(*started(one, made, *[FakeHost() for _ in range(3)]))
    assert messages == [1, 1, 1]


async def test_a_quick_step_goes_to_the_worker_that_knows_its_script(two, messages) -> None:
    steps = [job(f"/* {next(NUMBERS)} */ return one;", args=("0",)) for _ in range(2)]
    stalling = Stalling()
    [held] = started(two, job("await ctx.gmail.get(1);"), stalling)
    await asyncio.wait_for(stalling.asked.wait(), 10)
    await two.run(steps[0], FakeHost())
    stalling.go_on.set()
    await held
    await two.run(steps[1], FakeHost())
    knowing = [[worker.knows(step) for step in steps] for worker in two._pool.workers]
    for _ in range(3):
        await asyncio.gather(*(two.run(step, FakeHost()) for step in steps * 3))
    assert [[worker.knows(step) for step in steps] for worker in two._pool.workers] == knowing


# ---- harm -------------------------------------------------------------------------------------------------


async def stalled(runtime: JavaScriptRuntime, made: Job, count: int = 3) -> tuple[Stalling, list[asyncio.Task[Ended]]]:
    """Steps of one message, the first of which waits until its host lets it go on."""
    stalling = Stalling()
    tasks = started(runtime, made, stalling, *[FakeHost() for _ in range(count - 1)])
    await asyncio.wait_for(stalling.asked.wait(), 10)
    return stalling, tasks


async def test_when_a_worker_dies_the_step_at_the_front_says_so_and_the_others_run_elsewhere(one, messages) -> None:
    made = await practised(one, PEEK)
    messages.clear()
    stalling, (first, *others) = await stalled(one, made)
    [worker] = one._pool.workers
    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(worker.ended, 10)
    stalling.go_on.set()
    with pytest.raises(WorkerDied):
        await first
    assert [await each for each in others] == [Ended("2"), Ended("3")]
    assert messages[0] == 3


async def test_a_step_that_was_heard_and_whose_worker_dies_is_a_death_as_ever(one) -> None:
    class Killing(FakeHost):
        def log(self, line: LogLine) -> None:
            os.kill(children(one)[0], signal.SIGKILL)

    made = await practised(one, "if (one === 1) { ctx.log('heard'); for (;;); } return one;")
    first, *others = started(one, made, Killing(), FakeHost(), FakeHost())
    with pytest.raises(WorkerDied, match="SIGKILL"):
        await first
    assert [await each for each in others] == [Ended("2"), Ended("3")]


async def test_a_step_that_breaks_a_limit_takes_none_of_the_others_with_it(one) -> None:
    made = await practised(one, "if (one === 2) for (;;); return one;", limits=replace(LIMITS, compute_s=0.2))
    ended = await asyncio.gather(*started(one, made, *[FakeHost() for _ in range(4)]), return_exceptions=True)
    assert isinstance(ended.pop(1), LimitExceeded)
    assert ended == [Ended("1"), Ended("3"), Ended("4")]


@pytest.mark.parametrize("which", [0, 1, 2, 3], ids=["at the front", "behind it", "the last", "not sent yet"])
async def test_cancelling_one_step_does_not_hurt_the_others(one, messages, which) -> None:
    made = await practised(one, PEEK)
    messages.clear()
    stalling, tasks = await stalled(one, made)
    tasks += [asyncio.create_task(one.run(of(made, n), FakeHost())) for n in (4, 5)]
    await asyncio.sleep(0)
    assert messages == [3]
    cancelled = tasks.pop(which)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    stalling.go_on.set()
    expected = [Ended(str(n)) for n in range(1, 6) if n != which + 1]
    assert await asyncio.wait_for(asyncio.gather(*tasks), 10) == expected
    assert len(children(one)) == 1


async def test_a_step_that_takes_long_holds_nobody_back_and_its_worker_is_thrown_away(two, monkeypatch) -> None:
    made = await practised(two, PEEK)
    [worker] = children(two)
    monkeypatch.setattr(pool, "_SLOW_S", 0.005)
    monkeypatch.setattr(pool, "_PATIENCE", 1)
    stalling, (first, *others) = await stalled(two, made)
    assert [await asyncio.wait_for(each, 10) for each in others] == [Ended("2"), Ended("3")]
    assert not first.done()
    assert worker in children(two)
    stalling.go_on.set()
    assert await first == Ended("1")
    await asyncio.wait_for(two.run(of(made, 4), FakeHost()), 10)
    assert worker not in children(two)


async def test_a_step_that_waits_for_the_outside_this_time_holds_nobody_back(two, messages) -> None:
    made = await practised(two, "if (one === 1) await ctx.gmail.get(1); return one;")
    messages.clear()
    _, (first, *others) = await stalled(two, made)
    assert messages[0] == 3
    assert [await asyncio.wait_for(each, 10) for each in others] == [Ended("2"), Ended("3")]
    assert not first.done()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_nobody_is_blamed_for_the_time_of_the_steps_before_it(one) -> None:
    # six steps of a quarter of a second in one message, each allowed 0.4 s and half a second of grace
    body = "const until = Date.now() + 250; while (one && Date.now() < until); return one;"
    made = await practised(one, body, limits=replace(LIMITS, compute_s=0.4))
    ended = await asyncio.gather(*started(one, made, *[FakeHost() for _ in range(6)]))
    assert [each.value for each in ended] == [str(n) for n in range(1, 7)]


class Liar:
    """A worker that hears jobs and answers with what the test wants; the jobs' numbers count from 1."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self.killed = asyncio.Event()

    async def fork(self, made: Job, jobs: int) -> Worker:
        """A worker that knows the script, and speaks when it has this many jobs."""
        ours, self._sock = socket.socketpair()
        self._sock.setblocking(False)
        worker = Worker(2**22 + 1, await WorkerLink.over(ours), asyncio.get_running_loop().create_future())
        worker.message(made, 0, None)
        self._speaking = asyncio.create_task(self._speak(jobs))
        return worker

    async def _speak(self, jobs: int) -> None:
        loop, heard = asyncio.get_running_loop(), b""
        while heard.count(b'{"t":"job"') < jobs:
            heard += await loop.sock_recv(self._sock, 65536)
        await loop.sock_sendall(self._sock, self._said)
        while await loop.sock_recv(self._sock, 65536):
            pass
        self.killed.set()
        self._sock.close()


LIES = {
    "a publication": call('"t"', '{"messageId":"x"}', name="publish", n=2),
    "an end": end("7", n=2),
    "an end after a call of its own": call('"t"', name="peek", n=1) + end("7", n=2),
    "an end, and one of its own": end("7", n=2) + end("1", n=1),
    "the end of the last": end("7", n=3),
}


@pytest.mark.parametrize("said", LIES.values(), ids=LIES.keys())
async def test_a_worker_that_speaks_for_a_step_behind_is_killed_and_that_step_runs_elsewhere(
    one, said,
) -> None:
    made = await practised(one, "ctx.publish('t', {messageId: 'mine'}); return one;", Step.NEXT)
    liar, hosts = Liar(said), [FakeHost() for _ in range(3)]
    one._kill(one._pool.workers[0])
    one._pool._queues = [pool.WorkerQueue(await liar.fork(made, 3), one._pool)]
    one._pool._numbers = itertools.count(1)
    first, *others = await asyncio.gather(*started(one, made, *hosts), return_exceptions=True)
    assert isinstance(first, ScriptError)
    assert others == [Ended("2"), Ended("3")]
    for host in hosts[1:]:
        assert [operation.args for operation in host.operations] == [("t", {"messageId": "mine"})]
    await asyncio.wait_for(liar.killed.wait(), 10)


async def test_a_step_whose_worker_died_while_idle_goes_to_another_that_knows_its_script(two) -> None:
    """The dead worker is noticed while a worker for the step is chosen, and there is another one for it."""
    made, hosts = job("await ctx.peek('t'); return one;", Step.PREPARE, args=("0",)), (Stalling(), Stalling())
    tasks = started(two, made, *hosts)
    for host in hosts:  # both are at work at once, so there are two workers
        await asyncio.wait_for(host.asked.wait(), 10)
    for host in hosts:
        host.go_on.set()
    await asyncio.gather(*tasks)
    first, second = two._pool.workers
    assert [worker.knows(made) for worker in (first, second)] == [True, True]
    home = two._pool._homes[made.source].worker
    os.kill(home.pid, signal.SIGKILL)
    await asyncio.wait_for(asyncio.shield(home.ended), 10)
    assert await asyncio.wait_for(two.run(of(made, 5), FakeHost()), 10) == Ended("5")


# ---- how many workers -------------------------------------------------------------------------------------


async def test_steps_that_wait_for_the_outside_get_workers_beyond_the_processors_and_others_wait_in_line(
    monkeypatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(pool, "_IDLE_S", 0.01)
    runtime, hosts = JavaScriptRuntime(workers_max=3), [Stalling() for _ in range(5)]
    try:
        tasks = started(runtime, job("return await ctx.gmail.get(one);"), *hosts)
        for host in hosts[:3]:
            await asyncio.wait_for(host.asked.wait(), 10)
        assert len(children(runtime)) == 3
        assert not any(host.asked.is_set() for host in hosts[3:])
        hosts[1].go_on.set()
        await asyncio.wait_for(hosts[3].asked.wait(), 10)
        assert not hosts[4].asked.is_set(), "who came first has the first that is free"
        for host in hosts:
            host.go_on.set()
        assert await asyncio.gather(*tasks) == [Ended("1")] * 5
        there = {worker.ended for worker in runtime._pool.workers}
        async with asyncio.timeout(10):
            while len(there) > 1:
                _, there = await asyncio.wait(there, return_when=asyncio.FIRST_COMPLETED)
        assert await runtime.run(job("return 1;"), FakeHost()) == Ended("1")
    finally:
        await runtime.close()


async def test_steps_that_only_compute_get_as_many_workers_as_there_are_processors(monkeypatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    runtime = JavaScriptRuntime(workers_max=8)
    try:
        bodies = [job(f"/* {next(NUMBERS)} */ return 1;") for _ in range(12)]
        await asyncio.gather(*(runtime.run(each, FakeHost()) for each in bodies))
        assert len(children(runtime)) == 2
    finally:
        await runtime.close()


async def test_a_step_in_line_that_is_cancelled_makes_room_for_the_next(one) -> None:
    stalling = Stalling()
    [first] = started(one, job("return await ctx.gmail.get(1);"), stalling)
    await asyncio.wait_for(stalling.asked.wait(), 10)
    second, third = [asyncio.create_task(one.run(job(f"return {n};"), FakeHost())) for n in (2, 3)]
    await asyncio.sleep(0)
    second.cancel()
    stalling.go_on.set()
    assert await asyncio.gather(first, third) == [Ended("1"), Ended("3")]
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_a_runtime_that_is_closed_refuses_the_steps_that_wait(messages) -> None:
    runtime = JavaScriptRuntime(workers_max=1)
    made = await practised(runtime, PEEK)
    messages.clear()
    stalling, (first, *behind) = await stalled(runtime, made)
    waiting = asyncio.create_task(runtime.run(of(made, 4), FakeHost()))
    unknown = asyncio.create_task(runtime.run(job("return 5;"), FakeHost()))
    await asyncio.sleep(0)
    await runtime.close()
    stalling.go_on.set()
    ended = await asyncio.gather(first, *behind, waiting, unknown, return_exceptions=True)
    assert not any(isinstance(each, Ended) for each in ended)
    assert all(isinstance(each, HostFault) and "closed" in each.message for each in ended[1:])
