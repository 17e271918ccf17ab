# ruff: noqa: E501 (a script is read best on one line)
"""Scripts that mean harm, and how each must end: in an error that names the limit, or harmlessly with the right value."""

from __future__ import annotations

from dataclasses import dataclass

from keepai.model.errors import BadValue, KeepError, LimitExceeded, ScriptError, ScriptThrew

COMPUTE_S = 0.05  # for a script that may end at its time limit; the others have more


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


TIME = limit(f"time limit of {COMPUTE_S} s")
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

#: What a step leaves behind for the next one, if it could.
LEAKS = {
    "a global": "globalThis.leak = 1;",
    "a prototype": "Object.prototype.leak = 1;",
    "time and chance": "Date.now = () => 0; Math.random = () => 4; JSON.parse = () => ({});",
    "a module variable": "leak = 1;",
    "a registered symbol": "Symbol.for('leak');",
}
