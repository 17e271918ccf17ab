# ruff: noqa: E501 (a script is read best on one line)
"""Steps that start from the image of a loaded script find what loading it anew would give, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from keepai.model.errors import LimitExceeded, ScriptError, ScriptThrew
from keepai.model.operations import Kind, Step, Surface
from keepai.runtime.base import Job, LogLine, Operation, Reply
from keepai.runtime.javascript import fork_client, loaded_scripts
from keepai.runtime.javascript.deadline import Deadline
from keepai.runtime.javascript.frames import Frame, parse_frame
from keepai.runtime.javascript.image import build_image
from keepai.runtime.javascript.instance import Instance, VmLimits
from keepai.runtime.javascript.loaded_scripts import LoadedScript, LoadedScripts
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from keepai.runtime.javascript.step import StepRun
from keepai.runtime.javascript.vm import Vms
from keepai.runtime.javascript.wasm_engine import Engine
from tests.runtime.script_world import LIMITS, SURFACE, FakeHost, fixed, job, value

asynchronous = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def alone() -> AsyncIterator[JavaScriptRuntime]:
    """A runtime of one worker, so that every step meets what the steps of all tests before it left there."""
    made = JavaScriptRuntime(workers_max=1)
    yield made
    await made.close()


async def values(runtime: JavaScriptRuntime, made: Job, count: int = 3) -> list[object]:
    return [value((await runtime.run(made, FakeHost())).value) for _ in range(count)]


# ---- what a step may not be able to tell ------------------------------------------------------------------


@asynchronous
@pytest.mark.parametrize("expression", ["Math.random()", "[Math.random()].map((x) => x)[0]", "(() => { try { throw Math.random(); } catch (e) { return e; } })()"])
async def test_chance_at_the_top_level_is_new_in_every_step(alone, expression) -> None:
    seen = await values(alone, job("return top;", before=f"const top = {expression};\n"))
    assert len(set(map(str, seen))) == 3


@asynchronous
async def test_time_at_the_top_level_is_that_of_the_step(alone) -> None:
    for begun_ms in (1_700_000_000_000, 1_800_000_000_000):
        made = job("return [top, new Date(+text).getTime()];", before="const top = Date.now(); const text = new Date();\n", begun_ms=begun_ms)
        for seen in await values(alone, made, 2):
            assert all(0 <= at - begun_ms < 5_000 for at in seen)


@asynchronous
async def test_time_and_chance_at_the_top_level_are_fixed_in_mutate(alone) -> None:
    body, before = "await ctx.gmail.send(top, Math.random());", "const top = [Date.now(), Math.random()];\n"
    one = [await alone.run(job(body, Step.MUTATE, before=before, fixed=fixed()), FakeHost()) for _ in range(2)]
    other = await alone.run(job(body, Step.MUTATE, before=before, fixed=fixed(b"other")), FakeHost())
    assert one[0] == one[1] != other


@asynchronous
async def test_chance_in_mutate_is_the_same_whether_the_script_was_loaded_or_not(alone, runtime) -> None:
    made = job("await ctx.gmail.send(Math.random(), Math.random());", Step.MUTATE, fixed=fixed())
    seen = [await alone.run(made, FakeHost()) for _ in range(3)] + [await runtime.run(made, FakeHost())]
    assert all(ended == seen[0] for ended in seen)


@asynchronous
async def test_chance_in_a_handler_is_new_in_every_step(alone) -> None:
    assert len({str(seen) for seen in await values(alone, job("return Math.random();"))}) == 3


@asynchronous
async def test_a_line_logged_at_the_top_level_is_logged_in_every_step(alone) -> None:
    for _ in range(3):
        host = FakeHost()
        await alone.run(job("return 1;", before="console.log('loading');\n"), host)
        assert host.lines == [LogLine("info", "loading")]


@asynchronous
@pytest.mark.parametrize(("before", "message"), [
    ("throw new Error('at load');", "at load"), ("Promise.reject(new Error('floats'));", "floats"),
    ("await new Promise(() => {});", "never comes"), ("const x = ;", "SyntaxError"),
])
async def test_a_top_level_that_fails_does_so_in_every_step(alone, before, message) -> None:
    for _ in range(3):
        with pytest.raises(ScriptThrew, match=message):
            await alone.run(job("return 1;", before=before + "\n"), FakeHost())


TRACES_LEFT = {
    "a module variable": "count++;",
    "a member of a module's object": "held.list.push(1);",
    "a built-in prototype": "Array.prototype.leak = Object.prototype.leak = 1;",
    "a built-in replaced": "JSON.stringify = Math.max = Promise.prototype.then = null; globalThis.Error = 1;",
    "the workflow itself": "for (const c of Object.values(self.workflow.producers)) c.handler = () => 'taken over';",
    "a promise for ever": "new Promise(() => {}); held.map.set('x', 1);",
    "much memory": "held.list.push(...new Array(3e5).fill(7));",
    "a thrown error": "count++; throw new Error('x');",
    "a broken limit": "count++; for (;;);",
    "a full stack": "count++; (function f() { f(); })();",
    "a full memory": "count++; for (;;) held.list.push(new Array(1e5).fill(7));",
    "a forbidden call": "count++; ctx.peek('t');",
}


@asynchronous
@pytest.mark.parametrize("body", TRACES_LEFT.values(), ids=TRACES_LEFT.keys())
async def test_what_a_step_leaves_behind_is_not_there_in_the_next_nor_in_another_script(alone, body) -> None:
    before = "let count = 0; const held = {list: [], map: new Map()}; const self = {};\n"
    look = "return [count, held.list.length, held.map.size, typeof [].leak, typeof {}.leak, Math.max(1, 2), typeof Error, typeof JSON.stringify];"
    clean = [0, 0, 0, "undefined", "undefined", 2, "function", "function"]
    limits = replace(LIMITS, compute_s=0.3, memory_bytes=8 << 20)
    made = job(f"if (one) {{ {body} }}\n{look}", before=before, limits=limits)
    made = replace(made, source=made.source.replace("Keep.workflow({", "self.workflow = Keep.workflow({"))
    other = job(look, before=before, limits=limits)
    assert (await values(alone, made, 1), await values(alone, other, 1)) == ([clean], [clean])
    with contextlib.suppress(ScriptError):
        await alone.run(replace(made, args=("true",)), FakeHost())
    assert (await values(alone, made, 2), await values(alone, other, 1)) == ([clean, clean], [clean])


@asynchronous
async def test_two_versions_of_a_script_do_not_mix(alone) -> None:
    versions = [job("return version;", before=f"const version = {number};\n") for number in range(3)]
    seen = [value((await alone.run(version, FakeHost())).value) for version in versions * 3]
    assert seen == [0, 1, 2] * 3


@asynchronous
async def test_one_script_with_another_surface_or_other_limits_is_another(alone) -> None:
    made = job("return Object.keys(ctx);")
    wide = Surface({**SURFACE.operations, "slack": {"post": Kind.READ}}, {})
    seen = [value((await alone.run(each, FakeHost())).value) for each in (made, replace(made, surface=wide), made)]
    assert ["slack" in names for names in seen] == [False, True, False]
    large = job("return 'x'.repeat(1000).length + (await ctx.gmail.get('y'.repeat(1000)))[0].length;")
    assert await values(alone, large, 2) == [2000, 2000]
    with pytest.raises(LimitExceeded):
        await alone.run(replace(large, limits=replace(LIMITS, message_bytes_max=500)), FakeHost())
    assert await values(alone, large, 2) == [2000, 2000]


@asynchronous
@pytest.mark.parametrize("limit", ["_SCRIPTS_MAX", "_SOURCES_MAX"])
async def test_a_worker_is_told_anew_of_a_script_that_it_had_to_forget(monkeypatch, limit) -> None:
    versions = [job("return version;", before=f"const version = {number};\n") for number in range(5)]
    monkeypatch.setattr(fork_client, limit, {"_SCRIPTS_MAX": 2, "_SOURCES_MAX": 2 * len(versions[0].source)}[limit])
    runtime = JavaScriptRuntime(workers_max=1)
    seen = [value((await runtime.run(version, FakeHost())).value) for version in versions * 2]
    assert seen == [0, 1, 2, 3, 4] * 2
    assert len(runtime._pool.workers[0].scripts) == 2
    await runtime.close()


@asynchronous
async def test_an_error_has_its_place_in_a_step_from_an_image_too(alone) -> None:
    made = job("const a = 1;\nctx.gmail.serch(a);")
    for _ in range(3):
        with pytest.raises(ScriptError) as caught:
            await alone.run(made, FakeHost())
        assert caught.value.at is not None
        assert caught.value.at.line == 3


@asynchronous
async def test_lines_of_the_log_come_in_order_and_before_the_call_that_follows_them(alone) -> None:
    host, order = FakeHost(), []

    def answer(_operation: Operation) -> Reply:
        order.append(list(host.texts))
        return Reply.of(1)

    host.answers["gmail.get"] = answer
    await alone.run(job("console.log('a'); console.log('b'); await ctx.gmail.get(1); console.log('c');"), host)
    assert order == [["a", "b"]]
    assert host.texts == ["a", "b", "c"]


# ---- the images themselves --------------------------------------------------------------------------------


class Recorded:
    """The worker's end of a channel on which nobody answers."""

    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: bytes) -> None:
        self.sent += data

    @property
    def last(self) -> Frame:
        data, frame = self.sent, b""
        while data:
            length = int.from_bytes(data[:4], "little")
            frame, data = data[4 : 4 + length], data[4 + length :]
        return parse_frame(frame)


class InProcess:
    """What a worker does, here."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.base = build_image(self.engine)
        self.vms, self.scripts = Vms(self.engine), LoadedScripts(self.base)
        self.deadline = Deadline(self.engine.interrupt)

    def learn(self, number: int, made: Job) -> LoadedScript:
        script = LoadedScript(made.source, made.surface, made.limits)
        self.scripts.learn(number, script)
        return script

    def run(self, script: LoadedScript, made: Job) -> Frame:
        channel = Recorded()
        step = StepRun(self.vms, self.scripts, channel, self.deadline, script, made, 1)  # type: ignore[arg-type]
        step.run(made.limits.compute_s)
        step.send_end()
        return channel.last


@pytest.fixture(scope="module")
def inside() -> InProcess:
    return InProcess()


NO_IMAGE = {
    "time": "const t = Date.now();", "a date": "const t = new Date();", "chance": "const r = Math.random();", "a line": "console.log(1);",
    "a floating rejection that is caught later": "const p = Promise.reject(1); await null; p.catch(() => {});",
    "much memory": "const a = new Array(1e6).fill(7);",
}


@pytest.mark.parametrize("before", NO_IMAGE.values(), ids=NO_IMAGE.keys())
def test_a_top_level_that_met_something_of_its_step_leaves_no_image(inside, before) -> None:
    made = job("return 1;", before=before + "\n")
    script = inside.learn(1, made)
    for _ in range(2):
        assert inside.run(script, made)["texts"] == ["1"]
        assert script.image is None


def test_a_script_is_loaded_once(inside) -> None:
    made = job("return 1;", before="const table = Array.from({length: 100}, (_, i) => i); const p = Promise.resolve(1);\n")
    script = inside.learn(1, made)
    inside.run(script, made)
    first = script.image
    assert first is not None
    assert inside.run(script, made)["texts"] == ["1"]
    assert script.image is first


def test_an_image_holds_nothing_of_the_step_that_made_it(inside) -> None:
    made = job("return [one, Math.random()];", args=('"a-secret-of-one-run"',), state='"a-secret-state"')
    script = inside.learn(1, made)
    assert "a-secret-of-one-run" in inside.run(script, made)["texts"][0]
    assert script.image is not None
    assert not any(b"a-secret" in data for *_, data in (*script.image.pieces, *script.image.changes))


def test_the_images_of_a_worker_are_bounded_and_the_longest_unused_goes_first(inside, monkeypatch) -> None:
    inside.scripts = LoadedScripts(inside.base)
    jobs = [job(f"return {number};") for number in range(4)]
    known = [inside.learn(number, made) for number, made in enumerate(jobs)]
    inside.run(known[0], jobs[0])
    monkeypatch.setattr(loaded_scripts, "IMAGES_BYTES_MAX", known[0].image.changed_bytes * 2)
    inside.run(known[1], jobs[1])
    inside.scripts.use(0)
    inside.run(known[2], jobs[2])
    assert [script.image is not None for script in known] == [True, False, True, False]
    assert inside.scripts.images_bytes <= loaded_scripts.IMAGES_BYTES_MAX
    assert inside.run(known[1], jobs[1])["texts"] == ["1"]


def test_a_reset_leaves_no_byte_of_what_was_in_the_memory(inside) -> None:
    instance = Instance(inside.engine, VmLimits())
    instance.reset(inside.base, VmLimits())
    clean = instance.guest.read(0, inside.base.size)
    instance.guest.write(0, b"\xaa" * inside.base.size)
    instance.reset(inside.base, VmLimits())
    assert instance.guest.read(0, inside.base.size) == clean
    assert clean.count(0) < len(clean)
    assert not any(clean[: inside.base.stack_pointer])


# ---- strings on their way out -----------------------------------------------------------------------------

STRINGS = {
    "plain": ("'abc'", "abc"), "empty": ("''", ""), "with a NUL": ("'a\\0b'", "a\0b"), "of Latin 1": ("'caf\\xe9\\xff'", "café\xff"),
    "wide": ("'5 \\u20ac, \\u{1f600}'", "5 €, 😀"), "a part of a longer one": ("'0123456789'.repeat(1000).slice(3, 9003)", ("0123456789" * 1000)[3:9003]),
    "a part of a wide one": ("'\\u20ac123456789'.repeat(1000).slice(3, 9003)", ("€123456789" * 1000)[3:9003]),
    "two put together": ("'a'.repeat(20000) + 'b'.repeat(20000)", "a" * 20000 + "b" * 20000),
    "a plain and a wide one put together": ("'a'.repeat(20000) + '\\u20ac'.repeat(20000)", "a" * 20000 + "€" * 20000),
}


@asynchronous
@pytest.mark.parametrize(("expression", "text"), STRINGS.values(), ids=STRINGS.keys())
async def test_a_string_of_every_kind_comes_out_as_it_is(alone, expression, text) -> None:
    host, made = FakeHost(), job(f"const s = {expression}; await ctx.gmail.get(s); console.log(s.slice(0, 100)); ctx.log(s.length); return s;")
    assert value((await alone.run(made, host)).value) == text
    assert [operation.args for operation in host.operations] == [(text,)]
    assert host.texts == [text[:100].replace("\0", "�"), str(len(text.encode("utf-16-le")) // 2)]


@asynchronous
async def test_what_a_step_was_given_can_be_as_long_as_a_message_may_be(alone) -> None:
    for length in (7_900, 8_100, 1 << 20):
        assert await values(alone, job("return one.length;", args=(f'"{"x" * length}"',)), 2) == [length, length]

