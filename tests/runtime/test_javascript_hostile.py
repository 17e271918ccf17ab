# ruff: noqa: E501 (a script is read best on one line)
"""Scripts that mean harm. Each ends within its limit plus a second of processor time, in an error that names the limit or
harmlessly with the right value; and afterwards the same runtime runs a normal script."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import psutil
import pytest

from keepai.model.errors import BadValue, KeepError, LimitExceeded, ScriptError, ScriptThrew
from keepai.model.operations import Step
from keepai.runtime.base import Ended, Job, Limits
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from keepai.runtime.javascript.step import StepRun
from keepai.runtime.javascript.vm import Vm
from tests.runtime.script_world import FakeHost, job, value

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPUTE_S = 0.4
WALL_S = 10 * COMPUTE_S + 2  # the limit is of processor time; a busy machine may take so long over it
LIMITS = Limits(
    compute_s=COMPUTE_S, memory_bytes=24 << 20, calls_max=50, message_bytes_max=256 << 10, log_bytes_max=4096,
)


@dataclass(frozen=True)
class Returns:
    """It must end harmlessly with this value."""

    value: object


@dataclass(frozen=True)
class Fails:
    """It must end in this error, whose message has one of these words."""

    error: type[KeepError]
    words: tuple[str, ...] = ("",)


def limit(*words: str) -> Fails:
    return Fails(LimitExceeded, words)


TIME = limit("time limit of 0.4 s")
MEMORY = limit("memory limit")
STACK = limit("stack limit")
TIME_OR_MEMORY = limit("time limit", "memory limit")
ANY_LIMIT = Fails(ScriptError, ("limit", "stack", "string length", "array length", "array buffer length", "out of memory", "too long", "too large"))
THREW = Fails(ScriptThrew)

AMBIENT = {
    "no node": ("return typeof process + typeof require + typeof module + typeof global;", Returns("undefined" * 4)),
    "function constructor": ("return typeof Function('return this')().process;", Returns("undefined")),
    "constructor of this": ("return typeof (() => {}).constructor('return process')();", Fails(ScriptThrew, ("process",))),
    "indirect eval": ("return (0, eval)('typeof Deno + typeof std + typeof os');", Returns("undefined" * 3)),
    "import of os": ("return await import('os').catch((e) => e.name);", Returns("ReferenceError")),
    "import of a data url": ("await import('data:text/javascript,export default 1');", THREW),
    "import of itself": ("return await import('script.js').then(Object.keys, (e) => e.name);", Returns(["default"])),
    "network": ("return typeof fetch + typeof XMLHttpRequest + typeof WebSocket + typeof Worker;", Returns("undefined" * 4)),
    "threads": ("return typeof SharedArrayBuffer + typeof Atomics + typeof WebAssembly;", Returns("undefined" * 3)),
    "timers": ("return typeof setTimeout + typeof setInterval + typeof performance;", Returns("undefined" * 3)),
    "collector": ("return typeof WeakRef + typeof FinalizationRegistry + typeof gc;", Returns("undefined" * 3)),
    "hidden names": ("return Object.getOwnPropertyNames(globalThis).filter((n) => n.startsWith('_'));", Returns([])),
}

CLIMB = {
    "through a ctx function": ("return ctx.gmail.get.constructor('return typeof process')();", Returns("undefined")),
    "members of a ctx function": ("return Object.getOwnPropertyNames(ctx.gmail.get).sort();", Returns(["length", "name"])),
    "caller and arguments": ("try { return typeof ctx.publish.caller; } catch (e) { return e.name; }", Returns("TypeError")),
    "constructing a ctx function": ("try { new ctx.gmail.get(1); } catch (e) { return e.name; }", Returns("TypeError")),
    "another this": ("return await ctx.gmail.get.call({host: 1}, 5);", Returns([5])),
    "stack has no host paths": ("return /\\/|\\.py/.test(new Error().stack);", Returns(False)),
    "prepareStackTrace is inert": (
        "let ran = 0; Error.prepareStackTrace = () => { ran = 1; return []; }; new Error().stack; await ctx.gmail.get(1);"
        "return [ran, typeof new Error().stack, Error.prepareStackTrace ?? null];", Returns([0, "string", None]),
    ),
    "stackTraceLimit is inert": ("Error.stackTraceLimit = 0; return new Error().stack.includes('script.js');", Returns(True)),
    "a stack getter of its own": (
        "Object.defineProperty(Error.prototype, 'stack', {get() { throw 1; }}); return await ctx.gmail.get(1);", Returns([1]),
    ),
    "redefining Keep": ("try { Keep.workflow = 1; } catch (e) { return e.name; }", Returns("TypeError")),
    "shadowing the console": ("try { console = null; } catch (e) { return e.name; }", Returns("TypeError")),
    "unfreezing ctx": ("return [Reflect.defineProperty(ctx, 'gmail', {value: 1}), Reflect.deleteProperty(ctx, 'gmail')];", Returns([False, False])),
    "ctx as a prototype": ("const o = Object.create(ctx); return await o.gmail.get(3);", Returns([3])),
}

CPU = {
    "loop": ("for (;;);", TIME),
    "loop that catches": ("for (;;) { try { for (;;); } catch {} finally { continue; } }", TIME),
    "exponential recursion": ("(function f() { try { f(); } finally { f(); } })();", TIME),
    "regular expression": ("/^(a+)+$/.test('a'.repeat(40) + 'b');", TIME),
    "regular expression over a long text": ("'x'.repeat(30000).match(/(x+x+)+y/);", TIME),
    "backreference": ("/(a*)*\\1b/.test('a'.repeat(3e4));", Fails(ScriptError)),
    "sort with slow comparison": ("[...Array(1e5).keys()].sort(() => { let s = 0; for (let i = 0; i < 1e5; i++) s += i; return s % 3 - 1; });", TIME),
    "large power": ("return String(3n ** 3000000n).length;", ANY_LIMIT),
    "repeated squaring": ("let b = 3n; for (;;) b = b * b;", ANY_LIMIT),
    "fill of a huge array": ("new Array(2 ** 32 - 1).fill(0);", TIME_OR_MEMORY),
    "from a huge length": ("Array.from({length: 2 ** 53 - 1});", ANY_LIMIT),
    "search in a long text": ("for (;;) 'a'.repeat(3e5).indexOf('a'.repeat(1.5e5) + 'b');", TIME),
    "getter of the result": ("return {get x() { for (;;); }};", TIME),
    "toJSON of an argument": ("await ctx.gmail.get({toJSON() { for (;;); }});", TIME),
    "keys of a proxy": ("return new Proxy({}, {ownKeys() { for (;;); }});", TIME),
    "endless prototype chain": ("return new Proxy({}, {getPrototypeOf() { return new Proxy({}, this); }, getOwnPropertyDescriptor() {}});", TIME),
    "thrown with a bomb inside": ("throw {get message() { for (;;); }, get name() { for (;;); }};", TIME),
    "error with a bomb for a name": ("const e = new Error('x'); Object.defineProperty(e, 'name', {get() { for (;;); }}); throw e;", TIME),
    "logging a bomb": ("console.log({get x() { for (;;); }});", TIME),
    "at load": ("", TIME),
    "date parsing": ("for (;;) Date.parse('x'.repeat(1000));", TIME),
    "generated source": ("let s = '1'; for (let i = 0; i < 20; i++) s += '+' + s; eval(s);", Fails(ScriptError, ("limit", "stack"))),
}

MEMORY_BOMBS = {
    "objects": ("const a = []; for (;;) a.push({x: 1, y: [1, 2, 3]});", TIME_OR_MEMORY),
    "doubling a text": ("let s = 'abcdefgh'; for (;;) s += s;", ANY_LIMIT),
    "typed arrays": ("const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1));", MEMORY),
    "one huge buffer": ("new ArrayBuffer(2 ** 33);", ANY_LIMIT),
    "map": ("const m = new Map(); for (let i = 0; ; i++) m.set(i, {i});", TIME_OR_MEMORY),
    "symbols": ("for (let i = 0; ; i++) Symbol.for(i + 'y'.repeat(1e5));", TIME_OR_MEMORY),
    "bound functions": ("let f = () => {}; for (;;) f = f.bind();", TIME_OR_MEMORY),
    "closures": ("let f = null; for (;;) { const g = f; f = () => g; }", TIME_OR_MEMORY),
    "caught and tried again": ("for (;;) { try { const a = []; for (;;) a.push(new Array(1e5).fill(7)); } catch {} }", TIME),
    "pending promises": ("for (;;) new Promise(() => {}).then(() => {});", TIME_OR_MEMORY),
    "rejected promises": ("const a = []; for (;;) a.push(Promise.reject(1));", TIME_OR_MEMORY),
    "replaceAll": ("'a'.repeat(2e6).replaceAll('a', 'b'.repeat(20)).length;", ANY_LIMIT),
    "many arguments": ("Math.max.apply(null, new Array(5e6).fill(1));", Fails(ScriptError)),
    "repeat": ("'x'.repeat(2 ** 29);", ANY_LIMIT),
    "join": ("new Array(2 ** 26).join('abcdefgh');", ANY_LIMIT),
}

STACK_BOMBS = {
    "recursion": ("(function f() { f(); })();", STACK),
    "recursion that catches": ("let n = 0; (function f() { try { f(); } catch { n++; } })(); return n > 0;", Returns(True)),
    "async recursion": ("const f = async () => await f(); await f();", Fails(ScriptError)),
    "getter recursion": ("const o = {get x() { return this.x; }}; o.x;", STACK),
    "proxy recursion": ("const p = {}; Object.setPrototypeOf(p, new Proxy({}, {get: (t, k, r) => r[k]})); p.x;", STACK),
    "deep array to text": ("let a = []; for (let i = 0; i < 1e5; i++) a = [a]; String(a);", STACK),
    "deep JSON": ("JSON.parse('['.repeat(1e6));", Fails(ScriptError)),
    "deep source": ("eval('('.repeat(1e5) + ')'.repeat(1e5));", Fails(ScriptError)),
    "deep regular expression": ("RegExp('('.repeat(1e5) + ')'.repeat(1e5));", Fails(ScriptError)),
    "flattening itself": ("const a = []; a[0] = a; a.flat(Infinity);", Fails(ScriptError)),
    "toString of a proxy chain": ("let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); `${p}`;", Fails(ScriptError)),
}

ASYNC = {
    "microtask storm": ("await new Promise(() => { (function g() { Promise.resolve().then(g); })(); });", TIME),
    "microtask storm after the end": ("(function g() { queueMicrotask(g); })(); return 1;", TIME),
    "loop in a microtask": ("Promise.resolve().then(() => { for (;;); }); return 1;", TIME),
    "never": ("await new Promise(() => {});", Fails(ScriptThrew, ("never comes",))),
    "never, by a thenable": ("await {then() {}};", Fails(ScriptThrew, ("never comes",))),
    "thenable that settles twice": ("return await {then(y, n) { y(1); y(2); n(3); }};", Returns(1)),
    "thenable for ever": ("return {then(y) { y(this); }};", TIME),
    "floating rejection": ("Promise.reject(new Error('floats')); return 1;", Fails(ScriptThrew, ("floats",))),
    "throwing microtask": ("queueMicrotask(() => { throw new Error('job'); }); await null; await null; return 1;", Fails(ScriptThrew, ("job",))),
    "inputs without end": ("for (;;) ctx.registerInput({});", TIME),
    "events without end": ("for (;;) ctx.publish('t', {});", TIME),
    "too many calls, not awaited": ("for (;;) ctx.gmail.get(1);", limit("limit of 50")),
    "too many calls, awaited": ("for (;;) await ctx.gmail.get(1);", limit("limit of 50")),
    "catching the limit": ("for (;;) { try { await ctx.gmail.get(1); } catch {} }", limit("limit of 50")),
    "a call in a floating function": ("(async () => { await null; await ctx.gmail.get(7); })(); return 1;", Returns(1)),
    "async iterator for ever": ("for await (const x of {[Symbol.asyncIterator]: () => ({next: async () => ({})})});", TIME),
}

POLLUTION = {
    "toJSON on all objects": (
        "Object.prototype.toJSON = () => 'pwned'; Array.prototype.toJSON = () => 'pwned'; return [{a: 1}, await ctx.gmail.get({b: [2]})];",
        Returns([{"a": 1}, [{"b": [2]}]]),
    ),
    "toJSON on texts": ("String.prototype.toJSON = Number.prototype.toJSON = () => 'pwned'; return ['a', 1];", Returns(["a", 1])),
    "JSON replaced": ("JSON.stringify = JSON.parse = () => 'pwned'; return [{a: 1}, await ctx.gmail.get(2)];", Returns([{"a": 1}, [2]])),
    "array methods replaced": (
        "for (const n of Object.getOwnPropertyNames(Array.prototype)) if (typeof [][n] === 'function' && n !== 'constructor') Array.prototype[n] = () => { throw 1; };"
        "return [await ctx.gmail.get([1])];", Returns([[[1]]]),
    ),
    "setters on array indexes": (
        "for (let i = 0; i < 9; i++) Object.defineProperty(Array.prototype, i, {set() { throw 1; }, get() { return 'pwned'; }, configurable: true});"
        "return await ctx.gmail.get({a: 1});", Returns([{"a": 1}]),
    ),
    "getters on all objects": (
        "for (const n of ['value', 'get', 'set', 'name', 'default', 'work', 'owner', 'up', 'stack'])"
        " Object.defineProperty(Object.prototype, n, {__proto__: null, get() { return 'pwned'; }, set() {}, configurable: true});"
        "return [await ctx.gmail.get({a: 1}), Object.keys(await ctx.gmail.search({}))];", Returns([[{"a": 1}], ["0"]]),
    ),
    "then on all objects": (
        "Object.prototype.then = function (done) { delete Object.prototype.then; done('pwned'); }; ctx.log('x'); return 1;", Returns(1),
    ),
    "Promise replaced": (
        "Promise.prototype.then = () => { throw 1; }; Promise.resolve = () => { throw 2; }; globalThis.Promise = null;"
        "return await ctx.gmail.get(4);", Returns([4]),
    ),
    "Reflect and Object replaced": (
        "Reflect.apply = Object.keys = Object.defineProperty = Object.freeze = Array.isArray = Number.isFinite = () => { throw 1; };"
        "return [await ctx.gmail.get({x: 1}), ctx.registerInput([2])];", Returns([[{"x": 1}], [[2]]]),
    ),
    "call and bind replaced": (
        "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw 1; }; return await ctx.gmail.get(1);",
        Returns([1]),
    ),
    "text methods replaced": (
        "String.prototype.indexOf = String.prototype.slice = () => { throw 1; }; return await ctx.gmail.get('a\\nb');", Returns(["a\nb"]),
    ),
    "reservations by inheritance": (
        "Object.defineProperty(Object.prototype, 'reservations', {value: [{topic: 'x'}], enumerable: true}); return {data: 1};",
        Returns({"data": 1}),
    ),
    "String methods replaced": (
        "for (const n of Object.getOwnPropertyNames(String.prototype)) if (typeof ''[n] === 'function') String.prototype[n] = () => 'pwned';"
        " return [await ctx.gmail.get({a: 1}), 1];",
        Returns([[{"a": 1}], 1]),
    ),
    "stack traces replaced": (
        "Error.captureStackTrace = () => { throw 1; }; Object.defineProperty(Object.prototype, 'stack', {get() { throw 1; }, set() { throw 1; }});"
        " return await ctx.gmail.get(1);",
        Returns([1]),
    ),
    "writing while writing": (
        "const twice = {get b() { ctx.registerInput({c: {d: 1}}); throw 1; }}; try { ctx.gmail.get({a: twice}); } catch {}"
        " return await ctx.gmail.get({e: [NaN]});",
        Fails(BadValue, ("ctx.gmail.get.e[0] is NaN",)),
    ),
    "WeakSet replaced": ("WeakSet.prototype.has = () => true; return 1;", Returns(1)),
    "Symbol.iterator replaced": ("Array.prototype[Symbol.iterator] = null; return await ctx.gmail.get({a: 1}, 2);", Returns([{"a": 1}, 2])),
    "Error replaced": ("globalThis.Error = null; return await ctx.gmail.get(1);", Returns([1])),
    "__proto__ as data": (
        "const o = JSON.parse('{\"__proto__\": {\"admin\": true}}'); const r = await ctx.gmail.get(o); return [r, {}.admin ?? null];",
        Returns([[{"__proto__": {"admin": True}}], None]),
    ),
}

DATA = {
    "cycle": ("const c = {}; c.c = c; return c;", Fails(BadValue, ("contains itself",))),
    "shared many times over": ("let o = [1]; for (let i = 0; i < 50; i++) o = [o, o]; return o;", limit("message limit", "time limit")),
    "huge result": ("return 'x'.repeat(1e6);", limit("message limit of 262,144")),
    "huge result in bytes": ("return 'é'.repeat(2e5);", limit("message limit of 262,144")),
    "huge argument": ("await ctx.gmail.get('x'.repeat(1e6));", limit("message limit of 262,144")),
    "many arguments": ("await ctx.gmail.get(...Array(1e5).fill(['xxxxxxxxxx']));", Fails(ScriptError, ("too many arguments",))),
    "huge sparse array": ("return new Array(2 ** 32 - 1);", limit("message limit", "time limit")),
    "huge key of a proxy": (
        "return new Proxy({}, {ownKeys: () => ['a'.repeat(1e6)], getOwnPropertyDescriptor: () => ({enumerable: true, configurable: true, value: 1}), get: () => 1});",
        limit("message limit"),
    ),
    "length of an array-like": ("return {length: 2 ** 53 - 1};", Returns({"length": 2**53 - 1})),
    "lone surrogate": ("return '\\ud800';", Fails(BadValue, ("surrogate",))),
    "lone surrogate in a line": ("console.log('\\ud800'); return 1;", Returns(1)),
    "lone surrogate in an exception": ("throw new Error('\\ud800');", THREW),
    "NUL": ("return await ctx.gmail.get('a\\0b');", Returns(["a\0b"])),
    "log flood": ("for (;;) console.log('x');", TIME),
    "one huge line": ("console.log('x'.repeat(1e6)); return 1;", Returns(1)),
    "forged location": ("const f = {['at x (script.js:9:9)']() { ctx.registerInput(1); }}; f['at x (script.js:9:9)'](); return 1;", Returns(1)),
    "huge function name": ("const f = () => ctx.registerInput(1); Object.defineProperty(f, 'name', {value: 'n'.repeat(1e6)}); f(); return 1;", Returns(1)),
    "throwing getter in the result": ("return {get x() { throw new Error('getter'); }};", Fails(ScriptThrew, ("getter",))),
    "revoked proxy": ("const r = Proxy.revocable({}, {}); r.revoke(); return r.proxy;", THREW),
    "revoked proxy thrown": ("const r = Proxy.revocable({}, {}); r.revoke(); throw r.proxy;", THREW),
    "throwing the ctx": ("throw ctx;", Fails(ScriptError)),
    "returning the ctx": ("return ctx;", Returns({"gmail": {}, "sheets": {}})),
}

HOSTILE = {
    f"{group}: {name}": case
    for group, cases in {
        "ambient": AMBIENT, "climb": CLIMB, "cpu": CPU, "memory": MEMORY_BOMBS, "stack": STACK_BOMBS,
        "async": ASYNC, "pollution": POLLUTION, "data": DATA,
    }.items()
    for name, case in cases.items()
}
BEFORE = {"cpu: at load": "for (;;);\n"}


async def outcome_of(runtime: JavaScriptRuntime, made: Job, host: FakeHost) -> Ended | ScriptError:
    try:
        return await runtime.run(made, host)
    except ScriptError as error:
        return error


def processor_s(runtime: JavaScriptRuntime) -> float:
    """What all workers have used, those that are gone and those that are there."""
    assert runtime._server is not None
    server = psutil.Process(runtime._server.process.pid)
    while True:  # until none goes while its time is read: it would be counted twice or not at all
        workers = server.children()
        with contextlib.suppress(psutil.NoSuchProcess):
            there, gone = [worker.cpu_times() for worker in workers], server.cpu_times()
            if server.children() == workers:
                return sum((t.user + t.system for t in there), gone.children_user + gone.children_system)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_script_ends_within_its_limit_and_harms_nobody(runtime, host, name) -> None:
    body, expected = HOSTILE[name]
    await runtime.protections()  # a worker that has to be started first is not the script's time
    started, used_s = time.monotonic(), processor_s(runtime)
    outcome = await outcome_of(runtime, job(body, before=BEFORE.get(name, ""), limits=LIMITS), host)
    assert time.monotonic() - started < WALL_S
    assert processor_s(runtime) - used_s < COMPUTE_S + 1
    if isinstance(expected, Returns):
        assert isinstance(outcome, Ended), repr(outcome)
        assert value(outcome.value) == expected.value
    else:
        assert isinstance(outcome, expected.error), repr(outcome)
        assert any(word in outcome.message for word in expected.words), repr(outcome)
    assert await runtime.run(job("return 1;"), host) == Ended("1")


LEAKS = {
    "a global": "globalThis.leak = 1;",
    "a prototype": "Object.prototype.leak = 1;",
    "time and chance": "Date.now = () => 0; Math.random = () => 4; JSON.parse = () => ({});",
    "a module variable": "leak = 1;",
    "a registered symbol": "Symbol.for('leak');",
}


@pytest.mark.parametrize("body", LEAKS.values(), ids=LEAKS.keys())
async def test_nothing_leaks_from_one_step_into_the_next(runtime, host, body) -> None:
    look = "return [typeof globalThis.leak, typeof {}.leak, leak, Date.now() > 1e12, Math.random() < 1, JSON.parse('1')];"
    before = "let leak = 0;\n"
    await runtime.run(job(body, before=before), host)
    ended = await runtime.run(job(look, Step.PREPARE, before=before), host)
    assert value(ended.value) == ["undefined", "undefined", 0, True, True, 1]


async def test_with_the_smallest_limits_a_script_still_ends_in_order(runtime, host) -> None:
    limits = replace(LIMITS, memory_bytes=1 << 20, stack_bytes=16 << 10, message_bytes_max=64, calls_max=1)
    assert await runtime.run(job("return await ctx.gmail.get(1);", limits=limits), host) == Ended("[1]")


# No clock that a script can reach is finer than a millisecond.

CLOCKS = {
    "Date.now": "Date.now()",
    "a new date": "new Date().getTime()",
    "a date as a text": "Date.parse(new Date().toISOString())",
    "a date as a number": "+new Date()",
    "Date as a function of another": "Reflect.construct(Date, []).valueOf()",
}


@pytest.mark.parametrize("read", CLOCKS.values(), ids=CLOCKS.keys())
@pytest.mark.parametrize("step", [Step.PRODUCER, Step.PREPARE, Step.NEXT])
async def test_a_clock_of_a_script_moves_by_whole_milliseconds(runtime, host, step, read) -> None:
    body = (
        f"const read = () => {read}; const seen = new Set([read()]);"
        " while (seen.size < 4) seen.add(read()); return [...seen];"
    )
    seen = value((await runtime.run(job(body, step, state="1" if step is Step.NEXT else None), host)).value)
    assert all(type(each) is int for each in seen), seen


@pytest.mark.parametrize("real_ns", [1, 999_999, 1_234_567_890_123])
async def test_the_clock_that_the_interpreter_itself_reads_moves_by_whole_milliseconds(real_ns: int, monkeypatch) -> None:
    """Whatever an interpreter may offer as a clock (performance.now, say) is made of this one."""
    monkeypatch.setattr("time.clock_gettime_ns", lambda _clock: real_ns)
    written: list[bytes] = []
    vm, step = object.__new__(Vm), object.__new__(StepRun)
    step._fixed, step._ahead_ms = None, 0
    vm._asked, vm.guest = step, SimpleNamespace(write=lambda _at, data: written.append(data))
    vm.clock(0)
    assert int.from_bytes(written[0], "little") == real_ns // 1_000_000 * 1_000_000


#: All that a script finds: whatever a new interpreter brings must be looked at first, and is no clock.
GLOBALS = """
    AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array BigUint64Array Boolean
    DOMException DataView Date DisposableStack Error EvalError Float16Array Float32Array Float64Array Function
    Infinity Int16Array Int32Array Int8Array InternalError Iterator JSON Keep Map Math NaN Number Object Promise
    Proxy RangeError ReferenceError Reflect RegExp Set String SuppressedError Symbol SyntaxError TextDecoder
    TextEncoder TypeError URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array Uint8ClampedArray
    WeakMap WeakSet atob btoa console decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval
    globalThis isFinite isNaN parseFloat parseInt queueMicrotask structuredClone undefined unescape
"""


async def test_a_script_finds_no_name_that_nobody_has_looked_at(runtime, host) -> None:
    names = value((await runtime.run(job("return Object.getOwnPropertyNames(globalThis);"), host)).value)
    assert set(names) == set(GLOBALS.split())
