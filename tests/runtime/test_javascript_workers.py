"""Worker processes: reuse, death, cancelling, forged frames; a worker is trusted with nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest
import pytest_asyncio

from keepai.model.errors import (
    HostFault,
    KeepError,
    LimitExceeded,
    PhaseViolation,
    ScriptError,
    ScriptThrew,
    WorkerDied,
)
from keepai.model.operations import Step
from keepai.runtime.base import Ended, LogLine, Operation, Reply
from keepai.runtime.javascript import fork_client, step_session
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.runtime.forger import Forger, call, forged
from tests.runtime.script_world import LIMITS, FakeHost, Stalling, children, job

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def own_runtime() -> AsyncIterator[JavaScriptRuntime]:
    made = JavaScriptRuntime(workers_max=1)
    yield made
    await made.close()


# ---- the pool ---------------------------------------------------------------------------------------------


async def test_a_script_goes_to_a_free_worker_that_knows_it() -> None:
    runtime, steps = JavaScriptRuntime(workers_max=2), [job("return 1"), job("return 2")]
    try:
        await asyncio.gather(*(runtime.run(step, FakeHost()) for step in steps))
        for step in steps * 2:
            await runtime.run(step, FakeHost())
        known = [script for worker in runtime._pool.workers for script in worker.scripts]
        assert len(known) == len(set(known)) == 2, "no worker had to load what another knew"
    finally:
        await runtime.close()


async def stopped(runtime: JavaScriptRuntime, compute_s: float) -> tuple[int, asyncio.Task[Ended]]:
    """A step whose worker gets no processor, and the worker."""
    limits = replace(LIMITS, compute_s=compute_s)
    await runtime.run(job("return 1", limits=limits), FakeHost())
    [worker] = children(runtime)
    os.kill(worker, signal.SIGSTOP)  # before it has the step, which it would end in less than a moment
    return worker, asyncio.create_task(runtime.run(job("return 2", limits=limits), FakeHost()))


async def test_a_script_that_did_not_get_the_processor_is_not_blamed_for_the_time(own_runtime) -> None:
    worker, running = await stopped(own_runtime, 0.4)
    await asyncio.sleep(2.0)  # the worker's limit and the host's grace, twice over
    assert not running.done()
    os.kill(worker, signal.SIGCONT)
    assert (await running).value == "2"


async def test_a_worker_that_says_nothing_and_computes_nothing_is_killed_in_the_end(own_runtime, monkeypatch) -> None:
    monkeypatch.setattr(step_session, "_PATIENCE", 2)
    _, running = await stopped(own_runtime, 0.2)
    with pytest.raises(LimitExceeded):
        await running


async def test_the_time_that_its_host_takes_over_a_publication_is_not_the_scripts(own_runtime, monkeypatch) -> None:
    monkeypatch.setattr(step_session, "_PATIENCE", 1)
    slow, limits = Stalling(), replace(LIMITS, compute_s=0.1)
    publishing = job("ctx.publish('t', 1); return 2;", Step.NEXT, limits=limits)
    running = asyncio.create_task(own_runtime.run(publishing, slow))
    await asyncio.wait_for(slow.asked.wait(), 10)
    await asyncio.sleep(1.5)  # the worker's limit, the host's grace and its patience, twice over
    assert not running.done()
    slow.go_on.set()
    assert (await running).value == "2"


async def test_a_clean_worker_is_used_again(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    first = children(own_runtime)
    with contextlib.suppress(KeepError):
        await own_runtime.run(job("throw 1;"), host)
    await own_runtime.run(job("return 1;"), host)
    assert children(own_runtime) == first
    assert len(first) == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has it")
async def test_a_worker_does_not_interrupt_its_host(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    assert {os.sched_getscheduler(pid) for pid in children(own_runtime)} == {os.SCHED_BATCH}


async def test_a_worker_that_met_a_limit_is_thrown_away(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    first = children(own_runtime)
    with pytest.raises(LimitExceeded):
        await own_runtime.run(job("for (;;);", limits=replace(LIMITS, compute_s=0.05)), host)
    await own_runtime.run(job("return 1;"), host)
    assert first[0] not in children(own_runtime)


async def test_jobs_wait_when_all_workers_are_busy(own_runtime, host) -> None:
    stalling = Stalling()
    first = asyncio.create_task(own_runtime.run(job("return await ctx.gmail.get(1);"), stalling))
    await asyncio.wait_for(stalling.asked.wait(), 10)
    second = asyncio.create_task(own_runtime.run(job("return 2;"), host))
    stalling.go_on.set()
    assert [await first, await second] == [Ended("1"), Ended("2")]
    assert len(children(own_runtime)) == 1


async def test_two_workers_run_two_jobs_at_once(runtime) -> None:
    hosts = [Stalling(), Stalling()]
    tasks = [asyncio.create_task(runtime.run(job("return ctx.peek('t');", Step.PREPARE), host)) for host in hosts]
    for each in hosts:
        await asyncio.wait_for(each.asked.wait(), 5)
    for each in hosts:
        each.go_on.set()
    assert await asyncio.gather(*tasks) == [Ended("1"), Ended("1")]


CALLS = {
    "a read": ("await ctx.gmail.get(1);", Step.PRODUCER),
    "a call answered at once": ("ctx.peek('t');", Step.PREPARE),
    "a call that is only told": ("ctx.publish('t', {});", Step.PRODUCER),
}


@pytest.mark.parametrize(("call", "step"), CALLS.values(), ids=CALLS.keys())
async def test_a_cancelled_run_kills_its_worker_and_cancels_its_calls(own_runtime, host, call, step) -> None:
    stalling = Stalling()
    task = asyncio.create_task(own_runtime.run(job(call, step), stalling))
    await asyncio.wait_for(stalling.asked.wait(), 10)
    (worker,) = children(own_runtime)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await own_runtime.run(job("return 1;"), host) == Ended("1")
    assert worker not in children(own_runtime)


async def test_a_closed_runtime_leaves_no_process_behind(host) -> None:
    made = JavaScriptRuntime(workers_max=1)
    await made.run(job("return 1;"), host)
    assert made._server is not None
    server, workers = made._server.process.pid, children(made)
    await made.close()
    assert not psutil.pid_exists(server)
    await asyncio.to_thread(psutil.wait_procs, [psutil.Process(p) for p in workers if psutil.pid_exists(p)], 5)
    assert not any(psutil.pid_exists(pid) for pid in workers)
    with pytest.raises(HostFault):
        await made.run(job("return 1;"), host)


async def test_an_idle_worker_uses_no_processor_time(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    (worker,) = children(own_runtime)
    process = psutil.Process(worker)
    switches = process.num_ctx_switches().voluntary
    await asyncio.sleep(0.25)
    assert process.num_ctx_switches().voluntary - switches <= 4


# ---- death ------------------------------------------------------------------------------------------------


async def test_a_worker_that_died_while_idle_is_replaced_unseen(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    (worker,) = own_runtime._pool.workers
    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(worker.ended, 10)
    assert await own_runtime.run(job("return 2;"), host) == Ended("2")


async def test_a_worker_that_dies_in_a_step_is_told_apart_from_a_fault_and_replaced(own_runtime, host) -> None:
    class Killing(FakeHost):
        def log(self, line: LogLine) -> None:
            os.kill(children(own_runtime)[0], signal.SIGKILL)

    with pytest.raises(WorkerDied, match="SIGKILL"):
        await own_runtime.run(job("ctx.log('on'); for (;;);"), Killing())
    assert await own_runtime.run(job("return 3;"), host) == Ended("3")


async def test_a_worker_that_dies_after_an_answer_is_told_apart_as_well(own_runtime) -> None:
    stalling = Stalling()
    task = asyncio.create_task(own_runtime.run(job("await ctx.gmail.get(1);"), stalling))
    await asyncio.wait_for(stalling.asked.wait(), 10)
    os.kill(children(own_runtime)[0], signal.SIGKILL)
    with pytest.raises(WorkerDied):
        await task
    assert len(stalling.operations) == 1


async def test_a_worker_that_dies_while_a_call_is_answered_at_once_is_told_apart_as_well(own_runtime) -> None:
    stalling = Stalling()
    task = asyncio.create_task(own_runtime.run(job("ctx.peek('t');", Step.PREPARE), stalling))
    await asyncio.wait_for(stalling.asked.wait(), 10)
    os.kill(children(own_runtime)[0], signal.SIGKILL)
    stalling.go_on.set()
    with pytest.raises(WorkerDied):
        await task
    assert len(stalling.operations) == 1


async def test_a_worker_that_dies_after_a_call_was_told_is_told_apart_as_well(own_runtime) -> None:
    stalling = Stalling()
    task = asyncio.create_task(own_runtime.run(job("ctx.publish('t', {}); ctx.log('sent'); for (;;);"), stalling))
    await asyncio.wait_for(stalling.asked.wait(), 10)
    os.kill(children(own_runtime)[0], signal.SIGKILL)
    stalling.go_on.set()
    with pytest.raises(WorkerDied):
        await task
    assert len(stalling.operations) == 1


@pytest.mark.parametrize(("call", "step"), CALLS.values(), ids=CALLS.keys())
async def test_an_answer_that_the_host_cuts_off_itself_is_its_fault(own_runtime, host, call, step) -> None:
    def cut_off(_operation: Operation) -> Reply:
        raise asyncio.CancelledError

    host.answers = {"gmail.get": cut_off, "peek": cut_off, "publish": cut_off}
    with pytest.raises(HostFault, match="cut off"):
        await own_runtime.run(job(call, step), host)
    assert await own_runtime.run(job("return 1;"), FakeHost()) == Ended("1")


@pytest.mark.parametrize(("name", "calls"), [("peek", 50), ("gmail.get", 4)])
async def test_a_worker_that_reads_no_answer_is_killed_after_its_time(host, name, calls) -> None:
    host.answers[name] = lambda operation: Reply.of("x" * (1 << 20))
    forger, said = Forger(), b"".join(call(id=i, name=name) for i in range(calls))
    with pytest.raises(LimitExceeded, match=r"0\.1 s"):
        await forger.run(said, job("", Step.PREPARE, limits=replace(LIMITS, compute_s=0.1)), host, reads=False)
    assert forger.killed
    assert len(host.operations) < 5


async def test_a_new_fork_server_replaces_a_dead_one(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    assert own_runtime._server is not None
    (worker,) = own_runtime._pool.workers
    os.kill(own_runtime._server.process.pid, signal.SIGKILL)
    await asyncio.wait([worker.ended], timeout=10)
    assert await own_runtime.run(job("return 2;"), host) == Ended("2")


async def test_a_fork_server_whose_death_nobody_has_noticed_yet_is_replaced_as_well(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    server = own_runtime._server
    assert server is not None
    own_runtime._pool._queues.clear()
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert server.alive, "its end of the socket was not read yet"
    assert await own_runtime.run(job("return 2;"), host) == Ended("2")


async def test_a_fork_server_that_dies_as_it_starts_counts_as_a_death_and_another_is_tried(
    own_runtime, host, monkeypatch,
) -> None:
    real, started = fork_client._spawn, []

    def spawn(descriptor: int) -> subprocess.Popen[bytes]:
        started.append(descriptor)
        return subprocess.Popen([sys.executable, "-c", ""]) if len(started) == 1 else real(descriptor)

    monkeypatch.setattr(fork_client, "_spawn", spawn)
    with pytest.raises(WorkerDied, match="as it started"):
        await own_runtime.run(job("return 1;"), host)
    assert await own_runtime.run(job("return 2;"), host) == Ended("2")


async def test_workers_and_server_end_when_the_host_is_killed(tmp_path) -> None:
    program = (
        "import asyncio, sys\n"
        "from keepai.runtime.javascript.runtime import JavaScriptRuntime\n"
        "async def main():\n"
        "    runtime = JavaScriptRuntime(1)\n"
        "    await runtime.protections()\n"
        "    print(runtime._server.process.pid, runtime._pool.workers[0].pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert child.stdout is not None
    pids = [int(word) for word in (await child.stdout.readline()).split()]
    processes = [psutil.Process(pid) for pid in pids]
    child.kill()
    await child.wait()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, processes, 5)
    assert len(gone) == 2
    assert not alive


async def test_every_protection_is_reported(runtime) -> None:
    report = await runtime.protections()
    assert len(report) >= 9
    assert all(protection.active or protection.why for protection in report)


async def test_a_worker_holds_no_environment_and_only_its_own_descriptors(own_runtime, host) -> None:
    if sys.platform != "linux":
        pytest.skip("looks into /proc")
    await own_runtime.run(job("return 1;"), host)
    (worker,) = children(own_runtime)
    if os.geteuid() != 0:
        pytest.skip("a worker that is not dumpable hides its descriptors from its own user")
    targets = [os.readlink(f"/proc/{worker}/fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd")]
    assert all(t == "/dev/null" or t.endswith(".cwasm") or "memfd" in t or t.startswith("socket:") for t in targets)
    assert sum(t.startswith("socket:") for t in targets) == 1


# ---- forged frames ----------------------------------------------------------------------------------------


async def test_a_worker_cannot_make_more_calls_than_a_script(host) -> None:
    said = b"".join(call(id=i) for i in range(6))
    with pytest.raises(LimitExceeded, match="limit of 5"):
        await Forger().run(said, job("", limits=replace(LIMITS, calls_max=5)), host)
    assert len(host.operations) <= 5


async def test_a_worker_cannot_begin_more_items_than_a_script(host) -> None:
    said = b"".join(call('"a"', '"A"', '"begin"', id=i, name="withItem") for i in range(9))
    with pytest.raises(LimitExceeded, match="limit of 2"):
        await Forger().run(said, job("", Step.ROUTINE, limits=replace(LIMITS, items_max=2)), host)
    assert len(host.operations) <= 4


async def test_a_worker_cannot_do_what_its_step_does_not_allow(host) -> None:
    with pytest.raises(PhaseViolation):
        await Forger().run(call(name="gmail.send"), job("", Step.PREPARE), host)
    assert not host.operations


async def test_a_worker_that_says_nothing_is_killed_after_its_time(host) -> None:
    forger = Forger()
    with pytest.raises(LimitExceeded, match=r"0\.1 s"):
        await forger.run(b"", job("", limits=replace(LIMITS, compute_s=0.1)), host)
    assert forger.killed


async def test_the_message_of_a_failure_is_cut_and_made_sound(host) -> None:
    frame = forged("fail", code="script_threw", message="\ud800" + "x" * 10_000, at=["a", -1])
    with pytest.raises(ScriptThrew) as caught:
        await Forger().run(frame, job(""), host)
    assert len(caught.value.message) <= 4000
    assert caught.value.at is None
    json.dumps(caught.value.message, ensure_ascii=False).encode()


async def test_an_answer_to_a_step_that_has_ended_does_not_reach_the_next(own_runtime, host) -> None:
    async def late(operation: Operation) -> Reply:
        await asyncio.sleep(0)
        return Reply.of("late")

    host.answers["gmail.get"] = late
    body = "for (let i = 0; i < 5; i++) ctx.gmail.get(i); const d = Date.now(); while (Date.now() < d + 20); throw 1;"
    for _ in range(5):
        with pytest.raises(ScriptError):
            await own_runtime.run(job(body), host)
        ended = await own_runtime.run(job("return await Promise.all([1, 2, 3].map((i) => ctx.gmail.search(i)));"), host)
        assert ended == Ended("[[1],[2],[3]]")
    assert len(children(own_runtime)) == 1


async def test_a_log_that_fails_ends_the_run_and_its_worker(own_runtime, host) -> None:
    class Broken(FakeHost):
        def log(self, line: LogLine) -> None:
            raise HostFault("disk full")

    with pytest.raises(HostFault, match="disk full"):
        await own_runtime.run(job("console.log(1); for (;;);"), Broken())
    assert await own_runtime.run(job("return 1;"), host) == Ended("1")


async def test_cancelling_while_a_worker_starts_confuses_nobody(own_runtime, host) -> None:
    await own_runtime.run(job("return 1;"), host)
    for _ in range(3):
        own_runtime._kill(own_runtime._pool.workers[0])
        task = asyncio.create_task(own_runtime.run(job("return 1;"), host))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await own_runtime.run(job("return 2;"), host) == Ended("2")
