# ruff: noqa: E501 (an attack is read best on one line)
"""Hostile scripts in the real sandbox: each ends within its limits, does nothing else, and harms no later step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import psutil

from keepai.model.errors import LimitExceeded, PhaseViolation, ScriptError
from keepai.model.operations import ALLOWED, Step
from keepai.runtime.base import Ended, Job, Limits
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.attack.base import Area, Attack, Broken, Planted, must
from tests.attack.hostile_scripts import BEFORE, COMPUTE_S, HOSTILE, LEAKS, TIME, Fails, Returns
from tests.runtime import script_world
from tests.runtime.script_world import FakeHost, children, job, value

LIMITS = Limits(memory_bytes=24 << 20, calls_max=50, message_bytes_max=256 << 10, log_bytes_max=4096, compute_s=2.0)
GRACE_S = 1.0  # of processor time beyond the limit: a worker that is ended and a new one


@dataclass
class Sandbox:
    """A runtime, and what its workers have used."""

    runtime: JavaScriptRuntime

    async def run(self, made: Job, host: FakeHost) -> Ended | ScriptError:
        """How a step ended."""
        try:
            return await self.runtime.run(made, host)
        except ScriptError as error:
            return error

    def processor_s(self) -> float:
        """What all workers have used, those that are gone and those that are there."""
        assert self.runtime._server is not None
        server = psutil.Process(self.runtime._server.process.pid)
        while True:  # until none goes while its time is read: it would be counted twice or not at all
            workers = server.children()
            with contextlib.suppress(psutil.NoSuchProcess):
                there, gone = [worker.cpu_times() for worker in workers], server.cpu_times()
                if server.children() == workers:
                    return sum((t.user + t.system for t in there), gone.children_user + gone.children_system)

    async def harmless(self) -> None:
        """A plain script still runs."""
        ended = await self.run(job("return 1;"), FakeHost())
        must(ended == Ended("1"), f"the next script did not run: {ended!r}")

    async def bounded(self, made: Job, host: FakeHost) -> Ended | ScriptError:
        """How a step ended, which took no more than its limits allow."""
        await self.runtime.protections()  # a worker that has to be started first is not the script's time
        begun, used_s = time.monotonic(), self.processor_s()
        outcome = await self.run(made, host)
        took_s, compute_s = self.processor_s() - used_s, made.limits.compute_s
        must(took_s < compute_s + GRACE_S, f"it used {took_s:.1f} s of processor time, of {compute_s} s")
        must(time.monotonic() - begun < 10 * compute_s + 20, "it held its worker for longer than it may")
        return outcome


@asynccontextmanager
async def place(_folder: Path) -> AsyncIterator[Sandbox]:
    runtime = JavaScriptRuntime(workers_max=2)
    try:
        yield Sandbox(runtime)
    finally:
        await runtime.close()


def attacks(sandbox: Sandbox) -> Iterator[Attack]:
    for name in HOSTILE:
        yield Attack(f"a hostile script: {name}", lambda name=name: _hostile(sandbox, name))
    for name, body in LEAKS.items():
        yield Attack(f"a step leaves {name} for the next step", lambda body=body: _leaks(sandbox, body))
    for step in Step:
        if step not in (Step.MUTATE, Step.ROUTINE):  # a routine may send inside an item, which the engine judges
            yield Attack(f"a script sends mail in the step {step} and catches the refusal",
                         lambda step=step: _out_of_turn(sandbox, step))
    yield Attack("a script sends a second mail in mutate", lambda: _second_mail(sandbox))
    yield Attack("a worker holds a key of the host's environment or a descriptor of its files",
                 lambda: _inherited(sandbox))


async def _hostile(sandbox: Sandbox, name: str) -> None:
    body, expected = HOSTILE[name]
    at_time = isinstance(expected, Fails) and expected.error in (LimitExceeded, ScriptError) and any(
        word in TIME.words[0] for word in expected.words)
    limits = replace(LIMITS, compute_s=COMPUTE_S) if at_time else LIMITS
    outcome = await sandbox.bounded(job(body, before=BEFORE.get(name, ""), limits=limits), FakeHost())
    if isinstance(expected, Returns):
        must(isinstance(outcome, Ended), f"it ended in {outcome!r}")
        assert isinstance(outcome, Ended)
        must(value(outcome.value) == expected.value, f"it returned {outcome.value!r:.200}")
    else:
        assert isinstance(expected, Fails)
        must(isinstance(outcome, expected.error), f"it ended with {outcome!r:.200}")
        assert isinstance(outcome, ScriptError)
        must(any(word in outcome.message for word in expected.words), f"it ended with {outcome!r:.200}")
    await sandbox.harmless()


async def _leaks(sandbox: Sandbox, body: str) -> None:
    look = "return [typeof globalThis.leak, typeof {}.leak, leak, Date.now() > 1e12, Math.random() < 1, JSON.parse('1')];"
    before = "let leak = 0;\n"
    await sandbox.runtime.run(job(body, before=before), FakeHost())
    ended = await sandbox.runtime.run(job(look, Step.PREPARE, before=before), FakeHost())
    must(value(ended.value) == ["undefined", "undefined", 0, True, True, 1], f"the next step saw {ended.value}")


_CAUGHT = "try { await %s; } catch (e) { ctx.log('caught'); } finally { ctx.log('after'); } ctx.log('on');"


async def _out_of_turn(sandbox: Sandbox, step: Step) -> None:
    host = FakeHost()
    outcome = await sandbox.run(job(_CAUGHT % "ctx.gmail.send({to: 'x'})", step), host)
    must(isinstance(outcome, PhaseViolation), f"the step ended with {outcome!r:.200}")
    must("gmail.send" not in host.names, "the host was asked to send")
    must(not host.texts, f"the script went on: {host.texts}")


async def _second_mail(sandbox: Sandbox) -> None:
    host = FakeHost()
    body = _CAUGHT % "ctx.gmail.send({to: 'x'})" + "await ctx.gmail.send({to: 'y'});"
    outcome = await sandbox.run(job(body, Step.MUTATE, fixed=script_world.fixed()), host)
    must(isinstance(outcome, Ended), f"the step ended with {outcome!r:.200}")
    assert isinstance(outcome, Ended)
    must(outcome.mutation is not None and list(outcome.mutation.args) == [{"to": "x"}], "another call was handed over")
    must(not host.texts and host.names == [], f"the script went on: {host.names} {host.texts}")


async def _inherited(sandbox: Sandbox) -> None:
    if sys.platform != "linux":
        return  # there is no /proc to look into
    with patch.dict(os.environ, {"KEEP_PASSPHRASE": "canary-5ecret"}):
        runtime = JavaScriptRuntime(workers_max=1)
        try:
            await runtime.run(job("return 1;"), FakeHost())
            for pid in children(runtime):
                await asyncio.to_thread(_look_into, pid)
        finally:
            await runtime.close()


def _look_into(pid: int) -> None:
    try:
        held = Path(f"/proc/{pid}/environ").read_bytes()
        targets = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except PermissionError:
        return  # a worker is not dumpable, so its own user cannot look: nor can another worker
    must(b"canary" not in held, "its environment has the passphrase")
    own = ("/dev/null", "socket:")
    odd = [each for each in targets if not each.startswith(own) and not each.endswith(".cwasm") and "memfd" not in each]
    must(not odd and sum(each.startswith("socket:") for each in targets) == 1, f"it holds {targets}")


def drawn(sandbox: Sandbox, chance: Random) -> Attack:
    """Some of the hostile scripts as one, each in the handlers of the other."""
    names = chance.sample(sorted(HOSTILE), chance.choice([2, 2, 3]))
    bodies = [HOSTILE[name][0].replace("return ", "void ") for name in names]
    way = chance.choice(["try { %s } catch {}", "try { %s } finally {}", "(async () => { %s })();", "{ %s }"])
    body = "\n".join(way % each for each in bodies)

    async def attack() -> None:
        host = FakeHost()
        outcome = await sandbox.bounded(job(body, limits=replace(LIMITS, compute_s=COMPUTE_S)), host)
        if not isinstance(outcome, Ended | ScriptError):
            raise Broken(f"it ended with {outcome!r:.200}")
        odd = set(host.names) - {"gmail.get", "gmail.search", "registerInput", "publish"}
        must(not odd, f"the host was asked for {odd}")
        await sandbox.harmless()

    return Attack(f"hostile scripts as one: {', '.join(names)}", attack)


AREA = Area(
    "scripts", "the sandbox, by scripts that mean harm", place, attacks, drawn,
    (
        Planted("messages of any size", lambda: patch(f"{__name__}.LIMITS", replace(LIMITS, message_bytes_max=64 << 20)),
                "huge result"),
        Planted("a producer may send", lambda: patch.object(
            script_world, "ALLOWED", {**ALLOWED, Step.PRODUCER: ALLOWED[Step.PRODUCER] | ALLOWED[Step.MUTATE]}),
            "the step producer"),
    ),
)
